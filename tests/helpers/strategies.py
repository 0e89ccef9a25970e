"""Strategies with the settings that several tests change."""

from __future__ import annotations

from dataclasses import replace

from fedrun.config.build import option
from fedrun.config.options import options
from fedrun.experiment.strategy import Strategy
from fedrun.strategies.client import ClientStrategy
from fedrun.strategies.fedaws import FedAwS
from fedrun.strategies.turbosvm import TurboSVM

from .quadratic_clients import FEDAVG

FOR_ADAPTERS = ("fedexlora", "fedit", "fedsalora", "ffalora", "flora")
"""Strategies that need a model with low-rank adapters."""

FOR_SMALL_MODELS = [name for name in options("strategy") if name not in ("fedbn", *FOR_ADAPTERS)]
"""Strategies that need neither normalisation layers nor low-rank adapters."""

FLEXIBLE = (
    "strategy=maxfl",
    "strategy.client.tuning_steps=2",
    "appeal.steps=5",
    "participation=flexible",
    "participation.mandatory_share=0.2",
    "attack=gaussian",
    "attack.share=0.34",
    "population.unseen_clients=2",
    "population.test_share=0.3",
    "evaluation.tuning_steps=2",
)
"""MaxFL with unseen and attacking clients, which come when they like."""

SOLO = Strategy(client=option("strategy/client", "solo"), server=option("strategy/server", "solo"))


def client(name: str, **settings: object) -> ClientStrategy:
    return option("strategy/client", name, **settings)


def maxfl(tuning_steps: int = 0, lr: float = 1.0, eps: float = 1e-8) -> Strategy:
    server = option("strategy/server", "maxfl", lr=lr, eps=eps)
    return Strategy(client=client("maxfl", tuning_steps=tuning_steps), server=server)


def mwfed(gamma: float = 0.5, growth: str = "threshold") -> Strategy:
    server = option("strategy/server", "mwfed", gamma=gamma, growth=growth)
    return Strategy(client=option("strategy/client", "mwfed"), server=server)


def feddc(alpha: float) -> Strategy:
    return Strategy(client=option("strategy/client", "feddc", alpha=alpha), server=option("strategy/server", "feddc"))


def fedaws(base=FEDAVG, bias="coordinate", eps=1e-5) -> FedAwS:
    return FedAwS(base=base, lr=0.05, adam_eps=eps, bias=bias)


def turbosvm(**changes: object) -> TurboSVM:
    """The option in conf/, changed."""
    return replace(option("strategy/server", "turbosvm"), **changes)
