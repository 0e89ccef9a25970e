"""Write the tables of options in docs/: ``python tests/docs/option_tables.py``, or those of some groups only.

What an option is comes from its comment in ``conf/``. Sides and papers of strategies come from their options and the
docstrings of the classes that they name. Costs are those of two rounds on scikit-learn's digits, relative to FedAvg in
the same rounds. Shapes of samples and numbers of parameters come from the classes of datasets and models.
"""

from __future__ import annotations

import importlib
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
import yaml

from fedrun.config.allowed_values import shown
from fedrun.config.build import locate, option
from fedrun.config.composed import compose
from fedrun.config.key_reference import KeyEntry, key_entries
from fedrun.config.options import conf_dir, content, listed_file, option_files, parts
from fedrun.data.datasets.base import Spec
from fedrun.data.download.catalogue import catalogue
from fedrun.experiment.experiment import build_experiment
from fedrun.models.base import ModelConfig
from fedrun.simulation.simulation import Simulation
from fedrun.system.errors import InputError

DOCS = Path(__file__).parents[2] / "docs"
BEGIN, END = "<!-- written by tests/docs/option_tables.py -->", "<!-- end of the table -->"
SIDES = ("client", "server", "clustering", "post_training")
PLAIN = {"sgd", "fedavg", "none"}
"""Sides that change nothing, which the table leaves out."""

SETTING = (
    "partition.clients=6",
    "clients_per_round=1.0",
    "rounds=40",
    "tracking=none",
    "hardware.threads=1",
    "hardware.executor=in_process",
)
EXTRA = {
    "fedbn": ("strategy.client.layers=all",),
    "krum": ("strategy.server.byzantine=0",),
    "maxfl": ("appeal.steps=1",),
    "mwfed": ("appeal.steps=1",),
}
PERCEPTRON = ("model.hidden=[32]",)
MOBILENET = ("model=torchvision", "model.name=mobilenet_v3_small", "model.norm=group")
ADAPTED = (*MOBILENET, "model.lora.rank=4", "model.lora.targets=[classifier.0]")
NETWORKS = {"fedbn": MOBILENET, **dict.fromkeys(("fedexlora", "fedit", "fedsalora", "ffalora", "flora"), ADAPTED)}
"""The networks of strategies that reject :data:`PERCEPTRON`."""

COSTS = ("down", "up", "trained", "read", "state")

LOCATIONS = ("data_dir", "file", "folder", "name", "target", "vectors")
"""Keys that say where a dataset's samples are."""
OWN = {"file", "folder", "name", "target"}
"""Those of datasets that the reader brings."""


@dataclass(frozen=True)
class OptionTable:
    """The table of a group's options.

    Attributes:
        group: such as ``strategy``.
        page: the file that has the table between the lines :data:`BEGIN` and :data:`END`.
        columns: their titles.
        text: the cells of an option's row that are known without a measurement.
        measured: the further cells.
    """

    group: str
    page: Path
    columns: tuple[str, ...]
    text: Callable[[str], list[str]]
    measured: Callable[[str], list[str]] = lambda name: []

    @property
    def header(self) -> str:
        """The titles, and the line below them."""
        return "\n".join([line(self.columns), line(["---"] * len(self.columns))])

    def written(self) -> str:
        """The whole table."""
        names = sorted(option_files(self.group))
        return "\n".join([self.header, *(line([*self.text(name), *self.measured(name)]) for name in names)])

    def write(self) -> None:
        """Put the table into its page."""
        before, _, rest = self.page.read_text(encoding="utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        if not after:
            sys.exit(f"{self.page}: the line {END} is missing")
        self.page.write_text(f"{before}{BEGIN}\n{self.written()}\n{END}{after}", encoding="utf-8")


def line(cells: Iterable[str]) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def marked(text: str) -> str:
    """A comment as Markdown: paths, patterns, keys and names are code."""

    def code(word: re.Match[str]) -> str:
        return f"`{word[0]}`" if re.search(r"[<*\0]|\w[_=]\w", word[0]) else word[0]

    text = re.sub(r"fedrun-data \w+|pip install '.*?'", lambda command: command[0].replace(" ", "\0"), text)
    return re.sub(r"[^\s(),;:]*?[^\s(),;:.](?='s|\.?(?:[\s(),;:]|$))", code, text).replace("\0", " ")


def keys(group: str, name: str) -> str:
    """The keys of an option with their values, without a seed that follows the run's."""
    own = content(group, name, option_files(group)[name])
    without = {"defaults", "_target_"} | {key for key in ("seed",) if own.get(key, 0) is None}
    return ", ".join(setting(key, value) for key, value in own.items() if key not in without)


def setting(key: str, value: object) -> str:
    """A key with its default, as on the command line."""
    if value == "???":
        return f"`{key}` (no default)"
    return f"`{key}={shown(tuple(value) if isinstance(value, list) else value)}`"


@dataclass(frozen=True)
class Costs:
    """What two rounds cost, and what a client keeps after them: numbers, or samples."""

    down: int
    up: int
    trained: int
    forward: int
    state: float
    size: int


def comment(group: str, name: str) -> str:
    """The comment of an option: of its own file, or above its entry in the list."""
    file = option_files(group)[name]
    lines = file.read_text(encoding="utf-8").splitlines()
    if file == listed_file(group):
        end = next(number for number, line in enumerate(lines) if line.startswith(f"{name}:"))
        begin = end
        while lines[begin - 1].startswith("#"):
            begin -= 1
        above = lines[begin:end]
    else:
        above = [line for line in lines if line.startswith("#") and "@package" not in line]
    return " ".join(line[1:].strip() for line in above)


def idea_and_paper(group: str, name: str) -> tuple[str, str]:
    """What an option does, and its citation, from its comment."""
    text = comment(group, name)
    cited = re.search(r" ?\(([^()]*\d{4})\)", text)
    if cited is None:
        return text, ""
    return text[: cited.start()] + text[cited.end() :], cited[1]


def sides(name: str) -> dict[str, str]:
    """The client strategy, the server strategy and what else an option chooses, without what changes nothing."""
    defaults = content("strategy", name, option_files("strategy")[name])["defaults"]
    chosen = [item for entry in defaults if isinstance(entry, dict) for item in entry.items()]
    by_side = {key.rpartition("/")[2].partition("@")[0]: str(option) for key, option in chosen}
    return {side: by_side[side] for side in SIDES if side in by_side}


def arxiv(citation: str, chosen: dict[str, str]) -> str:
    """The paper's number on arXiv, from the docstring of a module that cites its first author; empty: not known."""
    if not citation:
        return ""
    author = re.split(r"[ ,]", citation)[0]
    for side, name in chosen.items():
        target = content(f"strategy/{side}", name, option_files(f"strategy/{side}")[name]).get("_target_")
        if target is None:
            continue
        text = importlib.import_module(target.rpartition(".")[0]).__doc__ or ""
        if (number := re.search(rf"{author}[^;]*?arXiv\s+([\d.]+\d)", text)) is not None:
            return number[1]
    return ""


@cache
def costs(name: str, network: tuple[str, ...]) -> Costs:
    """The costs of a strategy's first two rounds with a network."""
    with tempfile.TemporaryDirectory() as folder:
        overrides = [f"strategy={name}", *SETTING, *network, *EXTRA.get(name, ()), f"output_dir={folder}"]
        simulation = Simulation(build_experiment(compose(overrides)))
        state = simulation.initial()
        once = state.totals.params_down  # frozen parameters
        for _ in range(2):
            state, _ = simulation.advance(state)
        kept = [sum(vector.numel() for vector in held.values()) for held in state.client_states.held.values()]
        totals = state.totals
        return Costs(
            totals.params_down - once,
            totals.params_up,
            totals.client_samples,
            totals.forward_samples,
            sum(kept) / len(simulation.federation.train),
            simulation.network.layout.size,
        )


def times(number: float) -> str:
    """A ratio: ``2``, ``0.14``, ``0``."""
    return f"{number:.2g}" if number < 0.995 else f"{number:.3g}"


def experiments(name: str) -> Iterator[str]:
    """The folders of the experiments that name a strategy."""
    return (folder for folder, strategies in strategies_by_folder().items() if name in strategies)


@cache
def strategies_by_folder() -> dict[str, set[str]]:
    """The strategies that the experiments of each folder name."""
    folders = sorted(path for path in (conf_dir() / "experiment").iterdir() if path.is_dir())
    contents = {
        folder.name: [yaml.safe_load(file.read_text(encoding="utf-8")) for file in folder.glob("*.yaml")]
        for folder in folders
    }
    return {name: strategies_of(content) for name, content in contents.items()}


def strategies_of(node: object) -> set[str]:
    """The strategies that a part of an experiment's file chooses."""
    if isinstance(node, list):
        return {name for item in node for name in strategies_of(item)}
    if not isinstance(node, dict):
        return set()
    found = {name for key, value in node.items() if key != "table" for name in strategies_of(value)}
    for key in ("strategy", "override /strategy"):
        if isinstance(value := node.get(key), str):
            found |= set(re.findall(r"\w+", value))
    return found


def strategy_cells(name: str) -> list[str]:
    """Idea, sides, paper and experiments of a strategy."""
    idea, citation = idea_and_paper("strategy", name)
    chosen = sides(name)
    number = arxiv(citation, chosen)
    paper = f"[{citation}](https://arxiv.org/abs/{number})" if number else citation
    both = ", ".join(f"`{option}`" if option not in PLAIN else "-" for option in chosen.values())
    return [f"`{name}`", marked(idea), both, paper, ", ".join(experiments(name))]


def cost_cells(name: str) -> list[str]:
    """What a strategy costs, relative to FedAvg with the same network."""
    network = NETWORKS.get(name, PERCEPTRON)
    base, own = costs("fedavg", network), costs(name, network)
    return [
        times(own.down / base.down),
        times(own.up / base.up),
        times(own.trained / base.trained),
        times(own.forward / base.trained),
        times(own.state / own.size),
    ]


@cache
def dataset_keys(name: str) -> dict[str, KeyEntry]:
    """The keys of a dataset, by their last name."""
    entries, _ = key_entries([conf_dir()])
    own = (entry for entry in entries if entry.choice == f"dataset={name}" and entry.key.startswith("dataset."))
    return {entry.key.partition(".")[2]: entry for entry in own}


def shape(spec: Spec) -> str:
    """The shape of a sample, such as ``3x32x32``."""
    sizes = "x".join(map(str, spec.input_shape))
    return sizes if spec.vocabulary is None else f"{sizes} symbols of {spec.vocabulary}"


def dataset_cells(name: str) -> list[str]:
    """What a dataset is, its samples and classes, the model and partition that it chooses, and its files."""
    found = comment("dataset", name)
    source = re.search(r" Source: (.*), (https?://\S+)$", found)
    text = found[: source.start()] if source else found
    located = {key: entry for key, entry in dataset_keys(name).items() if key in LOCATIONS}
    own = located.keys() & OWN
    files = [
        f"`dataset.{key}`: {marked(entry.comment)}" if key in OWN else marked(entry.comment)
        for key, entry in located.items()
        if not own or key != "data_dir"
    ]
    samples = ("yours", "yours") if own else (shape(spec_of(name)), str(spec_of(name).classes))
    licence = "yours" if own else ""
    if (published := catalogue().get(name)) is not None:
        size = "" if published.megabytes is None else f", {published.megabytes} MB"
        first = "the first run or " if "download" in dataset_keys(name) else ""
        files.append(f"fetched by {first}`fedrun-data {name}`{size}")
        licence = published.licence
    return [
        f"`{name}`",
        marked(text),
        *samples,
        ", ".join(f"`{option}`" for option in chosen_by(name)),
        "; ".join(files) or "none",
        f"[{source[1]}]({source[2]})" if source else "",
        licence,
    ]


def chosen_by(dataset: str) -> list[str]:
    """The model and the partition that a dataset chooses."""
    defaults = content("dataset", dataset, option_files("dataset")[dataset])["defaults"]
    if isinstance(defaults[0], str):  # the option that it extends
        return chosen_by(defaults[0])
    return [
        str(option)
        for group in ("model", "partition")
        for entry in defaults
        if (option := entry.get(f"override /{group}"))
    ]


def partition_cells(name: str) -> list[str]:
    """What a client has, the keys, whether samples must have classes, and the paper."""
    idea, citation = idea_and_paper("partition", name)
    own = content("partition", name, option_files("partition")[name])
    needs = "classes" if locate(own["_target_"], "partition").needs_classes else ""
    return [f"`{name}`", marked(idea), keys("partition", name), needs, citation]


def model_cells(name: str) -> list[str]:
    """What a model is, what it reads, its keys, and its size with a dataset."""
    text = re.sub(r": [\d ]+ parameters[^.]*\.", ".", comment("model", name))
    cells = [f"`{name}`", marked(text)]
    if "lora" in parts("model", name):  # the network is the reader's choice
        return [*cells, "what the network reads", keys("model", name), "the network's"]
    model = option("model", name)
    dataset = next(dataset for dataset in datasets_for(name) if refusal(model, spec_of(dataset)) is None)
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in model.build(spec_of(dataset)).parameters())
    return [*cells, reads(model), keys("model", name), f"{size:,} with `{dataset}`".replace(",", " ")]


def datasets_for(model: str) -> list[str]:
    """Datasets whose samples are known without data: first those that choose the model, then well-known ones."""
    known = [name for name in option_files("dataset") if not dataset_keys(name).keys() & OWN]
    return [*(name for name in sorted(known) if model in chosen_by(name)), "cifar10", "mnist"]


def spec_of(dataset: str) -> Spec:
    """The samples of a dataset."""
    return option(
        "dataset", dataset, **{key: "" for key in ("data_dir", "cache_dir", "vectors") if key in dataset_keys(dataset)}
    ).spec


def refusal(model: ModelConfig, spec: Spec) -> str | None:
    """Why a model does not take samples; None: it does."""
    try:
        model.check(spec)
    except InputError as error:
        return str(error)
    return None


def reads(model: ModelConfig) -> str:
    """What a model reads, in the words by which it refuses samples that no model takes."""
    refusals = [refusal(model, Spec((1,), 2)), refusal(model, Spec((1, 1), 2, vocabulary=2))]
    message = next(message for message in refusals if message)
    return re.search(r" reads (?:inputs of shape )?(.*), but the dataset", message)[1]


TABLES = {
    "strategy": OptionTable(
        "strategy",
        DOCS / "strategies.md",
        ("strategy", "idea", "client, server", "paper", "experiments", *COSTS),
        strategy_cells,
        cost_cells,
    ),
    "dataset": OptionTable(
        "dataset",
        DOCS / "data.md",
        (
            "dataset",
            "what it is",
            "sample",
            "classes",
            "model, partition",
            "files",
            "source",
            "licence, as its publisher states it",
        ),
        dataset_cells,
    ),
    "partition": OptionTable(
        "partition",
        DOCS / "partitions.md",
        ("partition", "what a client has", "keys and defaults", "needs", "paper"),
        partition_cells,
    ),
    "model": OptionTable(
        "model",
        DOCS / "models.md",
        ("model", "what it is", "reads", "keys and defaults", "parameters"),
        model_cells,
    ),
}


def main() -> None:
    for group in sys.argv[1:] or TABLES:
        TABLES[group].write()


if __name__ == "__main__":
    main()
