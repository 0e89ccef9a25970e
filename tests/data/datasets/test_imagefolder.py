from __future__ import annotations

import os
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fedrun.data.datasets import image_cache
from fedrun.data.datasets.imagefolder import ImageFolder
from fedrun.system.errors import InputError


def paint(path: Path, red: int, side: int = 4, mode: str = "RGB") -> None:
    """One image of a single colour, or of a single grey."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (side, side), (red, 20, 30) if mode == "RGB" else red).save(path)


def write(root: Path) -> Path:
    """Two training and one test image of class cat, one of each of class dog."""
    folder = root / "pets"
    paint(folder / "train/cat/b.png", 2)
    paint(folder / "train/cat/a.png", 1)
    paint(folder / "train/dog/a.png", 3)
    paint(folder / "test/cat/z.png", 4)
    paint(folder / "test/dog/c.png", 5)
    return folder


def pets(root: Path, **changes: object) -> ImageFolder:
    settings = {"cache_dir": None, "folder": "pets", "classes": 2, "size": 4, "test_share": None}
    colours = {"mean": (0.0,) * 3, "std": (1.0,) * 3, "augmentation": None}
    return ImageFolder(data_dir=str(root), **(settings | colours | changes))  # type: ignore[arg-type]


def test_images_are_ordered_by_class_and_name(tmp_path: Path) -> None:
    write(tmp_path)
    dataset = pets(tmp_path).load()
    assert dataset.inputs.shape == (5, 3, 4, 4)
    assert dataset.inputs[:, 0, 1, 2].tolist() == [1, 2, 3, 4, 5]
    assert dataset.inputs[0, 1:, 1, 2].tolist() == [20, 30]
    assert dataset.targets.tolist() == [0, 0, 1, 0, 1]
    assert (dataset.train_size, dataset.class_names) == (3, ("cat", "dog"))


def test_pixels_are_those_of_the_file(tmp_path: Path) -> None:
    folder = write(tmp_path)
    pixels = np.random.default_rng(0).integers(0, 256, (4, 4, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(folder / "train/cat/a.png")
    assert torch.equal(pets(tmp_path).load().inputs[0], torch.from_numpy(pixels).permute(2, 0, 1))


def test_other_sizes_and_kinds_of_images_are_converted(tmp_path: Path) -> None:
    folder = write(tmp_path)
    halves = np.zeros((8, 8, 3), np.uint8)
    halves[:, 4:] = 200
    Image.fromarray(halves).save(folder / "train/cat/a.png")
    paint(folder / "train/cat/b.png", 77, mode="L")
    inputs = pets(tmp_path).load().inputs
    row = inputs[0, 0, 2].tolist()
    assert row[0] == 0 and row[3] == 200 and 0 < row[1] < 100 < row[2] < 200  # averages with antialiasing
    assert inputs[1].unique().tolist() == [77]


def test_a_class_larger_than_a_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)
    whole = pets(tmp_path, cache_dir=str(tmp_path / "whole")).load()
    monkeypatch.setattr(image_cache, "PIECE", 1)
    pieces = pets(tmp_path, cache_dir=str(tmp_path / "pieces")).load()
    assert torch.equal(pieces.inputs, whole.inputs) and torch.equal(pieces.targets, whole.targets)
    assert pieces.train_size == whole.train_size


def test_images_are_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path)
    first = pets(tmp_path).load()
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == [".fedrun-cache"]
    monkeypatch.setattr(image_cache, "resized", lambda *_: pytest.fail("decoded again"))
    again = pets(tmp_path).load()
    assert torch.equal(again.inputs, first.inputs) and again.fingerprint == first.fingerprint


@pytest.mark.parametrize("change", ["content", "name", "class", "size"])
def test_a_change_makes_a_new_cache(tmp_path: Path, change: str) -> None:
    folder = write(tmp_path)
    before = pets(tmp_path).load().fingerprint
    size = 4
    match change:
        case "content":
            paint(folder / "train/cat/a.png", 99)
            os.utime(folder / "train/cat/a.png", ns=(0, 0))
        case "name":
            (folder / "train/cat/a.png").rename(folder / "train/cat/c.png")
        case "class":
            (folder / "train/cat/a.png").rename(folder / "train/dog/b.png")
        case "size":
            size = 5
    assert pets(tmp_path, size=size).load().fingerprint != before
    assert len(list((folder / ".fedrun-cache").iterdir())) == 2


def test_images_that_change_while_they_are_read_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path)
    resized = image_cache.resized

    def touching(path: Path, size: int) -> np.ndarray:
        os.utime(path, ns=(0, 0))
        return resized(path, size)

    monkeypatch.setattr(image_cache, "resized", touching)
    with pytest.raises(InputError, match=f"^the images in {folder} changed while they were read; run again$"):
        pets(tmp_path).load()
    assert list(folder.glob(".fedrun-cache/*")) == []


def test_a_share_of_each_class_is_for_the_test(tmp_path: Path) -> None:
    for name, first, count in (("cat", 0, 7), ("dog", 100, 3), ("eel", 200, 1)):
        for number in range(count):
            paint(tmp_path / f"pets/{name}/{number}.png", first + number)
    dataset = pets(tmp_path, classes=3, test_share=0.4).load()
    # floor((n + 1) 0.4) exceeds floor(n 0.4) for n = 2 and 4 of 0 .. 6, for n = 2 of 0 .. 2
    assert dataset.inputs[:, 0, 0, 0].tolist() == [0, 1, 3, 5, 6, 100, 101, 200, 2, 4, 102]
    assert dataset.targets.tolist() == [0] * 5 + [1] * 2 + [2] + [0, 0, 1]
    assert dataset.train_size == 8
    with pytest.raises(InputError, match=r"^dataset\..*=0.1 leaves no test image of .*; allowed: a larger share$"):
        pets(tmp_path, classes=3, test_share=0.1).load()


def test_what_is_hidden_or_no_image_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write(tmp_path)
    (folder / "train/.hidden").mkdir()
    (folder / "train/cat/.DS_Store").write_bytes(b"")
    (folder / "train/cat/notes.txt").write_bytes(b"")
    (folder / "train/readme.md").write_bytes(b"")
    assert len(pets(tmp_path).load().targets) == 5
    assert "train/cat: 1 entries are skipped: their names are not those of images" in caplog.text


def bad(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def cut(folder: Path) -> None:
    path = folder / "train/cat/a.jpg"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:1000])


def chunk(kind: bytes, content: bytes) -> bytes:
    """A chunk of a PNG file."""
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(side: int, bits: int, pixels: bytes) -> bytes:
    """A square RGB image."""
    header = struct.pack(">IIBBBBB", side, side, bits, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


DEEP = zlib.compress(bytes([0, 1, 128, 2, 0, 3, 255]))
"""A row without a filter: one pixel of 16 bits per colour."""

REFUSED: list[tuple[Callable[[Path], object], str]] = [
    (shutil.rmtree, "/train: no such folder, or it cannot be read; "),
    (lambda folder: shutil.rmtree(folder / "test"), "/test: no such folder, or it cannot be read; "),
    (lambda folder: shutil.rmtree(folder / "train/dog"), "/train has 1 class folders; allowed: at least 2"),
    (lambda folder: (folder / "train/eel").mkdir(), "/train has 3 class folders; set dataset.classes=3"),
    (lambda folder: paint(folder / "test/eel/a.png", 1), "/test has the class 'eel', which is not in "),
    (lambda folder: (folder / "train/dog/a.png").unlink(), "/train/dog has no images; their names end in .bmp, "),
    (lambda folder: (folder / "train/dog/a.png").rename(folder / "train/dog/a.txt"), "/train/dog has no images; "),
    (bad("train/cat/a.png", b""), "/train/cat/a.png cannot be decoded (not an image)"),
    (bad("train/cat/x.jpg", b"text"), "/train/cat/x.jpg cannot be decoded (not an image)"),
    (cut, "/train/cat/a.jpg cannot be decoded (image file is truncated"),
    (lambda folder: (folder / "train/cat/x.png").mkdir(), "/train/cat/x.png cannot be read: it is not a regular file"),
    (lambda folder: paint(folder / "train/cat/x.png", 60_000, mode="I;16"), "x.png cannot be decoded (its pixels are "),
    (bad("train/cat/x.png", png(1, 16, DEEP)), "/x.png cannot be decoded (its pixels are of type RGB with 16 bits"),
    (bad("train/cat/x.ppm", b"P6 1 1 65535\n" + bytes(6)), "/x.ppm cannot be decoded (its pixels are of type RGB with"),
    (lambda folder: os.mkdir(os.fsencode(folder / "train") + b"/\xff"), "/train has an entry named '\\udcff'; names "),
    (lambda folder: os.mkdir(folder / "train/a\nb"), "/train has an entry named 'a\\nb'; names must be printable"),
]


@pytest.mark.parametrize(("damage", "complaint"), REFUSED, ids=[complaint for _, complaint in REFUSED])
def test_bad_folders_and_images_are_refused(tmp_path: Path, damage: Callable[[Path], object], complaint: str) -> None:
    folder = write(tmp_path)
    damage(folder)
    with pytest.raises(InputError) as refusal:
        pets(tmp_path).load()
    assert f"{folder}" in str(refusal.value)
    assert complaint in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert list(folder.glob(".fedrun-cache/*")) == []


def test_a_share_of_a_folder_with_a_split_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path)
    with pytest.raises(InputError, match="pets has its own train and test; set dataset.test_share=null$"):
        pets(tmp_path, test_share=0.5).load()
    paint(folder / "val/cat/v.png", 6)
    with pytest.raises(InputError, match="pets has its own train and test; set dataset.test_share=null$"):
        pets(tmp_path, classes=3, test_share=0.5).load()
    with pytest.raises(InputError, match="none cannot be read: No such file or directory$"):
        pets(tmp_path, folder="none", test_share=0.5).load()


def test_the_cache_of_an_absolute_folder_lies_in_the_cache_folder(tmp_path: Path) -> None:
    """Not in the folder itself, where it would be a class the next time."""
    folder, cache = write(tmp_path), tmp_path / "cache"
    before = sorted(folder.rglob("*"))
    for _ in range(2):
        assert len(pets(tmp_path, folder=str(folder), cache_dir=str(cache)).load().class_names) == 2
    assert sorted(folder.rglob("*")) == before
    assert len(list(cache.iterdir())) == 1


@pytest.mark.parametrize(("side", "complaint"), [(9500, "it has 9500x9500 pixels"), (14000, "more than 178956970")])
def test_very_large_images_are_rejected_in_one_line(
    tmp_path: Path, recwarn: pytest.WarningsRecorder, side: int, complaint: str
) -> None:
    """Their headers are enough: the files have no pixels, and Pillow's own warning is not shown."""
    folder = write(tmp_path)
    (folder / "train/cat/a.png").write_bytes(png(side, 8, b""))
    with pytest.raises(InputError, match=complaint):
        pets(tmp_path).load()
    assert not recwarn.list
