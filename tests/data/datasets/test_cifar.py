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


def publish(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let torchvision take these files for the published ones: it knows their checksums."""
    import torchvision

    theirs = torchvision.datasets.CIFAR100 if "100" in folder.name else torchvision.datasets.CIFAR10

    def listed(files: list[list[str]]) -> list[list[str]]:
        return [[file, hashlib.md5((folder / file).read_bytes()).hexdigest()] for file, _ in files]

    names = theirs.meta["filename"]
    monkeypatch.setattr(theirs, "train_list", listed(theirs.train_list))
    monkeypatch.setattr(theirs, "test_list", listed(theirs.test_list))
    monkeypatch.setattr(theirs, "meta", theirs.meta | {"md5": listed([[names, ""]])[0][1]})


def cifar(config_class: type[Cifar], root: Path, download: bool = False) -> Cifar:
    return config_class(data_dir=str(root), download=download, mean=(0.0,) * 3, std=(1.0,) * 3, augmentation=None)


def test_the_batches_of_cifar10_are_read_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(monkeypatch, write10(tmp_path))
    dataset = cifar(Cifar10, tmp_path).load()
    assert dataset.inputs.shape == (11, 3, 32, 32)
    assert dataset.inputs.dtype == torch.uint8
    assert dataset.inputs[:, 0, 5, 6].tolist() == [10, 11, 20, 21, 30, 31, 40, 41, 50, 51, 200]
    assert dataset.inputs[0, 1:, 5, 6].tolist() == [6, 5]
    assert dataset.targets.tolist() == [1, 9, 2, 9, 3, 9, 4, 9, 5, 9, 0]
    assert (dataset.train_size, dataset.class_names) == (10, tuple(NAMES[10]))
    assert dataset.encoding(dataset.inputs[10])[0, 0, 0].item() == pytest.approx(200 / 255)


def test_cifar100_has_the_fine_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(monkeypatch, write100(tmp_path))
    dataset = cifar(Cifar100, tmp_path).load()
    assert (dataset.spec.classes, len(dataset.class_names)) == (100, 100)
    assert dataset.targets.tolist() == [99, 0, 50, 98]
    assert dataset.inputs[:, 0, 0, 0].tolist() == [7, 8, 9, 7]


def test_colours_are_normalised_each_by_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(monkeypatch, write10(tmp_path))
    config = Cifar10(
        data_dir=str(tmp_path), download=False, mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 1.0), augmentation=None
    )
    dataset = config.load()
    pixel = dataset.encoding(dataset.inputs[:1])[0, :, 5, 6].tolist()
    assert pixel == pytest.approx([(10 / 255 - 0.1) / 0.5, (6 / 255 - 0.2) / 0.25, 5 / 255 - 0.3])


class Command:
    """What an attacker's pickle would run."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, (f"open({str(self.marker)!r}, 'w')",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("file", ["data_batch_2", "batches.meta"])
def test_code_in_a_pickle_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int, file: str) -> None:
    folder = write10(tmp_path)
    publish(monkeypatch, folder)
    (folder / file).write_bytes(pickle.dumps({"data": Command(tmp_path / "marker")}, protocol=protocol))
    with pytest.raises(InputError, match="cannot be read as the published files of cifar10"):
        cifar(Cifar10, tmp_path).load()
    assert not (tmp_path / "marker").exists()


def test_other_files_than_the_published_are_refused_in_one_line(tmp_path: Path) -> None:
    folder = write10(tmp_path)
    with pytest.raises(InputError) as refusal:
        cifar(Cifar10, tmp_path).load()
    message = str(refusal.value)
    assert message.startswith(f"{folder} cannot be read as the published files of cifar10 (")
    assert message.endswith(f"delete it and run `fedrun-data cifar10 --data-dir {tmp_path}`") and "\n" not in message


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
    import torchvision

    theirs = torchvision.datasets.CIFAR10
    monkeypatch.setattr(theirs, "url", serve(archive.parent) + archive.name)
    monkeypatch.setattr(theirs, "tgz_md5", hashlib.md5(archive.read_bytes()).hexdigest())
    publish(monkeypatch, source)
    assert cifar(Cifar10, tmp_path / "data", download=True).load().targets.tolist()[-1] == 0
    monkeypatch.setattr(theirs, "tgz_md5", "0" * 32)
    with pytest.raises(InputError, match="cifar-10-python.tar.gz: its md5 is "):
        cifar(Cifar10, tmp_path / "other", download=True).load()
    found = sorted(path.name for path in (tmp_path / "data/cifar-10-batches-py").iterdir())
    assert found == sorted(path.name for path in source.iterdir())
