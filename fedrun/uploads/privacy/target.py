"""The privacy target: a noise multiplier or ε, and δ; and the noise that reaches it."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt, Lt

from fedrun.config.config_class import config_class
from fedrun.config.identity import Neutral
from fedrun.strategies.local_training import LocalTraining
from fedrun.system.errors import InputError
from fedrun.uploads.privacy.accountant import Release, installed
from fedrun.uploads.privacy.base import CountParticipations, Mechanism, Privacy

log = logging.getLogger(__name__)

LARGE_DELTA = 0.01
"""The largest δ by default without a warning."""

LARGEST_DEVIATION = (2 - 2**-23) * 2.0**127
"""The largest standard deviation of noise, float32's largest number; so much noise overflows, which ends the run."""


@config_class
class DifferentialPrivacy(Privacy):
    """Base class of options that add noise.

    Attributes:
        noise_multiplier: z ≥ 0, the noise's standard deviation as a multiple of the bound. None: calibrated to
            ``epsilon``.
        epsilon: ε > 0, the target. None if ``noise_multiplier`` is given.
        delta: δ in (0, 1); None: N^−1.1 for N protected units.
        allow_large_delta: whether δ ≥ 1/N is accepted.
    """

    noise_multiplier: Annotated[float, Ge(0)] | None
    epsilon: Annotated[float, Gt(0)] | None
    delta: Annotated[float, Gt(0), Lt(1)] | None
    allow_large_delta: Annotated[bool, Neutral(False)]

    def check(self, local: LocalTraining) -> None:
        given = (self.noise_multiplier, self.epsilon)
        if (self.noise_multiplier is None) == (self.epsilon is None):
            found = "neither is given" if self.epsilon is None else "{:g} and {:g} are both given".format(*given)
            raise InputError(
                f"privacy.noise_multiplier, privacy.epsilon: {found}; allowed: one of the two, the other null"
            )

    def chosen_delta(self, count: int, units: str) -> float:
        """δ: what was set, or N^−1.1.

        Args:
            count: N, the number of protected units.
            units: what they are, in words.

        Raises:
            InputError: δ ≥ 1/N is not accepted.
        """
        if self.delta is None:
            chosen = min(math.pow(count, -1.1), 0.5)
            if chosen > LARGE_DELTA:
                log.warning(
                    "privacy.delta=%.2g by default, for %d %s: ε at so large a δ means little", chosen, count, units
                )
            return chosen
        if self.delta >= 1 / count and not self.allow_large_delta:
            raise InputError(
                f"privacy.delta={self.delta:g}: a mechanism that publishes one of the {count} {units} at random would "
                f"satisfy it; allowed: below {1 / count:g}, best well below, or privacy.allow_large_delta=true"
            )
        return self.delta


@dataclass(frozen=True)
class Noise(Mechanism, ABC):
    """The base of mechanisms with noise.

    Attributes:
        release: what is released with noise.
        delta: δ.
    """

    release: Release
    delta: float

    @abstractmethod
    def epsilons(self, rounds: int, participations: CountParticipations) -> dict[str, float]:
        """The part of :meth:`report` that dp-accounting computes."""

    def report(self, rounds: int, participations: CountParticipations) -> dict[str, float]:
        metrics = {"privacy/delta": self.delta, "privacy/noise_multiplier": self.release.noise_multiplier}
        return metrics | self.epsilons(rounds, participations) if installed() else metrics
