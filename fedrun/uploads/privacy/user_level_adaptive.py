"""User-level privacy whose clipping bound follows a quantile of the norms (Andrew et al., 2021, arXiv 1905.03871)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Gt, Le, Lt

from fedrun.config.config_class import config_class
from fedrun.strategies.server import CohortUpdate, Round
from fedrun.strategies.vectors import Vectors
from fedrun.system.errors import InputError
from fedrun.system.randomness import generator
from fedrun.uploads.privacy.base import Cohorts
from fedrun.uploads.privacy.clipping import CLIPPED
from fedrun.uploads.privacy.user_level import CentralNoise, UserLevel
from fedrun.uploads.transform import Combined

BOUND = "privacy/clip"
"""The name of S_t in the server's slots and in the broadcast: one number."""

SMALLEST_BOUND, LARGEST_BOUND = 1e-20, 1e20
"""The range of bounds that follow a quantile: squares of longer uploads overflow in float32."""


@config_class
class UserLevelAdaptive(UserLevel):
    """The server also learns which share of the uploads was not clipped, from a noised sum, and moves the bound by it.

    A client adds ½ to the sum if its upload was not clipped, else −½, so that it changes the sum by ½ and not by 1.

    Attributes (besides those of :class:`UserLevel`; ``clip`` is the first round's):
        quantile: γ in (0, 1) of the norms that the bound follows.
        lr: η_C in (0, 10], the step of the bound's logarithm.
        count_noise: σ_b > 0, the standard deviation of the sum's noise; None: a twentieth of the expected cohort.
    """

    quantile: Annotated[float, Gt(0), Lt(1)]
    lr: Annotated[float, Gt(0), Le(10)]
    count_noise: Annotated[float, Gt(0)] | None

    def mechanism(self, cohorts: Cohorts) -> AdaptiveClipping:
        central = super().mechanism(cohorts)
        count_noise = cohorts.size / 20 if self.count_noise is None else self.count_noise
        multiplier = central.release.noise_multiplier
        if multiplier >= 2 * count_noise:
            raise InputError(
                f"privacy.count_noise={count_noise:g} with a noise multiplier of {multiplier:g}: the count alone would "
                f"cost more; allowed: a count_noise above {multiplier / 2:g}"
            )
        return AdaptiveClipping(
            settings=self,
            release=central.release,
            at_scale=central.at_scale,
            delta=central.delta,
            client_weights=central.client_weights,
            norm_growth=central.norm_growth,
            count_noise=count_noise,
        )


@dataclass(frozen=True)
class AdaptiveClipping(CentralNoise):
    """Central noise with a bound that is part of the server's state.

    Attributes:
        settings: the user's settings, with the bound's steps.
        count_noise: σ_b.
    """

    settings: UserLevelAdaptive
    count_noise: float

    @property
    def update_noise(self) -> float:
        return update_noise(self.release.noise_multiplier, self.count_noise)

    def slots(self) -> Vectors:
        return {BOUND: torch.tensor([self.settings.clip], dtype=torch.float64)}

    def broadcast(self, slots: Vectors) -> Vectors:
        return {BOUND: slots[BOUND]}

    def bound(self, slots: Vectors) -> float:
        return float(slots[BOUND])

    def extra_bytes(self) -> int:
        return 1  # whether it was clipped

    def combine(self, displacements: Vectors, update: CohortUpdate, slots: Vectors, round: Round) -> Combined:
        combined = super().combine(displacements, update, slots, round)
        noise = torch.randn((), generator=generator(round.seed, "privacy count", round.index), dtype=torch.float64)
        # b̃ = ½ + (Σ (b_k − ½) + σ_b ξ) / den, where σ_b = 0 in a run without noise
        deviation = self.count_noise if self.release.noise_multiplier else 0.0
        zeros = len(update.excluded)  # uploads that count as the zero vector, which is not clipped
        unclipped = zeros + (float((1 - update.measures[CLIPPED]).sum()) if CLIPPED in update.measures else 0.0)
        took_part = zeros + len(update.clients)
        clients = self.release.cohort if self.settings.denominator == "fixed" else max(took_part, 1)
        share = 0.5 + (unclipped - took_part / 2 + deviation * float(noise)) / clients
        bound = next_bound(self.bound(slots), share, self.settings.quantile, self.settings.lr)
        slot = torch.full_like(slots[BOUND], bound)
        return Combined(combined.displacements, {BOUND: slot}, combined.metrics, combined.clients)


def update_noise(noise_multiplier: float, count_noise: float) -> float:
    """z_Δ = (z⁻² − (2 σ_b)⁻²)^(−1/2), the uploads' noise multiplier where a noised sum, to which every client adds ½ or
    −½, is also released: both together cost z (Andrew et al., 2021, arXiv 1905.03871, theorem 1).

    Args:
        noise_multiplier: z; 0 stays 0.
        count_noise: σ_b > z / 2.
    """
    # z / √(1 − (z / 2 σ_b)²), in which small z do not overflow
    return noise_multiplier / math.sqrt(1 - (noise_multiplier / (2 * count_noise)) ** 2)


def next_bound(bound: float, unclipped_share: float, quantile: float, lr: float) -> float:
    """S_{t+1} = S_t exp(−η_C (b̃ − γ)): the bound moves towards the γ-quantile of the norms (Andrew et al., 2021).

    It stays between :data:`SMALLEST_BOUND` and :data:`LARGEST_BOUND`.

    Args:
        bound: S_t.
        unclipped_share: b̃, the noised share of clients whose norm was at most S_t.
        quantile: γ.
        lr: η_C.
    """
    widest = math.log(LARGEST_BOUND / SMALLEST_BOUND)
    step = min(max(-lr * (unclipped_share - quantile), -widest), widest)
    return min(max(bound * math.exp(step), SMALLEST_BOUND), LARGEST_BOUND)
