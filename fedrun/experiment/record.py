"""The names of a run and its recorded configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrun.config.as_config import Plain, as_config, differences
from fedrun.config.build import option_with
from fedrun.config.composed import Composed


@dataclass(frozen=True)
class RunRecord:
    """The names of a run. They follow from the experiment's values, also if these were changed after it was built.

    Attributes:
        config: the configuration as plain values.
        overrides: the differences from the default configuration, such as ``("dataset=femnist", "seed=1")``.
        hparams: a description of the published values in the configuration; None: no published values.
        dataset: the chosen option; the class name in lower case if the dataset was changed.
        strategy: the chosen option. If a side was changed, the option with these values; if there is none, the server
            side's class name in lower case.
        options: the chosen option of each group of the configuration that the experiment was built from.
        hash: see :func:`fedrun.config.identity.identity_hash`.
    """

    config: Plain
    overrides: tuple[str, ...]
    hparams: str | None
    dataset: str
    strategy: str
    options: Mapping[str, str]
    hash: str

    @classmethod
    def of(cls, settings: Mapping[str, Any], hash: str, origin: Composed) -> RunRecord:
        """The record of an experiment.

        Args:
            settings: the objects of its top-level keys.
            hash: their hash.
            origin: the configuration that it was built from.

        Raises:
            InputError: one of the objects cannot be identified.
        """
        config = {key: as_config(value, key) for key, value in settings.items()}
        changes = differences(origin.config, config)
        dataset = origin.choices.get("dataset")
        if dataset is None or "dataset" in changes:
            dataset = type(settings["dataset"]).__name__.lower()
        strategy = origin.choices.get("strategy")
        if strategy is None or not changes.keys().isdisjoint({"strategy", "strategy.client", "strategy.server"}):
            own = type(settings["strategy"].server).__name__.lower()
            strategy = option_with("strategy", config["strategy"]) or own
        overrides = (*origin.overrides, *(f"{key}={value}" for key, value in changes.items()))
        # 1 and 1.0 are equal; an unchanged experiment's record has the numbers as they were written
        recorded = config if changes else origin.config
        options = {group: name for group, name in origin.choices.items() if name and group in config}
        return cls(recorded, overrides, origin.hparams, dataset, strategy, options, hash)

    @property
    def choices(self) -> dict[str, str]:
        """The chosen option of each group, dataset and strategy by their names."""
        return {**self.options, "dataset": self.dataset, "strategy": self.strategy}

    @property
    def seed(self) -> int:
        return int(self.config["seed"])

    @property
    def group(self) -> str:
        """The run's folder below the output folder, without the seed."""
        return "/".join([self.config["name"], self.dataset, self.strategy, self.hash])

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return Path(self.config["output_dir"]) / self.group / f"seed={self.seed}"

    @property
    def title(self) -> str:
        """One short line, such as ``turbosvm · femnist · seed 0``; combined ones ``fedavg, client=fedprox``."""
        sides = (override.removeprefix("strategy/") for override in self.overrides if override.startswith("strategy/"))
        return f"{', '.join([self.strategy, *sides])} · {self.dataset} · seed {self.seed}"
