"""MaxFL and MW-Fed on ordinary modules, from their equations; see :mod:`naive_averaging`."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field, replace

import torch

from fedrun.system.randomness import address, generator

from .naive_averaging import weighted_mean
from .naive_strategies import NaiveLocal, parameters


@dataclass
class NaiveThresholds(NaiveLocal):
    """Clients that measure their loss at the broadcast model, in evaluation mode."""

    rho: list[float] = field(default_factory=list)
    tuning_steps: int = 0
    inflated: dict[int, float] = field(default_factory=dict)

    def loss(self, client: int, index: int) -> float:
        inputs, labels = self.data[client]
        network = copy.deepcopy(self.network)
        if self.tuning_steps:
            brief = replace(self.clients, epochs=None, steps=self.tuning_steps)
            order = generator(address(self.seed, "tuning"), "batches", index, client)
            network, _ = brief.train(network, inputs, labels, order, index)
        with torch.no_grad():
            loss = torch.nn.functional.cross_entropy(network.eval()(inputs), labels).item()
        return loss + self.inflated.get(client, 0.0)


@dataclass
class NaiveMaxFL(NaiveThresholds):
    lr: float = 1.0
    eps: float = 1e-8

    def round(self, index: int, cohort: list[int]) -> None:
        w = parameters(self.network)
        sigma = [1 / (1 + math.exp(self.rho[client] - self.loss(client, index))) for client in cohort]
        q = [s * (1 - s) for s in sigma]
        networks = [self.train(client, index)[0] for client in cohort]
        rate = self.lr / (sum(q) + self.eps)
        ends = [parameters(network) for network in networks]
        self.load_buffers(weighted_mean(networks, q))
        self.set_parameters(
            {name: w[name] - rate * sum(p * (w[name] - y[name]) for p, y in zip(q, ends, strict=True)) for name in w}
        )


@dataclass
class NaiveMWFed(NaiveThresholds):
    gamma: float = 0.1
    exponential: bool = False
    omega_of: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.omega_of = dict.fromkeys(range(len(self.data)), 1.0)

    def round(self, index: int, cohort: list[int]) -> None:
        losses = [self.loss(client, index) for client in cohort]
        share = [self.omega_of[client] / sum(self.omega_of[k] for k in cohort) for client in cohort]
        local = self.clients
        batch = local.batch_size
        work = sum(local.steps or local.epochs * math.ceil(len(self.data[k][1]) / batch) for k in cohort)
        networks = []
        for client, p in zip(cohort, share, strict=True):
            self.clients = replace(local, epochs=None, steps=max(1, round(work * p)))
            networks.append(self.train(client, index)[0])
        self.clients = local
        self.load(weighted_mean(networks, share))
        for client, loss in zip(cohort, losses, strict=True):
            if self.exponential:
                self.omega_of[client] *= math.exp(self.gamma * (loss - self.rho[client]))
            elif loss >= self.rho[client]:
                self.omega_of[client] *= 1 + self.gamma
        total = sum(self.omega_of.values())
        self.omega_of = {client: omega * len(self.data) / total for client, omega in self.omega_of.items()}
