"""Files of a user's own options that have another form than those of ``conf/``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrun.config.allowed_values import in_message
from fedrun.config.defaults_entry import SELF, entry_of
from fedrun.config.options import SETTINGS, conf_dir, files_in, groups, header, option_folders, readable
from fedrun.system.errors import InputError


def check_forms(choices: Mapping[str, str | None], folders: Sequence[Path]) -> None:
    """Reject chosen options whose files Hydra would not use as they are meant.

    Hydra takes a string for a key, and of two files of the same name it uses fedrun's. Without another place in its
    first line, the keys of a setting would be below ``hparams``, those of an experiment below ``experiment``.

    Args:
        choices: the option of each group, which may have its place after ``@``.
        folders: folders of options, fedrun's own among them.

    Raises:
        InputError: there is such a file.
    """
    own = [folder for folder in folders if folder != conf_dir()]
    for chosen, option in choices.items() if own else ():
        group = chosen.partition("@")[0]
        file, used = files_in(group, own).get(str(option)), conf_dir() / group / f"{option}.yaml"
        if file is None:
            continue
        if wrong := wrong_form(file):
            raise InputError(wrong)
        if choice := _choice_of_dataset(group, readable(file) or {}):
            argument = choice.replace(": ", "=")
            raise InputError(
                f"{file}: defaults: override /{choice}: the dataset decides; allowed: {argument} on the command line, "
                "or this line in an option of experiment"
            )
        if chosen in SETTINGS and "@package" not in header(file):
            raise InputError(f"{file}: would set keys below {group}; allowed: with the first line # @package _global_")
        if used.is_file() and used.read_bytes() != file.read_bytes():
            raise InputError(f"{file}: fedrun has an option of this name, and would use it; allowed: another name")


def _choice_of_dataset(group: str, written: Mapping[str, Any]) -> str | None:
    """The choice of an option that has no effect, because datasets, whose options are read before, choose their model
    and partition; None: there is none.
    """
    if group not in ("dataset", *SETTINGS):
        for line in written.get("defaults", ()):
            entry = entry_of(line, group)
            if entry is not None and entry.override and entry.group in ("dataset", "model", "partition"):
                return f"{entry.group}: {in_message(entry.option)}"
    return None


def wrong_file(arguments: Iterable[str], folder: Path, missing: bool) -> str | None:
    """What is wrong with the first of a folder's files that does not have the form of an option; None: all have it.

    The files are those of the options that the arguments choose, or that their defaults lists name.

    Args:
        arguments: arguments of the command line.
        folder: folder of further options.
        missing: whether an option was not found, which one of the defaults lists may name.
    """
    left = [
        (group, option)
        for argument in arguments
        for group, _, option in [argument.lstrip("+").partition("=")]
        if not group.startswith(("~", "-"))
    ]
    seen = set()
    while left:
        chosen, option = left.pop(0)
        group = chosen.partition("@")[0]
        file, listing = files_in(group, [folder]).get(option), folder / f"{group}.yaml"
        if missing and option not in files_in(group, option_folders(folder)) and _lists(listing, option):
            return f"{listing}: is not read; allowed: a file for each option, such as {group}/{option}.yaml"
        if file is None or file in seen:
            continue
        seen.add(file)
        if wrong := wrong_form(file):
            return wrong
        written = readable(file)
        if missing and "/" not in option and (problem := _defaults_problem(group, written, folder)):
            return f"{file}: {problem}"
        entries = [entry_of(line, group) for line in (written or {}).get("defaults", ())]
        left += [(entry.group, entry.option) for entry in entries if entry is not None and entry.option]
    return None


def _lists(file: Path, option: str) -> bool:
    """Whether a file is a list of options, as ``conf/strategy.yaml`` is, with this one in it."""
    written = readable(file) if file.is_file() else None
    return isinstance(written, dict) and option in written


def wrong_form(file: Path) -> str | None:
    """Why a file cannot be read as an option, apart from the entries of its defaults list; None: it can."""
    try:
        problem = _problem(file, readable(file))
    except InputError as error:
        return str(error)
    return problem and f"{file}: {problem}"


def _problem(file: Path, written: object) -> str | None:
    """What is wrong with a file of an option with this content, apart from the entries of its defaults list."""
    try:
        file.read_bytes().decode()
    except UnicodeDecodeError:  # YAML may also be UTF-16, but Hydra's is not
        return "is not in UTF-8; allowed: YAML in UTF-8"
    if written is None:
        return None
    if not isinstance(written, dict):
        kind = "a list" if isinstance(written, list) else in_message(written)
        return f"contains {kind}; allowed: lines with KEY: VALUE, and a defaults list"
    if not isinstance(hydra := written.get("hydra", {}), dict):
        return f"hydra: {in_message(hydra)} is not a mapping; allowed: keys below it, such as sweeper"
    defaults = written.get("defaults", [])
    if not isinstance(defaults, list):
        return f"defaults: {in_message(defaults)} is not a list; allowed: {_ENTRIES}"
    choices = [line for line in defaults if not isinstance(line, str)]
    wrong = next((line for line in choices if not isinstance(line, dict) or len(line) != 1), None)
    if wrong is not None:
        return f"defaults: {in_message(wrong)} is not a choice; allowed: {_ENTRIES}"
    return None


_ENTRIES = "a list with lines such as - GROUP: OPTION or - OPTION"


def _defaults_problem(group: str, written: Mapping[str, object] | None, folder: Path) -> str | None:
    """Which line of an option's defaults list names no group and no option that there is; None if all do."""
    folders = option_folders(folder)
    defaults = (written or {}).get("defaults", [])
    assert isinstance(defaults, list)
    for line in defaults:
        entry = entry_of(line, group)
        if entry is None or entry is SELF or entry.optional or "hydra" in entry.group or "${" in str(entry.option):
            continue
        known = files_in(entry.group, folders)
        if entry.by_path and entry.option not in known:
            below = f"{entry.group}/{entry.option}".lstrip("/")
            if names := files_in(below, folders):
                return f"defaults: {line} is a group; allowed: - {line}: OPTION, one of {', '.join(sorted(names))}"
            return f"defaults: {line} is not an option; allowed: - GROUP: OPTION, or one of {', '.join(sorted(known))}"
        if not entry.by_path and entry.group not in groups(folders):
            parts = [name.removeprefix(f"{group}/") for name in groups(folders) if name.startswith(f"{group}/")]
            allowed = f"{', '.join(parts)}; or with a / before it, " if parts else "with a / before it, "
            return (
                f"defaults: {entry.relative.replace('.', '/')} is not a group; allowed: {allowed}another group's name"
            )
    return None
