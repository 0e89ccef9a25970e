"""``import fedrun``: cheap, and enough to do what the command line does."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import fedrun
from fedrun.experiment.experiment import Experiment
from fedrun.runs.run import run
from fedrun.simulation.simulation import Simulation


def test_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert fedrun.__doc__ is not None
    lines = [line[4:] for line in fedrun.__doc__.splitlines() if line.startswith("    ")]
    example = "\n".join(lines).replace('"tracking=none"', '"tracking=none", "hardware.threads=1"')
    names: dict[str, object] = {}
    exec(example, names)
    experiment = names["experiment"]
    assert isinstance(experiment, Experiment)
    summary = names["summary"]
    assert isinstance(summary, dict)
    assert Path(summary["folder"]) == experiment.folder
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outputs"]
    rounds = [
        words for line in capsys.readouterr().out.splitlines() if len(words := line.split()) == 2 and words[0].isdigit()
    ]
    assert [number for number, _ in rounds] == ["1", "2"]
    assert float(rounds[-1][1]) == summary["final"]["test/accuracy"]


def test_names() -> None:
    assert (fedrun.run, fedrun.Simulation) == (run, Simulation)
    assert dir(fedrun) == sorted(fedrun.__all__)
    assert fedrun.__version__ == version("fedrun")
    for name in set(fedrun.__all__) - {"__version__"}:
        assert getattr(fedrun, name).__name__ == name
    with pytest.raises(AttributeError, match="^module 'fedrun' has no attribute 'nothing'$"):
        fedrun.nothing  # noqa: B018


def test_the_import_is_cheap() -> None:
    heavy = "{'torch', 'hydra', 'wandb', 'omegaconf', 'numpy', 'pydantic'} & set(sys.modules)"
    code = f"import sys, fedrun; print({heavy}); fedrun.Simulation; print(sorted({heavy}))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # The rounds themselves need neither Hydra nor W&B.
    assert ended.stdout.splitlines() == ["set()", "['numpy', 'pydantic', 'torch']"]
