"""The confusion matrix of predicted classes, and the metrics that are computed from it."""

from __future__ import annotations

import math

import torch


def confusion_matrix(targets: torch.Tensor, predictions: torch.Tensor, classes: int) -> torch.Tensor:
    """How often each class was predicted for each true class: int64 ``[C, C]``, rows are the truth.

    Args:
        targets: true classes, int64 ``[n]``, in ``0 .. classes - 1``.
        predictions: predicted classes, int64 ``[n]``, in ``0 .. classes - 1``.
        classes: C.
    """
    return torch.bincount(targets * classes + predictions, minlength=classes**2).view(classes, classes)


def accuracy(confusion: torch.Tensor) -> float:
    """Share of the samples that are predicted correctly; NaN without samples."""
    total = int(confusion.sum())
    return int(confusion.trace()) / total if total else math.nan


def macro_f1(confusion: torch.Tensor) -> float:
    """Plain mean of F1_c = 2 TP_c / (2 TP_c + FP_c + FN_c) over the classes that occur in truth or predictions.

    scikit-learn's ``f1_score(average="macro")``, also for two classes. NaN without samples.
    """
    # 2 TP_c + FP_c + FN_c is how often c is true plus how often it is predicted: 0 for exactly the classes left out.
    occurrences = confusion.sum(0) + confusion.sum(1)
    occurs = occurrences > 0
    f1 = 2.0 * confusion.diagonal()[occurs].double() / occurrences[occurs].double()
    return float(f1.mean())


def matthews(confusion: torch.Tensor) -> float:
    """Matthews' correlation coefficient of several classes (Gorodkin, 2004), in [-1, 1]; 0 if it is undefined.

    With s samples, c of them correct, t_i true and p_i predicted samples of class i::

        (c s - Σ t_i p_i) / sqrt((s² - Σ p_i²)(s² - Σ t_i²))
    """
    # Python's integers: the product under the root reaches s⁴, beyond int64 from 55 000 samples.
    true, predicted = confusion.sum(1).tolist(), confusion.sum(0).tolist()
    samples, correct = sum(true), int(confusion.trace())
    product = (samples**2 - sum(p * p for p in predicted)) * (samples**2 - sum(t * t for t in true))
    if product == 0:
        return 0.0
    covariance = correct * samples - sum(t * p for t, p in zip(true, predicted, strict=True))
    return float(covariance / math.sqrt(product))
