"""One clear line for what Hydra and OmegaConf say over many."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from fedrun.config import compose, conf_dir
from fedrun.errors import InputError


def explain(error: Exception, arguments: Sequence[str]) -> str:
    """What is wrong with the command line ``arguments``, where, and what is allowed, in one line."""
    text = str(error)
    if isinstance(error, InputError):
        return text
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}; choose another output_dir"
    if missing := re.search(r"Could not find '(?P<group>.+)/(?P<option>[^/']+)'", text):
        return f"{missing['group']}={missing['option']}: no such option; allowed: {_options(missing['group'])}"
    if unknown := re.search(r"Could not override '(?P<key>[^']+)'", text):
        key = unknown["key"]
        if options := _options(key):
            return f"{key}: cannot be chosen here; allowed: {options}"
        return f"{key}: unknown key; {_keys_beside(key, arguments)}"
    return " ".join(text.split())


def _options(group: str) -> str:
    """The options of a config group, empty if there is no such group."""
    return ", ".join(sorted(path.stem for path in (conf_dir() / group).glob("*.yaml")))


def _keys_beside(key: str, arguments: Sequence[str]) -> str:
    """The keys that exist where an unknown one was looked for, given the other arguments."""
    from hydra.core.global_hydra import GlobalHydra

    GlobalHydra.instance().clear()  # the failed attempt may have left its own behind
    choices = [argument for argument in arguments if re.match(r"[\w/@.]+=[\w-]+$", argument) and key not in argument]
    node: Any = compose(choices).config
    parents = key.replace("/", ".").split(".")[:-1]
    for parent in parents:
        node = node.get(parent) if isinstance(node, dict) else None
    if not isinstance(node, dict):
        return "see fedrun --cfg job for all keys"
    where = f" below {'.'.join(parents)}" if parents else ""
    return f"allowed{where}: " + ", ".join(name for name in node if name != "_target_")
