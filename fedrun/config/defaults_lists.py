"""The options of ``conf/`` in a configuration, in the order in which they are merged, and the place of each.

The rules are those of Hydra's defaults lists (https://hydra.cc/docs/advanced/defaults_list), as far as ``conf/`` uses
them. Everything else raises :class:`NotPlainError`, and Hydra itself composes or rejects it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from fedrun.config.as_config import Plain
from fedrun.config.defaults_entry import GLOBAL, SELF, Entry, below, entry_of
from fedrun.config.options import content, header, listed, listed_file, option_folders
from fedrun.config.own_options import wrong_form

HYDRA = "hydra/"


class NotPlainError(Exception):
    """The configuration is not plain enough: Hydra must compose or reject it."""


@dataclass(frozen=True)
class OptionFile:
    """An option as written.

    Attributes:
        content: without the defaults list.
        entries: entries of the defaults list.
        package: the place given in its first line, after ``# @package``; None: none is.
    """

    content: Plain
    entries: tuple[Entry, ...]
    package: str | None


@dataclass(frozen=True)
class Placed:
    """A part of a configuration.

    Attributes:
        option: the option's name; ``config`` of ``config.yaml``.
        package: the dotted key below which its content is placed; empty: the top.
        content: without the defaults list.
    """

    option: str
    package: str
    content: Plain

    @property
    def embedded(self) -> Plain:
        """The content, below the key where it is placed."""
        content = self.content
        for name in reversed(self.package.split(".") if self.package else []):
            content = {name: content}
        return content


@dataclass
class DefaultsTree:
    """Expands the defaults lists, starting with ``config.yaml``.

    Args:
        chosen: the option of each group that the command line chooses.
        deleted: the groups that the command line leaves out.
        folder: a folder of further options; None: there is none.
    """

    chosen: dict[str, str]
    deleted: set[str]
    folder: Path | None = None
    choices: dict[str, str | None] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def parts(self) -> list[Placed]:
        """The parts in the order in which they are merged; :attr:`choices` are complete after the call.

        Raises:
            NotPlainError: only Hydra can compose these options, or reject them.
        """
        placed = self._expand("config", "", self._file("", "config"), interpolated=False)
        of_hydra = {key: option for key, option in self.chosen.items() if key.startswith(HYDRA)}
        if not self.chosen.keys() - of_hydra.keys() | self.deleted <= self.used:
            raise NotPlainError
        before = [
            Placed(option, group.replace("/", "."), file.content)
            for group, option in of_hydra.items()
            if (file := self._file(group, option)) is not None
        ]
        return before + placed

    def parts_of(self, group: str, option: str) -> list[Placed]:
        """The parts that a single option adds to a configuration, in the order in which they are merged.

        Raises:
            NotPlainError: only Hydra can compose it, or reject it.
        """
        return self._include(Entry(group, option, group.replace("/", ".")), "", False, {})

    def _expand(self, option: str, package: str, file: OptionFile | None, interpolated: bool) -> list[Placed]:
        """An option with this file and the parts of its defaults list."""
        if file is None:
            raise NotPlainError
        for entry in file.entries:
            if entry.override:
                if interpolated:
                    raise NotPlainError
                self.chosen.setdefault(entry.key(package), entry.option or "")
        included = [entry for entry in file.entries if not entry.override]
        if SELF not in included:
            included.append(SELF)
        # Backwards, as Hydra does: if two files override an option, the later one decides.
        blocks: list[list[Placed] | None] = []
        for entry in reversed(included):
            if entry is SELF:
                blocks.append([Placed(option, package, file.content)])
            else:
                deferred = "${" in (self._option(entry, package) or "")
                blocks.append(None if deferred else self._include(entry, package, interpolated, self.choices))
        known = dict(self.choices)
        for number, entry in enumerate(reversed(included)):
            if blocks[number] is None:
                blocks[number] = self._include(entry, package, True, known)
        return [part for block in reversed(blocks) for part in block or ()]

    def _option(self, entry: Entry, parent: str) -> str | None:
        """The option that an entry chooses."""
        return entry.option if entry.by_path else self.chosen.get(entry.key(parent), entry.option)

    def _include(self, entry: Entry, parent: str, interpolated: bool, known: Mapping[str, str | None]) -> list[Placed]:
        """The parts that an entry adds to the file at ``parent``."""
        option = self._option(entry, parent)
        if option and "${" in option:
            option = _resolved(option, known)
        key = entry.key(parent)
        if not entry.by_path:
            self.used.add(key)
            if key in self.deleted:
                return []
            if self.choices.setdefault(key, option) != option:
                raise NotPlainError
        if option is None:
            return []
        file = self._file(entry.group, option)
        if file is None and entry.optional:
            return []
        package = entry.package if entry.package is not None or file is None else file.package
        package = below(parent, entry.relative if package is None else package)
        return self._expand(option, package, file, interpolated)

    def _file(self, group: str, option: str) -> OptionFile | None:
        """An option's file, or the option in the file that lists several; None: there is none."""
        own = (folder / group / f"{option}.yaml" for folder in reversed(option_folders(self.folder)))
        file = next(filter(Path.is_file, own), listed_file(group) if option in listed(group) else None)
        if file is not None and self.folder and file.is_relative_to(self.folder) and wrong_form(file):
            raise NotPlainError
        return None if file is None else _read(group, option, file, file.stat().st_mtime_ns)


def _resolved(option: str, known: Mapping[str, str | None]) -> str:
    """An option's name with its references resolved."""
    return _interpolated(option, frozenset((name, known[name]) for name in re.findall(r"\w+", option) if name in known))


@cache
def _interpolated(option: str, mentioned: frozenset[tuple[str, str | None]]) -> str:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        return str(OmegaConf.create({**dict(mentioned), "option": option})["option"])
    except OmegaConfBaseException:
        raise NotPlainError from None


@cache
def _read(group: str, option: str, file: Path, modified: int) -> OptionFile:
    """An option as written in a file; ``modified``: the time of the file's last change."""
    plain = content(group, option, file)
    entries: list[Entry] = []
    for line in plain.pop("defaults", []):
        if (entry := entry_of(line, group)) is None:
            raise NotPlainError
        if entries and entries[-1].override and not entry.override and entry is not SELF:  # Hydra rejects it
            raise NotPlainError
        entries.append(entry)
    words = header(file)
    if any(len(values) != 1 for values in words.values()):
        raise NotPlainError
    package = f"{GLOBAL}.{below('', words['@package'][0])}".rstrip(".") if "@package" in words else None
    return OptionFile(plain, tuple(entries), package)
