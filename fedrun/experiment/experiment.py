"""An experiment: all settings of a run, checked before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from fedrun.config.as_config import plain
from fedrun.config.build import construct
from fedrun.config.composed import Composed
from fedrun.config.config_class import config_class
from fedrun.config.identity import identity_hash
from fedrun.config.no_effect import without_effect
from fedrun.config.own_methods import is_fedruns
from fedrun.data.datasets.base import DatasetConfig, require_dataset_config
from fedrun.data.targets import check_targets
from fedrun.experiment.aggregation_checks import check_aggregation
from fedrun.experiment.checks import (
    check_adaptive,
    check_appeal,
    check_attack,
    check_client_tests,
    check_constant_rate,
    check_evaluated_models,
    check_folder,
    check_initial,
    check_participation,
    check_phases,
    check_stopping,
    check_task,
)
from fedrun.experiment.record import RunRecord
from fedrun.experiment.settings import Settings
from fedrun.experiment.upload_checks import check_transforms
from fedrun.system.errors import InputError


@config_class
class Experiment(Settings):
    """The settings of a run, checked against each other.

    Attributes (besides those of :class:`Settings`):
        origin: the configuration that the experiment was built from; not a key.
    """

    origin: Composed = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        """Reject combinations that cannot work, without loading anything; also in a copy by ``dataclasses.replace``.

        Raises:
            InputError: one line that names the keys and what is allowed.
        """
        self.strategy.check()
        self.strategy.server.check(self.first_rounds)
        self.local.check(self.rounds)
        self.strategy.check_local(self.local)
        self.model.check(self.dataset.spec)
        check_task(self)
        check_folder(self)
        check_targets(self.targets, self.dataset.spec.task)
        check_appeal(self)
        check_adaptive(self)
        self.evaluation.check()
        own_tests = False if is_fedruns(type(self.partition)) else None  # a user's may return tests of clients
        has_tests = self.population.test_share > 0 or own_tests
        check_client_tests(self, has_tests)
        check_phases(self)
        check_attack(self)
        check_evaluated_models(self)
        check_constant_rate(self)
        self.privacy.check(self.local)
        check_transforms(self)
        check_aggregation(self)
        check_participation(self)
        check_initial(self)
        check_stopping(self)

    @cached_property
    def record(self) -> RunRecord:
        """The names and the configuration of the run.

        Raises:
            InputError: an object of the experiment cannot be identified, so that the run has no folder.
        """
        settings = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "origin"}
        return RunRecord.of(settings, identity_hash(type(self), settings), self.origin)

    @property
    def folder(self) -> Path:
        """The run's folder; it differs if a value that can change a result differs."""
        return self.record.folder


def build_experiment(config: Composed | Mapping[str, Any], dataset: DatasetConfig | None = None) -> Experiment:
    """The experiment of a composed configuration, with all its config classes, checked.

    Args:
        config: what :func:`fedrun.config.composed.compose` returns, or a configuration as mappings and
            sequences, also OmegaConf's.
        dataset: takes the place of the configuration's, such as a :class:`fedrun.InMemory`; None: the configuration's.

    Raises:
        InputError: an unknown key, a wrong type, a value out of range or a combination that cannot work.
    """
    if not isinstance(config, Composed | Mapping):
        raise InputError(
            f"fedrun.build_experiment: {type(config).__name__}; allowed: what fedrun.compose returns, or a mapping"
        )
    origin = config if isinstance(config, Composed) else Composed(plain(config), {}, ())
    arguments: Mapping[str, Any] = origin.config
    given: dict[str, object] = {"origin": origin}
    if dataset is not None:
        require_dataset_config(dataset)
        arguments = {key: value for key, value in arguments.items() if key != "dataset"}
        given["dataset"] = dataset
    experiment = construct(Experiment, arguments, "", given)
    assert isinstance(experiment, Experiment)
    if origin.sweep is None:  # a sweep may give a key to jobs in which it has none
        for unused in without_effect(experiment, origin.overrides).values():
            raise InputError(unused.message)
    return experiment
