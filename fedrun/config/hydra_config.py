"""Compose with Hydra as a library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fedrun.config.options import conf_dir
from fedrun.config.overrides import completed, quoted

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
    from hydra import compose

    with hydra_options(folder) as search_path:
        return compose("config", [*search_path, *completed(overrides)], return_hydra_config=True)


@contextmanager
def hydra_options(folder: Path | None) -> Iterator[list[str]]:
    """Let Hydra find fedrun's options.

    Args:
        folder: a folder of further options; None: there is none.

    Yields:
        The overrides with which it finds those of the folder, too.
    """
    from hydra import initialize_config_dir

    from fedrun.config.listed_options import register_listed_options

    register_listed_options()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        yield [] if folder is None else [f"hydra.searchpath=[{quoted(f'file://{folder}')}]"]
