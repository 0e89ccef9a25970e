"""The tables that compare settings."""

from __future__ import annotations

from collections.abc import Sequence

from fedrun.report import quantities
from fedrun.report.baselines import Baselines
from fedrun.report.quantities import TO_TARGET, Measured, Quantity
from fedrun.report.runs import REPORTED
from fedrun.report.settings import Setting, by_short_key, differing, on_other_data, written
from fedrun.report.significance import NAMES, Comparison, Test, compare, smallest_p
from fedrun.report.table import Table
from fedrun.report.tested_models import remarks
from fedrun.runs.display import wording
from fedrun.system.errors import InputError

SPREAD = "Mean ± std over seeds (ddof 0)"


def selected(settings: Sequence[Setting], requested: Sequence[str]) -> list[str]:
    """The metrics to report: the requested ones, or all recorded ones without internals.

    Raises:
        InputError: no run has a requested metric, or it is a cost.
    """
    recorded = quantities.metrics(run for setting in settings for run in setting.runs)
    reported = any(run.recorded(REPORTED) for setting in settings for run in setting.runs)
    allowed = [*recorded, *([REPORTED] if reported else [])]
    for key in requested:
        if key.startswith(quantities.NOT_METRICS):
            raise InputError(f"{key}: is a cost, not a metric; all tables have the costs, and --curve draws them")
        if key not in allowed:
            raise InputError(quantities.no_such_metric(key, allowed))
    return list(requested) or [key for key in recorded if not quantities.is_internal(key)]


def reported_quantities(
    settings: Sequence[Setting], metrics: Sequence[str], targets: Sequence[float]
) -> list[Quantity]:
    """All quantities reported for each setting."""
    runs = [run for setting in settings for run in setting.complete]
    return [
        *(Quantity("final", key) for key in metrics),
        *(Quantity("best", key) for key in metrics if quantities.has_best(key)),
        *quantities.to_targets(runs, targets),
        *quantities.costs(runs),
    ]


def report(
    settings: Sequence[Setting],
    metrics: Sequence[str],
    targets: Sequence[float] = (),
    baselines: Baselines | None = None,
    test: Test = "t",
) -> list[Table]:
    """The tables of a report; settings without a complete run appear in the first one only.

    Args:
        settings: the settings to compare.
        metrics: keys of the metrics to report.
        targets: accuracies whose first round is reported, in addition to the runs' own targets.
        baselines: settings against which the others are tested; None: no tests.
        test: the test against the baseline.
    """
    reported = reported_quantities(settings, metrics, targets)
    tables = [overview(settings)]
    complete = [setting for setting in settings if setting.complete]
    if not complete:
        return [*tables, *differences(settings)]
    tables += result_tables(complete, reported, ("final", "best", *TO_TARGET))
    if baselines is not None:
        tables.append(difference_table(complete, baselines, reported, test))
    costs = [quantity for quantity in reported if quantity.kind == "cost"]
    forward = FORWARD if any(quantity.key == "cost/forward_samples" for quantity in costs) else ""
    tables += _table("Costs", complete, costs, COSTS.format(forward))
    return [*tables, *differences(settings)]


PERCENT = f"{SPREAD}; shares in percent."
RESULT_TABLES = {
    "final": ("After the last round", PERCENT),
    "best": ("Best round", PERCENT),
    "rounds to": ("Rounds to a target", f"{SPREAD}; >N: some seed did not reach it in N rounds."),
    "seconds to": (
        "Virtual seconds to a target",
        f"{SPREAD}, of the first evaluated round that reached it; >N rounds: some seed did not reach it in N rounds.",
    ),
}
"""Titles and notes of the tables of results."""
ADAPTIVE = {
    "best": "With evaluation.adaptive=true, of the rounds that were tested fully.",
    "rounds to": "-: with evaluation.adaptive=true, this was not a target.",
}
"""What is added to the notes if some runs were evaluated adaptively."""


def result_tables(settings: Sequence[Setting], reported: Sequence[Quantity], kinds: Sequence[str]) -> list[Table]:
    """A table of the settings for each kind of quantity; none for a kind without quantities."""
    adaptive = any(run.adaptive for setting in settings for run in setting.complete)
    tables = []
    tested = remarks(settings, {quantity.metric for quantity in reported if quantity.kind in ("final", "best")})
    ends = sorted({run.last_round for setting in settings for run in setting.complete})
    for kind in kinds:
        title, note = RESULT_TABLES[kind]
        note += f" The runs ended in rounds {ends[0]} to {ends[-1]}." if kind == "final" and len(ends) > 1 else ""
        note += f" {ADAPTIVE[kind]}" if adaptive and kind in ADAPTIVE else ""
        note += "".join(f" {line}" for line in tested if kind in ("final", "best"))
        tables += _table(title, settings, [quantity for quantity in reported if quantity.kind == kind], note)
    return tables


COSTS = (
    "Totals over clients and rounds: params up and down are numbers sent by and to clients; client samples were "
    "trained on{}."
)
"""The note of the table of costs."""
FORWARD = ", forward samples used in forward passes only"
"""What it adds if some strategy uses samples in forward passes only."""


def overview(settings: Sequence[Setting]) -> Table:
    """The settings and their seeds."""
    rows = tuple(
        (
            setting.name,
            setting.dataset,
            setting.strategy,
            ", ".join(str(run.seed) if run.complete else f"({run.seed})" for run in setting.runs),
        )
        for setting in settings
    )
    partial = any(not run.complete for setting in settings for run in setting.runs)
    notes = ("Seeds in brackets: not complete; they count in the curves of settings without a complete seed.",)
    return Table(
        "Settings", ("setting", "dataset", "strategy", "seeds"), rows, notes=notes if partial else (), labels=4
    )


def differences(settings: Sequence[Setting]) -> list[Table]:
    """The keys in which the settings differ, along the longer side of the table; none if no key does."""
    keys = differing(settings)
    if not keys:
        return []
    names = list(by_short_key(keys, {}))
    values = [[setting.name, *_written(keys, setting)] for setting in settings]
    header, *rows = (
        zip(*[["", *names], *values], strict=True) if len(names) > len(settings) else [["", *names], *values]
    )
    return [Table("Configuration keys that differ", tuple(header), tuple(map(tuple, rows)))]


def _written(keys: Sequence[str], setting: Setting) -> list[str]:
    """A setting's values of the short keys."""
    return [written(setting.leaves, key) for key in by_short_key(keys, setting.leaves).values()]


def _table(title: str, settings: Sequence[Setting], columns: Sequence[Quantity], note: str) -> list[Table]:
    """A table of quantities; none if there is no quantity."""
    if not columns:
        return []
    rows = tuple((setting.name, *(str(Measured.of(quantity, setting)) for quantity in columns)) for setting in settings)
    return [Table(title, ("setting", *(quantity.heading for quantity in columns)), rows, notes=(note,))]


def difference_table(
    settings: Sequence[Setting], baselines: Baselines, reported: Sequence[Quantity], test: Test
) -> Table:
    """Every other setting's mean difference from the baseline of its condition, and its p-value."""
    columns = [quantity for quantity in reported if quantity.kind in ("final", *TO_TARGET)]
    others = [setting for setting in settings if all(setting is not one for one in baselines.settings)]
    pairs = [(setting, baseline) for setting in others if (baseline := baselines.of(setting)) is not None]
    results = {
        (setting.name, quantity): compare(setting, baseline, quantity, test)
        for setting, baseline in pairs
        for quantity in columns
    }
    rows = tuple(
        (setting.name, *(difference_cell(quantity, results[setting.name, quantity], common) for quantity in columns))
        for setting, baseline in pairs
        for common in [len({run.seed for run in setting.complete} & {run.seed for run in baseline.complete})]
    )
    notes = [
        f"Mean difference over common seeds and p of the two-sided {NAMES[test]}, not corrected for the number of "
        "comparisons. Rounds and virtual seconds are compared where both reached the target on all common seeds."
    ]
    notes += common_seeds(pairs)
    if len(baselines.settings) > 1:
        notes.append(f"Each setting is compared with {baselines.name} of the same {baselines.required}.")
    reasons = {result.reason for result in results.values() if result.reason}
    if reasons:
        notes.append(f"No p where {', nor where '.join(sorted(reasons))}.")
    most = max((result.unequal for result in results.values()), default=0)
    if test == "wilcoxon" and most >= 2:
        notes.append(f"With {most} seeds that differ this test cannot give a p below {smallest_p(most):.3g}.")
    if not_compared := [setting.name for setting in others if baselines.of(setting) is None]:
        notes.append(f"Not compared, because no baseline has the same {baselines.required}: {', '.join(not_compared)}.")
    notes += [*other_data(pairs), *remarks(settings, {quantity.metric for quantity in columns})]
    header = ("setting", *(quantity.heading for quantity in columns))
    return Table(f"Difference from {baselines.name}", header, rows, notes=tuple(notes))


def common_seeds(pairs: Sequence[tuple[Setting, Setting]]) -> list[str]:
    """A line for each set of seeds over which settings are compared, if the baseline or the settings have others."""
    names: dict[str, list[str]] = {}
    for setting, baseline in pairs:
        ours, theirs = ({run.seed for run in one.complete} for one in (setting, baseline))
        if ours != theirs:
            common = sorted(ours & theirs)
            seeds = f"{'seeds' if len(common) > 1 else 'seed'} {', '.join(map(str, common))}" if common else "no seed"
            names.setdefault(seeds, []).append(setting.name)
    return [
        f"Compared over {seeds} only, while means are over each setting's own: {', '.join(those)}."
        for seeds, those in names.items()
    ]


def other_data(pairs: Sequence[tuple[Setting, Setting]]) -> list[str]:
    """A line that names the settings which were run on other data than the baseline that each is paired with."""
    names = [setting.name for setting, baseline in pairs if on_other_data(setting, baseline)]
    return [f"The data of these have another fingerprint than the baseline's: {', '.join(names)}."] if names else []


def difference_cell(quantity: Quantity, result: Comparison, common: int) -> str:
    """The cell of a comparison, given how many seeds the two settings have in common."""
    if result.difference is None:
        return wording.ABSENT
    shares = quantity.kind == "final" and wording.is_share(quantity.key)
    large = abs(result.difference) >= 1000
    difference = f"{100 * result.difference:+.2f}" if shares else f"{result.difference:{'+,.1f' if large else '+.4g'}}"
    some = f", {len(result.seeds)} of {common} seeds" if len(result.seeds) < common else ""
    return f"{difference} (p = {wording.ABSENT if result.p is None else f'{result.p:.3g}'}{some})"
