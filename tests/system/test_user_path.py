"""Paths that no file can have are rejected in one line, whichever key they are given to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedrun.cli import data
from fedrun.cli.entrypoint import exit_status
from fedrun.config.build import option
from fedrun.system.errors import InputError
from fedrun.system.user_path import user_path

TABLE = {"label": "y"}
IMAGES = {"classes": 2, "size": 4}

DATASETS: list[tuple[str, str, dict[str, Any]]] = [
    ("mnist", "data_dir", {}),
    ("cifar10", "data_dir", {}),
    ("svhn", "data_dir", {}),
    ("tinyimagenet", "data_dir", {}),
    ("femnist", "data_dir", {}),
    ("imagefolder", "data_dir", IMAGES | {"folder": "pets"}),
    ("tabular", "file", TABLE),
]


@pytest.mark.parametrize(("name", "key", "changes"), DATASETS, ids=[f"{name}.{key}" for name, key, _ in DATASETS])
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("n" * 300, "File name too long"),
        ("~nouser/data", "Could not determine home directory"),
        ("a\0b", ".*embedded null .*"),
    ],
)
def test_a_path_that_no_file_can_have(name: str, key: str, changes: dict[str, Any], text: str, reason: str) -> None:
    config = option("dataset", name, **changes, **{key: text})
    with pytest.raises(InputError, match=rf"^dataset\.{key}=.*: {reason}; allowed: a path that a file may have$"):
        config.load()


@pytest.mark.parametrize("text", ["~nouser/run", "a\0b"])
def test_a_path_that_no_run_and_no_thresholds_can_have(text: str) -> None:
    initial = option("initial", "run", path=text)
    appeal = option("appeal", "file", path=text)
    for key, fingerprint in {"initial": lambda: initial.fingerprint(0), "appeal": appeal.fingerprint}.items():
        with pytest.raises(InputError, match=rf"^{key}\.path=.*; allowed: a path that a file may have$"):
            fingerprint()


def test_an_option_of_a_command_that_no_file_can_have(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(data.run, "fedrun-data", ["list", "--data-dir=~nouser/data"]) == 2
    assert capsys.readouterr().err == (
        "fedrun-data: --data-dir=~nouser/data: Could not determine home directory; allowed: a path that a file may "
        "have\n"
    )


def test_other_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_path("~/data", "data_dir") == tmp_path / "data"
    assert user_path("nowhere/data", "data_dir") == Path("nowhere/data")
    with pytest.raises(InputError, match=r"^data_dir='': is empty; allowed: a path; data_dir=. is the current folder$"):
        user_path("", "data_dir")
    assert user_path("~", "folder", Path()) == Path("~")  # a folder of this name


def test_a_folder_that_cannot_be_in_another(tmp_path: Path) -> None:
    config = option("dataset", "domain_folders", data_dir=str(tmp_path), folder="n" * 300, **IMAGES)
    with pytest.raises(InputError, match="^dataset.folder=n+: File name too long; allowed: "):
        config.load()
