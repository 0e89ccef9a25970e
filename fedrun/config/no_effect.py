"""Overrides that have no effect because of the values of other keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, is_dataclass

from fedrun.config.allowed_values import shown
from fedrun.config.key_reference import key_entries
from fedrun.config.marks import unused_with
from fedrun.config.options import conf_dir
from fedrun.config.overrides import keys_of


@dataclass(frozen=True)
class Unused:
    """An override without effect.

    Attributes:
        message: rejects it.
        others: the keys whose values leave it without effect.
    """

    message: str
    others: tuple[str, ...]


def without_effect(config: object, overrides: Sequence[str]) -> dict[str, Unused]:
    """The overrides that have no effect, except those that set a key to null or to a default.

    Args:
        config: the object whose fields are the top-level keys.
        overrides: such as ``local.beta1=0.5``.
    """
    found = {}
    for override in overrides:
        for key in keys_of(override):
            *above, name = key.split(".")
            owner = config
            for part in above:
                owner = getattr(owner, part, None)
            if not is_dataclass(owner):  # a choice of an option below a group, or of another key's
                continue
            reasons = unused_with(type(owner), name)
            unused = next((marks for marks in reasons if all(mark.holds(owner) for mark in marks)), ())
            if not unused or _is_usual(key, getattr(owner, name)):
                continue
            others = {".".join([*above, mark.key]): shown(getattr(owner, mark.key)) for mark in unused}
            values = " and ".join(f"{other}={value}" for other, value in others.items())
            message = (
                f"{override}: {'' if override.startswith(f'{key}=') else f'{key} '}has no effect with {values}; "
                f"leave it out, or change {' or '.join(others)}"
            )
            found[override] = Unused(message, tuple(others))
    return found


def _is_usual(key: str, value: object) -> bool:
    """Whether a value is null, or what the key has without an override, so that setting it changes nothing."""
    defaults = [entry.value for entry in key_entries([conf_dir()])[0] if entry.key == key]
    plain = list(value) if isinstance(value, tuple) else value
    return value is None or any(type(plain) is type(default) and plain == default for default in defaults)
