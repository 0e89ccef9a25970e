"""An experiment: all settings of a run, checked before anything is loaded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from fedrun.config.allowed_values import shown
from fedrun.config.as_config import plain
from fedrun.config.build import construct
from fedrun.config.composed import Composed
from fedrun.config.config_class import config_class
from fedrun.config.identity import identity_hash
from fedrun.config.no_effect import without_effect
from fedrun.config.option_name import chosen, chosen_where
from fedrun.config.overrides import home_folder
from fedrun.data.datasets.base import DatasetConfig, require_dataset_config
from fedrun.data.targets import check_targets
from fedrun.experiment.aggregation_checks import check_aggregation
from fedrun.experiment.checks import check_adaptive, check_appeal, check_client_tests, check_phases, check_task
from fedrun.experiment.record import RunRecord
from fedrun.experiment.settings import Settings
from fedrun.experiment.upload_checks import check_transforms
from fedrun.strategies.client import is_personal, trains_global_model
from fedrun.strategies.vectors import MODEL
from fedrun.system.errors import InputError
from fedrun.uploads.attacks.base import Attack


@config_class
class Experiment(Settings):
    """The settings of a run, checked against each other.

    Attributes (besides those of :class:`Settings`):
        origin: the configuration that the experiment was built from; not a key.
    """

    origin: Composed = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        """Reject combinations that cannot work, also in a copy by ``dataclasses.replace``."""
        self.check()

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

    def check(self) -> None:
        """Reject combinations that cannot work, without loading anything.

        Raises:
            InputError: one line that names the keys and what is allowed.
        """
        self.strategy.check()
        self.strategy.server.check(self.first_rounds)
        self.local.check(self.rounds)
        self.strategy.client.check(self.local)
        self.strategy.check_optimizer(self.local)
        self.model.check(self.dataset.spec)
        check_task(self)
        if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)*", self.name):
            raise InputError(f"name={shown(self.name)}: allowed: words of letters, digits, -, _ and ., joined by /")
        if not self.output_dir:
            raise InputError("output_dir='': allowed: a folder; output_dir=. is the current one")
        if self.output_dir.startswith("~"):
            raise InputError(home_folder("output_dir", self.output_dir))
        check_targets(self.targets, self.dataset.spec.task)
        check_appeal(self)
        check_adaptive(self)
        users_partition = not type(self.partition).__module__.startswith("fedrun.")  # it may return tests of clients
        has_tests = self.population.test_share > 0 or (None if users_partition else False)
        check_client_tests(self, has_tests)
        check_phases(self)
        self._check_uploads()
        self.privacy.check(self.local)
        check_transforms(self)
        check_aggregation(self)
        if self.privacy.protects and not self.participation.is_uniform:
            raise InputError(
                f"{self.chosen('privacy')} with {self.chosen('participation')}: the privacy loss is that of its own "
                "draw of the participants; choose participation=everyone"
            )
        if self.secure_sum.changes_uploads and not self.participation.known_in_advance:
            raise InputError(
                f"{self.chosen('secure_sum')} with {self.chosen('participation')}, which may depend on single clients' "
                "losses: the server learns sums only; allowed: participation=everyone, bernoulli"
            )
        if self.initial.is_whole and not self.strategy.clusters().same_initialisation:
            clustering = chosen("strategy/clustering", self.strategy.clusters())
            raise InputError(
                f"{self.chosen('initial')} with {clustering}, whose models must differ at first: allowed: "
                "initial.part=encoder, initial=random"
            )
        if self.stop_at_targets and not self.targets:
            raise InputError("stop_at_targets=true needs at least one target, such as targets=[0.9]")
        if self.stop_at_targets and self.validation.evaluation_split != "test":
            raise InputError(
                f"stop_at_targets=true: targets are of test samples, and with validation.share={self.validation.share} "
                "no test sample is used; allowed: false"
            )

    def _check_uploads(self) -> None:
        """Reject attacks and evaluations that need uploads or a global model if there are none."""
        client = self.strategy.client
        if self.attack.share and type(self.attack) is Attack:
            raise InputError(
                f"attack.share={self.attack.share} with attack=none: allowed: 0, or another attack, such as "
                "attack=gaussian"
            )
        pooled = self.population.pooled
        if self.attack.share and not self.attack.changes_data and (pooled or not client.sends):
            sender = (
                "with population.pooled=true no client sends anything"
                if pooled
                else f"{self.strategy.named_client} sends nothing"
            )
            raise InputError(
                f"attack.share={self.attack.share}: {sender} that attackers could change; choose attack=none or "
                "attack=label_flip"
            )
        several = self.strategy.clusters().several or bool(self.strategy.afterwards().last_rounds(self.rounds))
        if self.evaluation.client_means and (MODEL not in client.sends or is_personal(client) or several):
            raise InputError(
                f"evaluation.client_means=true: allowed if clients send models ({self.strategy.named_client}) for "
                "one global model (no clusters, no models of their own)"
            )
        averages_others = chosen_where(
            ("attack", self.attack, self.attack.needs_rows),
            ("compression", self.compression, self.compression.changes_means),
            ("privacy", self.privacy, self.privacy.sees_sums_only),
        )
        if self.evaluation.client_means and averages_others:
            raise InputError(
                f"evaluation.client_means=true with {averages_others[0]}: the server averages something else than the "
                "models that clients have sent; allowed: false"
            )
        if self.local.repair_nonfinite and not self.strategy.server.refinable:
            raise InputError(
                f"local.repair_nonfinite=true with {self.strategy.named_server}, whose next broadcast does not follow "
                "from the repaired model; allowed: false"
            )
        if self.evaluation.tuned_by and not trains_global_model(client):
            raise InputError(
                f"{self.evaluation.tuned_by}: {self.strategy.named_client} has no global model that clients could "
                "tune; allowed: 0"
            )


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
