"""Checks that the parts of an experiment support the dataset's task."""

from __future__ import annotations

from typing import Protocol

from fedrun.config.option_name import chosen
from fedrun.data.partitions.base import Partition
from fedrun.data.population import Population
from fedrun.data.tasks.base import Task
from fedrun.experiment.appeal.base import Appeal
from fedrun.experiment.evaluation import Evaluation
from fedrun.experiment.strategy import Strategy
from fedrun.system.errors import InputError
from fedrun.uploads.attacks.base import Attack


class Part(Protocol):
    """A part of an experiment."""

    @property
    def needs_classes(self) -> bool:
        """Whether it requires a classification task."""


def check_task(
    task: Task,
    partition: Partition,
    strategy: Strategy,
    attack: Attack,
    appeal: Appeal,
    population: Population,
    evaluation: Evaluation,
) -> None:
    """Reject parts that need one class per sample, or one embedding per sample, if the task has none.

    Raises:
        InputError: naming the part and the task.
    """
    parts: dict[str, Part] = {
        "partition": partition,
        "strategy/client": strategy.client,
        "strategy/server": strategy.server,
        "attack": attack,
        "appeal": appeal,
        "strategy/clustering": strategy.clusters(),
        "strategy/post_training": strategy.afterwards(),
    }
    needing = [chosen(group, part) for group, part in parts.items() if part.needs_classes]
    if population.flipped_share:
        needing.append(f"population.flipped_share={population.flipped_share:g}")
    if evaluation.adaptive:
        needing.append("evaluation.adaptive=true")
    if needing and not task.has_classes:
        raise InputError(
            f"{needing[0]} needs one class per sample, and the dataset's task is {task.name}; allowed: with a "
            "classification"
        )
    embeds = strategy.client.reference_models or not strategy.client.wants.isdisjoint(
        ("embeddings", "earlier_embeddings")
    )
    if embeds and task.per_symbol:
        raise InputError(
            f"{strategy.named_client} compares one embedding per sample, and the dataset's "
            f"task, {task.name}, has one per symbol; choose another client strategy, such as sgd"
        )
