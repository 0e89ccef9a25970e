"""Suggestions for misspelt names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

from fedrun.config.allowed_values import in_message

READABLE = 200
"""Length above which a list of names is left out of a message that suggests one of them."""


def no_such_option(group: str, option: Any, known: Iterable[str]) -> str:
    """The message that a group has no such option, with those that it has; or with the likely one, if they are many.

    Args:
        group: such as ``strategy/client``, or with its place, such as ``hparams@_global_``.
        option: what the user wrote.
        known: the group's options.
    """
    allowed = allowed_names(str(option), sorted(known), f"fedrun --explain {group.partition('@')[0]}")
    return f"{group}={in_message(option)}: no such option{allowed}"


def allowed_names(name: str, known: Sequence[str], command: str) -> str:
    """The end of a message that rejects ``name``: the known names; or the likely one alone, if they are many.

    Args:
        name: what the user wrote.
        known: the existing names, in the order in which they are listed.
        command: shows all of them.
    """
    listing, suggestion = ", ".join(known), did_you_mean(name, known)
    if suggestion and len(listing) > READABLE:
        return f"{suggestion} {command} shows all"
    return f"; allowed: {listing or 'nothing'}{suggestion}"


def likely_flag(message: str, usage: str) -> str:
    """``; did you mean --explain?`` for a message that rejects a flag (``--expalin``), given the usage of a command."""
    known = re.findall(r"--[a-z][\w-]*", usage)
    rejected = [flag for flag in re.findall(r"(?<!\S)--[\w-]+", message) if flag not in known]
    return did_you_mean(rejected[0], known) if rejected else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean mnist?`` for a message that rejects ``name``; empty if no name is similar.

    The comparison ignores case. A key such as ``strategy.client.mu`` is also found by its end (``client.mu``) or by its
    first and last parts (``strategy.mu``); up to three names are found by their common beginning (``test/acc``).

    Args:
        name: what the user wrote.
        known: the existing names.
    """
    names = {candidate.lower(): candidate for candidate in sorted(known)}
    lower_name = name.lower()
    parent, dot, last = lower_name.rpartition(".")
    below_parent = {low.removeprefix(f"{parent}{dot}"): low for low in names if low.rpartition(".")[0] == parent}
    if lower_name in names:
        likely = [lower_name]
    elif ends := [low for low in names if low.endswith((f".{lower_name}", f"/{lower_name}"))]:
        likely = ends[:3]
    elif dot and (inner := [low for low in names if low.startswith(f"{parent}.") and low.endswith(f".{last}")]):
        likely = inner[:3]
    elif len(lower_name) > 2 and 0 < len(begun := [low for low in names if low.startswith(lower_name)]) <= 3:
        likely = begun
    elif dot and below_parent:  # the keys above are right, so only the last part may be misspelt
        likely = [below_parent[match] for match in get_close_matches(last, below_parent, n=1)]
    else:
        likely = get_close_matches(lower_name, names, n=1, cutoff=0.7)
        if not likely and not dot:
            last_parts = {low.rpartition(".")[2]: low for low in names}
            likely = [last_parts[match] for match in get_close_matches(lower_name, last_parts, n=1, cutoff=0.7)]
    return f"; did you mean {' or '.join(names[low] for low in likely)}?" if likely else ""
