"""Fields' types in words."""

from typing import Annotated

from annotated_types import Ge, Lt

from fedrun.config.allowed_values import describe


def test_bounds_are_those_of_the_values_that_are_not_null() -> None:
    assert describe(Annotated[int | None, Ge(1)]) == describe(Annotated[int, Ge(1)] | None)
    assert describe(Annotated[float | None, Ge(0), Lt(1)]).endswith(", at least 0 and below 1; or null")
