"""Who is unseen, who tests on what, whose labels are flipped."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedrun.data.federation import ClientIndices, Clients, Federation
from fedrun.data.population import Population
from fedrun.data.split_samples import HeldOut
from fedrun.simulation.simulation import Simulation
from fedrun.system.errors import InputError

from ..conftest import GivenSizes, small_images

SIZES = (3, 12, 8, 5, 20, 12, 1, 10)


def population(
    unseen: int = 0, test_share: float = 0.0, flipped: float = 0.0, seed: int | None = None, test_of: HeldOut = "auto"
) -> Population:
    return Population(
        unseen_clients=unseen, test_share=test_share, test_of=test_of, flipped_share=flipped, pooled=False, seed=seed
    )


@pytest.fixture(scope="module")
def federation() -> Federation:
    return GivenSizes(SIZES).split(small_images(sum(SIZES), 30), 0)


def populations(federation: Federation) -> list[Clients]:
    """The clients that train, and the unseen ones."""
    flipped = federation.flipped
    assert flipped is not None
    seen = Clients(federation.train, federation.client_test, flipped)
    return [seen] if federation.unseen is None else [seen, federation.unseen]


@pytest.fixture(scope="module")
def tested(federation) -> Federation:
    """Client k tests on samples 71 + 2 k and 72 + 2 k, the first 16 of the 30 pooled test samples."""
    return replace(federation, client_test=ClientIndices.of(np.split(np.arange(71, 87), 8)))


def test_the_partitions_tests_stay_with_their_clients(tested):
    assert population().populate(tested, 0) is tested
    made = population(3).populate(tested, 0)
    assert [len(clients.train) for clients in populations(made)] == [5, 3]
    for clients in populations(made):
        assert clients.test is not None and clients.test.names == clients.train.names
        for k, name in enumerate(clients.train.names):
            assert clients.test[k].tolist() == [71 + 2 * int(name), 72 + 2 * int(name)]


@pytest.mark.parametrize(("pooled", "copies"), [(71, 8), (87, 0)])
def test_the_partitions_tests_are_flipped_and_the_pooled_one_is_not(tested, pooled, copies):
    """Four of eight clients have flipped labels; samples that the pooled test, from ``pooled`` on, needs are copied."""
    before = replace(tested, test=ClientIndices.of([np.arange(pooled, 101)]))
    made = population(3, flipped=0.5).populate(before, 1)
    old, new = before.dataset, made.dataset
    assert len(new.targets) == len(new.inputs) == 101 + copies
    assert torch.equal(made.test.samples, before.test.samples)
    assert torch.equal(new.targets[made.test.samples], old.targets[before.test.samples])
    flips = 0
    for clients in populations(made):
        for k, (name, flipped) in enumerate(zip(clients.train.names, clients.flipped.tolist(), strict=True)):
            for mine, original in ((clients.train[k], before.train), (clients.test[k], before.client_test)):
                labels, samples = old.targets[original[int(name)]], old.inputs[original[int(name)]]
                assert torch.equal(new.targets[mine], 2 - labels if flipped else labels)
                assert torch.equal(new.inputs[mine], samples)
            flips += flipped
    assert flips == 4


@pytest.mark.parametrize("seed", range(4))
def test_a_group_without_the_partitions_tests_has_none(federation, seed):
    """Only client 4 tests, which is unseen or not. Personal models would be tested on no sample."""
    tests = ClientIndices.of([np.arange(71, 75 if client == 4 else 71) for client in range(8)])
    made = population(unseen=4, seed=seed).populate(replace(federation, client_test=tests), 0)
    for clients in populations(made):
        assert (clients.test is None) == ("4" not in clients.train.names)
        assert clients.test is None or clients.test.samples.tolist() == [71, 72, 73, 74]


def test_nothing_asked_for_changes_nothing(federation):
    assert population().populate(federation, 0) is federation


def test_a_share_of_nobody_is_refused(federation):
    least = 1 / len(SIZES)
    with pytest.raises(InputError, match=rf"flipped_share=0\.01: of {len(SIZES)} clients that is none; .* {least:g}"):
        population(flipped=0.01).populate(federation, 0)


@pytest.mark.parametrize("seed", range(4))
def test_every_sample_stays_with_its_client_once(federation, seed):
    made = population(3, 0.4, 0.25).populate(federation, seed)
    original = {str(k): sorted(federation.train[k].tolist()) for k in range(len(SIZES))}
    found = {}
    for clients in populations(made):
        assert clients.test is not None
        for k in range(len(clients.train)):
            assert clients.test.name(k) == clients.train.name(k)
            found[clients.train.name(k)] = sorted([*clients.train[k].tolist(), *clients.test[k].tolist()])
    assert found == original  # nobody is both seen and unseen, nothing is lost or doubled
    assert [len(clients.train) for clients in populations(made)] == [5, 3]
    assert torch.equal(made.test.samples, federation.test.samples)


def test_floors_of_the_split(federation):
    """⌊0.6 n⌋ of n = 3, 12, 8, 5, 20, 12, 1, 10 samples are for training, and at least one."""
    made = population(test_share=0.4).populate(federation, 0)
    assert made.train.sizes.tolist() == [1, 7, 4, 3, 12, 7, 1, 6]
    assert made.client_test is not None
    assert made.client_test.sizes.tolist() == [2, 5, 4, 2, 8, 5, 0, 4]
    nearly_all = population(test_share=0.99).populate(federation, 0)
    assert nearly_all.train.sizes.tolist() == [1] * 8


def test_a_split_in_which_nobody_has_two_samples_is_refused(federation):
    alone = replace(federation, train=ClientIndices.of([np.array([sample]) for sample in range(3)]))
    with pytest.raises(
        InputError, match=r"^population\.test_share=0\.4: no client that trains has enough samples for a test"
    ):
        population(test_share=0.4).populate(alone, 0)


def test_a_split_in_which_only_unseen_clients_have_two_samples_is_refused(federation):
    """Of two clients with 1 and 9 samples one is unseen: by seed either has no test, or the other one trains."""
    unequal = replace(federation, train=ClientIndices.of([np.arange(1), np.arange(1, 10)]))
    for seed in range(10):
        if population(unseen=1).populate(unequal, seed).train.sizes.tolist() == [9]:
            made = population(unseen=1, test_share=0.4).populate(unequal, seed)
            assert made.client_test is not None and made.client_test.sizes.tolist() == [4]
        else:
            with pytest.raises(InputError, match="no client that trains has enough samples for a test sample"):
                population(unseen=1, test_share=0.4).populate(unequal, seed)


def test_the_split_is_random_within_a_client(federation):
    """Over many seeds each of a client's 20 samples is in its test about as often: 0.4 of 400, give or take 5 sigma."""
    counts = dict.fromkeys(federation.train[4].tolist(), 0)
    for seed in range(400):
        test = population(test_share=0.4).populate(federation, seed).client_test
        assert test is not None
        for sample in test[4].tolist():
            counts[sample] += 1
    assert max(abs(count - 160) for count in counts.values()) < 5 * (400 * 0.4 * 0.6) ** 0.5


def test_unseen_clients_are_drawn_uniformly(federation):
    """Each of the 8 clients is one of the 3 unseen in 3/8 of 160 draws, give or take 5 sigma."""
    counts = dict.fromkeys(map(str, range(8)), 0)
    for seed in range(160):
        unseen = population(3).populate(federation, seed).unseen
        assert unseen is not None and unseen.train.names is not None and unseen.test is None
        for name in unseen.train.names:
            counts[name] += 1
    assert max(abs(count - 60) for count in counts.values()) < 5 * (160 * 3 / 8 * 5 / 8) ** 0.5


@pytest.mark.parametrize(("share", "flipped"), [(0.25, 2), (0.3, 2), (0.4, 3), (1.0, 8)])
def test_flips_are_on_the_flipped_clients_samples_only(federation, share, flipped):
    made = population(3, 0.4, share).populate(federation, 1)
    before, after = federation.dataset.targets, made.dataset.targets
    changed, flags = torch.zeros(len(before), dtype=torch.bool), []
    for clients in populations(made):
        flags += clients.flipped.tolist()
        for k in np.flatnonzero(clients.flipped.numpy()).tolist():
            changed[clients.train[k]] = True
            changed[clients.test[k]] = True
    assert sum(flags) == flipped
    assert torch.equal(after[changed], 2 - before[changed])
    assert torch.equal(after[~changed], before[~changed])
    assert not changed[made.test.samples].any()


def test_the_seed_decides(federation):
    def made(run: int, own: int | None):
        found = population(3, 0.4, 0.5, own).populate(federation, run)
        assert found.unseen is not None
        return found.train.names, found.train.samples.tolist(), found.unseen.train.names, found.dataset.targets.tolist()

    assert made(1, None) == made(1, None) == made(7, 1)
    assert made(1, None) != made(2, None)
    assert made(1, 0) == made(2, 0)  # 0 is a seed


def test_names_are_kept(federation):
    named = replace(federation, train=replace(federation.train, names=tuple("abcdefgh")))
    made = population(3).populate(named, 0)
    assert made.unseen is not None and made.train.names is not None and made.unseen.train.names is not None
    assert sorted(made.train.names + made.unseen.train.names) == list("abcdefgh")
    for clients in populations(made):
        for k in range(len(clients.train)):
            assert clients.train[k].tolist() == named.train["abcdefgh".index(clients.train.name(k))].tolist()


@pytest.mark.parametrize("unseen", [8, 100])
def test_too_many_unseen_clients(federation, unseen):
    with pytest.raises(InputError, match=f"population.unseen_clients={unseen}: the partition has 8 .*allowed: 0 to 7"):
        population(unseen).populate(federation, 0)
    assert len(population(7).populate(federation, 0).train) == 1  # nobody is drawn twice


def test_pooling_leaves_nobody_to_attack(make_experiment):
    clients = ClientIndices(torch.arange(4), torch.tensor([0, 1, 4]), ("x", "y"))
    made = Federation(small_images(4, 2), clients, clients, clients, attackers=frozenset({1})).pooled()
    assert (len(made.train), made.train.name(0), made.attackers) == (1, "all", frozenset())


def test_unseen_clients_never_take_part(make_experiment):
    experiment = make_experiment(population=population(2, 0.4), clients_per_round=1.0)
    simulation = Simulation(experiment)
    assert simulation.phase(simulation.initial()).cohort_size == len(simulation.federation.train) == 4
    metrics = simulation.test(simulation.initial())
    assert {"clients/accuracy_mean", "unseen/accuracy_mean", "clients/loss_mean", "unseen/loss_mean"} <= set(metrics)
    assert not any("appeal" in name or "preferred" in name for name in metrics)


def test_numbers_of_samples_are_not_lost_to_rounding(federation):
    # 0.2 n of 3, 12, 8, 5, 20, 12, 1, 10, of which (1 - 0.8) * 20 and * 10 are floats below 4 and 2
    assert population(0, 0.8).populate(federation, 0).train.sizes.tolist() == [1, 2, 1, 1, 4, 2, 1, 2]
    assert int(population(0, 0.0, 0.2).populate(federation, 0).flipped.sum()) == 2  # 1.6
    everyone = population(0, 0.0, 1.0).populate(federation, 0)
    assert everyone.flipped.all() and everyone.unseen is None
