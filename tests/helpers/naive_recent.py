"""Recent strategies on ordinary modules, from the papers' equations; see :mod:`naive_averaging`."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from fedrun.system.randomness import generator

from .naive_averaging import NaiveServer, Tensors, weighted_mean
from .naive_strategies import NaiveLocal, parameters, zeros

Direction = Callable[[torch.nn.Module, torch.Tensor, torch.Tensor], Tensors]
"""From the network in training and a batch to what takes the gradient's place."""


def gradients(network: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> Tensors:
    loss = torch.nn.functional.cross_entropy(network(x), y)
    names, tensors = zip(*network.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, tensors), strict=True))


def size(tensors: Tensors) -> float:
    return sum(float((tensor.double() ** 2).sum()) for tensor in tensors.values()) ** 0.5


def shifted(network: torch.nn.Module, shift: Tensors) -> torch.nn.Module:
    moved = copy.deepcopy(network)
    with torch.no_grad():
        for name, parameter in moved.named_parameters():
            parameter.add_(shift[name])
    return moved


@dataclass
class NaiveSteps(NaiveServer):
    """Clients that step along any direction."""

    def rate(self, index: int) -> float:
        return self.clients.lr * self.clients.lr_decay**index

    def walk(
        self, client: int, index: int, start: torch.nn.Module, direction: Direction
    ) -> tuple[torch.nn.Module, int]:
        inputs, labels = self.data[client]
        network = copy.deepcopy(start).train()
        batches = self.clients.batches(len(labels), generator(self.seed, "batches", index, client))
        velocity = zeros(network)
        for batch in batches:
            step = direction(network, inputs[batch], labels[batch])
            with torch.no_grad():
                for name, parameter in network.named_parameters():
                    own = step[name] + self.clients.weight_decay * parameter
                    velocity[name] = self.clients.momentum * velocity[name] + own
                    parameter.sub_(self.rate(index) * velocity[name])
        return network, len(batches)


def sharpness_aware(rho: float, eta: float | None = None) -> Direction:
    """The gradient at the perturbed point; with ``eta`` ASAM's."""

    def direction(network: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> Tensors:
        uphill = gradients(network, x, y)
        scale = {
            name: parameter.detach().abs() + eta if eta is not None and "weight" in name else torch.ones_like(parameter)
            for name, parameter in network.named_parameters()
        }
        scaled = {name: scale[name] * uphill[name] for name in uphill}
        length = size(scaled)
        shift = {name: rho * scale[name] * scaled[name] / length for name in scaled}
        return gradients(shifted(network, shift), x, y)

    return direction


@dataclass
class NaiveFedSAM(NaiveSteps):
    rho: float = 0.1
    eta: float | None = None

    def round(self, index: int, cohort: list[int]) -> None:
        trained = [self.walk(k, index, self.network, sharpness_aware(self.rho, self.eta))[0] for k in cohort]
        self.load(weighted_mean(trained, self.sizes(cohort)))


@dataclass
class NaiveFedCM(NaiveSteps):
    alpha: float = 0.1
    inner: Direction = gradients
    own: float | None = None  # the factor of the own direction, where it is not alpha
    m: Tensors = field(default_factory=dict)

    def round(self, index: int, cohort: list[int]) -> None:
        self.m = self.m or zeros(self.network)

        def mixed(network: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> Tensors:
            own = self.inner(network, x, y)
            factor = self.alpha if self.own is None else self.own
            return {name: factor * own[name] + (1 - self.alpha) * self.m[name] for name in own}

        before = parameters(self.network)
        walks = [self.walk(k, index, self.network, mixed) for k in cohort]
        self.load(weighted_mean([network for network, _ in walks], [1.0] * len(cohort)))
        after, steps = parameters(self.network), sum(self.clients.effective(steps) for _, steps in walks) / len(walks)
        self.m = {name: (before[name] - after[name]) / (steps * self.rate(index)) for name in after}


@dataclass
class NaiveFedLESAM(NaiveSteps):
    rho: float = 0.1
    seen: dict[int, Tensors] = field(default_factory=dict)

    def round(self, index: int, cohort: list[int]) -> None:
        x, trained = parameters(self.network), []
        for k in cohort:
            back = {name: self.seen[k][name] - x[name] for name in x} if k in self.seen else zeros(self.network)
            length = size(back) or 1.0
            shift = {name: self.rho * back[name] / length for name in back}

            def direction(network: torch.nn.Module, a: torch.Tensor, b: torch.Tensor, e: Tensors = shift) -> Tensors:
                return gradients(shifted(network, e), a, b)

            trained.append(self.walk(k, index, self.network, direction)[0])
            self.seen[k] = x
        self.load(weighted_mean(trained, self.sizes(cohort)))


@dataclass
class NaiveReleasedFedLESAM(NaiveSteps):
    """The perturbation that FedLESAM's authors' code computes, from one vector of the last move."""

    rho: float = 0.1
    before: Tensors = field(default_factory=dict)

    def perturbation(self, x: Tensors) -> Tensors:
        moved = torch.cat([(x[name] - self.before.get(name, x[name])).flatten() for name in x])
        total = float(moved[: len(x)].abs().sum()) or 1.0
        self.before = x
        return {name: torch.full_like(x[name], -self.rho * float(moved[i]) / total) for i, name in enumerate(x)}

    def perturbed(self, k: int, index: int, shift: Tensors, added: Callable[[Tensors], Tensors]) -> torch.nn.Module:
        """Client k's network after steps along the gradient at y + shift, plus what is added at y."""

        def direction(network: torch.nn.Module, a: torch.Tensor, b: torch.Tensor) -> Tensors:
            g, more = gradients(shifted(network, shift), a, b), added(parameters(network))
            return {name: g[name] + more[name] for name in g}

        return self.walk(k, index, self.network, direction)[0]

    def round(self, index: int, cohort: list[int]) -> None:
        shift, nothing = self.perturbation(parameters(self.network)), zeros(self.network)
        trained = [self.perturbed(k, index, shift, lambda y: nothing) for k in cohort]
        self.load(weighted_mean(trained, [1.0] * len(cohort)))


@dataclass
class NaiveReleasedFedLESAMScaffold(NaiveReleasedFedLESAM):
    lamb: float = 0.1
    control: Tensors = field(default_factory=dict)
    controls: dict[int, Tensors] = field(default_factory=dict)

    def round(self, index: int, cohort: list[int]) -> None:
        x = parameters(self.network)
        shift, c, trained, changes = self.perturbation(x), self.control or zeros(self.network), [], []
        for k in cohort:
            own = self.controls.get(k, zeros(self.network))
            correction = {name: self.lamb * (c[name] - own[name]) for name in x}
            trained.append(self.perturbed(k, index, shift, lambda y, correction=correction: correction))
            y = parameters(trained[-1])
            work = self.rate(index) * self.steps_of(k, index)
            self.controls[k] = {name: own[name] - c[name] + (x[name] - y[name]) / work for name in x}
            changes.append({name: self.controls[k][name] - own[name] for name in x})
        self.load(weighted_mean(trained, [1.0] * len(cohort)))
        self.control = {name: c[name] + sum(each[name] for each in changes) / len(self.data) for name in x}

    def steps_of(self, k: int, index: int) -> int:
        return len(self.clients.batches(len(self.data[k][1]), generator(self.seed, "batches", index, k)))


@dataclass
class NaiveReleasedFedLESAMDyn(NaiveReleasedFedLESAM):
    alpha: float = 0.1
    drifts: dict[int, Tensors] = field(default_factory=dict)

    def round(self, index: int, cohort: list[int]) -> None:
        x, trained = parameters(self.network), []
        shift, mean_size = self.perturbation(x), sum(len(b) for _, b in self.data) / len(self.data)
        for k in cohort:
            h, alpha = self.drifts.get(k, zeros(self.network)), self.alpha * mean_size / len(self.data[k][1])

            def regularised(y: Tensors, h: Tensors = h, alpha: float = alpha) -> Tensors:
                return {name: alpha * (y[name] - x[name] + h[name]) for name in x}

            trained.append(self.perturbed(k, index, shift, regularised))
            y = parameters(trained[-1])
            self.drifts[k] = {name: h[name] + y[name] - x[name] for name in x}
        mean = weighted_mean(trained, [1.0] * len(cohort))
        with torch.no_grad():
            for name, parameter in self.network.named_parameters():
                parameter.copy_(mean[name] + sum(h[name] for h in self.drifts.values()) / len(self.data))


@dataclass
class NaiveFedDisco(NaiveLocal):
    a: float = 0.5
    b: float = 0.1
    metric: str = "kl"

    def round(self, index: int, cohort: list[int]) -> None:
        classes = self.network.head.out_features
        d = []
        for k in cohort:
            labels = self.data[k][1].tolist()
            shares = [labels.count(label) / len(labels) for label in range(classes)]
            kl = sum(share * math.log(share * classes) for share in shares if share)
            d.append(kl if self.metric == "kl" else sum((share - 1 / classes) ** 2 for share in shares) ** 0.5)
        whole = sum(d) if self.metric == "kl" else 1.0
        sizes = self.sizes(cohort)
        raw = [n / sum(sizes) - self.a * each / whole + self.b for n, each in zip(sizes, d, strict=True)]
        self.load(weighted_mean([self.trained(k, index)[0] for k in cohort], [max(each, 0.0) for each in raw]))


@dataclass
class NaiveFedNTD(NaiveSteps):
    beta: float = 1.0
    tau: float = 1.0

    def round(self, index: int, cohort: list[int]) -> None:
        teacher = copy.deepcopy(self.network).eval()

        def direction(network: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> Tensors:
            logits = network(x)
            with torch.no_grad():
                others = teacher(x)
            wrong = torch.ones_like(logits, dtype=torch.bool).scatter(1, y[:, None], False)
            rows = (len(y), logits.shape[1] - 1)
            own = torch.log_softmax(logits[wrong].view(rows) / self.tau, 1)
            target = torch.softmax(others[wrong].view(rows) / self.tau, 1)
            distillation = torch.nn.functional.kl_div(own, target, reduction="batchmean")
            loss = torch.nn.functional.cross_entropy(logits, y) + self.beta * self.tau**2 * distillation
            names, tensors = zip(*network.named_parameters(), strict=True)
            return dict(zip(names, torch.autograd.grad(loss, tensors), strict=True))

        trained = [self.walk(k, index, self.network, direction)[0] for k in cohort]
        self.load(weighted_mean(trained, self.sizes(cohort)))


@dataclass
class NaiveFedAvgM(NaiveLocal):
    momentum: float = 0.9
    form: str = "heavy_ball"
    lr: float = 1.0
    m: Tensors = field(default_factory=dict)

    def round(self, index: int, cohort: list[int]) -> None:
        self.m = self.m or zeros(self.network)
        x = parameters(self.network)
        mean = weighted_mean([self.trained(k, index)[0] for k in cohort], self.sizes(cohort))
        gain = 1 - self.momentum if self.form == "average" else 1.0
        self.m = {name: self.momentum * self.m[name] + gain * (mean[name] - x[name]) for name in x}
        more = {name: mean[name] - x[name] + self.momentum * self.m[name] for name in x}
        step = more if self.form == "nesterov" else self.m
        self.load(mean)
        self.set_parameters({name: x[name] + self.lr * step[name] for name in x})


@dataclass
class NaiveFedACG(NaiveLocal):
    momentum: float = 0.85
    beta: float = 0.01
    m: Tensors = field(default_factory=dict)

    def round(self, index: int, cohort: list[int]) -> None:
        self.m = self.m or zeros(self.network)
        x = parameters(self.network)
        z = {name: x[name] + self.momentum * self.m[name] for name in x}
        self.set_parameters(z)

        def proximal(y: Tensors) -> torch.Tensor:
            return self.beta / 2 * sum(((y[name] - z[name]) ** 2).sum() for name in z)

        mean = weighted_mean([self.train(k, index, penalty=proximal)[0] for k in cohort], [1.0] * len(cohort))
        self.m = {name: self.momentum * self.m[name] + mean[name] - z[name] for name in x}
        self.load(mean)
        self.set_parameters({name: x[name] + self.m[name] for name in x})


@dataclass
class NaiveFedExP(NaiveLocal):
    eps: float = 1e-3
    mu: float = 0.0
    iterate: Tensors = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clients = replace(self.clients, mu=self.mu)

    def round(self, index: int, cohort: list[int]) -> None:
        x = self.iterate or parameters(self.network)
        self.set_parameters(x)
        networks = [self.trained(k, index)[0] for k in cohort]
        moves = [{name: y - x[name] for name, y in parameters(network).items()} for network in networks]
        delta = {name: sum(move[name] for move in moves) / len(moves) for name in x}
        lr = max(1.0, sum(size(move) ** 2 for move in moves) / (2 * len(moves) * (size(delta) ** 2 + self.eps)))
        self.iterate = {name: x[name] + lr * delta[name] for name in x}
        self.load(weighted_mean(networks, [1.0] * len(cohort)))
        self.set_parameters({name: (x[name] + self.iterate[name]) / 2 for name in x})
