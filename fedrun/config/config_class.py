"""The decorator of config classes: the frozen, validated dataclasses of a configuration.

Every option of every config group names a config class in its ``_target_`` key; the option's other keys are the
constructor arguments. A config class is small and cheap: creating one reads no file and does not import torch (modules
of config classes may say ``import torch`` but must not *use* it while they are imported), so a whole configuration is
checked in milliseconds. The work is done later, by the methods.

All defaults are in ``conf/``, so the classes of options have no default values. Users of fedrun as a library build a
config object from its YAML file with :func:`fedrun.config.build.option`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import wraps
from typing import Annotated, Any, TypeVar, dataclass_transform, get_type_hints

from pydantic import BeforeValidator, ConfigDict, ValidationError
from pydantic.dataclasses import dataclass
from typing_extensions import TypeAliasType

from fedrun.config.allowed_values import NAMES, describe, in_message
from fedrun.config.own_methods import check_methods
from fedrun.system.errors import InputError

T = TypeVar("T")

STRICT = ConfigDict(strict=True, extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False)
"""How config classes are validated: no silent conversion ("5" is not 5), no unknown keys, no infinity and no NaN."""


def _as_text(value: Any) -> Any:
    return str(value) if type(value) is int else value


NameOrNumber = Annotated[str, BeforeValidator(_as_text)]
"""A string that YAML may read as an integer: layers of ``torch.nn.Sequential`` are named 0, 1, ..."""

PlainValue = TypeAliasType(
    "PlainValue",
    "bool | int | float | str | list[PlainValue] | tuple[PlainValue, ...] | dict[str, PlainValue] | None",
)
"""Any value as YAML has it, such as an argument of a user's function."""


POSITIONAL = "unexpected_positional_argument"
"""Pydantic's type of the problem that an argument has no name."""


class ArgumentError(InputError):
    """A constructor argument of a config class is missing, unknown, or has a value that is not allowed.

    Attributes:
        owner: the class.
        problem: the first of pydantic's error details.
    """

    owner: type
    problem: Mapping[str, Any]


@dataclass_transform(kw_only_default=True, frozen_default=True)
def config_class(cls: type[T]) -> type[T]:
    """Make a frozen dataclass whose constructor takes keyword arguments only and validates them (:data:`STRICT`).

    The constructor, and so ``dataclasses.replace``, raises :class:`ArgumentError`.

    Raises:
        InputError: a method of a user's class is misspelt, or has other parameters than the base class's.
    """
    check_methods(cls)
    validated: type[T] = dataclass(frozen=True, kw_only=True, config=STRICT)(cls)  # type: ignore[assignment]  # of T
    validated.__init__ = _with_one_line(validated.__init__)  # type: ignore[method-assign]  # replace calls it, too
    return validated


def _with_one_line(init: Callable[..., None]) -> Callable[..., None]:
    """A constructor that raises an :class:`ArgumentError` instead of pydantic's error."""

    @wraps(init)
    def checked(self: object, *args: Any, **arguments: Any) -> None:
        try:
            init(self, *args, **arguments)
        except ValidationError as error:
            problems = error.errors()  # after a positional argument fields are missing, too
            problem = next((each for each in problems if each["type"] == POSITIONAL), problems[0])
            refusal = ArgumentError(_in_words(type(self), problem, arguments))
            refusal.owner, refusal.problem = type(self), problem
            raise refusal from None

    return checked


def own_reason(problem: Mapping[str, Any]) -> str | None:
    """The message of a ValueError or AssertionError of ``__post_init__``; None if the problem is the value of a key."""
    return None if problem["loc"] else str(problem["ctx"]["error"] if "ctx" in problem else problem["msg"])


def wrong_part(value: Any, location: Sequence[int | str]) -> Any:
    """Of a mapping the wrong entry without the others, a string in quotes; any other value unchanged.

    Args:
        value: a rejected value.
        location: where in the value pydantic has found the problem.
    """
    match location:
        case (str(name), *inside) if isinstance(value, Mapping) and name in value:
            part = wrong_part(value[name], inside)
            return {name: repr(part) if isinstance(part, str) else part}
    return value


def _in_words(owner: type, problem: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """A problem of the arguments in one line."""
    if (reason := own_reason(problem)) is not None:
        return f"{owner.__name__}: {reason}"
    key = str(problem["loc"][0])
    names = [field.name for field in fields(owner)]
    if key not in names:
        positional = f"{in_message(problem['input'])} without a name"
        rejected = positional if problem["type"] == POSITIONAL else f"unknown argument {key}"
        return f"{owner.__name__}: {rejected}; allowed by keyword: {', '.join(names) or 'none'}"
    annotation = get_type_hints(owner, include_extras=True)[key]
    known = not isinstance(annotation, type) or annotation in NAMES
    allowed = describe(annotation) if known else f"an object of {annotation.__name__}"
    if problem["type"].startswith("missing"):
        return f"{owner.__name__}.{key}: is missing; allowed: {allowed}"
    wrong, whole = problem["input"], arguments[key]
    plain = wrong is None or isinstance(wrong, str | int | float | tuple | list)
    value = wrong_part(whole, problem["loc"][1:]) if isinstance(whole, Mapping) else wrong
    given = f"={in_message(repr(value) if isinstance(value, str) else value)}" if plain else f": {type(wrong).__name__}"
    return f"{owner.__name__}.{key}{given}; allowed: {allowed}"
