from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from fedrun.data.datasets.tinyimagenet import TinyImageNet
from fedrun.system.errors import InputError

NAMES = [f"n{number:08d}" for number in range(200)]


def paint(path: Path, red: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (64, 64), (red, 0, 0)).save(path, format="PNG")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """One training image of each of the 200 classes; three validation images of the classes 199, 5 and 5."""
    folder = tmp_path / "tiny-imagenet-200"
    for label, name in enumerate(NAMES):
        paint(folder / f"train/{name}/images/{name}_0.JPEG", label)
        (folder / f"train/{name}/{name}_boxes.txt").write_text(f"{name}_0.JPEG\t0\t0\t63\t63\n")
    for number, red in enumerate((201, 202, 203)):
        paint(folder / f"val/images/val_{number}.JPEG", red)
    lines = [f"val_{number}.JPEG\t{NAMES[label]}\t0\t32\t44\t62" for number, label in enumerate((199, 5, 5))]
    (folder / "val/val_annotations.txt").write_text("\n".join(lines) + "\n")
    return folder


def tiny(source: Path, size: int) -> TinyImageNet:
    colours = {"mean": (0.5,) * 3, "std": (0.5,) * 3, "augmentation": None}
    return TinyImageNet(data_dir=str(source.parent), cache_dir=None, size=size, **colours)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [32, 64])
def test_validation_images_get_their_class_from_the_annotations(source: Path, size: int) -> None:
    dataset = tiny(source, size).load()
    assert dataset.inputs.shape == (203, 3, size, size)
    assert dataset.targets.tolist() == [*range(200), 5, 5, 199]
    assert dataset.inputs[:, 0, 7, 9].tolist() == [*range(200), 202, 203, 201]
    assert (dataset.train_size, dataset.class_names) == (200, tuple(NAMES))
    assert dataset.encoding(dataset.inputs[:1])[0, :, 0, 0].tolist() == [-1, -1, -1]


def annotations(change: Callable[[list[str]], list[str]]) -> Callable[[Path], object]:
    def damage(source: Path) -> None:
        path = source / "val/val_annotations.txt"
        path.write_text("\n".join(change(path.read_text().splitlines())))

    return damage


REFUSED: list[tuple[Callable[[Path], object], str]] = [
    (
        lambda source: (source / "train").rename(source / "other"),
        "train: no such folder, or it cannot be read; run `fedrun-data tinyimagenet --",
    ),
    (
        lambda source: (source / "val/images").rename(source / "other"),
        "val/images: no such folder, or it cannot be read; ",
    ),
    (
        lambda source: (source / f"train/{NAMES[7]}").rename(source / "other"),
        "train has 199 class folders instead of 200",
    ),
    (
        lambda source: (source / f"train/{NAMES[7]}/images").rename(source / "other"),
        f"train/{NAMES[7]}/images cannot be read: No such file or directory",
    ),
    (lambda source: (source / "val/val_annotations.txt").unlink(), "val/val_annotations.txt cannot be read: No such"),
    (
        lambda source: (source / "val/val_annotations.txt").write_bytes(b"val_0.JPEG\t\xff"),
        "val/val_annotations.txt cannot be read as text in UTF-8: ",
    ),
    (
        annotations(lambda lines: [*lines, ""][::-1]),
        "val_annotations.txt: line 1 must be an image's name, its class and",
    ),
    (annotations(lambda lines: lines[:2]), "val_annotations.txt has no class for 'val_2.JPEG' in "),
    (annotations(lambda lines: [*lines, lines[0]]), "line 4 names 'val_0.JPEG', which is not in "),
    (annotations(lambda lines: ["x.JPEG\t" + NAMES[0]]), "line 1 names 'x.JPEG', which is not in "),
    (annotations(lambda lines: ["val_0.JPEG\tn1\t0"]), "line 1 has the class 'n1', which is not in "),
]


@pytest.mark.parametrize(("damage", "complaint"), REFUSED, ids=[complaint for _, complaint in REFUSED])
def test_damaged_folders_are_refused(source: Path, damage: Callable[[Path], object], complaint: str) -> None:
    damage(source)
    with pytest.raises(InputError) as refusal:
        tiny(source, 32).load()
    assert str(source) in str(refusal.value)
    assert complaint in str(refusal.value)
    assert "\n" not in str(refusal.value)
