"""A device that is not the CPU, emulated on the CPU, so that code for GPUs can be tested where there is none.

Tensors of the emulated device say that they are on ``cuda:0`` and live in main memory. An operation on tensors of both
devices is an error, as on a GPU; so is reading one as a NumPy array, and filling one from a generator of the CPU.
Copying from one to the other, numbers without dimensions, and indices on the CPU into a tensor elsewhere are allowed,
as there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing

DEVICE = torch.device("cuda", 0)
CPU = torch.device("cpu")

INDEXING = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}
JOINING = {"aten::cat", "aten::stack"}
COPYING = {"aten::copy_", "aten::_to_copy"}


class MixedDevicesError(Exception):
    """An operation on tensors of two devices."""


class Elsewhere(torch.Tensor):
    """A tensor on the emulated device; ``inner`` holds its numbers."""

    inner: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Elsewhere:
        self = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype
        )
        self.inner = inner
        return self

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return carried_out(operation, args, kwargs or {})

    @property
    def device(self) -> torch.device:
        return DEVICE

    @property
    def data(self) -> torch.Tensor:
        return self.detach()

    @data.setter
    def data(self, value: Elsewhere) -> None:
        self.inner = value.inner

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        copied: torch.Tensor = Elsewhere(self.inner.clone())
        if isinstance(self, torch.nn.Parameter):
            copied = torch.nn.Parameter(copied, self.requires_grad)
        memo[id(self)] = copied
        return copied

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        raise MixedDevicesError("a tensor that is not on the CPU was read as an array")

    def tolist(self) -> Any:
        return self.inner.tolist()

    def new_tensor(self, data: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
        return Elsewhere(torch.tensor(data, dtype=dtype or self.dtype))

    def cpu(self) -> torch.Tensor:
        return self.to("cpu")

    def to(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        kwargs.pop("copy", None)  # what comes from elsewhere is always a copy
        if args and isinstance(args[0], torch.Tensor):
            device, dtype = args[0].device, args[0].dtype
        else:
            device, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
        moved = self if dtype in (None, self.dtype) else torch.ops.aten._to_copy(self, dtype=dtype)
        return moved if device is None or device.type == DEVICE.type else Brought.apply(moved)


class Brought(torch.autograd.Function):
    """From the emulated device to the CPU."""

    @staticmethod
    def forward(context: Any, tensor: Elsewhere) -> torch.Tensor:
        return tensor.inner.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Elsewhere:
        return Elsewhere(gradient)


class OnTheCPU(TorchDispatchMode):
    """Carries out operations whose tensors are to be made on the emulated device."""

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return carried_out(operation, args, kwargs or {})


def carried_out(operation: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The result of an operation, on the device on which it would be.

    Raises:
        MixedDevicesError: it would have none.
    """
    name, target = operation._schema.name, kwargs.get("device")
    tensors = [*tensors_in(args), *tensors_in(kwargs)]
    there = [one for one in tensors if isinstance(one, Elsewhere)]
    here = [one for one in tensors if not isinstance(one, Elsewhere)]
    if there and name not in COPYING:
        mixed = [one for one in here if one.ndim or name in JOINING]  # CUDA takes other scalars from the CPU
        if name in INDEXING:  # the indices may be on the CPU, unless what is indexed is
            mixed = [one for one in mixed if one is args[0] or any(one is value for value in args[2:3])]
        if mixed:
            raise MixedDevicesError(f"{name} on tensors of two devices")
    if target is not None:
        kwargs = {**kwargs, "device": CPU}
    elsewhere = bool(there) if target is None else torch.device(target).type == DEVICE.type
    if elsewhere and kwargs.get("generator") is not None:  # all generators are of the CPU here
        raise MixedDevicesError(f"{name} draws from a generator of another device")
    if name == "aten::copy_":
        elsewhere = isinstance(args[0], Elsewhere)
    given = args, kwargs
    args, kwargs = (with_tensors(of, lambda one: one.inner if isinstance(one, Elsewhere) else one) for of in given)
    known = {id(one.inner): one for one in there} | {id(one): one for one in here}

    def placed(one: torch.Tensor) -> torch.Tensor:
        if (seen := known.get(id(one))) is not None:
            return seen
        return Elsewhere(one) if elsewhere else one

    result = with_tensors(operation(*args, **kwargs), placed)
    if there and torch.Tag.inplace_view in operation.tags:  # the wrapper gets the new shape, too
        return return_and_correct_aliasing(operation, *given, result)
    return result


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of an operation's arguments, which may be in sequences and mappings."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(one)


def with_tensors(value: Any, changed: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """An operation's arguments or results with every tensor changed. (PyTorch's own function takes far longer.)"""
    if isinstance(value, torch.Tensor):
        return changed(value)
    if isinstance(value, list | tuple):
        return type(value)([with_tensors(one, changed) for one in value])
    if isinstance(value, dict):
        return {name: with_tensors(one, changed) for name, one in value.items()}
    return value


@contextmanager
def emulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    """There is a device that is not the CPU."""
    torch._C._ensureCUDADeviceGuardSet()
    to = torch.Tensor.to

    def to_there(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if args and isinstance(args[0], Elsewhere):
            args = (DEVICE, args[0].dtype)
        return to(self, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "to", to_there)
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: None)
    monkeypatch.setattr(torch.cuda, "manual_seed", lambda seed: None)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: torch.zeros(16, dtype=torch.uint8))
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=2**33))
    before = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        with OnTheCPU():
            yield DEVICE
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(before)
