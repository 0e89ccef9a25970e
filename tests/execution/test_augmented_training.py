"""Training images are augmented, test images are not."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

import pytest
import torch
from torch import nn

from fedrun.data.datasets.augmentation import Augmentation
from fedrun.data.datasets.base import Dataset, Scaled, Spec
from fedrun.simulation.simulation import Simulation

FLIP = Augmentation(pad=0, crop=0.0, flip=1.0, rotation=0.0, fill="reflect")
SIZES = (8, 12, 16)


def colours(augmentation: Augmentation | None) -> Dataset:
    draw = torch.Generator().manual_seed(4)
    count = sum(SIZES) + 10
    inputs = torch.randint(0, 256, (count, 3, 4, 4), generator=draw).to(torch.uint8)
    targets = torch.randint(0, 3, (count,), generator=draw)
    spec = Spec((3, 4, 4), 3)
    return Dataset(spec, Scaled(255.0), inputs, targets, sum(SIZES), None, tuple("abc"), "colours", augmentation)


def linear(spec: Spec) -> nn.Sequential:
    return nn.Sequential(OrderedDict(encoder=nn.Flatten(), head=nn.Linear(48, spec.classes)))


def after(make_experiment, dataset: Dataset, **changes: object):  # type: ignore[no-untyped-def]
    """The model and the metrics of the test after some rounds."""
    experiment = make_experiment(
        sizes=SIZES, dataset=dataset, network=linear, clients_per_round=2, **{"local": {"epochs": 2}, **changes}
    )
    simulation = Simulation(experiment)
    state = simulation.initial()
    for _ in range(2):
        state, _ = simulation.advance(state)
    return state.server.model, simulation.test(state)


def test_it_is_training_on_flipped_images_and_testing_on_those_that_were_given(make_experiment) -> None:  # type: ignore[no-untyped-def]
    flipped = colours(None)
    flipped.inputs[: sum(SIZES)] = flipped.inputs[: sum(SIZES)].flip(-1)
    model, metrics = after(make_experiment, colours(FLIP))
    expected, expected_metrics = after(make_experiment, flipped)
    assert torch.equal(model, expected)
    assert metrics == expected_metrics and metrics
    assert not torch.equal(model, after(make_experiment, colours(None))[0])


def test_draws_differ_from_seed_to_seed_and_repeat_with_the_same(make_experiment) -> None:  # type: ignore[no-untyped-def]
    shift = replace(FLIP, pad=2, crop=1.0, flip=0.5)
    first = after(make_experiment, colours(shift))[0]
    assert torch.equal(first, after(make_experiment, colours(shift))[0])
    assert not torch.equal(first, after(make_experiment, colours(replace(shift, flip=0.4)))[0])


@pytest.mark.parametrize("local", [{"epochs": 2}, {"epochs": None, "steps": 5}, {"batch_size": None}])
def test_both_executors_draw_the_same(make_experiment, local: dict[str, object]) -> None:  # type: ignore[no-untyped-def]
    config = Augmentation(pad=2, crop=0.7, flip=0.5, rotation=20.0, fill=(0.1, 0.2, 0.3))
    one, two = (
        after(make_experiment, colours(config), local=local, hardware={"executor": executor})
        for executor in ("in_process", "vectorized")
    )
    torch.testing.assert_close(one[0], two[0], rtol=1e-5, atol=1e-6)
    assert one[1] == pytest.approx(two[1], rel=1e-5)
