"""Sweeps: one table and one plot at the end, failed jobs named, done again where interrupted, in parallel."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.types import HydraContext, RunMode
from omegaconf import OmegaConf

from fedrun.config.hydra_config import hydra_options
from fedrun.runs.outcome import Outcome, outcomes
from fedrun.sweeps.parallel_launcher import Parallel

from ..helpers.forked import Fedrun
from ..helpers.timeless import results

SETTING = (
    "rounds=2",
    "model=logistic",
    "partition.clients=4",
    "local.batch_size=32",
    "hardware.threads=1",
    "tracking=none",
)


def changed(folder: Path) -> dict[str, int]:
    """When each file of every run was changed."""
    return {str(path): path.stat().st_mtime_ns for path in folder.glob("outputs/runs/**/*") if path.is_file()}


def table(out: str) -> list[list[str]]:
    """The cells of the rows of the table at the end."""
    lines = out.split("─\n")[1].split("\n\n", maxsplit=1)[0].splitlines()
    return [line.split() for line in lines]


def cell(accuracies: list[float]) -> list[str]:
    """Mean and standard deviation (ddof 0) of two values, in percent."""
    one, other = accuracies
    return [f"{50 * (one + other):.2f}", "±", f"{50 * abs(one - other):.2f}"]


def job_lines(out: str) -> list[int]:
    """The job's number in each line of a sweep that has one, ascending: jobs at once print in any order."""
    return sorted(int(number) for number in re.findall(r"^== (\d+): ", out, re.MULTILINE))


def test_a_sweep_and_the_same_sweep_again(fedrun: Fedrun, tmp_path: Path) -> None:
    command = ("-m", "seed=0,1", "strategy=fedavg,turbosvm", *SETTING)
    ended = fedrun(*command, folder=tmp_path)
    assert (ended.status, ended.err) == (0, "")
    lines = ended.out.splitlines()
    told = " ".join(SETTING)
    assert f"== 3: seed=1 strategy=turbosvm {told}" in lines
    assert job_lines(ended.out) == [0, 0, 1, 1, 2, 2, 3, 3]

    final = {path: rows[-1]["test/accuracy"] for path, rows in results(tmp_path).items()}
    assert len(final) == 4
    for row, strategy in zip(table(ended.out), ("fedavg", "turbosvm"), strict=True):
        accuracies = [accuracy for path, accuracy in final.items() if f"/{strategy}/" in path]
        assert row[:5] == [strategy, "2", *cell(accuracies)]

    assert "final (round" not in ended.out, "a job printed the table of a single run"

    before = changed(tmp_path)
    again = fedrun(*command, folder=tmp_path, plots=True)
    assert changed(tmp_path) == before
    assert again.status == 0
    picture = tmp_path / again.out.splitlines()[-1].removeprefix("curves  ")
    assert picture.match("outputs/sweeps/*/curves.png")
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.read_bytes().endswith(b"IEND\xaeB`\x82")
    assert f"== 3: seed=1 strategy=turbosvm {told}: finished earlier" in again.out
    assert table(again.out) == table(ended.out)


def test_a_sweep_without_published_values_shows_what_was_typed(fedrun: Fedrun, tmp_path: Path) -> None:
    """``~hparams`` also leaves out the strategy's own values, for which Hydra needs a second override."""
    ended = fedrun("-m", "~hparams", "seed=0,1", *SETTING, folder=tmp_path)
    assert (ended.status, ended.err) == (0, "")
    assert f"== 1: ~hparams seed=1 {' '.join(SETTING)}" in ended.out.splitlines()
    (sweep,) = (tmp_path / "outputs/sweeps").iterdir()
    assert outcomes(sweep)[0].overrides == ("~hparams", "seed=0", *SETTING)
    files = [path for path in tmp_path.rglob("*") if path.suffix in (".yaml", ".json", ".log")]
    files.remove(sweep / "multirun.yaml")  # Hydra's overrides
    assert len(files) == 10
    assert [path for path in files if "~hparams@" in path.read_text()] == []


@pytest.mark.parametrize(
    "swept",
    [
        ["rounds=1,2", "evaluation.every=${rounds}"],
        ["hydra.sweeper.grids=[{rounds:'1,2',evaluation.every:'${rounds}'}]"],
    ],
)
def test_a_value_that_refers_to_a_swept_one(fedrun: Fedrun, tmp_path: Path, swept: list[str]) -> None:
    ended = fedrun("-m", *swept, *SETTING[1:], folder=tmp_path)
    assert (ended.status, ended.err) == (0, "")
    (sweep,) = (tmp_path / "outputs/sweeps").iterdir()
    jobs = outcomes(sweep)
    assert [job.overrides[1] for job in jobs] == ["evaluation.every=${rounds}"] * 2
    configs = [yaml.safe_load((tmp_path / job.summary["folder"] / ".hydra/config.yaml").read_text()) for job in jobs]
    assert [config["evaluation"]["every"] for config in configs] == [1, 2]


def test_a_job_that_fails_is_named_and_the_others_go_on(fedrun: Fedrun, tmp_path: Path) -> None:
    ended = fedrun("-m", "clients_per_round=1000,2", "seed=0,1", *SETTING, folder=tmp_path)
    assert ended.status == 1
    reason = "clients_per_round=1000: the federation has 4 clients; allowed: 1 to 4, or a share such as 0.1"
    told = " ".join(SETTING)
    *jobs, failed, last = ended.err.splitlines()
    assert sorted(jobs) == [f"== 0: failed: {reason}", f"== 1: failed: {reason}"]
    assert failed == f"failed: clients_per_round=1000 seed=0 {told} and 1 more: {reason}"
    assert last == "fedrun: 2 of 4 jobs failed"
    assert [row[:3] for row in table(ended.out)] == [["digits", "fedavg", "2"]]
    assert ended.out.splitlines()[-1].startswith("curves  outputs/sweeps/")
    (sweep,) = (tmp_path / "outputs/sweeps").iterdir()
    assert [outcome.error for outcome in outcomes(sweep)] == [reason, reason, None, None]


def test_a_sweep_of_which_nothing_is_left(fedrun: Fedrun, tmp_path: Path) -> None:
    ended = fedrun("-m", "local.lr=1e30", "local.weight_decay=1e30", "seed=0,1", *SETTING, folder=tmp_path)
    assert ended.status == 1
    assert ended.err.splitlines()[-1] == "fedrun: 2 of 2 jobs failed"
    assert "curves" not in ended.out


def test_a_job_that_fails_in_an_unforeseen_way(fedrun: Fedrun, tmp_path: Path) -> None:
    command = ("-m", "strategy.server._target_=breaking.Breaking,fedrun.strategies.fedavg.FedAvg", *SETTING)
    ended = fedrun(*command, folder=tmp_path)
    assert ended.status == 1
    assert "Traceback" in ended.err  # whoever repairs it needs to know where
    assert "== 0: failed: ZeroDivisionError: in the middle of a round" in ended.err
    assert ended.err.splitlines()[-1] == "fedrun: 1 of 2 jobs failed"
    assert [row[:3] for row in table(ended.out)] == [["digits", "fedavg", "1"]]


def test_a_lack_of_memory_is_one_line(fedrun: Fedrun, tmp_path: Path) -> None:
    """10^12 hidden units: an allocation that fails inside PyTorch."""
    command = ("-m", "model.hidden=[1000000000000],[4]", *(key for key in SETTING if key != "model=logistic"))
    ended = fedrun(*command, folder=tmp_path)
    first, *_, last = ended.err.splitlines()
    assert first.startswith(
        "== 0: failed: not enough memory for 256000000000000 bytes at once: the data, the model, the batch "
    )
    assert (ended.status, last, "Traceback" in ended.err) == (1, "fedrun: 1 of 2 jobs failed", False)


def test_a_sweeps_folder_that_cannot_be_written(fedrun: Fedrun, tmp_path: Path) -> None:
    ended = fedrun("-m", "seed=0,1", "hydra.sweep.dir=here", *SETTING, folder=tmp_path, largest_file=1000)
    reason = "cannot be written (File too large); make room or choose another output_dir; the files so far are kept"
    assert ended.err == f"fedrun: here: {reason}, and the same command continues the run\n"
    assert (ended.status, list(tmp_path.glob("outputs/runs/*"))) == (1, [])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("-m", "strategy=fedavg,turbosvm", "strategy.client.mu=0.1"),
            "strategy.client.mu: is not a key of the chosen option, which has no keys; allowed with ",
        ),
        (
            ("-m", "strategy=fedprox,fedavg", "strategy.client.mu=0.1"),
            "strategy.client.mu: is not a key of the chosen option, which has no keys; allowed with ",
        ),
        (
            ("-m", "strategy=fedprox,moon", "~strategy.client.mu"),
            "strategy.client.mu: is looked for before the sweep's jobs choose their options; a sweep gives options ",
        ),
        (
            ("-m", "strategy=fedprox,moon", "strategy.client.mu=[1"),
            "strategy.client.mu=[1: cannot be read; allowed: KEY=VALUE, GROUP=OPTION; a list is KEY=[A,B], and a ",
        ),
        (
            ("-m", "strategy=fedavg,fedadam", "local.lrr=0.1"),
            "local.lrr: unknown key; allowed below local: lr, lr_decay, ",
        ),
        (
            ("hydra.launcher.jobs=2",),
            "hydra.launcher.jobs=2: is for sweeps; allowed: with -m, or in an experiment's sweep",
        ),
        (("hydra/launcher=basic", "rounds=1"), "hydra/launcher=basic: is for sweeps; allowed: with -m, or in an"),
        (("~hydra/sweeper", "rounds=1"), "~hydra/sweeper: is for sweeps; allowed: with -m, or in an experiment's"),
    ],
)
def test_keys_of_sweeps_and_in_sweeps(
    checking: Fedrun, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    ended = checking(*arguments, folder=tmp_path)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith(f"fedrun: {message}") and ended.err.count("\n") == 1
    if "strategy.client.mu=0.1" in arguments:
        number = arguments[1].split("=")[1].split(",").index("fedavg")
        assert ended.err.endswith(f"(job {number} of the sweep: strategy=fedavg strategy.client.mu=0.1)\n")


def test_a_key_of_every_option_of_a_sweep(fedrun: Fedrun, tmp_path: Path) -> None:
    ended = fedrun("-m", "strategy=fedprox,fedamp", "strategy.client.mu=0.25", *SETTING, folder=tmp_path)
    assert (ended.status, ended.err) == (0, "")
    assert f"== 1: strategy=fedamp strategy.client.mu=0.25 {' '.join(SETTING)}" in ended.out.splitlines()
    configs = [yaml.safe_load(path.read_text()) for path in tmp_path.glob("outputs/runs/**/.hydra/config.yaml")]
    assert [config["strategy"]["client"]["mu"] for config in configs] == [0.25, 0.25]


def test_a_key_may_have_no_effect_in_some_jobs_but_not_in_all(fedrun: Fedrun, tmp_path: Path) -> None:
    refused = fedrun("-m", "local.beta1=0.5,0.6", *SETTING, folder=tmp_path)
    assert (refused.status, refused.out) == (2, "")
    assert refused.err == (
        "fedrun: local.beta1=0.5: has no effect with local.optimizer=sgd; leave it out, or change local.optimizer "
        "(in every job of the sweep)\n"
    )
    ended = fedrun("-m", "local.optimizer=sgd,adam", "local.beta1=0.5", "rounds=1", *SETTING, folder=tmp_path)
    assert (ended.status, ended.err) == (0, "")


def test_keys_that_a_search_gives_an_effect_and_keys_that_have_none(fedrun: Fedrun, tmp_path: Path) -> None:
    search = ("-m", "validation.share=0.2", "rounds=1", *SETTING)
    stages = 'hydra.sweeper.stages=[{local.lr_decay:"0.9,0.99"}]'
    ended = fedrun(*search, "local.lr_decay_rounds=10", stages, folder=tmp_path)
    assert (ended.status, ended.err) == (0, "")
    refused = fedrun(*search, 'hydra.sweeper.stages=[{local.beta1:"0.5,0.6"}]', folder=tmp_path)
    assert (refused.status, refused.out) == (2, "")
    assert refused.err.startswith("fedrun: local.beta1=0.5: has no effect with local.optimizer=sgd; leave it out, or ")


@pytest.mark.parametrize("launcher", [("hydra/launcher=basic",), ("hydra.launcher.jobs=2",)], ids=["basic", "parallel"])
def test_an_outcome_that_cannot_be_written(fedrun: Fedrun, tmp_path: Path, launcher: tuple[str, ...]) -> None:
    (tmp_path / "here/1/outcome.json.partial").mkdir(parents=True)
    ended = fedrun("-m", "seed=0,1", "hydra.sweep.dir=here", *SETTING, *launcher, folder=tmp_path)
    assert ended.status == 2
    assert ended.err.startswith("fedrun: ") and ended.err.count("\n") == 1
    assert "here/1/outcome.json.partial: cannot be written (Is a directory); " in ended.err


def test_a_folder_that_another_sweep_has_used(fedrun: Fedrun, tmp_path: Path) -> None:
    """What is told is of this sweep's jobs, and of its search."""
    (tmp_path / "here" / "hparams").mkdir(parents=True)
    (tmp_path / "here" / "hparams" / "digits-fedavg.yaml").write_text("local: {lr: 0.5}\n")
    for seeds, runs in (("0,1", "2"), ("2", "1")):
        ended = fedrun("-m", f"seed={seeds}", "hydra.sweep.dir=here", *SETTING, folder=tmp_path)
        assert (ended.status, ended.err) == (0, "")
        assert [row[2] for row in table(ended.out)] == [runs]
        assert "hparams here" not in ended.out


def test_a_finished_run_without_its_metrics_is_named(fedrun: Fedrun, tmp_path: Path) -> None:
    assert fedrun("-m", "seed=0,1", *SETTING, folder=tmp_path).status == 0
    (metrics,) = tmp_path.glob("outputs/runs/*/*/*/seed=1/metrics.jsonl")
    metrics.unlink()
    ended = fedrun("-m", "seed=0,1", *SETTING, folder=tmp_path)
    assert [row[2] for row in table(ended.out)] == ["1"]
    assert ended.err.startswith("fedrun: not in the table: ") and ended.err.count("\n") == 1
    assert ended.status == 0


def test_a_search_by_what_no_run_measures(fedrun: Fedrun, tmp_path: Path) -> None:
    stages = 'hydra.sweeper.stages=[{local.lr:"0.1,0.5"}]'
    metric = "hydra.sweeper.metric=clients/acuracy"
    ended = fedrun("-m", stages, metric, "validation.share=0.2", *SETTING, folder=tmp_path)
    assert (ended.status, list(tmp_path.glob("outputs/sweeps/*/hparams/*"))) == (2, [])
    assert ended.err.startswith("fedrun: hydra.sweeper.metric=clients/acuracy: a run has no such metric; allowed: ")


@pytest.mark.parametrize("metric", ["validation/acuracy", "accuracy", "test/accuracy"])
def test_a_search_by_what_the_task_does_not_measure_starts_no_run(fedrun: Fedrun, tmp_path: Path, metric: str) -> None:
    stages = 'hydra.sweeper.stages=[{local.lr:"0.1,0.5"}]'
    ended = fedrun("-m", stages, f"hydra.sweeper.metric={metric}", "validation.share=0.2", *SETTING, folder=tmp_path)
    assert (ended.status, list(tmp_path.glob("outputs/runs/*"))) == (2, [])
    allowed = "allowed: validation/loss, validation/accuracy, validation/f1, validation/mcc, or another metric of a "
    assert ended.err.startswith(f"fedrun: hydra.sweeper.metric={metric}: {allowed}")


SEARCHER = '''
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper


class Searcher(Sweeper):
    """Runs one job after the other and prints what they return, as a sweeper that searches learns of it."""

    def __init__(self, tried):
        self.tried = tried

    def setup(self, *, hydra_context, task_function, config):
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments):
        given = [argument for argument in arguments if "," not in argument]
        for number, tried in enumerate(self.tried):
            (job,) = self.launcher.launch([[*given, tried]], initial_job_idx=number)
            print("returned", job.return_value)
'''


OPTION = "_target_: hydra_plugins.searcher.Searcher\ntried: [local.lr=0.1, validation.share=0]\n"


@pytest.mark.slow
def test_another_sweeper_searches_on_validation_samples_alone(tmp_path: Path) -> None:
    package, options = tmp_path / "site" / "hydra_plugins", tmp_path / "own" / "hydra" / "sweeper"
    package.mkdir(parents=True)
    options.mkdir(parents=True)
    (package / "searcher.py").write_text(SEARCHER)
    (options / "searcher.yaml").write_text(OPTION)
    path = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])

    def search(*overrides: str) -> subprocess.CompletedProcess[str]:
        command = ("--config-dir", "own", "-m", "hydra/sweeper=searcher", *SETTING, *overrides)
        return subprocess.run(
            [sys.executable, "-m", "fedrun", *command],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )

    ended = search()
    assert (ended.returncode, list(tmp_path.glob("outputs/**/metrics.jsonl"))) == (2, [])
    assert ended.stderr == (
        "fedrun: validation.share=0: a search needs samples to judge by; set it above 0, such as to 0.1\n"
    )
    ended = search("validation.share=0.2", "output_dir=a,b")
    assert (ended.returncode, list(tmp_path.glob("*/**/metrics.jsonl"))) == (2, [])
    assert ended.stderr.endswith(": a sweep has one folder; allowed: one value on the command line\n")
    # Where a job sets the share to 0, that job fails, and no accuracy on test samples is returned.
    ended = search("validation.share=0.2")
    returned = [line.split()[1] for line in ended.stdout.splitlines() if line.startswith("returned")]
    (rows,) = results(tmp_path).values()
    assert returned == [str(rows[-1]["validation/accuracy"]), "None"]


def test_ctrl_c_ends_a_sweep(fedrun: Fedrun, tmp_path: Path) -> None:
    command = ("-m", "seed=0,1", *SETTING, "rounds=100000", "checkpoint_seconds=0", "hydra/launcher=basic")
    ended = fedrun(*command, folder=tmp_path, send=signal.SIGINT)
    assert ended.status == 130
    assert ended.err == "fedrun: interrupted; the same command (without overwrite=true) continues\n"
    assert "== 1" not in ended.out


def test_an_experiment_is_a_sweep(fedrun: Fedrun, tmp_path: Path) -> None:
    keys = [key for key in SETTING if not key.startswith("rounds")]
    ended = fedrun("experiment=demo", *keys, "rounds=1", folder=tmp_path)
    assert (ended.status, ended.err) == (0, "")
    assert [row[:2] for row in table(ended.out)] == [["fedavg", "3"], ["turbosvm", "3"]]
    assert len(list(tmp_path.glob("outputs/demo/digits/*/*/seed=*/summary.json"))) == 6


def test_a_search_ends_with_suggested_hparams(fedrun: Fedrun, tmp_path: Path) -> None:
    """Of 0.0001 and 0.5 the larger rate learns something in two rounds; FedAvg's server has no rate to try."""
    stages = 'hydra.sweeper.stages=[{local.lr:"0.0001,0.5"},{strategy.server.lr:"0.1"}]'
    ended = fedrun("-m", stages, "validation.share=0.2", *SETTING, folder=tmp_path)
    assert (ended.status, ended.err) == (0, "")
    assert job_lines(ended.out) == [0, 0, 1, 1]
    assert "Validation metrics after the last round" in ended.out
    *_, written, use = ended.out.split("\n\n")[0].splitlines()
    name, path = written.split()
    assert use == f"to use  fedrun --config-dir {Path(path).parents[1]} ..."
    suggested = (tmp_path / path).read_text()
    assert f"# Suggested by: fedrun -m validation.share=0.2 {' '.join(SETTING)} '{stages}'\n" in suggested
    assert (name, Path(path).name) == ("hparams", "digits-fedavg.yaml")
    assert suggested.endswith("\nlocal:\n  lr: 0.5\n")
    assert "At an end of its grid, so that better values may lie beyond: local.lr=0.5\n" in suggested
    for rows in results(tmp_path).values():
        assert not any(key.startswith("test/") for row in rows for key in row)
    again = fedrun("--config-dir", str((tmp_path / path).parents[1]), *SETTING, "--cfg", "job", folder=tmp_path)
    assert OmegaConf.create(again.out).local.lr == 0.5  # the sweep's folder as a folder of further options
    (tmp_path / "own").mkdir()
    stages = 'hydra.sweeper.stages=[{local.lr:"0.5"}]'
    own = fedrun(
        "--config-dir", "own", "-m", stages, "hydra.sweep.dir=s", "validation.share=0.2", *SETTING, folder=tmp_path
    )
    assert f"\nto use  cp -r s/hparams {tmp_path / 'own'}\n" in own.out


def test_searches_with_several_conditions_and_one_in_the_same_folder(fedrun: Fedrun, tmp_path: Path) -> None:
    """A printed command works; the second search leaves its own file alone, and not one that the user wrote."""
    own = tmp_path / "s" / "hparams" / "own.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("# @package _global_\nlocal: {lr: 0.2}\n")
    setting = ("validation.share=0.2", "hydra.sweep.dir=s", *SETTING[1:], "rounds=1")
    stages = 'hydra.sweeper.stages=[{local.lr:"0.3"}]'
    ended = fedrun("-m", stages, "partition=iid,dirichlet", *setting, folder=tmp_path)
    assert (ended.status, ended.err) == (0, "")
    uses = [line.split() for line in ended.out.splitlines() if line.startswith("to use  ")]
    assert [use[-2] for use in uses] == ["hparams@_global_=digits-fedavg.1", "hparams@_global_=digits-fedavg.2"]
    composed = fedrun(*uses[1][3:-1], "--cfg", "job", folder=tmp_path)
    assert OmegaConf.create(composed.out).local.lr == 0.3
    assert fedrun("-m", stages, *setting, folder=tmp_path).status == 0
    assert sorted(path.name for path in own.parent.iterdir()) == ["digits-fedavg.yaml", "own.yaml"]


def test_jobs_in_parallel(fedrun: Fedrun, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    command = ("-m", "seed=0,1", *SETTING)
    one = fedrun(*command, "hydra/launcher=basic", folder=tmp_path / "one")
    two = fedrun(*command, "hydra.launcher.jobs=2", folder=tmp_path / "two")
    assert (two.status, two.err) == (0, "")
    assert results(tmp_path / "two") == results(tmp_path / "one")
    assert table(two.out) == table(one.out)
    assert job_lines(two.out) == job_lines(one.out) == [0, 0, 1, 1]
    done = [line for line in two.out.splitlines() if " jobs done" in line]
    assert done[0].startswith("1 of 2 jobs done, ") and done[1:] == ["2 of 2 jobs done"]


@pytest.mark.parametrize("more", [("seed=0",), ("-m", "seed=0,1"), ("-m", "seed=0,1", "hydra/launcher=basic")])
def test_a_reader_who_has_seen_enough(fedrun: Fedrun, tmp_path: Path, more: tuple[str, ...]) -> None:
    """The runs go on, and nobody complains."""
    pipe, complaints = tmp_path / "pipe", tmp_path / "complaints"
    os.mkfifo(pipe)
    number = fedrun.start(*more, *SETTING, folder=tmp_path, out=pipe, err=complaints)
    with pipe.open() as reader:
        assert reader.readline()
    assert (fedrun.wait(number), complaints.read_text()) == (0, "")
    assert all(len(rows) == 3 for rows in results(tmp_path).values())
    assert len(list(tmp_path.glob("outputs/runs/**/summary.json"))) == len(results(tmp_path)) > 0


def test_streams_that_were_never_opened(tmp_path: Path) -> None:
    """A job fails and nobody can be told; its outcome is written, and the other one runs."""
    command = [sys.executable, "-m", "fedrun", "-m", *SETTING, "clients_per_round=2,20"]
    closed = subprocess.run(["sh", "-c", 'exec "$@" >&- 2>&-', "sh", *command], cwd=tmp_path, check=False)
    assert closed.returncode == 1
    (sweep,) = tmp_path.glob("outputs/sweeps/*")
    assert [outcome.error is None for outcome in outcomes(sweep)] == [True, False]


@pytest.mark.parametrize(
    ("asked", "jobs", "threads", "openmp", "at_once"),
    [
        (None, 5, None, None, 4),
        (None, 3, None, None, 3),
        (1, 5, None, None, 1),
        (8, 5, None, None, 5),
        (None, 5, 2, "1", 2),
        (None, 5, 3, None, 1),
        (None, 5, 8, None, 1),
        (4, 5, 8, None, 4),
        (None, 5, None, "2", 2),
    ],
)
def test_how_many_jobs_run_at_once(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    asked: int | None,
    jobs: int,
    threads: int | None,
    openmp: str | None,
    at_once: int,
) -> None:
    """Of 4 cores each job has one, or as many as it has threads if their number is set; no more than there are jobs."""
    found = []
    monkeypatch.setattr("fedrun.system.cores.cores", lambda: 4)
    monkeypatch.setattr(
        "fedrun.sweeps.job_processes.run_jobs", lambda job, count, many, lost, progress: found.append(many) or []
    )
    launcher = Parallel(asked)
    launcher.config = OmegaConf.create(
        {"hydra": {"sweep": {"dir": str(tmp_path)}}, "hardware": {"device": "cpu", "threads": threads}}
    )
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if openmp is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", openmp)
    launcher.launch([["seed=0"]] * jobs, 0)
    assert found == [at_once]
    launcher.config.hardware.device = "cuda:1"
    launcher.launch([["seed=0"]] * jobs, 0)
    assert found[1:] == [min(jobs, asked or 1)]


@pytest.mark.parametrize(
    ("keys", "at_once"),
    [
        ([["hardware.threads=1"], ["hardware.threads=1"]], 4),
        ([["hardware.threads=2"], ["hardware.threads=2"]], 2),
        ([["hardware.threads=2"], ["seed=1"]], 2),
        ([["hardware=gpu"], ["hardware=gpu"]], 3),
        ([["hardware.device=cuda:1"], ["seed=1"]], 1),
    ],
)
def test_the_jobs_own_hardware_decides_how_many_run_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keys: list[list[str]], at_once: int
) -> None:
    """On 4 cores and 3 GPUs: an experiment's grid sets values that the sweep's own configuration lacks."""
    found = []
    monkeypatch.setattr("fedrun.system.cores.cores", lambda: 4)
    monkeypatch.setattr("fedrun.sweeps.parallel_launcher.visible_gpus", lambda: ("0", "1", "2"))
    monkeypatch.setattr(
        "fedrun.sweeps.job_processes.run_jobs", lambda job, count, many, lost, progress: found.append(many) or []
    )
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with hydra_options(None):
        hydra = GlobalHydra.instance().hydra
        launcher = Parallel(None)
        launcher.setup(
            hydra_context=HydraContext(hydra.config_loader, Callbacks()),
            task_function=lambda _: None,
            config=hydra.compose_config("config", [f"hydra.sweep.dir={tmp_path}"], RunMode.MULTIRUN),
        )
        launcher.launch(keys * 3, 0)
    assert found == [at_once]


@pytest.mark.parametrize("group", ["hydra/launcher", "hydra/sweeper"])
def test_an_experiment_that_chooses_a_launcher_or_sweeper(checking: Fedrun, tmp_path: Path, group: str) -> None:
    """Hydra would use that of config.yaml without a word."""
    (tmp_path / "own/experiment").mkdir(parents=True)
    (tmp_path / "own/experiment/mine.yaml").write_text(
        f"# @package _global_\ndefaults:\n  - override /{group}: basic\nhydra: {{mode: MULTIRUN}}\n"
    )
    ended = checking("--config-dir", "own", "experiment=mine", "seed=0,1", folder=tmp_path)
    why = f"experiment=mine: chooses {group}=basic, which only the command line can; add {group}=basic there"
    assert (ended.status, ended.err) == (2, f"fedrun: {why}\n")
    ended = checking("--config-dir", "own", "experiment=mine", f"{group}=basic", "seed=-1,1", folder=tmp_path)
    assert ended.err.startswith("fedrun: seed=-1: ")


@pytest.mark.parametrize(
    ("launcher", "number", "or_null"),
    [
        *(("parallel", f"jobs={number}", "; or null") for number in ("0", "-1", "1.5", "all", "true")),
        *(("cluster", number, "") for number in ("minutes=0", "minutes=null", "at_once=0")),
    ],
)
def test_an_impossible_number_of_a_launcher(
    fedrun: Fedrun, tmp_path: Path, launcher: str, number: str, or_null: str
) -> None:
    chosen = (f"hydra/launcher={launcher}", f"hydra.launcher.{number}")
    ended = fedrun("-m", "seed=0,1", *SETTING, *chosen, folder=tmp_path)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err == f"fedrun: hydra.launcher.{number}: allowed: an integer, at least 1{or_null}\n"


def test_outcomes_come_in_the_order_of_the_jobs(tmp_path: Path) -> None:
    for number in (10, 2, 0):
        (tmp_path / str(number)).mkdir()
        Outcome((f"seed={number}",), {"seed": number} if number else None, None if number else "why").save(
            tmp_path / str(number)
        )
    (tmp_path / "11").mkdir()  # a job that was interrupted leaves none
    assert outcomes(tmp_path) == [
        Outcome(("seed=0",), None, "why"),
        Outcome(("seed=2",), {"seed": 2}, None),
        Outcome(("seed=10",), {"seed": 10}, None),
    ]
