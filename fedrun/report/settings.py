"""Settings: the runs that differ in nothing but their seed, and the names that distinguish settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from fedrun.config.allowed_values import shown
from fedrun.config.dotted_keys import flattened
from fedrun.config.identity import comparable, relevant
from fedrun.config.option_name import group_at, option_of
from fedrun.config.recorded import completed
from fedrun.report.runs import Run

Leaves = Mapping[str, Any]
"""A configuration's values under their dotted keys."""

NOT_IN_SETTING = frozenset({"data_dir", "dataset.data_dir", "dataset.vectors", "evaluation.train_clients"})
"""Keys that are part of a run's identity but change no number of a report, so they do not make another setting. The
places of files are among them: the data's fingerprint shows whether their content is the same."""


CHOSEN = frozenset({"dataset._target_", "strategy._target_"})
"""Keys that reports do not list, because each setting has the names of its dataset and its strategy."""

WHO_HOLDS = ("dataset.", "partition.", "population.", "validation.")
"""Sections of the configuration that determine which client holds which training samples."""


@dataclass(frozen=True)
class Setting:
    """One configuration, and its runs.

    Attributes:
        name: the shortest string that distinguishes it from the other settings.
        leaves: its configuration's values, without what cannot change a result.
        runs: one per seed, in the seeds' order.
    """

    name: str
    leaves: Leaves
    runs: tuple[Run, ...]

    @property
    def dataset(self) -> str:
        return self.runs[0].dataset

    @property
    def strategy(self) -> str:
        return self.runs[0].strategy

    @property
    def complete(self) -> tuple[Run, ...]:
        """The runs whose final values count."""
        return tuple(run for run in self.runs if run.complete)

    @property
    def drawn(self) -> tuple[Run, ...]:
        """The runs of which curves are drawn: a seed that is not complete would cut the curve of the others short."""
        return self.complete or self.runs


def leaves(config: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a configuration that can change a result, without seeds, under their dotted keys."""
    values = {key: value for key, value in flattened(relevant(config)) if key not in NOT_IN_SETTING}
    if not values.get("evaluation.adaptive"):
        values.pop("evaluation.batch_size", None)  # it changes rounding only
        values.pop("evaluation.miss_probability", None)
        if not values.get("stop_at_targets"):
            values.pop("targets", None)  # the rounds to any target can be read from the metrics
    values.pop("study", None)  # a key of earlier versions, null in every run
    return values


def comparable_text(leaves: Leaves) -> str:
    """A string that is equal for equal configurations only."""
    return repr(sorted((key, repr(comparable(key, value))) for key, value in leaves.items()))


def _same_setting(runs: Sequence[Run]) -> list[str]:
    """A string for each run that is equal for runs of one setting only.

    These are runs of equal configurations, and runs with the same hash: one version of fedrun may have
    recorded keys that another did not have, with neutral values.
    """
    joined: dict[str, str] = {}  # from the text of a configuration or a hash to another of the same setting

    def first(text: str) -> str:
        while joined.setdefault(text, text) != text:
            text = joined[text]
        return text

    configurations = [comparable_text(leaves(run.config)) for run in runs]
    for run, configuration in zip(runs, configurations, strict=True):
        if run.hash is not None:
            joined[first(configuration)] = first(run.hash)
    return [first(configuration) for configuration in configurations]


def settings(runs: Sequence[Run]) -> tuple[list[Setting], list[str]]:
    """The runs by setting, and a line for every run left out. Datasets and strategies are in the order in which they
    first appear; settings with the same two are sorted by name, numbers by size.

    Of several runs of one setting with one seed (copies, or the same run under two experiments' names) the first
    complete one counts; of runs on different data those on the first one's.
    """
    runs = _with_all_parts(runs)
    groups: dict[str, dict[int, Run]] = {}
    contents: dict[str, Leaves] = {}
    problems = []
    keys = _same_setting(runs)
    for run, key in sorted(zip(runs, keys, strict=True), key=lambda pair: not pair[0].complete):  # complete ones first
        seeds = groups.setdefault(key, {})
        contents.setdefault(key, leaves(run.config))
        first = next(iter(seeds.values()), run)
        if first.data is not None and run.data is not None and run.data != first.data:
            problems.append(f"{run.folder}: the same setting as {first.folder}, but on other data; left out")
        elif run.seed in seeds:
            problems.append(f"{run.folder}: the same setting and seed as {seeds[run.seed].folder}; left out")
        else:
            seeds[run.seed] = run
    order = list(dict.fromkeys(keys))
    members = {key: tuple(groups[key][seed] for seed in sorted(groups[key])) for key in order}
    grouped = renamed([Setting("", contents[key], members[key]) for key in order])
    places = {pair: place for place, pair in reversed(list(enumerate((s.dataset, s.strategy) for s in grouped)))}
    return sorted(grouped, key=lambda s: (places[s.dataset, s.strategy], _numbers_by_size(s.name))), problems


def renamed(settings: Sequence[Setting]) -> list[Setting]:
    """The settings, each with the shortest name that tells it from the others of these."""
    return [replace(setting, name=name) for name, setting in zip(_names(settings), settings, strict=True)]


def _with_all_parts(runs: Sequence[Run]) -> Sequence[Run]:
    """The runs with the parts of a configuration that fedrun did not have when they were made, neutral ones."""
    if len({frozenset(run.config) for run in runs}) == 1:
        return runs
    from fedrun.experiment.settings import Settings  # it imports torch, which takes longer than most reports

    return [replace(run, config={**run.config, **completed(dict(run.config), Settings)}) for run in runs]


def on_other_data(setting: Setting, reference: Setting) -> bool:
    """Whether the data of the complete runs of two settings have different fingerprints."""
    ours, theirs = ({run.data for run in one.complete[:1]} for one in (setting, reference))
    return bool(ours and theirs) and ours != theirs


def _numbers_by_size(name: str) -> list[tuple[float, str]]:
    """An order of names in which ``rounds=5`` comes before ``rounds=30``, and ``lr=0.05`` before ``lr=0.1``."""
    parts = re.split(r"((?:(?<==)-)?\d+(?:\.\d+)?(?:e-?\d+)?)", name)
    return [(float(part), "") if number % 2 else (-1.0, part) for number, part in enumerate(parts)]


def differing(settings: Sequence[Setting]) -> list[str]:
    """The keys in which the settings differ, in the configuration's order."""
    return varying([setting.leaves for setting in settings])


def varying(contents: Sequence[Leaves]) -> list[str]:
    """The keys whose values are not the same in all configurations, in their order, without those of :data:`CHOSEN`."""
    keys = dict.fromkeys(key for content in contents for key in content if key not in CHOSEN)
    return [key for key in keys if len({compared(content, key) for content in contents}) > 1]


def compared(leaves: Leaves, key: str) -> str:
    """A value as a string that is equal for equal values."""
    return written({key: comparable(key, leaves[key])}, key) if key in leaves else written(leaves, key)


def written(leaves: Leaves, key: str) -> str:
    """A value as in YAML, a class as its option; ``-`` where the setting has no such key."""
    return shown(named(key, leaves[key])) if key in leaves else "-"


def named(key: str, value: Any) -> Any:
    """A value, a class as the name of its option, if a single one has it: ``user_level`` for ``privacy._target_``."""
    owner, _, last = key.rpartition(".")
    return option_of(group_at(owner), value) if last == "_target_" and isinstance(value, str) else value


def unrecorded(one: Leaves, other: Leaves) -> set[str]:
    """The keys that only one of two configurations has because the other was composed before fedrun had them.

    They are arguments that the same class has in only one of the configurations. Keys below an argument that both have
    (with another class, or null in one of them) are not among them.
    """
    return _newer(one, other) | _newer(other, one)


def _newer(leaves: Leaves, other: Leaves) -> set[str]:
    """The keys of the first configuration that fedrun did not have when the second one was composed."""
    known = {node for key in other for node in _nodes(key)}
    newer = set()
    for key in leaves.keys() - other.keys():
        argument = next((node for node in _nodes(key) if node not in known), "")
        owner = argument.rpartition(".")[0]
        target = f"{owner}._target_".lstrip(".")
        if argument and owner not in other and _same_class(leaves, other, target):
            newer.add(key)
    return newer


def _same_class(one: Leaves, other: Leaves, target: str) -> bool:
    return bool(comparable(target, one.get(target)) == comparable(target, other.get(target)))


def _nodes(key: str) -> list[str]:
    """``a.b.c`` → ``a``, ``a.b`` and ``a.b.c``."""
    return list(accumulate(key.split("."), "{}.{}".format))


def _names(settings: Sequence[Setting]) -> list[str]:
    """Dataset and strategy where they differ, and the keys that differ between settings with the same two.

    Keys that only some of these have depend on another key's value. They are named only if the names would be equal
    without them: first those that differ between settings with the same class, then all.
    """
    pairs = [(setting.dataset, setting.strategy) for setting in settings]
    several = [len(set(values)) > 1 for values in zip(*pairs, strict=True)]
    alike: dict[tuple[str, str], list[Leaves]] = {}
    for pair, setting in zip(pairs, settings, strict=True):
        alike.setdefault(pair, []).append(setting.leaves)
    differing = {pair: varying(peers) for pair, peers in alike.items()}

    def name(pair: tuple[str, str], content: Leaves, is_named: Callable[[str, Leaves, list[Leaves]], bool]) -> str:
        keys = [key for key in differing[pair] if is_named(key, content, alike[pair])]
        parts = [part for part, differs in zip(pair, several, strict=True) if differs]
        return " ".join([*parts, *(f"{short_key(key)}={written(content, key)}" for key in keys)]) or " ".join(pair)

    def names(is_named: Callable[[str, Leaves, list[Leaves]], bool]) -> list[str]:
        return [name(pair, setting.leaves, is_named) for pair, setting in zip(pairs, settings, strict=True)]

    for is_named in (_everywhere, _within_class):
        short = names(is_named)
        if len(set(short)) == len(short):
            return short
    long = names(lambda key, content, peers: True)  # classes with the same name in two modules are still equal
    return [name if long.count(name) == 1 else f"{name} ({long[:n].count(name) + 1})" for n, name in enumerate(long)]


def _everywhere(key: str, content: Leaves, peers: list[Leaves]) -> bool:
    """Whether all settings have a key."""
    return all(key in other for other in peers)


def _within_class(key: str, content: Leaves, peers: list[Leaves]) -> bool:
    """Whether all settings have a key, or this one differs in it from others with the same class."""
    if _everywhere(key, content, peers):
        return True
    target = f"{key.rpartition('.')[0]}._target_".lstrip(".")
    same = [other for other in peers if key in other and _same_class(other, content, target)]
    return key in content and len({compared(other, key) for other in same}) > 1


def short_key(key: str) -> str:
    """A key without the ``_target_`` at its end: ``model._target_`` → ``model``."""
    return key.removesuffix("._target_")


def by_short_key(keys: Sequence[str], leaves: Leaves) -> dict[str, str]:
    """The keys by their short ones: of ``model._target_`` and ``model`` (null in another setting) the setting's own."""
    by_key: dict[str, str] = {}
    for key in keys:
        if key in leaves or short_key(key) not in by_key:
            by_key[short_key(key)] = key
    return by_key
