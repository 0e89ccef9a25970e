"""The command line: exit statuses, one line for what cannot be used, nothing written."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from fedrun.cli.application import options_first, with_folder
from fedrun.config.composed import compose
from fedrun.config.options import conf_dir
from fedrun.experiment.experiment import build_experiment

from ..helpers.forked import Fedrun

GROUPS = (
    "appeal",
    "attack",
    "dataset",
    "hardware",
    "model",
    "participation",
    "partition",
    "strategy",
    "strategy/client",
    "strategy/server",
    "tracking",
)

SMALL = ("rounds=2", "model=logistic", "partition.clients=4", "hardware.threads=1", "tracking=none")


def names(group: str) -> list[str]:
    listing = conf_dir() / f"{group}.yaml"
    listed = yaml.safe_load(listing.read_text()) if listing.is_file() else {}
    return sorted({path.stem for path in (conf_dir() / group).glob("*.yaml")} | set(listed))


# One of each kind; tests/config/test_config.py has many more. A sweep is refused for the first of its jobs that is.
REFUSED = [
    ("local.batch_size=0", "local.batch_size=0: allowed: an integer, at least 1; or null"),
    (
        "clients_per_round=many",
        "clients_per_round=many: allowed: an integer, at least 1; or a finite number, above 0 and",
    ),
    ("--nonsense", "unrecognized arguments: --nonsense; fedrun --help shows what is allowed"),
    ("-m seed=0,1 --nonsense", "unrecognized arguments: --nonsense; "),
    ("--config-name", "argument --config-name/-cn: expected one argument; "),
    ("strategy=fedadam strategy.server.lr=1e38", "strategy.server.lr=1e+38: allowed: numbers up to 1e+30, as float32"),
    (
        "local.batch_size=2000000000000",
        "local.batch_size=2000000000000: allowed: whole numbers up to 1e+12",
    ),
    ("seed=???", "seed: has no default; fedrun --explain seed shows what is allowed"),
    ("output_dir=null", "output_dir=null: allowed: a string"),
    (
        "targets=[0.5",
        "targets=[0.5: cannot be read; allowed: KEY=VALUE, GROUP=OPTION; a list is KEY=[A,B], and a value",
    ),
    (
        "output_dir=~/x",
        'output_dir=~/x: ~ would be a folder of this name; allowed: the path in full, such as "output_dir=$HOME/x"\n',
    ),
    (
        "data_dir=~/d",
        "data_dir=~/d: ~ needs quotes that the shell leaves; allowed: 'data_dir=\"~/d\"', or the path in full\n",
    ),
    (
        "dataset=mnist dataset.data_dir=~/d",
        "dataset.data_dir=~/d: ~ needs quotes that the shell leaves; allowed: 'dataset.data_dir=\"~/d\"', or ",
    ),
    (
        "-m seed=0,1 tracking.uri=~/my/store",
        "tracking.uri=~/my/store: ~ would be a folder of this name; allowed: the path in full, such as "
        '"tracking.uri=$HOME/my/store"\n',
    ),
    ("local.lr=~,3", "local.lr=~,3: cannot be read; allowed: KEY=VALUE, "),
    ("~", "~: cannot be read; allowed: KEY=VALUE, "),
    ("~=3 seed=1", "~=3: cannot be read; allowed: KEY=VALUE, "),
    ("~local.pace", "local.pace: unknown key; allowed below local: lr, lr_decay, "),
    ("~local.lr=5", "~local.lr=5: the value is 0.1; allowed: ~local.lr\n"),
    ("--cfg job -p pace", "--package pace: no such key, or null; fedrun --cfg job shows all keys\n"),
    ("--cfg job -p hydra.job", "--package hydra.job: no such key, or null; fedrun --cfg job shows all keys\n"),
    ("--cfg hydra -p local.lr", "--package local.lr: no such key, or null; fedrun --cfg hydra shows all keys\n"),
    ("--cfg job -p local pace=1", "pace: unknown key; allowed: seed, rounds, clients_per_round,"),
    ("pace=1 speed=2", "pace: unknown key; allowed: seed, rounds, clients_per_round,"),
    (
        "+local.pace=1",
        "local.pace: unknown key; allowed below local: lr, lr_decay, lr_decay_rounds, lr_warmup_rounds,",
    ),
    (
        "tracking=[wandb,tensorboard]",
        "tracking=[wandb,tensorboard]: a list; allowed: tracking=OPTION, one of mlflow, none, several, tensorboard,",
    ),
    (
        "+tracking=[wandb,tensorboard]",
        "+tracking=[wandb,tensorboard]: a list; allowed: tracking=OPTION, one of mlflow, none, several, tensorboard,",
    ),
    ("local={lr:0.1,foo:2}", "local.foo: unknown key; allowed below local: lr, "),
    ("strategy=none", "strategy=none: no such option; allowed: " + ", ".join(names("strategy"))),
    (
        "hparams=none",
        "hparams=none: no such option; allowed: " + ", ".join(names("hparams")) + "; or ~hparams for none",
    ),
    (
        "strategy=fedavg,turbosvm",
        "strategy=fedavg,turbosvm: several values are a sweep, fedrun -m ...; a list is written",
    ),
    ("hydra/launcher=none", "hydra/launcher=none: no such option; allowed: basic, cluster, parallel"),
    (
        "model=leaf_femnist_cnn",
        "model=leaf_femnist_cnn reads inputs of shape 1x28x28, but the dataset's samples are 1x8x8",
    ),
    (
        "strategy/client=scaffold",
        "strategy/client=scaffold needs 'control' from the server, which strategy/server=fedavg neither sends ",
    ),
    ("participation=flexible", "participation=flexible needs every client's threshold; choose appeal=warmup"),
    (
        "strategy=turbosvm rounds=300",
        "rounds=300: the SVM's schedule ends after strategy.server.schedule_rounds=201; allowed: ",
    ),
    ("-m seed=0,1 rounds=0", "rounds=0: allowed: an integer, at least 1 (job 0 of the sweep: seed=0 rounds=0)"),
    ("-m strategy=fedavg,none", "strategy=none: no such option; allowed: "),
    ("~hparams hparams=mnist", "~hparams hparams=mnist: leaves hparams out and sets it; allowed: one of the two\n"),
    ("hparams=mnist ~hparams", "~hparams hparams=mnist: leaves hparams out and sets it; allowed: one of the two\n"),
    ("-m ~hparams +hparams=mnist,femnist", "~hparams +hparams=mnist,femnist: leaves hparams out and sets it; "),
    (
        "~hparams hparams@_global_=femnist-fedprox",
        "~hparams hparams@_global_=femnist-fedprox: leaves hparams@_global_ out and sets it; allowed: one of the two",
    ),
    ("-m strategy=fedavg,turbosvm rounds=300", "rounds=300: the SVM's schedule ends after "),
    ("-m seed=0,1 output_dir=null", "output_dir=null: allowed: a string (job 0 of the sweep: "),
    (
        "-m seed=0 output_dir=a,b",
        "output_dir=a: a sweep has one folder; allowed: one value on the command line (job 0 of the sweep: seed=0 ",
    ),
    ("-m +hydra.sweeper.params.output_dir=b", "output_dir=b: a sweep has one folder; allowed: one value on the comm"),
    ("-m hydra.sweeper.grids=[{output_dir:b}]", "output_dir=b: a sweep has one folder; allowed: one value on the com"),
    (
        "-m hardware.threads=1,2",
        "jobs 0 and 1 of the sweep are the same run: neither hardware.threads=1 nor hardware.threads=2 changes its ",
    ),
    (
        "-m hardware.processes=2 seed=0,1",
        "hardware.processes=2: a job of a sweep has one process; allowed: auto, 1 (job 0",
    ),
    (
        "-m experiment=fedavg/tune scale=smoke hydra.sweeper.stages=[{model:'mlp,logistic'}]",
        "hydra.sweeper.stages: model is a group; a search tunes keys, such as local.lr",
    ),
    ("-m hydra.sweeper.stages=null seed=0,1", "hydra.sweeper.stages=null: allowed: a list, each item a mapping\n"),
    (
        "-m hydra/sweeper=basic seed=0,1 rounds=abc",
        "rounds=abc: allowed: an integer, at least 1 (job 0 of the sweep: seed=0 rounds=abc)\n",
    ),
    ("-m hydra.sweep.dir= seed=0,1", "hydra.sweep.dir='': allowed: a folder; hydra.sweep.dir=. is the current one\n"),
    ("-m hydra.sweep.dir=null seed=0,1", "hydra.sweep.dir=null: not a value of this key\n"),
    ("../conf/model=[mlp]", "../conf/model=[mlp]: cannot be read; "),
    ("/tmp=[1,2]", "/tmp=[1,2]: cannot be read; "),
    (
        "/tmp=new",
        "/tmp=new: cannot be read; allowed: KEY=VALUE, GROUP=OPTION; a list is KEY=[A,B], and a value with other "
        "special characters is quoted\n",
    ),
    ("-m hydra.sweeper=null", "hydra.sweeper: null is not a sweeper; allowed: hydra/sweeper=OPTION\n"),
    ("-m ~hydra/sweeper seed=0,1", "hydra.sweeper: null is not a sweeper; allowed: hydra/sweeper=OPTION\n"),
    ("-m hydra/launcher=basic hydra.sweep.dir=${nothing}", "Interpolation key 'nothing' not found "),
    ("-m local.lr=${nothing} seed=0,1", "local.lr: refers to 'nothing', which the chosen options do not have; "),
    ("-m hydra.launcher.jobs=${nothing} seed=0,1", "Interpolation key 'nothing' not found"),
    ("-m hydra.sweeper.metric=${seed} seed=0,1", "hydra.sweeper.metric=0: allowed: a string"),
    ("-m hydra.launcher._target_=os.system", "hydra.launcher: os.system is not a launcher; allowed: hydra/launcher="),
    ("experiment=demo local.lr=0", "local.lr=0: allowed: a finite number, above 0 (job 0 of the sweep: "),
    (
        "--config-name=other",
        "--config-name: there is one configuration, conf/config.yaml; a run is repeated by its over",
    ),
    ("hydra.run.dir=x", "hydra.run.dir=x: a run has its own folder; allowed: output_dir=FOLDER, name=NAME\n"),
    ("-m hydra.job.chdir=true", "hydra.job.chdir=true: a run has its own folder; allowed: output_dir=FOLDER"),
    ("--config-dir a --config-dir b", "--config-dir: is given twice; allowed: one folder, with the options of both\n"),
    ("--config-dir= seed=1", "--config-dir='': is empty; allowed: a path; --config-dir=. is the current folder\n"),
    ("scale=[a]", "scale=[a]: allowed: full, because this experiment has no scales\n"),
    ("scale={a:1}", "scale={a:1}: allowed: full, because this experiment has no scales\n"),
    ("-m experiment=turbosvm/tune scale=[a]", "scale=['a']: allowed: full, small, smoke\n"),
    ("name='a\x1b[31mb'", r"name=a\x1b[31mb: allowed: words of letters, "),
    ("local.precision=" + "m" * 5000, "local.precision=" + "m" * 147 + " ... " + "m" * 147 + ": allowed: "),
]


STAGES = "hydra.sweeper.stages"
VALUES = "allowed: values with commas between them, as 0.1,1.0\n"
REFUSED_STAGES = [
    ('{local.lr:"0.1,0.2"},{local.momentum:"interval(0,1)"}', f"{STAGES}: local.momentum: interval(0,1): {VALUES}"),
    ('{local.lr:"0.1,[0.2"}', f"{STAGES}: local.lr: 0.1,[0.2: {VALUES}"),
    ('{local.lr:"glob(*)"}', f"{STAGES}: local.lr: glob(*): {VALUES}"),
    (
        '{local.epochs:"1"},{local.lr:"0.1,abc"}',
        "local.lr=abc: allowed: a finite number, above 0 (a job of the search: validation.share=0.2 local.epochs=1 ",
    ),
    ("{local.lr:null}", "local.lr=null: allowed: a finite number, above 0 (a job of the search: "),
    (
        '{local.lr:"0.1,0.2"},{local.momentumm:"0.1"}',
        f"{STAGES}: local.momentumm: unknown key; fedrun --cfg job shows all keys; did you mean local.momentum?\n",
    ),
    ("{strategy.server.lr:1}", f"{STAGES}: no job has any of the keys strategy.server.lr; "),  # FedAvg's server
    ("{local.lr:1},{}", f"{STAGES}: {{}}: allowed: keys with their values, such as {{local.lr: '0.1,1.0'}}\n"),
    *(
        (f'{{{key}:"1,2"}}', f"{STAGES}: {key}: cannot be tuned; allowed: keys of a setting, such as local.lr\n")
        for key in ("seed", "name", "output_dir", "hardware.threads")
    ),
]


@pytest.mark.parametrize(("stages", "message"), REFUSED_STAGES)
def test_a_refused_search(checking: Fedrun, tmp_path: Path, stages: str, message: str) -> None:
    ended = checking("-m", "validation.share=0.2", f"{STAGES}=[{stages}]", folder=tmp_path)
    assert ended.err.startswith(f"fedrun: {message}")
    assert (ended.status, ended.out, ended.err.count("\n"), list(tmp_path.iterdir())) == (2, "", 1, [])


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_a_refused_configuration(checking: Fedrun, tmp_path: Path, arguments: str, message: str) -> None:
    ended = checking(*arguments.split(), folder=tmp_path)
    assert ended.err.startswith(f"fedrun: {message}")
    assert ended.err.count("\n") == 1
    assert (ended.status, ended.out) == (2, "")
    assert list(tmp_path.iterdir()) == []
    assert not ended.loaded, "torch was loaded before the configuration was refused"


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        ("dataset=mnits", "mnist"),
        ("dataset=MNIST", "mnist"),
        ("strategy=FedAvg", "fedavg"),
        ("strategy/client=fedporx", "fedprox"),
        ("-m dataset=digits,mnits", "mnist"),
        ("lr=0.1", "local.lr"),
        ("local.LR=0.1", "local.lr"),
        ("Rounds=3", "rounds"),
        ("momentm=0.5", "local.momentum"),
        ("local.epoch=3", "local.epochs"),
        ("+local.epoch=3", "local.epochs"),
        ("client=fedprox", "strategy.client or strategy/client"),
        ("strateg=fedprox", "strategy"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_likely_one(
    checking: Fedrun, tmp_path: Path, arguments: str, meant: str
) -> None:
    ended = checking(*arguments.split(), folder=tmp_path)
    assert (ended.status, ended.err.count("\n")) == (2, 1)
    assert (
        re.search(
            r"; did you mean (.*?)\?( fedrun --.* shows all( keys)?)?( \(job 1 of the sweep: .*\))?\n$", ended.err
        )[1]
        == meant
    )


# What can only be known once the data are there, or the machine is asked.
REFUSED_LATER = [
    (
        "clients_per_round=11",
        "clients_per_round=11: the federation has 10 clients; allowed: 1 to 10, or a share such as",
    ),
    ("partition=natural", "partition=natural needs a dataset whose samples have users, and this one has none; allowed"),
    (
        "population.unseen_clients=10",
        "population.unseen_clients=10: the partition has 10 clients, and at least one must train;",
    ),
    ("appeal=file", "appeal.path=thresholds.csv: cannot be read (No such file or directory); a CSV file in UTF-8"),
    ("partition.clients=1000", "partition=dirichlet: clients=1000 with min_samples=10 needs at least 10000 training"),
    ("dataset=femnist", "data/femnist/train: no such folder, or it cannot be read; run `fedrun-data femnist"),
    (
        "dataset=shakespeare data_dir=here",
        "here/shakespeare/train: no such folder, or it cannot be read; run `fedrun-data shakespeare --data-dir here`",
    ),
    ("dataset=tabular", "dataset.file=data/table.csv cannot be read: no such file"),
    ("dataset=mnist dataset.download=false", "data/MNIST/raw lacks train-images-idx3-ubyte[.gz], "),
    ("hardware.device=abacus", "hardware.device=abacus: no such device; allowed: cpu, cuda, cuda:N"),
    ("hardware.device=cuda:999", "hardware.device=cuda:999: PyTorch sees "),
    (f"dataset=mnist data_dir={'a' * 300}", f"dataset.data_dir={'a' * 300}: File name too long"),
    ("experiment=demo scale=smoke hydra.mode=RUN", "scale=smoke: allowed: full, because this experiment has no scales"),
    ("experiment=suite/tune scale=smoke hydra.mode=RUN", "scale=smoke: allowed in sweeps, such as those of experi"),
    ("output_dir=/dev/null/here", "/dev/null: is not a folder that can be written; choose another output_dir"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED_LATER)
def test_input_that_cannot_be_used(fedrun: Fedrun, tmp_path: Path, arguments: str, message: str) -> None:
    ended = fedrun(*arguments.split(), folder=tmp_path)
    assert ended.err.startswith(f"fedrun: {message}")
    assert ended.err.count("\n") == 1
    assert (ended.status, ended.out) == (2, "")
    assert list(tmp_path.iterdir()) == []


def test_help_lists_every_group_and_option(checking: Fedrun, tmp_path: Path) -> None:
    ended = checking("--help", folder=tmp_path)
    assert (ended.status, ended.err) == (0, "")
    assert not ended.loaded
    for group in GROUPS:
        assert f"\n{group}: {', '.join(names(group))}\n" in ended.out
    listed = ended.out.split("GROUP=OPTION")[1]
    assert "\nhparams: celeba, " in listed
    assert all(f"\n{group}/" not in listed for group in ("hparams", "experiment"))
    assert "\nhydra/launcher: basic, cluster, parallel\n" in listed
    assert "fedrun strategy=turbosvm dataset=femnist  " in ended.out
    assert list(tmp_path.iterdir()) == []


def test_help_lists_an_own_option_with_a_name_of_hydras_once(checking: Fedrun, tmp_path: Path) -> None:
    (tmp_path / "own/hydra/launcher").mkdir(parents=True)
    (tmp_path / "own/hydra/launcher/basic.yaml").write_text("jobs: 1\n")
    listed = checking("--help", "--config-dir", "own", folder=tmp_path).out
    assert "\nhydra/launcher: basic, cluster, parallel\n" in listed


def test_the_examples_of_help_compose(checking: Fedrun, tmp_path: Path) -> None:
    shown = checking("--help", folder=tmp_path).out.splitlines()
    examples = [line.strip().split("  ")[0].split() for line in shown if line.startswith("  fedrun ")]
    assert len(examples) >= 7
    for _, *arguments in examples:
        keys = [re.sub(r"=(\w+),.*", r"=\1", part) for part in arguments if "=" in part]  # a sweep's first job
        build_experiment(compose(keys))


def test_the_composed_configuration_is_shown(checking: Fedrun, tmp_path: Path) -> None:
    ended = checking("strategy=fedprox", "--cfg", "job", folder=tmp_path)
    assert (ended.status, ended.err) == (0, "")
    assert not ended.loaded
    assert "\n    _target_: fedrun.strategies.fedprox.FedProx\n    mu: 0.01\n" in ended.out
    assert list(tmp_path.iterdir()) == []


def test_a_part_of_the_composed_configuration_is_shown(checking: Fedrun, tmp_path: Path) -> None:
    ended = checking("--cfg", "job", "--package", "strategy.client", "strategy=fedprox", folder=tmp_path)
    shown = "# @package strategy.client\n_target_: fedrun.strategies.fedprox.FedProx\nmu: 0.01\n"
    assert (ended.status, ended.out, ended.err) == (0, shown, "")


def test_help_for_a_command_line_that_shows_the_configuration(checking: Fedrun, tmp_path: Path) -> None:
    assert checking("-c", "job", "--help", folder=tmp_path).out.startswith("fedrun runs federated-learning")


def test_the_version_is_fedruns(checking: Fedrun, tmp_path: Path) -> None:
    ended = checking("--version", folder=tmp_path)
    assert (ended.status, ended.out) == (0, f"fedrun {version('fedrun')}\n")


def test_options_may_stand_between_keys() -> None:
    assert options_first(["strategy=turbosvm", "-m", "seed=0,1"]) == ["-m", "strategy=turbosvm", "seed=0,1"]
    assert options_first(["seed=1", "--cfg", "job", "seed=2"]) == ["--cfg", "job", "seed=1", "seed=2"]
    assert options_first(["seed=1", "--config-dir", "a=b", "-m"]) == ["--config-dir", "a=b", "-m", "seed=1"]
    assert options_first(["--config-dir=mine", "+x=3", "~hparams"]) == ["--config-dir=mine", "+x=3", "~hparams"]
    assert options_first(["~hparams", "-m", "seed=0,1"]) == ["-m", "~hparams", "seed=0,1"]
    assert options_first(["a=1", "-cd", "~/mine", ""]) == ["-cd", "~/mine", "", "a=1"]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("~/conf", "/home/a\\1/conf"),
        ("--config-dir=~/conf", "--config-dir=/home/a\\1/conf"),
        ("data_dir=~/conf", "data_dir=~/conf"),
        ("--package=x", "--package=x"),
    ],
)
def test_a_home_folder_of_options_is_expanded(word, expected):
    """Only this folder, and whatever characters its path has."""
    assert with_folder(word, "~/conf", Path("/home/a\\1/conf")) == expected


@pytest.mark.parametrize(
    ("arguments", "likely"),
    [
        (("--expalin", "local.lr"), "; did you mean --explain?"),
        (("--multrun", "seed=0,1"), "; did you mean --multirun?"),
        (("--rounds", "5"), "; did you mean rounds=VALUE? Keys and groups are written without dashes"),
        (("--local.lr=0.1",), "; did you mean local.lr=VALUE? "),
        (("--nothing-like-it",), "; fedrun --help shows"),
    ],
)
def test_a_misspelt_flag(checking: Fedrun, tmp_path: Path, arguments: tuple[str, ...], likely: str) -> None:
    ended = checking(*arguments, folder=tmp_path)
    assert (ended.status, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert f"{arguments[0]}{likely}" in ended.err


@pytest.mark.parametrize("keys", [("seed", "--explain", "rounds"), ("seed", "rounds")])
def test_several_questions_have_several_answers(checking: Fedrun, tmp_path: Path, keys: tuple[str, ...]) -> None:
    ended = checking("--explain", *keys, "--why", "local.lr", "local.lr=0.3", folder=tmp_path)
    seed, rounds, lr = ended.out.split("\n\n")
    assert (seed.split(":")[0], rounds.split(":")[0], lr.split("\n")[0]) == ("seed", "rounds", "local.lr=0.3")


def test_a_run_and_the_same_run_again(fedrun: Fedrun, tmp_path: Path) -> None:
    first = fedrun(*SMALL, folder=tmp_path, plots=True)
    assert (first.status, first.err, first.loaded) == (0, "", ["torch"])
    assert "fedavg · digits · seed 0, 2 rounds" in first.out
    (summary,) = tmp_path.glob("outputs/runs/digits/fedavg/*/seed=0/summary.json")
    assert re.search(rf"\ncurves +{summary.parent.relative_to(tmp_path)}/curves.png\n", first.out)
    for picture in (summary.with_name("curves.png"), summary.with_name("federation.png")):
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.read_bytes().endswith(b"IEND\xaeB`\x82")
    again = fedrun(*SMALL, folder=tmp_path)
    assert again.status == 0
    assert again.out.startswith("fedavg · digits · seed 0: finished earlier; overwrite=true computes it again\n")
    tracked = fedrun(*SMALL, "tracking=tensorboard", folder=tmp_path)
    assert tracked.out.startswith("fedavg · digits · seed 0: finished earlier; trackers receive nothing new; overwrite")
    assert again.out.splitlines()[1:] == first.out.splitlines()[-len(again.out.splitlines()) + 1 :]  # the same table
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outputs"]


def test_a_run_that_diverges(fedrun: Fedrun, tmp_path: Path) -> None:
    ended = fedrun(*SMALL, "local.lr=1e30", "local.weight_decay=1e30", folder=tmp_path)
    assert ended.status == 1
    assert ended.err.startswith("fedrun: round 1: no client's upload was finite ")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    ("sent", "status", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_run_that_is_ended_from_outside(
    fedrun: Fedrun, tmp_path: Path, sent: signal.Signals, status: int, word: str
) -> None:
    ended = fedrun(*SMALL, "rounds=100000", folder=tmp_path, send=sent)
    assert ended.status == status
    assert ended.err == f"fedrun: {word}; the same command (without overwrite=true) continues\n"


def test_thresholds_in_a_file_that_changes(fedrun: Fedrun, tmp_path: Path) -> None:
    """The path is the same, the run is not: neither what is finished nor a checkpoint is taken for it."""
    command, thresholds = (*SMALL, "appeal=file", "participation=flexible"), tmp_path / "thresholds.csv"
    thresholds.write_text("client,threshold\n" + "".join(f"{client},2.0\n" for client in range(4)))
    assert fedrun(*command, folder=tmp_path).status == 0
    assert fedrun(*command, folder=tmp_path).status == 0
    thresholds.write_text(thresholds.read_text().replace("3,2.0", "3,0.1"))
    refused = fedrun(*command, folder=tmp_path)
    assert (refused.status, refused.err.count("\n")) == (2, 1)
    assert "was finished with other thresholds (the file at appeal.path has changed since)" in refused.err
    (summary,) = tmp_path.glob("outputs/runs/*/*/*/*/summary.json")
    summary.unlink()
    refused = fedrun(*command, folder=tmp_path)
    assert (refused.status, refused.err.count("\n")) == (2, 1)
    assert "checkpoint.pt: was made with other thresholds (appeal.path has changed since)" in refused.err
    assert fedrun(*command, "overwrite=true", folder=tmp_path).status == 0


def test_a_reader_who_has_seen_enough(tmp_path: Path) -> None:
    command = subprocess.Popen(
        [sys.executable, "-m", "fedrun", "--help"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert command.stdout is not None and command.stderr is not None
    command.stdout.close()
    assert command.wait(30) == 0
    assert command.stderr.read() == b""
    command.stderr.close()


def test_the_package_can_be_run(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fedrun", "rounds=0"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "fedrun: rounds=0: allowed: an integer, at least 1\n"
