"""What identifies the objects of a configuration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedrun.config.as_config import as_config
from fedrun.config.identity import identity
from fedrun.system.errors import InputError


@dataclass(frozen=True)
class Weighted:
    """A part of one's own, as a task with a weight of each class."""

    weight: Any


class Plain:
    """No arguments, no attributes."""


class Constructed:
    def __init__(self, rate: float = 0.1) -> None:
        """Keeps nothing that could be seen."""


class Slotted:
    __slots__ = ("rate",)


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_arrays_and_tensors_count_by_their_content(make: Any) -> None:
    one = identity(Weighted(make([1.0, 2.0])), "task")
    assert one == identity(Weighted(make([1.0, 2.0])), "task")
    others = [make([1.0, 3.0]), make([[1.0, 2.0]]), make([1, 2]), make([1.0])]
    assert len({str(identity(Weighted(other), "task")) for other in (make([1.0, 2.0]), *others)}) == 5
    written = as_config(Weighted(make([1.0])), "task")["weight"]
    assert written["_target_"] in ("numpy.ndarray", "torch.Tensor")
    assert len(written["content"]) == 32


def test_tensors_that_numpy_does_not_have() -> None:
    def content(*values: float) -> Any:
        return identity(torch.tensor(values, dtype=torch.bfloat16, requires_grad=True), "weight")["content"]

    assert content(1, 2) == content(1, 2) != content(1, 3)
    assert identity(torch.tensor(3), "weight") != identity(torch.tensor(4), "weight")


def test_an_object_without_arguments_counts_by_its_class() -> None:
    assert identity(Plain(), "task") == {"class": f"{__name__}.Plain"}


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ({1}, "set"),
        (frozenset({1}), "frozenset"),
        (b"1", "bytes"),
        (Path("1"), "PosixPath"),
        (1j, "complex"),
        (len, "builtin_function_or_method"),
        (torch.float32, "dtype"),
        (np.array([object()]), "ndarray"),
        (torch.eye(2).to_sparse(), "Tensor"),
        (Constructed(), "Constructed"),
        (Slotted(), "Slotted"),
    ],
)
def test_what_nothing_identifies_is_refused(value: object, name: str) -> None:
    """Two of them would have the same hash, and the second run would be given the first one's result."""
    with pytest.raises(
        InputError, match=rf"^task\.weight: {name} is neither a config class nor has a method as_config, "
    ):
        identity(Weighted(value), "task")
