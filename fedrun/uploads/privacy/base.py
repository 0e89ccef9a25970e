"""The base of privacy options, and the option without protection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from fedrun.config.config_class import config_class
from fedrun.strategies.local_training import LocalTraining
from fedrun.uploads.privacy.accountant import Sampling
from fedrun.uploads.transform import UploadTransform

CountParticipations = Callable[[], "torch.Tensor"]
"""Computes the number of rounds so far in which each client took part, int64 ``[N]``."""


@dataclass(frozen=True)
class NoisedSteps:
    """The steps of DP-SGD on a client.

    Attributes:
        clip: C, the largest norm of a sample's gradient.
        noise_multiplier: z, the noise's standard deviation as a multiple of C.
        probability: q_s, the probability with which a step draws a sample.
    """

    clip: float
    noise_multiplier: float
    probability: float


@dataclass(frozen=True)
class Cohorts:
    """The clients and rounds of a run.

    Attributes:
        samples: n_k of the N clients, int64 ``[N]``.
        size: M, the (expected) clients per round.
        rounds: T.
        local: the settings of local training.
        norm_growth: the largest growth of an upload's norm after clipping.
        noise_folder: has the noise multipliers that earlier runs have calibrated; None: they are not stored.
    """

    samples: torch.Tensor
    size: int
    rounds: int
    local: LocalTraining
    norm_growth: float = 0.0
    noise_folder: Path | None = None

    @property
    def clients(self) -> int:
        """N."""
        return len(self.samples)


class Mechanism(UploadTransform):
    """A privacy option with a run's noise; the base protects no client."""

    @property
    def precedes_compression(self) -> bool:
        """Whether uploads are private before they are compressed. Otherwise compressed uploads are clipped, so that the
        server's noise matches the norm that it receives.
        """
        return False

    @property
    def noised_steps(self) -> NoisedSteps | None:
        """How the steps of local training are noised; None: they are not."""
        return None

    def local(self, local: LocalTraining) -> LocalTraining:
        """The settings of local training that the mechanism requires."""
        return local

    def report(self, rounds: int, participations: CountParticipations) -> dict[str, float]:
        """Metrics ``privacy/*`` of the rounds so far.

        Args:
            rounds: made so far.
            participations: counts each client's rounds.
        """
        return {}


@config_class
class Privacy:
    """Uploads are averaged as they are; the base of the options that protect clients."""

    @property
    def protects(self) -> bool:
        """Whether there is noise, and hence a privacy loss to account for."""
        return type(self) is not Privacy

    @property
    def noises_steps(self) -> bool:
        """Whether the steps of local training are noised (:attr:`Mechanism.noised_steps`), each by the gradients of
        single samples. What clients compute from noised models is private.
        """
        return False

    @property
    def cohort_sampling(self) -> Sampling | None:
        """How cohorts are drawn; None: as without privacy."""
        return None

    @property
    def sees_sums_only(self) -> bool:
        """Whether the server may use only the noised sum of the uploads. Who takes part is private then, too, so the
        server makes a step also without participants.
        """
        return self.cohort_sampling is not None

    def check(self, local: LocalTraining) -> None:
        """Reject settings that contradict each other or those of local training.

        Raises:
            InputError: naming the keys and what is allowed.
        """

    def mechanism(self, cohorts: Cohorts) -> Mechanism:
        """The transform of uploads, its noise calibrated to the run.

        Raises:
            InputError: no noise reaches the target, or the accounting library is missing.
        """
        return Mechanism()
