"""Per-FedAvg, SCAFFOLD's option I and TurboSVM-FL's MOON on ordinary modules; see :mod:`naive_averaging`."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace

import torch

from fedrun.system.randomness import generator

from .naive_averaging import NaiveScaffold, Tensors, weighted_mean
from .naive_strategies import NaiveLocal, parameters


def gradient(network: torch.nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> Tensors:
    """Of the mean loss, by autograd, in the network's current mode."""
    loss = torch.nn.functional.cross_entropy(network(inputs), labels)
    found = torch.autograd.grad(loss, list(network.parameters()))
    return {name: each for (name, _), each in zip(network.named_parameters(), found, strict=True)}


@dataclass
class NaivePerFedAvg(NaiveLocal):
    alpha: float = 0.1
    difference: float | None = None  # of the Hessian-free variant

    def gradient_at(self, network: torch.nn.Module, at: Tensors, client: int, batch: torch.Tensor) -> Tensors:
        """At other parameters; BatchNorm's running statistics move on in the network."""
        before = parameters(network)
        inputs, labels = self.data[client]
        network.load_state_dict(at, strict=False)
        found = gradient(network, inputs[batch], labels[batch])
        network.load_state_dict(before, strict=False)
        return found

    def round(self, index: int, cohort: list[int]) -> None:
        networks = []
        for client in cohort:
            network, count = copy.deepcopy(self.network).train(), len(self.data[client][1])
            local, together = self.clients, 2 if self.difference is None else 3
            steps = local.steps or math.ceil(local.epochs * math.ceil(count / local.batch_size) / together)
            order = generator(self.seed, "batches", index, client)
            batches = replace(local, epochs=None, steps=steps * together).batches(count, order)
            optimizer = torch.optim.SGD(
                network.parameters(), self.rate(index), local.momentum, weight_decay=local.weight_decay
            )
            for first in range(0, len(batches), together):
                b = batches[first : first + together]
                w = parameters(network)
                g = self.gradient_at(network, w, client, b[0])
                v = self.gradient_at(network, {name: w[name] - self.alpha * g[name] for name in w}, client, b[1])
                direction = v
                if self.difference is not None:
                    d = self.difference
                    ahead = self.gradient_at(network, {name: w[name] + d * v[name] for name in w}, client, b[2])
                    behind = self.gradient_at(network, {name: w[name] - d * v[name] for name in w}, client, b[2])
                    curved = {name: (ahead[name] - behind[name]) / (2 * d) for name in w}
                    direction = {name: v[name] - self.alpha * curved[name] for name in w}
                for name, parameter in network.named_parameters():
                    parameter.grad = direction[name].clone()
                optimizer.step()
            networks.append(network)
        self.load(weighted_mean(networks, [1.0] * len(cohort)))


@dataclass
class NaiveScaffoldI(NaiveScaffold):
    """A client's new control variate is the gradient of its whole loss at the broadcast model."""

    def round(self, index: int, cohort: list[int]) -> None:
        x, networks, changes = parameters(self.network), [], []
        for client in cohort:
            own = self.controls[client]
            new = gradient(copy.deepcopy(self.network).eval(), *self.data[client])
            networks.append(self.trained(client, index, {name: self.control[name] - own[name] for name in x})[0])
            changes.append({name: new[name] - own[name] for name in x})
            self.controls[client] = new
        self.load(weighted_mean(networks, [1.0] * len(cohort)))
        with torch.no_grad():
            for name, parameter in self.network.named_parameters():
                parameter.copy_(x[name] + self.lr * (parameter - x[name]))
                self.control[name] = self.control[name] + sum(change[name] for change in changes) / len(self.data)


@dataclass
class NaiveMoonTurboSVM(NaiveLocal):
    """Unshuffled; the negatives are the embeddings that this round's earlier epochs have met in the same slice.

    The slice of a last, shorter batch begins at its number times its own length, as in the published code.
    """

    mu: float = 1.0
    tau: float = 0.5

    def round(self, index: int, cohort: list[int]) -> None:
        networks, cosine = [], torch.nn.functional.cosine_similarity
        for client in cohort:
            inputs, labels = self.data[client]
            network, anchor = copy.deepcopy(self.network).train(), copy.deepcopy(self.network).eval()
            optimizer = torch.optim.SGD(network.parameters(), self.rate(index), self.clients.momentum)
            earlier: list[torch.Tensor] = []
            for _ in range(self.clients.epochs):
                met = []
                for number, first in enumerate(range(0, len(labels), self.clients.batch_size)):
                    part = slice(first, first + self.clients.batch_size)
                    z = network.encoder(inputs[part])
                    met.append(z.detach().clone())
                    loss = torch.nn.functional.cross_entropy(network.head(z), labels[part])
                    if earlier:
                        size = len(z)
                        others = [epoch[number * size : number * size + size] for epoch in earlier]
                        with torch.no_grad():
                            positive = anchor.encoder(inputs[part])
                        exponents = [torch.exp(cosine(z, other) / self.tau) for other in (positive, *others)]
                        loss = loss - self.mu * torch.log(exponents[0] / sum(exponents)).mean()
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                earlier.append(torch.cat(met))
            networks.append(network)
        self.load(weighted_mean(networks, self.sizes(cohort)))
