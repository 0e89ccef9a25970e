"""Compose with Hydra as a library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedrun.config.options import conf_dir
from fedrun.config.overrides import completed

if TYPE_CHECKING:
    from omegaconf import DictConfig


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
