"""FedAdagrad, FedAdam, FedYogi and FedAMS: worked numbers, networks against torch.optim and the papers' equations."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.config.config_class import config_class
from fedrun.experiment.experiment import build_experiment
from fedrun.experiment.strategy import Strategy
from fedrun.system.errors import InputError

from ..helpers.naive_strategies import NaiveFedOpt
from ..helpers.quadratic_clients import SGD, round_of, senders_of, start, update_of
from ..helpers.small_networks import NETWORKS, assert_as_naive

PAPER = {"lr": 0.1, "eps": 1e-3}
MOMENTS = {"beta1": 0.9, "beta2": 0.99}


def models(server, deltas) -> list[float]:
    """The model after each round, from 1, given the mean displacements."""
    state, after = start(server, 1.0), []
    for index, delta in enumerate(deltas):
        state, _ = server.aggregate(state, update_of({"model": state.model + delta}, (1, 3)), round_of(index, 2))
        after.append(state.model.item())
    return after


@pytest.mark.parametrize(
    ("name", "settings", "deltas", "expected"),
    [
        ("fedadagrad", PAPER, (-0.625,), (0.900159872,)),
        ("fedadam", PAPER | MOMENTS | {"variant": "reddi"}, (-0.625, -0.1), (0.901587077, 0.798060765)),
        ("fedyogi", PAPER | MOMENTS, (-0.625,), (0.901587201,)),
        ("fedadam", {"lr": 0.1}, (-0.625, -0.1), (0.9000000016, 0.8220741646)),
        ("fedams", MOMENTS | {"lr": 0.1, "variant": "reddi"}, (-0.625, -0.1), (0.9, 0.794817251)),
        ("fedams", {"lr": 0.1}, (-0.625, 0.0), (0.9000000016, 0.8330276890)),
        ("fedadam", {"lr": 0.1}, (-0.625, 0.0), (0.9000000016, 0.8329941777)),
    ],
)
def test_worked_numbers(name, settings, deltas, expected):
    assert models(option("strategy/server", name, **settings), deltas) == pytest.approx(expected, abs=2e-7)


def test_fedyogis_second_moment():
    server = option("strategy/server", "fedyogi", **PAPER, **MOMENTS)
    state, _ = server.aggregate(start(server, 1.0), update_of({"model": torch.tensor([0.375])}, (1, 3)), round_of(0, 2))
    assert state.slots["fedyogi/v"].item() == pytest.approx(0.00390725, abs=1e-8)
    # Δ² = 0.0001 is smaller than v now, so v falls by (1 − β₂) Δ²; Adam's would fall by (1 − β₂)(v − Δ²)
    update = update_of({"model": state.model + 0.01}, (1, 3))
    state, _ = server.aggregate(state, update, round_of(1, 2))
    assert state.slots["fedyogi/v"].item() == pytest.approx(0.00390725 - 0.01 * 0.0001, abs=1e-9)


def adagrad(x, delta, state):
    state["v"] = state.get("v", torch.full_like(x, 1e-6)) + delta**2
    state["m"] = 0.3 * state.get("m", 0) + 0.7 * delta
    return x + 0.05 * state["m"] / (state["v"].sqrt() + 1e-3)


def yogi(x, delta, state):
    v = state.get("v", torch.full_like(x, 1e-6))
    state["v"] = torch.where(v > delta**2, v - 0.05 * delta**2, v + 0.05 * delta**2)
    state["m"] = 0.8 * state.get("m", 0) + 0.2 * delta
    return x + 0.05 * state["m"] / (state["v"].sqrt() + 1e-3)


def ams(x, delta, state):
    state["v"] = 0.95 * state.get("v", 0) + 0.05 * delta**2
    state["m"] = 0.8 * state.get("m", 0) + 0.2 * delta
    state["hat"] = torch.stack([state.get("hat", torch.zeros_like(x)), state["v"], torch.full_like(x, 1e-3)]).amax(0)
    return x + 0.05 * state["m"] / state["hat"].sqrt()


SETTINGS = {"lr": 0.05, "eps": 1e-3}
BETAS = {"beta1": 0.8, "beta2": 0.95}
TORCH_ADAM = partial(torch.optim.Adam, lr=0.05, betas=(0.8, 0.95), eps=1e-3)
CASES = {
    "fedadagrad": ("fedadagrad", {"beta1": 0.3}, {"rule": adagrad}),
    "fedadagrad torch": ("fedadagrad", {"variant": "torch"}, {"optimizer": partial(torch.optim.Adagrad, **SETTINGS)}),
    "fedyogi": ("fedyogi", BETAS, {"rule": yogi}),
    "fedams": ("fedams", BETAS | {"variant": "reddi"}, {"rule": ams}),
    "fedams torch": ("fedams", BETAS, {"optimizer": partial(TORCH_ADAM, amsgrad=True)}),
}


@pytest.mark.parametrize("buffers", ["average", "frozen"])
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("case", CASES)
def test_networks(make_experiment, case, network, buffers):
    name, settings, reference = CASES[case]
    server = option("strategy/server", name, buffers=buffers, **SETTINGS, **settings)
    naive = partial(NaiveFedOpt, frozen=buffers == "frozen", **reference)
    assert_as_naive(make_experiment, network, naive, strategy=Strategy(client=SGD, server=server))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("fedadagrad", {}),
        ("fedadam", {"variant": "reddi", "beta1": 0.0}),
        ("fedyogi", {"beta1": 0.0}),
        ("fedadam", {"variant": "torch", "beta1": 0.0}),
    ],
)
def test_a_large_epsilon_makes_it_fedavg(name, settings):
    """With τ far above √v, a step is (η_g / τ) Δ: with η_g = τ the model goes where the mean is."""
    huge = {"eps": 1e4, "lr": 1e4}
    if settings.get("variant") != "torch":
        huge["lr"] = 2e4  # v₀ = τ², so that the denominator is 2 τ
    server = option("strategy/server", name, **settings, **huge)
    assert models(server, (-0.625,)) == pytest.approx([0.375], abs=1e-4 if name == "fedadagrad" else 1e-2)


def test_torchs_adagrad_has_no_first_moment():
    overrides = ["strategy=fedadagrad", "strategy.server.variant=torch", "strategy.server.beta1=0.9"]
    with pytest.raises(InputError, match=r"strategy\.server\.beta1=0\.9: torch's Adagrad has no first moment"):
        build_experiment(compose(overrides).config)


@pytest.mark.parametrize("name", ["fedadam", "fedadagrad", "fedyogi", "fedams"])
def test_the_weighting_of_moves(name):
    for weighting, expected in (("samples", [1, 3]), ("uniform", [1, 1])):
        server = option("strategy/server", name, weighting=weighting)
        assert server.weights(start(server, 1.0), senders_of((1, 3))).tolist() == expected


@pytest.mark.parametrize(
    ("name", "variant"), [("fedadagrad", "torch"), ("fedadam", "reddi"), ("fedams", "reddi"), ("fedams", "torch")]
)
def test_a_subclass_may_name_the_state(name, variant):
    server = option("strategy/server", name, lr=0.1, variant=variant)
    renamed = config_class(type("Renamed", (type(server),), {"name": "renamed"}))(**vars(server))
    assert models(renamed, (-0.625, -0.1)) == models(server, (-0.625, -0.1))
    assert {slot.partition("/")[0] for slot in start(renamed, 1.0).slots} == {"renamed"}


@pytest.mark.parametrize("name", ["fedadam", "fedams"])
def test_torchs_adam_has_its_own_second_moment(name):
    def second_moment(self, v, delta):
        return torch.ones_like(v)

    adam = option("strategy/server", name, lr=0.1)
    own = config_class(type("Own", (type(adam),), {"second_moment": second_moment}))
    own(**{**vars(adam), "variant": "reddi"}).check(1)
    with pytest.raises(InputError, match=r"Own\.second_moment: .*; allowed: strategy\.server\.variant=reddi"):
        own(**vars(adam)).check(1)
