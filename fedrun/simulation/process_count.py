"""How many processes ``hardware.processes=auto`` starts for a run on a CPU.

Several cores train clients in parallel better than they share the SGD steps of one client. So a run that is long enough
gets a process for each core, and at most one for every two clients of a round, so that processes can be given equal
work. A process needs memory of its own for the model, a batch's activations and PyTorch; they share the data.

Results of different numbers of processes differ by rounding. So the number does not depend on measured times, and a
checkpoint records it.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from fedrun.data.federation import Federation
from fedrun.execution.context import ExecutionContext
from fedrun.execution.executor_choice import supported_executor
from fedrun.execution.hardware import openmp_threads
from fedrun.execution.vectorized import Vectorized
from fedrun.experiment.aggregation.asynchronous import Asynchronous
from fedrun.experiment.experiment import Experiment
from fedrun.simulation.first_phase import first_phase
from fedrun.simulation.round_work import RoundWork
from fedrun.system.cores import cores
from fedrun.uploads.pipeline import UploadPipeline

ROUND_SECONDS = 0.1
"""A round with less work is not divided, because exchanging the updates takes milliseconds."""

RUN_SECONDS = 10.0
"""A run with less work is not divided, because processes take time to start and to end."""


def may_be_divided(experiment: Experiment) -> bool:
    """Whether several processes are possible, decided before anything is loaded.

    They are not possible on a GPU, with another executor than ``in_process``, if the number of threads is set, on one
    core, for pooled data, and if idle clients train. With asynchronous aggregation a step may have too few uploads to
    share. :func:`automatic_processes` checks the clients' states and whether they train side by side.
    """
    hardware, strategy = experiment.hardware, experiment.strategy
    return (
        hardware.device == "cpu"
        and hardware.executor in ("in_process", None)
        and hardware.threads is None
        and openmp_threads() is None
        and cores() > 1
        and not experiment.population.pooled
        and strategy.server.idle_training is None
        and not isinstance(experiment.aggregation, Asynchronous)
    )


def automatic_processes(experiment: Experiment, federation: Federation) -> int:
    """The number of processes of a run that may be divided.

    Args:
        experiment: experiment of the run.
        federation: its clients.

    Raises:
        InputError: the strategy or the model does not fit the federation.
    """
    phase = first_phase(experiment, federation, torch.device("cpu"))
    layout = phase.network.layout
    pipeline = UploadPipeline((experiment.compression,), layout, phase.seed, phase.client.private(layout))
    context = replace(ExecutionContext.of(phase, experiment.evaluation.client_means), pipeline=pipeline)
    executor = supported_executor(experiment.hardware.executor, context, phase.cohort_size)
    # this context lacks the noise of DP-SGD, with which clients train one after another
    together = isinstance(executor, Vectorized) and not experiment.privacy.noises_steps
    if context.state_lengths or together:
        return 1
    work = RoundWork.of(phase)
    if work.seconds < ROUND_SECONDS or work.seconds * experiment.rounds < RUN_SECONDS:
        return 1
    return max(1, min(cores(), phase.cohort_size // 2))
