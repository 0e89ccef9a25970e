"""Personalised strategies on ordinary modules: named tensors per client, autograd and torch.optim.

Nothing is shared with the code under test but the addresses of the random choices.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from fedrun.system.randomness import generator

from .naive_averaging import NaiveServer, Tensors, floats, weighted_mean


@dataclass
class NaiveParts(NaiveServer):
    """Clients keep some named tensors; in each epoch some parameters train.

    ``is_own`` and ``trains`` take a tensor's name (``trains`` the epoch first).
    """

    is_own: Callable[[str], bool] = lambda name: False
    trains: Callable[[int, str], bool] = lambda epoch, name: True
    uniform: bool = False
    own: dict[int, Tensors] = field(default_factory=dict)

    def of(self, client: int) -> torch.nn.Module:
        """The global network with the client's own tensors."""
        network = copy.deepcopy(self.network)
        network.load_state_dict(self.own.get(client, {}), strict=False)
        return network

    def round(self, index: int, cohort: list[int]) -> None:
        ends = []
        for client in cohort:
            network, (x, y) = self.of(client), self.data[client]
            order = generator(self.seed, "batches", index, client)
            network.train()
            for epoch in range(self.clients.epochs):
                named = dict(network.named_parameters())
                moving = [parameter for name, parameter in named.items() if self.trains(epoch, name)]
                for batch in torch.randperm(len(y), generator=order).split(self.clients.batch_size):
                    loss = torch.nn.functional.cross_entropy(network(x[batch]), y[batch])
                    for parameter, gradient in zip(moving, torch.autograd.grad(loss, moving), strict=True):
                        parameter.data -= self.clients.lr * gradient
            self.own[client] = {name: tensor.clone() for name, tensor in floats(network).items() if self.is_own(name)}
            ends.append(network)
        mean = weighted_mean(ends, [1.0] * len(cohort) if self.uniform else self.sizes(cohort))
        self.load({name: tensor for name, tensor in mean.items() if not self.is_own(name)})
