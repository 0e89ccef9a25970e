"""Local differential privacy: every client adds noise to its own upload before it leaves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from fedrun.config.config_class import config_class
from fedrun.strategies.vectors import Vectors
from fedrun.uploads.privacy.accountant import Release, gaussian_multiplier, warn_if_missing
from fedrun.uploads.privacy.base import Cohorts, CountParticipations, Mechanism
from fedrun.uploads.privacy.clipping import CLIPPED, ClippedUploads, clip
from fedrun.uploads.privacy.target import LARGEST_DEVIATION, Noise
from fedrun.uploads.transform import Sender, Sent


@config_class
class Local(ClippedUploads):
    """The server receives noised uploads only, so it need not be trusted, and may use single uploads.

    Any two uploads of a client are neighbours, 2 S apart at most, and the N clients are the protected units. Every
    client's noise has standard deviation 2 S z. ``epsilon`` is that of one upload, ``privacy/epsilon`` that of all
    uploads of the client with the most uploads.
    """

    def mechanism(self, cohorts: Cohorts) -> Mechanism:
        delta = self.chosen_delta(cohorts.clients, "clients")
        if self.epsilon is None:
            warn_if_missing()
            z = self.noise_multiplier or 0.0
        else:
            z = gaussian_multiplier(self.epsilon, delta)
        return LocalNoise(Release(1, 1, z, "poisson"), delta, self)


@dataclass(frozen=True)
class LocalNoise(Noise):
    """Clipping and noise on the clients; every upload is a release.

    Attributes:
        settings: the user's settings.
    """

    precedes_compression: ClassVar[bool] = True

    settings: Local

    def send(self, displacements: Vectors, sender: Sender) -> Sent:
        settings = self.settings
        longer = clip(displacements, settings.clip, settings.layers, sender.shapes, settings.extra_share)
        deviation = min(2 * settings.clip * self.release.noise_multiplier, LARGEST_DEVIATION)
        draw = sender.draw("privacy")
        for _, vector in sorted(displacements.items()):
            # c_k + 2 S z ξ
            vector.add_(torch.randn(len(vector), generator=draw).to(vector.device), alpha=deviation)
        return Sent(displacements, measures={CLIPPED: float(longer)})

    def epsilons(self, rounds: int, participations: CountParticipations) -> dict[str, float]:
        epsilon = self.release.epsilon(int(participations().max()), self.delta, "pld")
        return {"privacy/epsilon": math.inf if epsilon is None else epsilon}
