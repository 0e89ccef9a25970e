from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from fedrun.data.datasets.svhn import Svhn
from fedrun.system.errors import InputError

TRAIN_LABELS, TEST_LABELS = [1, 10, 9], [10, 2]


def images(count: int, first: int) -> np.ndarray:
    """As the files have them, 32 x 32 x 3 x count; sample i: red is first + i, green the row, blue the column."""
    found = np.empty((32, 32, 3, count), np.uint8)
    found[:, :, 0] = first + np.arange(count)
    found[:, :, 1] = np.arange(32)[:, None, None]
    found[:, :, 2] = np.arange(32)[None, :, None]
    return found


def write(root: Path) -> Path:
    folder = root / "SVHN"
    folder.mkdir(parents=True)
    for name, first, labels in (("train", 0, TRAIN_LABELS), ("test", 100, TEST_LABELS)):
        content = {"X": images(len(labels), first), "y": np.array(labels, np.uint8)[:, None]}
        savemat(folder / f"{name}_32x32.mat", content, do_compression=True)
    return folder


def publish(monkeypatch: pytest.MonkeyPatch, folder: Path, address: str = "") -> None:
    """Let torchvision take these files for the published ones: it knows their addresses and checksums."""
    import torchvision

    listed = {
        split: [f"{address}{path.name}", path.name, hashlib.md5(path.read_bytes()).hexdigest()]
        for split in ("train", "test")
        for path in [folder / f"{split}_32x32.mat"]
    }
    monkeypatch.setattr(torchvision.datasets.SVHN, "split_list", listed)


def svhn(root: Path, download: bool = False) -> Svhn:
    return Svhn(data_dir=str(root), download=download, mean=(0.0,) * 3, std=(1.0,) * 3, augmentation=None)


def test_digit_0_is_class_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(monkeypatch, write(tmp_path))
    dataset = svhn(tmp_path).load()
    assert dataset.inputs.shape == (5, 3, 32, 32)
    assert dataset.inputs[:, :, 4, 7].tolist() == [[red, 4, 7] for red in (0, 1, 2, 100, 101)]
    assert dataset.targets.tolist() == [1, 0, 9, 0, 2]
    assert (dataset.train_size, len(dataset.class_names)) == (3, 10)


def test_other_files_than_the_published_are_refused_in_one_line(tmp_path: Path) -> None:
    folder = write(tmp_path)
    with pytest.raises(InputError) as refusal:
        svhn(tmp_path).load()
    message = str(refusal.value)
    assert message.startswith(f"{folder} cannot be read as the published files of svhn (") and "\n" not in message


def test_a_missing_file_is_named_with_the_way_to_get_it(tmp_path: Path) -> None:
    folder = write(tmp_path)
    (folder / "test_32x32.mat").unlink()
    with pytest.raises(InputError) as refusal:
        svhn(tmp_path).load()
    assert str(refusal.value).startswith(
        f"{folder} lacks test_32x32.mat: set dataset.download=true, or run `fedrun-data svhn --data-dir {tmp_path}`"
    )


def test_the_files_are_downloaded(
    tmp_path: Path, serve: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "served")
    publish(monkeypatch, folder, serve(folder))
    assert svhn(tmp_path / "data", download=True).load().targets.tolist() == [1, 0, 9, 0, 2]
