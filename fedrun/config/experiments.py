"""Experiments as their files describe them: the sweep of each, and its jobs at a scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fedrun.config.defaults_lists import NotPlainError
from fedrun.config.grids import SCALES, Job, Scale, jobs, named
from fedrun.config.options import config_dir_option, option_folders, options
from fedrun.config.own_options import check_forms
from fedrun.config.plain_composition import plain_composition
from fedrun.config.suggestions import no_such_option
from fedrun.config.sweeper import SweeperSettings, sweeper_settings
from fedrun.system.errors import InputError


@dataclass(frozen=True)
class ExperimentSweep:
    """The sweep of an experiment.

    Attributes:
        experiment: the option's name, such as ``turbosvm/table3``.
        runs: the name of its runs at scale full, such as ``turbosvm/table2``: tables may share runs.
        sweeper: the values below ``hydra.sweeper``.
    """

    experiment: str
    runs: str
    sweeper: SweeperSettings

    @property
    def scales(self) -> tuple[Scale, ...]:
        """The scales at which it can be run, the largest first."""
        return tuple(scale for scale in SCALES if scale in self.sweeper.scales) or ("full",)

    def run_name(self, scale: str) -> str:
        """The ``name`` of the runs at a scale, the first part of their folders."""
        return named(self.runs, scale)

    def jobs(self, scale: str, arguments: Sequence[str] = ()) -> list[Job]:
        """The overrides of each job at a scale, as for ``fedrun experiment=... scale=... ARGUMENTS``.

        Raises:
            InputError: there is no such scale, or a value cannot be read.
        """
        from fedrun.config.composition_errors import composing

        chosen = [f"experiment={self.experiment}", f"scale={scale}", *arguments]
        with composing(chosen):
            return jobs(self.sweeper, self.runs, scale, chosen, None)


def experiment_sweep(name: str) -> ExperimentSweep:
    """The sweep of an experiment, one of fedrun or of the running command's folder of further options.

    Raises:
        InputError: there is no such experiment, or it cannot be composed.
    """
    return _sweep(name, config_dir_option())


@cache
def _sweep(name: str, folder: Path | None) -> ExperimentSweep:
    if name not in (known := options("experiment", folder)):
        raise InputError(no_such_option("experiment", name, known))
    chosen = [f"experiment={name}"]
    try:
        plain = plain_composition(chosen, folder)
    except NotPlainError:
        from fedrun.config.composition_errors import composing
        from fedrun.config.hydra_config import hydra_config

        with composing(chosen, folder):
            config = hydra_config(chosen, folder)
            return ExperimentSweep(name, config["name"], sweeper_settings(config.hydra))
    check_forms(plain.choices, option_folders(folder))
    return ExperimentSweep(name, plain.config["name"], SweeperSettings.of(plain.sweeper))
