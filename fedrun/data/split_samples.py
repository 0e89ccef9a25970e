"""Every client's samples split into two parts: at random, or the last ones held out."""

from __future__ import annotations

import logging
from typing import Literal

import numpy as np
import torch

from fedrun.data.federation import ClientIndices
from fedrun.data.offsets import offsets_of

log = logging.getLogger(__name__)

HeldOut = Literal["auto", "random", "last"]
"""Which of a client's samples are held out. ``auto``: ``last`` for samples that overlap, such as successive windows of
text, otherwise ``random``."""


def split_samples(
    clients: ClientIndices, share: float, held_out: HeldOut, overlap: int, draw: np.random.Generator, key: str
) -> tuple[ClientIndices, ClientIndices]:
    """Split every client's samples into ⌊(1 − share) n_k⌋ (at least one) to train on, and samples held out.

    ``random`` holds out all other samples of a random order. ``last`` is LEAF's temporal split of Shakespeare
    (``split_data.py`` of Caldas et al., 2018): the first samples in the dataset's order are for training. Of the
    others, those that overlap the last training sample are dropped, and the rest is held out. For successive windows of
    80 characters that drops 79 samples. A client with few samples may then have none held out.

    Args:
        clients: N clients.
        share: share of the test samples, in (0, 1).
        held_out: which samples.
        overlap: samples whose numbers differ by at most ``overlap`` share input, see
            :attr:`fedrun.data.datasets.base.Dataset.overlap`.
        draw: the source of the random order. ``last`` does not use it.
        key: the setting to name in the warning that overlapping samples are split at random.

    Returns:
        Training and held-out samples of the N clients.
    """
    sizes = clients.sizes.numpy()
    client = clients.owners.numpy()
    samples = clients.samples.numpy()
    last = held_out == "last" or (held_out == "auto" and overlap > 0)
    if overlap and not last:
        log.warning(
            "%s=random: each sample shares input with %d samples before and after it, so held-out samples overlap "
            "training samples; %s=last leaves a gap between them", key, overlap, key,
        )  # fmt: skip
    order = np.lexsort((samples if last else draw.random(len(client)), client))
    samples = samples[order]
    starts = clients.offsets[:-1].numpy()
    rank = np.arange(len(client)) - np.repeat(starts, sizes)
    training_sizes = np.maximum(1, np.floor((1 - share) * sizes + 1e-9).astype(np.int64))  # 1e-9: 0.6 * 5 is 3
    training = rank < training_sizes[client]
    remaining = ~training
    if last and overlap:
        last_training = samples[np.minimum(starts + training_sizes, clients.offsets[1:].numpy()) - 1]
        remaining &= samples > np.repeat(last_training, sizes) + overlap

    def part(chosen: np.ndarray) -> ClientIndices:
        offsets = offsets_of(np.bincount(client[chosen], minlength=len(clients)))
        return ClientIndices(torch.from_numpy(samples[chosen]), torch.from_numpy(offsets), clients.names)

    return part(training), part(remaining)
