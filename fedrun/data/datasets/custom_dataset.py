"""Samples loaded by a user's own function."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Annotated

from fedrun.config.config_class import PlainValue, config_class
from fedrun.config.identity import Neutral
from fedrun.data.datasets.base import Dataset, DatasetConfig, Spec
from fedrun.data.datasets.in_memory import InMemory
from fedrun.system.dotted_path import called
from fedrun.system.errors import InputError


@config_class
class CustomDataset(DatasetConfig):
    """The dataset that ``target()`` returns, as :meth:`InMemory.of` or :meth:`InMemory.of_table` makes one.

    The function is called once per process, before the first round. A run's folder is named by the function; a run
    whose data have changed since is not resumed.

    Attributes:
        target: dotted path of a function that returns a :class:`fedrun.InMemory`.
        arguments: its arguments, by name; None: none.
    """

    target: str
    arguments: Annotated[Mapping[str, PlainValue] | None, Neutral(None)]

    @property
    def spec(self) -> Spec:
        return self._returned.spec

    def load(self) -> Dataset:
        """Call the function.

        Raises:
            InputError: there is no such function, it raises an error, or it returns something else.
        """
        return self._returned.load()

    @property
    def _returned(self) -> InMemory:
        return returned(self.target, json.dumps(self.arguments or {}, sort_keys=True))


@cache
def returned(target: str, arguments: str) -> InMemory:
    """What the function returns, given its arguments as JSON."""
    own = called(target, "dataset.target", {}, json.loads(arguments))
    if not isinstance(own, InMemory):
        raise InputError(
            f"dataset.target={target}: returns a {type(own).__name__}; allowed: a fedrun.InMemory, such as "
            "fedrun.InMemory.of((inputs, classes), (test_inputs, test_classes), classes=10)"
        )
    return own
