"""What is held out of training to choose settings by, and that no test sample is used then."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedrun.config.composed import compose
from fedrun.data.federation import ClientIndices, Federation
from fedrun.data.population import Population
from fedrun.data.split_samples import split_samples
from fedrun.data.validation import Validation
from fedrun.experiment.experiment import build_experiment
from fedrun.simulation.simulation import Simulation
from fedrun.system.errors import InputError
from fedrun.system.randomness import numpy_generator

from ..conftest import GivenSizes, small_images

SIZES = (3, 12, 8, 1, 20, 12)


@pytest.fixture(scope="module")
def federation() -> Federation:
    return GivenSizes(SIZES).split(small_images(sum(SIZES), 30), 0)


def test_nothing_held_out_changes_nothing(federation):
    assert Validation(share=0.0, of="samples", samples="auto").hold_out(federation, 0) is federation


@pytest.mark.parametrize("seed", range(3))
def test_a_share_of_every_clients_samples(federation, seed):
    """Of n = 3, 12, 8, 1, 20, 12 samples the floor of 0.75 n stays, and at least one."""
    made = Validation(share=0.25, of="samples", samples="auto").hold_out(federation, seed)
    assert made.train.sizes.tolist() == [2, 9, 6, 1, 15, 9]
    assert (len(made.test), made.test.sizes.tolist(), made.evaluation_split) == (
        1,
        [1 + 3 + 2 + 0 + 5 + 3],
        "validation",
    )
    both = torch.cat([made.train.samples, made.test.samples])
    assert sorted(both.tolist()) == sorted(federation.train.samples.tolist())
    assert not set(made.test.samples.tolist()) & set(federation.test.samples.tolist())


def test_clients_own_and_unseen_tests_are_not_used_either(federation):
    whole = Population(
        unseen_clients=2, test_share=0.4, test_of="auto", flipped_share=0.0, pooled=False, seed=None
    ).populate(federation, 0)
    made = Validation(share=0.5, of="samples", samples="auto").hold_out(whole, 0)
    assert whole.client_test is not None and made.client_test is not None
    assert set(made.client_test.samples.tolist()) == set(made.test.samples.tolist())
    assert set(made.client_test.samples.tolist()) <= set(whole.train.samples.tolist())
    assert made.unseen is None
    with pytest.raises(InputError, match=r"^validation.of=clients: clients have test samples of their own here; "):
        Validation(share=0.5, of="clients", samples="auto").hold_out(whole, 0)


def test_whole_clients(federation):
    made = Validation(share=0.3, of="clients", samples="auto").hold_out(federation, 1)  # 0.3 of 6 is 2, rounded
    assert (len(made.train), len(made.test), made.evaluation_split) == (4, 2, "validation")
    names = [clients.name(k) for clients in (made.train, made.test) for k in range(len(clients))]
    assert sorted(names) == [str(k) for k in range(6)]
    again = Validation(share=0.3, of="clients", samples="auto").hold_out(federation, 1)
    assert torch.equal(again.test.samples, made.test.samples)
    others = {
        tuple(Validation(share=0.3, of="clients", samples="auto").hold_out(federation, seed).test.samples.tolist())
        for seed in range(9)
    }
    assert len(others) > 1
    half, least = (
        [Validation(share=share, of="clients", samples="auto").hold_out(federation, seed) for seed in range(9)]
        for share in (0.5, 0.01)
    )
    assert [len(made.test) for made in half] == [3] * 9  # nobody is drawn twice
    assert [len(made.test) for made in least] == [1] * 9
    with pytest.raises(InputError, match=r"^validation.share=0.99: of 6 clients none would train; "):
        Validation(share=0.99, of="clients", samples="auto").hold_out(federation, 0)


def test_too_few_samples():
    one_each = GivenSizes((1, 1)).split(small_images(2, 4), 0)
    with pytest.raises(InputError, match=r"^validation.share=0.1: no client has enough samples to hold one out; "):
        Validation(share=0.1, of="samples", samples="auto").hold_out(one_each, 0)


def test_a_run_reports_validation_and_no_test_metrics():
    composed = compose(["rounds=1", "model=logistic", "partition.clients=4", "validation.share=0.2", "tracking=none"])
    simulation = Simulation(build_experiment(composed.config))
    state, _ = simulation.advance(simulation.initial())
    metrics = simulation.test(state)
    assert 0 < metrics["validation/accuracy"] < 1
    assert {name.partition("/")[0] for name in metrics} == {"validation"}


def test_flags_stay_with_their_clients_and_unseen_ones_go():
    federation = GivenSizes((3, 12, 8, 5, 20, 12, 1, 10)).split(small_images(71, 30), 0)
    whole = Population(
        unseen_clients=2, test_share=0.0, test_of="auto", flipped_share=0.5, pooled=False, seed=None
    ).populate(federation, 0)
    made = Validation(share=0.3, of="clients", samples="auto").hold_out(whole, 0)
    flags = {whole.train.name(k): bool(whole.flipped[k]) for k in range(6)}
    assert [flags[made.train.name(k)] for k in range(len(made.train))] == made.flipped.tolist()
    assert (len(made.train), made.unseen) == (4, None)


def test_the_draws_of_validation_are_its_own(federation):
    made = Validation(share=0.25, of="samples", samples="auto").hold_out(federation, 3)
    train, _ = split_samples(federation.train, 0.25, "random", 0, numpy_generator(3, "validation"), "")
    assert torch.equal(made.train.samples, train.samples)


def test_windows_of_text_are_held_out_at_the_end_with_a_gap(federation):
    """Of 20 windows that overlap 2 others on each side 15 stay, 2 overlap the 15th, and 3 are held out."""
    one_text = replace(federation, train=ClientIndices.of([np.arange(20)]))
    windows = replace(one_text, dataset=replace(federation.dataset, overlap=2))
    made = Validation(share=0.25, of="samples", samples="auto").hold_out(windows, 0)
    assert made.train[0].tolist() == list(range(15))
    assert made.test.samples.tolist() == [17, 18, 19]
    separate = Validation(share=0.25, of="samples", samples="last").hold_out(one_text, 0)
    assert separate.test.samples.tolist() == [15, 16, 17, 18, 19]
