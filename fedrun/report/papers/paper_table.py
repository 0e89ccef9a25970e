"""A paper's table with ours beside it: which run serves which cell, what it says, and how far it is from the paper."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain

from fedrun.evaluation.metrics.rounds_to_target import describe, first_hit, interpolated
from fedrun.report.papers.paper import Cell
from fedrun.report.papers.protocol import (
    SCALES,
    Protocol,
    RoundsTo,
    Scale,
    SpeedUp,
    ValueAt,
    asked_with,
    config,
    load,
    plan,
    protocols,
    reference,
)
from fedrun.report.quantities import finite
from fedrun.report.runs import Run
from fedrun.report.settings import Leaves, identity, leaves, unrecorded, varying, written
from fedrun.report.table import Table
from fedrun.runs.display import wording
from fedrun.runs.metrics_file import TARGETED, evaluated_rounds, series
from fedrun.system.errors import InputError

NOT_RUN = "not run"
OF_NO_CELL = "belong to no cell of this table"
OUT_OF_REACH = "out of reach"
OURS = "ours"
PARTS = ("paper", OURS, "difference")


@dataclass(frozen=True)
class Ours:
    """What our runs say about a cell.

    Attributes:
        text: as it is printed.
        number: the mean over the seeds in the paper's unit; None where there is none.
        early: the round that was read instead of the protocol's, where the runs were shorter; None otherwise.
        of_stand_in: the runs are of other data or another model than the paper's.
    """

    text: str
    number: float | None
    early: int | None = None
    of_stand_in: bool = False


@dataclass(frozen=True)
class Matched:
    """The runs of a table at a scale.

    Attributes:
        runs: for the position of each cell that the scale produces, its complete runs in the seeds' order.
        deviations: a line for every key in which some of them differ from the protocol.
        not_compared: keys that only one of a run's configuration and today's has.
        left_out: complete runs of the sweep that are used for no cell, under what is the matter with them. Of several
            cells may be those that lack the keys in which these cells differ.
    """

    runs: Mapping[int, tuple[Run, ...]]
    deviations: tuple[str, ...]
    not_compared: tuple[str, ...]
    left_out: Mapping[str, Sequence[Run]]


def available(name: str, runs: Sequence[Run]) -> list[Scale]:
    """The scales, largest first, at which a table's sweep has left complete runs."""
    names = {run.config["name"] for run in runs if run.complete}
    protocol = load(name)
    return [scale for scale in SCALES if protocol.run_name(scale) in names]


class NoRunsError(InputError):
    """There are no complete runs of a table's cells."""


def paper_tables(name: str, scale: Scale | None, runs: Sequence[Run]) -> list[Table]:
    """A paper's table, ours beside it and the difference.

    Args:
        name: of the table, such as ``turbosvm/table2``.
        scale: whose runs count; None: the largest one with complete runs.
        runs: where to look for them.

    Raises:
        InputError: there is no such table.
        NoRunsError: there is no complete run of it.
    """
    load(name)
    refusal = nothing_found(name, scale, runs)
    for one in available(name, runs) if scale is None else [scale]:
        try:
            return at_scale(name, one, runs)
        except NoRunsError as error:  # tables that share their runs may have none of their own at a scale
            refusal = error
    raise refusal


def at_scale(name: str, scale: Scale, runs: Sequence[Run]) -> list[Table]:
    """A paper's table from the runs of one scale.

    Raises:
        NoRunsError: there is no complete run of it.
    """
    protocol = load(name)
    table = protocol.cells()
    configs = {position: leaves(config) for position, config in plan(name, protocol, scale).items()}
    wanted = protocol.run_name(scale)
    own = [run for run in runs if run.config["name"] == wanted]
    matched = match(configs, [run for run in own if run.complete])
    if not any(matched.runs.values()):
        problems = " or ".join(problem for problem, others in matched.left_out.items() if others)
        raise (
            NoRunsError(f"table {name}: its finished runs {problems}") if problems else nothing_found(name, scale, runs)
        )
    strays = of_no_table(name, protocol, scale, matched.left_out[OF_NO_CELL])
    matched = replace(matched, left_out={**matched.left_out, OF_NO_CELL: strays})
    ours = {
        position: replace(
            measure(position, table, protocol, matched.runs),
            of_stand_in=protocol.stands_in(table[position], scale),
        )
        for position in configs
    }
    first, *others = provenance(scale, protocol, matched)
    above = (first, *shortened(name, scale, protocol, configs, matched), *others)
    unfinished = sum(not run.complete for run in own)
    notes = (*omissions(scale, table, protocol, ours, matched, unfinished), *protocol.notes)
    shown = [position for position in range(len(table)) if scale == "full" or position in configs]
    blocks = list(dict.fromkeys(coordinates(table[position], protocol.blocks) for position in shown))
    printed = [
        layout(
            ", ".join([protocol.title, *(f"{key} {value}" for key, value in zip(protocol.blocks, block, strict=True))]),
            {position: table[position] for position in shown if coordinates(table[position], protocol.blocks) == block},
            protocol.columns,
            protocol.blocks,
            ours,
        )
        for block in blocks
    ]
    printed[0] = replace(printed[0], above=above)
    printed[-1] = replace(printed[-1], notes=notes)
    return printed


def nothing_found(name: str, scale: Scale | None, runs: Sequence[Run]) -> NoRunsError:
    """That a table has no runs, how they are made, and what there is instead."""
    asked = asked_with(name, scale)
    others = [other for other in available(name, runs) if other != scale]
    there = f" (there are some at scale {' and '.join(others)})" if others else ""
    return NoRunsError(f"table {name}: no finished run of it was found{there}; make them with: fedrun {asked}")


def match(configs: Mapping[int, Leaves], runs: Sequence[Run]) -> Matched:
    """Give each run to the cells whose configuration it has, as far as the table's configurations differ at all.

    The classes are always compared. In other keys a run may differ from the protocol (fewer rounds, say): that is told,
    and not a reason to ignore it. Nor is a key that another version of fedrun did not have: its value is not known, and
    so it is not compared.
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
        protocol = configs[alike[0][0]]
        unknown = unrecorded(content, protocol)
        different = [
            f"{key}={written(content, key)} where the protocol has {written(protocol, key)}"
            for key in varying([content, protocol])
            if key not in unknown
        ]
        served.append((alike[0], run, different, unknown))
    found: dict[int, dict[int, Run]] = {position: {} for position in configs}
    deviations: Counter[str] = Counter()
    not_compared: set[str] = set()
    repeated: list[Run] = []
    elsewhere: list[Run] = []
    for positions, run, different, unknown in sorted(served, key=lambda one: (len(one[2]), len(one[3]))):
        there = found[positions[0]]
        if any(other.data != run.data for other in there.values()):
            elsewhere.append(run)
            continue
        if run.seed in there:
            repeated.append(run)
            continue
        deviations.update(different)
        not_compared |= unknown
        for position in positions:
            found[position][run.seed] = run
    return Matched(
        {position: tuple(seeds[seed] for seed in sorted(seeds)) for position, seeds in found.items()},
        tuple(f"{line} ({count} runs)" for line, count in deviations.items()),
        tuple(sorted(not_compared)),
        {
            OF_NO_CELL: strays,
            "may be of several cells": ambiguous,
            "repeat the cell and seed of others that are nearer to the protocol": repeated,
            "are on other data than others of their cell": elsewhere,
        },
    )


def of_no_table(name: str, protocol: Protocol, scale: Scale, runs: Sequence[Run]) -> Sequence[Run]:
    """Those of a table's runs that belong to no cell of the other tables that share its sweep either."""
    others = {other: load(other) for other in protocols() if other != name}
    for other in (other for other, shares in others.items() if shares.runs == protocol.runs):
        if not runs:
            break
        configs = {position: leaves(config) for position, config in plan(other, others[other], scale).items()}
        runs = match(configs, runs).left_out[OF_NO_CELL]
    return runs


def telling(leaves: Leaves, keys: Set[str]) -> Leaves:
    """What tells whose run it is: the values of these keys, and all classes."""
    return {key: value for key, value in leaves.items() if key in keys or key.endswith("_target_")}


def may_be(content: Leaves, protocol: Leaves, keys: Set[str]) -> bool:
    """Whether a run differs from a cell in nothing that tells, as far as fedrun had the keys when it made the run."""
    own, cell = telling(content, keys), telling(protocol, keys)
    alike = all(identity({key: own[key]}) == identity({key: cell[key]}) for key in own.keys() & cell.keys())
    return alike and (own.keys() ^ cell.keys()) <= unrecorded(content, protocol)


def measure(position: int, table: Sequence[Cell], protocol: Protocol, runs: Mapping[int, Sequence[Run]]) -> Ours:
    """What our runs say about one cell."""
    cell, own = table[position], runs.get(position, ())
    reading = protocol.reading(cell)
    if isinstance(reading, SpeedUp):
        above, below = reference(cell, reading, table, protocol)
        means = [measure(place, table, protocol, runs).number for place in (above, below)]
        if any(mean is None for mean in means):
            return Ours(wording.ABSENT if own else NOT_RUN, None)
        ratio = (means[0] or 0.0) / (means[1] or math.nan)
        return Ours(f"{ratio:.{cell.decimals}f}", ratio)
    if not own:
        return Ours(NOT_RUN, None)
    if isinstance(reading, RoundsTo):
        hits = [rounds_needed(run, reading) for run in own]
        reached = [hit for hit in hits if hit is not None]
        mean = statistics.fmean(reached) if len(reached) == len(hits) else None
        censored = [run.made for run, hit in zip(own, hits, strict=True) if hit is None]
        return Ours(describe(hits, min(censored, default=0)), mean)
    return value(cell, reading, own)


def rounds_needed(run: Run, reading: RoundsTo) -> int | None:
    """The rounds until a run reached the target, None where it did not."""
    run.check_target(reading.target, reading.interpolated)
    evaluated, accuracies = evaluated_rounds(run.rows), series(run.rows, TARGETED)
    if not reading.interpolated:
        return first_hit(evaluated, accuracies, reading.target)
    crossing = interpolated(evaluated, accuracies, reading.target)
    return None if crossing is None else math.ceil(crossing)


def value(cell: Cell, reading: ValueAt, runs: Sequence[Run]) -> Ours:
    """A metric in the protocol's round, or in the last one of runs that are shorter."""
    last = [evaluated_rounds(run.rows)[-1] for run in runs]
    asked = reading.at(cell)
    wanted = [end if asked is None else min(asked, end) for end in last]
    rows = [
        next((row for row in run.rows if row["round"] == round), None) for run, round in zip(runs, wanted, strict=True)
    ]
    factor = 100.0 if cell.unit == "%" else 1.0
    values = [finite(row.get(reading.key(cell))) for row in rows if row is not None]
    known = [factor * number for number in values if number is not None]
    early = None if asked is None or min(wanted) == asked else min(wanted)
    if len(known) < len(runs):
        return Ours(wording.ABSENT, None, early)
    mean, places = statistics.fmean(known), cell.decimals
    spread = f" ± {statistics.pstdev(known):.{places}f}" if len(known) > 1 else ""
    return Ours(f"{mean:.{places}f}{spread}", mean, early)


def difference(cell: Cell, ours: Ours | None) -> str:
    """Ours minus the paper's, ``-`` where one of them is no number, or ours is of something else."""
    if ours is None or ours.number is None or cell.number is None or ours.of_stand_in:
        return wording.ABSENT
    return f"{ours.number - cell.number:+.{max(cell.decimals, 1)}f}"


def coordinates(cell: Cell, keys: Iterable[str]) -> tuple[str, ...]:
    """A cell's values of some coordinates."""
    return tuple(cell.coordinates.get(key, "") for key in keys)


def layout(
    title: str, cells: Mapping[int, Cell], columns: Sequence[str], blocks: Sequence[str], ours: Mapping[int, Ours]
) -> Table:
    """One printed table: for each combination of column coordinates the paper's number, ours and the difference; ours
    alone where the paper has none.
    """
    names = list(dict.fromkeys(key for cell in cells.values() for key in cell.coordinates))
    values = {key: {cell.coordinates.get(key) for cell in cells.values()} for key in names}
    vary = [key for key in names if len(values[key] - {None}) > 1]
    if len({coordinates(cell, vary) for cell in cells.values()}) < len(cells):  # some differ in lacking a coordinate
        vary = [key for key in names if len(values[key]) > 1]
    across = [key for key in columns if key in vary]
    down = [key for key in vary if key not in across and key not in blocks] or ["strategy"]
    places = {(coordinates(cell, down), coordinates(cell, across)): position for position, cell in cells.items()}
    lines = list(dict.fromkeys(line for line, _ in places))
    heads = list(dict.fromkeys(head for _, head in places))

    def texts(position: int | None) -> dict[str, str]:
        if position is None:
            return dict.fromkeys(PARTS, "")
        cell, found = cells[position], ours.get(position)
        said = OUT_OF_REACH if found is None else found.text
        return dict(zip(PARTS, (str(cell), said, difference(cell, found)), strict=True))

    printed = {head for (_, head), position in places.items() if cells[position].printed}
    parts = [(head, part) for head in heads for part in PARTS if head in printed or part == OURS]
    header = (*down, *(": ".join(filter(None, (" ".join(head), part))) for head, part in parts))
    rows = tuple((*line, *(texts(places.get((line, head)))[part] for head, part in parts)) for line in lines)
    return Table(title, header, rows, labels=len(down))


def provenance(scale: Scale, protocol: Protocol, matched: Matched) -> list[str]:
    """Which scale, data, seeds and code the runs are of, and where they differ from the protocol."""
    runs = list({id(run): run for found in matched.runs.values() for run in found}.values())
    lines = [f"Scale: {scale}. {made_of(runs)} Mean ± std over seeds (ddof 0)."]
    for key, values in protocol.stand_ins.get(scale, {}).items():
        for printed, overrides in values.items():
            if overrides != protocol.meaning(key, printed):
                lines.append(f"{' '.join(overrides)} stands in for {key} {printed}; so no differences are given.")
    lines += [f"Not as the protocol has it: {line}." for line in matched.deviations]
    lines += [
        f"Left out, since they {problem}: {len(others)} runs of this sweep, such as {others[0].folder}."
        for problem, others in matched.left_out.items()
        if others
    ]
    return lines


def shortened(
    name: str, scale: Scale, protocol: Protocol, configs: Mapping[int, Leaves], matched: Matched
) -> list[str]:
    """One line on how many of the published protocol's rounds a smaller scale makes, where these are fewer."""
    if scale == "full":
        return []
    cells, pairs = protocol.cells(), set()
    for position in (position for position, runs in matched.runs.items() if runs):
        if (overrides := protocol.overrides(cells[position], "full")) is not None:
            published = config((f"experiment={name}", "scale=full", *overrides))["rounds"]
            pairs.add((configs[position]["rounds"], published))
    told = ", ".join(f"{ours} of {published}" for ours, published in sorted(pairs) if ours < published)
    return [f"Fewer rounds than at scale full: {told}."] if told else []


def made_of(runs: Sequence[Run]) -> str:
    """The data, seeds and code that complete runs are of, in one line."""
    summaries = [run.summary for run in runs if run.summary is not None]
    data = dict.fromkeys(f"{run['dataset']} ({run['data'][:8]})" for run in summaries)
    seeds = sorted({run.seed for run in runs})
    code = dict.fromkeys(
        ", ".join(f"{part} {run['versions'].get(part, 'not recorded')}" for part in ("commit", "fedrun", "torch"))
        for run in summaries
    )
    return f"Data: {', '.join(data)}. Seeds: {', '.join(map(str, seeds))}. Code: {'; '.join(code)}."


def omissions(
    scale: Scale,
    table: Sequence[Cell],
    protocol: Protocol,
    ours: Mapping[int, Ours],
    matched: Matched,
    unfinished: int,
) -> list[str]:
    """What of the table is not there, and why; and which numbers are not quite what they stand beside."""
    lines = []
    reasons: dict[str, int] = {}
    for cell in table:
        if (reason := protocol.reason(cell)) is not None:
            reasons[reason] = reasons.get(reason, 0) + 1
    lines += [f"Out of reach, {count} of {len(table)} cells: {reason}." for reason, count in reasons.items()]
    if left_out := len(table) - len(ours) - sum(reasons.values()):
        lines.append(f"Left out at scale {scale}: {left_out} of {len(table)} cells.")
    if absent := sum(not runs for runs in matched.runs.values()):
        lines.append(f"Not run yet: {absent} of {len(ours)} cells.")
    seeds = {position: [run.seed for run in runs] for position, runs in matched.runs.items() if runs}
    every = sorted(set(chain.from_iterable(seeds.values())))
    if fewer := sum(len(own) < len(every) for own in seeds.values()):
        lines.append(f"Not run yet with all of the seeds {', '.join(map(str, every))}: {fewer} of {len(ours)} cells.")
    if unfinished:
        lines.append(f"Unfinished, and so left out: {unfinished} runs.")
    if matched.not_compared:
        lines.append(
            "Not compared, since some runs were made by a version of fedrun in which not the same keys exist as in "
            f"this one: {', '.join(matched.not_compared)}."
        )
    if early := sorted({found.early for found in ours.values() if found.early is not None}):
        lines.append(f"Runs too short for the paper's round are read at their last: {', '.join(map(str, early))}.")
    return lines
