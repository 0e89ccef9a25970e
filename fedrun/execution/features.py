"""The features of samples under frozen encoders, computed once."""

from __future__ import annotations

import torch

from fedrun.data.datasets.base import Encoding
from fedrun.data.samples import Samples
from fedrun.execution.ranks import Ranks


def compute_features(
    samples: Samples,
    indices: torch.Tensor,
    encoding: Encoding,
    width: int,
    batch_size: int,
    ranks: Ranks,
) -> torch.Tensor:
    """The features of some samples of a dataset, float32 ``[n, width]`` on the CPU; zero for the other samples.

    Each rank computes the features of its part of the batches; all ranks return the same features.

    Args:
        samples: the n samples of the dataset.
        indices: numbers of the samples to compute, int64 ``[m]``. The other samples are not read.
        encoding: stored samples to features.
        width: width of the features.
        batch_size: samples per forward pass.
        ranks: the processes that compute together.
    """
    features = torch.zeros(len(samples.targets), width)
    batches = torch.split(indices, batch_size)
    for batch in batches[ranks.part(len(batches))]:
        features[batch] = encoding(samples.gather(batch)[0]).cpu()
    ranks.all_reduce(features)
    return features
