"""Devices with lognormal speeds and bandwidths."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge, Gt, Le

from fedrun.config.config_class import config_class
from fedrun.experiment.clock.base import DeviceClock, Devices
from fedrun.system.randomness import chosen_seed, numpy_generator


@config_class
class Lognormal(DeviceClock):
    """Speeds and bandwidths are drawn once for each client, from lognormal distributions with these means.

    A value is mean · exp(s g − s² / 2) with s² = ln(1 + cv²) and g ~ N(0, 1). Speed and bandwidth are
    independent; both bandwidths of a client have the same g.

    Attributes (besides those of :class:`DeviceClock`):
        speed: mean samples per second in training.
        speed_cv: coefficient of variation of the speeds (standard deviation / mean), at most 100; 0: all equal.
        download: mean download bandwidth in bytes per second.
        upload: mean upload bandwidth in bytes per second.
        bandwidth_cv: coefficient of variation of the bandwidths; 0: all equal.
        latency: seconds before a download or an upload begins, of every client.
    """

    speed: Annotated[float, Gt(0)]
    speed_cv: Annotated[float, Ge(0), Le(100)]
    download: Annotated[float, Gt(0)]
    upload: Annotated[float, Gt(0)]
    bandwidth_cv: Annotated[float, Ge(0), Le(100)]
    latency: Annotated[float, Ge(0)]

    def devices(self, clients: int, seed: int) -> Devices:
        chosen = chosen_seed(self.seed, seed)
        speed = _factors(self.speed_cv, numpy_generator(chosen, "clock/speed").standard_normal(clients))
        bandwidth = _factors(self.bandwidth_cv, numpy_generator(chosen, "clock/bandwidth").standard_normal(clients))
        latency = torch.full((clients,), self.latency, dtype=torch.float64)
        return Devices(self.speed * speed, self.download * bandwidth, self.upload * bandwidth, latency, self.server)


def _factors(cv: float, normal: np.ndarray) -> torch.Tensor:
    """Lognormal factors with mean 1 and this coefficient of variation, from standard normal draws ``[N]``."""
    variance = math.log1p(cv**2)
    return torch.from_numpy(np.exp(math.sqrt(variance) * normal - variance / 2))
