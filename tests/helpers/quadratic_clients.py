"""Clients whose loss is f(y; a, b) = a/2 (y - b)^2 on a model of one number, and the values that hooks take."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.experiment.experiment import build_experiment
from fedrun.experiment.strategy import Strategy
from fedrun.models.flat_network import Layout, Slot
from fedrun.strategies.client import ClientStrategy
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.server import CohortUpdate, Round, Senders, ServerState, ServerStrategy

SGD = option("strategy/client", "sgd")
FEDAVG = option("strategy/server", "fedavg")
UNIFORM = option("strategy/server", "fedavg", weighting="uniform")
SCAFFOLD = Strategy(client=option("strategy/client", "scaffold"), server=option("strategy/server", "scaffold"))
DEFAULTS = build_experiment(compose().config).local
ONE = Layout(slots=(Slot("head.weight", (1, 1), 0, 1),), trainable=1, size=1, head=slice(0, 1), classes=1, embedding=1)


@dataclass
class Quadratics:
    """A federation of quadratic clients with a client strategy and a server strategy."""

    client: ClientStrategy
    server: ServerStrategy
    curves: tuple[tuple[float, float], ...]
    samples: tuple[int, ...]
    lr: float
    steps: int
    momentum: float = 0.0
    states: dict[int, dict[str, torch.Tensor]] = field(default_factory=dict)

    def ends(self, state: ServerState) -> list[tuple[torch.Tensor, dict[str, torch.Tensor]]]:
        """Every client's model and other uploads after its steps."""
        received, trained = self.server.broadcast(state), []
        for number, (a, b) in enumerate(self.curves):
            state = self.states.get(number, {name: torch.zeros(1) for name in self.client.client_state(ONE)})
            info = info_of(self.samples, number, self.steps, self.lr, momentum=self.momentum)
            constants = self.client.constants(received, state, info)
            begin = self.client.start(received, state, constants, info)
            y, velocity = begin.clone(), torch.zeros(1)
            for _ in range(self.steps):
                gradient = self.client.direction(lambda at, _, a=a, b=b: a * (at - b), y, constants)
                if (linear_correction := self.client.linear_correction(constants)) is not None:
                    gradient = (
                        gradient
                        + linear_correction.shift
                        + (0 if linear_correction.strength is None else linear_correction.strength * y)
                    )
                velocity = self.momentum * velocity + gradient
                y -= self.lr * velocity
            uploads, state = self.client.finish(y, received, state, constants, replace(info, start=begin))
            self.states[number] = dict(state)
            trained.append((y, dict(uploads)))
        return trained

    def round(self, state: ServerState, index: int = 0) -> ServerState:
        trained = self.ends(state)
        weights = self.server.weights(state, senders_of(self.samples))
        uploads = [upload for _, upload in trained]
        mean = {
            name: sum(w * upload[name] for w, upload in zip(weights.tolist(), uploads, strict=True))
            / weights.sum().item()
            for name in uploads[0]
        }
        update = replace(update_of(mean, self.samples), steps=torch.full((len(self.curves),), self.steps))
        round = replace(round_of(index, len(self.curves), self.lr), momentum=self.momentum)
        return self.server.aggregate(state, update, round)[0]


def info_of(samples: tuple[int, ...], client: int, steps: int, lr: float, **local: float) -> ClientInfo:
    return ClientInfo(
        layout=ONE,
        local=replace(DEFAULTS, lr=lr, **local),
        seed=0,
        round=0,
        clients=torch.tensor(client),
        is_new=torch.tensor([True]),
        samples=torch.tensor([float(samples[client])]),
        relative_size=torch.tensor([samples[client] * len(samples) / sum(samples)]),
        steps=torch.tensor([float(steps)]),
        mean_steps=steps,
    )


def senders_of(samples: tuple[int, ...]) -> Senders:
    return Senders(clients=torch.arange(len(samples)), samples=torch.tensor(samples))


def update_of(mean: dict[str, torch.Tensor], samples: tuple[int, ...]) -> CohortUpdate:
    count = len(samples)
    return CohortUpdate(
        clients=torch.arange(count),
        samples=torch.tensor(samples),
        steps=torch.ones(count, dtype=torch.int64),
        mean=mean,
        weights=torch.tensor(samples, dtype=torch.float64),
        rows=None,
        excluded=(),
        loss=0.0,
        score=0.0,
    )


def round_of(index: int, clients: int, lr: float = 0.1) -> Round:
    return Round(index=index, total=10, clients=clients, layout=ONE, seed=0, lr=lr)


def start(server: ServerStrategy, x: float) -> ServerState:
    return server.init(torch.tensor([x]), ONE, 2)
