"""A model as one vector.

The trained parameters of a network, its head's last, then its float buffers (BatchNorm's running statistics) lie in one
contiguous float32 vector θ of length P. The network's tensors are views into it, so that loading a model is one copy,
averaging models is one product, and a step of SGD is one in-place operation.

Frozen parameters (``requires_grad=False``) and non-persistent buffers stay in the network, outside of θ. All models of
a run share them; buffers that a forward pass has changed get their first values back with every model.

Convolution kernels are stored channels-last, so the network computes in that format for inputs of any format. On CPUs
training then takes 0.6 to 0.95 of the time, and evaluation 0.4 to 0.95.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial

import torch

from fedrun.models.cuda_graphs import CudaGraphs
from fedrun.system.errors import InputError
from fedrun.system.fingerprint import fingerprint

RESIDUAL = "lora_residual"
"""The name of buffers that only the server changes: residuals that it adds to a layer's frozen weight."""


@dataclass(frozen=True)
class Slot:
    """The position of one named tensor in the vector.

    Attributes:
        name: name of the tensor.
        shape: shape of the tensor.
        start: its first entry.
        stop: the one after its last.
        layer: the class name of the module that it belongs to, such as ``BatchNorm2d``.
    """

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int
    layer: str = ""

    def view(self, vector: torch.Tensor) -> torch.Tensor:
        """The tensor ``[..., *shape]`` inside a vector ``[..., P]``.

        Entries are in C order of the shape, except for a 2-d convolution's kernel ``(out, in, height, width)``: its
        order is (out, height, width, in), so that the view has channels-last strides.
        """
        entries, leading = vector[..., self.start : self.stop], vector.shape[:-1]
        if len(self.shape) != 4:
            return entries.view((*leading, *self.shape))
        kernels, channels, height, width = self.shape
        return entries.view(*leading, kernels, height, width, channels).movedim(-1, -3)


@dataclass(frozen=True)
class Layout:
    """The position of every tensor of a network in its vector: encoder parameters, head weight, head bias, then float
    buffers, which are not trained.

    Attributes:
        slots: every tensor, in the order of the vector.
        trainable: T, the number of trained parameters; they are the first T entries. The entries from T on are float
            buffers, which change by forward passes and averaging only; optimizers must not change them.
        size: P, the length of the vector.
        head: the entries of the head: the weight ``[classes, embedding]``, then the bias ``[classes]`` if it has one.
            Empty for a network without a head, or whose head's tensors are not its own parameters: shared with the
            encoder, or computed, as by weight normalisation.
        classes: number of rows of the head; 0 without a head.
        embedding: d, the number of columns of the head; 0 without a head.
    """

    slots: tuple[Slot, ...]
    trainable: int
    size: int
    head: slice
    classes: int
    embedding: int

    @property
    def uploaded(self) -> int:
        """U, the number of entries that clients can change; the entries after them, :data:`RESIDUAL`, are not sent."""
        return next((slot.start for slot in self.slots if slot.name.endswith(f".{RESIDUAL}")), self.size)

    @property
    def head_size(self) -> int:
        """h, the number of the head's entries."""
        return int(self.head.stop - self.head.start)

    def views(self, vector: torch.Tensor) -> dict[str, torch.Tensor]:
        """The named tensors ``[..., *shape]`` inside a vector ``[..., P]`` (or ``[..., T]``: the parameters only)."""
        return {slot.name: slot.view(vector) for slot in self.slots if slot.stop <= vector.shape[-1]}

    def head_bias(self, head: torch.Tensor) -> torch.Tensor:
        """The bias ``[..., classes]`` in the head's entries ``[..., h]``; empty for a head without."""
        return head[..., self.classes * self.embedding :]

    @property
    def has_head_bias(self) -> bool:
        """Whether the head has a bias."""
        return self.head_size > self.classes * self.embedding

    def head_rows(self, head: torch.Tensor, with_bias: bool) -> torch.Tensor:
        """The class embeddings in the head's entries of one or many models.

        Args:
            head: ``[..., h]``, the entries ``vector[..., layout.head]``.
            with_bias: append the class's bias as the last coordinate (if the head has biases).

        Returns:
            ``[..., classes, d]`` or ``[..., classes, d + 1]``; row c belongs to class c.
        """
        cut = self.classes * self.embedding
        weight = head[..., :cut].view(*head.shape[:-1], self.classes, self.embedding)
        if not with_bias or not self.has_head_bias:
            return weight
        return torch.cat([weight, self.head_bias(head).unsqueeze(-1)], dim=-1)

    def head_entries(self, rows: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """The inverse of :meth:`head_rows`: rows ``[classes, d or d + 1]`` to the head's entries ``[h]``.

        ``bias`` ``[classes]`` (empty for a head without) is used if the rows do not contain it.
        """
        if rows.shape[-1] == self.embedding + 1:
            rows, bias = rows[..., :-1], rows[..., -1]
        return torch.cat([rows.flatten(), bias])


def layout_of(network: torch.nn.Sequential) -> Layout:
    """The layout of a network with an ``encoder`` and a ``head`` (see :mod:`fedrun.models.base`).

    Raises:
        InputError: it has other parts.
    """
    children = dict(network.named_children())
    if children.keys() != {"encoder", "head"} or not isinstance(children["head"], torch.nn.Linear | torch.nn.Identity):
        parts = ", ".join(f"{name}: {type(child).__name__}" for name, child in children.items())
        raise InputError(
            f"the model's network has the parts {parts or 'none'}; allowed: encoder and head, a Linear layer "
            "(Identity: no head), as fedrun.models.base.encoder_and_head joins them"
        )
    parameters, head = dict(network.named_parameters()), children["head"]
    head_names = [f"head.{name}" for name in ("weight", "bias") if getattr(head, name, None) is not None]
    if not parameters.keys() >= set(head_names):  # a tensor of the head is the encoder's, too, or is computed
        head_names = []
    if stuck := [name for name in head_names if not parameters[name].requires_grad]:
        raise InputError(f"the model's {stuck[0]} is frozen (requires_grad=False); allowed: in the encoder only")
    trained = {name: parameter for name, parameter in parameters.items() if parameter.requires_grad}
    if not trained:
        raise InputError("the model has no trained parameter; allowed: at least one with requires_grad=True")
    if odd := [name for name, parameter in parameters.items() if not parameter.is_floating_point()]:
        raise InputError(f"the model's {odd[0]} is of {parameters[odd[0]].dtype}; allowed: floating-point parameters")
    names = [name for name in trained if name not in head_names]
    persistent = network.state_dict().keys()
    buffers = {
        name: buffer for name, buffer in network.named_buffers() if buffer.is_floating_point() and name in persistent
    }
    last = sorted(buffers, key=lambda name: name.endswith(f".{RESIDUAL}"))
    tensors = {name: trained[name] for name in names + head_names} | {name: buffers[name] for name in last}
    slots, start = [], 0
    for name, tensor in tensors.items():
        layer = type(network.get_submodule(name.rpartition(".")[0])).__name__
        slots.append(Slot(name, tuple(tensor.shape), start, start + tensor.numel(), layer))
        start += tensor.numel()
    trainable = sum(tensor.numel() for tensor in trained.values())
    classes, embedding = parameters["head.weight"].shape if head_names else (0, 0)
    return Layout(
        slots=tuple(slots),
        trainable=trainable,
        size=start,
        head=slice(trainable - sum(parameters[name].numel() for name in head_names), trainable),
        classes=classes,
        embedding=embedding,
    )


def _is_unaligned(module: torch.nn.Module) -> bool:
    """Whether a tensor of a layer on a GPU begins where cuDNN's batch normalisation cannot read it: in training on
    channels-last inputs it reads 16 bytes at a time.
    """
    tensors = (*module.parameters(recurse=False), *module.buffers(recurse=False))
    return any(tensor.is_cuda and tensor.is_floating_point() and tensor.data_ptr() % 16 for tensor in tensors)


def _without_cudnn(forward: Callable[[torch.Tensor], torch.Tensor], inputs: torch.Tensor) -> torch.Tensor:
    with torch.backends.cudnn.flags(enabled=False):
        return forward(inputs)


class FlatNetwork:
    """A network whose tensors are views into one vector.

    Attributes:
        network: the module; its trained parameters and persistent float buffers are views into ``vector``. Only the
            whole module changes between training and evaluation mode, never a part of it.
        layout: where each tensor lies.
        vector: θ, float32 ``[P]``.
        frozen: the frozen parameters by name; they never change.
        cuda_graphs: the recorded functions of the network; None: they are not recorded.
        initial: θ with which the network was built, ``[P]``; None for a network without frozen parameters, which can be
            rebuilt at the cost of θ.
    """

    def __init__(self, network: torch.nn.Sequential, device: torch.device | str = "cpu") -> None:
        self.layout = layout_of(network)
        self.network = network.to(device)
        self.cuda_graphs: CudaGraphs | None = None
        self.vector = torch.empty(self.layout.size, device=device)
        self.frozen: dict[str, torch.Tensor] = {}
        for name, parameter in network.named_parameters():
            if not parameter.requires_grad:
                if parameter.ndim == 4:
                    parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
                self.frozen[name] = parameter.data
        views = self.layout.views(self.vector)
        parameters = dict(network.named_parameters())
        buffers = dict(network.named_buffers())
        for name, view in views.items():
            tensor = parameters.get(name, buffers.get(name))
            assert tensor is not None
            view.copy_(tensor.detach())
            tensor.data = view
        for module in network.modules():
            if isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and _is_unaligned(module):
                module.forward = partial(_without_cudnn, module.forward)  # type: ignore[method-assign]
        self._parameters = [parameters[slot.name] for slot in self.layout.slots if slot.stop <= self.layout.trainable]
        self.initial = self.vector.clone() if self.frozen else None
        self._outside = [buffer for name, buffer in buffers.items() if name not in views]
        self._initial_outside = [buffer.clone() for buffer in self._outside]

    @property
    def weights(self) -> torch.Tensor:
        """The trained parameters of the loaded model, ``[T]``: a view, which training moves in place."""
        return self.vector[: self.layout.trainable]

    @property
    def frozen_size(self) -> int:
        """The number of frozen entries."""
        return sum(tensor.numel() for tensor in self.frozen.values())

    @property
    def repeats_layers(self) -> bool:
        """Whether a layer is in two places, so that ``torch.func.functional_call`` would not put its own weights back
        afterwards.
        """
        return len(list(self.network.named_modules(remove_duplicate=False))) > len(list(self.network.modules()))

    @property
    def hooks_gradients(self) -> bool:
        """Whether a parameter changes its own gradient (``register_hook``). ``torch.func.functional_call`` computes
        with other tensors, which have no hooks.
        """
        return any(parameter._backward_hooks for parameter in self.network.parameters())

    @cached_property
    def frozen_fingerprint(self) -> str:
        """A hash of the names and values of the frozen parameters; empty if there are none."""
        if not self.frozen:
            return ""
        parts = ((name, tensor.float().cpu().numpy()) for name, tensor in self.frozen.items())
        return fingerprint(part for pair in parts for part in pair)

    def tensors(self, vector: torch.Tensor) -> dict[str, torch.Tensor]:
        """All tensors of the network with the model θ ``[P]``, by name: views into θ, and the frozen parameters."""
        return {**self.frozen, **self.layout.views(vector)}

    @cached_property
    def gradient(self) -> torch.Tensor:
        """Float32 ``[T]``, where :meth:`backward` stores the gradient.

        It is allocated at the first use: plain SGD does not need it.
        """
        return torch.zeros(self.layout.trainable, device=self.vector.device)

    @cached_property
    def _gradients(self) -> list[torch.Tensor]:
        return list(self.layout.views(self.gradient).values())

    def load(self, vector: torch.Tensor) -> None:
        """Make the network the model θ ``[P]``; buffers that are not in θ, such as counters, are reset."""
        self.vector.copy_(vector)
        for buffer, initial in zip(self._outside, self._initial_outside, strict=True):
            buffer.copy_(initial)

    @contextmanager
    def loaded(self, vector: torch.Tensor) -> Iterator[None]:
        """Make the network the model θ ``[P]`` in the block, and then again the model that it was before."""
        before = self.vector.clone()
        self.load(vector)
        yield
        self.load(before)

    @contextmanager
    def unmoved_buffers(self) -> Iterator[None]:
        """Put buffers of all types back after the block, such as BatchNorm's running statistics and their counter."""
        floats = self.vector[self.layout.trainable :]
        kept = [(buffer, buffer.clone()) for buffer in (floats, *self._outside)]
        yield
        for buffer, before in kept:
            buffer.copy_(before)

    def evaluated(self, inputs: torch.Tensor) -> torch.Tensor:
        """The outputs in evaluation mode for encoded inputs, ready for :meth:`backward`.

        cuDNN's recurrent layers have a backward pass in training mode only; PyTorch's own are used instead.
        """
        network = self.network.eval()
        recurrent = any(isinstance(module, torch.nn.RNNBase) for module in network.modules())
        with torch.backends.cudnn.flags(enabled=False) if recurrent else nullcontext():
            outputs: torch.Tensor = network(inputs)
        return outputs

    def backward(self, loss: torch.Tensor) -> torch.Tensor:
        """The gradient ``[T]`` of a scalar loss, overwritten by the next call.

        Copying new gradients into the vector is cheaper than zeroing it and letting autograd add to it.
        """
        gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True)
        if any(gradient is None for gradient in gradients):
            gradients = tuple(
                torch.zeros_like(own) if gradient is None else gradient
                for own, gradient in zip(self._gradients, gradients, strict=True)
            )
        torch._foreach_copy_(self._gradients, gradients)
        return self.gradient
