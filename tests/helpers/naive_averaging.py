"""FedAvg, FedProx, SCAFFOLD and FedAdam on ordinary modules: autograd, torch.optim and dictionaries of tensors.

Nothing is shared with the code under test but the addresses of the random choices (who takes part, in which order
samples are visited), which are part of fedrun's contract.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field

import torch

from fedrun.system.randomness import generator

Tensors = dict[str, torch.Tensor]


@dataclass
class NaiveClients:
    """How clients train; the fields are those of ``fedrun.strategies.local_training.LocalTraining``."""

    lr: float = 0.1
    lr_decay: float = 1.0
    momentum: float = 0.0
    weight_decay: float = 0.0
    batch_size: int | None = 4
    epochs: int | None = 1
    steps: int | None = None
    max_gradient_norm: float | None = None
    mu: float = 0.0
    repair_nonfinite: bool = False

    def effective(self, steps: int) -> float:
        """How far a constant gradient of 1 moves the model by these steps of rate 1."""
        moved = velocity = 0.0
        for _ in range(steps):
            velocity = self.momentum * velocity + 1
            moved += velocity
        return moved

    def batches(self, count: int, order: torch.Generator) -> list[torch.Tensor]:
        """A permutation per epoch, cut into batches; with ``steps``, as many epochs as needed."""
        size = self.batch_size or count
        made: list[torch.Tensor] = []
        while len(made) < (self.steps if self.steps else self.epochs * math.ceil(count / size)):
            permutation = torch.randperm(count, generator=order)
            made += [permutation[first : first + size] for first in range(0, count, size)]
        return made[: self.steps] if self.steps else made

    def train(
        self,
        broadcast: torch.nn.Module,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        order: torch.Generator,
        round: int,
        correction: Tensors | None = None,
    ) -> tuple[torch.nn.Module, int]:
        """A trained copy of the broadcast network, and the number of steps."""
        network = copy.deepcopy(broadcast).train()
        anchor = {name: tensor.detach().clone() for name, tensor in broadcast.named_parameters()}
        optimizer = torch.optim.SGD(
            network.parameters(),
            lr=self.lr * self.lr_decay**round,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
        )
        batches = self.batches(len(labels), order)
        for batch in batches:
            loss = torch.nn.functional.cross_entropy(network(inputs[batch]), labels[batch])
            for name, parameter in network.named_parameters():
                loss = loss + self.mu / 2 * ((parameter - anchor[name]) ** 2).sum()
            optimizer.zero_grad()
            loss.backward()
            for name, parameter in network.named_parameters():
                if correction is not None:
                    parameter.grad += correction[name]
            if self.max_gradient_norm is not None:
                torch.nn.utils.clip_grad_norm_(network.parameters(), self.max_gradient_norm)
            optimizer.step()
            if self.repair_nonfinite:
                for parameter in network.parameters():
                    parameter.data.nan_to_num_(nan=1e-5, posinf=1e-5, neginf=1e-5)
        return network, len(batches)


def floats(network: torch.nn.Module) -> Tensors:
    """Every floating-point entry of the state dict: parameters and BatchNorm's running statistics."""
    return {name: tensor for name, tensor in network.state_dict().items() if tensor.is_floating_point()}


def weighted_mean(networks: list[torch.nn.Module], weights: list[float]) -> Tensors:
    """state_dict averaging."""
    states = [floats(network) for network in networks]
    return {
        name: sum(weight * state[name].double() for weight, state in zip(weights, states, strict=True)).float()
        / sum(weights)
        for name in states[0]
    }


@dataclass
class NaiveServer:
    """Runs rounds; the subclasses say what a round does with the trained copies."""

    network: torch.nn.Module
    data: list[tuple[torch.Tensor, torch.Tensor]]
    clients: NaiveClients
    seed: int

    def trained(self, client: int, round: int, correction: Tensors | None = None) -> tuple[torch.nn.Module, int]:
        order = generator(self.seed, "batches", round, client)
        return self.clients.train(self.network, *self.data[client], order, round, correction)

    def load(self, tensors: Tensors) -> None:
        self.network.load_state_dict(tensors, strict=False)

    def sizes(self, cohort: list[int]) -> list[float]:
        return [float(len(self.data[client][1])) for client in cohort]


@dataclass
class NaiveFedAvg(NaiveServer):
    uniform: bool = False

    def round(self, index: int, cohort: list[int]) -> None:
        networks = [self.trained(client, index)[0] for client in cohort]
        self.load(weighted_mean(networks, [1.0] * len(cohort) if self.uniform else self.sizes(cohort)))


@dataclass
class NaiveScaffold(NaiveServer):
    lr: float = 1.0
    control: Tensors = field(default_factory=dict)
    controls: dict[int, Tensors] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.control = {name: torch.zeros_like(tensor) for name, tensor in self.network.named_parameters()}
        self.controls = {client: copy.deepcopy(self.control) for client in range(len(self.data))}

    def round(self, index: int, cohort: list[int]) -> None:
        x = {name: tensor.detach().clone() for name, tensor in self.network.named_parameters()}
        networks, changes = [], []
        for client in cohort:
            own = self.controls[client]
            correction = {name: self.control[name] - own[name] for name in x}
            network, steps = self.trained(client, index, correction)
            eta = self.clients.lr * self.clients.lr_decay**index
            y = dict(network.named_parameters())
            divisor = eta * self.clients.effective(steps)
            new = {name: own[name] - self.control[name] + (x[name] - y[name].detach()) / divisor for name in x}
            changes.append({name: new[name] - own[name] for name in x})
            self.controls[client] = new
            networks.append(network)
        self.load(weighted_mean(networks, [1.0] * len(cohort)))
        with torch.no_grad():
            for name, parameter in self.network.named_parameters():
                parameter.copy_(x[name] + self.lr * (parameter - x[name]))
        for change in changes:
            for name in self.control:
                self.control[name] = self.control[name] + change[name] / len(self.data)


@dataclass
class NaiveFedAdam(NaiveServer):
    lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    reddi: bool = False
    frozen: bool = False

    def __post_init__(self) -> None:
        self.adam = torch.optim.Adam(self.network.parameters(), self.lr, (self.beta1, self.beta2), self.eps)
        self.m = {name: torch.zeros_like(tensor) for name, tensor in self.network.named_parameters()}
        self.v = {name: torch.full_like(tensor, self.eps**2) for name, tensor in self.network.named_parameters()}

    def round(self, index: int, cohort: list[int]) -> None:
        mean = weighted_mean([self.trained(client, index)[0] for client in cohort], self.sizes(cohort))
        parameters = dict(self.network.named_parameters())
        deltas = {name: mean[name] - parameter.detach() for name, parameter in parameters.items()}
        if self.reddi:
            with torch.no_grad():
                for name, parameter in parameters.items():
                    self.m[name] = self.beta1 * self.m[name] + (1 - self.beta1) * deltas[name]
                    self.v[name] = self.beta2 * self.v[name] + (1 - self.beta2) * deltas[name] ** 2
                    parameter.add_(self.lr * self.m[name] / (self.v[name].sqrt() + self.eps))
        else:
            for name, parameter in parameters.items():
                parameter.grad = -deltas[name]
            self.adam.step()
        if not self.frozen:
            self.load({name: tensor for name, tensor in mean.items() if name not in parameters})
