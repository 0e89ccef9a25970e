"""Devices of a few kinds."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from annotated_types import Ge, Gt

from fedrun.config.config_class import config_class
from fedrun.experiment.clock.base import DeviceClock, Devices
from fedrun.system.errors import InputError
from fedrun.system.randomness import chosen_seed, generator

Positive = Annotated[float, Gt(0)]


@config_class
class Tiers(DeviceClock):
    """Every client has one of a few kinds of devices; the lists have one entry for each kind.

    Attributes (besides those of :class:`DeviceClock`):
        shares: shares of the clients, with sum 1. Which client has which kind is random; how many have it is not.
        speeds: samples per second in training.
        downloads: download bandwidths in bytes per second.
        uploads: upload bandwidths in bytes per second.
        latencies: seconds before a download or an upload begins.
    """

    shares: tuple[Positive, ...]
    speeds: tuple[Positive, ...]
    downloads: tuple[Positive, ...]
    uploads: tuple[Positive, ...]
    latencies: tuple[Annotated[float, Ge(0)], ...]

    def __post_init__(self) -> None:
        """Reject lists of different lengths, and shares without the sum 1."""
        if not math.isclose(math.fsum(self.shares), 1.0, abs_tol=1e-6):
            raise InputError(f"clock.shares: have the sum {math.fsum(self.shares):g}; allowed: 1")
        kinds = len(self.shares)
        for key in ("speeds", "downloads", "uploads", "latencies"):
            if (count := len(getattr(self, key))) != kinds:
                entries = "1 entry" if count == 1 else f"{count} entries"
                raise InputError(f"clock.{key}: has {entries}; allowed: {kinds}, as many as clock.shares")

    def devices(self, clients: int, seed: int) -> Devices:
        draw = generator(chosen_seed(self.seed, seed), "clock/tiers")
        order = torch.randperm(clients, generator=draw)
        bounds = torch.tensor(self.shares, dtype=torch.float64).cumsum(0).mul(clients).round().long()
        kinds = torch.empty(clients, dtype=torch.int64)
        kinds[order] = torch.bucketize(torch.arange(clients), bounds[:-1], right=True)
        speed, down, up, latency = (
            torch.tensor(column, dtype=torch.float64)[kinds]
            for column in (self.speeds, self.downloads, self.uploads, self.latencies)
        )
        return Devices(speed, down, up, latency, self.server)
