"""Any number of labels for each sample."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from fedrun.data.tasks.base import SampleResults, Task, require_shape
from fedrun.system.errors import InputError


@dataclass(frozen=True)
class MultiLabel(Task):
    """Targets say which of k labels a sample has, uint8 0 or 1 ``[n, k]``; outputs are a logit per label.

    The loss is the binary cross-entropy, averaged over the labels. Predictions are probabilities; a label counts as
    predicted above 0.5. Metrics: subset accuracy (the share of samples with all labels right), mAP, macro-F1.
    """

    measures: ClassVar[tuple[str, ...]] = ("subset_accuracy", "map", "f1")

    def check_targets(self, targets: torch.Tensor, outputs: int, where: str) -> None:
        require_shape(targets, (outputs,), "0 or 1 for each label", where)
        if not ((targets == 0) | (targets == 1)).all():
            raise InputError(f"{where}: targets other than 0 and 1; allowed: 1 where a sample has a label, otherwise 0")

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        entropy = torch.nn.functional.binary_cross_entropy_with_logits(
            outputs, targets.to(outputs.dtype), reduction="none"
        )
        return entropy.mean(-1)

    def predictions(self, outputs: torch.Tensor) -> torch.Tensor:
        return outputs.double().sigmoid()  # float32 would make all large logits equal, which mAP ranks

    def scores(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return ((predictions > 0.5) == targets.bool()).all(-1)

    def metrics(self, results: SampleResults, outputs: int) -> dict[str, float]:
        targets, predictions = results.targets.bool(), results.predictions
        # over the labels that some sample has; NaN if the model has diverged for one of them
        labels = targets.any(0).nonzero().flatten().tolist()
        precisions = [average_precision(targets[:, label], predictions[:, label]) for label in labels]
        predicted = predictions > 0.5
        correct, occurrences = (predicted & targets).sum(0).double(), (predicted.sum(0) + targets.sum(0)).double()
        return {
            "subset_accuracy": results.mean_score,
            "map": sum(precisions) / len(precisions) if precisions else math.nan,
            # F1_c = 2 TP_c / (2 TP_c + FP_c + FN_c), over the labels that occur in truth or predictions
            "f1": (2 * correct / occurrences)[occurrences > 0].mean().item(),
        }


def average_precision(targets: torch.Tensor, scores: torch.Tensor) -> float:
    """Σ_n (R_n − R_{n−1}) P_n over the distinct scores, from high to low; NaN if no sample has the label or a score is
    NaN.

    P_n and R_n are precision and recall if the samples with the n highest distinct scores are predicted.

    Args:
        targets: whether samples have the label, bool ``[n]``.
        scores: ``[n]``.
    """
    positives = int(targets.sum())
    if not positives or scores.isnan().any():
        return math.nan
    order = scores.argsort(descending=True)
    ranked, true_positives = scores[order], targets[order].double().cumsum(0)
    last = torch.cat([ranked[1:] != ranked[:-1], ranked.new_ones(1, dtype=torch.bool)])  # of each distinct score
    precision = (true_positives / torch.arange(1, len(targets) + 1))[last]
    recall = true_positives[last] / positives
    return float((recall.diff(prepend=recall.new_zeros(1)) * precision).sum())
