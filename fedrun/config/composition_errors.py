"""Messages of one line for errors of Hydra and OmegaConf, whose own have many."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from fedrun.config.allowed_values import in_message
from fedrun.config.defaults_lists import NotPlainError
from fedrun.config.dotted_keys import NO_VALUE, dotted, value_at
from fedrun.config.hydra_config import hydra_config
from fedrun.config.key_reference import choices_with
from fedrun.config.options import (
    CHOSEN_BY_PATH,
    HYDRA_GROUPS,
    conf_dir,
    config_dir_option,
    groups,
    option_folders,
    options,
    parts,
    readable,
    readable_files,
)
from fedrun.config.overrides import home_folder, key_of, parsed, with_implied
from fedrun.config.own_options import wrong_file
from fedrun.config.plain_composition import plain_composition
from fedrun.config.suggestions import READABLE, did_you_mean, no_such_option
from fedrun.system.errors import InputError

COMPOSITION_ERRORS = (HydraException, OmegaConfBaseException, ValueError, OSError, YAMLError)
"""What Hydra raises if it cannot compose a configuration."""


@contextmanager
def composing(arguments: Sequence[str], config_dir: Path | None = None) -> Iterator[None]:
    """Turn errors of the composition in the block into one line. All other errors are defects, and are not changed.

    The form of chosen files is checked before, because Hydra may raise anything for another one.

    Args:
        arguments: arguments of the command line.
        config_dir: folder of further options; None: the running command's.

    Raises:
        InputError: the configuration cannot be composed.
    """
    folder = config_dir or config_dir_option()
    if folder and (wrong := wrong_file(arguments, folder, missing=False)):
        raise InputError(wrong)
    try:
        yield
    except COMPOSITION_ERRORS as error:
        raise InputError(message_for(error, arguments, folder)) from error


def message_for(error: Exception, arguments: Sequence[str], folder: Path | None) -> str:
    """What is wrong with the command line ``arguments``, at which key, and what is allowed, in one line.

    ``folder`` is a folder of further options; None: there is none.
    """
    text = " ".join(str(error).split())
    if not text and isinstance(error.__cause__, Exception):  # Hydra wraps OmegaConf's errors in empty ones
        return message_for(error.__cause__, arguments, folder)
    match error:
        case InputError():
            return text
        case MissingConfigException() if folder and (wrong := wrong_file(arguments, folder, missing=True)):
            return wrong
        case MissingConfigException(missing_cfg_file=str(missing), options=[*names]):
            by_path = missing.startswith(tuple(f"{group}/" for group in CHOSEN_BY_PATH))
            group, _, option = missing.partition("/") if by_path else missing.rpartition("/")
            if missing == "hydra/sweeper/optuna":
                return f"{group}={option}: is not installed; pip install 'fedrun[optuna]'"
            own = [] if group.startswith("hydra/") else options(group, folder)  # Hydra lists its own options
            return no_such_option(group, option, own or names)
        case OverrideParseException():
            return _unreadable(error.override)
        case YAMLError() | UnicodeDecodeError() | OSError() if folder and (unreadable := _unreadable_file(folder)):
            return unreadable
        case OSError(filename=str(filename)):
            return f"{in_message(filename)}: {error.strerror}; choose another output_dir"
    if unknown := re.search(r"Could not (?:override|delete from config\.) '(?P<key>[^']+)'", text):
        full = str(getattr(error.__cause__, "full_key", ""))  # of local={a: 1} it is local.a
        key = full if full.startswith(f"{unknown['key']}.") else unknown["key"]
        return f"{key}: {_why_unknown(key, arguments, folder)}"
    if malformed := _malformed(text, arguments):
        return malformed
    if repeated := _repeated(text, arguments):
        return repeated
    if wrong := next((argument for argument in arguments if _names_no_option(argument, folder)), None):
        group = wrong.lstrip("~").partition("=")[0]
        return f"{wrong}: names no option; allowed: {group}=OPTION, one of {', '.join(options(group, folder))}"
    return text


def _repeated(text: str, arguments: Sequence[str]) -> str | None:
    """The message that a key or a group that exists is added once more; None if the error is another one."""
    if present := re.search(r"An item is already at '(?P<key>[^']+)'", text):
        return f"{present['key']}: exists already; set it as {present['key']}=VALUE, without +"
    repeated = re.search(r"(?:Multiple values for )?(?P<group>\S+)(?:\. To override| appears more than once)", text)
    if repeated is None:
        return None
    group = repeated["group"]
    added = next((argument for argument in arguments if argument.startswith("+")), f"{group}=OPTION")
    chosen = key_of(added)
    if group.startswith(f"{chosen}/"):  # a group in the defaults of the added option
        group = chosen
    return f"{group}: is chosen already; choose one option as {group}=OPTION, without +"


def _unreadable(argument: str) -> str:
    """The message that an argument does not have Hydra's form."""
    if home := re.fullmatch(r"\+*([\w./]+)=(~[\w.-]*(?:/.*)?)", argument):
        return home_folder(home[1], home[2])
    return (
        f"{in_message(argument)}: cannot be read; allowed: KEY=VALUE, GROUP=OPTION; a list is KEY=[A,B], and a value "
        f"with other special characters is quoted{_in_form(argument)}"
    )


def _unreadable_file(folder: Path) -> str | None:
    """The message on the first file of further options that cannot be read; None if all can be."""
    for file in sorted(folder.rglob("*.yaml")):
        try:
            readable(file)
        except InputError as error:
            return str(error)
    return None


def _in_form(argument: str) -> str:
    """The end of the message about an argument that does not have the form KEY=VALUE; it may be empty.

    ``strategy:fedavg`` and ``fedavg`` give ``; did you mean strategy=fedavg?``, a value with an equals sign its quoted
    form, and any other single word the command that shows the groups.
    """
    if equals := re.fullmatch(r"(\w[\w./@]*)=([\w./-]+=[\w./=-]*)", argument):
        return f"""; did you mean '{equals[1]}="{equals[2]}"'?"""
    if form := re.fullmatch(r"([\w./@]+) *(?::|=+) *([\w.-]+)", argument):
        suggestion = f"{form[1]}={form[2]}"
        return f"; did you mean {suggestion}?" if suggestion != argument else ""
    if not re.fullmatch(r"[\w-]+", argument):
        return ""
    having = [group for group in groups([conf_dir()]) if "/" not in group and argument in options(group)]
    known = " or ".join(f"{group}={argument}" for group in having)
    return f"; did you mean {known}?" if known else "; fedrun --help shows the groups and their options"


def _malformed(text: str, arguments: Sequence[str]) -> str | None:
    """Which argument has no key, several values, or a value that its key cannot have; None: no argument."""
    if nameless := next((argument for argument in arguments if re.match("~?(=|$)", argument)), None):
        return _unreadable(nameless)
    if merging := re.search(r"^Error merging override (?P<override>\+*(?P<key>[^=]+)=.*)", text):
        wrong = in_message(merging["override"])
        known = not merging["key"].startswith("hydra.")  # those of Hydra's own are not explained
        advice = f"; fedrun --explain {merging['key']} shows what is allowed" if known else ""
        return f"{wrong}: not a value of this key{advice}"
    if kept := re.search(r"^Could not delete from config\. The value of '(.+)' is (.*) and not (.*)\.$", text):
        key, value, other = map(in_message, kept.groups())
        return f"~{key}={other}: the value is {value}; allowed: ~{key}"
    if text.startswith("Config group override must be a string"):
        of_hydra = (argument for argument in arguments if re.match(r"\+*hydra[=/]", argument))
        if choice := next((argument for argument in of_hydra if not isinstance(parsed(argument).value(), str)), None):
            return f"{in_message(choice)}: names no option; fedrun --help shows the groups and their options"
    if several := re.search(r"Ambiguous value for argument '(?P<argument>[^']+)'", text):
        return f"{several['argument']}: several values are a sweep, fedrun -m ...; a list is written KEY=[A,B]"
    if sweep := re.search(r"Sweep parameters '(?P<argument>[^']+)' requires --multirun", text):
        return f"{sweep['argument']}: several values are a sweep, fedrun -m ..."
    return None


def _names_no_option(argument: str, folder: Path | None) -> bool:
    """Whether an argument leaves a group out, or sets it to something other than one option's name.

    Groups of Hydra are not judged: plugins have further options.
    """
    group, _, option = argument.lstrip("~").partition("=")
    names = () if group in HYDRA_GROUPS else options(group, folder)
    return bool(names) and (argument.startswith("~") or option not in names)


def _why_unknown(key: str, arguments: Sequence[str], folder: Path | None) -> str:
    """Why there is no such key or group to set or to leave out, and which ones there are, given the other arguments."""
    group, _, package = key.partition("@")
    if names := options(group, folder):
        if package:
            return f"is not a place where an option of {group} can be put"
        if having := _having_part(group, folder):
            return f"is not part of the chosen {group.rpartition('/')[0]}; allowed with {having}"
        return f"cannot be chosen here; allowed: {', '.join(names)}"
    parents = key.replace("/", ".").split(".")[:-1]
    choices_of_options = [argument for argument in arguments if options(argument.partition("=")[0], folder)]
    # of a sweep over options the first; the others may have the key
    several = [re.sub(r"^([^=]+=[\w.-]+),.*", r"\1", choice) for choice in choices_of_options]
    config = _composed(several, folder)
    if value_at(config, key, NO_VALUE) is None:  # Hydra leaves out no such key
        return f"is null, so there is nothing to leave out; allowed: {key}=VALUE"
    node = value_at(config, ".".join(parents)) if parents else config
    if choices := choices_with(key, option_folders(folder)):
        part = "/".join(parents)
        having = "" if isinstance(node, dict) else _having_part(part, folder)
        if having and choices == f"{part}={', '.join(sorted(options(part, folder)))}":  # whichever is chosen
            choices = ""
        allowed = f"allowed with {having}{' and ' if having and choices else ''}{choices}"
        if several != choices_of_options:
            grids = "'hydra.sweeper.grids=[{GROUP:A},{GROUP:B,KEY:VALUE}]'"
            return (
                f"is looked for before the sweep's jobs choose their options; a sweep gives options their own keys as "
                f"{grids}"
            )
        of_chosen = f", which has {_keys_of(node)}" if isinstance(node, dict) and parents else ""
        return f"is not a key of the chosen option{of_chosen}; {allowed}"
    suggestion = did_you_mean(key, [*dotted(config), *groups([conf_dir()])])
    if not isinstance(node, dict):
        return f"unknown key; fedrun --cfg job shows all keys{suggestion}"
    where = f" below {'.'.join(parents)}" if parents else ""
    allowed = _keys_of(node)
    if suggestion.removeprefix("; did you mean ") == f"{'.'.join(parents)}?":  # the key above is not a suggestion
        suggestion = ""
    if suggestion and len(allowed) > READABLE:
        return f"unknown key{suggestion} fedrun --cfg job shows all keys"
    return f"unknown key; allowed{where}: {allowed}{suggestion}"


def _keys_of(node: Any) -> str:
    """The keys of a node in words."""
    return ", ".join(name for name in node or () if name != "_target_") or "no keys"


def _having_part(group: str, folder: Path | None) -> str:
    """The options that have a group within theirs: ``model/lora`` → ``model=OPTION, one of custom, timm``."""
    above, _, part = group.rpartition("/")
    names = sorted(readable_files(above, option_folders(folder)))
    having = [name for name in names if part in parts(above, name, folder)]
    return f"{above}=OPTION, one of {', '.join(having)}" if having else ""


def _composed(choices: Sequence[str], folder: Path | None) -> Any:
    """The configuration with these options; None if they cannot be composed either."""
    try:
        return plain_composition(with_implied(choices), folder).config
    except NotPlainError:
        pass
    GlobalHydra.instance().clear()  # the failed attempt may have left its instance behind
    try:
        config = hydra_config(choices, folder)
        keys = [str(key) for key in config if key != "hydra"]
        return OmegaConf.to_container(OmegaConf.masked_copy(config, keys), resolve=True, throw_on_missing=False)
    except (HydraException, OmegaConfBaseException, ValueError):
        return None
