"""CelebA in LEAF's JSON and in its own lists, with photographs beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fedrun.config.composed import compose
from fedrun.data.datasets.celeba import Celeba
from fedrun.system.errors import InputError


def celeba(root: Path, min_samples: int = 1) -> Celeba:
    return Celeba(data_dir=str(root), cache_dir=None, min_samples=min_samples, min_samples_after_split=1)


def photograph(root: Path, name: str, color: tuple[int, int, int] | int, mode: str = "RGB") -> np.ndarray:
    """A photograph of CelebA's size, upper half in a colour, lower half black; its pixels ``[218, 178, ...]``."""
    pixels = np.zeros((218, 178, 3) if mode == "RGB" else (218, 178), np.uint8)
    pixels[:109] = color
    path = root / "celeba/img_align_celeba" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, quality=95)
    return pixels


def test_photographs_are_resized_to_84_pixels(tmp_path: Path, write_leaf: Callable[..., Path]) -> None:
    photograph(tmp_path, "000001.jpg", (200, 100, 50))
    photograph(tmp_path, "000002.jpg", 90, mode="L")
    photograph(tmp_path, "000003.png", (10, 20, 30))
    write_leaf("celeba/train/a.json", {"12": (["000003.png"], [0]), "7": (["000001.jpg", "000002.jpg"], [1, 0])})
    dataset = celeba(tmp_path).load()
    assert dataset.users is not None
    assert dataset.users.names == ("12", "7")
    assert dataset.targets.tolist() == [0, 1, 0]
    assert dataset.inputs.shape == (3, 3, 84, 84)
    assert dataset.inputs.dtype == torch.uint8
    # The border between the halves is at row 42 of 84; away from it the colours stay, up to JPEG's rounding.
    assert dataset.inputs[0, :, :40].flatten(1).unique(dim=1).flatten().tolist() == [10, 20, 30]
    assert (dataset.inputs[1, :, :36].int() - torch.tensor([200, 100, 50])[:, None, None]).abs().max() <= 3
    assert (dataset.inputs[2, :, :36].int() - 90).abs().max() <= 3  # grey becomes RGB
    assert dataset.inputs[:, :, 48:].max() <= 3
    assert torch.allclose(dataset.encoding(dataset.inputs[:1])[0, :, 0, 0], torch.tensor([10, 20, 30]) / 255)


def test_resampling_is_bicubic(tmp_path: Path, write_leaf: Callable[..., Path]) -> None:
    """Against Keys' kernel (a = -0.5), stretched by the scale as PIL does it when it makes a picture smaller."""
    photograph(tmp_path, "1.png", (240, 240, 240))
    write_leaf("celeba/train/a.json", {"7": (["1.png"], [1])})
    column = celeba(tmp_path).load().inputs[0, 0, :, 20].double()

    scale = 218 / 84
    centres = (torch.arange(84, dtype=torch.float64) + 0.5) * scale
    distance = ((torch.arange(218) + 0.5 - centres[:, None]) / scale).abs()
    near = 1.5 * distance**3 - 2.5 * distance**2 + 1
    far = -0.5 * distance**3 + 2.5 * distance**2 - 4 * distance + 2
    kernel = torch.where(distance < 1, near, torch.where(distance < 2, far, torch.zeros_like(far)))
    expected = (kernel / kernel.sum(1, keepdim=True))[:, :109].sum(1) * 240
    assert (column - expected.clamp(0, 255)).abs().max() <= 1


def test_options() -> None:
    config = compose(["dataset=celeba", "strategy=turbosvm"])
    assert config.choices["model"] == "leaf_celeba_cnn"
    assert config.hparams == "celeba-turbosvm"
    dataset = config.config["dataset"]
    assert (dataset["min_samples"], dataset["min_samples_after_split"]) == (5, 8)


@pytest.mark.parametrize(
    ("x", "y", "complaint"),
    [
        (["2.jpg"], [0], "2.jpg is missing"),
        (["1.jpg"], [2], "sample 0 has label 2; labels are integers from 0 to 1"),
        (["1.jpg"], [-1], "sample 0 has label -1"),
        (["cut.jpg"], [0], "cut.jpg cannot be decoded"),
        (["text.jpg"], [0], "text.jpg cannot be decoded (not an image)"),
        ([""], [0], "'' is not the name of a photograph"),
        (["../1.jpg"], [0], "'../1.jpg' is not the name of a photograph"),
        ([5], [0], "5 is not the name of a photograph"),
        ([[0.5]], [0], "[0.5] is not the name of a photograph"),
    ],
)
def test_what_cannot_be_used_is_refused(
    tmp_path: Path, write_leaf: Callable[..., Path], x: list[Any], y: list[Any], complaint: str
) -> None:
    photograph(tmp_path, "1.jpg", (1, 2, 3))
    folder = tmp_path / "celeba/img_align_celeba"
    (folder / "cut.jpg").write_bytes((folder / "1.jpg").read_bytes()[:700])
    (folder / "text.jpg").write_bytes("Grüße".encode("latin-1"))
    path = write_leaf("celeba/train/a.json", {"7": (x, y)})
    with pytest.raises(InputError) as refusal:
        celeba(tmp_path).load()
    assert str(refusal.value).startswith(f"{path}: user '7': ")
    assert complaint in str(refusal.value)
    assert "\n" not in str(refusal.value)


def lists(root: Path, identities: list[str], attributes: list[str]) -> Path:
    """CelebA's own lists; the folder they are in."""
    folder = root / "celeba"
    folder.mkdir(exist_ok=True)
    (folder / "identity_CelebA.txt").write_text("\n".join(identities) + "\n")
    (folder / "list_attr_celeba.txt").write_text("\n".join(attributes) + "\n")
    return folder


HEADER = ["6", "Male Smiling Young "]


def test_celebas_own_lists(tmp_path: Path) -> None:
    """Celebrity 31 has five photographs, 4 of them smiling; celebrity 7 has one, and is left out as in LEAF."""
    for number in range(1, 7):
        photograph(tmp_path, f"{number}.png", (10 * number, 0, 0))
    identities = [f"{number}.png {7 if number == 2 else 31}" for number in range(1, 7)]
    lists(
        tmp_path, identities, [*HEADER, *(f"{number}.png  1 {-1 if number == 4 else 1} -1" for number in range(1, 7))]
    )
    dataset = celeba(tmp_path).load()
    assert dataset.users is not None
    assert (dataset.users.names, dataset.users.training) == (("31",), 1)
    assert dataset.targets.tolist() == [1, 1, 0, 1, 1]
    assert dataset.inputs[:, 0, 0, 0].tolist() == [10, 30, 40, 50, 60]


@pytest.mark.parametrize(
    ("identities", "attributes", "complaint"),
    [
        (["1.jpg"], HEADER, "identity_CelebA.txt: line 1 must be a photograph and a celebrity's number"),
        (["1.jpg 5"], HEADER, "identity_CelebA.txt: line 1: 1.jpg is not in "),
        (["1.jpg 5", "1.jpg 6"], [*HEADER, "1.jpg 1 1 1"], "identity_CelebA.txt: line 2: 1.jpg is not in "),
        (["1.jpg 5"], [*HEADER, "1.jpg 1 1 1"], "identity_CelebA.txt has no celebrity with 5 photographs or more"),
        (
            ["1.jpg 5"],
            ["1", "Male Young", "1.jpg 1 1"],
            "list_attr_celeba.txt: line 2 must name the attributes, Smiling",
        ),
        (["1.jpg 5"], [], "list_attr_celeba.txt: line 2 must name the attributes, Smiling"),
        (["1.jpg 5"], [*HEADER, "1.jpg 1 1"], "list_attr_celeba.txt: line 3 must be a photograph and 3 attributes"),
        (["1.jpg 5"], [*HEADER, "1.jpg 1 2 1"], "list_attr_celeba.txt: line 3 must be a photograph and 3 attributes"),
        ([f"{n}.jpg 5" for n in range(5)], [*HEADER, *(f"{n}.jpg 1 1 1" for n in range(5))], "0.jpg is missing"),
    ],
)
def test_lists_that_cannot_be_used_are_refused(
    tmp_path: Path, identities: list[str], attributes: list[str], complaint: str
) -> None:
    folder = lists(tmp_path, identities, attributes)
    with pytest.raises(InputError) as refusal:
        celeba(tmp_path).load()
    assert str(refusal.value).startswith(str(folder)) and complaint in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_lists_that_are_not_there_or_no_text_are_refused(tmp_path: Path) -> None:
    folder = lists(tmp_path, ["1.jpg 5"], HEADER)
    (folder / "list_attr_celeba.txt").write_bytes("Grüße".encode("latin-1"))
    with pytest.raises(InputError, match=r"list_attr_celeba\.txt cannot be read as text in UTF-8: "):
        celeba(tmp_path).load()
    (folder / "list_attr_celeba.txt").unlink()
    with pytest.raises(InputError, match=r"list_attr_celeba\.txt"):
        celeba(tmp_path).load()
