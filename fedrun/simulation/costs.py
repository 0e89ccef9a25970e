"""The costs of a round: numbers sent, samples processed."""

from __future__ import annotations

import torch

from fedrun.execution.executor import Executor
from fedrun.experiment.state import Totals
from fedrun.simulation.round_runner import RoundResult
from fedrun.strategies.phase import Phase
from fedrun.strategies.vectors import MODEL, Vectors
from fedrun.uploads.transform import FLOAT


def round_costs(phase: Phase, cohort: torch.Tensor, result: RoundResult, executor: Executor) -> Totals:
    """The costs of one round.

    Args:
        phase: of the round.
        cohort: its participants, int64 ``[C]``.
        result: of their local work.
        executor: computes how many samples a client processes in a round.
    """
    clients = len(phase.federation.train)
    mask = phase.client.private(phase.network.layout)
    private = 0 if mask is None else int(mask.sum())
    at_rest = torch.full((clients,), phase.server.idle_training is not None)
    at_rest[cohort] = False
    resting = at_rest.nonzero().flatten()  # all of them train; only those that are selected next are computed
    pipeline = executor.context.pipeline
    if phase.clustering.downloads_all:  # the checks allow compression for one model only
        down = len(cohort) * sum(_numbers(phase.broadcast(server)) for server in result.models)
        received_bytes = FLOAT * down
    else:
        downloads = [(torch.cat([job.cohort, resting]), _numbers(job.received) - private) for job in result.jobs]
        down = sum(len(receivers) * numbers for receivers, numbers in downloads)
        slots = result.models[0].slots if len(result.models) == 1 else {}
        received_bytes = sum(pipeline.bytes_down(numbers, receivers, slots) for receivers, numbers in downloads)
        if len(result.models) == 1:
            unsent = int(phase.server.unsent(result.models[0], cohort).sum())
            down, received_bytes = down - unsent, received_bytes - FLOAT * unsent
    sent = next((update.mean for update in result.updates if update is not None and update.mean), {})
    layout = phase.network.layout
    kept = private + layout.size - layout.uploaded
    up = len(cohort) * (_numbers(sent) - (kept if MODEL in sent else 0))
    lengths = {name: vector.numel() for name, vector in sent.items()}
    sent_bytes = len(cohort) * pipeline.bytes_up(lengths)
    if absent := int(phase.absent[cohort].sum()):
        models = len(result.models) if phase.clustering.downloads_all else 1
        unsent = absent if MODEL in sent else 0
        # transforms work on whole models, whose absent entries are zero
        received_bytes -= FLOAT * models * absent if received_bytes == FLOAT * down else 0
        down, up = down - models * absent, up - unsent
        sent_bytes -= 0 if pipeline.changes_uploads else FLOAT * unsent
    if phase.federation.is_pooled:
        down = up = sent_bytes = received_bytes = 0
    idle, idle_forward = executor.usual_samples[resting].sum(0).tolist() if len(resting) else (0, 0)
    client_samples = result.client_samples + idle
    return Totals(
        params_up=up,
        params_down=down,
        bytes_up=sent_bytes,
        bytes_down=received_bytes,
        client_samples=client_samples,
        forward_samples=result.forward_samples + idle_forward + client_samples * phase.frozen_encoders,
        excluded=len(result.excluded),
    )


def _numbers(vectors: Vectors) -> int:
    """The number of entries of several vectors."""
    return sum(vector.numel() for vector in vectors.values())
