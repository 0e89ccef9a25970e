"""Reference values of ε, calibrated noise, and where they must be infinite, zero or unknown."""

from __future__ import annotations

import math

import pytest

from fedrun.system.errors import InputError
from fedrun.uploads.privacy import accountant
from fedrun.uploads.privacy.accountant import Release, calibrated, gaussian_multiplier

POISSON = [  # N, M, z, rounds, δ, ε by RDP, ε by PLD
    (1000, 10, 1.0, 1000, 1e-5, 2.101367, 1.828244),
    (60000, 256, 1.1, 14040, 1e-5, 2.594363, 2.379644),
    (10, 1, 1.0, 100, 1e-5, 7.903850, 7.046603),
    (100, 20, 2.0, 200, 1e-2, 4.895182, 4.062051),
    (7, 7, 4.0, 50, 1e-5, 9.234959, 8.595866),
    (1, 1, 1.0, 1, 1e-5, 4.728507, 4.377178),
    (342477, 100, 1.0, 1500, 1 / 342477, 0.605701, 0.053037),
    (3400, 100, 1.0, 1500, 3400**-1.1, 7.070588, 6.350059),
    (763430, 5000, 1.0, 5000, 1e-9, 4.183292, 3.898826),
    (3550, 8, 1.0, 200, 1.2437950e-4, 0.531573, 0.123523),
]


@pytest.mark.parametrize(("clients", "cohort", "noise", "rounds", "delta", "rdp", "pld"), POISSON)
def test_reference_values(clients, cohort, noise, rounds, delta, rdp, pld):
    release = Release(clients, cohort, noise, "poisson")
    assert release.epsilon(rounds, delta, "rdp") == pytest.approx(rdp, rel=1e-3)
    assert release.epsilon(rounds, delta, "pld") == pytest.approx(pld, rel=1e-3)


@pytest.mark.parametrize(
    ("clients", "cohort", "noise", "rounds", "delta", "rdp"),
    [(1000, 10, 1.0, 1000, 1e-5, 20.98707), (100, 20, 2.0, 200, 1e-2, 42.57264)],
)
def test_fixed_cohorts_are_accounted_for_by_replacing_one_client(clients, cohort, noise, rounds, delta, rdp):
    release = Release(clients, cohort, noise, "fixed")
    assert release.epsilon(rounds, delta, "rdp") == pytest.approx(rdp, rel=1e-3)
    assert release.epsilon(rounds, delta, "pld") is None


def test_everybody_in_fixed_cohorts_costs_twice_the_sensitivity():
    """One release with z = 1 under replacement is one with z = 1/2 under addition."""
    replaced = Release(5, 5, 1.0, "fixed").epsilon(1, 1e-5, "rdp")
    assert replaced == pytest.approx(Release(5, 5, 0.5, "poisson").epsilon(1, 1e-5, "rdp"), rel=1e-9)


def test_as_if_poisson():
    assumed, drawn = (Release(1000, 10, 1.0, sampling) for sampling in ("assume_poisson", "poisson"))
    assert assumed.epsilon(7, 1e-5, "pld") == drawn.epsilon(7, 1e-5, "pld")


@pytest.mark.parametrize("by", ["rdp", "pld"])
def test_the_ends(by):
    assert Release(10, 2, 1.0, "poisson").epsilon(0, 1e-5, by) == 0.0
    assert Release(10, 2, 0.0, "poisson").epsilon(1, 1e-5, by) == math.inf
    for cohort in (2, 10):  # noise whose square is no number above 0
        assert Release(10, cohort, 1e-200, "poisson").epsilon(1, 1e-5, by) == math.inf


@pytest.mark.parametrize(
    ("clients", "cohort", "rounds", "epsilon", "delta", "noise"),
    [
        (10**6, 1000, 1500, 2, 1e-6, 0.713777),
        (10**6, 5000, 2000, 2, 1e-6, 0.940087),
        (1000, 10, 1000, 2, 1e-5, 1.022290),
        (100, 20, 200, 8, 100**-1.1, 1.503633),
    ],
)
def test_noise_calibrated_by_rdp(clients, cohort, rounds, epsilon, delta, noise):
    release = calibrated(Release(clients, cohort, 0.0, "poisson"), rounds, epsilon, delta, "rdp")
    assert release.noise_multiplier == pytest.approx(noise, abs=2e-3)
    assert release.epsilon(rounds, delta, "rdp") <= epsilon


def test_noise_calibrated_by_pld():
    """Everybody in every round: the inverse of the closed form at z = 4, below which RDP's bound does not get."""
    release = calibrated(Release(7, 7, 0.0, "poisson"), 50, 8.595866, 1e-5, "pld")
    assert release.noise_multiplier == pytest.approx(4.0, abs=2e-3)
    assert release.epsilon(50, 1e-5, "pld") <= 8.595866
    assert calibrated(release, 50, 8.595866, 1e-5, "rdp").noise_multiplier > 4.1


def spent(clients: float, noise: float, rounds: int, delta: float) -> float:
    """ε by the library's own accountant of privacy loss distributions, for one client of ``clients`` per round."""
    import dp_accounting
    from dp_accounting import pld

    event = dp_accounting.PoissonSampledDpEvent(1 / clients, dp_accounting.GaussianDpEvent(noise))
    return pld.PLDAccountant().compose(event, rounds).get_epsilon(delta)


@pytest.mark.slow
def test_the_least_noise_by_pld_may_be_below_half_of_that_by_rdp():
    """The inverse of the reference value 0.053037 at z = 1; RDP needs 3.96 times more."""
    release = Release(342477, 100, 0.0, "poisson")
    by_pld, by_rdp = (calibrated(release, 1500, 0.053037, 1 / 342477, by).noise_multiplier for by in ("pld", "rdp"))
    assert by_pld == pytest.approx(1.0, abs=2e-3)
    assert by_rdp > 3 * by_pld


def test_an_epsilon_that_only_pld_reaches():
    """RDP's bound does not fall below 0.0102 at this δ, with any noise."""
    release = calibrated(Release(10**7, 1000, 0.0, "poisson"), 1500, 0.005, 1e-8, "pld")
    assert spent(10**4, release.noise_multiplier, 1500, 1e-8) <= 0.005
    assert spent(10**4, release.noise_multiplier - 1e-2, 1500, 1e-8) > 0.005


def test_the_smaller_bound_counts_where_losses_are_below_plds_grid():
    """200 000 steps with q = 0.001 and z = 40. For small losses they are nearly one Gaussian release with noise
    z / (q √steps) = 89.4, which costs 0.0308; RDP says 0.0355, and PLD, which rounds every loss up, 0.0585.
    """
    release, steps, delta = Release(1, 0.001, 40.0, "poisson"), 200_000, 1e-5
    assert gaussian_multiplier(0.0308, delta) == pytest.approx(40 / (0.001 * math.sqrt(steps)), rel=0.01)
    assert spent(1000, 40.0, steps, delta) > 0.05
    by_rdp = release.epsilon(steps, delta, "rdp")
    assert release.epsilon(steps, delta, "pld") == by_rdp == pytest.approx(0.0355, rel=1e-2)
    noised, other = (calibrated(release, steps, 0.05, delta, by) for by in ("pld", "rdp"))
    assert noised.noise_multiplier == pytest.approx(other.noise_multiplier, abs=1e-3)
    assert noised.epsilon(steps, delta, "pld") <= 0.05


def test_noise_of_one_gaussian_release():
    assert gaussian_multiplier(0.5, 1e-5) == pytest.approx(7.03183, rel=1e-5)


def test_an_epsilon_that_no_noise_reaches():
    with pytest.raises(InputError, match=r"^privacy\.epsilon=1e-09: no noise multiplier up to 1000 reaches it in 10 "):
        calibrated(Release(10, 10, 0.0, "poisson"), 10, 1e-9, 1e-12, "pld")


def test_without_the_library(monkeypatch):
    monkeypatch.setattr(accountant, "installed", lambda: False)
    with pytest.raises(InputError, match=r"install it: pip install 'fedrun\[privacy\]'$"):
        Release(10, 2, 1.0, "poisson").epsilon(1, 1e-5, "rdp")


def test_little_noise_is_accounted_for_by_rdp():
    """PLD would take minutes there. Without sampling it is exact for any noise."""
    little = Release(100, 10, 0.2, "poisson")
    assert little.epsilon(10, 1e-5, "pld") == little.epsilon(10, 1e-5, "rdp") > 10
    everyone = Release(10, 10, 0.2, "poisson")
    assert everyone.epsilon(10, 1e-5, "pld") < everyone.epsilon(10, 1e-5, "rdp")
