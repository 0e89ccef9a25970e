"""Fields' types in words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge, Gt, Le, Lt

from fedrun.config.allowed_values import describe, shown
from fedrun.config.config_class import PlainValue
from fedrun.config.suggestions import did_you_mean
from fedrun.strategies.fedprox import FedProx


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (int, "an integer"),
        (float, "a finite number"),
        (str, "a string"),
        (bool, "true or false"),
        (None, "null"),
        (Annotated[int, Ge(1)], "an integer, at least 1"),
        (Annotated[float, Gt(0), Le(1)], "a finite number, above 0 and at most 1"),
        (Annotated[float, Ge(0), Lt(1)], "a finite number, at least 0 and below 1"),
        (Annotated[str, "a remark"], "a string"),
        (int | None, "an integer; or null"),
        (Annotated[int, Ge(2)] | Annotated[float, Gt(0)], "an integer, at least 2; or a finite number, above 0"),
        (Literal["samples", "uniform"], "samples, uniform"),
        (Literal["never"] | int, "never; or an integer"),
        (tuple[int, ...], "a list, each item an integer"),
        (tuple[Annotated[float, Gt(0)], ...] | None, "a list, each item a finite number, above 0; or null"),
        (Mapping[str, Any], "a mapping"),
        (Mapping[str, PlainValue] | None, "a mapping from names to values as in YAML; or null"),
        (
            Mapping[str, Annotated[float, Ge(0)]],
            "a mapping from names to values, each a finite number, at least 0",
        ),
        (dict[str, int | None], "a mapping from names to values, each either an integer, or null"),
        (FedProx, "a mapping whose _target_ is a FedProx"),
    ],
)
def test_what_is_allowed(annotation: Any, words: str) -> None:
    assert describe(type(None) if annotation is None else annotation) == words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (0.5, "0.5"),
        ("fast", "fast"),
        ("", "''"),
        ((), "[]"),
        ((1, None, (True,)), "[1,null,[true]]"),
        ({}, "{}"),
        ({"noise": 0.5, "sizes": [1, None]}, "{noise:0.5,sizes:[1,null]}"),
    ],
)
def test_values_are_shown_as_in_yaml(value: object, text: str) -> None:
    assert shown(value) == text


def test_bounds_are_those_of_the_values_that_are_not_null() -> None:
    assert describe(Annotated[int | None, Ge(1)]) == describe(Annotated[int, Ge(1)] | None)
    assert describe(Annotated[float | None, Ge(0), Lt(1)]).endswith(", at least 0 and below 1; or null")


def test_types_that_a_field_cannot_have() -> None:
    assert describe(Path) == "nothing, as fields cannot be a Path (str and tuple[...] can)"
    assert describe(list[int]).startswith("nothing, as fields cannot be a list")


def test_keys_of_which_parts_were_left_out() -> None:
    known = ["rounds", "local.lr", "strategy.client.mu", "strategy.server.lr"]
    meant = {key: did_you_mean(key, known) for key in ("strategy.mu", "server.lr", "lr", "client.mu", "mo.nu")}
    assert meant["strategy.mu"] == meant["client.mu"] == "; did you mean strategy.client.mu?"
    assert meant["server.lr"] == "; did you mean strategy.server.lr?"
    assert meant["lr"] == "; did you mean local.lr or strategy.server.lr?"
    assert not meant["mo.nu"]


def test_the_beginning_of_a_few_names_stands_for_them() -> None:
    known = ["test/accuracy", "test/mcc", "fedavg", "fedavgm", "fedbn", "fedcm"]
    assert did_you_mean("test/acc", known) == "; did you mean test/accuracy?"  # not test/mcc, which is as similar
    assert did_you_mean("fedav", known) == "; did you mean fedavg or fedavgm?"
    assert "or" not in did_you_mean("fed", known)  # of too many
