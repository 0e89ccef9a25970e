from __future__ import annotations

import gzip
import hashlib
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fedrun.data.datasets.idx import read_idx
from fedrun.data.datasets.mnist import FashionMnist, IdxImages, Mnist
from fedrun.system.errors import InputError

TRAIN_LABELS, TEST_LABELS = bytes([5, 0, 9]), bytes([3, 7])


def images(count: int, first: int) -> bytes:
    """An IDX file of images; every pixel of image i is ``first + i``."""
    return struct.pack(">IIII", 2051, count, 28, 28) + b"".join(bytes([first + i]) * 784 for i in range(count))


def labels(values: bytes) -> bytes:
    return struct.pack(">II", 2049, len(values)) + values


FILES = {
    "train-images-idx3-ubyte": images(3, first=0),
    "train-labels-idx1-ubyte": labels(TRAIN_LABELS),
    "t10k-images-idx3-ubyte": images(2, first=100),
    "t10k-labels-idx1-ubyte": labels(TEST_LABELS),
}


def write(root: Path, name: str = "MNIST", compressed: bool = True) -> Path:
    """The four files under ``root/name/raw``."""
    folder = root / name / "raw"
    folder.mkdir(parents=True)
    for file, content in FILES.items():
        if compressed:
            (folder / f"{file}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / file).write_bytes(content)
    return folder


def mnist(root: Path, download: bool = False, mean: float = 0.0, std: float = 1.0) -> Mnist:
    return Mnist(data_dir=str(root), download=download, mean=mean, std=std)


@pytest.mark.parametrize("compressed", [True, False])
def test_files_are_read_as_published_or_unpacked_and_left_alone(tmp_path: Path, compressed: bool) -> None:
    folder = write(tmp_path, compressed=compressed)
    before = sorted(folder.iterdir())
    dataset = mnist(tmp_path, mean=0.5, std=0.25).load()
    assert dataset.inputs.shape == (5, 1, 28, 28)
    assert dataset.inputs[:, 0, 13, 7].tolist() == [0, 1, 2, 100, 101]
    assert dataset.targets.tolist() == [5, 0, 9, 3, 7]
    assert dataset.train_size == 3
    assert dataset.encoding(dataset.inputs)[4, 0, 0, 0].item() == pytest.approx((101 / 255 - 0.5) / 0.25)
    assert sorted(folder.iterdir()) == before


def test_the_order_and_values_are_those_of_torchvision(tmp_path: Path) -> None:
    import torchvision

    write(tmp_path, "FashionMNIST", compressed=False)
    dataset = FashionMnist(data_dir=str(tmp_path), download=False, mean=0.0, std=1.0).load()
    for train, ours in ((True, slice(0, 3)), (False, slice(3, 5))):
        theirs = torchvision.datasets.FashionMNIST(tmp_path, train=train)
        assert torch.equal(dataset.inputs[ours, 0], theirs.data)
        assert torch.equal(dataset.targets[ours], theirs.targets)
        assert list(dataset.class_names) == theirs.classes


def test_the_fingerprint_follows_the_content(tmp_path: Path) -> None:
    write(tmp_path / "a", compressed=True)
    folder = write(tmp_path / "b", compressed=False)
    assert mnist(tmp_path / "a").load().fingerprint == mnist(tmp_path / "b").load().fingerprint
    (folder / "train-labels-idx1-ubyte").write_bytes(labels(bytes([5, 0, 8])))
    assert mnist(tmp_path / "a").load().fingerprint != mnist(tmp_path / "b").load().fingerprint


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("train-images-idx3-ubyte", labels(TRAIN_LABELS), "must begin with 2051"),
        ("train-labels-idx1-ubyte", images(3, 0), "must begin with 2049"),
        ("train-images-idx3-ubyte", b"", "must begin with 2051"),
        ("train-images-idx3-ubyte", images(3, 0)[:-1], "has 2367 bytes instead of the 2368"),
        ("train-images-idx3-ubyte", images(3, 0) + b"x", "has more bytes than the 2368"),
        ("train-images-idx3-ubyte", struct.pack(">IIII", 2051, 3, 8, 8) + bytes(192), "8x8 pixels instead of 28x28"),
        ("train-images-idx3-ubyte", images(0, 0), "has no images"),
        ("t10k-labels-idx1-ubyte", labels(bytes([1])), "has 1 labels for 2 images"),
        ("t10k-labels-idx1-ubyte", labels(bytes([1, 10])), "sample 1 has label 10; labels are 0 to 9"),
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, name: str, content: bytes, complaint: str) -> None:
    path = write(tmp_path, compressed=False) / name
    path.write_bytes(content)
    with pytest.raises(InputError) as refusal:
        mnist(tmp_path).load()
    assert str(path) in str(refusal.value)
    assert complaint in str(refusal.value)
    assert "\n" not in str(refusal.value)


def flipped(content: bytes) -> bytes:
    """Compressed content with one bit of its checksum changed."""
    packed = bytearray(gzip.compress(content))
    packed[-8] ^= 1
    return bytes(packed)


@pytest.mark.parametrize("damage", [lambda c: gzip.compress(c)[:-20], lambda c: c, flipped, lambda c: b""])
def test_a_damaged_gz_file_is_refused_by_name(tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    path = write(tmp_path) / "train-images-idx3-ubyte.gz"
    path.write_bytes(damage(FILES["train-images-idx3-ubyte"]))
    with pytest.raises(InputError, match="train-images-idx3-ubyte.gz") as refusal:
        mnist(tmp_path).load()
    assert "\n" not in str(refusal.value)


def test_missing_files_are_named_with_the_way_to_get_them(tmp_path: Path) -> None:
    folder = write(tmp_path)
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(InputError) as refusal:
        mnist(tmp_path).load()
    assert str(refusal.value) == (
        f"{folder} lacks t10k-labels-idx1-ubyte[.gz]: set dataset.download=true, or run `fedrun-data mnist --data-dir "
        f"{tmp_path}`, with --from FOLDER if a folder has the published files"
    )


@pytest.fixture
def mirror(tmp_path: Path, serve: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A local server of the four files that torchvision takes for MNIST's mirror; the folder it serves."""
    import torchvision

    folder = write(tmp_path / "served")
    names = [f"{name}.gz" for name in FILES]
    resources = [(name, hashlib.md5((folder / name).read_bytes()).hexdigest()) for name in names]
    monkeypatch.setattr(torchvision.datasets.MNIST, "mirrors", [serve(folder)])
    monkeypatch.setattr(torchvision.datasets.MNIST, "resources", resources)
    return folder


def test_missing_files_are_downloaded(tmp_path: Path, mirror: Path) -> None:
    dataset = mnist(tmp_path / "data", download=True).load()
    assert dataset.inputs[:, 0, 0, 0].tolist() == [0, 1, 2, 100, 101]
    found = sorted(path.name for path in (tmp_path / "data/MNIST/raw").iterdir())
    assert found == sorted(f"{name}.gz" for name in FILES)  # and nothing of the download is left
    for path in mirror.iterdir():
        path.unlink()
    assert mnist(tmp_path / "data", download=True).load().fingerprint == dataset.fingerprint  # no second download


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (Path.unlink, "t10k-labels-idx1-ubyte.gz: 404 File not found; without a connection, put the files {folder}/t"),
        (lambda path: path.write_bytes(b"not what was published"), "t10k-labels-idx1-ubyte.gz: its md5 is "),
    ],
)
def test_a_failed_download_puts_no_file_in_place(
    tmp_path: Path, mirror: Path, damage: Callable[[Path], object], complaint: str
) -> None:
    damage(mirror / "t10k-labels-idx1-ubyte.gz")
    folder = tmp_path / "data/MNIST/raw"
    with pytest.raises(InputError) as refusal:
        mnist(tmp_path / "data", download=True).load()
    message = str(refusal.value)
    assert complaint.format(folder=folder) in message
    assert "\n" not in message
    assert not folder.exists()


def test_constants_out_of_range_are_refused() -> None:
    with pytest.raises(InputError, match="std"):
        mnist(Path(), std=0.0)


def test_config_classes_share_their_keys() -> None:
    assert isinstance(mnist(Path()), IdxImages)
    assert mnist(Path("x")).folder == Path("x/MNIST/raw")


@pytest.mark.parametrize(
    ("header", "megabytes", "complaint"),
    [
        (struct.pack(">IIII", 2051, 4_000_000, 28, 28), 3_000, "4000000 samples by its header; allowed: up to 1000000"),
        (struct.pack(">IIII", 2051, 3, 28, 28), 50, "more bytes than the 2368 of its header's shape"),
        (struct.pack(">IIII", 2051, 3, 60_000, 28), 5, "images of 60000x28 pixels instead of 28x28"),
    ],
)
def test_no_more_is_unpacked_than_the_header_allows(
    tmp_path: Path, header: bytes, megabytes: int, complaint: str
) -> None:
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(header)
        for _ in range(min(megabytes, 50)):
            file.write(bytes(1_000_000))
    tracemalloc.start()
    with pytest.raises(InputError, match=complaint):
        read_idx(path, (28, 28))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000
