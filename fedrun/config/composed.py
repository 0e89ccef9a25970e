"""Compose a configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from fedrun.config.allowed_values import in_message
from fedrun.config.as_config import Plain
from fedrun.config.defaults_entry import added
from fedrun.config.defaults_lists import NotPlainError
from fedrun.config.dotted_keys import NO_VALUE, dotted, value_at
from fedrun.config.options import content, files_in, further_folder, option_folders
from fedrun.config.overrides import key_of, keys_of, typed, with_implied, without_implied
from fedrun.config.own_options import check_forms
from fedrun.config.plain_composition import plain_composition
from fedrun.config.suggestions import no_such_option
from fedrun.system.errors import InputError

if TYPE_CHECKING:
    from hydra.conf import HydraConf
    from omegaconf import DictConfig

    from fedrun.config.sweeper import SweeperSettings


STRATEGY = "strategy"
HPARAMS, STRATEGY_HPARAMS = "hparams", "hparams@_global_"
"""The groups of published settings, and of a strategy's own values in the chosen setting."""


@dataclass(frozen=True)
class Composed:
    """A composed configuration.

    Attributes:
        config: the values, interpolations resolved.
        choices: the chosen option of each group, such as ``{"dataset": "digits", "strategy": "fedavg"}``.
        overrides: overrides of the user, such as ``("dataset=femnist", "seed=1")``.
        hparams: the published values that it contains: the option with the strategy's own values in a setting, such as
            ``femnist-fedprox``, otherwise the setting; None if there are none.
        sweep: the name of its sweep's folder; None: it is not a job of a sweep.
    """

    config: Plain
    choices: Mapping[str, str]
    overrides: tuple[str, ...]
    hparams: str | None = None
    sweep: str | None = None

    @property
    def setting(self) -> str:
        """The setting whose values for the strategy count: the choice of ``hparams``, or the dataset."""
        return self.choices.get(HPARAMS) or self.choices["dataset"]

    @classmethod
    def of(cls, config: DictConfig, hydra: DictConfig | HydraConf) -> Composed:
        """The configuration that Hydra composed.

        Args:
            config: the job's own part; Hydra's below ``hydra`` is left out.
            hydra: Hydra's part, with the choices and the overrides.

        Raises:
            InputError: a value is missing or refers to a missing key, or there is no such option or scale.
        """
        from omegaconf import OmegaConf

        from fedrun.config.sweeper import sweeper_settings

        plain = resolved(OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"]))
        choices = {group: option for group, option in hydra.runtime.choices.items() if not group.startswith("hydra/")}
        composed = cls(plain, choices, without_implied(typed(hydra.overrides.task)))
        folders = [Path(source.path) for source in hydra.runtime.config_sources if source.schema == "file"]
        check_forms(choices, folders)
        return composed.checked(sweeper_settings(hydra), folders)

    def checked(self, sweeper: SweeperSettings, folders: Sequence[Path]) -> Composed:
        """The same with the name of its published values, after a check of the chosen options and the scale.

        Args:
            sweeper: the values below ``hydra.sweeper``.
            folders: folders of options.

        Raises:
            InputError: there is no such option or scale, or a value is for another option than the chosen one.
        """
        for key in (HPARAMS, STRATEGY_HPARAMS):
            self._check_chosen(key, folders)
        self._check_parts(folders)
        sweeper.at(self.config["scale"])
        return replace(self, hparams=self._published(files_in(HPARAMS, folders).keys()))

    def _published(self, options: Set[str]) -> str | None:
        """The published values among these options that the configuration contains, in words; None without any."""
        setting, own = self.choices.get(HPARAMS), self.choices.get(STRATEGY_HPARAMS)
        if own in options:
            return own
        if setting not in options:
            return None
        if setting != self.choices["dataset"]:
            return setting
        return f"{setting} (the dataset's setting; it has no values of its own for {self.choices['strategy']})"

    def _check_chosen(self, key: str, folders: Iterable[Path]) -> None:
        """Reject an override that chooses an option of an optional group if none of the folders has the option.

        Hydra does not reject it, because most datasets have no published setting.

        Args:
            key: the group, with its place if it has one of its own.
            folders: folders of options.
        """
        if not any(key_of(override) == key for override in self.overrides):
            return
        name, known = self.choices.get(key), files_in(key.partition("@")[0], folders)  # no choice: left out by ~hparams
        if name is not None and name not in known:
            raise InputError(f"{no_such_option(key, name, known)}; or ~{key} for none")

    def _check_parts(self, folders: Sequence[Path]) -> None:
        """Reject values that a strategy has for its own client or server if another one is chosen.

        The strategy's option, or its values in a published setting, may set them, such as MOON's mu. Another client has
        no such key, or means something else by it. Overrides of the keys are allowed.

        Args:
            folders: folders of options.

        Raises:
            InputError: a value is for another option than the chosen one.
        """
        strategies, name = files_in(STRATEGY, folders), self.choices.get(STRATEGY, "")
        if name not in strategies:
            return
        written = content(STRATEGY, name, strategies[name])
        usual = {entry.group: entry.option for entry in added(written, STRATEGY)}
        replaced = [group for group, option in usual.items() if self.choices.get(group) not in (None, option)]
        values = {f"{STRATEGY}={name}": written.get(STRATEGY, {}) if STRATEGY in written else written}
        settings, setting = files_in(HPARAMS, folders), self.choices.get(STRATEGY_HPARAMS, "")
        if setting in settings:
            values[f"the setting {setting}"] = content(HPARAMS, setting, settings[setting]).get(STRATEGY)
        given = {key for override in self.overrides for key in keys_of(override)}
        for (place, below), group in product(values.items(), replaced):
            part, chosen = group.rpartition("/")[2], self.choices[group]
            part_values = value_at(below, part)
            key = next((key for key in dotted(part_values) if f"{STRATEGY}.{part}.{key}" not in given), None)
            if key is None:
                continue
            full = f"{STRATEGY}.{part}.{key}"
            own = value_at(content(group, chosen, files_in(group, folders)[chosen]), key, NO_VALUE)
            remedy = f"~{full}" if own is NO_VALUE else f"{full}={in_message(own)}, its default, or another value"
            raise InputError(
                f"{group}={chosen}: {place} sets {full}={in_message(value_at(part_values, key))} for "
                f"{group}={usual[group]}; add {remedy}"
            )


def resolved(node: DictConfig) -> Plain:
    """The plain values of a part of a configuration that Hydra composed.

    Raises:
        InputError: a value is missing or refers to a missing key.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

    try:
        plain = OmegaConf.to_container(node, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        reason = "has no default" if isinstance(error, MissingMandatoryValue) else str(error).splitlines()[0]
        if reference := re.fullmatch("Interpolation key '(.+)' not found", reason):
            reason = f"refers to {reference[1]!r}, which the chosen options do not have"
        raise InputError(
            f"{error.full_key}: {reason}; fedrun --explain {error.full_key} shows what is allowed"
        ) from None
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def compose(overrides: Sequence[str] = (), config_dir: str | Path | None = None) -> Composed:
    """Compose a configuration as the command line does, for use as a library.

    Examples:
        >>> experiment = build_experiment(compose(["strategy=turbosvm", "rounds=5"]))

    Args:
        overrides: as on the command line.
        config_dir: folder of further options, each in a file ``GROUP/OPTION.yaml``, as for ``--config-dir``.

    Raises:
        InputError: an override cannot be used, or there is no such folder.
    """
    if isinstance(overrides, str) or not all(isinstance(override, str) for override in overrides):
        raise InputError(f"fedrun.compose: {overrides!r}; allowed: a list of strings, such as ['strategy=fedavg']")
    folder = None if config_dir is None else further_folder(config_dir)
    if (composed := compose_plainly(overrides, folder)) is not None:
        return composed
    from fedrun.config.composition_errors import composing
    from fedrun.config.hydra_config import hydra_config

    with composing(overrides, folder):
        config = hydra_config(overrides, folder)
    return Composed.of(config, config.hydra)


def compose_plainly(overrides: Sequence[str], folder: Path | None = None, single_run: bool = False) -> Composed | None:
    """Compose without Hydra; None if only Hydra can compose these overrides, or reject them.

    Args:
        overrides: as on the command line.
        folder: a folder of further options; None: there is none.
        single_run: whether the result is None also if the overrides choose a sweep, or have values for one.

    Raises:
        InputError: there is no such option or scale.
    """
    arguments = with_implied(overrides)
    try:
        plain = plain_composition(arguments, folder)
    except NotPlainError:
        return None
    if single_run and plain.sweeps:
        return None
    from fedrun.config.sweeper import SweeperSettings  # it loads pydantic, which rejected overrides do not need

    composed = Composed(plain.config, plain.choices, without_implied(arguments))
    folders = option_folders(folder)
    check_forms(plain.choices, folders)
    sweeper = SweeperSettings.of(plain.sweeper)
    composed = composed.checked(sweeper, folders)
    return None if single_run and sweeper.sets_values(composed.config["scale"]) else composed
