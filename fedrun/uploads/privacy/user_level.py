"""User-level differential privacy: clipped uploads, noise on their sum (McMahan et al., 2018, arXiv 1710.06963)."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt

from fedrun.config.allowed_values import shown
from fedrun.config.config_class import config_class
from fedrun.strategies.local_training import LocalTraining
from fedrun.strategies.server import CohortUpdate, Round, Senders
from fedrun.strategies.vectors import Vectors
from fedrun.system.errors import InputError
from fedrun.system.randomness import generator
from fedrun.uploads.privacy.accountant import AccountantName, Release, Sampling, warn_if_missing
from fedrun.uploads.privacy.base import Cohorts, CountParticipations
from fedrun.uploads.privacy.calibration import with_noise
from fedrun.uploads.privacy.clipping import CLIPPED, ClippedUploads, clip
from fedrun.uploads.privacy.target import LARGEST_DEVIATION, Noise
from fedrun.uploads.transform import Combined, Sender, Sent

log = logging.getLogger(__name__)


@config_class
class UserLevel(ClippedUploads):
    """The server learns the sum of clipped uploads with Gaussian noise: a client with all its samples is protected.

    The noise on the sum has standard deviation z S. ``epsilon`` is the target for the run's rounds, and the N clients
    are the protected units.

    Attributes (besides those of :class:`ClippedUploads`):
        accountant: computes z and ``privacy/epsilon``.
        denominator: of the mean: ``fixed``: q N, which is known in advance; ``cohort``: the clients that took part. An
            upload that is not finite counts as the zero vector.
        max_weight: w_max > 0: clients weigh min(n_k, w_max), with noise for the largest weight; None: equal weights.
        sampling: how cohorts are drawn and accounted for, see :data:`fedrun.uploads.privacy.accountant.Sampling`.
        noise_cohort: simulate the noise of a cohort of this size, drawn from a population; None: of the run's own.
        population: the size of that population.
    """

    accountant: AccountantName
    denominator: Literal["fixed", "cohort"]
    max_weight: Annotated[float, Gt(0)] | None
    sampling: Sampling
    noise_cohort: Annotated[int, Ge(1)] | None
    population: Annotated[int, Ge(1)] | None

    @property
    def cohort_sampling(self) -> Sampling | None:
        return self.sampling

    def check(self, local: LocalTraining) -> None:
        super().check(local)
        if (self.noise_cohort is None) != (self.population is None):
            raise InputError(
                f"privacy.noise_cohort={shown(self.noise_cohort)} with privacy.population={shown(self.population)}: "
                "allowed: both or neither"
            )
        if self.noise_cohort is not None and self.population is not None and self.noise_cohort > self.population:
            raise InputError(f"privacy.noise_cohort={self.noise_cohort}: allowed: at most population={self.population}")
        if self.noise_cohort is not None and self.sampling == "fixed":
            raise InputError("privacy.noise_cohort is accounted for by Poisson sampling; allowed: sampling=poisson")

    def mechanism(self, cohorts: Cohorts) -> CentralNoise:
        ours = Release(cohorts.clients, cohorts.size, self.noise_multiplier or 0.0, self.sampling)
        scaled = None
        if self.noise_cohort is not None and self.population is not None:
            if self.noise_cohort < cohorts.size:
                raise InputError(
                    f"privacy.noise_cohort={self.noise_cohort}: allowed: at least the {cohorts.size} clients per round"
                )
            scaled = replace(ours, clients=self.population, cohort=self.noise_cohort)
        delta = self.chosen_delta(self.population or cohorts.clients, "clients")
        wanted = scaled or ours
        if self.epsilon is not None:
            wanted = with_noise(wanted, cohorts.rounds, self.epsilon, delta, self.accountant, cohorts.noise_folder)
        else:
            warn_if_missing()
        if self.denominator == "cohort" and self.sampling == "poisson":
            log.warning(
                "privacy.denominator=cohort: the size of a Poisson cohort is private, and ε does not "
                "cover it; fixed divides by the expected size"
            )
        # r = C / C̃: the noise of a mean over C̃ clients on a sum of C
        ratio = 1.0 if scaled is None else cohorts.size / wanted.cohort
        samples = cohorts.samples.double()
        return CentralNoise(
            settings=self,
            release=replace(ours, noise_multiplier=wanted.noise_multiplier * ratio),
            at_scale=None if scaled is None else wanted,
            delta=delta,
            client_weights=torch.ones_like(samples) if self.max_weight is None else samples.clamp(max=self.max_weight),
            norm_growth=cohorts.norm_growth,
        )


@dataclass(frozen=True)
class CentralNoise(Noise):
    """Clipping on the clients, noise on the server; a round is a release, with the noise multiplier of the added noise.

    Attributes:
        settings: the user's settings.
        at_scale: the release in the simulated larger cohort; None: no simulation.
        client_weights: w_k of the N clients, float64 ``[N]``.
        norm_growth: the largest growth of an upload's norm after clipping.
    """

    settings: UserLevel
    at_scale: Release | None
    client_weights: torch.Tensor
    norm_growth: float

    def weights(self, senders: Senders) -> torch.Tensor | None:
        return self.client_weights[senders.clients]

    def bound(self, slots: Vectors) -> float:
        """S, given the server's slots or what they broadcast."""
        return self.settings.clip

    @property
    def update_noise(self) -> float:
        """The noise multiplier of the sum of uploads."""
        return self.release.noise_multiplier

    def send(self, displacements: Vectors, sender: Sender) -> Sent:
        bound, settings = self.bound(sender.received), self.settings
        longer = clip(displacements, bound, settings.layers, sender.shapes, settings.extra_share)
        return Sent(displacements if longer else {}, measures={CLIPPED: float(longer)})

    def combine(self, displacements: Vectors, update: CohortUpdate, slots: Vectors, round: Round) -> Combined:
        bound, total = self.bound(slots), update.total_weight
        expected = self.release.cohort * float(self.client_weights.mean())  # q W
        denominator = expected
        if self.settings.denominator == "cohort":
            denominator = total + float(self.client_weights[list(update.excluded)].sum()) or 1.0
        deviation = min(
            self.update_noise * (self.settings.max_weight or 1.0) * (bound + self.norm_growth), LARGEST_DEVIATION
        )
        draw = generator(round.seed, "privacy", round.index)
        signal, noised, entries = 0.0, dict[str, torch.Tensor](), 0
        for name in sorted(displacements):
            # Δ = (Σ w_k c_k + z w_max S ξ) / den
            total_sum = displacements[name].mul_(total)
            signal += float(torch.linalg.vector_norm(total_sum)) ** 2
            entries += len(total_sum)
            if deviation:
                noise = torch.randn(len(total_sum), generator=draw).to(total_sum.device)
                total_sum.add_(noise, alpha=deviation)
            noised[name] = total_sum.div_(denominator)
        metrics = {
            "privacy/clip": bound,
            "privacy/sigma_mean": deviation / denominator,
            "privacy/cohort": float(len(update.clients) + len(update.excluded)),
        }
        if deviation:
            metrics["privacy/snr"] = math.sqrt(signal) / (deviation * math.sqrt(entries))
        clients = self.release.cohort * denominator / expected
        return Combined(noised, {}, metrics, clients)

    def epsilons(self, rounds: int, participations: CountParticipations) -> dict[str, float]:
        accountant, assumed = self.settings.accountant, self.release.sampling == "assume_poisson"
        # the bound that is proved for the drawn cohorts
        drawn = replace(self.release, sampling="fixed") if assumed else self.release
        by_rdp = drawn.epsilon(rounds, self.delta, "rdp")
        by_pld = drawn.epsilon(rounds, self.delta, "pld") if accountant == "pld" else None
        losses = {
            "privacy/epsilon": by_rdp if by_pld is None else by_pld,
            "privacy/epsilon_rdp": by_rdp,
        }
        if assumed:
            losses["privacy/epsilon_if_poisson"] = self.release.epsilon(rounds, self.delta, accountant)
        if self.at_scale is not None:
            losses["privacy/epsilon_at_scale"] = self.at_scale.epsilon(rounds, self.delta, accountant)
        return {name: epsilon for name, epsilon in losses.items() if epsilon is not None}
