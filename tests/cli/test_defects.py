"""What ends a whole sweep: a stop, and a defect of fedrun, which is shown with its traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hydra.core.global_hydra import GlobalHydra

from fedrun.cli import application
from fedrun.sweeps.grid_sweeper import Grids
from fedrun.system.errors import Defect, show_defect


@pytest.fixture(autouse=True)
def command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["fedrun"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    yield
    GlobalHydra.instance().clear()


def raising(error: BaseException) -> Any:
    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    return fail


def test_while_the_jobs_of_a_sweep_are_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fedrun.experiment.experiment.build_experiment", raising(AttributeError("of fedrun")))
    with pytest.raises(SystemExit) as ended:
        application._guarded(["-m", "seed=0,1"])
    assert ended.value.code == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"fedrun: the mistake is in {__file__}, line ")  # where the error is raised


@dataclass(frozen=True)
class Frozen:
    """Its assignments fail in code that dataclasses generates."""

    count: int = 0


def test_a_mistake_in_generated_code_is_in_the_line_that_calls_it(capsys: pytest.CaptureFixture[str]) -> None:
    frozen = Frozen()
    with pytest.raises(FrozenInstanceError) as raised:
        Frozen.__setattr__(frozen, "count", 1)
    show_defect(raised.value)
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"fedrun: the mistake is in {__file__}, line ")


@pytest.mark.parametrize("error", [KeyError("boom"), ValueError("boom"), FileNotFoundError(2, "boom")])
def test_while_a_sweep_runs(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(Grids, "launch", raising(error))
    with pytest.raises(Defect) as found:
        application._guarded(["-m", "seed=0,1"])
    assert found.value.__cause__ is error


@pytest.mark.parametrize("argument", ["hydra.job.env_copy=[NOTHING]", "hydra.verbose={a:1}"])
def test_arguments_at_which_hydra_fails_are_no_defects(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert application._guarded([argument, "rounds=1"]) == 2
    assert capsys.readouterr().err.startswith("fedrun: Hydra cannot use these arguments (")


def test_a_stop_whose_clean_up_failed_ends_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = RuntimeError("in the clean-up")
    stopped.__context__ = KeyboardInterrupt()
    monkeypatch.setattr("fedrun.runs.run.run", raising(stopped))
    with pytest.raises(KeyboardInterrupt):
        application._guarded(["-m", "seed=0,1", "hydra/launcher=basic"])
