"""Files that are no regular files are rejected before they are opened: a FIFO without a writer would block for ever."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fedrun.data.datasets.celeba import Celeba
from fedrun.data.datasets.femnist import Femnist
from fedrun.data.datasets.imagefolder import ImageFolder
from fedrun.data.datasets.regular_file import stat_regular
from fedrun.data.datasets.sample_table import read_table
from fedrun.system.errors import InputError

LEAF: dict[str, Any] = {"cache_dir": None, "min_samples": 1, "min_samples_after_split": 1}


def leaf_file(root: Path) -> None:
    (root / "femnist/train").mkdir(parents=True)
    os.mkfifo(root / "femnist/train/a.json")
    Femnist(data_dir=str(root), **LEAF).load()


def parquet_file(root: Path) -> None:
    (root / "femnist/train").mkdir(parents=True)
    os.mkfifo(root / "femnist/train/a.parquet")
    Femnist(data_dir=str(root), **LEAF).load()


def image(root: Path) -> None:
    for folder in ("train/cat", "train/dog", "test/cat"):
        (root / folder).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(root / folder / "b.png")
    os.mkfifo(root / "train/cat/a.png")
    settings: dict[str, Any] = {"mean": (0.0,) * 3, "std": (1.0,) * 3, "augmentation": None, "test_share": None}
    ImageFolder(data_dir=".", cache_dir=None, folder=str(root), classes=2, size=4, **settings).load()


def photograph(root: Path) -> None:
    (root / "celeba/img_align_celeba").mkdir(parents=True)
    names = [f"{number}.jpg" for number in range(5)]
    os.mkfifo(root / "celeba/img_align_celeba" / names[0])
    (root / "celeba/identity_CelebA.txt").write_text("".join(f"{name} 7\n" for name in names))
    rows = "".join(f"{name} 1\n" for name in names)
    (root / "celeba/list_attr_celeba.txt").write_text(f"5\nSmiling\n{rows}")
    Celeba(data_dir=str(root), **LEAF).load()


def table(root: Path) -> None:
    os.mkfifo(root / "table.csv")
    read_table(root / "table.csv")


def device(root: Path) -> None:
    stat_regular(Path("/dev/zero"))


@pytest.mark.parametrize("load", [leaf_file, parquet_file, image, photograph, table, device])
def test_fifos_and_devices_are_rejected(tmp_path: Path, load: Callable[[Path], None]) -> None:
    with pytest.raises(InputError, match="not a regular file") as error:
        load(tmp_path)
    assert "\n" not in str(error.value)


def test_a_link_to_a_regular_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"four")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert stat_regular(tmp_path / "link").st_size == 4
