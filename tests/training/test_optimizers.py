"""The local optimizers and the learning rates over rounds, each against torch's own or numbers by hand."""

from __future__ import annotations

import copy
import math
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedrun.config.build import build, option
from fedrun.config.composed import compose
from fedrun.config.identity import identity
from fedrun.data.samples import Samples
from fedrun.experiment.experiment import build_experiment
from fedrun.models.flat_network import FlatNetwork
from fedrun.strategies.client import ClientStrategy, LinearCorrection
from fedrun.strategies.local_training import LocalTraining
from fedrun.system.errors import InputError
from fedrun.training.client_round import ClientRound
from fedrun.training.optimizer_step import fresh_state, optimizer_step
from fedrun.training.train import train

LOCAL: LocalTraining = build(compose([]).config["local"], "local")

OPTIMIZERS: dict[str, tuple[dict[str, Any], Callable[[Any, float], torch.optim.Optimizer]]] = {
    "sgd": ({}, lambda p, decay: torch.optim.SGD(p, 0.2, weight_decay=decay)),
    "momentum": ({"momentum": 0.9}, lambda p, decay: torch.optim.SGD(p, 0.2, 0.9, weight_decay=decay)),
    "nesterov": (
        {"momentum": 0.9, "optimizer": "nesterov"},
        lambda p, decay: torch.optim.SGD(p, 0.2, 0.9, weight_decay=decay, nesterov=True),
    ),
    "adam": ({"optimizer": "adam"}, lambda p, decay: torch.optim.Adam(p, 0.2, weight_decay=decay)),
    "adamw": (
        {"optimizer": "adamw", "beta1": 0.8, "beta2": 0.95, "eps": 1e-3},
        lambda p, decay: torch.optim.AdamW(p, 0.2, (0.8, 0.95), 1e-3, weight_decay=decay),
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("norm", [None, 0.5, 1e6])
def test_steps_are_those_of_torch(name, weight_decay, norm):
    """Three steps of two clients, one by one with torch's optimizer and together on a matrix."""
    changes, optimizer_of = OPTIMIZERS[name]
    draw = torch.Generator().manual_seed(0)
    start, gradients = torch.randn(2, 5, generator=draw), torch.randn(3, 2, 5, generator=draw)
    local = replace(LOCAL, weight_decay=weight_decay, max_gradient_norm=norm, **changes)
    together = start.clone()
    state = fresh_state(together, local)
    for gradient in gradients:
        optimizer_step(together, gradient.clone(), state, 0.2, local)
    for client in range(2):
        parameter = nn.Parameter(start[client].clone())
        optimizer = optimizer_of([parameter], weight_decay)
        for gradient in gradients:
            parameter.grad = gradient[client].clone()
            if norm is not None:
                torch.nn.utils.clip_grad_norm_([parameter], norm)
            optimizer.step()
        torch.testing.assert_close(together[client], parameter.data, rtol=1e-6, atol=1e-7)


def test_adams_first_step_by_hand():
    """The moments' corrected values are g and g², so that the step is η g / (|g| + ε): by ± η but for ε."""
    weights, local = torch.tensor([1.0, 2.0]), replace(LOCAL, optimizer="adam", eps=1.0)
    optimizer_step(weights, torch.tensor([3.0, -1.0]), fresh_state(weights, local), 0.4, local)
    assert weights.tolist() == pytest.approx([1 - 0.4 * 3 / 4, 2 + 0.4 * 1 / 2], abs=1e-6)


def test_gradients_are_clipped_before_the_weight_decay_is_added():
    """Gradient (3, 4) has norm 5 and becomes (0.6, 0.8); the term λ y = (1, 0) comes on top."""
    weights = torch.tensor([10.0, 0.0])
    local = replace(LOCAL, weight_decay=0.1, max_gradient_norm=1.0)
    optimizer_step(weights, torch.tensor([3.0, 4.0]), None, 1.0, local)
    assert weights.tolist() == pytest.approx([10 - 0.6 - 1, -0.8], abs=1e-6)


def test_a_strategys_decay_belongs_to_the_objective_and_weight_decay_of_adamw_does_not():
    """Gradient 1, a decay of 2 · 0.5: Adam's first step is by η = 0.1 for any gradient, after y (1 − 0.1 · 0.3)."""
    weights, local = torch.tensor([0.5]), replace(LOCAL, optimizer="adamw", weight_decay=0.3)
    state = fresh_state(weights, local)
    optimizer_step(
        weights,
        torch.tensor([1.0]),
        state,
        0.1,
        local,
        LinearCorrection(torch.zeros(1), torch.tensor([2.0]), decays=True),
    )
    assert weights.item() == pytest.approx(0.5 * 0.97 - 0.1, abs=1e-6)
    assert state.tolist() == pytest.approx([0.1 * 2, 0.001 * 4, 1], abs=1e-6)  # moments of 1 + 2 · 0.5, one step


class Frozen(ClientStrategy):
    """Moves the head alone in the first epoch, the encoder alone afterwards, as FedRep does."""

    def frozen(self, layout, epoch):
        head = torch.zeros(layout.trainable, dtype=torch.bool)
        head[layout.head] = True
        return ~head if epoch == 0 else head


@pytest.mark.parametrize("norm", [None, 0.3])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_frozen_parameters_do_not_move(name, norm):
    """Against two optimizers of torch, each with the parameters that move."""
    changes, optimizer_of = OPTIMIZERS[name]
    torch.manual_seed(0)
    network = nn.Sequential(OrderedDict(encoder=nn.Sequential(nn.Linear(3, 2), nn.Tanh()), head=nn.Linear(2, 2)))
    ordinary = copy.deepcopy(network)
    samples = Samples(torch.randn(12, 3), torch.randint(0, 2, (12,)), lambda x: x, torch.device("cpu"))
    local = replace(LOCAL, batch_size=4, weight_decay=0.1, max_gradient_norm=norm, epochs=3, **changes)
    client = ClientRound(FlatNetwork(network), Frozen(), local, samples, torch.arange(12), 0.2, {})
    train(client, 9, torch.Generator().manual_seed(8))
    head, encoder = (optimizer_of(part.parameters(), 0.1) for part in (ordinary.head, ordinary.encoder))
    order = torch.Generator().manual_seed(8)
    for epoch in range(3):
        optimizer = head if epoch == 0 else encoder
        for batch in torch.randperm(12, generator=order).split(4):
            ordinary.zero_grad()
            nn.functional.cross_entropy(ordinary(samples.inputs[batch]), samples.targets[batch]).backward()
            if norm is not None:
                torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], norm)
            optimizer.step()
    for (name, parameter), other in zip(network.named_parameters(), ordinary.named_parameters(), strict=True):
        torch.testing.assert_close(parameter, other[1], rtol=1e-5, atol=1e-6, msg=name)


def rates(rounds: int, **changes: Any) -> list[float]:
    local = replace(LOCAL, lr=0.1, **changes)
    return [local.rate(t) for t in range(rounds)]


def test_the_rate_is_constant_or_falls_geometrically_from_the_first_round():
    assert rates(3) == [0.1, 0.1, 0.1]
    assert rates(3, lr_decay=0.5) == [0.1, 0.05, 0.025]


SCHEDULES: dict[str, tuple[dict[str, Any], Callable[[torch.optim.Optimizer], Any]]] = {
    "exponential": ({"lr_decay": 0.9}, lambda sgd: torch.optim.lr_scheduler.ExponentialLR(sgd, 0.9)),
    "steps": ({"lr_decay": 0.5, "lr_decay_rounds": 3}, lambda sgd: torch.optim.lr_scheduler.StepLR(sgd, 3, 0.5)),
    "cosine": ({"lr_cosine_rounds": 9}, lambda sgd: torch.optim.lr_scheduler.CosineAnnealingLR(sgd, 9)),
    "warm-up": (
        {"lr_warmup_rounds": 4},
        lambda sgd: torch.optim.lr_scheduler.LinearLR(sgd, 1 / 4, 1.0, total_iters=3),
    ),
    "warm-up, then cosine": (
        {"lr_warmup_rounds": 4, "lr_cosine_rounds": 9},
        lambda sgd: torch.optim.lr_scheduler.LambdaLR(
            sgd, lambda t: min(1, (t + 1) / 4) * torch.tensor(torch.pi * t / 18).cos().item() ** 2
        ),
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_rates_are_those_of_torchs_schedulers(name):
    changes, scheduler_of = SCHEDULES[name]
    sgd = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    scheduler, expected = scheduler_of(sgd), []
    for _ in range(9):
        expected.append(sgd.param_groups[0]["lr"])
        sgd.step()
        scheduler.step()
    assert rates(9, **changes) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer": "nesterov"}, r"local\.optimizer=nesterov with local\.momentum=0\.0: .* above 0"),
        ({"optimizer": "adam", "momentum": 0.9}, r"local\.optimizer=adam with local\.momentum=0\.9: allowed: 0"),
        ({"lr_cosine_rounds": 9}, r"local\.lr_cosine_rounds=9 with rounds=10: .* allowed: at least"),
        # 0.1 times 1e-40 to the power 9 is less than 5e-324
        ({"lr_decay": 1e-40}, r"^local\.lr_decay=1e-40 with rounds=10: the rate would be 0 in .* \(local\.lr_decay_"),
        (
            {"lr_warmup_rounds": 11},
            r"^local\.lr_warmup_rounds=11 with rounds=10: .* never reach local\.lr; allowed: at most as many as rou",
        ),
    ],
)
def test_settings_that_contradict_each_other(changes, message):
    with pytest.raises(InputError, match=message):
        replace(LOCAL, **changes).check(10)


def own(*rates):
    """A user's settings with these rates."""

    class Own(LocalTraining):
        def rate(self, round):
            return rates[round]

    return Own(**vars(LOCAL))


@pytest.mark.parametrize("wrong", [None, "0.1", math.nan, math.inf, 0, -0.1, torch.tensor(0.1)], ids=repr)
def test_rates_of_a_users_schedule_are_checked(wrong):
    """A negative rate would climb, strategies divide by the rate, and None would end in the middle of a step."""
    local = own(0.1, np.float32(0.1), 0.01, 1, wrong)
    local.check(4)
    with pytest.raises(InputError, match=rf"\.Own\.rate: returned {re.escape(repr(wrong))} for round 4; allowed: a f"):
        local.check(5)


def test_a_warm_up_may_end_in_the_last_round():
    assert rates(10, lr_warmup_rounds=10)[-1] == 0.1
    replace(LOCAL, lr_warmup_rounds=10).check(10)


@pytest.mark.parametrize(
    ("choice", "part"),
    [
        ("strategy=scaffold", "client=scaffold"),
        ("strategy=fednova", "client=fednova"),
        ("strategy=feddc", "client=feddc"),
        ("strategy=mofedsam", "client=mofedsam"),
        ("strategy=qffl", "client=qffl"),
        ("strategy=ditto", "client=ditto"),
        ("strategy=pfedme", "client=pfedme"),
    ],
)
def test_strategies_that_assume_sgd_refuse_other_optimizers(choice, part):
    with pytest.raises(InputError, match=rf"^local\.optimizer=adam: strategy/{part} .*allowed: sgd$"):
        build_experiment(compose([choice, "local.optimizer=adam"]))


@pytest.mark.parametrize("choice", ["feddyn", "fedprox", "perfedavg", "turbosvm", "centralized"])
def test_other_strategies_take_any(choice):
    build_experiment(compose([f"strategy={choice}", "local.optimizer=adamw"]))
    scaffold = option("strategy/client", "scaffold", option="I")
    assert not scaffold.assumes_sgd  # its control variates are gradients, not displacements


def test_defaults_do_not_change_what_a_run_is_recognised_by():
    described = identity(LOCAL, "local")
    assert not {"optimizer", "beta1", "beta2", "eps", "lr_decay_rounds", "lr_warmup_rounds", "lr_cosine_rounds"} & set(
        described
    )
    assert identity(replace(LOCAL, optimizer="adam"), "local")["optimizer"] == "adam"
