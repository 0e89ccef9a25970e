"""Rounds that do not wait for slow clients (Bonawitz et al., MLSys 2019, arXiv 1902.01046, section 2)."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from annotated_types import Ge, Gt, Lt

from fedrun.config.config_class import config_class
from fedrun.config.identity import Neutral
from fedrun.experiment.aggregation.base import Aggregation, NextStep, Uploads
from fedrun.system.errors import InputError
from fedrun.system.randomness import numpy_generator


@config_class
class Deadline(Aggregation):
    """More clients start than a round needs. The server aggregates the first uploads that arrive, up to a deadline.

    ⌈f M⌉ clients start. The round ends when M of their uploads have arrived, when all of them have, or at the deadline.
    The server does not use later uploads. A round without an upload leaves the model unchanged, and counts. A deadline
    before the upload of the fastest of all clients is rejected.

    Attributes:
        seconds: the deadline, in virtual seconds after the broadcast; None: none.
        over_selection: f.
        failure: the probability, in [0, 1), that the upload of a client that starts never arrives; independent of its
            speed and of other rounds. Above 0 it needs a deadline, for which the server waits.
    """

    seconds: Annotated[float, Gt(0)] | None
    over_selection: Annotated[float, Ge(1)]
    failure: Annotated[float, Ge(0), Lt(1), Neutral(0.0)]

    def __post_init__(self) -> None:
        if self.failure and self.seconds is None:
            raise InputError(
                f"aggregation.failure={self.failure:g}: the server would wait for uploads that never arrive; choose a "
                "deadline, such as aggregation.seconds=60"
            )

    def fewest(self, size: int) -> int:
        return size if self.seconds is None else 1

    def described(self, cohort: str) -> str:
        return f"the first {cohort} per round"

    def uploads(self, step: NextStep) -> Uploads:
        clients = len(seconds := step.seconds())
        if self.seconds is not None and (fastest := float(seconds.min())) > self.seconds:
            raise InputError(
                f"aggregation.seconds={self.seconds:g}: no upload would arrive in time, because the fastest client "
                f"needs {fastest:.3g} s; allowed: at least that"
            )
        drawn, metrics = step.draw(min(clients, math.ceil(self.over_selection * step.size - 1e-9)))
        taken, deadline = seconds[drawn], math.inf if self.seconds is None else self.seconds
        if self.failure:
            uniform = numpy_generator(step.seed, "failure", step.round).random(clients)
            taken[torch.from_numpy(uniform)[drawn] < self.failure] = math.inf
        first = sorted(range(len(drawn)), key=lambda place: (float(taken[place]), int(drawn[place])))[: step.size]
        in_time = [place for place in first if taken[place] <= deadline]
        complete = len(in_time) == min(step.size, len(drawn))
        last = max((float(taken[place]) for place in in_time), default=0.0) if complete else deadline
        late = sorted(set(range(len(drawn))) - set(in_time))
        return Uploads(
            clients=drawn[sorted(in_time)],
            metrics={**metrics, "clients/late": float(len(late))},
            late=drawn[late],
            time=step.time + last,
        )
