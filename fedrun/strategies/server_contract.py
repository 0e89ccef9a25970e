"""Checks of what the methods of a server strategy return, so that a mistake is one line that names the method."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import get_args

import torch

from fedrun.strategies.contract import changed, check_names, is_tensor, listed, mistake, owner
from fedrun.strategies.server import Requirement, Rows, ServerState, ServerStrategy
from fedrun.strategies.vectors import MODEL, Vectors
from fedrun.system.errors import InputError


def check_server_attributes(strategy: ServerStrategy) -> None:
    """Reject attributes of another type than :class:`ServerStrategy` documents.

    Raises:
        InputError: naming the attribute.
    """
    for attribute in ("needs", "sends", "maintains"):
        check_names(strategy, attribute)
    check_names(strategy, "wants", get_args(Requirement))
    if strategy.rows not in (allowed := get_args(Rows)):
        raise InputError(f"{owner(strategy)}.rows={strategy.rows!r}: allowed: {', '.join(allowed)}")
    if strategy.sends_own_models and (strategy.idle_training is not None or "squared_norms" in strategy.wants):
        other = "squared_norms" if strategy.idle_training is None else "idle_training"
        raise InputError(
            f"{owner(strategy)}.models_for with {other}, which needs one model that all clients receive; allowed: one "
            "of the two"
        )


def check_weights(strategy: ServerStrategy, weights: object, clients: int) -> None:
    """Reject weights that are not one finite number per client, ``[C]``, at least 0.

    Raises:
        InputError: naming the method.
    """
    if not isinstance(weights, torch.Tensor) or weights.shape != (clients,):
        raise mistake(strategy, "weights", weights, f"the weight of every client, [{clients}]")
    if len(wrong := weights[~((weights >= 0) & weights.isfinite())]):
        raise mistake(strategy, "weights", f"the weight {float(wrong[0]):g}", "finite numbers, at least 0")


def check_models_for(strategy: ServerStrategy, models: object, clients: int, parameters: int) -> None:
    """Reject anything but a model for each client, float32 ``[C, P]``.

    Raises:
        InputError: naming the method.
    """
    if not is_tensor(models, (clients, parameters), torch.float32):
        raise mistake(strategy, "models_for", models, f"a model for every client, float32 [{clients}, {parameters}]")


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
        returned = listed("vectors", broadcast) if isinstance(broadcast, Mapping) else broadcast
        raise mistake(strategy, "broadcast", returned, listed("vectors", names))


def check_aggregated(strategy: ServerStrategy, aggregated: object, parameters: int, slots: Set[str]) -> None:
    """Reject anything but a server state and metrics. A checkpoint with other slots than the first state's could not be
    resumed.

    Args:
        strategy: the server strategy.
        aggregated: what its ``aggregate`` has returned.
        parameters: P, the length of a model.
        slots: the names of the slots in the state that it has received.

    Raises:
        InputError: naming the method.
    """
    if not (isinstance(aggregated, tuple) and len(aggregated) == 2 and isinstance(aggregated[1], Mapping)):
        raise mistake(strategy, "aggregate", aggregated, "a ServerState and a dictionary of metrics")
    state, metrics = aggregated
    _check_state(strategy, "aggregate", state, parameters)
    if state.slots.keys() != slots:
        raise mistake(strategy, "aggregate", listed("slots", state.slots), f"{listed('slots', slots)}, as in init")
    for name, value in metrics.items():
        if not isinstance(value, int | float):
            raise mistake(strategy, "aggregate", value, f"a number as metric {name!r}")


def check_unchanged(strategy: ServerStrategy, received: Vectors, before: Mapping[str, int]) -> None:
    """Reject a step that has changed its state in place, from which clients of asynchronous rounds still train.

    Args:
        strategy: the server strategy.
        received: the tensors of the state that its ``aggregate`` has received.
        before: their :func:`fedrun.strategies.contract.versions` before that.

    Raises:
        InputError: naming the method and the tensors.
    """
    if names := changed(received, before):
        raise InputError(
            f"{owner(strategy)}.aggregate: has changed {', '.join(map(repr, names))} of the state in place; allowed: "
            "new tensors, such as a clone"
        )


def _check_state(strategy: ServerStrategy, method: str, state: object, parameters: int) -> None:
    allowed = f"a ServerState whose model is float32 [{parameters}]"
    if not isinstance(state, ServerState):
        raise mistake(strategy, method, state, allowed)
    model: object = state.model
    if not is_tensor(model, (parameters,), torch.float32):
        raise mistake(strategy, method, model, allowed)
    slots: object = state.slots
    if not isinstance(slots, Mapping):
        raise mistake(strategy, method, slots, "a ServerState whose slots are a dictionary of tensors")
    if MODEL in slots:  # the broadcast would have it in the model's place
        raise mistake(strategy, method, f"a slot {MODEL!r}", "slots of other names; the model is no slot")
    for what, tensor in {"model": model, **{f"slot {name!r}": slot for name, slot in slots.items()}}.items():
        if not isinstance(tensor, torch.Tensor):
            raise mistake(strategy, method, f"{what} of type {type(tensor).__name__}", "tensors as slots")
        if tensor.requires_grad:  # every round would keep the tensors of all rounds before it
            raise mistake(strategy, method, f"a {what} that requires a gradient", "one without, as of .detach()")
