"""Checks of what the transforms of uploads return, so that a mistake is one line that names the method."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real

import torch

from fedrun.strategies.contract import is_tensor, listed, mistake
from fedrun.strategies.vectors import Vectors
from fedrun.uploads.privacy.base import Mechanism
from fedrun.uploads.transform import Sent


def check_sent(transform: object, sent: object, displacements: Vectors) -> None:
    """Reject anything but displacements of the given names, and numbers as measures; see also :func:`check_metrics`.

    Args:
        transform: the transform.
        sent: what its ``send`` has returned.
        displacements: those that it has received.

    Raises:
        InputError: naming the method.
    """
    if not isinstance(sent, Sent):
        raise mistake(transform, "send", sent, "a Sent")
    if not sent.vectors.keys() <= displacements.keys():
        raise mistake(transform, "send", listed("vectors", sent.vectors), f"some of {', '.join(displacements)}")
    for name, vector in sent.vectors.items():
        if not is_tensor(vector, displacements[name].shape, torch.float32):
            raise mistake(transform, "send", vector, f"{name!r} as float32 {list(displacements[name].shape)}")
    for name, measure in sent.measures.items():
        if not (isinstance(measure, Real) or (isinstance(measure, torch.Tensor) and measure.numel() == 1)):
            raise mistake(transform, "send", measure, f"a number as measure {name!r}")
    check_metrics(transform, "send", sent.measures)


def check_metrics(transform: object, method: str, metrics: object) -> None:
    """Reject metrics of a privacy mechanism that are not named ``privacy/*``: they could replace those of a test.

    Args:
        transform: the transform; others than mechanisms are fedrun's.
        method: the method that has returned them.
        metrics: numbers by name.

    Raises:
        InputError: naming the method and the metric.
    """
    if not isinstance(transform, Mechanism):
        return
    allowed = "a dictionary of numbers named privacy/..."
    if not isinstance(metrics, Mapping):
        raise mistake(transform, method, metrics, allowed)
    for name in metrics:
        if not str(name).startswith("privacy/"):
            raise mistake(transform, method, f"the metric {name!r}", allowed)
