"""The privacy loss ε of rounds that release one noised sum each, by the library dp-accounting.

Two accountants: Rényi differential privacy (RDP; Mironov, 2017, arXiv 1702.07476), an upper bound, and privacy loss
distributions (PLD; Koskela et al., 2020, arXiv 1906.03049), nearly tight. The library takes seconds to import, so it is
imported when it is used.
"""

from __future__ import annotations

import importlib.util
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal

from fedrun.system.errors import InputError

log = logging.getLogger(__name__)

Sampling = Literal["poisson", "fixed", "assume_poisson"]
"""How a round's clients are drawn, and what the accountant assumes.

``poisson``: every client independently with probability q = M / N; neighbouring federations differ by one added or
removed client. ``fixed``: exactly M of N without replacement; neighbouring federations differ by one client that is
replaced, and only RDP has a bound. ``assume_poisson``: exactly M of N are drawn, and noise is calibrated as if by
Poisson sampling, as simulators usually do; that ε is not proved for this draw, and is reported separately.
"""

AccountantName = Literal["pld", "rdp"]

INSTALL = "pip install 'fedrun[privacy]'"

SMALLEST, LARGEST = 0.05, 1000.0
"""The range of noise multipliers that :func:`calibrated` searches."""

SMALLEST_BY_PLD = 0.3
"""Below this noise multiplier ε of sampled cohorts is RDP's bound: PLD would take minutes, or all memory."""

NEGLIGIBLE = 1e-100
"""Below this noise multiplier ε, which is above 1e200, counts as infinite: dp-accounting divides by its square."""

TOLERANCE = 5e-4
"""A calibrated noise multiplier exceeds the least sufficient one by 0.5 to 1.5 times this."""


def installed() -> bool:
    """Whether dp-accounting is installed."""
    return importlib.util.find_spec("dp_accounting") is not None


def warn_if_missing() -> None:
    """Warn that a run without dp-accounting reports no ε."""
    if not installed():
        log.warning("privacy/epsilon is not reported: dp-accounting is not installed; install it: %s", INSTALL)


@dataclass(frozen=True)
class Release:
    """The release of one round: the sum of the cohort's clipped uploads with Gaussian noise.

    Or of one step of DP-SGD, the sum of the batch's clipped gradients: then N = 1, and M is the probability of each
    sample.

    Attributes:
        clients: N ≥ 1, the clients that can be drawn.
        cohort: M in (0, N], the expected number of clients in a round; a whole number unless sampling is Poisson's.
        noise_multiplier: z ≥ 0, the noise's standard deviation as a multiple of the clipping bound.
        sampling: how the cohort is drawn.
    """

    clients: int
    cohort: float
    noise_multiplier: float
    sampling: Sampling

    @property
    def probability(self) -> float:
        """q = M / N."""
        return self.cohort / self.clients

    def epsilon(self, rounds: int, delta: float, accountant: AccountantName) -> float | None:
        """ε at δ of these rounds: ∞ without noise, 0 before the first, None if the accountant has no bound.

        With ``pld`` it is RDP's bound where that is smaller: PLD rounds each round's loss up to its grid, which counts
        where losses are far below the grid's step.
        """
        if accountant == "pld" and self.sampling == "fixed":
            return None
        if not rounds:
            return 0.0
        if self.noise_multiplier < NEGLIGIBLE:
            return math.inf
        subsampled = self.cohort < self.clients
        if accountant == "rdp" or (subsampled and self.noise_multiplier < SMALLEST_BY_PLD):
            return _rdp(self, rounds, delta)
        if self.cohort == self.clients:  # Gaussian releases compose to one with z / √rounds
            return float(_dp_accounting().get_epsilon_gaussian(self.noise_multiplier / math.sqrt(rounds), delta))
        by_pld = float(self._one_round.self_compose(rounds).get_epsilon_for_delta(delta))
        return min(by_pld, _rdp(self, rounds, delta))

    @cached_property
    def _one_round(self) -> Any:
        """The privacy loss distribution of one round, which takes longer to compute than to compose."""
        _dp_accounting()
        from dp_accounting.pld import privacy_loss_distribution

        return privacy_loss_distribution.from_gaussian_mechanism(
            standard_deviation=self.noise_multiplier, sampling_prob=self.probability
        )


@lru_cache(maxsize=4)  # both bounds of a row need it, see Release.epsilon
def _rdp(release: Release, rounds: int, delta: float) -> float:
    """ε by RDP."""
    accounting = _dp_accounting()
    from dp_accounting import rdp

    relation, event = accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, accounting.GaussianDpEvent
    if release.sampling == "fixed":
        # Replacing one clipped upload by another moves the sum by up to 2 S: noise z S is z / 2 of that.
        one_round: Any = event(release.noise_multiplier / 2)
        if release.cohort < release.clients:
            relation = accounting.NeighboringRelation.REPLACE_ONE
            one_round = accounting.SampledWithoutReplacementDpEvent(release.clients, int(release.cohort), one_round)
    else:
        one_round = accounting.PoissonSampledDpEvent(release.probability, event(release.noise_multiplier))
    accountant = rdp.RdpAccountant(neighboring_relation=relation)
    return float(accountant.compose(one_round, rounds).get_epsilon(delta))


def calibrated(release: Release, rounds: int, epsilon: float, delta: float, accountant: AccountantName) -> Release:
    """The release with the least noise multiplier for which this many rounds cost at most ε at δ.

    RDP bounds PLD's search from above, since a step of PLD takes about a second.

    Raises:
        InputError: no noise multiplier up to :data:`LARGEST` reaches it, or dp-accounting is missing.
    """
    if release.sampling == "fixed":
        accountant = "rdp"

    def excess(noise_multiplier: float, by: AccountantName = accountant) -> float:
        spent = replace(release, noise_multiplier=noise_multiplier).epsilon(rounds, delta, by)
        assert spent is not None
        return math.log(max(spent, 1e-12) / epsilon)

    if excess(LARGEST) > 0:
        raise InputError(
            f"privacy.epsilon={epsilon:g}: no noise multiplier up to {LARGEST:g} reaches it in {rounds} rounds with "
            f"delta={delta:g}; allowed: a larger epsilon, fewer rounds or fewer clients per round"
        )
    sufficient = LARGEST
    if excess(LARGEST, "rdp") <= 0:
        sufficient = _root(lambda z: excess(z, "rdp"), SMALLEST, LARGEST)
    if accountant == "pld":
        low = max(SMALLEST, sufficient / 2)
        while low > SMALLEST and excess(low) <= 0:  # PLD may need far less noise than RDP
            low, sufficient = max(SMALLEST, low / 2), low
        sufficient = _root(excess, low, sufficient)
    return replace(release, noise_multiplier=sufficient)


def _root(excess: Callable[[float], float], low: float, high: float) -> float:
    """Where a falling function reaches 0, too large by 0.5 to 1.5 times :data:`TOLERANCE`; ``low`` if it is below 0
    there.
    """
    if excess(low) <= 0:
        return low
    # by logarithms, which are almost proportional
    from scipy.optimize import brentq  # takes as long to import as a small run

    root = float(brentq(lambda x: excess(math.exp(x)), math.log(low), math.log(high), xtol=TOLERANCE / (2 * high)))
    return math.exp(root) + TOLERANCE


def gaussian_multiplier(epsilon: float, delta: float) -> float:
    """The standard deviation, as a multiple of the sensitivity, of one Gaussian release that costs (ε, δ)."""
    return float(_dp_accounting().get_sigma_gaussian(epsilon, delta))


def _dp_accounting() -> Any:
    """The library. Its warnings about RDP orders that do not converge are disabled; these orders are skipped.

    Raises:
        InputError: it is not installed.
    """
    if not installed():
        raise InputError(f"privacy: ε is computed by dp-accounting, which is not installed; install it: {INSTALL}")
    import dp_accounting
    from absl import logging

    logging.set_verbosity(logging.ERROR)
    return dp_accounting
