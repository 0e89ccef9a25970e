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
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from fedrun.config.options import conf_dir, content, listed, listed_file
from fedrun.config.overrides import with_implied

if TYPE_CHECKING:
    from omegaconf import DictConfig

SCHEME = "listed"

LAST = "schema"
"""The provider in Hydra's search path before whose first element Hydra places the folder of ``--config-dir``."""


def hydra_config(overrides: Sequence[str], folder: Path | None) -> DictConfig:
    """The configuration that Hydra composes, with Hydra's own part below ``hydra``.

    Args:
        overrides: as on the command line.
        folder: a folder of further options; None: there is none.

    Raises:
        HydraException, OmegaConfBaseException, ValueError: the overrides cannot be used.
    """
    with hydra_options(folder):
        return compose("config", with_implied(overrides), return_hydra_config=True)


@contextmanager
def hydra_options(folder: Path | None) -> Iterator[None]:
    """Let Hydra find fedrun's options, and those of a folder of further options, as with ``--config-dir``.

    Args:
        folder: a folder of further options; None: there is none.
    """
    register_listed_options()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        if folder is not None and isinstance(loader, ConfigLoaderImpl):
            search_path = loader.get_search_path()
            search_path.prepend("command-line", f"file://{folder}", SearchPathQuery(LAST))
            loader.repository.initialize_sources(search_path)
        yield


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
    """Place the listed options after all files, also those of ``--config-dir``, which replace them."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Add the source when fedrun composes; other applications of Hydra in the process are unchanged."""
        if any(element.path == str(conf_dir()) for element in search_path.get_path()):
            search_path.append(LAST, f"{SCHEME}://{conf_dir()}")


def _split(config_path: str) -> tuple[str, str]:
    """The group and the name of an option."""
    group, _, name = config_path.removesuffix(".yaml").rpartition("/")
    return group, name
