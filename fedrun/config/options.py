"""The folder of config groups, and the options that each group has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from fedrun.system.errors import InputError

CHOSEN_BY_PATH = ("experiment",)
"""Groups whose folders are parts of an option's name."""


def conf_dir() -> Path:
    """The folder of the config groups: ``conf/`` inside an installed package, or at the top of the repository."""
    package = Path(__file__).parents[1]
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"


def option_names(group: str, folders: Iterable[Path]) -> set[str]:
    """The options of a group in some folders of options."""
    return {path.stem for folder in folders for path in (folder / group).glob("*.yaml")}


def config_dir_option() -> Path | None:
    """The folder of further options that the running ``fedrun`` command has from ``--config-dir``, if any."""
    from hydra.core.global_hydra import GlobalHydra

    if not GlobalHydra.instance().is_initialized():
        return None
    path = GlobalHydra.instance().config_loader().get_search_path().get_path()
    folders = (element.path for element in path if element.provider == "command-line" and element.path)
    return next((Path(folder.removeprefix("file://")) for folder in folders), None)


def further_folder(config_dir: str | Path) -> Path:
    """A folder of further options, as an absolute path.

    Raises:
        InputError: there is no such folder.
    """
    folder = Path(config_dir).absolute()
    if not folder.is_dir():
        raise InputError(
            f"--config-dir {config_dir}: no such folder; allowed: one with options in it, laid out like conf/"
        )
    return folder


def options(group: str, config_dir: Path | None = None) -> list[str]:
    """The names of a config group's options; none if there is no such group.

    Args:
        group: such as ``strategy/client``.
        config_dir: folder of further options; None: the running command's.
    """
    return sorted(option_files(group, config_dir))


def option_files(group: str, config_dir: Path | None = None) -> dict[str, Path]:
    """The file of each of a group's options."""
    return files_in(group, [folder for folder in (config_dir or config_dir_option(), conf_dir()) if folder])


def files_in(group: str, folders: Iterable[Path]) -> dict[str, Path]:
    """The file of each of a group's options in some folders of options."""
    if not group:
        return {}
    pattern = "**/*.yaml" if group == "experiment" else "*.yaml"  # a paper's experiments have a folder of their own
    above = [folder / group for folder in folders]
    return {
        path.relative_to(folder).with_suffix("").as_posix(): path for folder in above for path in folder.glob(pattern)
    }


def groups(folders: Iterable[Path]) -> list[str]:
    """All config groups of some folders, but for Hydra's own, in alphabetical order."""
    return sorted({group for folder in folders for group in _groups(folder, "")})


def _groups(folder: Path, above: str) -> Iterator[str]:
    for path in (folder / above).iterdir():
        group = f"{above}/{path.name}" if above else path.name
        if path.is_dir() and path.name != "hydra":
            yield group
            if group not in CHOSEN_BY_PATH:
                yield from _groups(folder, group)


def parts(group: str, name: str, config_dir: Path | None = None) -> frozenset[str]:
    """The groups below an option of a group in which its defaults list chooses, such as ``client`` and ``server``."""
    from omegaconf import OmegaConf

    content = OmegaConf.to_container(OmegaConf.load(option_files(group, config_dir)[name]))
    defaults = content.get("defaults", []) if isinstance(content, dict) else []
    return frozenset(str(key) for entry in defaults if isinstance(entry, Mapping) for key in entry)
