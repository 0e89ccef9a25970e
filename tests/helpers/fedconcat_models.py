"""FedConcat on the small federation, and its models together."""

from __future__ import annotations

import torch
from torch import nn

from fedrun.config.build import option
from fedrun.experiment.state import State
from fedrun.experiment.strategy import ClusteredStrategy
from fedrun.simulation.simulation import Simulation

from .quadratic_clients import FEDAVG, SGD
from .small_networks import mlp

NO_STAGE = option("strategy/post_training", "none")


def fedconcat(clustering: str = "label_distributions", rounds: int = 0, initial: str = "random", **changes: object):
    stage = option("strategy/post_training", "classifier", rounds=rounds, initial=initial) if rounds else NO_STAGE
    clusters = option("strategy/clustering", clustering, **changes)
    return ClusteredStrategy(client=SGD, server=FEDAVG, clustering=clusters, post_training=stage)


def logits(simulation: Simulation, state: State, samples: torch.Tensor) -> torch.Tensor:
    """Of the clusters' MLPs together; once they are frozen, of the classifier on their features."""
    inputs = simulation.dataset.inputs[samples].float() / 255

    def network(model: torch.Tensor) -> nn.Module:
        built = mlp(simulation.dataset.spec)
        built.load_state_dict(simulation.network.layout.views(model))
        return built.eval()

    with torch.no_grad():
        if not state.finished:
            return sum(network(server.model)(inputs) for server in state.models)
        features = torch.cat([network(model).encoder(inputs) for model in state.finished[0]], dim=1)
        head = simulation.phase(state).network.layout.views(state.server.model)
        return features @ head["head.weight"].T + head["head.bias"]
