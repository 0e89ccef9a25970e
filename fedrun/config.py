"""From YAML to objects: find ``conf/``, build recipes from composed configurations, and say clearly what is wrong."""

from __future__ import annotations

import hashlib
import importlib
import json
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import ValidationError

from fedrun.allowed_values import describe, shown
from fedrun.errors import InputError
from fedrun.experiment import Experiment

if TYPE_CHECKING:
    from hydra.conf import HydraConf
    from omegaconf import DictConfig

Plain = dict[str, Any]
"""A composed configuration as plain dicts, lists and scalars."""

IRRELEVANT = frozenset(
    {"hardware", "tracking", "display", "output_dir", "overwrite", "checkpoint_seconds", "seed", "name"}
)
"""Top-level keys that cannot change a result (hardware, beyond rounding), or that name the run's folder themselves."""

LARGEST = 1e30
"""The largest number in a configuration: float32 ends at 3.4e38, and PyTorch refuses a factor beyond it."""

LARGEST_INTEGER = 10**12
"""The largest integer in a configuration, but for seeds: PyTorch counts in 64 bits, and products must fit in."""

CACHING = frozenset({"cache_dir", "download"})
"""Keys, at any level, that say how data get here, not which."""


def conf_dir() -> Path:
    """The folder of the config groups: ``conf/`` inside an installed package, or at the top of the repository."""
    package = Path(__file__).parent
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"


@dataclass(frozen=True)
class Composed:
    """A composed configuration.

    Attributes:
        config: the values, interpolations resolved.
        choices: the chosen option of each group, such as ``{"dataset": "digits", "strategy": "fedavg"}``.
        overrides: what the user asked for, such as ``("dataset=femnist", "seed=1")``.
        recipe: the recipe that it contains, asked for or found for the pair of dataset and strategy; None without one.
    """

    config: Plain
    choices: Mapping[str, str]
    overrides: tuple[str, ...]
    recipe: str | None = None

    @classmethod
    def of(cls, config: DictConfig, hydra: DictConfig | HydraConf) -> Composed:
        """What Hydra composed.

        Args:
            config: the job's own part.
            hydra: Hydra's part, with the choices and the overrides.

        Raises:
            InputError: a value is missing or refers to nothing, or there is no such recipe.
        """
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException

        try:
            plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        except OmegaConfBaseException as error:
            raise InputError(f"{error.full_key}: {str(error).splitlines()[0]}; see fedrun --cfg job") from None
        assert isinstance(plain, dict)
        composed = cls(
            {str(key): value for key, value in plain.items()},
            dict(hydra.runtime.choices),
            tuple(hydra.overrides.task),
        )
        folders = [Path(source.path) for source in hydra.runtime.config_sources if source.schema == "file"]
        composed.check_chosen("study", folders)
        composed.check_chosen("recipe", folders)
        composed.check_scale()
        found = composed.choices.get("recipe") in _files("recipe", folders)
        return replace(composed, recipe=composed.choices["recipe"]) if found else composed

    def check_chosen(self, group: str, folders: Iterable[Path]) -> None:
        """Refuse an option of an optional group that was asked for and is in none of the folders.

        Hydra does not: most pairs of a dataset and a strategy have no recipe.
        """
        if not any(override.lstrip("+").startswith(f"{group}=") for override in self.overrides):
            return
        files = _files(group, folders)
        if (name := self.choices[group]) not in files and name is not None:
            allowed = ", ".join(sorted(files))
            raise InputError(f"{group}={name}: no such option; allowed: {allowed}; or ~{group} for none")

    def check_scale(self) -> None:
        """Refuse a scale that nothing reads: without an experiment that has scales, the run would be a full one."""
        if self.choices.get("scale", "full") != "full" and not any(key.startswith("scale/") for key in self.choices):
            experiment = self.choices.get("experiment")
            where = f"experiment={experiment} has no scales" if experiment else "is for experiments"
            raise InputError(f"scale={self.choices['scale']}: {where}; allowed: scale=full")

    @property
    def hash(self) -> str:
        """Eight hex digits that change with everything that can change a result, but for the seed."""
        text = json.dumps(relevant(self.config), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    @property
    def group(self) -> str:
        """The run's folder below the output folder, without the seed."""
        return "/".join([self.config["name"], self.choices["dataset"], self.choices["strategy"], self.hash])

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return Path(self.config["output_dir"]) / self.group / f"seed={self.config['seed']}"

    @property
    def title(self) -> str:
        return f"{self.choices['strategy']} · {self.choices['dataset']} · seed {self.config['seed']}"


def _files(group: str, folders: Iterable[Path]) -> set[str]:
    """The options of a group in some folders of options."""
    return {path.stem for folder in folders for path in (folder / group).glob("*.yaml")}


def relevant(config: Mapping[str, Any]) -> Plain:
    """The part of a composed configuration that can change a result, but for the seed."""
    return {key: _uncached(value) for key, value in config.items() if key not in IRRELEVANT | CACHING}


def _uncached(node: Any) -> Any:
    if isinstance(node, Mapping):
        return {key: _uncached(value) for key, value in node.items() if key not in CACHING}
    return [_uncached(item) for item in node] if isinstance(node, list) else node


def told_folder() -> Path | None:
    """The folder of further options that the running ``fedrun`` command was told of (``--config-dir``), if any."""
    from hydra.core.global_hydra import GlobalHydra

    if not GlobalHydra.instance().is_initialized():
        return None
    path = GlobalHydra.instance().config_loader().get_search_path().get_path()
    told = (element.path for element in path if element.provider == "command-line" and element.path)
    return next((Path(folder.removeprefix("file://")) for folder in told), None)


def compose(overrides: Sequence[str] = (), config_dir: str | Path | None = None) -> Composed:
    """Compose a configuration as the command line does, for use as a library.

    Example:
        >>> experiment = build_experiment(compose(["strategy=turbosvm", "rounds=5"]).config)

    Args:
        overrides: as on the command line.
        config_dir: folder of further options, laid out like ``conf/``, as ``--config-dir`` names one.

    Raises:
        InputError: an override cannot be used, or there is no such folder.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    folder = None if config_dir is None else further_folder(config_dir)
    searched = [] if folder is None else [f"hydra.searchpath=['file://{folder}']"]
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        try:
            config = hydra_compose("config", [*searched, *overrides], return_hydra_config=True)
        except (HydraException, OmegaConfBaseException, ValueError) as error:
            from fedrun.composition_errors import explain

            raise InputError(explain(error, overrides, folder)) from error
    return Composed.of(OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"]), config.hydra)


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
        config_dir: folder of further options; None: the one that the running command was told of.
    """
    return sorted(_option_files(group, config_dir))


def _option_files(group: str, config_dir: Path | None = None) -> dict[str, Path]:
    """The file of each of a group's options."""
    pattern = "**/*.yaml" if group == "experiment" else "*.yaml"  # a paper's experiments have a folder of their own
    folders = [above / group for above in (config_dir or told_folder(), conf_dir()) if above and group]
    return {
        path.relative_to(folder).with_suffix("").as_posix(): path for folder in folders for path in folder.glob(pattern)
    }


def parts(group: str, name: str, config_dir: Path | None = None) -> frozenset[str]:
    """The groups below an option of a group in which its defaults list chooses, such as ``client`` and ``server``."""
    from omegaconf import OmegaConf

    content = OmegaConf.to_container(OmegaConf.load(_option_files(group, config_dir)[name]))
    defaults = content.get("defaults", []) if isinstance(content, dict) else []
    return frozenset(str(key) for entry in defaults if isinstance(entry, Mapping) for key in entry)


def option(group: str, name: str, **changes: Any) -> Any:
    """The recipe of one option, such as ``option("strategy/client", "fedprox", mu=0.1)``, without composing the rest.

    Only options whose YAML file has neither a defaults list nor interpolations can be built on their own.

    Raises:
        InputError: there is no such option, or the changes do not fit it.
    """
    from omegaconf import OmegaConf

    files = _option_files(group)
    if name not in files:
        raise InputError(f"{group}={name}: no such option; allowed: {', '.join(sorted(files)) or 'no such group'}")
    node = OmegaConf.to_container(OmegaConf.load(files[name]), resolve=True)
    assert isinstance(node, dict)
    return build({**node, **changes}, group.replace("/", "."))


def build_experiment(config: Plain) -> Experiment:
    """The experiment of a composed configuration, with all its recipes, checked.

    Raises:
        InputError: an unknown key, a wrong type, a value out of range or a combination that cannot work.
    """
    experiment = _construct(Experiment, config, "")
    assert isinstance(experiment, Experiment)
    experiment.check()
    return experiment


def build(node: Any, path: str) -> Any:
    """The object of a config node: a recipe where it names one in ``_target_``, tuples for lists, scalars as they are.

    Args:
        node: plain containers and scalars.
        path: the node's key, for messages.
    """
    if isinstance(node, float) and isfinite(node) and abs(node) > LARGEST:
        raise InputError(f"{path}={shown(node)}: allowed: numbers up to {LARGEST:g}, as float32 ends at 3.4e38")
    if isinstance(node, int) and abs(node) > LARGEST_INTEGER and not path.endswith("seed"):
        raise InputError(f"{path}={node}: allowed: whole numbers up to {LARGEST_INTEGER:g}")
    if isinstance(node, list):
        return tuple(build(item, f"{path}[{index}]") for index, item in enumerate(node))
    if not isinstance(node, Mapping):
        return node
    arguments = dict(node)
    target = arguments.pop("_target_", None)
    if target is None:
        raise InputError(
            f"{path}: has no _target_, so it does not say what to build; choose one of the group's options"
        )
    return _construct(_locate(target, path), arguments, path)


def _locate(target: Any, path: str) -> type:
    """The class that ``_target_`` names."""
    module, _, name = str(target).rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{path}._target_={target}: {error}; allowed: the dotted path of a recipe class; a package of your own "
            "must be installed, or its folder in PYTHONPATH"
        ) from None
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{path}._target_={target}: {error}; allowed: the dotted path of a recipe class") from None
    except Exception as error:  # whatever a module of the user's own raises
        where = traceback.extract_tb(error.__traceback__)[-1]
        at = "" if isinstance(error, SyntaxError) else f" ({where.filename}, line {where.lineno})"
        raise InputError(
            f"{path}._target_={target}: its module cannot be imported: {type(error).__name__}: {error}{at}"
        ) from error
    if not (isinstance(found, type) and is_dataclass(found)):
        raise InputError(
            f"{path}._target_={target}: not a recipe; allowed: the dotted path of a recipe class, a pydantic dataclass"
        )
    return found


def _construct(recipe: type, arguments: Mapping[str, Any], path: str) -> object:
    """A recipe from its arguments, nested ones first; a refusal becomes one line."""
    annotations = get_type_hints(recipe, include_extras=True)
    names = [field.name for field in fields(recipe)]
    for key in arguments:
        if key not in names:
            raise InputError(f"{_join(path, key)}: unknown key; allowed{_below(path)}: {', '.join(names) or 'nothing'}")
    for name in names:
        if name not in arguments:
            raise InputError(
                f"{_join(path, name)}: is missing; allowed: {_allowed(annotations[name], _join(path, name))}"
            )
    built = {key: build(value, _join(path, key)) for key, value in arguments.items()}
    try:
        return recipe(**built)
    except ValidationError as refusal:
        first = refusal.errors()[0]
        key = str(first["loc"][0])
        where = _join(path, key)
        why = ""
        if first["type"] == "is_instance_of" and is_dataclass(built[key]):
            why = f"; {type(built[key]).__name__} does not extend {first['ctx']['class']}"
        raise InputError(f"{where}={shown(built[key])}: allowed: {_allowed(annotations[key], where)}{why}") from None


def _allowed(annotation: Any, path: str) -> str:
    """What a key allows, in words: the options where it is a config group, the keys below it where it has some."""
    if names := options(group := path.replace(".", "/")):
        return f"{group}=OPTION, one of {', '.join(names)}"
    if is_dataclass(annotation):
        return f"{path}.KEY=VALUE with a KEY of {', '.join(field.name for field in fields(annotation))}"
    return describe(annotation)


def _below(path: str) -> str:
    return f" below {path}" if path else ""


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
