"""Read arguments of the command line, such as ``local.lr=0.1``."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override


@cache
def parsed(argument: str) -> Override:
    """An argument as Hydra reads it. The jobs of a sweep share most arguments, and reading one takes milliseconds.

    Raises:
        OverrideParseException: it cannot be read.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser

    (override,) = OverridesParser.create().parse_overrides([argument])
    return override
