"""Read and complete arguments of the command line, such as ``local.lr=0.1``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from fedrun.config.allowed_values import in_message
from fedrun.config.options import options
from fedrun.system.errors import InputError

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


def quoted(text: str) -> str:
    """A text as a value on the command line, whatever characters it has."""
    from hydra.core.override_parser.types import Quote, QuotedString

    return QuotedString(text, Quote.single).with_quotes()


def completed(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command line; ``~hparams`` also leaves out the strategy's own values.

    Raises:
        InputError: a group is set to a list of options.
    """
    for argument in arguments:
        group, _, choice = argument.partition("=")
        if choice.startswith("[") and (names := options(group)):
            raise InputError(f"{in_message(argument)}: a list; allowed: {group}=OPTION, one of {', '.join(names)}")
    return [part for argument in arguments for part in _PARTS.get(argument, (argument,))]


_PARTS = {"~hparams": ("~hparams", "~hparams@_global_")}
