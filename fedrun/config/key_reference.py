"""What a key means, what it allows and where it has its default: the answer of ``fedrun --explain KEY``.

The comments in ``conf/`` are the explanations. They follow a key in its line, or are in the lines above it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any, TypeAlias, get_type_hints

from fedrun.config.allowed_values import describe, in_message, shown
from fedrun.config.build import locate
from fedrun.config.defaults_entry import added
from fedrun.config.defaults_lists import DefaultsTree, NotPlainError
from fedrun.config.dotted_keys import flattened, value_at
from fedrun.config.marks import NoEffect, unused_with
from fedrun.config.options import (
    HYDRA_GROUPS,
    SETTINGS,
    conf_dir,
    content,
    files_in,
    first_sentence,
    groups,
    listed_file,
    option_folders,
    options,
    package_of,
    readable_files,
)
from fedrun.config.suggestions import did_you_mean
from fedrun.system.errors import InputError

Comments: TypeAlias = dict[Path, list[tuple[tuple[str, ...], str]]]
"""The comments of a file's keys, as from :func:`_comments`."""


@dataclass(frozen=True)
class KeyEntry:
    """A key where it gets its first value.

    Attributes:
        key: dotted, from the top of the configuration.
        value: as it is written there.
        comment: what it means.
        owner: the class whose constructor argument it is, as a dotted path; empty: the experiment itself.
        choice: the option that has the key, such as ``model=mlp``; empty: it is always there.
    """

    key: str
    value: Any
    comment: str
    owner: str
    choice: str


def explain_key(key: str, experiment: type, config_dir: Path | None = None) -> str:
    """A key's comment, the values it allows, its default with every option that sets it, and the options that have it.

    For a config group: its options, each with the first sentence of its file's comment.

    Args:
        key: such as ``local.lr`` or ``strategy/client``.
        experiment: the class whose fields are the top-level keys.
        config_dir: folder of further options.

    Raises:
        InputError: there is no such key or group.
    """
    folders = option_folders(config_dir)
    if (group := key.replace(".", "/")) in (*groups(folders), *HYDRA_GROUPS):
        return _options(group, group, folders)
    entries, aliases = key_entries(folders)
    if (package := aliases.get(key)) is not None:  # a place for an option of another group
        return _options(group := package.replace(".", "/"), f"{group}@{key}", folders)
    matching, keys_below = _found(key, entries, aliases)
    if keys_below:
        return "\n".join([f"{key}: has keys of its own", *(f"  {name}" for name in dict.fromkeys(keys_below))])
    if not matching:
        raise InputError(f"--explain {in_message(key)}: {unknown_key(key, folders)}")
    lines = [_written(key, matching, experiment)]
    if all(entry.choice for entry in matching) and (users := _users(key, config_dir)):
        lines.append(f"  used by  {users}")
    return "\n".join(lines)


def _options(group: str, choice: str, folders: Sequence[Path]) -> str:
    """How an option of a group is chosen, and the options, each with the first sentence of its comment."""
    files, listing = files_in(group, folders), listed_file(group)
    listed = _comments(listing.read_text(encoding="utf-8")) if listing in files.values() else ()
    comments = {keys[0]: comment for keys, comment in listed if len(keys) == 1}
    heads = {name: first_sentence(comments[name]) if path == listing else _head(path) for name, path in files.items()}
    heads |= HYDRA_GROUPS.get(group, {})
    width = max(map(len, heads), default=0)
    return "\n".join([f"{choice}=OPTION", *(f"  {name:<{width}}  {head}" for name, head in sorted(heads.items()))])


def _found(key: str, entries: Sequence[KeyEntry], aliases: Mapping[str, str]) -> tuple[list[KeyEntry], list[str]]:
    """The places where a key gets its first value; without any, the keys below it."""
    wanted, placed = key, ""
    for alias, package in aliases.items():
        if key.startswith(f"{alias}."):
            wanted, placed = f"{package}{key.removeprefix(alias)}", f"{package.replace('.', '/')}="
    matching = [entry for entry in entries if entry.key == wanted and entry.choice.startswith(placed)]
    return matching, [] if matching else [entry.key for entry in entries if entry.key.startswith(f"{wanted}.")]


def unknown_key(key: str, folders: Sequence[Path]) -> str:
    """The part of a message about a key that no option has, with the likely key; empty if an option has the key."""
    entries, aliases = key_entries(folders)
    if any(_found(key, entries, aliases)):
        return ""
    meant = did_you_mean(key, [*(entry.key for entry in entries), *groups(folders)])
    return f"unknown key; fedrun --cfg job shows all keys{meant}"


def key_entries(
    folders: Sequence[Path], files_of: Callable[[str, Sequence[Path]], dict[str, Path]] = files_in
) -> tuple[list[KeyEntry], dict[str, str]]:
    """Every key where it gets its first value; and where options of a group are placed below another option's key, with
    the group's own key: ``{"strategy.server.base": "strategy.server"}``.

    Args:
        folders: folders of options.
        files_of: the files of a group's options in these folders.
    """
    comments: Comments = {}
    entries = _entries("", "config", {"config": conf_dir() / "config.yaml"}, comments)
    aliases: dict[str, str] = {}
    for group in [*groups(folders), *HYDRA_GROUPS]:
        if group not in SETTINGS:
            for name, path in sorted((files := files_of(group, folders)).items()):
                entries += _entries(group, name, files, comments)
                aliases |= _aliases(path, group, name)
    return entries, aliases


def choices_with(key: str, folders: Sequence[Path]) -> str:
    """The options that have a key, as in ``strategy=fesem; or strategy/client=fedprox, moon``; empty: none needed."""
    having: dict[str, list[str]] = {}
    for entry in key_entries(folders, readable_files)[0]:
        if entry.key == key and entry.choice:
            group, _, name = entry.choice.partition("=")
            having.setdefault(group, []).append(name)
    return "; or ".join(f"{group}={', '.join(dict.fromkeys(names))}" for group, names in having.items())


def _written(key: str, entries: Sequence[KeyEntry], experiment: type) -> str:
    """The explanation of a key; options that explain it alike share their lines."""
    alike: dict[tuple[str, str], list[KeyEntry]] = {}
    for entry in entries:
        alike.setdefault((entry.comment, _allowed(entry, experiment)), []).append(entry)
    lines = []
    # what the option's own class takes comes before values that other options give it
    for (comment, allowed), members in sorted(alike.items(), key=lambda item: not item[0][1]):
        lines += [f"{key}: {comment}" if comment else key, *([f"  allowed  {allowed}"] if allowed else [])]
        if unused := _without_effect(members[0], experiment):
            lines.append(f"  unused   with {unused}")
        for entry in members:
            lines.append(f"  default  {in_message(entry.value)}{f' with {entry.choice}' if entry.choice else ''}")
    return "\n".join(lines)


def _allowed(entry: KeyEntry, experiment: type) -> str:
    """The type and range of a key, in words; empty where a file changes the value of another option's key, and for
    sweepers and launchers, which are not config classes.
    """
    if (owner := _owner(entry, experiment)) is None:
        return ""
    annotation = get_type_hints(owner, include_extras=True).get(entry.key.rpartition(".")[2])
    return "" if annotation is None else describe(annotation)


def _without_effect(entry: KeyEntry, experiment: type) -> str:
    """The values of other keys with which a key has no effect, in words; empty if there are none."""
    if (owner := _owner(entry, experiment)) is None:
        return ""
    above, _, name = entry.key.rpartition(".")

    def words(mark: NoEffect) -> str:
        key = ".".join(filter(None, [above, mark.key]))
        return f"{key} other than null" if mark.values is None else f"{key}={' or '.join(map(shown, mark.values))}"

    return " or ".join(" and ".join(map(words, together)) for together in unused_with(owner, name))


def _owner(entry: KeyEntry, experiment: type) -> type | None:
    """The class whose constructor argument a key is; None: not known."""
    if (not entry.owner and "." in entry.key) or entry.owner.startswith("hydra_plugins."):
        return None
    return locate(entry.owner, entry.key.rpartition(".")[0]) if entry.owner else experiment


def _head(path: Path) -> str:
    """The first sentence of a file's comment."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    described = dropwhile(lambda line: not line.startswith("#") or "@package" in line, lines)
    comment = takewhile(lambda line: line.startswith("#"), described)
    return first_sentence(" ".join(line[1:].strip() for line in comment))


def _users(key: str, config_dir: Path | None) -> str:
    """The options that have a key, by group: ``strategy=fedacg, fedprox; strategy/client=fedprox``.

    Groups all of whose options have it are left out.
    """
    users, above = [], key.split(".")[:-1]
    for depth in range(1, len(above) + 1):
        group = "/".join(above[:depth])
        names = () if group in HYDRA_GROUPS else options(group, config_dir)
        having = [name for name in names if key in _option_keys(group, name, config_dir)]
        if 0 < len(having) < len(names):
            users.append(f"{group}={', '.join(having)}")
    return "; ".join(users)


def _option_keys(group: str, name: str, config_dir: Path | None) -> set[str]:
    """The dotted keys of an option and of those in its defaults list; none if only Hydra can compose it."""
    try:
        parts = DefaultsTree({}, set(), config_dir).parts_of(group, name)
    except NotPlainError:
        return set()
    return {key for part in parts for key, _ in flattened(part.embedded) if not key.endswith("_target_")}


def _entries(group: str, option: str, files: Mapping[str, Path], comments: Comments) -> list[KeyEntry]:
    """The keys of an option that have values, with those of the options that it extends; or those of ``config.yaml``.

    Args:
        group: group of the option; empty: ``config.yaml`` is in none.
        option: its name.
        files: files of the group's options.
        comments: those of the files that have been read.
    """
    path = files[option]
    top: Mapping[str, Any] = content(group, option, path)
    package = package_of(path, group)
    choice = f"{group}={option}" if group else ""
    if path not in comments:
        comments[path] = list(_comments(path.read_text(encoding="utf-8")))
    commented = comments[path]
    entries: dict[str, KeyEntry] = {}
    for line in added(top, group):
        if line.by_path and str(line.option) in files:
            for entry in _entries(group, str(line.option), files, comments):
                value = value_at(top, entry.key.removeprefix(f"{package}."), entry.value)
                entries[entry.key] = replace(entry, value=value, choice=choice)
    if group and path == listed_file(group):
        commented = [(keys[1:], comment) for keys, comment in commented if keys[0] == option and keys[1:]]
    for keys, comment in commented:
        owner = ""
        node: Any = top
        for name in keys:
            owner = str(node.get("_target_", owner)) if isinstance(node, Mapping) else owner
            node = node.get(name) if isinstance(node, Mapping) else None
        has_keys = isinstance(node, Mapping) and bool(node)  # {} is a value
        if keys[0] not in ("defaults", "hydra") and keys[-1] != "_target_" and not has_keys:
            key = ".".join(filter(None, [package, *keys]))
            before = entries.get(key, KeyEntry(key, node, comment, owner, choice))
            entries[key] = KeyEntry(key, node, comment or before.comment, owner or before.owner, choice)
    return list(entries.values())


def _comments(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every key of a YAML text, as the names from the top on, with its comment."""
    above: list[tuple[int, str]] = []
    before: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            before = [*before, stripped.lstrip("# ")] if stripped else []
            continue
        name, colon, rest = stripped.partition(":")
        indent = len(line) - len(line.lstrip())
        if colon and not stripped.startswith("- "):
            above = [*((depth, parent) for depth, parent in above if depth < indent), (indent, name)]
            _, hash_sign, behind = rest.partition(" #")
            yield tuple(parent for _, parent in above), behind.strip() if hash_sign else " ".join(before)
        before = []


def _aliases(path: Path, group: str, option: str) -> dict[str, str]:
    """Where options of another group are placed below an option: ``strategy.server.base`` → ``strategy.server``."""
    return {
        f"{group}/{entry.package}".replace("/", "."): entry.relative
        for entry in added(content(group, option, path), group)
        if entry.package
    }
