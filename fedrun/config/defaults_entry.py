"""The entries of defaults lists: the options that a file of ``conf/`` chooses, and where they are placed.

The rules are those of Hydra's defaults lists (https://hydra.cc/docs/advanced/defaults_list).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

GLOBAL = "_global_"


@dataclass(frozen=True)
class Entry:
    """A line of a defaults list.

    Attributes:
        group: the group from which it chooses, with the groups above it.
        option: the option's name, which may refer to other groups' options; None: no option.
        relative: the group as written, dotted; the place of the option unless another is given.
        package: the place given after ``@``; None: none is.
        optional: whether the option may be absent.
        override: whether it replaces the option that another list chooses.
        by_path: whether it names a file instead of an option of a group.
    """

    group: str
    option: str | None
    relative: str
    package: str | None = None
    optional: bool = False
    override: bool = False
    by_path: bool = False

    def key(self, parent: str) -> str:
        """The key under which its option can be overridden, if the list's file is placed at ``parent``."""
        place = below(parent, self.relative if self.package is None else self.package)
        return self.group if place == self.group.replace("/", ".") else f"{self.group}@{place or GLOBAL}"


SELF = Entry("", "_self_", "")
"""The content of the list's own file."""


def entry_of(line: Any, group: str) -> Entry | None:
    """The entry that a line of an option of a group means; None if it has another form than the lines of ``conf/``."""
    if line == "_self_":
        return SELF
    if isinstance(line, str) and "@" not in line:
        above, _, name = line.lstrip("/").rpartition("/")
        absolute = line.startswith("/") or not group
        return Entry(above if absolute else f"{group}/{above}".rstrip("/"), name, above.replace("/", "."), by_path=True)
    if not isinstance(line, dict) or len(line) != 1:
        return None
    ((words, option),) = line.items()
    *flags, name = str(words).split()
    name, _, package = name.partition("@")
    relative = name.lstrip("/")
    if not {"optional", "override"}.issuperset(flags) or not isinstance(option, str | None):
        return None
    return Entry(
        group=relative if name.startswith("/") or not group else f"{group}/{relative}",
        option=option,
        relative=relative.replace("/", "."),
        package=package or None,
        optional="optional" in flags,
        override="override" in flags,
    )


def added(content: Mapping[str, Any], group: str) -> Iterator[Entry]:
    """The options that an option of a group adds to a configuration: neither its own content nor overrides.

    Args:
        content: the option as written, with its defaults list.
        group: group of the option.
    """
    defaults = content.get("defaults")
    for line in defaults if isinstance(defaults, list) else ():
        if (entry := entry_of(line, group)) is not None and entry is not SELF and not entry.override:
            yield entry


def below(parent: str, package: str) -> str:
    """A place below another one: ``strategy``, ``client`` → ``strategy.client``; ``_global_`` begins at the top."""
    joined = ".".join(part for part in (parent, package) if part)
    _, marker, rest = joined.rpartition(GLOBAL)
    return rest.lstrip(".") if marker else joined
