"""Write the table of docs/strategies.md: ``python tests/docs/strategies_table.py``.

Names, ideas, sides and papers come from the options of ``conf/strategy`` and the docstrings of the classes that they
name. Costs are those of two rounds on scikit-learn's digits, relative to FedAvg in the same rounds.
"""

from __future__ import annotations

import importlib
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from fedrun.config.composed import compose
from fedrun.config.options import conf_dir, content, listed_file, option_files
from fedrun.experiment.experiment import build_experiment
from fedrun.simulation.simulation import Simulation

PAGE = Path(__file__).parents[2] / "docs" / "strategies.md"
BEGIN, END = "<!-- written by tests/docs/strategies_table.py -->", "<!-- end of the table -->"
SIDES = ("client", "server", "clustering", "post_training")
PLAIN = {"sgd", "fedavg", "none"}
"""Sides that change nothing, which the table leaves out."""

SETTING = (
    "partition.clients=6",
    "clients_per_round=1.0",
    "model.hidden=[32]",
    "rounds=40",
    "tracking=none",
    "hardware.threads=1",
    "hardware.executor=in_process",
)
EXTRA = {"maxfl": ("appeal.steps=1",), "mwfed": ("appeal.steps=1",), "krum": ("strategy.server.byzantine=0",)}
WITHOUT_COSTS = {"fedbn", "fedexlora", "fedit", "fedsalora", "ffalora", "flora"}
"""Strategies that refuse the network of :data:`SETTING`."""

COSTS = ("down", "up", "trained", "read", "state")
HEADER = """| strategy | idea | client, server | paper | experiments | down | up | trained | read | state |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


@dataclass(frozen=True)
class Costs:
    """What two rounds cost, and what a client keeps after them: numbers, or samples."""

    down: int
    up: int
    trained: int
    forward: int
    state: float
    size: int


def comment(name: str) -> str:
    """The comment of an option: of its own file, or above its entry in the list."""
    file = option_files("strategy")[name]
    lines = file.read_text(encoding="utf-8").splitlines()
    if file == listed_file("strategy"):
        end = next(number for number, line in enumerate(lines) if line.startswith(f"{name}:"))
        begin = end
        while lines[begin - 1].startswith("#"):
            begin -= 1
        above = lines[begin:end]
    else:
        above = [line for line in lines if line.startswith("#") and "@package" not in line]
    return " ".join(line[1:].strip() for line in above)


def idea_and_paper(name: str) -> tuple[str, str]:
    """What a strategy does, and its citation, from the comment of its option."""
    text = comment(name)
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
    for side, option in chosen.items():
        target = content(f"strategy/{side}", option, option_files(f"strategy/{side}")[option]).get("_target_")
        if target is None:
            continue
        text = importlib.import_module(target.rpartition(".")[0]).__doc__ or ""
        if (number := re.search(rf"{author}[^;]*?arXiv\s+([\d.]+\d)", text)) is not None:
            return number[1]
    return ""


def costs(name: str) -> Costs:
    """The costs of a strategy's first two rounds."""
    with tempfile.TemporaryDirectory() as folder:
        overrides = [f"strategy={name}", *SETTING, *EXTRA.get(name, ()), f"output_dir={folder}"]
        simulation = Simulation(build_experiment(compose(overrides)))
        state = simulation.initial()
        for _ in range(2):
            state, _ = simulation.advance(state)
        kept = [sum(vector.numel() for vector in held.values()) for held in state.client_states.held.values()]
        totals = state.totals
        return Costs(
            totals.params_down,
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


def text_cells(name: str) -> list[str]:
    """The cells of a strategy's row that are not measured."""
    idea, citation = idea_and_paper(name)
    chosen = sides(name)
    number = arxiv(citation, chosen)
    paper = f"[{citation}](https://arxiv.org/abs/{number})" if number else citation
    shown = ", ".join(f"`{option}`" if option not in PLAIN else "-" for option in chosen.values())
    return [f"`{name}`", idea, shown, paper, ", ".join(experiments(name))]


def cost_cells(name: str, base: Costs) -> list[str]:
    """The cells of a strategy's row that are measured."""
    if name in WITHOUT_COSTS:
        return ["?"] * len(COSTS)
    own = costs(name)
    return [
        times(own.down / base.down),
        times(own.up / base.up),
        times(own.trained / base.trained),
        times(own.forward / base.trained),
        times(own.state / own.size),
    ]


def table() -> str:
    """The whole table."""
    base = costs("fedavg")
    rows = ([*text_cells(name), *cost_cells(name, base)] for name in sorted(option_files("strategy")))
    return "\n".join([HEADER, *(f"| {' | '.join(cells)} |" for cells in rows)])


def main() -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    if not after:
        sys.exit(f"{PAGE}: the line {END} is missing")
    PAGE.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
