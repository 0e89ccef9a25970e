"""Checks of what methods of strategies and compressors return, so that a mistake is one line that names the method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

import torch

from fedrun.models.flat_network import Layout
from fedrun.strategies.client import ClientStrategy, LinearCorrection
from fedrun.strategies.server import ServerState, ServerStrategy
from fedrun.strategies.vectors import MODEL, Vectors
from fedrun.system.errors import InputError


def check_losses(strategy: ClientStrategy, losses: object, batch: int) -> None:
    """Reject losses that are not one per sample, ``[B]``; a mean would be weighted twice.

    Raises:
        InputError: naming the method.
    """
    if not isinstance(losses, torch.Tensor) or losses.shape != (batch,):
        raise _mistake(strategy, "loss", losses, f"the loss of every sample, [{batch}]")


def check_differentiable(strategy: ClientStrategy, losses: torch.Tensor) -> None:
    """Reject losses without a gradient. Not for use in ``torch.vmap`` of a function that is not differentiated
    there, in which all tensors seem to have none.

    Raises:
        InputError: naming the method.
    """
    if not losses.requires_grad:
        raise _mistake(strategy, "loss", "losses without a gradient", "losses computed from the logits")


def check_separable(strategy: ClientStrategy, filled: torch.Tensor, alone: torch.Tensor) -> None:
    """Reject losses of a batch's samples that change when the batch is filled up with repeated samples.

    Args:
        strategy: the client strategy.
        filled: the samples' losses in the filled batch, ``[n]``.
        alone: their losses without the repeated samples, ``[n]``.

    Raises:
        InputError: naming the method.
    """
    if not torch.allclose(filled, alone, rtol=1e-3, atol=1e-5, equal_nan=True):  # NaN: the client diverges
        raise InputError(
            f"{_owner(strategy)}.loss: the loss of a sample depends on the other samples of its batch, and the "
            "vectorised executor fills up short batches with repeated ones; allowed: hardware.executor=in_process"
        )


def check_client_state(strategy: ClientStrategy, lengths: object) -> None:
    """Reject anything but lengths of vectors by name.

    Raises:
        InputError: naming the method.
    """
    allowed = "a dictionary of lengths, such as {'momentum': layout.trainable}"
    if not isinstance(lengths, Mapping):
        raise _mistake(strategy, "client_state", lengths, allowed)
    for name, length in lengths.items():
        if type(length) is not int or length < 0:
            raise _mistake(strategy, "client_state", f"{length!r} as length of {name!r}", allowed)


def check_masks(strategy: ClientStrategy, layout: Layout, epochs: range) -> None:
    """Reject anything but masks of the model's entries and of its parameters.

    Args:
        strategy: the client strategy.
        layout: layout of its model.
        epochs: the epochs of local training.

    Raises:
        InputError: naming the method.
    """
    masks: list[tuple[str, object, int]] = [("private", strategy.private(layout), layout.size)]
    masks += [("frozen", strategy.frozen(layout, epoch), layout.trainable) for epoch in epochs]
    for method, mask, length in masks:
        if mask is not None and not _is_tensor(mask, (length,), torch.bool):
            raise _mistake(strategy, method, mask, f"a mask, bool [{length}], or None")


def check_constants(strategy: ClientStrategy, constants: object) -> None:
    """Reject anything but tensors by name.

    Raises:
        InputError: naming the method.
    """
    allowed = "a dictionary of tensors"
    if not isinstance(constants, Mapping):
        raise _mistake(strategy, "constants", constants, allowed)
    for name, vector in constants.items():
        if not isinstance(vector, torch.Tensor):
            raise _mistake(strategy, "constants", f"a {type(vector).__name__} as {name!r}", allowed)


def checked_linear_correction(strategy: ClientStrategy, constants: Vectors, trainable: int) -> LinearCorrection | None:
    """The correction of a client strategy, if it has one.

    Raises:
        InputError: it is of another type, or not of length T.
    """
    correction: object = strategy.linear_correction(constants)
    allowed = f"a LinearCorrection whose shift is [..., {trainable}], or None"
    if correction is None:
        return None
    if not isinstance(correction, LinearCorrection):
        raise _mistake(strategy, "linear_correction", correction, allowed)
    if not _is_vector(correction.shift, trainable):
        raise _mistake(strategy, "linear_correction", correction.shift, allowed)
    return correction


def check_vector(strategy: ClientStrategy, method: str, vector: object, length: int) -> None:
    """Reject anything but a tensor ``[..., length]`` in float32.

    Raises:
        InputError: naming the method.
    """
    if not (isinstance(vector, torch.Tensor) and _is_vector(vector, length) and vector.dtype == torch.float32):
        raise _mistake(strategy, method, vector, f"a tensor [..., {length}] in float32")


def check_direction(strategy: ClientStrategy, direction: object, model: torch.Tensor, constants: Vectors) -> None:
    """Reject anything but a new tensor in float32: the step changes it in place, and would change the model or the
    constants with it.

    Args:
        strategy: the client strategy.
        direction: what its ``direction`` has returned.
        model: the parameters, ``[..., T]``.
        constants: the result of :meth:`ClientStrategy.constants`.

    Raises:
        InputError: naming the method.
    """
    check_vector(strategy, "direction", direction, model.shape[-1])
    assert isinstance(direction, torch.Tensor)
    kept = {"the model": model, **{f"the constant {name!r}": vector for name, vector in constants.items()}}
    for what, vector in kept.items():
        if direction.is_set_to(vector):
            raise _mistake(strategy, "direction", f"{what} itself", "a new tensor, such as a clone")


def check_batch(strategy: ClientStrategy, batch: int) -> None:
    """Reject the number of a batch that a step does not have.

    Raises:
        InputError: naming the method.
    """
    if batch not in range(len(strategy.passes)):
        raise InputError(
            f"{_owner(strategy)}.direction: asks for the gradient of batch {batch}; allowed with "
            f"passes={strategy.passes}: {', '.join(map(str, range(len(strategy.passes))))}"
        )


def check_finished(strategy: ClientStrategy, finished: object, states: Mapping[str, int], model: torch.Tensor) -> None:
    """Reject uploads and states that a client strategy does not declare, or of another shape. A missing vector of a
    state would silently be read as zeros.

    Args:
        strategy: the client strategy.
        finished: what its ``finish`` has returned.
        states: the lengths of its client state, without the optimizer's.
        model: the model after local training, ``[..., P]``.

    Raises:
        InputError: naming the method.
    """
    if not isinstance(finished, tuple) or [isinstance(part, Mapping) for part in finished] != [True, True]:
        raise _mistake(strategy, "finish", finished, "two dictionaries, the uploads and the next client state")
    uploads, state = finished
    for what, vectors, names in (("uploads", uploads, strategy.sends), ("states", state, states.keys())):
        if vectors.keys() != names:
            raise _mistake(strategy, "finish", _listed(what, vectors), _listed(what, names))
    clients = list(model.shape[:-1])
    for vectors, lengths in ((uploads, {MODEL: model.shape[-1]}), (state, states)):
        for name, vector in vectors.items():
            shape = list(vector.shape) if isinstance(vector, torch.Tensor) else []
            allowed = [*clients, lengths.get(name, "m")]
            if len(shape) != len(allowed) or shape[:-1] != clients or shape[-1] != lengths.get(name, shape[-1]):
                raise _mistake(strategy, "finish", vector, f"{name!r} of [{', '.join(map(str, allowed))}]")
    if MODEL in uploads and uploads[MODEL].dtype != torch.float32:
        raise _mistake(strategy, "finish", uploads[MODEL], f"{MODEL!r} in float32")


def versions(received: Vectors) -> dict[str, int]:
    """How often each vector of a broadcast has been changed in place, for :func:`check_received`."""
    return {name: vector._version for name, vector in received.items()}


def check_received(strategy: ClientStrategy, received: Vectors, before: Mapping[str, int]) -> None:
    """Reject changes of the broadcast in place, which the next client would receive.

    Args:
        strategy: the client strategy.
        received: the broadcast after clients have trained.
        before: its :func:`versions` before that.

    Raises:
        InputError: naming the class and the vectors.
    """
    if changed := [name for name, version in versions(received).items() if version != before[name]]:
        raise InputError(
            f"{_owner(strategy)}: a method has changed {', '.join(map(repr, changed))} of the broadcast in place, "
            "which all clients share; allowed: new tensors, such as a clone"
        )


def check_compressed(compressor: object, compressed: object, vector: torch.Tensor, before: int) -> None:
    """Reject what is not a compressed vector, and a change of the vector itself: error feedback would take it for sent.

    Args:
        compressor: the compressor.
        compressed: what its ``compress`` has returned for the vector.
        vector: the vector, ``[d]``.
        before: its version before that.

    Raises:
        InputError: naming the method.
    """
    allowed = f"a new tensor, float32 {list(vector.shape)}"
    if vector._version != before:
        raise InputError(f"{_owner(compressor)}.compress: has changed its argument in place; allowed: {allowed}")
    if not _is_tensor(compressed, vector.shape, torch.float32):
        raise _mistake(compressor, "compress", compressed, allowed)


def check_counts(
    strategy: ClientStrategy | ServerStrategy, method: str, counts: object, clients: int, least: int
) -> None:
    """Reject anything but a whole number for each client, int64 ``[C]``, at least ``least``.

    Raises:
        InputError: naming the method.
    """
    if not _is_tensor(counts, (clients,), torch.int64):
        raise _mistake(strategy, method, counts, f"a number for every client, int64 [{clients}]")
    assert isinstance(counts, torch.Tensor)
    if len(wrong := counts[counts < least]):
        raise _mistake(strategy, method, f"the number {int(wrong[0])}", f"at least {least}")


def check_sizes(compressor: object, sizes: Iterable[object]) -> None:
    """Reject sizes that are no numbers of bytes.

    Raises:
        InputError: naming the method.
    """
    for size in sizes:
        if type(size) is not int or size < 0:
            raise _mistake(compressor, "size", repr(size), "a number of bytes, an integer, at least 0")


def check_weights(strategy: ServerStrategy, weights: object, clients: int) -> None:
    """Reject weights that are not one finite number per client, ``[C]``, at least 0.

    Raises:
        InputError: naming the method.
    """
    if not isinstance(weights, torch.Tensor) or weights.shape != (clients,):
        raise _mistake(strategy, "weights", weights, f"the weight of every client, [{clients}]")
    if len(wrong := weights[~((weights >= 0) & weights.isfinite())]):
        raise _mistake(strategy, "weights", f"the weight {float(wrong[0]):g}", "finite numbers, at least 0")


def check_start(strategy: ServerStrategy, state: object, parameters: int) -> None:
    """Reject a first server state of another type or length, and one that lacks what the server has to broadcast.

    Raises:
        InputError: naming the method.
    """
    _check_state(strategy, "init", state, parameters)
    assert isinstance(state, ServerState)
    broadcast: Vectors = strategy.broadcast(state)
    names = strategy.sends | {MODEL}
    if not isinstance(broadcast, Mapping) or not broadcast.keys() >= names:
        returned = _listed("vectors", broadcast) if isinstance(broadcast, Mapping) else broadcast
        raise _mistake(strategy, "broadcast", returned, _listed("vectors", names))


def check_aggregated(
    strategy: ServerStrategy, aggregated: object, parameters: int, slots: Set[str], others: Set[str]
) -> None:
    """Reject anything but a server state and metrics. A checkpoint with other slots than the first state's could not be
    resumed.

    Args:
        strategy: the server strategy.
        aggregated: what its ``aggregate`` has returned.
        parameters: P, the length of a model.
        slots: the names of the strategy's slots in the state that it has received.
        others: the names of slots that are not the strategy's; it may return them or not.

    Raises:
        InputError: naming the method.
    """
    if not (isinstance(aggregated, tuple) and len(aggregated) == 2 and isinstance(aggregated[1], Mapping)):
        raise _mistake(strategy, "aggregate", aggregated, "a ServerState and a dictionary of metrics")
    state, metrics = aggregated
    _check_state(strategy, "aggregate", state, parameters)
    if (returned := state.slots.keys() - others) != slots:
        raise _mistake(strategy, "aggregate", _listed("slots", returned), f"{_listed('slots', slots)}, as in init")
    for name, value in metrics.items():
        if not isinstance(value, int | float):
            raise _mistake(strategy, "aggregate", value, f"a number as metric {name!r}")


def _check_state(strategy: ServerStrategy, method: str, state: object, parameters: int) -> None:
    allowed = f"a ServerState whose model is float32 [{parameters}]"
    if not isinstance(state, ServerState):
        raise _mistake(strategy, method, state, allowed)
    model: object = state.model
    if not _is_tensor(model, (parameters,), torch.float32):
        raise _mistake(strategy, method, model, allowed)
    slots: object = state.slots
    if not isinstance(slots, Mapping):
        raise _mistake(strategy, method, slots, "a ServerState whose slots are a dictionary of tensors")
    for name, slot in slots.items():
        if not isinstance(slot, torch.Tensor):
            raise _mistake(strategy, method, f"a {type(slot).__name__} as slot {name!r}", "tensors as slots")


def _is_vector(value: object, length: int) -> bool:
    return isinstance(value, torch.Tensor) and value.shape[-1:] == (length,)


def _is_tensor(value: object, shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    return isinstance(value, torch.Tensor) and value.shape == shape and value.dtype == dtype


def _listed(what: str, names: Iterable[str]) -> str:
    return f"the {what} {', '.join(sorted(names)) or 'none'}"


def _mistake(strategy: object, method: str, returned: object, allowed: str) -> InputError:
    """The error for a method, with the type or shape of what it has returned."""
    if isinstance(returned, torch.Tensor):
        returned = f"{str(returned.dtype).removeprefix('torch.')} {list(returned.shape)}"
    elif not isinstance(returned, str):
        returned = type(returned).__name__
    return InputError(f"{_owner(strategy)}.{method}: returned {returned}; allowed: {allowed}")


def _owner(strategy: object) -> str:
    """The dotted path of a strategy's class."""
    return f"{type(strategy).__module__}.{type(strategy).__qualname__}"
