"""Options of a user's own, in a folder of their own, and strategies of a user's own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fedrun.cli.data import run as fedrun_data
from fedrun.cli.entrypoint import exit_status
from fedrun.config.build import option
from fedrun.config.composed import compose, compose_plainly
from fedrun.config.composition_errors import message_for
from fedrun.config.defaults_lists import DefaultsTree
from fedrun.config.options import conf_dir
from fedrun.config.sources import why
from fedrun.execution.executor_choice import EXECUTORS
from fedrun.experiment.experiment import build_experiment
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.client import ClientStrategy
from fedrun.strategies.fedavg import FedAvg
from fedrun.strategies.vectors import MODEL
from fedrun.system.errors import InputError

from ..helpers.forked import Fedrun

OPTIONS = {
    "strategy/client/strong.yaml": "_target_: fedrun.strategies.fedprox.FedProx\nmu: 0.5\n",
    "strategy/strong.yaml": "defaults: [client: strong, server: fedavg]\n",
    "partition/few.yaml": "_target_: fedrun.data.partitions.iid.IID\nclients: 3\nseed: null\n",
    "hparams/digits-strong.yaml": "# @package _global_\nlocal: {lr: 0.05}\n",
    "strategy/client/elsewhere.yaml": "_target_: no_such_package.Client\n",
}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with options, beside which nothing else lies."""
    for name, content in OPTIONS.items():
        path = tmp_path / "own" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path / "own"


def test_they_compose_in_a_library(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(own.parent)
    composed = compose(["strategy=strong", "partition=few"], config_dir="own")
    experiment = build_experiment(composed)
    assert (experiment.strategy.client.mu, experiment.partition.clients, experiment.local.lr) == (0.5, 3, 0.05)
    assert experiment.record.group.startswith("runs/digits/strong/")
    assert experiment.record.overrides == ("strategy=strong", "partition=few")


def test_one_of_them_alone(own: Path) -> None:
    parts = DefaultsTree({}, set(), own).parts_of("strategy", "strong")
    assert [(part.option, part.package) for part in parts] == [
        ("strong", "strategy.client"),
        ("fedavg", "strategy.server"),
        ("strong", "strategy"),
    ]
    assert parts[0].content["mu"] == 0.5


def test_messages_know_them(own: Path) -> None:
    with pytest.raises(InputError, match=r"^partition=many: no such option; allowed: .*, few, "):
        compose(["partition=many"], config_dir=own)


def test_a_list_of_options_is_not_read(own: Path) -> None:
    listing = own / "participation.yaml"
    listing.write_text("daily: {_target_: lab.daily.Daily}\nbernoulli: {}\n")
    message = f"{listing}: is not read; allowed: a file for each option, such as participation/daily.yaml"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        compose(["participation=daily"], config_dir=own)
    assert compose(["participation=bernoulli"], config_dir=own).choices["participation"] == "bernoulli"
    with pytest.raises(InputError, match="^partition=none: no such option; "):
        compose(["participation=bernoulli", "partition=none"], config_dir=own)


def test_an_experiment_is_named_with_its_folder(own: Path) -> None:
    file = own / "experiment/mine/table1.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("# @package _global_\nrounds: 1\n")
    with pytest.raises(InputError, match=r"^experiment=mine/table2: no such option; did you mean mine/table1\?"):
        compose(["experiment=mine/table2"], config_dir=own)


IN_LIST = r"allowed: a list with lines such as - GROUP: OPTION or - OPTION$"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: caf\xe9 b\n", r"is not YAML \(.*UTF-8 octet.*\); allowed: YAML in UTF-8$"),
        ("a: 1\n".encode("utf-16"), "is not in UTF-8; allowed: YAML in UTF-8$"),
        (b"- a\n", "contains a list; allowed: lines with KEY: VALUE, and a defaults list$"),
        (b"just text\n", "contains just text; allowed: lines with KEY: VALUE, and a defaults list$"),
        (b"3\n", "contains 3; allowed: lines with KEY: VALUE, and a defaults list$"),
        (b"hydra:\n", "hydra: null is not a mapping; allowed: keys below it, such as sweeper$"),
        (b"defaults: 3\n", f"defaults: 3 is not a list; {IN_LIST}"),
        (b"defaults: [3]\n", f"defaults: 3 is not a choice; {IN_LIST}"),
        (b"defaults:\n  - {client: sgd, server: fedavg}\n", rf"defaults: {{.*}} is not a choice; {IN_LIST}"),
        (
            b"defaults:\n  - client\n",
            "defaults: client is a group; allowed: - client: OPTION, one of apfl, .*, strong$",
        ),
        (
            b"defaults:\n  - habits\n",
            "defaults: habits is not an option; allowed: - GROUP: OPTION, or one of .*, habit, ",
        ),
        (b"defaults:\n  - clients: sgd\n", "defaults: clients is not a group; allowed: client, clustering, "),
    ],
)
def test_a_file_of_another_form(own: Path, content: bytes, message: str) -> None:
    file = own / "strategy/habit.yaml"
    file.write_bytes(content)
    for chosen in (["strategy=habit"], ["seed=1", "strategy=habit"]):
        with pytest.raises(InputError, match=f"^{re.escape(str(file))}: {message}"):
            compose(chosen, config_dir=own)
    assert compose(["strategy=strong"], config_dir=own).choices["strategy"] == "strong"


def test_a_file_of_another_form_that_a_defaults_list_names(own: Path) -> None:
    (own / "strategy/client/habit.yaml").write_text("defaults: 3\n")
    (own / "strategy/habit.yaml").write_text("defaults: [client: habit, server: fedavg]\n")
    with pytest.raises(InputError, match=r"/own/strategy/client/habit.yaml: defaults: 3 is not a list; "):
        compose(["strategy=habit"], config_dir=own)


@pytest.mark.parametrize(
    ("name", "argument"), [("hparams/digits.yaml", "dataset=digits"), ("experiment/mine/x.yaml", "experiment=mine/x")]
)
def test_a_setting_that_does_not_say_its_place(own: Path, name: str, argument: str) -> None:
    file = own / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("local: {lr: 0.5}\n")
    message = f"{file}: would set keys below {name.partition('/')[0]}; allowed: with the first line # @package _global_"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        compose([argument], config_dir=own)
    for first_line, keys in {"# @package _global_": "local: {lr: 0.5}", "# @package local": "lr: 0.5"}.items():
        file.write_text(f"{first_line}\n{keys}\n")
        assert compose([argument], config_dir=own).config["local"]["lr"] == 0.5


@pytest.mark.parametrize("choice", ["model: logistic", "partition: iid", "dataset: synthetic_feddyn"])
def test_only_a_dataset_chooses_model_and_partition(own: Path, choice: str) -> None:
    """A dataset's option is read before a strategy's, which may choose options of other groups."""
    parts = "  - /strategy/client@strategy.client: strong\n  - /strategy/server@strategy.server: fedavg\n"
    file = own / "strategy/habit.yaml"
    file.write_text(f"# @package _global_\ndefaults:\n{parts}  - override /attack: sign_flip\n")
    assert compose(["strategy=habit"], config_dir=own).choices["attack"] == "sign_flip"
    file.write_text(f"# @package _global_\ndefaults:\n{parts}  - override /{choice}\n")
    argument = choice.replace(": ", "=")
    message = (
        f"{file}: defaults: override /{choice}: the dataset decides; allowed: {argument} on the command line, or this "
        "line in an option of experiment"
    )
    for chosen in (["strategy=habit"], ["strategy=habit", argument]):
        with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
            compose(chosen, config_dir=own)
    (own / "experiment").mkdir()
    (own / "experiment/mine.yaml").write_text(f"# @package _global_\ndefaults:\n  - override /{choice}\n")
    group, _, option = choice.partition(": ")
    assert compose(["experiment=mine"], config_dir=own).choices[group] == option


def test_a_setting_with_nothing_below_strategy(own: Path) -> None:
    (own / "hparams/digits-strong.yaml").write_text("# @package _global_\nstrategy:\n")
    for client in ("strong", "sgd"):
        composed = compose(["strategy=strong", f"strategy/client={client}"], config_dir=own)
        with pytest.raises(InputError, match=r"^strategy=null: allowed: strategy=OPTION, one of "):
            build_experiment(composed)


def test_the_name_of_a_file_of_fedruns(own: Path) -> None:
    """Hydra uses the first one it finds, which is fedrun's; a copy of fedrun's folder is the same in both."""
    file = own / "strategy" / "client" / "fedprox.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes((conf_dir() / "strategy" / "client" / "fedprox.yaml").read_bytes())
    assert compose(["strategy=fedprox"], own).config["strategy"]["client"]["mu"] == 0.01
    file.write_text(file.read_text().replace("0.01", "9.0"))
    message = f"{file}: fedrun has an option of this name, and would use it; allowed: another name"
    with pytest.raises(InputError, match=re.escape(message)):
        compose(["strategy=fedprox"], own)


def test_a_file_of_another_form_ends_the_command(checking: Fedrun, own: Path) -> None:
    (own / "strategy/habit.yaml").write_text("just text\n")
    for more in ([], ["-m", "seed=0,1"]):
        ended = checking("--config-dir", "own", "strategy=habit", *more, folder=own.parent)
        assert (ended.status, ended.out, ended.err.count("\n")) == (2, "", 1)
        assert ended.err.startswith(f"fedrun: {own}/strategy/habit.yaml: contains just text; allowed: ")


def test_a_folder_in_the_home_folder_behind_an_equals_sign(own: Path, tmp_path: Path) -> None:
    """The shell does not expand it, and Hydra reads the folder, too."""
    command = [sys.executable, "-m", "fedrun", "--config-dir=~/own", "strategy=strong", "--cfg", "job"]
    ended = subprocess.run(
        command, check=False, cwd=tmp_path, env={**os.environ, "HOME": str(own.parent)}, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_scales_of_an_experiment_of_ones_own(checking: Fedrun, own: Path) -> None:
    """Its jobs are of a sweep whatever its file says about ``hydra.mode``; a single run has no scale."""
    (own / "experiment").mkdir()
    sweeper = "hydra: {sweeper: {scales: {full: {}, small: {params: {rounds: '0'}}}}}"
    (own / "experiment" / "mine.yaml").write_text(f"# @package _global_\n{sweeper}\n")
    command = ("--config-dir", "own", "experiment=mine", "scale=small")
    ended = checking("-m", *command, folder=own.parent)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith("fedrun: rounds=0: allowed: an integer, at least 1 (job 0 of the sweep: rounds=0 name=")
    assert checking(*command, folder=own.parent).err.startswith("fedrun: scale=small: allowed in sweeps, such as ")


@pytest.mark.parametrize(
    "sweep", ["params: {seed: '0,1'}", "grids: [{seed: '0,1'}]", "scales: {full: {stages: [{local.lr: '0.1,0.2'}]}}"]
)
def test_an_experiment_of_ones_own_without_a_mode(checking: Fedrun, own: Path, sweep: str) -> None:
    """A single job of its sweep is made only if it is asked for."""
    (own / "experiment").mkdir()
    file = own / "experiment" / "mine.yaml"
    file.write_text(f"# @package _global_\nrounds: 0\nhydra: {{sweeper: {{{sweep}}}}}\n")
    command = ("--config-dir", "own", "experiment=mine")
    ended = checking(*command, folder=own.parent)
    remedies = "set hydra.mode: MULTIRUN in its file, or use -m; hydra.mode=RUN makes a single run"
    assert (ended.status, ended.out) == (2, "")
    assert ended.err == f"fedrun: experiment=mine: has a sweep; {remedies}\n"
    assert checking(*command, "--cfg", "job", folder=own.parent).status == 0
    assert compose(["experiment=mine"], config_dir=own).config["rounds"] == 0
    assert compose_plainly(["experiment=mine"], own, single_run=True) is None  # Hydra knows who has set the mode
    begun = "fedrun: rounds=0: allowed: an integer, at least 1"  # what any run of this file ends with
    assert checking(*command, "hydra.mode=RUN", folder=own.parent).err == f"{begun}\n"
    file.write_text(file.read_text().replace("hydra: {", "hydra: {mode: RUN, "))
    assert checking(*command, folder=own.parent).err == f"{begun}\n"
    file.write_text("# @package _global_\nrounds: 0\n")
    assert checking(*command, folder=own.parent).err == f"{begun}\n"


def test_a_library_composes_no_jobs(own: Path) -> None:
    """Whatever the way to the configuration: without Hydra, or with it for a folder."""
    assert compose(["experiment=demo"]) == compose(["experiment=demo"], config_dir=own)


def test_a_folder_that_is_not_there(checking: Fedrun, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^--config-dir nowhere: no such folder; allowed: one with options"):
        compose([], config_dir="nowhere")
    ended = checking("--config-dir", "nowhere", "strategy=strong", folder=tmp_path)
    assert (ended.status, ended.err.count("\n"), ended.loaded) == (2, 1, [])
    assert ended.err.startswith("fedrun: --config-dir nowhere: no such folder; ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("strategy=strongg", "did you mean strong?"),
        ("strategy=strong strategy.client.nu=1", "unknown key; allowed below strategy.client: mu\n"),
        ("strategy=strong strategy.client=3", "strategy.client=3: allowed: strategy/client=OPTION, one of "),
        ("-m strategy=strong,strongg", "did you mean strong?"),
        (
            "strategy/client=elsewhere",
            "No module named 'no_such_package'; allowed: the dotted path of a config class; a package of your own ",
        ),
    ],
)
def test_messages_of_the_command_know_them(checking: Fedrun, own: Path, arguments: str, message: str) -> None:
    ended = checking("--config-dir", "own", *arguments.split(), folder=own.parent)
    assert message in ended.err
    assert "strategy.client=3" not in message or ", solo, strong" in ended.err
    assert (ended.status, ended.err.count("\n"), ended.loaded) == (2, 1, [])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("strategy=strong strategy.client.nu=1", "strategy.client.nu: unknown key; allowed below strategy.client: mu"),
        (
            "strategy=fedavg strategy.client.mu=1",
            "strategy/client=fedamp, fednova, fedprox, moon, moon_turbosvm, strong\n",
        ),
        ("strategy=strong model.lora.rank=2", "; allowed with model=OPTION, one of custom, timm, torchvision, "),
        ("strategy=strong model/lora=ranks", "; allowed with model=OPTION, one of custom, timm, torchvision, "),
        ("strategy=strong strategy/server=scaffold", " does not send; allowed: strategy/client=fedlesam_s, scaffold\n"),
    ],
)
def test_a_broken_file_hides_no_list(checking: Fedrun, own: Path, arguments: str, message: str) -> None:
    for group in ("model", "strategy/client"):
        (own / group).mkdir(parents=True, exist_ok=True)
        (own / group / "broken.yaml").write_text("mu: [0.5\n")
    ended = checking("--config-dir", "own", *arguments.split(), folder=own.parent)
    assert message in ended.err
    assert (ended.status, ended.err.count("\n")) == (2, 1)


def test_an_option_of_another_base_is_none_of_the_allowed_ones(checking: Fedrun, own: Path) -> None:
    (own / "strategy" / "server").mkdir(parents=True, exist_ok=True)
    (own / "strategy" / "server" / "other.yaml").write_text(
        "_target_: fedrun.models.mlp.MLP\nhidden: [3]\ndropout: 0.0\n"
    )
    ended = checking("--config-dir", "own", "strategy/client=scaffold", folder=own.parent)
    assert (ended.status, ended.err.count("\n")) == (2, 1)
    assert ended.err.endswith("; allowed: strategy/server=fedlesam_s, scaffold\n")


class Listed(ClientStrategy):
    """It sends a list of names, which must be a set."""

    @property
    def sends(self):
        return [MODEL, "control"]


def test_an_option_with_a_wrong_attribute_is_none_of_the_allowed_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def own(group: str, name: str) -> object:
        return Listed() if name == "sgd" else option(group, name)

    monkeypatch.setattr("fedrun.experiment.strategy.option", own)
    with pytest.raises(
        InputError, match=r"which strategy/client=sgd does not send; allowed: strategy/client=[a-z_, ]+$"
    ):
        build_experiment(compose(["strategy/server=scaffold"]))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"mu: [0.5\n", r"is not YAML \(.*line 2, column 1\)$"),
        (b"mu: 1\nmu: 2\n", r"is not YAML \(found duplicate key mu .*\)$"),
        (b"mu: \xff\n", r"is not YAML \(.*\); allowed: YAML in UTF-8$"),
    ],
)
def test_a_file_that_is_not_yaml(
    checking: Fedrun, own: Path, capsys: pytest.CaptureFixture[str], content: bytes, reason: str
) -> None:
    file = own / "strategy/client/strong.yaml"
    file.write_bytes(content)
    message = rf"{re.escape(str(file))}: {reason}"
    with pytest.raises(InputError, match=f"^{message}"):
        compose(["strategy=strong"], config_dir=own)
    arguments = ["show", "strategy=strong", "--config-dir", str(own), "--to", str(own.parent)]
    assert exit_status(fedrun_data, "fedrun-data", arguments) == 2
    said = [capsys.readouterr().err]
    said += [
        checking("--config-dir", str(own), *arguments, folder=own.parent).err
        for arguments in (
            ["strategy=strong"],
            ["strategy=strong", "--why", "rounds"],
            ["--explain", "strategy.client.mu"],
        )
    ]
    for line in said:
        assert re.search(f"^fedrun(-data)?: {message}\n", line)
        assert line.count("\n") == 1


def test_only_folders_of_runs_are_answered_with_another_one(own: Path) -> None:
    locked = own / "strategy/strong.yaml"
    locked.unlink()
    locked.symlink_to(locked)  # as for root, whom no permission stops
    with pytest.raises(OSError, match="strong") as refusal:
        locked.read_text()
    reason = refusal.value.strerror
    assert message_for(refusal.value, [], own) == f"{locked}: {reason}; allowed: files of options that can be read"
    assert message_for(PermissionError(13, "Permission denied", "/locked"), [], None) == (
        "/locked: Permission denied; choose another output_dir"
    )


def test_a_folder_with_quotes_in_its_name(
    checking: Fedrun, own: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    own = own.rename(tmp_path / 'it\'s "own", a=b\\')
    assert compose(["partition=few"], config_dir=own).config["partition"]["clients"] == 3
    assert why("partition.clients", ["partition=few"], own).endswith(f"\n  3  {own.name}/partition/few.yaml")
    asked = checking("--config-dir", str(own), "partition=few", "--why", "partition.clients", folder=tmp_path)
    assert asked.out.startswith("partition.clients=3\n")
    assert fedrun_data(["show", "partition=few", "--config-dir", str(own), "--to", str(tmp_path)]) == 0
    assert "clients   3 with " in capsys.readouterr().out


def test_who_holds_what(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fedrun_data(["show", "partition=few", "--config-dir", str(own), "--to", str(own.parent)]) == 0
    assert "clients   3 with 480 to 481 " in capsys.readouterr().out


MISTAKES = {
    "syntax": ("X = (\n", r"its module cannot be imported: SyntaxError: .*syntax\.py, line 1\)$"),
    "name": (
        "X = 1\nY = Z\n",
        r"its module cannot be imported: NameError: name 'Z' is not defined \(.*name\.py, line 2\)$",
    ),
    "plain": (
        "class X:\n    pass\n",
        r"not a config class; allowed: the dotted path of a class with @config_class$",
    ),
    "other": (
        "from pydantic.dataclasses import dataclass\n@dataclass\nclass X:\n    pass\n",
        r"^strategy\.client\._target_=own_mistakes_other\.other\.X: does not extend ClientStrategy; allowed: a class "
        r"that extends ClientStrategy$",
    ),
    "abstract": (
        "from fedrun.config.config_class import config_class\n"
        "from fedrun.uploads.attacks.colluding import Colluding\n"
        "@config_class\nclass X(Colluding):\n    pass\n",
        r"^strategy\.client\._target_=own_mistakes_abstract\.abstract\.X: does not define forged; allowed: a class ",
    ),
    "sizeless": (
        "from fedrun.config.config_class import config_class\n"
        "from fedrun.uploads.compression.base import Compressor\n"
        "@config_class\nclass X(Compressor):\n    def compress(self, vector, draw): ...\n",
        r"^strategy\.client\._target_=own_mistakes_sizeless\.sizeless\.X: does not define size; allowed: a class ",
    ),
    "misspelt": (
        "from fedrun.config.config_class import config_class\n"
        "from fedrun.strategies.client import ClientStrategy\n"
        "@config_class\nclass X(ClientStrategy):\n    def lose(self, outputs, targets, constants): ...\n"
        "    def linear_corection(self, constants): ...\n",
        r"^strategy\.client\._target_=(own_mistakes_misspelt\.misspelt\.X): \1\.linear_corection: fedrun does not use ",
    ),
}
"""What a module of one's own may hold in the place of a config class X, and what is said then."""


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_in_a_module_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    content, message = MISTAKES[name]
    package = tmp_path / f"own_mistakes_{name}"
    package.mkdir()
    (package / f"{name}.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    config = compose().config
    config["strategy"]["client"] = {"_target_": f"{package.name}.{name}.X"}
    with pytest.raises(InputError, match=message) as refusal:
        build_experiment(config)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("sizes", "clients", "empty"), [((3, 0, 5), 3, 1), ((), 0, 0)])
def test_a_partition_that_leaves_a_client_without_samples(make_experiment, sizes, clients, empty) -> None:
    with pytest.raises(
        InputError, match=rf"^partition=GivenSizes: there are {clients} clients, {empty} of them without "
    ):
        Simulation(make_experiment(sizes=sizes))


class Forgetful(ClientStrategy):
    """It misspells what it keeps."""

    def client_state(self, layout):
        return {"drift": layout.trainable}

    def finish(self, model, received, client_state, constants, client):
        return {MODEL: model}, {"drfit": client_state["drift"] + 1}


class Silent(ClientStrategy):
    """It says that it sends something, and does not."""

    sends = frozenset({MODEL, "norm"})


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(
    ("client", "message"),
    [
        (
            Forgetful(),
            r"\.Forgetful\.finish: returned the states drfit; allowed: the states drift, as in client_state$",
        ),
        (Silent(), r"\.Silent\.finish: returned the uploads model; allowed: the uploads model, norm, as in sends$"),
    ],
)
def test_a_strategy_that_does_not_do_what_it_says(
    make_experiment, client: ClientStrategy, message: str, executor: str
) -> None:
    """A name missing in a client state would be zero for ever, and the result plausible and wrong."""
    experiment = make_experiment(strategy=Strategy(client=client, server=FedAvg(weighting="samples")))
    experiment = replace(experiment, hardware=replace(experiment.hardware, executor=executor))
    simulation = Simulation(experiment)
    with pytest.raises(InputError, match=message):
        simulation.advance(simulation.initial())
