"""Virtual time: how long the rounds would take on the clients' own devices.

A clock gives every client a device. It measures the rounds and changes no result. A round lasts until the slowest of
its participants has sent its upload and the server has made its step; one without participants takes the server's
time. Evaluation takes no virtual time. Clients that train while they are not selected (FedUmf) do not delay a round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class

VIRTUAL_SECONDS = "time/virtual_s"
"""The metric: virtual seconds since the start of the run."""

FORWARD_SHARE = 1 / 3
"""Time of a sample's forward pass, as a share of its forward and backward pass."""


@dataclass(frozen=True)
class Devices:
    """The devices of all clients, float64 ``[N]`` each.

    Attributes:
        speed: v, samples per second in training, forward and backward.
        down: download bandwidth in bytes per second.
        up: upload bandwidth in bytes per second.
        latency: ℓ, seconds before a download or an upload begins.
        server: seconds of the server between the last upload of a round and the next broadcast; a number.
    """

    speed: torch.Tensor
    down: torch.Tensor
    up: torch.Tensor
    latency: torch.Tensor
    server: float = 0.0

    def seconds(
        self,
        clients: torch.Tensor,
        bytes_down: torch.Tensor,
        samples: torch.Tensor,
        forward_samples: torch.Tensor,
        bytes_up: torch.Tensor,
    ) -> torch.Tensor:
        """T_k, the time from the broadcast to the end of the upload, float64 ``[C]``.

        Args:
            clients: int64 ``[C]``.
            bytes_down: that each downloads, ``[C]``; 0: nothing is downloaded, and there is no latency.
            samples: that each processes forward and backward, ``[C]``.
            forward_samples: that each processes by forward passes only, ``[C]``.
            bytes_up: that each uploads, ``[C]``.
        """
        latency = self.latency[clients]
        # T_k = (ℓ_k + bytes_down / down_k) + (samples + forward_samples / 3) / v_k + (ℓ_k + bytes_up / up_k)
        download = (bytes_down > 0) * latency + bytes_down / self.down[clients]
        # in float64 also where the arguments are integers
        work = (samples + FORWARD_SHARE * forward_samples.double()) / self.speed[clients]
        upload = (bytes_up > 0) * latency + bytes_up / self.up[clients]
        return download + work + upload


@config_class
class Clock:
    """No virtual time; the base of the clocks."""

    def devices(self, clients: int, seed: int) -> Devices | None:
        """The clients' devices; None: no virtual time.

        Args:
            clients: N.
            seed: the run's seed.
        """
        return None


@config_class
class DeviceClock(Clock):
    """A clock with a device for every client; the devices depend on the seed and on N, not on the strategy.

    Attributes:
        server: seconds of the server in each round.
        seed: seed of the choice of devices; None: the run's seed.
    """

    server: Annotated[float, Ge(0)]
    seed: Annotated[int, Ge(0)] | None
