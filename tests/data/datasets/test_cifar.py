from __future__ import annotations

import hashlib
import pickle
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision

from fedrun.data.datasets.cifar import Cifar, Cifar10, Cifar100
from fedrun.system.errors import InputError

NAMES = {10: [f"name{c}" for c in range(10)], 100: [f"name{c}" for c in range(100)]}


def python2(images: np.ndarray, labels: list[int], key: str) -> bytes:
    """``{"data": images, key: labels}`` as Python 2 pickles it (protocol 2), which is how CIFAR is published."""

    def text(content: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(content)) + content

    integers = b"".join(b"K" + bytes([label]) for label in labels)
    dtype = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R(K\x03" + text(b"|") + b"NNN" + b"J\xff\xff\xff\xff" * 2
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
        b"(K\x01K" + bytes([len(images)]) + b"M\x00\x0c\x86" + dtype + b"K\x00tb\x89" + text(images.tobytes()) + b"tb"
    )
    return b"\x80\x02}(" + text(b"data") + array + text(key.encode()) + b"](" + integers + b"eu."


def images(count: int, first: int) -> np.ndarray:
    """Row i: red ``first + i``, green ramps with the column, blue with the row of the image."""
    red = np.arange(first, first + count, dtype=np.uint8)[:, None].repeat(1024, 1)
    green, blue = np.tile(np.arange(32, dtype=np.uint8), 32), np.arange(32, dtype=np.uint8).repeat(32)
    return np.concatenate([red, np.tile(green, (count, 1)), np.tile(blue, (count, 1))], axis=1)


def write10(root: Path) -> Path:
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for number in range(1, 6):
        content = python2(images(2, 10 * number), [number, 9], "labels")
        (folder / f"data_batch_{number}").write_bytes(content)
    (folder / "test_batch").write_bytes(python2(images(1, 200), [0], "labels"))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": NAMES[10]}, protocol=2))
    return folder


def write100(root: Path) -> Path:
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    for name, labels in (("train", [99, 0, 50]), ("test", [98])):
        content = {"data": images(len(labels), 7), "fine_labels": labels, "coarse_labels": [0] * len(labels)}
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": NAMES[100]}, protocol=2))
    return folder


def cifar(recipe: type[Cifar], root: Path, download: bool = False) -> Cifar:
    return recipe(data_dir=str(root), download=download, mean=(0.0,) * 3, std=(1.0,) * 3, augmentation=None)


def test_the_batches_of_cifar10_are_read_in_order(tmp_path: Path) -> None:
    write10(tmp_path)
    dataset = cifar(Cifar10, tmp_path).load()
    assert dataset.inputs.shape == (11, 3, 32, 32)
    assert dataset.inputs.dtype == torch.uint8
    assert dataset.inputs[:, 0, 5, 6].tolist() == [10, 11, 20, 21, 30, 31, 40, 41, 50, 51, 200]
    assert dataset.inputs[0, 1:, 5, 6].tolist() == [6, 5]
    assert dataset.targets.tolist() == [1, 9, 2, 9, 3, 9, 4, 9, 5, 9, 0]
    assert (dataset.train_size, dataset.class_names) == (10, tuple(NAMES[10]))
    assert dataset.encoding(dataset.inputs[10])[0, 0, 0].item() == pytest.approx(200 / 255)


def test_cifar100_has_the_fine_labels(tmp_path: Path) -> None:
    write100(tmp_path)
    dataset = cifar(Cifar100, tmp_path).load()
    assert (dataset.spec.classes, len(dataset.class_names)) == (100, 100)
    assert dataset.targets.tolist() == [99, 0, 50, 98]
    assert dataset.inputs[:, 0, 0, 0].tolist() == [7, 8, 9, 7]


@pytest.mark.parametrize(("recipe", "write"), [(Cifar10, write10), (Cifar100, write100)])
def test_order_and_values_are_those_of_torchvision(
    tmp_path: Path,
    recipe: type[Cifar],
    write,
    monkeypatch: pytest.MonkeyPatch,  # type: ignore[no-untyped-def]
) -> None:
    write(tmp_path)
    torchvision_class = getattr(torchvision.datasets, recipe.__name__.upper())
    monkeypatch.setattr(torchvision_class, "_check_integrity", lambda _: True)
    monkeypatch.setattr(torchvision_class, "_load_meta", lambda _: None)
    dataset = cifar(recipe, tmp_path).load()
    for train, ours in ((True, slice(0, dataset.train_size)), (False, slice(dataset.train_size, None))):
        theirs = torchvision_class(tmp_path, train=train)
        assert torch.equal(dataset.inputs[ours].permute(0, 2, 3, 1), torch.from_numpy(theirs.data))
        assert dataset.targets[ours].tolist() == theirs.targets


def test_colours_are_normalised_each_by_its_own(tmp_path: Path) -> None:
    write10(tmp_path)
    recipe = Cifar10(
        data_dir=str(tmp_path), download=False, mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 1.0), augmentation=None
    )
    dataset = recipe.load()
    pixel = dataset.encoding(dataset.inputs[:1])[0, :, 5, 6].tolist()
    assert pixel == pytest.approx([(10 / 255 - 0.1) / 0.5, (6 / 255 - 0.2) / 0.25, 5 / 255 - 0.3])


class Command:
    """What an attacker's pickle would run."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, (f"open({str(self.marker)!r}, 'w')",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_code_in_a_pickle_is_not_run(tmp_path: Path, protocol: int) -> None:
    path = write10(tmp_path) / "data_batch_2"
    path.write_bytes(pickle.dumps({"data": Command(tmp_path / "marker")}, protocol=protocol))
    with pytest.raises(InputError, match=r"data_batch_2 is not a pickle of plain data and arrays: it asks for .*exec"):
        cifar(Cifar10, tmp_path).load()
    assert not (tmp_path / "marker").exists()


GOOD = images(2, 0)


def dumped(**content: object) -> bytes:
    return pickle.dumps(content, protocol=2)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", " is not a pickle of plain data and arrays: Ran out of input"),
        (python2(GOOD, [1, 2], "labels")[:-900], " is not a pickle of plain data and arrays: "),
        (b"\xff\xfetext", " is not a pickle of plain data and arrays: "),
        (pickle.dumps([1]), " is a pickled list instead of a dictionary"),
        (dumped(labels=[1, 2]), ": data must be an array of bytes with 3072 columns"),
        (dumped(data=[1, 2], labels=[1, 2]), ": data must be an array of bytes with 3072 columns"),
        (dumped(data=GOOD[:, :784], labels=[1, 2]), ": data must be an array of bytes with 3072 columns"),
        (dumped(data=GOOD.astype(np.float32), labels=[1, 2]), ": data must be an array of bytes with 3072 columns"),
        (python2(GOOD[:0], [], "labels"), " has no images"),
        (dumped(data=GOOD), ": labels must be a list of integers"),
        (dumped(data=GOOD, labels=[1, 2.0]), ": labels must be a list of integers"),
        (dumped(data=GOOD, labels=[1]), " has 1 labels for 2 images"),
        (dumped(data=GOOD, labels=[1, 10]), ": label 1 is 10; labels are 0 to 9"),
        (dumped(data=GOOD, labels=[-1, 1]), ": label 0 is -1; labels are 0 to 9"),
    ],
)
def test_a_bad_batch_is_refused_by_name(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = write10(tmp_path) / "data_batch_3"
    path.write_bytes(content)
    with pytest.raises(InputError) as refusal:
        cifar(Cifar10, tmp_path).load()
    assert str(refusal.value).startswith(f"{path}{complaint}")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("names", [{}, {"label_names": NAMES[10][:9]}, {"label_names": [1] * 10}])
def test_bad_names_are_refused(tmp_path: Path, names: dict[str, object]) -> None:
    (write10(tmp_path) / "batches.meta").write_bytes(pickle.dumps(names))
    with pytest.raises(InputError, match="batches.meta: label_names must be 10 names$"):
        cifar(Cifar10, tmp_path).load()


def test_a_missing_batch_is_named_with_the_way_to_get_it(tmp_path: Path) -> None:
    folder = write10(tmp_path)
    (folder / "data_batch_4").unlink()
    with pytest.raises(InputError) as refusal:
        cifar(Cifar10, tmp_path).load()
    assert str(refusal.value).startswith(
        f"{folder} lacks data_batch_4: set dataset.download=true, or run `fedrun-data cifar10 --data-dir {tmp_path}`"
    )


def test_the_archive_is_downloaded(
    tmp_path: Path, serve: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write10(tmp_path / "source")
    (tmp_path / "served").mkdir()
    archive = tmp_path / "served/cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(source, source.name)
    theirs = torchvision.datasets.CIFAR10
    monkeypatch.setattr(theirs, "url", serve(archive.parent) + archive.name)
    monkeypatch.setattr(theirs, "tgz_md5", hashlib.md5(archive.read_bytes()).hexdigest())
    assert cifar(Cifar10, tmp_path / "data", download=True).load().targets.tolist()[-1] == 0
    monkeypatch.setattr(theirs, "tgz_md5", "0" * 32)
    with pytest.raises(InputError, match="cifar-10-python.tar.gz: its md5 is "):
        cifar(Cifar10, tmp_path / "other", download=True).load()
    found = sorted(path.name for path in (tmp_path / "data/cifar-10-batches-py").iterdir())
    assert found == sorted(path.name for path in source.iterdir())
