"""Compose with Hydra as a library, which also reads options that share one file, such as ``conf/strategy.yaml``.

A file with a group's name lists options of the group: each of its keys is an option, and the key's value is the content
that the option's own file would have. A first line ``# @package`` applies to all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hydra import compose, initialize_config_dir
from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from fedrun.config.options import conf_dir, content, listed, listed_file
from fedrun.config.overrides import quoted, with_implied

if TYPE_CHECKING:
    from omegaconf import DictConfig

SCHEME = "listed"


def hydra_config(overrides: Sequence[str], folder: Path | None) -> DictConfig:
    """The configuration that Hydra composes, with Hydra's own part below ``hydra``.

    Args:
        overrides: as on the command line.
        folder: a folder of further options; None: there is none.

    Raises:
        HydraException, OmegaConfBaseException, ValueError: the overrides cannot be used.
    """
    with hydra_options(folder) as search_path:
        return compose("config", [*search_path, *with_implied(overrides)], return_hydra_config=True)


@contextmanager
def hydra_options(folder: Path | None) -> Iterator[list[str]]:
    """Let Hydra find fedrun's options.

    Args:
        folder: a folder of further options; None: there is none.

    Yields:
        The overrides with which it finds those of the folder, too.
    """
    register_listed_options()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        yield [] if folder is None else [f"hydra.searchpath=[{quoted(f'file://{folder}')}]"]


def register_listed_options() -> None:
    """Add the listed options to those that Hydra finds in fedrun's folder of options."""
    for plugin in (ListedOptions, ListedOptionsPath):
        Plugins.instance().register(plugin)


class ListedOptions(ConfigSource):
    """The listed options, as a source of configurations."""

    @staticmethod
    def scheme() -> str:
        """The beginning of the source's address in Hydra's search path."""
        return SCHEME

    def available(self) -> bool:
        """Whether there is a folder of options."""
        return conf_dir().is_dir()

    def is_group(self, config_path: str) -> bool:
        """Whether options of a group are listed."""
        return bool(listed(config_path.rstrip("/")))

    def is_config(self, config_path: str) -> bool:
        """Whether an option such as ``strategy/fedprox`` is listed."""
        group, name = _split(config_path)
        return name in listed(group)

    def load_config(self, config_path: str) -> ConfigResult:
        """The content of a listed option."""
        group, name = _split(config_path)
        file = listed_file(group)
        return ConfigResult(
            provider=self.provider,
            path=self.full_path(),
            config=OmegaConf.create(content(group, name, file)),
            header=self._get_header_dict(file.read_text(encoding="utf-8")),
        )

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """The names of a group's listed options."""
        return [] if results_filter is ObjectType.GROUP else sorted(listed(config_path.rstrip("/")))


class ListedOptionsPath(SearchPathPlugin):
    """Place the listed options after fedrun's files, and before those of ``--config-dir``."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Add the source when fedrun composes; other applications of Hydra in the process are unchanged."""
        if any(element.path == str(conf_dir()) for element in search_path.get_path()):
            search_path.append("fedrun", f"{SCHEME}://{conf_dir()}", SearchPathQuery("main", str(conf_dir())))


def _split(config_path: str) -> tuple[str, str]:
    """The group and the name of an option."""
    group, _, name = config_path.removesuffix(".yaml").rpartition("/")
    return group, name
