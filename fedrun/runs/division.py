"""The number of processes among which the ``fedrun`` command divides a run."""

from __future__ import annotations

import torch

from fedrun.data.federation import Federation
from fedrun.experiment.experiment import Experiment
from fedrun.runs.checkpoint import processes_of
from fedrun.runs.folder import CHECKPOINT, has_results
from fedrun.simulation.prepared_federation import prepare_federation
from fedrun.simulation.process_count import automatic_processes, may_be_divided


def divide(experiment: Experiment) -> tuple[int, Federation | None]:
    """The number of processes to start, and the federation if there are several or it is needed to choose the number.

    On a CPU an interrupted run continues with its earlier number, unless another one is set.

    Raises:
        InputError: the data cannot be used.
    """
    hardware, chosen = experiment.hardware, experiment.hardware.processes
    if chosen == 1 or (not experiment.overwrite and has_results(experiment.folder)):
        return 1, None
    if chosen == "auto" and hardware.device == "cpu" and not experiment.overwrite:
        chosen = processes_of(experiment.folder / CHECKPOINT) or "auto"
    if chosen == 1 or (chosen == "auto" and not may_be_divided(experiment)):
        return 1, None
    torch.set_num_threads(1)  # until the processes are forked
    federation = prepare_federation(experiment)
    return automatic_processes(experiment, federation) if chosen == "auto" else chosen, federation
