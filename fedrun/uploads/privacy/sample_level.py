"""Sample-level differential privacy: every client trains by DP-SGD (Abadi et al., 2016, arXiv 1607.00133)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

from annotated_types import Ge, Gt, Le

from fedrun.config.config_class import config_class
from fedrun.strategies.local_training import LocalTraining
from fedrun.system.errors import InputError
from fedrun.uploads.privacy.accountant import AccountantName, Release, warn_if_missing
from fedrun.uploads.privacy.base import Cohorts, CountParticipations, Mechanism, NoisedSteps
from fedrun.uploads.privacy.calibration import with_noise
from fedrun.uploads.privacy.target import DifferentialPrivacy, Noise


@config_class
class SampleLevel(DifferentialPrivacy):
    """Clients protect their samples from everybody who sees their uploads; the numbers of samples are public.

    A step draws each sample of the client with the same probability, clips its gradient, and adds noise to their sum,
    in which all samples count alike, also texts with more symbols. Two clients' data are neighbours if one has one
    sample more. The number of a round's steps is E / q_s, so that a sample is drawn E times on average
    (``local.epochs``), or ``local.steps``. The noise on a step's sum has standard deviation z C. ``epsilon`` is that of
    a client that takes part in every round; the samples of the largest client are the protected units.

    Attributes (besides those of :class:`DifferentialPrivacy`):
        clip: C > 0, the largest Euclidean norm of a sample's gradient.
        accountant: computes z and ``privacy/epsilon``.
        sample_share: q_s in [1e-6, 1], the probability with which a step draws a sample.
    """

    clip: Annotated[float, Gt(0)]
    accountant: AccountantName
    sample_share: Annotated[float, Ge(1e-6), Le(1)]

    @property
    def noises_steps(self) -> bool:
        return True

    def check(self, local: LocalTraining) -> None:
        super().check(local)
        if local.max_gradient_norm is not None:
            raise InputError(
                f"local.max_gradient_norm={local.max_gradient_norm:g} with privacy=sample_level, which clips the "
                "gradient of every sample; allowed: null"
            )
        if local.precision != "float32":
            raise InputError(f"local.precision={local.precision} with privacy=sample_level: allowed: float32")

    def steps(self, local: LocalTraining) -> int:
        """A client's steps in a round."""
        return local.steps or max(1, round((local.epochs or 0) / self.sample_share))

    def mechanism(self, cohorts: Cohorts) -> Mechanism:
        samples = int(cohorts.samples.max())
        delta = self.chosen_delta(samples, "samples of the largest client")
        steps = self.steps(cohorts.local)
        release = Release(1, self.sample_share, self.noise_multiplier or 0.0, "poisson")
        if self.epsilon is not None:
            rounds = cohorts.rounds * steps
            release = with_noise(release, rounds, self.epsilon, delta, self.accountant, cohorts.noise_folder)
        else:
            warn_if_missing()
        return SampleNoise(release, delta, self, steps)


@dataclass(frozen=True)
class SampleNoise(Noise):
    """Clipping and noise in local training, of which every step is a release; uploads do not change.

    Attributes:
        settings: the user's settings.
        steps: number of a client's steps in a round.
    """

    settings: SampleLevel
    steps: int

    @property
    def noised_steps(self) -> NoisedSteps:
        return NoisedSteps(self.settings.clip, self.release.noise_multiplier, self.settings.sample_share)

    def local(self, local: LocalTraining) -> LocalTraining:
        return replace(local, epochs=None, steps=self.steps)

    def epsilons(self, rounds: int, participations: CountParticipations) -> dict[str, float]:
        losses = [self._loss(count) for count in participations().tolist()]
        return {"privacy/epsilon": max(losses), "privacy/epsilon_mean": math.fsum(losses) / len(losses)}

    @cached_property
    def _losses(self) -> dict[int, float]:
        return {}

    def _loss(self, rounds: int) -> float:
        """ε of a client that took part in this many rounds."""
        if rounds not in self._losses:
            loss = self.release.epsilon(rounds * self.steps, self.delta, self.settings.accountant)
            self._losses[rounds] = math.inf if loss is None else loss
        return self._losses[rounds]
