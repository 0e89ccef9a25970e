"""Which runs belong to which cell of a table, as far as their configurations tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from fedrun.report.runs import Run
from fedrun.report.settings import Leaves, identity, leaves, unrecorded, varying, written

OF_NO_CELL = "belong to no cell of this table"


@dataclass(frozen=True)
class Matched:
    """The runs of a table at a scale.

    Attributes:
        runs: for the position of each cell that the scale produces, its complete runs in the seeds' order.
        deviations: a line for every key in which some of them differ from the experiment's job.
        not_compared: keys that only one of a run's configuration and today's has.
        left_out: complete runs of the sweep that are used for no cell, under what is the matter with them. Of several
            cells may be those that lack the keys in which these cells differ.
    """

    runs: Mapping[int, tuple[Run, ...]]
    deviations: tuple[str, ...]
    not_compared: tuple[str, ...]
    left_out: Mapping[str, Sequence[Run]]


def match(configs: Mapping[int, Leaves], runs: Sequence[Run]) -> Matched:
    """Give each run to the cells whose configuration it has, as far as the table's configurations differ at all.

    The classes are always compared. In other keys a run may differ from the experiment's job (fewer rounds, say): it is
    reported, and not a reason to ignore it. A key that another version of fedrun did not have is not compared, as its
    value is not known.
    """
    keys = frozenset(varying(list(configs.values())))
    cells: dict[str, list[int]] = {}
    for position, content in configs.items():
        cells.setdefault(identity(telling(content, keys)), []).append(position)
    served: list[tuple[list[int], Run, list[str], set[str]]] = []
    strays: list[Run] = []
    ambiguous: list[Run] = []
    for run in runs:
        content = leaves(run.config)
        exact = cells.get(identity(telling(content, keys)))
        alike = [exact] if exact else [own for own in cells.values() if may_be(content, configs[own[0]], keys)]
        if len(alike) != 1:
            (ambiguous if alike else strays).append(run)
            continue
        job = configs[alike[0][0]]
        unknown = unrecorded(content, job)
        different = [
            f"{key}={written(content, key)} where the experiment has {written(job, key)}"
            for key in varying([content, job])
            if key not in unknown
        ]
        served.append((alike[0], run, different, unknown))
    by_seed: dict[int, dict[int, Run]] = {position: {} for position in configs}
    deviations: Counter[str] = Counter()
    not_compared: set[str] = set()
    repeated: list[Run] = []
    elsewhere: list[Run] = []
    for positions, run, different, unknown in sorted(served, key=lambda one: (len(one[2]), len(one[3]))):
        cell_runs = by_seed[positions[0]]
        if any(other.data != run.data for other in cell_runs.values()):
            elsewhere.append(run)
            continue
        if run.seed in cell_runs:
            repeated.append(run)
            continue
        deviations.update(different)
        not_compared |= unknown
        for position in positions:
            by_seed[position][run.seed] = run
    return Matched(
        {position: tuple(seeds[seed] for seed in sorted(seeds)) for position, seeds in by_seed.items()},
        tuple(f"{line} ({count} runs)" for line, count in deviations.items()),
        tuple(sorted(not_compared)),
        {
            OF_NO_CELL: strays,
            "may be of several cells": ambiguous,
            "repeat the cell and seed of others that are nearer to the experiment's job": repeated,
            "are on other data than others of their cell": elsewhere,
        },
    )


def telling(leaves: Leaves, keys: Set[str]) -> Leaves:
    """What tells whose run it is: the values of these keys, and all classes."""
    return {key: value for key, value in leaves.items() if key in keys or key.endswith("_target_")}


def may_be(content: Leaves, job: Leaves, keys: Set[str]) -> bool:
    """Whether a run differs from a cell in nothing that tells, as far as fedrun had the keys when it made the run."""
    own, cell = telling(content, keys), telling(job, keys)
    alike = all(identity({key: own[key]}) == identity({key: cell[key]}) for key in own.keys() & cell.keys())
    return alike and (own.keys() ^ cell.keys()) <= unrecorded(content, job)
