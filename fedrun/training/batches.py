"""The batches of a client's local training, and the number of samples that it processes."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from fedrun.data.datasets.base import Encoding, is_ragged
from fedrun.strategies.local_training import LocalTraining

BLOCK = 2**18
"""Numbers that are encoded at once if batches are small: 1 MiB of float32."""


def epochs(
    samples: int, batch_size: int | None, batch_count: int, generator: torch.Generator, shuffled: bool = True
) -> Iterator[torch.Tensor]:
    """The order in which a client visits its samples: one permutation (int64 ``[n_k]``) per started epoch. The last
    epoch is cut after the last sample needed.

    Args:
        samples: n_k.
        batch_size: B; None: all samples are one batch.
        batch_count: number of batches.
        generator: draws the permutations.
        shuffled: false: the samples are visited in their order.
    """
    batch = min(samples, batch_size or samples)
    while batch_count > 0:
        order = torch.randperm(samples, generator=generator) if shuffled else torch.arange(samples)
        yield order[: batch_count * batch]
        batch_count -= -(-samples // batch)


def batches_per_epoch(samples: torch.Tensor, batch_size: int | None) -> torch.Tensor:
    """⌈n_k / B⌉ for clients with these numbers of samples (int64 ``[n]``), int64 ``[n]``; 1 if B is None."""
    return torch.ones_like(samples) if batch_size is None else -(-samples // batch_size)


def steps_of(samples: torch.Tensor, local: LocalTraining, batches_per_step: int = 1) -> torch.Tensor:
    """The number of SGD steps of clients with these numbers of samples (int64 ``[n]``), int64 ``[n]``.

    Under ``local.epochs``, if a step uses several batches, there are as many steps as needed to use every batch.
    """
    if local.steps is not None:
        return torch.full_like(samples, local.steps)
    assert local.epochs is not None
    return -(-local.epochs * batches_per_epoch(samples, local.batch_size) // batches_per_step)


def smallest_batch(samples: torch.Tensor, batch_size: int | None) -> int:
    """The size of the smallest batch in an epoch of clients with these numbers of samples, int64 ``[n]``."""
    if batch_size is None:
        return int(samples.min())
    # the last batch of an epoch has n_k mod B samples, or B
    return int(((samples - 1) % batch_size + 1).min())


def processed(samples: int, batch_size: int | None, batch_count: int, passes: tuple[int, ...] = (1,)) -> int:
    """The number of samples that a client processes in its local training, forward and backward.

    Args:
        samples: n_k.
        batch_size: B; None: all samples are one batch.
        batch_count: number of batches.
        passes: how often each batch of a step is processed (see :attr:`ClientStrategy.passes`).
    """
    batch = min(samples, batch_size or samples)
    per_epoch = -(-samples // batch)
    missing = per_epoch * batch - samples  # in the last batch of every epoch
    per_step = len(passes)
    whole = batch_count // per_step * sum(passes) + sum(passes[: batch_count % per_step])
    lasts = range(per_epoch - 1, batch_count, per_epoch)
    return batch * whole - missing * sum(passes[last % per_step] for last in lasts)


def batches(
    inputs: torch.Tensor, labels: torch.Tensor, batch_size: int, encoding: Encoding
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Encoded inputs and labels, batch by batch; small batches are encoded together, in blocks that fit a cache.

    Each batch of padded texts is encoded alone, because it is cut to its longest text.
    """
    size = batch_size * (1 if is_ragged(encoding) else max(1, BLOCK // (batch_size * inputs[0].numel())))
    for block, block_labels in zip(torch.split(inputs, size), torch.split(labels, size), strict=True):
        yield from zip(torch.split(encoding(block), batch_size), torch.split(block_labels, batch_size), strict=True)
