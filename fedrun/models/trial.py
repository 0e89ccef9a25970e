"""A trial of a network on random samples: whether it can be trained on a dataset, before anything else is done."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import torch

from fedrun.data.datasets.base import Spec
from fedrun.system.errors import InputError, one_line

log = logging.getLogger(__name__)


def check_network(network: torch.nn.Module, spec: Spec, key: str, samples: int = 2) -> None:
    """Reject outputs of another shape than the task's, samples that the network cannot train on, parameters that are
    not finite, and buffers that it replaces or resizes. Warn of outputs that depend on the other samples of a batch in
    evaluation.

    Args:
        network: maps encoded samples to outputs; its parameters and buffers stay as they are.
        spec: spec of the dataset.
        key: the option and its name, for messages.
        samples: number of samples in the trial's batch.

    Raises:
        InputError: naming the model.
    """
    parameters, before = dict(network.named_parameters()), dict(network.named_buffers())
    _check_values(parameters, before, key)
    device = next((parameter.device for parameter in parameters.values()), torch.device("cpu"))
    values, kept = {name: buffer.clone() for name, buffer in before.items()}, network.state_dict().keys()
    trained = [parameter for parameter in parameters.values() if parameter.requires_grad]
    try:
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            outputs = network.train()(random_samples(spec, samples).to(device))
            if trained and isinstance(outputs, torch.Tensor) and outputs.requires_grad:
                torch.autograd.grad(outputs.float().sum(), trained, allow_unused=True)
    except MemoryError:
        raise
    except Exception as error:  # of any kind, because the network is the user's; the message has it
        shape = "x".join(map(str, spec.input_shape))
        raise InputError(
            f"{key}: rejects {'one sample' if samples == 1 else f'{samples} samples'} of shape {shape} in training "
            f"({type(error).__name__}: {one_line(str(error), 200)})"
            f"{_one_per_channel(str(error)) if 'more than 1 value per channel' in str(error) else ''}"
        ) from None
    for name, buffer in network.named_buffers():
        if name in kept and buffer is not before[name]:  # the new one would be no part of the model's vector
            raise InputError(
                f"{key}: its forward pass replaces the buffer {name}; allowed: changes in place, such as "
                f"self.{name.rpartition('.')[2]}.copy_(...)"
            )
        if name in values:
            _check_change(buffer, values[name], name, key)
    for name, value in values.items():
        before[name].copy_(value)
    if not isinstance(outputs, torch.Tensor):
        raise InputError(f"{key}: gives a {type(outputs).__name__} of outputs; allowed: a tensor")
    if outputs.shape != (samples, *spec.output_shape):
        shape, wanted = ("x".join(map(str, sizes)) for sizes in (outputs.shape[1:], spec.output_shape))
        of = f"{spec.classes} classes" if spec.task.has_classes else wanted
        raise InputError(f"{key}: gives {shape} outputs per sample; allowed: the dataset's {of}")
    if trained and not outputs.requires_grad:
        raise InputError(f"{key}: its outputs have no gradient; allowed: differentiable functions of its parameters")
    mixes = mixes_samples(network.eval(), random_samples(spec, 2).to(device))
    for name, value in values.items():
        before[name].copy_(value)
    if mixes:
        log.warning(
            "%s: its outputs for a sample depend on the other samples of the batch, also in evaluation; metrics depend "
            "on evaluation.batch_size",
            key,
        )


def _check_values(parameters: Mapping[str, torch.Tensor], buffers: Mapping[str, torch.Tensor], key: str) -> None:
    """Reject tensors without values, and parameters that are not finite."""
    for name, tensor in {**parameters, **buffers}.items():
        if tensor.is_meta or torch.nn.parameter.is_lazy(tensor):
            why = "device meta" if tensor.is_meta else "a lazy layer before its first forward pass"
            raise InputError(f"{key}: its {name} has no values ({why}); allowed: tensors with values")
    if wrong := [name for name, parameter in parameters.items() if not parameter.isfinite().all()]:
        raise InputError(f"{key}: its {wrong[0]} has NaN or infinity at first; allowed: finite numbers")


def _check_change(buffer: torch.Tensor, before: torch.Tensor, name: str, key: str) -> None:
    """Reject a forward pass that resizes a buffer, or after which it has a gradient; ``before``: its values."""
    if buffer.shape != before.shape:
        raise InputError(f"{key}: its forward pass resizes the buffer {name}; allowed: buffers of a fixed size")
    if buffer.requires_grad and not before.requires_grad:
        raise InputError(
            f"{key}: its forward pass adds values with a gradient to the buffer {name}; allowed: values without one, "
            "such as x.detach()"
        )


def mixes_samples(network: torch.nn.Module, samples: torch.Tensor) -> bool:
    """Whether the outputs for the first of some samples differ in a batch of its copies. False for a network with
    random outputs, for which this is not known.

    Args:
        network: in training or evaluation mode; its buffers may change.
        samples: encoded samples.
    """
    copies = samples[:1].expand_as(samples)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        first, among_copies = network(samples.clone())[:1], network(copies.clone())[:1]
        differs = not (first - among_copies).abs().max() <= 1e-3 * first.abs().max()  # also if it is NaN
        return differs and torch.equal(first, network(samples.clone())[:1])


def _one_per_channel(error: str) -> str:
    """What is allowed, given PyTorch's message, which ends with the shape of the layer's input."""
    larger = ", larger images" if error.count(",") >= 4 else ""  # [1, channels, height, width]
    return (
        f"; BatchNorm cannot train on a batch of one such sample; allowed: model.norm=group{larger}, or a "
        "local.batch_size with which no client has such a batch"
    )


def random_samples(spec: Spec, count: int) -> torch.Tensor:
    """Some encoded samples: numbers in [0, 1), or symbols."""
    random = torch.Generator().manual_seed(0)
    if spec.vocabulary is None:
        return torch.rand(count, *spec.input_shape, generator=random)
    return torch.randint(spec.vocabulary, (count, *spec.input_shape), generator=random)
