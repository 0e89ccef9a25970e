"""Checks of what the methods of a client strategy return, so that a mistake is one line that names the method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import get_args

import torch

from fedrun.data.tasks.base import Task
from fedrun.models.flat_network import Layout
from fedrun.strategies.client import (
    Averaging,
    ClientStrategy,
    EvaluatedModel,
    LinearCorrection,
    Measurement,
    Outputs,
    overrides,
)
from fedrun.strategies.contract import changed, check_names, is_tensor, listed, mistake, owner
from fedrun.strategies.vectors import MODEL, Vectors
from fedrun.system.errors import InputError

UNMAPPED = ("vmap: ", "Cannot access data pointer of Tensor")
"""How PyTorch's errors begin for what a function that is mapped must not do: branch on values, ``.item()``,
``.numpy()``.
"""


def check_client_attributes(strategy: ClientStrategy) -> None:
    """Reject attributes of another type than :class:`ClientStrategy` documents.

    Raises:
        InputError: naming the attribute.
    """
    check_names(strategy, "needs")
    check_names(strategy, "sends")
    check_names(strategy, "wants", get_args(Measurement))
    if not _is_tuple(models := strategy.reference_models, str):
        raise InputError(f"{owner(strategy)}.reference_models={models!r}: allowed: a tuple of names, such as ('old',)")
    if not _is_tuple(passes := strategy.passes, int) or not passes:
        raise InputError(f"{owner(strategy)}.passes={passes!r}: allowed: a tuple of numbers, such as (1, 1)")
    if overrides(strategy, "batch_loss") and "earlier_embeddings" in strategy.wants:
        raise InputError(
            f"{owner(strategy)}.batch_loss with earlier_embeddings, which are those of whole batches as they are; "
            "allowed: one of the two"
        )
    if (reported := strategy.reported) not in product(get_args(EvaluatedModel), get_args(Averaging)):
        allowed = "('global', 'own' or 'tuned', 'samples' or 'clients')"
        raise InputError(f"{owner(strategy)}.reported={reported!r}: allowed: {allowed}")


def mapped_losses(
    strategy: ClientStrategy, outputs: Outputs, targets: torch.Tensor, constants: Vectors, instead: str
) -> torch.Tensor:
    """The losses of a batch, ``[B]``, inside of a function that ``torch.vmap`` maps.

    Args:
        strategy: the client strategy.
        outputs: outputs of the network for the batch.
        targets: targets of the samples, ``[B, ...]``.
        constants: the client's result of :meth:`ClientStrategy.constants`.
        instead: what is allowed instead; ends the message.

    Raises:
        InputError: its code cannot be mapped, such as a branch that depends on values, or its losses are not one per
            sample.
    """
    try:
        losses = strategy.loss(outputs, targets, constants)
    except RuntimeError as error:
        if not str(error).startswith(UNMAPPED):
            raise
        problem = str(error).partition(". ")[0].splitlines()[0].removeprefix("vmap: ")
        raise InputError(
            f"{owner(strategy)}.loss: torch.vmap cannot compute it ({problem}); allowed: {instead}"
        ) from None
    check_losses(strategy, losses, len(targets))
    return losses


def check_losses(strategy: ClientStrategy, losses: object, batch: int) -> None:
    """Reject losses that are not one per sample, ``[B]``; a mean would be weighted twice.

    Raises:
        InputError: naming the method.
    """
    if not isinstance(losses, torch.Tensor) or losses.shape != (batch,):
        raise mistake(strategy, _loss_hook(strategy), losses, f"the loss of every sample, [{batch}]")


def check_differentiable(strategy: ClientStrategy, losses: torch.Tensor) -> None:
    """Reject losses without a gradient. Not for use in ``torch.vmap`` of a function that is not differentiated
    there, in which all tensors seem to have none.

    Raises:
        InputError: naming the method.
    """
    if not losses.requires_grad:
        hook = _loss_hook(strategy)
        raise mistake(strategy, hook, "losses without a gradient", "losses computed from the logits")


def first_logits(strategy: ClientStrategy, calls: Sequence[torch.Tensor], batch: int) -> torch.Tensor:
    """The first B logits of the first call of the network by ``batch_loss``, by which the training score is computed.

    Raises:
        InputError: the network was not called, or for fewer inputs.
    """
    if not calls:
        raise mistake(strategy, _loss_hook(strategy), "losses without a call of network", "at least one call")
    if len(calls[0]) < batch:
        message = f"the first call of network has {len(calls[0])} inputs"
        raise mistake(strategy, _loss_hook(strategy), message, f"those of the batch, {batch}, or more")
    return calls[0][:batch]


def _loss_hook(strategy: ClientStrategy) -> str:
    return "batch_loss" if overrides(strategy, "batch_loss") else "loss"


def check_separable(
    strategy: ClientStrategy,
    outputs: torch.Tensor,
    targets: torch.Tensor,
    count: int,
    constants: Vectors,
    task: Task,
    reason: str,
) -> None:
    """Reject losses of a batch's first samples that change when the batch ends after them.

    They are also computed with random numbers of size 1 added to the outputs, because outputs are small at first.

    Args:
        strategy: the client strategy.
        outputs: of one client's batch, ``[B, ...]``.
        targets: of the same samples, ``[B, ...]``.
        count: the number of first samples, less than B.
        constants: the client's result of :meth:`ClientStrategy.constants`.
        task: task of the dataset.
        reason: why its losses must not depend on the batch, and what is allowed; ends the message.

    Raises:
        InputError: naming the method.
    """
    noise = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(0)).to(outputs)
    for computed in (outputs, outputs + noise):
        within, alone = (
            strategy.loss(Outputs(computed[:size], task=task), targets[:size], constants)[:count]
            for size in (len(outputs), count)
        )
        if not torch.allclose(within, alone, rtol=1e-3, atol=1e-5, equal_nan=True):  # NaN: the client diverges
            raise InputError(
                f"{owner(strategy)}.loss: the loss of a sample depends on the other samples of its batch, and {reason}"
            )


def check_client_state(strategy: ClientStrategy, lengths: object) -> None:
    """Reject anything but lengths of vectors by name.

    Raises:
        InputError: naming the method.
    """
    allowed = "a dictionary of lengths, such as {'momentum': layout.trainable}"
    if not isinstance(lengths, Mapping):
        raise mistake(strategy, "client_state", lengths, allowed)
    for name, length in lengths.items():
        if type(length) is not int or length < 0:
            raise mistake(strategy, "client_state", f"{length!r} as length of {name!r}", allowed)


def check_masks(strategy: ClientStrategy, layout: Layout, epochs: range) -> None:
    """Reject anything but masks of the model's entries and of its parameters.

    Args:
        strategy: the client strategy.
        layout: layout of its model.
        epochs: epochs of local training; later ones are checked when they begin.

    Raises:
        InputError: naming the method.
    """
    _check_mask(strategy, "private", strategy.private(layout), layout.size)
    for epoch in epochs:
        checked_frozen(strategy, layout, epoch)


def checked_frozen(strategy: ClientStrategy, layout: Layout, epoch: int) -> torch.Tensor | None:
    """The parameters that do not move in an epoch of local training, bool ``[T]``; None: all move.

    Raises:
        InputError: the client strategy returned something else.
    """
    mask = strategy.frozen(layout, epoch)
    _check_mask(strategy, "frozen", mask, layout.trainable)
    return mask


def _check_mask(strategy: ClientStrategy, method: str, mask: object, length: int) -> None:
    if mask is not None and not is_tensor(mask, (length,), torch.bool):
        raise mistake(strategy, method, mask, f"a mask, bool [{length}], or None")


def check_constants(strategy: ClientStrategy, constants: object, clients: torch.Size, size: int) -> None:
    """Reject anything but vectors by name, with those of the reference models. A matrix that all clients share would be
    read as a row for each client of a group, and of a shorter model the rest would be that of the model in training.

    Args:
        strategy: the client strategy.
        constants: what its ``constants`` has returned.
        clients: ``[C]`` for a group of clients, ``[]`` for one client.
        size: P.

    Raises:
        InputError: naming the method.
    """
    allowed = "a dictionary of tensors"
    if not isinstance(constants, Mapping):
        raise mistake(strategy, "constants", constants, allowed)
    if not constants.keys() >= set(strategy.reference_models):
        needed = f"{allowed}, with {', '.join(strategy.reference_models)} of reference_models"
        raise mistake(strategy, "constants", listed("constants", constants), needed)
    for name, vector in constants.items():
        if not isinstance(vector, torch.Tensor):
            raise mistake(strategy, "constants", f"{name!r} of type {type(vector).__name__}", allowed)
        if vector.ndim == 0 or vector.shape[:-1] not in ((), clients):
            shapes = f"{name!r} of [{', '.join([*map(str, clients), 'm'])}]"
            raise mistake(strategy, "constants", vector, f"{shapes}, or of [m] for all clients" if clients else shapes)
        if name in strategy.reference_models and vector.shape[-1] != size:
            raise mistake(strategy, "constants", vector, f"{name!r} of reference_models as a model, [..., {size}]")


def checked_linear_correction(strategy: ClientStrategy, constants: Vectors, trainable: int) -> LinearCorrection | None:
    """The correction of a client strategy, if it has one.

    Raises:
        InputError: it is of another type, or its shift or its strength is of another length.
    """
    correction: object = strategy.linear_correction(constants)
    allowed = f"a LinearCorrection whose shift is [..., {trainable}], or None"
    if correction is None:
        return None
    if not isinstance(correction, LinearCorrection):
        raise mistake(strategy, "linear_correction", correction, allowed)
    if not _is_vector(correction.shift, trainable):
        raise mistake(strategy, "linear_correction", correction.shift, allowed)
    strength: object = correction.strength
    if strength is not None and not _is_vector(strength, 1):
        allowed = "a LinearCorrection whose strength is [..., 1], or None"
        raise mistake(strategy, "linear_correction", strength, allowed)
    return correction


def check_vector(strategy: ClientStrategy, method: str, vector: object, length: int) -> None:
    """Reject anything but a tensor ``[..., length]`` in float32.

    Raises:
        InputError: naming the method.
    """
    if not (isinstance(vector, torch.Tensor) and _is_vector(vector, length) and vector.dtype == torch.float32):
        raise mistake(strategy, method, vector, f"a tensor [..., {length}] in float32")


def check_finished(strategy: ClientStrategy, finished: object, states: Mapping[str, int], model: torch.Tensor) -> None:
    """Reject uploads and states that a client strategy does not declare, or of another shape. A missing vector of a
    state would silently be read as zeros.

    Args:
        strategy: the client strategy.
        finished: what its ``finish`` has returned.
        states: the lengths of its client state.
        model: the model after local training, ``[..., P]``.

    Raises:
        InputError: naming the method.
    """
    if not isinstance(finished, tuple) or [isinstance(part, Mapping) for part in finished] != [True, True]:
        raise mistake(strategy, "finish", finished, "two dictionaries, the uploads and the next client state")
    uploads, state = finished
    for what, vectors, names, where in (
        ("uploads", uploads, strategy.sends, "sends"),
        ("states", state, states.keys(), "client_state"),
    ):
        if vectors.keys() != names:
            raise mistake(strategy, "finish", listed(what, vectors), f"{listed(what, names)}, as in {where}")
    clients = list(model.shape[:-1])
    for vectors, lengths in ((uploads, {MODEL: model.shape[-1]}), (state, states)):
        for name, vector in vectors.items():
            shape = list(vector.shape) if isinstance(vector, torch.Tensor) else []
            allowed = [*clients, lengths.get(name, "m")]
            if len(shape) != len(allowed) or shape[:-1] != clients or shape[-1] != lengths.get(name, shape[-1]):
                raise mistake(strategy, "finish", vector, f"{name!r} of [{', '.join(map(str, allowed))}]")
            # client states are kept in float32, which is not exact for every other type
            of_any_precision = vectors is uploads and name != MODEL and vector.is_floating_point()
            if vector.dtype != torch.float32 and not of_any_precision:
                raise mistake(strategy, "finish", vector, f"{name!r} in float32")


def check_acknowledged(strategy: ClientStrategy, state: object, finished: Vectors) -> None:
    """Reject a next state with other vectors than ``finish`` has returned, as :func:`check_finished` does.

    Raises:
        InputError: naming the method.
    """
    if not isinstance(state, Mapping) or state.keys() != finished.keys():
        returned = listed("states", state) if isinstance(state, Mapping) else state
        raise mistake(strategy, "acknowledge", returned, listed("states", finished))
    for name, vector in state.items():
        if not is_tensor(vector, finished[name].shape, torch.float32):
            raise mistake(strategy, "acknowledge", vector, f"{name!r} of {list(finished[name].shape)} in float32")


def check_received(strategy: ClientStrategy, received: Vectors, before: Mapping[str, int]) -> None:
    """Reject changes of the broadcast in place, which the next client would receive.

    Args:
        strategy: the client strategy.
        received: the broadcast after clients have trained.
        before: its :func:`fedrun.strategies.contract.versions` before that.

    Raises:
        InputError: naming the class and the vectors.
    """
    if names := changed(received, before):
        raise InputError(
            f"{owner(strategy)}: a method has changed {', '.join(map(repr, names))} of the broadcast in place, "
            "which all clients share; allowed: new tensors, such as a clone"
        )


def _is_tuple(value: object, kind: type) -> bool:
    return isinstance(value, tuple) and all(isinstance(entry, kind) for entry in value)


def _is_vector(value: object, length: int) -> bool:
    return isinstance(value, torch.Tensor) and value.shape[-1:] == (length,)
