"""Compose with Hydra as a library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedrun.config.allowed_values import in_message
from fedrun.config.options import conf_dir, options
from fedrun.system.errors import InputError

if TYPE_CHECKING:
    from omegaconf import DictConfig


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


def hydra_config(overrides: Sequence[str], folder: Path | None) -> DictConfig:
    """The configuration that Hydra composes, with Hydra's own part below ``hydra``.

    Args:
        overrides: as on the command line.
        folder: a folder of further options; None: there is none.

    Raises:
        HydraException, OmegaConfBaseException, ValueError: the overrides cannot be used.
    """
    from hydra import compose, initialize_config_dir

    from fedrun.config.listed_options import register_listed_options

    register_listed_options()
    search_path = [] if folder is None else [f"hydra.searchpath=['file://{folder}']"]
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return compose("config", [*search_path, *completed(overrides)], return_hydra_config=True)
