from __future__ import annotations

import gzip
import hashlib
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fedrun.data.datasets.mnist import EMNIST_CLASSES, Emnist
from fedrun.system.errors import InputError

ROWS = [[row] * 28 for row in range(28)]
"""An upright image whose row r has grey r; the files have it transposed."""


def idx(values: torch.Tensor) -> bytes:
    header = struct.pack(f">{1 + values.ndim}I", 0x0800 + values.ndim, *values.shape)
    return header + bytes(values.flatten().tolist())


def files(split: str, train: list[int], test: list[int]) -> dict[str, bytes]:
    """The four files; image i of a split is the upright one above with i added to the top left pixel."""
    found = {}
    for name, labels in (("train", train), ("test", test)):
        images = torch.tensor([ROWS] * len(labels), dtype=torch.uint8)
        images[:, 0, 0] += torch.arange(len(labels), dtype=torch.uint8)
        found[f"emnist-{split}-{name}-images-idx3-ubyte"] = idx(images.transpose(1, 2))
        found[f"emnist-{split}-{name}-labels-idx1-ubyte"] = idx(torch.tensor(labels, dtype=torch.uint8))
    return found


def write(root: Path, split: str, train: list[int], test: list[int]) -> Path:
    folder = root / "EMNIST/raw"
    folder.mkdir(parents=True)
    for name, content in files(split, train, test).items():
        (folder / name).write_bytes(content)
    return folder


def emnist(root: Path, split: str = "letters", **changes: object) -> Emnist:
    settings = {"data_dir": str(root), "download": False, "mean": 0.0, "std": 1.0, "first_classes": None}
    return Emnist(split=split, **(settings | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(("split", "classes"), [("byclass", 62), ("balanced", 47), ("letters", 26), ("digits", 10)])
def test_classes_and_order_are_those_of_torchvision(tmp_path: Path, split: str, classes: int) -> None:
    import torchvision

    first = 1 if split == "letters" else 0
    write(tmp_path, split, [first, classes - 1 + first, first], [first + 1])
    dataset = emnist(tmp_path, split).load()
    assert dataset.spec.classes == len(dataset.class_names) == classes
    assert dataset.targets.tolist() == [0, classes - 1, 0, 1]
    assert dataset.train_size == 3
    theirs = torchvision.datasets.EMNIST(tmp_path, split=split, train=True)
    assert torch.equal(dataset.inputs[:3, 0], theirs.data.transpose(1, 2))
    assert [name for name in theirs.classes if name != "N/A"] == list(EMNIST_CLASSES[split]) == [*dataset.class_names]


def test_images_are_upright(tmp_path: Path) -> None:
    write(tmp_path, "letters", [1, 2], [3])
    inputs = emnist(tmp_path).load().inputs
    assert inputs.shape == (3, 1, 28, 28)
    assert inputs[1, 0].tolist() == [[1] + [0] * 27, *ROWS[1:]]


def test_the_first_classes_alone(tmp_path: Path) -> None:
    write(tmp_path, "letters", [1, 11, 10, 26, 2], [12, 3])
    config = emnist(tmp_path, first_classes=10)
    dataset = config.load()
    assert config.spec == dataset.spec
    assert dataset.class_names == tuple("abcdefghij")
    assert dataset.targets.tolist() == [0, 9, 1, 2]
    assert dataset.inputs[:, 0, 0, 0].tolist() == [0, 2, 4, 1]
    assert dataset.train_size == 3


def test_normalisation_by_the_training_pixels(tmp_path: Path) -> None:
    write(tmp_path, "letters", [1, 2, 20], [3])
    dataset = emnist(tmp_path, mean=None, std=None, first_classes=10).load()
    inputs = dataset.encoding(dataset.inputs[:2])
    assert inputs.mean().item() == pytest.approx(0, abs=1e-6)
    assert inputs.std(correction=0).item() == pytest.approx(1, abs=1e-6)
    pixels = dataset.inputs[:2].double() / 255
    std_only = emnist(tmp_path, std=None, first_classes=10).load().encoding(dataset.inputs[:2])
    torch.testing.assert_close(std_only.double(), pixels / pixels.std(correction=0), rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("split", "train", "complaint"),
    [
        ("letters", [1, 0], "emnist-letters-train-labels-idx1-ubyte: sample 1 has label 0; labels are 1 to 26"),
        ("letters", [27], "emnist-letters-train-labels-idx1-ubyte: sample 0 has label 27; labels are 1 to 26"),
        ("balanced", [47], "emnist-balanced-train-labels-idx1-ubyte: sample 0 has label 47; labels are 0 to 46"),
    ],
)
def test_labels_out_of_range_are_refused(tmp_path: Path, split: str, train: list[int], complaint: str) -> None:
    write(tmp_path, split, train, [1])
    with pytest.raises(InputError) as refusal:
        emnist(tmp_path, split).load()
    assert str(refusal.value) == f"{tmp_path}/EMNIST/raw/{complaint}"


def test_another_selection_is_missing(tmp_path: Path) -> None:
    folder = write(tmp_path, "letters", [1], [1])
    with pytest.raises(InputError) as refusal:
        emnist(tmp_path, "digits").load()
    message = str(refusal.value)
    assert message.startswith(f"{folder} lacks emnist-digits-train-images-idx3-ubyte[.gz], ")
    assert f"run `fedrun-data emnist --data-dir {tmp_path}`" in message


def test_more_classes_than_there_are_is_refused_before_reading(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="^dataset.first_classes=27: dataset.split=letters has 26 classes$"):
        _ = emnist(tmp_path, first_classes=27).spec
    write(tmp_path, "letters", [1], [20])
    with pytest.raises(InputError, match="^dataset.first_classes=10 leaves no sample of "):
        emnist(tmp_path, first_classes=10).load()


def test_the_archive_is_downloaded_and_unpacked(
    tmp_path: Path, serve: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torchvision

    (tmp_path / "served").mkdir()
    archive = tmp_path / "served/gzip.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for split in ("letters", "digits"):
            for name, content in files(split, [1, 2], [3]).items():
                packed.writestr(f"gzip/{name}.gz", gzip.compress(content))
    monkeypatch.setattr(torchvision.datasets.EMNIST, "url", serve(archive.parent) + archive.name)
    monkeypatch.setattr(torchvision.datasets.EMNIST, "md5", hashlib.md5(archive.read_bytes()).hexdigest())
    assert emnist(tmp_path, download=True).load().targets.tolist() == [0, 1, 2]
    here = archive.rename(tmp_path / "gzip.zip")
    assert emnist(tmp_path, "digits", download=True).load().targets.tolist() == [1, 2, 3]  # came with it
    here.rename(archive)
    (tmp_path / "EMNIST/raw/emnist-digits-test-labels-idx1-ubyte.gz").unlink()
    assert emnist(tmp_path, "digits", download=True).load().targets.tolist() == [1, 2, 3]
    assert sorted({path.suffix for path in (tmp_path / "EMNIST/raw").iterdir()}) == [".gz"]
