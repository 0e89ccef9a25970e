"""Keys that have no effect beside the values of other keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, is_dataclass

from fedrun.config.allowed_values import shown
from fedrun.config.marks import marks
from fedrun.config.overrides import keys_of


@dataclass(frozen=True)
class NoEffect:
    """Marks a key of a config class that has no effect while another key of the class has one of some values. A key
    with several marks has none while all of them hold.

    Attributes:
        key: the other key.
        values: its values, scalars.
    """

    key: str
    values: tuple[object, ...]


def unused_with(owner: type, key: str) -> tuple[NoEffect, ...]:
    """The marks of a class's key."""
    return tuple(mark for mark in marks(owner).get(key, ()) if isinstance(mark, NoEffect))


def without_effect(config: object, overrides: Sequence[str]) -> dict[str, str]:
    """The overrides that have no effect, with the message that rejects each.

    Args:
        config: the object whose fields are the top-level keys.
        overrides: such as ``local.beta1=0.5``.
    """
    messages = {}
    for override in overrides:
        for key in keys_of(override):
            *above, name = key.split(".")
            owner = config
            for part in above:
                owner = getattr(owner, part, None)
            if not is_dataclass(owner):  # a choice of an option below a group, or of another key's
                continue
            unused = unused_with(type(owner), name)
            if unused and all(getattr(owner, mark.key) in mark.values for mark in unused):
                others = {".".join([*above, mark.key]): shown(getattr(owner, mark.key)) for mark in unused}
                values = " and ".join(f"{other}={value}" for other, value in others.items())
                messages[override] = (
                    f"{override}: {'' if override.startswith(f'{key}=') else f'{key} '}has no effect with {values}; "
                    f"leave it out, or change {' or '.join(others)}"
                )
    return messages
