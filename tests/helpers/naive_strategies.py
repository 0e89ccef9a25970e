"""More strategies on ordinary modules, from the papers' equations; see :mod:`naive_averaging`."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from fedrun.system.randomness import generator

from .naive_averaging import NaiveServer, Tensors, floats, weighted_mean

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def parameters(network: torch.nn.Module) -> Tensors:
    return {name: tensor.detach().clone() for name, tensor in network.named_parameters()}


def zeros(network: torch.nn.Module) -> Tensors:
    return {name: torch.zeros_like(tensor) for name, tensor in network.named_parameters()}


@dataclass
class NaiveLocal(NaiveServer):
    """Local training with any loss of a batch and any penalty on the parameters, by autograd and torch.optim.SGD."""

    def rate(self, index: int) -> float:
        return self.clients.lr * self.clients.lr_decay**index

    def train(
        self,
        client: int,
        index: int,
        loss: Loss = torch.nn.functional.cross_entropy,
        penalty: Callable[[Tensors], torch.Tensor] | None = None,
        more_decay: float = 0.0,
    ) -> tuple[torch.nn.Module, int]:
        inputs, labels = self.data[client]
        network = copy.deepcopy(self.network).train()
        local = self.clients
        optimizer = torch.optim.SGD(
            network.parameters(), self.rate(index), local.momentum, weight_decay=local.weight_decay + more_decay
        )
        batches = local.batches(len(labels), generator(self.seed, "batches", index, client))
        for batch in batches:
            objective = loss(network(inputs[batch]), labels[batch])
            if penalty is not None:
                objective = objective + penalty(dict(network.named_parameters()))
            optimizer.zero_grad()
            objective.backward()
            if local.max_gradient_norm is not None:
                torch.nn.utils.clip_grad_norm_(network.parameters(), local.max_gradient_norm)
            optimizer.step()
        return network, len(batches)

    def counts(self, client: int) -> list[int]:
        classes = self.network.head.out_features
        return [int((self.data[client][1] == c).sum()) for c in range(classes)]

    def omega(self, client: int) -> float:
        sizes = [len(labels) for _, labels in self.data]
        return sizes[client] * len(sizes) / sum(sizes)

    def set_parameters(self, tensors: Tensors) -> None:
        with torch.no_grad():
            for name, parameter in self.network.named_parameters():
                parameter.copy_(tensors[name])

    def load_buffers(self, mean: Tensors) -> None:
        own = dict(self.network.named_parameters())
        self.load({name: tensor for name, tensor in mean.items() if name not in own})


@dataclass
class NaiveFedNova(NaiveLocal):
    mu: float = 0.0

    def effective(self, steps: int, rate: float) -> float:
        total = counter = 0.0
        for _ in range(steps):
            counter = self.clients.momentum * counter + 1  # of the newest momentum buffer
            total = total * (1 - rate * self.mu) + counter
        return total

    def round(self, index: int, cohort: list[int]) -> None:
        x = parameters(self.network)
        share = [n / sum(self.sizes(cohort)) for n in self.sizes(cohort)]

        def proximal(y: Tensors) -> torch.Tensor:
            return self.mu / 2 * sum(((y[name] - x[name]) ** 2).sum() for name in x)

        trained = [self.train(client, index, penalty=proximal) for client in cohort]
        a = [self.effective(steps, self.rate(index)) for _, steps in trained]
        effective = sum(p * each for p, each in zip(share, a, strict=True))
        directions = [
            {name: (x[name] - y) / each for name, y in parameters(network).items()}
            for (network, _), each in zip(trained, a, strict=True)
        ]
        self.load_buffers(weighted_mean([network for network, _ in trained], share))
        self.set_parameters(
            {name: x[name] - effective * sum(p * d[name] for p, d in zip(share, directions, strict=True)) for name in x}
        )


@dataclass
class NaiveFedRS(NaiveLocal):
    alpha: float = 0.5
    soft: bool = False

    def round(self, index: int, cohort: list[int]) -> None:
        networks = []
        for client in cohort:
            counts = self.counts(client)
            factors = [
                (1 - self.alpha) * n / max(counts) + self.alpha if self.soft else (1.0 if n else self.alpha)
                for n in counts
            ]

            def loss(z, y, factors=factors):
                scaled = torch.stack([factor * z[:, c] for c, factor in enumerate(factors)], dim=1)
                return torch.nn.functional.cross_entropy(scaled, y)

            networks.append(self.train(client, index, loss)[0])
        self.load(weighted_mean(networks, self.sizes(cohort)))


@dataclass
class NaiveFedLC(NaiveLocal):
    tau: float = 1.0
    others: bool = False

    def round(self, index: int, cohort: list[int]) -> None:
        networks = []
        for client in cohort:
            present = [(c, n) for c, n in enumerate(self.counts(client)) if n]

            def loss(z, y, present=present):
                total = 0.0
                for row, label in zip(z, y.tolist(), strict=True):
                    calibrated = {c: row[c] - self.tau * n**-0.25 for c, n in present}
                    rest = [value.exp() for c, value in calibrated.items() if not self.others or c != label]
                    total = total + (sum(rest).log() - calibrated[label] if rest else 0 * row.sum())
                return total / len(y)

            networks.append(self.train(client, index, loss)[0])
        self.load(weighted_mean(networks, self.sizes(cohort)))


@dataclass
class NaiveFedDyn(NaiveLocal):
    alpha: float = 0.1
    drifts: dict[int, Tensors] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.drifts = {client: zeros(self.network) for client in range(len(self.data))}

    def round(self, index: int, cohort: list[int]) -> None:
        w = parameters(self.network)
        networks = []
        for client in cohort:
            alpha, h = self.alpha / self.omega(client), self.drifts[client]

            def linear(y: Tensors, alpha=alpha, h=h) -> torch.Tensor:
                return alpha * sum((y[name] * (h[name] - w[name])).sum() for name in w)

            networks.append(self.train(client, index, penalty=linear, more_decay=alpha)[0])
            y = parameters(networks[-1])
            self.drifts[client] = {name: h[name] + y[name] - w[name] for name in w}
        self.add_mean_drift(networks)

    def add_mean_drift(self, networks: list[torch.nn.Module]) -> None:
        mean = weighted_mean(networks, [1.0] * len(networks))
        self.load_buffers(mean)
        count = len(self.drifts)
        self.set_parameters(
            {name: mean[name] + sum(h[name] for h in self.drifts.values()) / count for name in self.drifts[0]}
        )


@dataclass
class NaiveFedDC(NaiveFedDyn):
    gradient: Tensors = field(default_factory=dict)
    gradients: dict[int, Tensors] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.gradient = zeros(self.network)
        self.gradients = {client: zeros(self.network) for client in self.drifts}

    def penalty(self, client: int) -> Callable[[Tensors], torch.Tensor]:
        """What is added to a client's loss, given the broadcast model and the client state."""
        w, omega = parameters(self.network), self.omega(client)
        h, g, mean = self.drifts[client], self.gradients[client], self.gradient

        def added(y: Tensors) -> torch.Tensor:
            linear_correction = sum(((y[name] - (w[name] - h[name])) ** 2).sum() for name in w) * self.alpha / omega / 2
            return linear_correction + sum((y[name] * (mean[name] / omega - g[name])).sum() for name in w)

        return added

    def start(self, client: int) -> Tensors:
        """Where a client's training starts: the broadcast model."""
        return parameters(self.network)

    def round(self, index: int, cohort: list[int]) -> None:
        w, local = parameters(self.network), self.clients
        mean_size = sum(len(labels) for _, labels in self.data) / len(self.data)
        mean_steps = local.steps or local.epochs * math.ceil(mean_size / local.batch_size)
        networks, changes = [], []
        for client in cohort:
            omega, h, g = self.omega(client), self.drifts[client], self.gradients[client]
            networks.append(self.train(client, index, penalty=self.penalty(client))[0])
            y, start = parameters(networks[-1]), self.start(client)
            steps = {name: (y[name] - start[name]) / (local.effective(mean_steps) * local.lr) for name in w}
            state = {name: g[name] - self.gradient[name] / omega - steps[name] for name in w}
            changes.append({name: (state[name] - g[name]) * omega for name in w})
            self.gradients[client] = state
            self.drifts[client] = {name: h[name] + y[name] - w[name] for name in w}
        self.add_mean_drift(networks)
        for name in w:
            self.gradient[name] = self.gradient[name] + sum(change[name] for change in changes) / len(self.data)


@dataclass
class NaiveQFFL(NaiveLocal):
    q: float = 1.0

    def round(self, index: int, cohort: list[int]) -> None:
        w, lipschitz = parameters(self.network), 1 / self.rate(index)
        networks, powers, steps, curvature = [], [], [], 0.0
        for client in cohort:
            inputs, labels = self.data[client]
            with torch.no_grad():
                loss = torch.nn.functional.cross_entropy(copy.deepcopy(self.network).eval()(inputs), labels).item()
            networks.append(self.train(client, index)[0])
            move = {name: lipschitz * (w[name] - y) for name, y in parameters(networks[-1]).items()}
            squared = sum((each**2).sum().item() for each in move.values())
            powers.append(loss**self.q)
            steps.append({name: loss**self.q * move[name] for name in w})
            curvature += self.q * loss ** (self.q - 1) * squared + lipschitz * loss**self.q
        self.load_buffers(weighted_mean(networks, powers))
        self.set_parameters({name: w[name] - sum(step[name] for step in steps) / curvature for name in w})


@dataclass
class NaiveAggregation(NaiveLocal):
    """FedAvg's clients with any function of their state dicts, given the broadcast's, as the server."""

    combine: Callable[[Tensors, list[Tensors], list[float]], Tensors] | None = None

    def round(self, index: int, cohort: list[int]) -> None:
        networks = [self.train(client, index)[0] for client in cohort]
        before = {name: tensor.clone() for name, tensor in floats(self.network).items()}
        self.load(self.combine(before, [floats(network) for network in networks], self.sizes(cohort)))


@dataclass
class NaiveFedOpt(NaiveLocal):
    """The weighted mean displacement, given to a torch optimizer or to ``rule(x, Δ, state, name) -> x``."""

    optimizer: Callable[..., torch.optim.Optimizer] | None = None
    rule: Callable[[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]], torch.Tensor] | None = None
    frozen: bool = False

    def __post_init__(self) -> None:
        self.state: dict[str, dict[str, torch.Tensor]] = {name: {} for name in parameters(self.network)}
        if self.optimizer is not None:
            self.stepper = self.optimizer(list(self.network.parameters()))

    def round(self, index: int, cohort: list[int]) -> None:
        mean = weighted_mean([self.train(client, index)[0] for client in cohort], self.sizes(cohort))
        x = parameters(self.network)
        if self.optimizer is not None:
            for name, parameter in self.network.named_parameters():
                parameter.grad = x[name] - mean[name]
            self.stepper.step()
        else:
            self.set_parameters({name: self.rule(x[name], mean[name] - x[name], self.state[name]) for name in x})
        if not self.frozen:
            self.load_buffers(mean)


@dataclass
class NaiveFedAwS(NaiveLocal):
    lr: float = 0.01
    eps: float = 1e-5
    with_bias: bool = True

    def __post_init__(self) -> None:
        self.adam = torch.optim.Adam(self.network.head.parameters(), self.lr, eps=self.eps)

    def round(self, index: int, cohort: list[int]) -> None:
        self.load(weighted_mean([self.train(client, index)[0] for client in cohort], self.sizes(cohort)))
        head = self.network.head
        rows = [
            torch.cat([head.weight[c], head.bias[c : c + 1]]) if self.with_bias else head.weight[c]
            for c in range(head.out_features)
        ]
        loss = 0 * (head.weight.sum() + head.bias.sum())  # so that Adam steps even where no pair counts
        for c, row in enumerate(rows):
            for other in rows[c + 1 :]:
                cosine = torch.dot(row, other) / (row.norm() * other.norm())
                loss = loss + (cosine if cosine > 0 else 0)
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()


@dataclass
class NaiveMoon(NaiveLocal):
    mu: float = 1.0
    tau: float = 0.5
    previous: dict[int, torch.nn.Module] = field(default_factory=dict)
    with_initial: bool = False  # as in NIID-Bench's code: before a client has trained, its net is the initial one

    def round(self, index: int, cohort: list[int]) -> None:
        networks = []
        if self.with_initial and index == 0:
            self.previous = {client: copy.deepcopy(self.network) for client in range(len(self.data))}
        for client in cohort:
            inputs, labels = self.data[client]
            network = copy.deepcopy(self.network).train()
            anchor = copy.deepcopy(self.network).eval()
            optimizer = torch.optim.SGD(network.parameters(), self.rate(index), self.clients.momentum)
            for batch in self.clients.batches(len(labels), generator(self.seed, "batches", index, client)):
                z = network.encoder(inputs[batch])
                loss = torch.nn.functional.cross_entropy(network.head(z), labels[batch])
                if client in self.previous:
                    with torch.no_grad():
                        others = [net.encoder(inputs[batch]) for net in (anchor, self.previous[client].eval())]
                    logits = torch.stack([torch.nn.functional.cosine_similarity(z, o) for o in others], 1) / self.tau
                    first = torch.zeros(len(batch), dtype=torch.int64)
                    loss = loss + self.mu * torch.nn.functional.cross_entropy(logits, first)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            self.previous[client] = copy.deepcopy(network)
            networks.append(network)
        self.load(weighted_mean(networks, self.sizes(cohort)))
