"""Asynchronous aggregation: clients train on while the server makes its steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt

from fedrun.config.config_class import config_class
from fedrun.config.marks import NoEffect
from fedrun.experiment.aggregation.base import Aggregation, NextStep, Uploads
from fedrun.experiment.aggregation.in_training import next_arrivals


@config_class
class Asynchronous(Aggregation, ABC):
    """The base of the asynchronous rules: M clients train at any time, and the server makes a step for every K uploads.

    The staleness τ of an upload is the number of server steps since its client started.

    Attributes:
        staleness: s(τ), the factor of an upload. ``constant``: 1; ``polynomial``: (1 + τ)^−a; ``hinge``: 1 up to τ = b,
            then 1 / (a (τ − b) + 1).
        a: a > 0 of ``polynomial`` and ``hinge``.
        b: b ≥ 0 of ``hinge``.
    """

    staleness: Literal["constant", "polynomial", "hinge"]
    a: Annotated[float, Gt(0), NoEffect("staleness", ("constant",))]
    b: Annotated[float, Ge(0), NoEffect("staleness", ("constant", "polynomial"))]

    @property
    @abstractmethod
    def count(self) -> int:
        """K, the number of uploads of a server step."""

    def factor(self, staleness: int) -> float:
        """s(τ)."""
        if self.staleness == "constant":
            return 1.0
        if self.staleness == "polynomial":
            return float((1 + staleness) ** -self.a)
        return 1.0 if staleness <= self.b else 1 / (self.a * (staleness - self.b) + 1)

    def fewest(self, size: int) -> int:
        return self.count

    def described(self, cohort: str) -> str:
        uploads = "upload" if self.count == 1 else f"{self.count} uploads"
        return f"{cohort} train at any time; a server step for every {uploads}"

    def uploads(self, step: NextStep) -> Uploads:
        arrivals, training, time = next_arrivals(
            step.training,
            seed=step.seed,
            version=step.round,
            time=step.time,
            concurrency=step.size,
            count=self.count,
            seconds=step.seconds(),
        )
        staleness = [step.round - start.version for start in arrivals]
        return Uploads(
            clients=torch.tensor([start.client for start in arrivals], dtype=torch.int64),
            metrics={
                "clients/staleness": sum(staleness) / len(staleness),
                "clients/staleness_max": float(max(staleness)),
            },
            time=time,
            training=training,
            started={start.client: start.version for start in arrivals},
        )
