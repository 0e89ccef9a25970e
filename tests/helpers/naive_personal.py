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


def gradients(network: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(torch.nn.functional.cross_entropy(network(x), y), list(network.parameters())))


@dataclass
class NaiveOwnModels(NaiveServer):
    """Clients train a network of their own beside the sent one; ``tested`` are the networks that are evaluated."""

    uniform: bool = False
    models: dict[int, torch.nn.Module] = field(default_factory=dict)

    def tested(self, client: int) -> torch.nn.Module:
        return self.models.get(client, self.network)

    def train(self, client: int, sent: torch.nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        raise NotImplementedError

    def round(self, index: int, cohort: list[int]) -> None:
        ends = []
        for client in cohort:
            x, y = self.data[client]
            order = self.clients.batches(len(y), generator(self.seed, "batches", index, client))
            ends.append(copy.deepcopy(self.network))
            self.train(client, ends[-1], [(x[batch], y[batch]) for batch in order])
        self.load(weighted_mean(ends, [1.0] * len(cohort) if self.uniform else self.sizes(cohort)))


@dataclass
class NaivePFedMe(NaiveOwnModels):
    strength: float = 1.0
    steps: int = 2
    rate: float = 0.1
    decay: float = 0.0
    warm: bool = True
    personal: bool = True

    def train(self, client: int, sent: torch.nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        theta = copy.deepcopy(sent)
        for x, y in batches:
            if not self.warm:
                theta.load_state_dict(sent.state_dict())
            for _ in range(self.steps):
                slopes = gradients(theta, x, y)
                for p, w, g in zip(theta.parameters(), sent.parameters(), slopes, strict=True):
                    p.data = p.data - self.rate * (g + self.strength * (p.data - w.data) + self.decay * p.data)
            for p, w in zip(theta.parameters(), sent.parameters(), strict=True):
                w.data = w.data - self.clients.lr * self.strength * (w.data - p.data)
        self.models[client] = theta if self.personal else copy.deepcopy(sent)


@dataclass
class NaiveAPFL(NaiveOwnModels):
    share: float = 0.5
    adaptive: bool = True
    variant: str = "paper"
    shares: dict[int, float] = field(default_factory=dict)

    def mixture(self, client: int, own: float, common: float, network: torch.nn.Module) -> torch.nn.Module:
        mixed = copy.deepcopy(network)
        for p, v, w in zip(mixed.parameters(), self.models[client].parameters(), network.parameters(), strict=True):
            p.data = own * v.data + common * w.data
        return mixed

    def tested(self, client: int) -> torch.nn.Module:
        if client not in self.models or self.variant == "pfllib":
            return super().tested(client)
        return self.mixture(client, self.shares[client], 1 - self.shares[client], self.network)

    def train(self, client: int, sent: torch.nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        own = self.models.setdefault(client, copy.deepcopy(sent))
        share, lr = self.shares.get(client, self.share), self.clients.lr
        for x, y in batches:
            of_sent, change = gradients(sent, x, y), 0.0
            if self.variant == "pfllib":
                of_own = gradients(own, x, y)
            else:
                common = 1 - share if self.variant == "paper" else share
                of_own = gradients(self.mixture(client, share, common, sent), x, y)
                change = sum(
                    float(((v - w) * g).detach().sum())
                    for v, w, g in zip(own.parameters(), sent.parameters(), of_own, strict=True)
                )
            for v, w, g, h in zip(own.parameters(), sent.parameters(), of_own, of_sent, strict=True):
                v.data = v.data - lr * (g if self.variant == "pfllib" else share * g)
                w.data = w.data - lr * h
                if self.variant == "pfllib":
                    change += float(((v.data - w.data) * (share * g + (1 - share) * h)).sum())
            if self.variant == "pfllib":
                change += 0.02 * share
            if self.adaptive:
                share = min(1.0, max(0.0, share - lr * change))
        self.shares[client] = share
        if self.variant == "pfllib":
            self.models[client] = self.mixture(client, share, 1 - share, sent)


@dataclass
class NaiveFedALA(NaiveOwnModels):
    """The last parameter tensors, by name, start from a learned mixture."""

    top: tuple[str, ...] = ("head.weight", "head.bias")
    share: float = 0.8
    rate: float = 1.0
    index: int = -1
    weights: dict[int, Tensors] = field(default_factory=dict)
    passes: dict[int, list[int]] = field(default_factory=dict)

    def round(self, index: int, cohort: list[int]) -> None:
        self.index = index
        super().round(index, cohort)

    def mixture(self, client: int) -> torch.nn.Module:
        mixed, own = copy.deepcopy(self.network), dict(self.models[client].named_parameters())
        for name, p in mixed.named_parameters():
            if name in self.top:
                p.data = own[name].data + (p.data - own[name].data) * self.weights[client][name]
        return mixed

    def tested(self, client: int) -> torch.nn.Module:
        """The start of the client's next round, as if it were selected; the client state stays as it is."""
        if client not in self.models:
            return self.network
        weights, passes, index = dict(self.weights), copy.deepcopy(self.passes), self.index
        if client in weights:
            self.weights[client] = dict(weights[client])
        self.index += 1
        self.adapt(client)
        tested = self.mixture(client)
        self.weights, self.passes, self.index = weights, passes, index
        return tested

    def adapt(self, client: int) -> None:
        x, y = self.data[client]
        first = client not in self.weights
        if first:
            self.weights[client] = {n: torch.ones_like(p) for n, p in self.network.named_parameters() if n in self.top}
        order = torch.randperm(len(y), generator=generator(self.seed, "strategy/adaptation", self.index, client))
        chosen, losses = order[: max(1, int(self.share * len(y)))], []
        common, own = dict(self.network.named_parameters()), dict(self.models[client].named_parameters())
        while True:
            for batch in chosen.split(self.clients.batch_size):
                mixed = self.mixture(client)
                loss = torch.nn.functional.cross_entropy(mixed(x[batch]), y[batch])
                loss.backward()
                for name, p in mixed.named_parameters():
                    if name in self.top:
                        change = self.rate * p.grad * (common[name] - own[name]).detach()
                        self.weights[client][name] = (self.weights[client][name] - change).clamp(0, 1)
            losses.append(float(loss.detach()))
            settled = len(losses) > 10 and torch.tensor(losses[-10:]).std(correction=0) < 0.1
            if not first or settled or len(losses) == 100:
                break
        self.passes.setdefault(client, []).append(len(losses) * len(chosen))

    def train(self, client: int, sent: torch.nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        if client in self.models:
            self.adapt(client)
            sent.load_state_dict(self.mixture(client).state_dict())
        for x, y in batches:
            for p, g in zip(sent.parameters(), gradients(sent, x, y), strict=True):
                p.data = p.data - self.clients.lr * g
        self.models[client] = copy.deepcopy(sent)


@dataclass
class NaiveFedProto(NaiveOwnModels):
    strength: float = 1.0
    by_samples: bool = False
    prototypes: dict[int, torch.Tensor] = field(default_factory=dict)
    sent: list[tuple[int, int, torch.Tensor]] = field(default_factory=list)

    def round(self, index: int, cohort: list[int]) -> None:
        self.sent = []
        before = copy.deepcopy(self.network.state_dict())
        super().round(index, cohort)
        self.network.load_state_dict(before)
        for label in {label for label, _, _ in self.sent}:
            held = [(count if self.by_samples else 1, mean) for other, count, mean in self.sent if other == label]
            self.prototypes[label] = sum(w * mean for w, mean in held) / sum(w for w, _ in held)

    def train(self, client: int, sent: torch.nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        own = self.models.setdefault(client, sent)
        for x, y in batches:
            z = own.encoder(x)
            loss = torch.nn.functional.cross_entropy(own.head(z), y)
            for row, label in zip(z, y.tolist(), strict=True):
                if label in self.prototypes:
                    loss = loss + self.strength * (row - self.prototypes[label]).square().mean() / len(y)
            for p, g in zip(own.parameters(), torch.autograd.grad(loss, list(own.parameters())), strict=True):
                p.data = p.data - self.clients.lr * g
        x, y = self.data[client]
        z = own.encoder(x).detach()
        self.sent += [(label, int((y == label).sum()), z[y == label].mean(0)) for label in set(y.tolist())]
