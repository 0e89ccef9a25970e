"""Strategies ranked over seeds, each with a paired test against FedAvg."""

from __future__ import annotations

import statistics
from collections.abc import Sequence, Set
from dataclasses import replace

from fedrun.data.evaluation_split import TARGETED
from fedrun.report.baselines import Baselines
from fedrun.report.comparison import difference_cell, other_data
from fedrun.report.quantities import Measured, Quantity
from fedrun.report.settings import Setting, renamed
from fedrun.report.significance import NAMES, compare
from fedrun.report.table import Table
from fedrun.report.tested_models import remarks

BASELINE = "fedavg"

RANKED = Quantity("final", TARGETED)
"""What the settings are ranked by."""

NOTE = (
    "Rank 1 is the best; equal values share the mean of their ranks. Means over seeds {seeds}. In brackets p of the "
    f"two-sided {NAMES['t']} over these seeds, not corrected for the number of comparisons."
)


def ranking(settings: Sequence[Setting]) -> list[Table]:
    """The settings by their mean rank in the last round's test accuracy, and their differences from FedAvg: a table for
    each condition of FedAvg's settings, such as a partition. Every ranked setting has a result for every seed of its
    table; the notes name the settings and seeds that are left out.

    Returns:
        No table for a condition in which FedAvg and two other settings do not have two seeds in common; none at all if
        several of FedAvg's settings differ in its own keys only.
    """
    own = tuple(setting for setting in settings if setting.strategy == BASELINE)
    baselines = Baselines(BASELINE, own, alike=tuple(settings))
    if not baselines.distinct:
        return []
    tables = []
    for baseline in baselines.settings:
        peers = [setting for setting in settings if baselines.of(setting) is baseline]
        position = peers.index(baseline)
        peers = renamed(peers)  # the title names what they have in common
        tables += _ranked(peers, peers[position], baselines.written_condition(baseline))
    return tables


def _ranked(settings: Sequence[Setting], baseline: Setting, condition: str) -> list[Table]:
    """The table of the settings of one condition, or none."""
    known = {
        setting.name: {run.seed: value for run in setting.complete if (value := RANKED.of(run)) is not None}
        for setting in settings
    }
    others = [known[setting.name].keys() for setting in settings if setting is not baseline]
    seeds = _complete_seeds(known[baseline.name].keys(), others)
    if not seeds:
        return []
    ranked = [_with_seeds(setting, seeds) for setting in settings if known[setting.name].keys() >= set(seeds)]
    from scipy import stats

    baseline = _with_seeds(baseline, seeds)
    of_seed = [stats.rankdata([-known[setting.name][seed] for setting in ranked]) for seed in seeds]
    columns = zip(*of_seed, strict=True)
    mean = {setting.name: statistics.fmean(column) for setting, column in zip(ranked, columns, strict=True)}
    rows = tuple(
        (
            setting.name,
            str(Measured.of(RANKED, setting)),
            f"{mean[setting.name]:.2f}",
            "" if setting == baseline else difference_cell(RANKED, compare(setting, baseline, RANKED, "t"), len(seeds)),
        )
        for setting in sorted(ranked, key=lambda setting: mean[setting.name])
    )
    notes = [NOTE.format(seeds=", ".join(map(str, seeds)))]
    names = {setting.name for setting in ranked}
    if incomplete := [setting.name for setting in settings if setting.name not in names]:
        notes.append(f"Not ranked, without a result for every seed: {', '.join(incomplete)}.")
    if unused := sorted({seed for name in names for seed in known[name]} - set(seeds)):
        notes.append(f"Seeds not used, without a result of every ranked setting: {', '.join(map(str, unused))}.")
    notes += [*other_data([(setting, baseline) for setting in ranked]), *remarks(ranked, {TARGETED})]
    header = ("setting", RANKED.heading, "mean rank", f"difference from {baseline.name}")
    title = ", ".join(filter(None, [f"Ranks by {RANKED.heading}", condition]))
    return [Table(title, header, rows, notes=tuple(notes))]


def _complete_seeds(own: Set[int], others: Sequence[Set[int]]) -> list[int]:
    """The seeds that leave the most results, if only the settings that have all of them are ranked: ranks of several
    seeds have a mean only if they are among the same settings.

    Args:
        own: FedAvg's seeds.
        others: those of each other setting.

    Returns:
        At least two seeds, or none if FedAvg and two other settings do not have two in common.
    """
    candidates = {frozenset(own)}
    for seeds in others:
        candidates |= {candidate.intersection(seeds) for candidate in candidates}

    def ranked(seeds: frozenset[int]) -> int:
        return 1 + sum(seeds <= other for other in others)

    allowed = [seeds for seeds in sorted(candidates, key=sorted) if len(seeds) >= 2 and ranked(seeds) >= 3]
    return sorted(max(allowed, key=lambda seeds: (ranked(seeds) * len(seeds), ranked(seeds)), default=()))


def _with_seeds(setting: Setting, seeds: Sequence[int]) -> Setting:
    return replace(setting, runs=tuple(run for run in setting.runs if run.seed in seeds))
