"""Checks of what the methods of an attack return, so that a mistake is one line that names the method."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from fedrun.data.federation import Federation
from fedrun.strategies.contract import changed, is_tensor, mistake, owner
from fedrun.system.errors import InputError


def check_tampered(
    attack: object, tampered: object, arguments: Mapping[str, torch.Tensor], before: Mapping[str, int]
) -> None:
    """Reject anything but a model's parameters, and changes of the arguments, which other clients may use.

    Args:
        attack: the attack.
        tampered: what its ``tampered`` has returned.
        arguments: the trained model and the broadcast one, each ``[T]``.
        before: their :func:`fedrun.strategies.contract.versions` before that.

    Raises:
        InputError: naming the method.
    """
    if names := changed(arguments, before):
        raise InputError(
            f"{owner(attack)}.tampered: has changed {' and '.join(names)} in place; allowed: a new tensor, "
            "such as a clone"
        )
    check_vector(attack, "tampered", tampered, len(arguments["model"]))


def check_vector(attack: object, method: str, vector: object, length: int) -> None:
    """Reject anything but a vector in float32.

    Raises:
        InputError: naming the method.
    """
    if not is_tensor(vector, (length,), torch.float32):
        raise mistake(attack, method, vector, f"a tensor, float32 [{length}]")


def check_reported(attack: object, loss: object) -> None:
    """Reject anything but one loss.

    Raises:
        InputError: naming the method.
    """
    if not isinstance(loss, torch.Tensor) or loss.shape:
        raise mistake(attack, "reported", loss, "a loss, a tensor without dimensions")


def check_poisoned(attack: object, poisoned: object, federation: Federation) -> None:
    """Reject anything but a federation of the same clients.

    Args:
        attack: the attack.
        poisoned: what its ``poisoned`` has returned.
        federation: the federation before the attack.

    Raises:
        InputError: naming the method.
    """
    if not isinstance(poisoned, Federation):
        raise mistake(attack, "poisoned", poisoned, "a Federation")
    if len(poisoned.train) != len(federation.train):
        raise mistake(attack, "poisoned", f"{len(poisoned.train)} clients", f"the {len(federation.train)} given")
