from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from fedrun.data.datasets import augmentation as module
from fedrun.data.datasets.augmentation import Augmentation, reflected

BLACK = (0.0, 0.0, 0.0)


def augmentation(**changes: object) -> Augmentation:
    settings: dict[str, object] = {"pad": 4, "crop": 1.0, "flip": 0.5, "rotation": 0.0, "fill": "reflect"}
    return Augmentation(**(settings | changes))  # type: ignore[arg-type]


def images(count: int, height: int, width: int) -> torch.Tensor:
    draws = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, 3, height, width), dtype=torch.uint8, generator=draws)


def uniforms(count: int) -> torch.Tensor:
    return torch.rand(count, 5, generator=torch.Generator().manual_seed(2))


def one_by_one(config: Augmentation, batch: torch.Tensor, numbers: torch.Tensor) -> np.ndarray:
    """The same, image by image, with NumPy's padding and Pillow's rotation."""
    found = []
    height, width, pad = *batch.shape[-2:], config.pad
    for image, (cropped, down, right, flipped, turned) in zip(batch.numpy(), numbers.tolist(), strict=True):
        changed = image
        if config.fill == "reflect":
            padded = np.pad(changed, ((0, 0), (pad, pad), (pad, pad)), mode="reflect")
        else:
            colours = zip(changed, config.fill, strict=True)
            padded = np.stack([np.pad(plane, pad, constant_values=round(255 * share)) for plane, share in colours])
        if cropped < config.crop:
            top, left = int(down * (2 * pad + 1)), int(right * (2 * pad + 1))
            changed = padded[:, top : top + height, left : left + width]
        if flipped < config.flip:
            changed = changed[:, :, ::-1]
        if config.rotation:
            angle = (2 * turned - 1) * config.rotation
            colour = tuple(round(255 * share) for share in config.fill)
            upright = Image.fromarray(np.ascontiguousarray(changed.transpose(1, 2, 0)))
            changed = np.asarray(upright.rotate(angle, Image.Resampling.NEAREST, fillcolor=colour)).transpose(2, 0, 1)
        found.append(changed)
    return np.stack(found)


@pytest.mark.parametrize("fill", ["reflect", BLACK, (0.491, 0.482, 0.447)])
@pytest.mark.parametrize("crop", [1.0, 0.5, 0.0])
def test_crops_and_flips_equal_those_made_one_by_one(
    fill: object, crop: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", 7)
    config, batch, numbers = augmentation(fill=fill, crop=crop), images(60, 12, 9), uniforms(60)
    changed = config(batch, numbers)
    assert changed.dtype == torch.uint8
    assert np.array_equal(changed.numpy(), one_by_one(config, batch, numbers))
    assert torch.equal(batch, images(60, 12, 9))  # the dataset itself stays


@pytest.mark.parametrize(("height", "width"), [(32, 32), (31, 24)])
def test_rotations_equal_pillows_but_for_ties(height: int, width: int) -> None:
    config = augmentation(fill=(0.2, 0.4, 0.6), rotation=15.0)
    batch, numbers = images(100, height, width), uniforms(100)
    same = config(batch, numbers).numpy() == one_by_one(config, batch, numbers)
    assert same.mean() > 0.999  # Pillow computes with 16 bits behind the point
    quarter = Augmentation(pad=0, crop=0.0, flip=0.0, rotation=90.0, fill=BLACK)
    numbers[:, 4] = 1.0  # counter-clockwise by the whole 90 degrees
    square = images(3, 8, 8)
    assert torch.equal(quarter(square, numbers[:3]), square.rot90(1, (2, 3)))


def test_by_hand() -> None:
    row = torch.arange(10, 14, dtype=torch.uint8).expand(1, 3, 1, 4)
    shifted = torch.tensor([[0.0, 0.5, 0.0, 0.9, 0.5]])  # 1 of 3 down, 0 of 3 to the right: by 1 pixel to the left
    assert augmentation(pad=1)(row, shifted)[0, 0].tolist() == [[11, 10, 11, 12]]
    assert augmentation(pad=1, fill=(1.0, 0.0, 0.0))(row, shifted)[0, :, 0, 0].tolist() == [255, 0, 0]
    flipped = torch.tensor([[0.9, 0.5, 0.0, 0.4, 0.5]])
    assert augmentation(pad=1, crop=0.5)(row, flipped)[0, 0].tolist() == [[13, 12, 11, 10]]


def test_reflection_of_any_range() -> None:
    expected = np.pad(np.arange(4), 9, mode="reflect")
    assert reflected(torch.arange(-9, 13), 4).tolist() == expected.tolist()
    assert reflected(torch.arange(-2, 3), 1).tolist() == [0] * 5


def test_every_shift_is_equally_likely() -> None:
    place = torch.zeros(9_000, 3, 9, 9, dtype=torch.uint8)
    place[:, :, 4, 4] = 1
    draws = torch.rand(9_000, 5, generator=torch.Generator().manual_seed(0))
    changed = augmentation(flip=0.0, fill=BLACK)(place, draws)
    counts = changed[:, 0].sum((0, 2)).tolist()
    assert sum(counts) == 9_000
    assert all(abs(count - 1_000) < 4 * 30 for count in counts)  # four standard deviations
    assert augmentation(pad=4, flip=0.0)(place[:1], torch.full((1, 5), 1 - 2**-24)).shape == (1, 3, 9, 9)


def test_draws_have_an_address() -> None:
    batch = images(50, 8, 8)
    config = augmentation(flip=0.5)

    def epochs(seed: int, round: int, client: int) -> tuple[torch.Tensor, torch.Tensor]:
        augment = config.drawn(seed, round, client)
        return augment(batch), augment(batch)

    first, second = epochs(1, 2, 3)
    assert not torch.equal(first, second)
    assert all(map(torch.equal, epochs(1, 2, 3), (first, second)))
    for other in ((0, 2, 3), (1, 0, 3), (1, 2, 0)):
        assert not torch.equal(epochs(*other)[0], first)
