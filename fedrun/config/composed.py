"""Compose a configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedrun.config.as_config import Plain
from fedrun.config.hydra_config import hydra_config
from fedrun.config.options import further_folder, option_names
from fedrun.config.suggestions import did_you_mean
from fedrun.system.errors import InputError

if TYPE_CHECKING:
    from hydra.conf import HydraConf
    from omegaconf import DictConfig


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
        found = composed.choices.get("recipe") in option_names("recipe", folders)
        return replace(composed, recipe=composed.choices["recipe"]) if found else composed

    def check_chosen(self, group: str, folders: Iterable[Path]) -> None:
        """Refuse an option of an optional group that was asked for and is in none of the folders.

        Hydra does not: most pairs of a dataset and a strategy have no recipe.
        """
        if not any(override.lstrip("+").startswith(f"{group}=") for override in self.overrides):
            return
        files = option_names(group, folders)
        if (name := self.choices[group]) not in files and name is not None:
            allowed = ", ".join(sorted(files))
            raise InputError(
                f"{group}={name}: no such option; allowed: {allowed}; or ~{group} for none{did_you_mean(name, files)}"
            )

    def check_scale(self) -> None:
        """Refuse a scale that nothing reads: without an experiment that has scales, the run would be a full one."""
        if self.choices.get("scale", "full") != "full" and not any(key.startswith("scale/") for key in self.choices):
            experiment = self.choices.get("experiment")
            where = f"experiment={experiment} has no scales" if experiment else "is for experiments"
            raise InputError(f"scale={self.choices['scale']}: {where}; allowed: scale=full")


def compose(overrides: Sequence[str] = (), config_dir: str | Path | None = None) -> Composed:
    """Compose a configuration as the command line does, for use as a library.

    Example:
        >>> experiment = build_experiment(compose(["strategy=turbosvm", "rounds=5"]))

    Args:
        overrides: as on the command line.
        config_dir: folder of further options, laid out like ``conf/``, as ``--config-dir`` names one.

    Raises:
        InputError: an override cannot be used, or there is no such folder.
    """
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    folder = None if config_dir is None else further_folder(config_dir)
    try:
        config = hydra_config(overrides, folder)
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        from fedrun.config.composition_errors import explain

        raise InputError(explain(error, overrides, folder)) from error
    return Composed.of(OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"]), config.hydra)
