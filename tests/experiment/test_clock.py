"""The clients' devices, and how long they take."""

from __future__ import annotations

import math

import pytest
import torch

from fedrun.config.build import option
from fedrun.experiment.clock.base import Devices
from fedrun.system.errors import InputError


def columns(devices: Devices) -> list[torch.Tensor]:
    return [devices.speed, devices.down, devices.up, devices.latency]


def float64(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_seconds_of_four_devices() -> None:
    """A model of 10^6 numbers both ways, 2 epochs: download + work + upload, worked out by hand."""
    sizes, two_epochs = torch.tensor([100, 50, 300, 20]), 2
    down, up = float64(2e6, 1e6, 4e6, 0.5e6), float64(1e6, 0.5e6, 2e6, 0.25e6)
    devices = Devices(float64(200, 50, 100, 10), down, up, float64(0.05, 0.1, 0.05, 0.2))
    model, nothing = torch.full((4,), 4_000_000), torch.zeros(4, dtype=torch.int64)
    clients = torch.arange(4)
    seconds = devices.seconds(clients, model, two_epochs * sizes, nothing, model)
    expected = [2.05 + 1 + 4.05, 4.1 + 2 + 8.1, 1.05 + 6 + 2.05, 8.2 + 4 + 16.2]
    torch.testing.assert_close(seconds, float64(*expected))
    compressed = devices.seconds(clients, model, two_epochs * sizes, nothing, torch.full((4,), 100_000))
    torch.testing.assert_close(compressed, float64(3.2, 6.4, 7.15, 12.8))
    some = devices.seconds(torch.tensor([2, 0]), model[:2], two_epochs * sizes[[2, 0]], nothing[:2], model[:2])
    torch.testing.assert_close(some, seconds[[2, 0]])


def test_forward_passes_take_a_third_and_nothing_sent_has_no_latency() -> None:
    one = torch.ones(1, dtype=torch.float64)
    devices = Devices(10 * one, one, one, 100 * one)
    seconds = devices.seconds(torch.tensor([0]), 0 * one, 20 * one, 30 * one, 0 * one)
    assert seconds.item() == pytest.approx((20 + 30 / 3) / 10)
    assert devices.seconds(torch.tensor([0]), one, 0 * one, 0 * one, 0 * one).item() == 101


def test_seconds_are_float64() -> None:
    """Also of integers: float32 has no 2^24 + 1, and its third of 1 is 0.33333334."""
    one = torch.ones(1, dtype=torch.float64)
    devices, clients, nothing = Devices(one, one, one, one), torch.tensor([0]), torch.zeros(1, dtype=torch.int64)
    assert devices.seconds(clients, nothing, nothing + 2**24 + 1, nothing, nothing).item() == 2**24 + 1
    assert devices.seconds(clients, nothing, nothing, nothing + 1, nothing).item() == 1 / 3


def test_lognormal_devices() -> None:
    """Mean and coefficient of variation as set; both bandwidths of a client deviate by the same factor."""
    clock = option("clock", "lognormal", speed=50.0, speed_cv=0.6, download=8.0, upload=2.0, bandwidth_cv=1.5)
    devices = clock.devices(400_000, seed=0)
    assert devices.speed.mean().item() == pytest.approx(50, rel=0.01)
    assert (devices.speed.std() / devices.speed.mean()).item() == pytest.approx(0.6, rel=0.02)
    assert devices.down.mean().item() == pytest.approx(8, rel=0.02)
    assert (devices.down.std() / devices.down.mean()).item() == pytest.approx(1.5, rel=0.05)
    torch.testing.assert_close(devices.down, 4 * devices.up)
    factors = torch.stack([devices.speed, devices.down]).log()
    assert abs(torch.corrcoef(factors)[0, 1].item()) < 0.01
    assert devices.latency.unique().tolist() == [0.05]


def test_equal_devices() -> None:
    devices = option("clock", "lognormal", speed=50.0, speed_cv=0.0, bandwidth_cv=0.0).devices(5, seed=3)
    assert [column.unique().tolist() for column in columns(devices)] == [[50.0], [2e6], [5e5], [0.05]]


def test_tiers() -> None:
    """Each share of the clients, up to rounding, has its tier's whole device."""
    clock = option("clock", "tiers", server=3.0)
    devices = clock.devices(1000, seed=0)
    kinds = torch.stack(columns(devices), 1).unique(dim=0, return_counts=True)
    assert sorted(zip(kinds[0].tolist(), kinds[1].tolist(), strict=True)) == [
        ([25.0, 5e5, 1e5, 0.2], 300),
        ([100.0, 2e6, 5e5, 0.05], 500),
        ([400.0, 1e7, 2e6, 0.02], 200),
    ]
    assert devices.server == 3.0
    assert not torch.equal(devices.speed, devices.speed.sort().values)  # at random
    assert sorted(clock.devices(2, seed=0).speed.tolist()) == [25.0, 100.0]  # bounds 0.4 and 1.4


@pytest.mark.parametrize("name", ["lognormal", "tiers"])
def test_the_seed_chooses_the_devices(name: str) -> None:
    first, again, other = (option("clock", name).devices(50, seed) for seed in (0, 0, 1))
    fixed = option("clock", name, seed=0).devices(50, seed=7)
    for mine, same, different, given in zip(*map(columns, (first, again, other, fixed)), strict=True):
        assert torch.equal(mine, same)
        assert torch.equal(mine, given)
        assert len(mine.unique()) == 1 or not torch.equal(mine, different)


def test_no_clock_has_no_devices() -> None:
    assert option("clock", "none").devices(5, seed=0) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shares": (0.5, 0.5)}, r"clock\.speeds: has 3 entries; allowed: 2, as many as clock\.shares"),
        ({"uploads": (1.0,)}, r"clock\.uploads: has 1 entry; allowed: 3"),
        ({"shares": (0.5, 0.4, 0.2)}, r"clock\.shares: have the sum 1\.1; allowed: 1"),
        ({"shares": (), "speeds": (), "downloads": (), "uploads": (), "latencies": ()}, r"sum 0; allowed: 1"),
        ({"speeds": (1.0, 0.0, 1.0)}, r"speeds"),
        ({"latencies": (0.0, -1.0, 0.0)}, r"latencies"),
        ({"server": math.inf}, r"server"),
    ],
)
def test_refusals(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        option("clock", "tiers", **changes)
