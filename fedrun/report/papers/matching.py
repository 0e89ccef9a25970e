"""Which runs belong to which cell of a table, by their configurations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from typing import Any

from fedrun.config.identity import is_neutral_class
from fedrun.report.runs import Run
from fedrun.report.settings import Leaves, comparable_text, leaves, unrecorded, varying, written
from fedrun.runs.display.wording import counted

OF_NO_CELL = "belong to no cell of this table"


@dataclass(frozen=True)
class Matched:
    """The runs of a table at a scale.

    Attributes:
        runs: the complete runs of each cell that the scale produces, in the seeds' order, by the cell's position.
        deviations: a line for every key in which some of them differ from the experiment's job.
        not_compared: keys that only one of a run's configuration and today's has.
        left_out: complete runs of the sweep that are used for no cell, under the reason. A run that lacks the keys in
            which several cells differ may belong to any of these.
    """

    runs: Mapping[int, tuple[Run, ...]]
    deviations: tuple[str, ...]
    not_compared: tuple[str, ...]
    left_out: Mapping[str, Sequence[Run]]

    @property
    def distinct(self) -> list[Run]:
        """The runs of all cells, each once."""
        return list({id(run): run for runs in self.runs.values() for run in runs}.values())


@dataclass(frozen=True)
class Assigned:
    """A run that belongs to cells.

    Attributes:
        run: the run.
        positions: those of the cells, which one job produces.
        different: a line for every key in which the run differs from the job.
        not_compared: keys that only one of the two has, without those that mean what fedrun did before it had them.
    """

    run: Run
    positions: Sequence[int]
    different: Sequence[str]
    not_compared: Set[str]

    @classmethod
    def of(cls, run: Run, content: Leaves, positions: Sequence[int], job: Leaves) -> Assigned:
        """A run with this content of its configuration, which belongs to the cells of a job."""
        unknown, known = unrecorded(content, job), {**job, **content}
        different = [
            f"{key}={written(content, key)} where the experiment has {written(job, key)}"
            for key in varying([content, job])
            if key not in unknown
        ]
        return cls(run, positions, different, {key for key in unknown if not _is_neutral(key, known[key])})


def match(configs: Mapping[int, Mapping[str, Any]], runs: Sequence[Run], further_runs: Sequence[Run] = ()) -> Matched:
    """Assign each run to the cells whose configuration it has, in the keys in which the table's configurations differ.

    The classes are always compared. In other keys a run may differ from the experiment's job (fewer rounds, say): the
    difference is reported, and the run is used. A key that another version of fedrun did not have is not compared, as
    its value is not known; this is reported, unless the other value means what fedrun did without the key.

    Args:
        configs: the configuration of each cell's job, by the cell's position.
        runs: complete runs of the sweep.
        further_runs: complete runs of others, for cells and seeds of which the sweep has none.
    """
    further = set(map(id, further_runs))
    jobs = {position: leaves(config) for position, config in configs.items()}
    keys = frozenset(varying(list(jobs.values())))
    cells: dict[str, list[int]] = {}
    for position, content in jobs.items():
        cells.setdefault(comparable_text(compared_values(content, keys)), []).append(position)
    assigned: list[Assigned] = []
    unmatched: list[Run] = []
    ambiguous: list[Run] = []
    for run in chain(runs, further_runs):
        content = leaves(run.config)
        exact = cells.get(comparable_text(compared_values(content, keys)))
        candidates = [exact] if exact else [own for own in cells.values() if may_belong_to(content, jobs[own[0]], keys)]
        if len(candidates) == 1:
            assigned.append(Assigned.of(run, content, candidates[0], jobs[candidates[0][0]]))
        else:
            (ambiguous if candidates else unmatched).append(run)
    by_seed: dict[int, dict[int, Run]] = {position: {} for position in jobs}
    deviations: Counter[str] = Counter()
    not_compared: set[str] = set()
    repeated: list[Run] = []
    other_data: list[Run] = []
    for one in sorted(assigned, key=lambda one: (id(one.run) in further, len(one.different), len(one.not_compared))):
        run, cell_runs = one.run, by_seed[one.positions[0]]
        if any(other.data != run.data for other in cell_runs.values()):
            other_data.append(run)
        elif run.seed in cell_runs:
            repeated.append(run)
        else:
            deviations.update(one.different)
            not_compared |= one.not_compared
            for position in one.positions:
                by_seed[position][run.seed] = run
    left_out = {
        OF_NO_CELL: unmatched,
        "may belong to several cells": ambiguous,
        "repeat the cell and seed of others that are nearer to the experiment's job": repeated,
        "are on other data than others of their cell": other_data,
    }
    return Matched(
        {position: tuple(seeds[seed] for seed in sorted(seeds)) for position, seeds in by_seed.items()},
        tuple(f"{line} ({counted(count, 'run')})" for line, count in deviations.items()),
        tuple(sorted(not_compared)),
        {problem: [run for run in others if id(run) not in further] for problem, others in left_out.items()},
    )


def _is_neutral(key: str, value: object) -> bool:
    """Whether a key chooses the option with which fedrun does what it did before it had the key's group."""
    from fedrun.experiment.experiment import Experiment

    group, _, inner = key.partition(".")
    return inner == "_target_" and is_neutral_class(Experiment, group, value)


def compared_values(leaves: Leaves, keys: Set[str]) -> Leaves:
    """The values by which a run is assigned to a cell: those of these keys, and all classes."""
    return {key: value for key, value in leaves.items() if key in keys or key.endswith("_target_")}


def may_belong_to(content: Leaves, job: Leaves, keys: Set[str]) -> bool:
    """Whether a run and a cell agree in all compared values, except keys that fedrun did not have for one of them."""
    own, cell = compared_values(content, keys), compared_values(job, keys)
    same = all(
        comparable_text({key: own[key]}) == comparable_text({key: cell[key]}) for key in own.keys() & cell.keys()
    )
    return same and (own.keys() ^ cell.keys()) <= unrecorded(content, job)
