"""Thresholds and populations for tests of appeal."""

from __future__ import annotations

from fedrun.config.build import option
from fedrun.data.population import Population

RHO = 1.0


def constant(loss: float = RHO):
    return option("appeal", "constant", loss=loss, convention="train")


TESTED = Population(unseen_clients=2, test_share=0.4, test_of="auto", flipped_share=0.0, pooled=False, seed=None)


def warmup(steps: int = 100, convention: str = "auto", lr: float | None = None, batch_size: int | None = None):
    return option("appeal", "warmup", steps=steps, convention=convention, lr=lr, batch_size=batch_size)
