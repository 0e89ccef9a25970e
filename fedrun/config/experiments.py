"""Experiments as their files describe them: the sweep of each, and its jobs at a scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from fedrun.config.grids import Job, jobs, named
from fedrun.config.options import options
from fedrun.config.plain_composition import plain_composition
from fedrun.config.suggestions import no_such_option
from fedrun.config.sweeper import SweeperSettings
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

    def run_name(self, scale: str) -> str:
        """The ``name`` of the runs at a scale, the first part of their folders."""
        return named(self.runs, scale)

    def jobs(self, scale: str, arguments: Sequence[str] = ()) -> list[Job]:
        """The overrides of each job at a scale, as for ``fedrun experiment=... scale=... ARGUMENTS``.

        Raises:
            InputError: there is no such scale.
        """
        chosen = [f"experiment={self.experiment}", f"scale={scale}", *arguments]
        return jobs(self.sweeper, self.runs, scale, chosen, None)


@cache
def experiment_sweep(name: str) -> ExperimentSweep:
    """The sweep of an experiment.

    Raises:
        InputError: there is no such experiment.
    """
    if name not in (known := options("experiment")):
        raise InputError(no_such_option("experiment", name, known))
    composition = plain_composition([f"experiment={name}"])
    return ExperimentSweep(name, composition.config["name"], SweeperSettings.of(composition.sweeper))
