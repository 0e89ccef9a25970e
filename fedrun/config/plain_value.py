"""Values as YAML has them, for fields that take any of them, such as the arguments of a user's function."""

from __future__ import annotations

from typing_extensions import TypeAliasType

PlainValue = TypeAliasType(
    "PlainValue",
    "bool | int | float | str | list[PlainValue] | tuple[PlainValue, ...] | dict[str, PlainValue] | None",
)
