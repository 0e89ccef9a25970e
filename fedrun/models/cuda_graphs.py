"""Functions on a GPU as CUDA graphs.

A CUDA graph starts all kernels of a function with one launch. Steps of small networks need this: Python and the
launches of one step take several times as long as its kernels.

A recorded function does the same to the same memory at every call. So it may depend only on its arguments, which are
copied to where they were while it was recorded, and on tensors that stay where they are, such as the network's. Python
code in it runs only while it is recorded.
"""

from __future__ import annotations

import gc
import logging
import random
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy
import torch

from fedrun.system.errors import InputError

log = logging.getLogger(__name__)

T = TypeVar("T")

UNRECORDED = 2
"""The number of first calls with arguments of the same shapes that are not recorded. They load kernels and reserve
memory, which a recording must not do, and show whether the function can be recorded.
"""

SHAPES = 64
"""The most shapes of arguments for which a function is recorded; the least recently used ones are dropped."""

CACHED = 8
"""The most objects that are cached: the steps of one or two client strategies, and evaluations of some datasets."""

WAITS = "called a synchronizing CUDA operation"
"""PyTorch's warning of an operation that waits for the GPU."""

PROTOTYPE = "Synchronization debug mode is a prototype"
"""Its warning that it may miss such operations."""


class CudaGraphs:
    """The recorded functions of one network.

    Args:
        device: the GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._newest: torch.cuda.CUDAGraph | None = None  # keeps the memory that all graphs share
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._cached: OrderedDict[Hashable, tuple[Hashable, Any]] = OrderedDict()
        self._warned: dict[Any, Any] = {}  # so that a warning of every step is shown once

    def cached(self, key: Hashable, build: Callable[[], T], version: Hashable = None) -> T:
        """The object of a key, such as one with recorded functions; it is built unless it is cached.

        Args:
            key: identifies the object. The :data:`CACHED` most recently used ones are cached.
            build: builds it.
            version: version of the object; another version replaces it.
        """
        cached = self._cached.pop(key, None)
        if cached is None or cached[0] != version:
            cached = None  # its memory is free before its successor needs some
            cached = version, build()
        self._cached[key] = cached  # as the newest
        if len(self._cached) > CACHED:
            self._cached.popitem(last=False)
        found: T = cached[1]
        return found

    def watched(self, function: Callable[[], T]) -> tuple[T, str | None]:
        """Call a function: its result, and the reason why it cannot be recorded, or None."""
        drawn = _drawn_on_cpu()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                result = function()
            finally:
                torch.cuda.set_sync_debug_mode("default")
        waits = [warning for warning in caught if WAITS in str(warning.message)]
        for warning in caught:
            if warning not in waits and PROTOTYPE not in str(warning.message):
                at = warning.filename, warning.lineno
                warnings.warn_explicit(warning.message, warning.category, *at, registry=self._warned)
        if waits:
            return result, f"it waits for the GPU ({waits[0].filename}:{waits[0].lineno})"
        if drawn != _drawn_on_cpu():
            return result, "it draws random numbers on the CPU"
        return result, None

    def capture(self, function: Callable[[], T]) -> tuple[Callable[[], object], T]:
        """Record a function without running it: what runs it, and the tensors that it will write.

        All recordings share memory, so these tensors are valid until the next one runs.

        Raises:
            InputError: it cannot be recorded.
        """
        graph, collects = torch.cuda.CUDAGraph(), gc.isenabled()
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        gc.disable()  # freeing another graph during the recording is not allowed
        try:
            # torch.cuda.graph would also return free memory to the system, which takes longer than the recording
            with torch.cuda.stream(self._stream):
                graph.capture_begin(pool=None if self._newest is None else self._newest.pool())
                try:
                    result = function()
                finally:
                    graph.capture_end()
        except RuntimeError as error:
            raise InputError(
                f"hardware.cuda_graphs=true: a step of this model and strategy cannot be recorded "
                f"({str(error).splitlines()[0]}); allowed: hardware.cuda_graphs=false"
            ) from error
        finally:
            if collects:
                gc.enable()
        torch.cuda.current_stream(self._device).wait_stream(self._stream)
        self._newest = graph
        return graph.replay, result


def _drawn_on_cpu() -> tuple[object, ...]:
    """The state of the random generators of the CPU, to be compared."""
    of_numpy = numpy.random.get_state(legacy=False)["state"]
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), of_numpy["pos"], of_numpy["key"].tobytes()


@dataclass
class _Shape(Generic[T]):
    """What is known of calls with arguments of one shape."""

    calls: int = 0
    arguments: tuple[torch.Tensor, ...] = ()
    replay: Callable[[], object] | None = None
    result: T | None = None


class RecordedFunction(Generic[T]):
    """A function of tensors, recorded at its third call with arguments of the same shapes.

    Args:
        graphs: the network's graphs.
        function: as the module says; its result is valid until the next call of a recorded function.
        what: its name for the log.
    """

    def __init__(self, graphs: CudaGraphs, function: Callable[..., T], what: str) -> None:
        self._graphs = graphs
        self._function = function
        self._what = what
        self._refused = False
        self._shapes: OrderedDict[Hashable, _Shape[T]] = OrderedDict()

    def __call__(self, *arguments: torch.Tensor) -> T:
        if self._refused:
            return self._function(*arguments)
        key = tuple((argument.shape, argument.dtype) for argument in arguments)
        shape = self._shapes.setdefault(key, _Shape())
        self._shapes.move_to_end(key)
        if len(self._shapes) > SHAPES:
            self._shapes.popitem(last=False)
        shape.calls += 1
        if shape.calls <= UNRECORDED:
            result, reason = self._graphs.watched(lambda: self._function(*arguments))
            if reason is not None:
                self._refused = True
                log.info("%s is not recorded as a CUDA graph: %s", self._what, reason)
            return result
        if shape.replay is None:
            shape.arguments = tuple(argument.clone() for argument in arguments)
            shape.replay, shape.result = self._graphs.capture(lambda: self._function(*shape.arguments))
        else:
            for own, argument in zip(shape.arguments, arguments, strict=True):
                own.copy_(argument)
        shape.replay()
        return shape.result  # type: ignore[return-value]  # of the recording
