"""Whether the weights with which a run begins were trained by their run, and not on this run's test samples."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import torch
import yaml

from fedrun.config.as_config import Plain, as_config
from fedrun.config.build import build
from fedrun.config.option_name import chosen
from fedrun.config.recorded import current
from fedrun.experiment.experiment import Experiment
from fedrun.models.flat_network import Layout
from fedrun.models.initial_weights import WeightsOfRun
from fedrun.runs.folder import CONFIG
from fedrun.strategies.client import ClientStrategy, trains_global_model
from fedrun.system.errors import InputError
from fedrun.system.randomness import chosen_seed
from fedrun.system.yaml_file import read_yaml

log = logging.getLogger(__name__)

DIVIDING = ("partition", "population", "validation")
"""The parts of an experiment that decide on which samples its clients train and on which they are tested."""


def check_weights_of_run(experiment: Experiment, layout: Layout) -> None:
    """Reject initial weights that the clients of their run kept, so that its global model has them untrained. Warn of
    weights that may have been trained on samples that this run holds out of its clients.

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
        node = read_yaml(path)
        client: ClientStrategy = build(current(node["strategy"]["client"], "strategy.client"), "strategy.client")
        data = current(node["dataset"], "dataset")
        division = _division({part: current(node[part], part) for part in DIVIDING}, node["seed"])
    except (OSError, yaml.YAMLError, TypeError, KeyError) as error:
        raise InputError(
            f"{path}: cannot be read ({type(error).__name__}); expected the configuration of a run"
        ) from None
    _warn_of_shared_samples(experiment, weights, data, division)
    _reject_untrained(weights, client, layout)


def _warn_of_shared_samples(
    experiment: Experiment, weights: WeightsOfRun, data: Plain, division: Mapping[str, Plain]
) -> None:
    """Warn if the run that trained weights, on these data and with this :func:`_division`, divided them otherwise."""
    population, validation = experiment.population, experiment.validation
    if not (population.test_share or population.unseen_clients or validation.share):
        return
    parts = {part: as_config(getattr(experiment, part), part) for part in DIVIDING}
    if data == as_config(experiment.dataset, "dataset") and division != _division(parts, experiment.seed):
        log.warning(
            "initial.path=%s: its run divided the same data otherwise (another seed, partition, population or "
            "validation), so its clients may have trained on samples that are held out of training here",
            weights.path,
        )


def _reject_untrained(weights: WeightsOfRun, client: ClientStrategy, layout: Layout) -> None:
    """Reject weights that these clients of their run kept."""
    kept = client.private(layout) if trains_global_model(client) else torch.ones(layout.size, dtype=torch.bool)
    if kept is None:
        return
    in_head = torch.zeros(layout.size, dtype=torch.bool)
    in_head[layout.head] = True
    taken = kept if weights.is_whole else kept & ~in_head
    if taken.any():
        remedy = "" if (kept & ~in_head).any() else "initial.part=encoder, or "
        raise InputError(
            f"initial.path={weights.path}: the clients of this run ({chosen('strategy/client', client)}) kept "
            f"{'their models' if kept.all() else 'a part of the model'}, which its global model has untrained; "
            f"allowed: {remedy}a run that trains all of the global model"
        )


def _division(parts: Mapping[str, Plain], seed: int) -> Mapping[str, Plain]:
    """What decides which samples a run with this seed holds out of training.

    Args:
        parts: the configuration of each of :data:`DIVIDING`.
        seed: the run's seed, with which a part draws that has none of its own.
    """
    drawn = {name: {**part, "seed": chosen_seed(part.get("seed"), seed)} for name, part in parts.items()}
    population = {**drawn["population"], "pooled": None}  # who trains on them does not matter
    return {
        **drawn,
        "population": population,
        "validation": drawn["validation"] if drawn["validation"]["share"] else {},
    }
