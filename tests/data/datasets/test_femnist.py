from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedrun.data.datasets.femnist import CLASS_NAMES, Femnist, GreyImages
from fedrun.system.errors import InputError


def femnist(root: Path) -> Femnist:
    return Femnist(data_dir=str(root), cache_dir=None, min_samples=1, min_samples_after_split=1)


def test_every_grey_level_and_every_pixel_keeps_its_place(tmp_path: Path, write_leaf: Callable[..., Path]) -> None:
    greys = [[(7 * pixel + 11 * image) % 256 for pixel in range(784)] for image in range(3)]
    # json writes grey/255 with all its digits, as LEAF does; 0.0 and 1.0 also occur as integers.
    x = [[grey / 255 if grey % 255 else grey // 255 for grey in image] for image in greys]
    write_leaf("femnist/train/a.json", {"ann": (x, [0, 61, 36])})
    dataset = femnist(tmp_path).load()
    assert torch.equal(dataset.inputs.flatten(1), torch.tensor(greys, dtype=torch.uint8))
    assert [dataset.class_names[target] for target in dataset.targets] == ["0", "z", "a"]
    expected = torch.tensor(x, dtype=torch.float32).view(3, 1, 28, 28)
    assert torch.allclose(dataset.encoding(dataset.inputs), expected, atol=1e-7)
    assert len(CLASS_NAMES) == dataset.spec.classes == 62


def test_images_are_written_row_by_row() -> None:
    pixels = [0.0] * 784
    pixels[28] = 1.0  # second row, first column
    inputs, _ = GreyImages().decode([pixels], [0])
    assert inputs[0, 0, 1, 0] == 255
    assert inputs.sum() == 255


def test_other_pixels_become_the_nearest_grey_level() -> None:
    inputs, _ = GreyImages().decode([[100.4 / 255, 100.6 / 255] + [0.0] * 782], [0])
    assert inputs.flatten()[:3].tolist() == [100, 101, 0]


@pytest.mark.parametrize(("pixel", "warned"), [(0.502, False), (100.4 / 255, True)])
def test_rounding_is_mentioned_when_it_is_large(
    tmp_path: Path, write_leaf: Callable[..., Path], caplog: pytest.LogCaptureFixture, pixel: float, warned: bool
) -> None:
    write_leaf("femnist/train/a.json", {"ann": ([[pixel] * 784], [0])})
    with caplog.at_level(logging.WARNING):
        femnist(tmp_path).load()
        femnist(tmp_path).load()  # from the cache
    # 0.502 is 128.01 grey levels, 0.01 / 255 off; 100.4 levels are 0.4 / 255 = 0.0016 off.
    assert caplog.text.count("by up to 0.0016") == warned


def pixels(*changes: tuple[int, Any]) -> list[list[Any]]:
    """Two images; in the second, pixels are changed."""
    images: list[list[Any]] = [[0.5] * 784, [0.5] * 784]
    for place, value in changes:
        images[1][place] = value
    return images


@pytest.mark.parametrize(
    ("x", "y", "complaint"),
    [
        (pixels(), [0, 62], "sample 1 has label 62; labels are integers from 0 to 61"),
        (pixels(), [0, -1], "sample 1 has label -1"),
        (pixels(), [0, 1.0], "sample 1 has label 1.0"),
        (pixels(), [0, True], "sample 1 has label True"),
        (pixels(), [0, "1"], "sample 1 has label '1'"),
        (pixels(), [0, None], "sample 1 has label None"),
        (pixels((3, 1.01)), [0, 1], "pixel 3 of image 1 is 1.01; pixels are from 0 to 1"),
        (pixels((3, -0.01)), [0, 1], "pixel 3 of image 1 is -0.01"),
        (pixels((3, 255)), [0, 1], "pixel 3 of image 1 is 255"),
        (pixels((3, float("nan"))), [0, 1], "pixel 3 of image 1 is nan"),
        (pixels((3, float("inf"))), [0, 1], "pixel 3 of image 1 is inf"),
        (pixels((3, "0.5")), [0, 1], "a pixel is not a number"),
        (pixels((3, None)), [0, 1], "a pixel is not a number"),
        (pixels((3, [0.5])), [0, 1], "a pixel is not a number"),
        ([[True] * 784], [0], "a pixel is not a number"),
        ([[0.5] * 784, [0.5] * 783], [0, 1], "image 1 has 783 pixels; an image has 784"),
        ([[0.5] * 785], [0], "image 0 has 785 pixels; an image has 784"),
        ([[0.5] * 784, 0.5], [0, 1], "image 1 has no list of pixels; an image has 784"),
        ([[[0.5] * 28] * 28], [0], "image 0 has 28 pixels; an image has 784"),
    ],
)
def test_samples_that_are_not_images_are_refused(x: list[Any], y: list[Any], complaint: str) -> None:
    with pytest.raises(InputError) as refusal:
        GreyImages().decode(x, y)
    assert complaint in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_refusal_names_the_file_and_the_user(tmp_path: Path, write_leaf: Callable[..., Path]) -> None:
    path = write_leaf("femnist/train/a.json", {"ann": (pixels(), [0, 62])})
    with pytest.raises(InputError) as refusal:
        femnist(tmp_path).load()
    assert str(refusal.value).startswith(f"{path}: user 'ann': sample 1 has label 62")
