"""Every client takes part by its own coin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fedrun.config.build import option
from fedrun.experiment.experiment import Experiment
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation
from fedrun.system.errors import InputError

from ..helpers.quadratic_clients import SGD
from ..helpers.small_networks import mlp
from .test_power_of_choice import candidates

BERNOULLI = option("participation", "bernoulli")


def test_clients_are_drawn_independently_and_again_if_none_is() -> None:
    """Four clients with probability 1/4 over 4 000 rounds, where none would take part in (3/4)^4 of the draws."""
    rounds, some = 4000, 1 - 0.75**4
    taking_part = np.zeros((rounds, 4))
    for round in range(rounds):
        drawn, metrics = BERNOULLI.participants(candidates([1, 1, 2, 4], [0.0] * 4, 1, round))
        taking_part[round, drawn.numpy()] = 1
        assert metrics == {"clients/participants": len(drawn)}
    assert taking_part.sum(1).min() == 1

    def assert_near(count: float, probability: float) -> None:
        assert abs(count - rounds * probability) <= 4 * np.sqrt(rounds * probability * (1 - probability))

    pairs = taking_part.T @ taking_part
    for k in range(4):
        assert_near(pairs[k, k], 1 / 4 / some)
        for j in range(k):
            assert_near(pairs[k, j], 1 / 16 / some)


def test_the_draw_depends_on_seed_and_round_only() -> None:
    def drawn(**changed: int) -> list[int]:
        return BERNOULLI.participants(replace(candidates([1] * 40, [0.0] * 40, 20), **changed))[0].tolist()

    assert drawn() == drawn()
    assert drawn() != drawn(round=1) and drawn() != drawn(seed=1)


def test_everyone_takes_part_with_probability_one() -> None:
    assert BERNOULLI.participants(candidates([1] * 5, [0.0] * 5, 5))[0].tolist() == [0, 1, 2, 3, 4]


def test_fedumfs_idle_clients_train_for_the_next_draw(
    make_experiment: Callable[..., Experiment], caplog: pytest.LogCaptureFixture
) -> None:
    """After every round those hold a displacement who were idle in it and take part in the next."""
    strategy = Strategy(client=SGD, server=option("strategy/server", "fedumf", alpha=1.0))
    simulation = Simulation(
        make_experiment(network=mlp, strategy=strategy, clients_per_round=3, rounds=6, participation=BERNOULLI)
    )
    sizes = simulation.federation.train.sizes.tolist()
    cohorts = [set(BERNOULLI.participants(candidates(sizes, [0.0] * 6, 3, t))[0].tolist()) for t in range(6)]
    assert len({len(cohort) for cohort in cohorts}) > 1
    state = simulation.initial()
    caplog.set_level("INFO")
    for round in range(6):
        state, metrics = simulation.advance(state)
        assert metrics["clients/participants"] == len(cohorts[round])
        assert set(state.client_states.held) == (cohorts[round + 1] - cohorts[round] if round < 5 else set())
    assert "take part" not in caplog.text  # fewer than the mean are nothing to report


def test_privacy_accounts_for_its_own_draws(make_experiment: Callable[..., Experiment]) -> None:
    private = option("privacy", "user_level", noise_multiplier=1.0)
    with pytest.raises(InputError, match=r"privacy=user_level with participation=bernoulli.*participation=everyone"):
        make_experiment(network=mlp, participation=BERNOULLI, privacy=private)
