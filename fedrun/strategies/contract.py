"""What the checks of users' classes share: the error for a wrong value, and checks of single values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

import torch

from fedrun.system.errors import InputError


def mistake(part: object, method: str, returned: object, allowed: str) -> InputError:
    """The error for a method of an object, with the type or shape of what it has returned, or a description."""
    if isinstance(returned, torch.Tensor):
        returned = kind(returned)
    elif not isinstance(returned, str):
        returned = type(returned).__name__
    return InputError(f"{owner(part)}.{method}: returned {returned}; allowed: {allowed}")


def kind(tensor: torch.Tensor) -> str:
    """A tensor's type and shape, such as ``float32 [4810]``."""
    return f"{tensor.dtype} {list(tensor.shape)}".removeprefix("torch.")


def owner(part: object) -> str:
    """The dotted path of an object's class."""
    return f"{type(part).__module__}.{type(part).__qualname__}"


def listed(what: str, names: Iterable[str]) -> str:
    """Names in a message, such as ``the slots momentum, steps``."""
    return f"the {what} {', '.join(sorted(names)) or 'none'}"


def is_tensor(value: object, shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    """Whether a value is a tensor of this shape and type."""
    return isinstance(value, torch.Tensor) and value.shape == shape and value.dtype == dtype


def versions(tensors: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """How often each of some tensors has been changed in place, for :func:`changed`."""
    return {name: tensor._version for name, tensor in tensors.items()}


def changed(tensors: Mapping[str, torch.Tensor], before: Mapping[str, int]) -> list[str]:
    """The names of the tensors that were changed in place since their :func:`versions` were ``before``."""
    return [name for name, version in versions(tensors).items() if version != before[name]]


def check_names(part: object, attribute: str, known: tuple[str, ...] | None = None) -> None:
    """Reject an attribute that is not a set of names (of the known ones): a string would be read as its letters.

    Raises:
        InputError: naming the attribute.
    """
    value: object = getattr(part, attribute)
    if not (
        isinstance(value, Set)
        and all(isinstance(name, str) for name in value)
        and (known is None or value <= set(known))
    ):
        allowed = "names, such as frozenset({'model'})" if known is None else f"some of {', '.join(known)}"
        raise InputError(f"{owner(part)}.{attribute}={value!r}: allowed: a set of {allowed}")


def check_counts(part: object, method: str, counts: object, clients: int, least: int) -> None:
    """Reject anything but a whole number for each client, int64 ``[C]``, at least ``least``.

    Raises:
        InputError: naming the method.
    """
    if not is_tensor(counts, (clients,), torch.int64):
        raise mistake(part, method, counts, f"a number for every client, int64 [{clients}]")
    assert isinstance(counts, torch.Tensor)
    if len(wrong := counts[counts < least]):
        raise mistake(part, method, f"the number {int(wrong[0])}", f"at least {least}")
