"""FedUmf on ordinary modules: every client trains in every round, selected or not; see :mod:`naive_averaging`."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import torch

from .naive_averaging import Tensors, weighted_mean
from .naive_strategies import NaiveFedDC, NaiveLocal, parameters


@dataclass
class IdleClients(NaiveLocal):
    """Local training that may start ahead of the broadcast model."""

    fusion: float = 1.0
    ahead: dict[int, Tensors] = field(default_factory=dict)  # of clients that were idle in the round before
    fused: int = 0

    def train(self, client, index, *args, **kwargs):  # as NaiveLocal.train
        theta = self.network
        self.network = copy.deepcopy(theta)
        with torch.no_grad():
            for name, parameter in self.network.named_parameters():
                parameter.add_(self.ahead.get(client, {}).get(name, 0.0))
        try:
            return super().train(client, index, *args, **kwargs)
        finally:
            self.network = theta

    def displacements(self, index: int, cohort: list[int]) -> dict[int, Tensors]:
        """What every client outside of the cohort starts with if it is selected in the next round."""
        theta, found = parameters(self.network), {}
        ahead, self.ahead = self.ahead, {}
        ratio = self.rate(index + 1) / self.rate(index)
        for client in set(range(len(self.data))) - set(cohort):
            y = parameters(self.train(client, index, penalty=self.idle_penalty(client))[0])
            found[client] = {name: self.fusion * ratio * (y[name] - theta[name]) for name in theta}
        self.ahead = {client: vectors for client, vectors in ahead.items() if client in cohort}
        self.fused += len(self.ahead)
        return found

    def idle_penalty(self, client: int):
        return None


@dataclass
class NaiveFedUmf(IdleClients):
    def round(self, index: int, cohort: list[int]) -> None:
        following = self.displacements(index, cohort)
        networks = [self.train(client, index)[0] for client in cohort]
        self.load(weighted_mean(networks, [1.0] * len(cohort)))
        self.ahead = following


@dataclass
class NaiveFedUmfFedDC(IdleClients, NaiveFedDC):
    def idle_penalty(self, client: int):
        return self.penalty(client)

    def start(self, client: int) -> Tensors:
        w, ahead = parameters(self.network), self.ahead.get(client, {})
        return {name: w[name] + ahead.get(name, 0.0) for name in w}

    def round(self, index: int, cohort: list[int]) -> None:
        following = self.displacements(index, cohort)
        super().round(index, cohort)
        self.ahead = following
