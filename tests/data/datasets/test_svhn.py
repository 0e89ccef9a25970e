from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
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


def svhn(root: Path, download: bool = False) -> Svhn:
    return Svhn(data_dir=str(root), download=download, mean=(0.0,) * 3, std=(1.0,) * 3, augmentation=None)


def test_digit_0_is_class_0(tmp_path: Path) -> None:
    write(tmp_path)
    dataset = svhn(tmp_path).load()
    assert dataset.inputs.shape == (5, 3, 32, 32)
    assert dataset.inputs[:, :, 4, 7].tolist() == [[red, 4, 7] for red in (0, 1, 2, 100, 101)]
    assert dataset.targets.tolist() == [1, 0, 9, 0, 2]
    assert (dataset.train_size, len(dataset.class_names)) == (3, 10)


def test_order_and_values_are_those_of_torchvision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path)
    monkeypatch.setattr(torchvision.datasets.SVHN, "_check_integrity", lambda _: True)
    dataset = svhn(tmp_path).load()
    for split, ours in (("train", slice(0, 3)), ("test", slice(3, 5))):
        theirs = torchvision.datasets.SVHN(folder, split=split)
        assert torch.equal(dataset.inputs[ours], torch.from_numpy(theirs.data))
        assert dataset.targets[ours].tolist() == theirs.labels.tolist()


GOOD = images(2, 0)
LABELS = np.array([[1], [2]], np.uint8)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"y": LABELS}, ": X must be an array of bytes of shape 32 x 32 x 3 x samples"),
        ({"X": GOOD.astype(float), "y": LABELS}, ": X must be an array of bytes of shape 32 x 32 x 3 x samples"),
        ({"X": GOOD[:28], "y": LABELS}, ": X must be an array of bytes of shape 32 x 32 x 3 x samples"),
        ({"X": "text", "y": LABELS}, ": X must be an array of bytes of shape 32 x 32 x 3 x samples"),
        ({"X": GOOD}, ": y must be an array of integers of shape 2 x 1, one for each image of X"),
        ({"X": GOOD, "y": LABELS[:1]}, ": y must be an array of integers of shape 2 x 1, one for each image of X"),
        ({"X": GOOD, "y": "ab"}, ": y must be an array of integers of shape 2 x 1, one for each image of X"),
        ({"X": GOOD[..., :0], "y": LABELS[:0]}, " has no images"),
        ({"X": GOOD, "y": LABELS - 1}, ": label 0 is 0; labels are 1 to 10"),
        ({"X": GOOD, "y": LABELS + 9}, ": label 1 is 11; labels are 1 to 10"),
        (b"", " cannot be read as a MATLAB file: "),
        (b"no MATLAB file" * 100, " cannot be read as a MATLAB file: "),
        (-200, " cannot be read as a MATLAB file: "),
    ],
)
def test_a_bad_file_is_refused_by_name(tmp_path: Path, content: object, complaint: str) -> None:
    path = write(tmp_path) / "train_32x32.mat"
    match content:
        case dict():
            savemat(path, content)
        case bytes():
            path.write_bytes(content)
        case int():  # so many bytes are missing at the end
            path.write_bytes(path.read_bytes()[:content])
    with pytest.raises(InputError) as refusal:
        svhn(tmp_path).load()
    assert str(refusal.value).startswith(f"{path}{complaint}")
    assert "\n" not in str(refusal.value)


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
    address = serve(folder)
    listed = {
        split: [f"{address}{split}_32x32.mat", f"{split}_32x32.mat", hashlib.md5(path.read_bytes()).hexdigest()]
        for split in ("train", "test")
        for path in [folder / f"{split}_32x32.mat"]
    }
    monkeypatch.setattr(torchvision.datasets.SVHN, "split_list", listed)
    assert svhn(tmp_path / "data", download=True).load().targets.tolist() == [1, 0, 9, 0, 2]
