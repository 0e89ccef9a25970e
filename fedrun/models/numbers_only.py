"""The check of models that read numbers of any shape."""

from __future__ import annotations

from fedrun.datasets.base import Spec
from fedrun.errors import InputError


def require_numbers(model: str, spec: Spec) -> None:
    """Refuse a dataset of texts: a symbol's number is a name, not a quantity.

    Raises:
        InputError: one line with the model's and the dataset's inputs.
    """
    if spec.vocabulary is not None:
        found = "x".join(map(str, spec.input_shape))
        raise InputError(f"model={model} reads numbers of any shape, but the dataset's samples are {found} symbols")
