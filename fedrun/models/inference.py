"""Forward passes over samples: per-sample losses and predictions, of which every metric is a sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from fedrun.data.federation import ClientIndices
from fedrun.data.samples import Samples
from fedrun.models.flat_network import FlatNetwork
from fedrun.models.precision import Precision, computing


@dataclass(frozen=True)
class SampleResults:
    """One model's results on some samples, in their order.

    Attributes:
        losses: cross-entropy, float32 ``[n]``.
        predictions: int64 ``[n]``, the arg max of the logits, the lowest class on ties.
        targets: int64 ``[n]``.
    """

    losses: torch.Tensor
    predictions: torch.Tensor
    targets: torch.Tensor


def evaluate(
    network: FlatNetwork, samples: Samples, indices: torch.Tensor, batch_size: int, precision: Precision = "float32"
) -> SampleResults:
    """Run the loaded model over samples (sample numbers, int64 ``[n]``) in evaluation mode."""
    module = network.network.eval()
    with torch.no_grad(), computing(precision, samples.device):
        return _results(lambda encoded: module(encoded).float(), samples, indices, batch_size)


def ensemble(
    network: FlatNetwork,
    models: Sequence[torch.Tensor],
    samples: Samples,
    indices: torch.Tensor,
    batch_size: int,
    precision: Precision = "float32",
) -> SampleResults:
    """The results of several models ``[P]`` whose logits are summed, otherwise as :func:`evaluate`.

    That is also what the models' encoders side by side do, with their heads side by side and the sum of the biases.
    """
    module = network.network.eval()

    def summed(encoded: torch.Tensor) -> torch.Tensor:
        logits = torch.zeros(len(encoded), network.layout.classes, device=samples.device)
        for model in models:
            network.load(model)
            with computing(precision, samples.device):
                logits += module(encoded).float()
        return logits

    with torch.no_grad():
        return _results(summed, samples, indices, batch_size)


def _results(
    logits_of: Callable[[torch.Tensor], torch.Tensor], samples: Samples, indices: torch.Tensor, batch_size: int
) -> SampleResults:
    """The results of what gives logits ``[B, classes]`` for encoded samples ``[B, ...]``, batch by batch."""
    losses, predictions, targets = [], [], []
    for batch in torch.split(indices, batch_size):
        inputs, labels = samples.gather(batch)
        logits = logits_of(samples.encoding(inputs))
        losses.append(torch.nn.functional.cross_entropy(logits, labels, reduction="none"))
        predictions.append(logits.argmax(1))
        targets.append(labels)
    return SampleResults(torch.cat(losses).cpu(), torch.cat(predictions).cpu(), torch.cat(targets).cpu())


def joined(parts: Sequence[SampleResults]) -> SampleResults:
    """Results on several sets of samples, one after the other."""
    return SampleResults(
        torch.cat([part.losses for part in parts]),
        torch.cat([part.predictions for part in parts]),
        torch.cat([part.targets for part in parts]),
    )


def per_holder(results: SampleResults, shares: ClientIndices) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean loss and accuracy of each holder, float64 ``[holders]``, NaN for one without samples.

    ``results`` must be those of ``shares.samples``, in that order.
    """
    sizes = shares.sizes.double()
    holder = torch.repeat_interleave(torch.arange(len(shares)), shares.sizes)
    zeros = torch.zeros(len(shares), dtype=torch.float64)
    losses = zeros.index_add(0, holder, results.losses.double())
    correct = zeros.index_add(0, holder, (results.predictions == results.targets).double())
    return losses / sizes, correct / sizes
