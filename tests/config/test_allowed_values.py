"""Fields' types in words."""

from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Lt

from fedrun.config.allowed_values import describe
from fedrun.config.suggestions import did_you_mean


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
