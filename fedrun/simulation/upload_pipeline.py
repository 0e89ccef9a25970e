"""The transforms of a phase's uploads, checked against its clients and its model."""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from fedrun.config.option_name import chosen
from fedrun.experiment.experiment import Experiment
from fedrun.strategies.client import ClientStrategy
from fedrun.strategies.contract import mistake
from fedrun.strategies.phase import Phase
from fedrun.strategies.server import Senders
from fedrun.strategies.vectors import MODEL
from fedrun.system.errors import InputError
from fedrun.training.noised_steps import sample_gradients_problem
from fedrun.uploads.pipeline import UploadPipeline
from fedrun.uploads.privacy.base import Cohorts, Mechanism
from fedrun.uploads.privacy.clipping import ClippedUploads
from fedrun.uploads.secure_sum import FixedPoint

log = logging.getLogger(__name__)


def upload_pipeline(
    experiment: Experiment, phase: Phase, noise_folder: Path | None
) -> tuple[UploadPipeline, Mechanism]:
    """The transforms of a phase's uploads, and the mechanism of privacy among them.

    Args:
        experiment: experiment of the run.
        phase: phase of the rounds.
        noise_folder: has calibrated noise multipliers; None: they are not stored.

    Raises:
        InputError: the run's clients or its model do not fit them.
    """
    layout, sizes, privacy = phase.network.layout, phase.federation.train.sizes, experiment.privacy
    secure_sum = experiment.secure_sum
    norm_growth = secure_sum.norm_growth(layout.trainable * len(phase.client.sends))
    mechanism = privacy.mechanism(Cohorts(sizes, phase.cohort_size, phase.end, phase.local, norm_growth, noise_folder))
    if not isinstance(mechanism, Mechanism):
        raise mistake(privacy, "mechanism", mechanism, "a Mechanism, of fedrun.uploads.privacy.base")
    if (noised := mechanism.noised_steps is not None) != privacy.noises_steps:
        returned = f"a Mechanism {'with' if noised else 'without'} noised_steps"
        raise mistake(privacy, "mechanism", returned, f"that with noises_steps={noised}")
    compressed = (experiment.compression, mechanism)
    transforms = (*(compressed[::-1] if mechanism.precedes_compression else compressed), secure_sum)
    pipeline = UploadPipeline(transforms, layout, phase.seed, phase.client.private(layout))
    if privacy.protects:
        _check_private(experiment, phase)
        if mechanism.changes_uploads:
            _check_lengths(experiment.chosen("privacy"), "clipped", phase, pipeline)
        if isinstance(privacy, ClippedUploads):
            _check_extra_share(privacy, phase.client)
    if isinstance(secure_sum, FixedPoint):
        _check_buffers(experiment.chosen("secure_sum"), "sent in float32, not as integers", experiment, phase)
        _check_lengths(experiment.chosen("secure_sum"), "rounded", phase, pipeline)
        everyone = Senders(clients=torch.arange(len(sizes)), samples=sizes)
        weights = pipeline.weights(everyone)
        if weights is None:
            weights = phase.server.weights(phase.initial_server(), everyone)
        # all clients may be drawn by Poisson sampling, and by a rule whose cohorts vary
        most = len(sizes) if experiment.participation_rule.varies else phase.cohort_size
        secure_sum.check_headroom(float(weights.topk(most).values.sum()))
    return pipeline, mechanism


def _check_extra_share(privacy: ClippedUploads, client: ClientStrategy) -> None:
    """Reject a norm for what clients send besides the model if they send nothing else. Warn if they do, without it."""
    others = ", ".join(sorted(client.sends - {MODEL}))
    if privacy.extra_share is not None and not others:
        raise InputError(
            f"privacy.extra_share={privacy.extra_share:g}: {chosen('strategy/client', client)} sends nothing besides "
            "the model; allowed: null"
        )
    if privacy.extra_share is None and others:
        log.warning(
            "%s clips all that a client sends by one norm. %s also sends %s, which may be much longer than the "
            "model's displacement; privacy.extra_share=0.5 gives each its own norm",
            chosen("privacy", privacy),
            chosen("strategy/client", client),
            others,
        )


def _check_private(experiment: Experiment, phase: Phase) -> None:
    """Reject float buffers, which would be sent without clipping, and models without gradients of single samples."""
    key = experiment.chosen("privacy")
    _check_buffers(key, "averaged without noise", experiment, phase)
    if experiment.privacy.noises_steps and (reason := sample_gradients_problem(phase.network, phase.samples)):
        raise InputError(f"{key} with {experiment.chosen('model')}, which has {reason}; choose another model")
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
    """
    layout = phase.network.layout
    kept = phase.client.private(layout)
    buffers = slice(layout.trainable, layout.uploaded)
    if layout.uploaded - layout.trainable > (0 if kept is None else int(kept[buffers].sum())):
        raise InputError(
            f"{key} with {experiment.chosen('model')}: its float buffers (BatchNorm's running statistics) "
            f"would be {change}; choose a model without them, such as one with GroupNorm"
        )


def _check_lengths(key: str, change: str, phase: Phase, pipeline: UploadPipeline) -> None:
    """Reject uploads that a transform would leave as they are, because they do not have a displacement's length.

    Args:
        key: the option that changes displacements.
        change: what it does to them.
        phase: the phase whose clients send.
        pipeline: pipeline of their uploads.
    """
    broadcast = phase.server.broadcast(phase.initial_server())
    for name in sorted(phase.client.sends):
        if name not in broadcast or not pipeline.is_transformed(len(broadcast[name])):
            raise InputError(
                f"{key}: {chosen('strategy/client', phase.client)} sends {name!r}, whose length is not that of the "
                f"model's parameters, and it would not be {change}; choose another strategy"
            )
