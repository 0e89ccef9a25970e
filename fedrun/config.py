"""From YAML to objects: find ``conf/``, build recipes from composed configurations, and say clearly what is wrong."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import ValidationError

from fedrun.allowed_values import describe, shown
from fedrun.errors import InputError
from fedrun.experiment import Experiment

Plain = dict[str, Any]
"""A composed configuration as plain dicts, lists and scalars."""

IRRELEVANT = frozenset(
    {"hardware", "tracking", "display", "output_dir", "overwrite", "checkpoint_seconds", "seed", "name"}
)
"""Top-level keys that cannot change a result (hardware, beyond rounding), or that name the run's folder themselves."""

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
    """

    config: Plain
    choices: Mapping[str, str]
    overrides: tuple[str, ...]

    @property
    def hash(self) -> str:
        """Eight hex digits that change with everything that can change a result, but for the seed."""
        text = json.dumps(_relevant(self.config, top=True), sort_keys=True)
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


def _relevant(node: Any, top: bool = False) -> Any:
    if isinstance(node, Mapping):
        left_out = IRRELEVANT | CACHING if top else CACHING
        return {key: _relevant(value) for key, value in node.items() if key not in left_out}
    return [_relevant(item) for item in node] if isinstance(node, list) else node


def compose(overrides: Sequence[str] = ()) -> Composed:
    """Compose a configuration as the command line does, for use as a library.

    Example:
        >>> experiment = build_experiment(compose(["strategy=turbosvm", "rounds=5"]).config)

    Raises:
        hydra.errors.HydraException, omegaconf.errors.OmegaConfBaseException: an override does not exist.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        config = hydra_compose("config", list(overrides), return_hydra_config=True)
    choices = dict(config.hydra.runtime.choices)
    tasks = tuple(config.hydra.overrides.task)
    del config._content["hydra"]  # type: ignore[union-attr]
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    return Composed({str(key): value for key, value in plain.items()}, choices, tasks)


def option(group: str, name: str, **changes: Any) -> Any:
    """The recipe of one option, such as ``option("strategy/client", "fedprox", mu=0.1)``, without composing the rest.

    Only options whose YAML file has neither a defaults list nor interpolations can be built on their own.
    """
    from omegaconf import OmegaConf

    node = OmegaConf.to_container(OmegaConf.load(conf_dir() / group / f"{name}.yaml"), resolve=True)
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
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{path}._target_={target}: {error}; allowed: the dotted path of a recipe class") from None
    if not isinstance(found, type):
        raise InputError(f"{path}._target_={target}: not a class; allowed: the dotted path of a recipe class")
    return found


def _construct(recipe: type, arguments: Mapping[str, Any], path: str) -> object:
    """A recipe from its arguments, nested ones first; a refusal becomes one line."""
    annotations = get_type_hints(recipe, include_extras=True)
    names = [field.name for field in fields(recipe)]
    for key in arguments:
        if key not in names:
            raise InputError(f"{_join(path, key)}: unknown key; allowed{_below(path)}: {', '.join(names)}")
    for name in names:
        if name not in arguments:
            raise InputError(f"{_join(path, name)}: is missing; allowed: {describe(annotations[name])}")
    built = {key: build(value, _join(path, key)) for key, value in arguments.items()}
    try:
        return recipe(**built)
    except ValidationError as refusal:
        key = str(refusal.errors()[0]["loc"][0])
        allowed = describe(annotations[key])
        raise InputError(f"{_join(path, key)}={shown(built[key])}: allowed: {allowed}") from None


def _below(path: str) -> str:
    return f" below {path}" if path else ""


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
