"""What a client strategy's ``direction`` may do in a step, and return."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fedrun.strategies.client import ClientStrategy, Gradient
from fedrun.strategies.client_contract import check_vector
from fedrun.strategies.contract import changed, mistake, owner, versions
from fedrun.strategies.vectors import Vectors
from fedrun.system.errors import InputError

Direction = Callable[[Gradient, torch.Tensor, Vectors], torch.Tensor]
"""A client strategy's ``direction``, or a function that calls it."""


def checked_direction(
    strategy: ClientStrategy, direction: Direction, gradient: Gradient, model: torch.Tensor, constants: Vectors
) -> torch.Tensor:
    """The direction of one client ``[T]`` or of a group ``[C, T]`` in a step.

    Args:
        strategy: the client strategy.
        direction: its ``direction``, or a function that calls it.
        gradient: computes the gradients of the step's batches; it may change ``model`` for that.
        model: the parameters, ``[..., T]``.
        constants: the result of :meth:`ClientStrategy.constants`, ``[..., m]`` or ``[m]`` each.

    Raises:
        InputError: it asks for more gradients than its ``passes`` say, changes the model, changes a constant ``[m]`` by
            what differs between the clients, or does not return a new vector.
    """
    left = list(strategy.passes)
    vectors = {"model": model}
    before = versions(vectors)

    def check_model() -> None:
        if changed(vectors, before):
            raise InputError(
                f"{owner(strategy)}.direction: has changed the model in place; allowed: new tensors, such as a clone"
            )

    def limited(parameters: torch.Tensor, batch: int, *, moves_buffers: bool = True) -> torch.Tensor:
        nonlocal before
        check_model()
        asked = f"{owner(strategy)}.direction: asks for the gradient of batch {batch}"
        if batch not in range(len(left)):
            numbers = ", ".join(map(str, range(len(left))))
            raise InputError(f"{asked}; allowed with passes={strategy.passes}: {numbers}")
        if not left[batch]:
            raise InputError(
                f"{asked} more often in a step than passes={strategy.passes} says; allowed: as often, or a larger "
                "number there, from which costs and virtual time are predicted"
            )
        left[batch] -= 1
        computed = gradient(parameters, batch, moves_buffers=moves_buffers)
        before = versions(vectors)
        return computed

    try:
        found = direction(limited, model, constants)
    except RuntimeError as error:
        shared = {name: list(vector.shape) for name, vector in constants.items() if vector.ndim == 1}
        name = next((name for name in shared if str(error).startswith(f"output with shape {shared[name]} ")), None)
        if name is None:
            raise
        raise InputError(
            f"{owner(strategy)}.direction: changes the constant {name!r} {shared[name]}, which all clients of a group "
            "share; allowed: a constant of each client, in constants: vector.expand(*client.clients.shape, -1).clone()"
        ) from None
    check_model()
    check_direction(strategy, found, model, constants)
    return found


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
            raise mistake(strategy, "direction", f"{what} itself", "a new tensor, such as a clone")
