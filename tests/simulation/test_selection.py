from dataclasses import replace
from types import MappingProxyType

import pytest
import torch

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.config.config_class import config_class
from fedrun.experiment.experiment import build_experiment
from fedrun.experiment.participation.base import Participation, select
from fedrun.experiment.participation.bernoulli import Bernoulli
from fedrun.experiment.participation.poisson import Poisson
from fedrun.simulation.selection import ParticipationCounts
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.phase import cohort_size
from fedrun.system.errors import InputError

from ..helpers.small_networks import mlp


@pytest.mark.parametrize(
    ("wanted", "clients", "size"),
    [
        (8, 100, 8),
        (100, 100, 100),
        (1, 100, 1),
        (0.1, 100, 10),
        (0.07, 100, 7),  # 0.07 * 100 is 7.000000000000001
        (0.29, 100, 29),  # 0.29 * 100 is 28.999999999999996
        (0.1, 101, 11),
        (0.101, 100, 11),
        (0.5, 3, 2),
        (0.001, 10, 1),
        (1.0, 7, 7),
    ],
)
def test_a_share_is_rounded_up_and_a_number_is_itself(wanted, clients, size):
    assert cohort_size(wanted, clients) == size


def test_more_clients_than_there_are_is_refused():
    with pytest.raises(InputError, match=r"clients_per_round=11: the federation has 10 clients; allowed: 1 to 10"):
        cohort_size(11, 10)


@pytest.mark.parametrize(("clients", "count"), [(10, 4), (10, 10), (5, 1), (1, 1)])
def test_a_cohort_has_distinct_clients(clients, count):
    for t in range(50):
        cohort = select(3, t, clients, count)
        assert cohort.dtype == torch.int64
        assert cohort.shape == (count,)
        assert len(set(cohort.tolist())) == count
        assert set(cohort.tolist()) <= set(range(clients))


@pytest.mark.parametrize("count", [4, 10])
def test_a_cohort_is_a_function_of_seed_and_round(count):
    first = select(0, 5, 10, count)
    torch.rand(7)
    assert torch.equal(select(0, 5, 10, count), first)
    assert not torch.equal(select(0, 6, 10, count), first)
    assert not torch.equal(select(1, 5, 10, count), first)


@pytest.mark.parametrize("count", [3, 10])
def test_every_client_is_as_likely_at_every_place(count):
    """A client is expected at a place in 200 of 2000 cohorts, with standard deviation sqrt(2000 · 0.1 · 0.9) = 13.4."""
    times = torch.zeros(10, count)
    for t in range(2000):
        times[select(0, t, 10, count), torch.arange(count)] += 1
    assert ((times - 200).abs() < 67).all()


def test_participations_are_counted_once():
    """Counts after any rounds, in any order, are those of a new count."""
    counts = ParticipationCounts(3, 7, 2)
    for rounds in (0, 2, 5, 5, 1, 4):
        expected = [sum(client in select(3, round, 7, 2).tolist() for round in range(rounds)) for client in range(7)]
        assert counts.after(rounds).tolist() == expected


NUMBERS = torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("returned", "wrong"),
    [
        (None, "a NoneType"),
        (NUMBERS, "a Tensor"),
        (([0, 1], {}), "a list"),
        ((NUMBERS, None), "a NoneType of metrics"),
        ((NUMBERS, {"clients/share": torch.tensor(0.5)}), "a Tensor as clients/share"),
        ((NUMBERS, {"test/accuracy": 1.0}), "the metric test/accuracy"),
    ],
)
def test_a_rule_that_returns_something_else(returned, wrong, make_experiment):
    @config_class
    class Own(Participation):
        def participants(self, candidates):
            return returned

    simulation = Simulation(make_experiment(participation=Own()))
    with pytest.raises(InputError, match=rf"Own.participants: returned {wrong}; allowed: the numbers of different cl"):
        simulation.advance(simulation.initial())


@pytest.mark.parametrize("varying", [False, True])
def test_a_rule_that_chooses_more_clients_than_a_round_has(varying, make_experiment):
    @config_class
    class Everyone(Participation):
        @property
        def varies(self):
            return varying

        def participants(self, candidates):
            return torch.arange(len(candidates.samples)), {}

    simulation = Simulation(make_experiment(participation=Everyone(), clients_per_round=2))
    if varying:
        assert simulation.uploads(simulation.initial()).clients.tolist() == [0, 1, 2, 3, 4, 5]
        return
    with pytest.raises(InputError, match=r"Everyone.participants: returned 6 clients; allowed: at most 2, as clients"):
        simulation.advance(simulation.initial())


@pytest.mark.parametrize("none", [{}, MappingProxyType({})])
def test_a_rule_that_returns_the_same_metrics_in_every_round(none, make_experiment):
    @config_class
    class Own(Participation):
        def participants(self, candidates):
            return NUMBERS, none

    simulation = Simulation(make_experiment(participation=Own()))
    state = simulation.initial()
    for _ in range(2):
        state, metrics = simulation.advance(state)
        assert "train/loss" in metrics
    assert none == {}


def test_the_next_rounds_participants_are_checked_before_idle_clients_train(make_experiment):
    """FedUmf's clients that will take part in round 2 train in round 1, too."""

    @config_class
    class Own(Participation):
        @property
        def known_in_advance(self):
            return True

        def participants(self, candidates):
            return torch.tensor([[0, 1], [5, 5]][candidates.round]), {}

    experiment = make_experiment(network=mlp, strategy=option("strategy", "fedumf"), participation=Own(), rounds=2)
    simulation = Simulation(experiment)
    with pytest.raises(InputError, match=r"Own.participants: returned client 5 twice; allowed: the numbers of"):
        simulation.advance(simulation.initial())


@pytest.mark.parametrize("base", [Poisson, Bernoulli])
def test_an_own_choice_among_drawn_clients_is_not_known_in_advance(base):
    """It may depend on losses; FedUmf's idle clients and secure sums need the choice of the next round, or of any."""

    @config_class
    class Own(base):
        def participants(self, candidates):
            drawn, metrics = super().participants(candidates)
            return drawn[candidates.losses(drawn) > 1], metrics

    assert base().known_in_advance and not Own().known_in_advance
    with pytest.raises(InputError, match="cannot be combined with idle clients"):
        replace(build_experiment(compose(["strategy=fedumf"])), participation=Own())


def test_a_rule_that_changes_numbers_of_samples_changes_its_copy(make_experiment):
    @config_class
    class Own(Participation):
        def participants(self, candidates):
            candidates.samples.zero_()
            return Participation.participants(self, candidates)

    simulation, plain = Simulation(make_experiment(participation=Own())), Simulation(make_experiment())
    after, expected = (each.advance(each.initial())[0].server.model for each in (simulation, plain))
    assert torch.equal(after, expected)


def test_a_rule_that_asks_for_thresholds_which_clients_do_not_have(make_experiment):
    @config_class
    class Own(Participation):
        def participants(self, candidates):
            return candidates.thresholds().topk(candidates.size).indices, {}

    simulation = Simulation(make_experiment(participation=Own()))
    with pytest.raises(InputError, match=r"Own needs every client's threshold; choose appeal=warmup$"):
        simulation.advance(simulation.initial())
