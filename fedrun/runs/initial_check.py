"""Whether the weights with which a run begins have been trained by the run that they are from."""

from __future__ import annotations

import torch
import yaml

from fedrun.config.build import build
from fedrun.config.option_name import chosen
from fedrun.config.recorded import current
from fedrun.experiment.experiment import Experiment
from fedrun.models.flat_network import Layout
from fedrun.models.initial_weights import WeightsOfRun
from fedrun.runs.folder import CONFIG
from fedrun.strategies.client import ClientStrategy, trains_global_model
from fedrun.system.errors import InputError
from fedrun.system.yaml_file import read_yaml


def check_initial(experiment: Experiment, layout: Layout) -> None:
    """Reject initial weights that the clients of their run kept, so that its global model has them untrained.

    Args:
        experiment: the experiment that begins with them.
        layout: the layout of its model.

    Raises:
        InputError: naming the run, or its configuration cannot be read.
    """
    weights = experiment.initial
    if not isinstance(weights, WeightsOfRun):
        return
    path = weights.file(experiment.seed).parent / CONFIG
    if not path.exists():  # weights without a run
        return
    try:
        node = read_yaml(path)["strategy"]["client"]
    except (OSError, yaml.YAMLError, TypeError, KeyError) as error:
        raise InputError(
            f"{path}: cannot be read ({type(error).__name__}); expected the configuration of a run"
        ) from None
    client: ClientStrategy = build(current(node, "strategy.client"), "strategy.client")
    kept = client.private(layout) if trains_global_model(client) else torch.ones(layout.size, dtype=torch.bool)
    if kept is None:
        return
    in_head = torch.zeros(layout.size, dtype=torch.bool)
    in_head[layout.head] = True
    taken = kept if weights.is_whole else kept & ~in_head
    if taken.any():
        cure = "" if (kept & ~in_head).any() else "initial.part=encoder, or "
        raise InputError(
            f"initial.path={weights.path}: the clients of this run ({chosen('strategy/client', client)}) kept "
            f"{'their models' if kept.all() else 'a part of the model'}, which its global model has untrained; "
            f"allowed: {cure}a run that trains all of the global model"
        )
