"""fedrun-data show, and what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image

from fedrun.cli import data
from fedrun.cli.entrypoint import exit_status


def run(arguments: Sequence[str]) -> int:
    return exit_status(data.run, "fedrun-data", arguments)


def test_pictures_are_with_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["show", "dataset=digits", "output_dir=results"]) == 0
    assert sorted(path.name for path in tmp_path.rglob("*.png")) == ["labels.png", "samples.png"]
    assert (tmp_path / "results" / "pictures" / "labels.png").is_file()


def test_show_prints_the_federation_and_draws_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "dataset=synthetic_feddyn", "--to", str(tmp_path / "new")]) == 0
    assert "clients   20 with 200 training samples each, 4,000 in all" in capsys.readouterr().out
    for name in ("labels.png", "samples.png"):
        with Image.open(tmp_path / "new" / name) as image:
            assert image.size[0] > 500
            assert len(set(image.convert("L").tobytes())) > 10


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ("validation.share=0.5", ["clients   10 ", "validation 7"]),  # 1 442 samples, half of each client's
        ("strategy=centralized", ["clients   1 with 1,442 training samples each"]),
    ],
)
def test_show_shows_what_a_run_trains_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: str, shown: list[str]
) -> None:
    assert run(["show", settings, "--to", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert all(line in said for line in shown)


def test_it_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "fedrun.cli.data", "minst"]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, "did you mean mnist?" in ended.stderr) == (2, True)


def test_a_reader_who_has_seen_enough() -> None:
    command = [sys.executable, "-m", "fedrun.cli.data", "list"]
    reader, output = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(command, check=False, stdout=output, stderr=subprocess.PIPE, text=True, timeout=60)
    finally:
        os.close(output)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nosuch"], "nosuch: no such dataset; allowed: mnist, "),
        (["list", "--url", "http://host"], "--url http://host: is for fetching a dataset"),
        (["show", "--from", "folder"], "--from folder: is for fetching a dataset"),
        (["mnist", "--to", "folder"], "--to folder: is for showing a federation"),
        (["tabular"], "tabular: fedrun-data has nothing to fetch for it; use dataset=tabular"),
        (["synthetic"], "synthetic: fedrun-data has nothing to fetch for it; use dataset=synthetic"),
        (["mnits"], "glove, or list, or show; did you mean mnist?"),
        (["get", "mnist"], "get: no such dataset; allowed: mnist, "),
        (["mnist", "svhn"], "svhn: settings are for fedrun-data show, and datasets are fetched one by one; "),
        ([], "fedrun-data: no dataset is named; allowed: mnist, "),
        (["list", "a=b"], "a=b: settings are for fedrun-data show"),
        (["show", "dataset=nosuch"], "dataset=nosuch: no such option; allowed: "),
        (
            ["show", "--config-dir", ""],
            "--config-dir='': is empty; allowed: a path; --config-dir=. is the current folder",
        ),
        (["show", "partition.pace=1"], "partition.pace"),
        (["show", "attack=sign_flip", "attack.share=0.001"], "attack.share=0.001"),
        (["show", "local.lr=0"], "local.lr=0: allowed: a finite number, above 0"),
        (["show", "dataset=femnist", "data_dir=/nowhere"], "fedrun-data femnist --data-dir /nowhere"),
        (["show", "dataset=digits", "partition=natural"], "partition=natural needs a dataset whose samples have users"),
        (["show", "dataset=synthetic", "--to", "/proc/new"], "the pictures cannot be written"),
        (["mnist", "--from", "/nowhere"], "--from /nowhere: no such file or folder"),
        (["mnist", "--data-dir", "/proc/new"], "/proc/new"),
        (["mnist", "--url", "ftp://host"], "allowed: an http or https address"),
        (["mnist", "--url", "http://[::1"], "'http://[::1/train-images-idx3-ubyte.gz': allowed: an http or https"),
        (["mnist", "--url", f"http://{'a' * 64}.org"], "allowed: an http or https address"),
        (
            ["mnist", "--url", "http://127.0.0.1:1/ü"],
            "'http://127.0.0.1:1/\\xfc/train-images-idx3-ubyte.gz': allowed: an",
        ),
        (["femnist", "--url", "file:///etc"], "allowed: an http or https address"),
        (["show", "dataset=femnist", "--data-dir", '/no"where'], "run `fedrun-data femnist --data-dir"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if "--url" in arguments:
        arguments = [*arguments, "--data-dir", str(tmp_path)]
    assert run(arguments) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert said.startswith("fedrun-data: ")
    assert said.count("\n") == 1


def test_show_reads_where_the_data_lie(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = tmp_path / "a b=c"
    assert run(["show", "dataset=mnist", "dataset.download=false", "--data-dir", str(there)]) == 2
    assert str(there / "MNIST") in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["list", "--from", "x"], ["digits"]])
def test_what_is_no_fetching(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_what_cannot_be_parsed_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["mnist", "--nosuch"]) == 2
    said = capsys.readouterr().err
    assert said == "fedrun-data: unrecognized arguments: --nosuch; fedrun-data --help shows what is allowed\n"
