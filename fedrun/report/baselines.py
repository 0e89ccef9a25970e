"""The settings with which others are compared, each with the one of its own condition, such as the same partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from fedrun.report.settings import WHO_HOLDS, Setting, by_short_key, compared, differing, short_key, written
from fedrun.system.errors import InputError


@dataclass(frozen=True)
class Baselines:
    """One setting, or several of one strategy under different conditions.

    A condition is the dataset and the keys in which the baselines differ, without the strategy's own keys.

    Attributes:
        name: the only one's name, or the strategy.
        settings: one for each condition.
        alike: settings that are compared only if the same clients hold the same samples: keys about that in which they
            differ are part of the condition.
    """

    name: str
    settings: tuple[Setting, ...]
    alike: tuple[Setting, ...] = ()

    @classmethod
    def named(cls, settings: Sequence[Setting], name: str) -> Baselines:
        """The setting of this name, those of this strategy, or the only one with this ``KEY=VALUE``.

        Raises:
            InputError: there is none, several have the same condition or value, or no setting is left to compare.
        """
        what = "strategy"
        matches = tuple(setting for setting in settings if setting.name == name)
        matches = matches or tuple(setting for setting in settings if setting.strategy == name)
        if not matches:
            what, matches = "value", tuple(setting for setting in settings if _has(setting, name))
        alike = tuple(settings) if matches and name == matches[0].strategy else ()
        found = cls(matches[0].name if len(matches) == 1 else name, matches, alike)
        if not matches or not found.distinct or (what == "value" and len(matches) > 1):
            problem = f"{len(matches)} settings have this {what}" if matches else "no such setting"
            raise InputError(f"baseline {name}: {problem}; allowed: {', '.join(setting.name for setting in settings)}")
        if len(matches) == len(settings):
            allowed = ", ".join(setting.name for setting in settings) if len(settings) > 1 else "with other settings"
            raise InputError(f"baseline {name}: no setting is left to compare; allowed: {allowed}")
        return found

    @cached_property
    def keys(self) -> list[str]:
        """The keys of a condition besides the dataset."""
        own = [key for key in differing(self.settings) if not key.startswith("strategy.")]
        return list(dict.fromkeys([*own, *(key for key in differing(self.alike) if key.startswith(WHO_HOLDS))]))

    @property
    def distinct(self) -> bool:
        """Whether each baseline has a condition of its own."""
        return len(set(map(self._condition, self.settings))) == len(self.settings)

    @property
    def required(self) -> str:
        """What a setting must have in common with its baseline, in words."""
        return " and ".join(["dataset", *by_short_key(self.keys, {})])

    def of(self, setting: Setting) -> Setting | None:
        """The baseline of a setting's condition; None: there is none."""
        condition = self._condition(setting)
        return next((one for one in self.settings if self._condition(one) == condition), None)

    def written_condition(self, baseline: Setting) -> str:
        """A baseline's condition as overrides, such as ``partition=iid rounds=30``; empty if there is only one."""
        keys = by_short_key([key for key in self.keys if key in baseline.leaves], baseline.leaves)
        several = len({one.dataset for one in self.settings}) > 1
        dataset = [f"dataset={baseline.dataset}"] if several else []
        values = [f"{short}={written(baseline.leaves, key)}" for short, key in keys.items()]
        return " ".join([*dataset, *values])

    def _condition(self, setting: Setting) -> tuple[str, ...]:
        return setting.dataset, *(compared(setting.leaves, key) for key in self.keys)


def _has(setting: Setting, override: str) -> bool:
    """Whether a setting has the value of a ``KEY=VALUE``, written as in its name."""
    name, _, value = override.partition("=")
    return any(short_key(key) == name and written(setting.leaves, key) == value for key in setting.leaves)
