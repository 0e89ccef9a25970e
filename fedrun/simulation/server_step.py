"""The server's side of a round: received updates pass the transforms of uploads, then the strategy makes its step."""

from __future__ import annotations

import logging
from dataclasses import replace

import torch

from fedrun.config.option_name import chosen
from fedrun.execution.context import ExecutionContext
from fedrun.execution.distributed_cohort import empty_update
from fedrun.experiment.experiment import Experiment
from fedrun.experiment.state import State
from fedrun.simulation.round_runner import RoundResult
from fedrun.strategies.contract import check_aggregated
from fedrun.strategies.phase import Phase
from fedrun.strategies.server import LAST_MEAN, CohortUpdate, Round, Senders, ServerState
from fedrun.strategies.vectors import MODEL
from fedrun.system.errors import InputError
from fedrun.training.batches import steps_of
from fedrun.training.noised_steps import without_sample_gradients
from fedrun.training.optimizer_step import repair
from fedrun.uploads.attacks.colluding import Colluding
from fedrun.uploads.pipeline import UploadPipeline
from fedrun.uploads.privacy.base import Cohorts, Mechanism, Privacy
from fedrun.uploads.privacy.calibration import Calibration
from fedrun.uploads.privacy.local import Local
from fedrun.uploads.privacy.sample_level import SampleLevel
from fedrun.uploads.privacy.user_level import UserLevel
from fedrun.uploads.secure_sum import FixedPoint

log = logging.getLogger(__name__)


def upload_pipeline(experiment: Experiment, phase: Phase, calibration: Calibration) -> tuple[UploadPipeline, Mechanism]:
    """The transforms of a phase's uploads, and the mechanism of privacy among them.

    Args:
        experiment: experiment of the run.
        phase: phase of the rounds.
        calibration: finds the noise of the mechanism.

    Raises:
        InputError: the run's clients or its model do not fit them.
    """
    layout, sizes, privacy = phase.network.layout, phase.federation.train.sizes, experiment.privacy
    secure_sum = experiment.secure_sum
    lengthening = secure_sum.lengthening(layout.trainable * len(phase.client.sends))
    mechanism = privacy.mechanism(Cohorts(sizes, phase.cohort_size, phase.end, phase.local, lengthening, calibration))
    compressed = (experiment.compression, mechanism)
    transforms = (*(compressed[::-1] if mechanism.precedes_compression else compressed), secure_sum)
    pipeline = UploadPipeline(transforms, layout, phase.seed, phase.client.private(layout))
    if type(privacy) is not Privacy:
        _check_private(experiment, phase)
        if mechanism.changes_uploads:
            _check_lengths(chosen("privacy", privacy), "clipped", phase, pipeline)
        others = ", ".join(sorted(phase.client.sends - {MODEL}))
        if isinstance(privacy, UserLevel | Local) and privacy.extra_share is not None and not others:
            raise InputError(
                f"privacy.extra_share={privacy.extra_share:g}: {chosen('strategy/client', phase.client)} sends nothing "
                "besides the model; allowed: null"
            )
        if isinstance(privacy, UserLevel | Local) and privacy.extra_share is None and others:
            log.warning(
                "%s clips all that a client sends by one norm. %s also sends %s, which may be much longer than the "
                "model's displacement; privacy.extra_share=0.5 gives each its own norm",
                chosen("privacy", privacy),
                chosen("strategy/client", phase.client),
                others,
            )
    if isinstance(secure_sum, FixedPoint):
        _check_buffers(chosen("secure_sum", secure_sum), "sent in float32, not as integers", experiment, phase)
        _check_lengths(chosen("secure_sum", secure_sum), "rounded", phase, pipeline)
        everyone = Senders(clients=torch.arange(len(sizes)), samples=sizes)
        weights = pipeline.weights(everyone)
        if weights is None:
            state = phase.server.init(phase.initial_model(), layout, len(sizes))
            weights = phase.server.weights(state, everyone)
        # all clients may be drawn by Poisson sampling, and by a rule whose cohorts vary
        varies = experiment.participation.varies or privacy.cohort_sampling == "poisson"
        most = len(sizes) if varies else phase.cohort_size
        secure_sum.check_headroom(float(weights.topk(most).values.sum()))
    return pipeline, mechanism


def _check_private(experiment: Experiment, phase: Phase) -> None:
    """Reject float buffers, which would be sent without being clipped, and models without gradients of single samples.

    Raises:
        InputError: naming the model.
    """
    key = chosen("privacy", experiment.privacy)
    _check_buffers(key, "averaged without noise", experiment, phase)
    if isinstance(experiment.privacy, SampleLevel) and (
        reason := without_sample_gradients(phase.network, phase.samples)
    ):
        raise InputError(f"{key} with {chosen('model', experiment.model)}, which has {reason}; choose another model")
    if experiment.stop_at_targets:
        log.warning(
            "stop_at_targets=true with %s: test samples decide when the run ends, which ε does not cover; "
            "privacy/epsilon is that of the rounds made",
            key,
        )


def _check_buffers(key: str, change: str, experiment: Experiment, phase: Phase) -> None:
    """Reject float buffers that leave the clients, because transforms of uploads change parameters only.

    Args:
        key: the option that changes uploads.
        change: what would happen to buffers instead.
        experiment: experiment of the run.
        phase: the phase whose clients send.

    Raises:
        InputError: naming the model.
    """
    layout = phase.network.layout
    kept = phase.client.private(layout)
    buffers = slice(layout.trainable, layout.uploaded)
    if layout.uploaded - layout.trainable > (0 if kept is None else int(kept[buffers].sum())):
        raise InputError(
            f"{key} with {chosen('model', experiment.model)}: its float buffers (BatchNorm's running statistics) "
            f"would be {change}; choose a model without them, such as one with GroupNorm"
        )


def _check_lengths(key: str, change: str, phase: Phase, pipeline: UploadPipeline) -> None:
    """Reject vectors that are sent but not changed, because they are no displacements.

    Args:
        key: the option that changes displacements.
        change: what it does to them.
        phase: the phase whose clients send.
        pipeline: pipeline of their uploads.

    Raises:
        InputError: naming the strategy.
    """
    state = phase.server.init(phase.initial_model(), phase.network.layout, len(phase.federation.train))
    broadcast = phase.server.broadcast(state)
    for name in sorted(phase.client.sends):
        if name not in broadcast or not pipeline.is_transformed(len(broadcast[name])):
            raise InputError(
                f"{key}: {chosen('strategy/client', phase.client)} sends {name!r}, whose length is not that of the "
                f"model's parameters, and it would not be {change}; choose another strategy"
            )


def empty_round(phase: Phase, state: State) -> RoundResult:
    """The work of an empty cohort."""
    update = empty_update()
    nothing = RoundResult(state.models, (), (update,), state.client_states, state.membership, update.processed)
    return without_displacement(phase, nothing)


def without_displacement(phase: Phase, result: RoundResult) -> RoundResult:
    """The work of a cohort whose uploads, if there are any, all count as the zero vector."""
    (server,), (update,) = result.models, result.updates
    assert update is not None
    received = phase.server.broadcast(server)
    mean = {
        name: received[name].clone() if name == MODEL else torch.zeros_like(received[name])
        for name in phase.client.sends
    }
    return replace(result, updates=(replace(update, mean=mean),))


def aggregate(
    phase: Phase, state: State, result: RoundResult, context: ExecutionContext, *, sums_only: bool
) -> tuple[tuple[ServerState, ...], dict[str, float]]:
    """The next models, and the mean metrics of the server steps. A model without an update stays as it is.

    Args:
        phase: phase of the round.
        state: before the round.
        result: result of the cohort's local work.
        context: context of the local work.
        sums_only: whether the server may use only the sum of the uploads (:attr:`Privacy.sees_sums_only`).
    """
    clients, layout, pipeline = len(phase.federation.train), phase.network.layout, context.pipeline
    nearest = None if result.membership is None else result.membership.argmax(1)[result.membership.any(1)]
    models, steps = list(result.models), []
    for number, update in enumerate(result.updates):
        if update is None or not (update.mean or len(update.clients)):  # clients that send nothing have no mean
            continue
        members = clients if nearest is None else int((nearest == number).sum())
        rate, momentum = phase.local.rate(state.round), phase.local.momentum
        round = Round(state.round, phase.end, members, layout, phase.seed, rate, momentum)
        server = result.models[number]
        counts = context.label_counts[update.clients] if "label_counts" in phase.server.wants else None
        arrived = attacked(phase, server, replace(update, label_counts=counts), context)
        if sums_only:  # who took part is private; the steps of all clients are taken as known
            arrived = replace(arrived, steps=steps_of(context.clients.sizes, context.local, len(context.client.passes)))
        combined, slots, measured = pipeline.combine(arrived, phase.server.broadcast(server), server.slots, round)
        kept = {name: server.slots[name] for name in pipeline.slots()} | dict(slots)
        if LAST_MEAN in server.slots:
            kept[LAST_MEAN] = combined.mean[MODEL].clone()
        aggregated = phase.server.aggregate(server, combined, round)
        check_aggregated(phase.server, aggregated, layout.size)
        after, metrics = aggregated
        models[number] = replace(after, slots={**after.slots, **kept}) if kept else after
        steps.append({**{f"server/{name}": value for name, value in metrics.items()}, **measured})
    if phase.local.repair_nonfinite:
        for server in models:
            repair(server.model[: layout.trainable])
    values: dict[str, list[float]] = {}  # a step of one model may have metrics that another's has not
    for step in steps:
        for name, value in step.items():
            values.setdefault(name, []).append(value)
    return tuple(models), {name: sum(known) / len(known) for name, known in values.items()}


def attacked(phase: Phase, server: ServerState, update: CohortUpdate, context: ExecutionContext) -> CohortUpdate:
    """An update with the uploads of attackers that know all honest uploads."""
    if not isinstance(context.attack, Colluding) or not len(update.clients):
        return update
    layout, model = phase.network.layout, phase.server.broadcast(server)[MODEL]
    return context.attack.replaced(update, context.attackers, model, layout.trainable, phase.server.rows, layout.head)
