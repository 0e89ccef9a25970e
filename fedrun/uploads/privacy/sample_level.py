"""Sample-level differential privacy: every client trains by DP-SGD (Abadi et al., 2016, arXiv 1607.00133)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

from annotated_types import Ge, Gt, Le, Lt

from fedrun.config.config_class import config_class
from fedrun.config.identity import Neutral
from fedrun.strategies.local_training import LocalTraining
from fedrun.system.errors import InputError
from fedrun.uploads.privacy.accountant import AccountantName, Release, installed, warn_if_missing
from fedrun.uploads.privacy.base import Cohorts, CountParticipations, Mechanism, NoisedSteps, Privacy
from fedrun.uploads.privacy.user_level import check_target, chosen_delta


@config_class
class SampleLevel(Privacy):
    """Clients protect their samples from everybody who sees their uploads; the numbers of samples are public.

    A step draws each sample of the client with the same probability, clips its gradient, and adds noise to their sum.
    Two clients' data are neighbours if one has one sample more. The number of a round's steps is E / q_s, so that a
    sample is drawn E times on average (``local.epochs``), or ``local.steps``.

    Attributes:
        clip: C > 0, the largest Euclidean norm of a sample's gradient.
        noise_multiplier: z ≥ 0; the noise on a step's sum has standard deviation z C. None: calibrated to ``epsilon``.
        epsilon: ε > 0 of a client that takes part in every round. None if ``noise_multiplier`` is given.
        delta: δ in (0, 1); None: n^−1.1 for the n samples of the largest client.
        allow_large_delta: whether δ ≥ 1/n is accepted.
        accountant: computes z and ``privacy/epsilon``.
        sample_share: q_s in [1e-6, 1], the probability with which a step draws a sample.
    """

    clip: Annotated[float, Gt(0)]
    noise_multiplier: Annotated[float, Ge(0)] | None
    epsilon: Annotated[float, Gt(0)] | None
    delta: Annotated[float, Gt(0), Lt(1)] | None
    allow_large_delta: Annotated[bool, Neutral(False)]
    accountant: AccountantName
    sample_share: Annotated[float, Ge(1e-6), Le(1)]

    def check(self, local: LocalTraining) -> None:
        check_target(self.noise_multiplier, self.epsilon)
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
        delta = chosen_delta(self.delta, samples, "samples of the largest client", self.allow_large_delta)
        steps = self.steps(cohorts.local)
        release = Release(1, self.sample_share, self.noise_multiplier or 0.0, "poisson")
        if self.epsilon is not None:
            release = cohorts.calibration.release(release, cohorts.rounds * steps, self.epsilon, delta, self.accountant)
        else:
            warn_if_missing()
        return SampleNoise(self, release, steps, delta)


@dataclass(frozen=True)
class SampleNoise(Mechanism):
    """Clipping and noise in the steps of local training; uploads do not change.

    Attributes:
        settings: of the user.
        release: of one step.
        steps: of a client in a round.
        delta: δ.
    """

    settings: SampleLevel
    release: Release
    steps: int
    delta: float

    @property
    def noised_steps(self) -> NoisedSteps:
        return NoisedSteps(self.settings.clip, self.release.noise_multiplier, self.settings.sample_share)

    def local(self, local: LocalTraining) -> LocalTraining:
        return replace(local, epochs=None, steps=self.steps)

    def report(self, rounds: int, participations: CountParticipations) -> dict[str, float]:
        metrics = {"privacy/delta": self.delta, "privacy/noise_multiplier": self.release.noise_multiplier}
        if not installed():
            return metrics
        losses = [self._loss(count) for count in participations().tolist()]
        return metrics | {"privacy/epsilon": max(losses), "privacy/epsilon_mean": math.fsum(losses) / len(losses)}

    @cached_property
    def _losses(self) -> dict[int, float]:
        return {}

    def _loss(self, rounds: int) -> float:
        """ε of a client that took part in this many rounds."""
        if rounds not in self._losses:
            loss = self.release.epsilon(rounds * self.steps, self.delta, self.settings.accountant)
            self._losses[rounds] = math.inf if loss is None else loss
        return self._losses[rounds]
