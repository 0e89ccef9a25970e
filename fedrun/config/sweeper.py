"""The settings of a sweep: the keys below ``hydra.sweeper``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedrun.config.allowed_values import in_message
from fedrun.config.build import construct
from fedrun.config.config_class import config_class
from fedrun.config.overrides import OF_THE_SWEEP, typed
from fedrun.system.errors import InputError

if TYPE_CHECKING:
    from hydra.conf import HydraConf
    from omegaconf import DictConfig

GRIDS = "hydra_plugins.fedrun.Grids"
"""The ``_target_`` of fedrun's sweeper."""

NO_GRIDS = {"params": {}, "grids": [{}], "scales": {}, "stages": [], "metric": "", "table": {}, "figures": {}}


@config_class
class ScaleSettings:
    """An experiment's settings for a scale.

    Attributes:
        params: values for all grids.
        grids: further values, for each grid.
        stages: grids of tuned values; none: nothing is tuned.
    """

    params: Mapping[str, Any]
    grids: tuple[Mapping[str, Any], ...]
    stages: tuple[Mapping[str, Any], ...]


@config_class
class SweeperSettings:
    """The keys below ``hydra.sweeper``, as plain containers and scalars.

    Attributes:
        params: values that all grids have in common.
        grids: further values, for each grid.
        scales: for each scale the keys of :class:`ScaleSettings`, each of which may be left out.
        stages: grids of tuned values, for scales without stages of their own.
        metric: the metric by which the best values are chosen.
        table: how the report reads a paper's table from the runs.
        figures: the figures that the report draws from the runs.
    """

    params: Mapping[str, Any]
    grids: tuple[Mapping[str, Any], ...]
    scales: Mapping[str, Mapping[str, Any] | None]
    stages: tuple[Mapping[str, Any], ...]
    metric: str
    table: Mapping[str, Any]
    figures: Mapping[str, Any]

    @classmethod
    def of(cls, settings: Any) -> SweeperSettings:
        """The settings in a composed configuration; for a sweeper other than fedrun's, its ``params`` in a single grid.

        Raises:
            InputError: a key is missing or unknown, or its value is not allowed.
        """
        known = dict(settings) if isinstance(settings, Mapping) else {}
        if known.pop("_target_", None) != GRIDS:
            known = {**NO_GRIDS, "params": known.get("params") or {}}
        built = construct(cls, known, "hydra.sweeper")
        assert isinstance(built, cls)
        return built

    def at(self, scale: object) -> ScaleSettings:
        """The settings for a scale; ``scale`` is as the user wrote it.

        Raises:
            InputError: there is no such scale, or its settings are not allowed.
        """
        if not isinstance(scale, str) or (scale not in self.scales and (self.scales or scale != "full")):
            allowed = ", ".join(self.scales) or "full, because this experiment has no scales"
            raise InputError(f"scale={in_message(scale)}: allowed: {allowed}")
        settings = {"params": {}, "grids": [{}], "stages": self.stages, **(self.scales.get(scale) or {})}
        built = construct(ScaleSettings, settings, f"hydra.sweeper.scales.{scale}")
        assert isinstance(built, ScaleSettings)
        return built

    def sets_values(self, scale: object) -> bool:
        """Whether the jobs of the sweep have values of their own at a scale.

        Raises:
            InputError: there is no such scale, or its settings are not allowed.
        """
        chosen = self.at(scale)
        return any((self.params, *self.grids, chosen.params, *chosen.grids, chosen.stages))


def sweeper_settings(hydra: DictConfig | HydraConf) -> SweeperSettings:
    """The settings that Hydra composed. Stages of the command line replace those of every scale.

    Args:
        hydra: Hydra's part of a composed configuration.

    Raises:
        InputError: a key is missing or unknown, or its value is not allowed.
    """
    from omegaconf import OmegaConf

    known: Any = None
    if OmegaConf.is_dict(hydra.sweeper):
        known = OmegaConf.to_container(hydra.sweeper, resolve=False)
        for key in known.keys() & OF_THE_SWEEP:
            value = hydra.sweeper[key]
            known[key] = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
    settings = SweeperSettings.of(known)
    if not any(override.startswith("hydra.sweeper.stages=") for override in typed(hydra.overrides.hydra)):
        return settings
    scales = {
        scale: {key: value for key, value in (own or {}).items() if key != "stages"}
        for scale, own in settings.scales.items()
    }
    return replace(settings, scales=scales)
