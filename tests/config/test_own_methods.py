"""Methods of users' classes that fedrun would not call, or not with their parameters."""

from __future__ import annotations

import types
import typing
from typing import ClassVar

import pytest

from fedrun.config.config_class import config_class
from fedrun.data.tasks.base import Task
from fedrun.experiment.observer import Observer
from fedrun.strategies.client import ClientStrategy
from fedrun.strategies.server import ServerStrategy
from fedrun.system.errors import InputError


def misspelt(self: object, constants: object) -> None: ...


def too_few(self: object, received: object, client: object) -> None: ...


def one_more(self: object, received: object, client_state: object, client: object, more: object) -> None: ...


def other_names(self: object, got: object, state: object, info: object, more: object = None) -> None: ...


def anything(self: object, *arguments: object) -> None: ...


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (
            {"linear_corection": misspelt},
            "linear_corection: fedrun does not use this name; did you mean linear_corr",
        ),
        ({"need": frozenset({"mean"})}, "need: fedrun does not use this name; did you mean needs? If it is your own"),
        ({"constants": too_few}, "constants(received, client): allowed: constants(received, client_state, client)"),
        ({"constants": one_more}, "constants(received, client_state, client, more): allowed: constants(received, cl"),
    ],
)
def test_what_would_have_no_effect_is_refused(members: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as refusal:
        config_class(type("Mine", (ClientStrategy,), {"__module__": "package.module", **members}))
    assert str(refusal.value).startswith(f"package.module.Mine.{message}")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("annotation", ["ClassVar[str]", "typing.ClassVar", ClassVar[str], typing.ClassVar])
def test_an_annotated_attribute_that_would_have_no_effect_is_refused(annotation: object) -> None:
    members = {"__module__": "own", "__annotations__": {"row": annotation}, "row": "all"}
    with pytest.raises(InputError, match=r"^own\.Mine\.row: fedrun does not use this name; did you mean rows\?"):
        config_class(type("Mine", (ServerStrategy,), members))


@pytest.mark.parametrize(
    ("base", "name", "message"),
    [
        (Task, "output_shapes", "output_shapes: fedrun does not use this name; did you mean output_shape?"),
        (Task, "loss", "loss(constants): allowed: loss(outputs, targets)"),
        (Observer, "on_rows", "on_rows: fedrun does not use this name; did you mean on_row?"),
        (Observer, "on_client", "on_client(constants): allowed: on_client(round, done, cohort)"),
    ],
)
def test_tasks_and_observers_are_checked_when_they_are_defined(base: type, name: str, message: str) -> None:
    with pytest.raises(InputError) as refusal:
        type("Mine", (base,), {"__module__": "package.module", name: misspelt})
    assert str(refusal.value).startswith(f"package.module.Mine.{message}")


@pytest.mark.parametrize(
    "members",
    [
        {"constants": other_names},
        {"constants": anything},
        {"linear_correction": misspelt, "linear_corrections": misspelt},  # the method itself is there, too
        {"_linear_corection": misspelt, "gain": misspelt, "rate": 0.5},
        {"__annotations__": {"need": int}, "need": 3},  # a key of the configuration
        {"abc_impl": misspelt},  # only a private name is similar
    ],
)
@pytest.mark.parametrize("base", [ClientStrategy, ServerStrategy])
def test_what_has_an_effect_or_another_name_is_not(base: type, members: dict[str, object]) -> None:
    config_class(types.new_class("Mine", (base,), exec_body=lambda body: body.update(__module__="own", **members)))
