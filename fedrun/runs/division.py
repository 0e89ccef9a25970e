"""The number of processes among which the ``fedrun`` command divides a run."""

from __future__ import annotations

import torch

from fedrun.data.federation import Federation
from fedrun.experiment.experiment import Experiment
from fedrun.runs.checkpoint import processes_of
from fedrun.runs.folder import CHECKPOINT, finished
from fedrun.simulation.prepared_federation import prepare_federation
from fedrun.simulation.process_count import automatic_processes, may_be_divided


def divide(experiment: Experiment) -> tuple[int, Federation | None]:
    """The number of processes to start, and the federation if it had to be prepared to choose the number.

    An interrupted run continues with its earlier number, unless another one is set.

    Raises:
        InputError: the data cannot be used, or a file of the finished run is damaged.
    """
    chosen = experiment.hardware.processes
    if chosen in (1, "torchrun") or (chosen == "auto" and not may_be_divided(experiment)):
        return 1, None
    if not experiment.overwrite and finished(experiment.folder) is not None:
        return 1, None
    torch.set_num_threads(1)  # until the processes are forked
    federation = prepare_federation(experiment)
    if isinstance(chosen, int):
        return chosen, federation
    earlier = None if experiment.overwrite else processes_of(experiment.folder / CHECKPOINT)
    return earlier or automatic_processes(experiment, federation), federation
