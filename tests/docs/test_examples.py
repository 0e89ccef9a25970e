"""The examples of docs/examples.md run as they stand there; those that need a download, on small files in its form."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import struct
from pathlib import Path

import pytest

import fedrun as library

pytestmark = pytest.mark.needs("peft")

PAGE = (Path(__file__).parents[2] / "docs" / "examples.md").read_text(encoding="utf-8")
SCRIPTS = dict(re.findall(r"`(\w+\.py)`[^`]*:\n\n```python\n(.*?)```", PAGE, re.DOTALL))
COMMANDS = [line.strip() for line in PAGE.splitlines() if line.startswith("    fedrun ")]
QUICK = ("rounds=1", "hardware.threads=1", "display=none", "tracking=none")
SMALL = {
    "dataset=shakespeare": ("clients_per_round=2", "dataset.min_samples_after_split=1"),
    "dataset=fmnist": ("clients_per_round=2", "partition.clients=4", "partition.min_samples=1"),
}
"""For the small files."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the page's scripts, and data in the forms of Shakespeare and Fashion-MNIST."""
    top = tmp_path_factory.mktemp("examples")
    for name, content in SCRIPTS.items():
        (top / name).write_text(content)
    text = "Now is the winter of our discontent made glorious summer by this sun of York; " * 3
    users = {
        name: {"x": [text[n : n + 80] for n in range(first, first + 70)], "y": list(text[first + 80 : first + 150])}
        for first, name in enumerate(("GLOUCESTER", "CLARENCE", "HASTINGS", "ANNE", "RIVERS", "STANLEY"))
    }
    for split in ("train", "test"):
        path = top / "data" / "shakespeare" / split / "roles.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"users": list(users), "num_samples": [70] * len(users), "user_data": users}))
    raw = top / "data" / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for name, count in (("train", 200), ("t10k", 20)):
        pixels = bytes(number * 7 % 256 for number in range(count * 784))
        (raw / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, count, 28, 28) + pixels)
        labels = bytes(number % 10 for number in range(count))
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, count) + labels)
    return top


@pytest.mark.parametrize(("script", "lowest"), [("diabetes.py", (0.0, 0.2)), ("bits.py", (0.9, 0.8))])
def test_a_data_frame(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    script: str,
    lowest: tuple[float, float],
) -> None:
    """R² above 0.2; a mean average precision above 0.9 and an F1 above 0.8."""
    monkeypatch.chdir(folder)
    runpy.run_path(script)
    first, second = map(float, capsys.readouterr().out.split()[-2:])
    assert (first > lowest[0], second > lowest[1]) == (True, True)


def test_a_network_of_your_own(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(folder)
    (command,) = [line.strip() for line in PAGE.splitlines() if line.startswith("    PYTHONPATH=. fedrun ")]
    _, _, *overrides = shlex.split(command)
    run = library.run(library.build_experiment(library.compose([*overrides, *QUICK, f"output_dir={tmp_path}"])))
    network = library.load(run["folder"]).network()
    assert [tuple(parameter.shape) for parameter in network.parameters()] == [
        (16, 1, 3, 3), (16,), (16,), (16,), (10, 1024), (10,)
    ]  # fmt: skip
    assert not list(network.buffers())  # GroupNorm has no statistics


def test_the_commands(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each ends with a summary. The adapters and the head, which alone are sent, are under a twentieth of the model."""
    monkeypatch.chdir(folder)
    runpy.run_path("weather.py")
    assert len(COMMANDS) == 6
    sent = {}
    for command in COMMANDS:
        _, *overrides = shlex.split(command)
        small = next((SMALL[override] for override in overrides if override in SMALL), ())
        summary = library.run(library.build_experiment(library.compose([*overrides, *QUICK, *small])))
        assert summary["rounds"] == 1
        if "clients_per_round=1.0" in overrides and "dataset.label=null" not in overrides:
            sent["adapters" if "model.lora.rank=2" in overrides else "model"] = summary["final"]["cost/params_up"] / 3
    assert sent["adapters"] < 0.05 * sent["model"]
