"""The progress of a run on the screen: a live panel in a terminal, plain lines anywhere else."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedrun.data.evaluation_split import pooled_metric, recorded_split
from fedrun.data.targets import Target
from fedrun.data.tasks.metric_names import CLASSIFICATION_MEASURES, ESTIMATED_ACCURACY, measures, recorded_score
from fedrun.experiment.observer import Observer, Row, RunInfo, round_of
from fedrun.runs.display import wording
from fedrun.runs.display.progress import Progress

WIDTH = 100
"""The largest width of the panel in columns: a bar across a whole wide screen is hard to read."""

NARROW = 64
"""A panel of fewer columns shows no speeds: counts and times would be cut."""


def display(stream: TextIO) -> Observer:
    """The display that suits a stream: live in a terminal that can move its cursor and in a notebook with ipywidgets,
    plain lines otherwise.
    """
    if Console().is_jupyter and find_spec("ipywidgets") is not None:
        return LiveDisplay(Console())
    if stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown"):
        return LiveDisplay(Console(file=stream))
    return PlainLines(stream)


class LiveDisplay(Observer):
    """One panel that is redrawn in place, and disappears when the run is complete (the result table follows)."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._progress: Progress | None = None
        self._live: Live | None = None
        self._moved: list[tuple[logging.StreamHandler[Any], Any]] = []

    def on_start(self, run: RunInfo) -> None:
        self._progress = Progress(run, self._clock)
        self._live = Live(console=self._console, get_renderable=self._draw, refresh_per_second=8)
        direct = (sys.stdout, sys.stderr)
        self._live.start()
        self._move_logging(direct)

    def on_client(self, round: int, done: int, cohort: int) -> None:
        if self._progress is not None:
            self._progress.client(round, done, cohort)

    def on_row(self, row: Row) -> None:
        if self._progress is not None:
            self._progress.take(row)

    def on_end(self, summary: Mapping[str, Any]) -> None:
        if self._live is not None:
            self._live.transient = True

    def close(self) -> None:
        for handler, stream in self._moved:
            handler.setStream(stream)
        self._moved = []
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _draw(self) -> RenderableType:
        # Two columns stay free for the "^C" that a terminal echoes: if it were wrapped to a separate line, rich would
        # redraw the panel one line too low.
        return "" if self._progress is None else panel(self._progress, min(WIDTH, self._console.width - 2))

    def _move_logging(self, direct: tuple[TextIO, TextIO]) -> None:
        # While it draws, rich replaces sys.stdout and sys.stderr, so that printed text appears above the panel. Log
        # handlers created before have the real streams and would write into the middle of the panel.
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream in direct:
                stand_in = sys.stdout if handler.stream is direct[0] else sys.stderr
                self._moved.append((handler, handler.setStream(stand_in)))


class PlainLines(Observer):
    """One line per evaluated round for files, pipes and batch systems: fixed columns, no control codes.

    The first round, the last one and every round that reaches a target are always printed, others at most once in
    ``seconds`` seconds.
    """

    def __init__(self, stream: TextIO, seconds: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._seconds = seconds
        self._clock = clock
        self._progress: Progress | None = None
        self._printed: int | None = None
        self._printed_at = 0.0

    def on_start(self, run: RunInfo) -> None:
        self._progress = Progress(run, self._clock)
        self._print(f"run       {run.title}, {wording.counted(run.rounds, 'round')}")
        for name, words in run.decisions.items():
            self._print(f"{name:<9} {words}")
        self._print(f"folder    {run.folder}")
        if run.resumed_after is not None:
            self._print(f"resumed after round {run.resumed_after} of {run.rounds}")

    def on_client(self, round: int, done: int, cohort: int) -> None:
        if self._progress is not None:
            self._progress.client(round, done, cohort)

    def on_row(self, row: Row) -> None:
        if (progress := self._progress) is None:
            return
        if self._printed is None:
            self._print(header(row))
        reached = progress.take(row)
        quiet = self._clock() - self._printed_at
        if self._printed is None or reached or round_of(row) >= progress.run.rounds or quiet >= self._seconds:
            self._print_row(progress)
        for target in reached:
            self._print(f"        reached {wording.target(target)} in round {round_of(row)}")

    def on_end(self, summary: Mapping[str, Any]) -> None:
        if self._progress is not None:
            self._print_end("complete", self._progress, self._progress.round)

    def on_stop(self, round: int) -> None:
        if self._progress is not None:
            self._print_end("stopped", self._progress, round)

    def _print_end(self, word: str, progress: Progress, round: int) -> None:
        if self._printed is not None and progress.row is not None and self._printed != round_of(progress.row):
            self._print_row(progress)
        self._print(f"{word} after round {round} of {progress.run.rounds}, {wording.duration(progress.elapsed)}")

    def _print_row(self, progress: Progress) -> None:
        assert progress.row is not None
        self._printed, self._printed_at = round_of(progress.row), self._clock()
        self._print(line(progress, progress.row))

    def _print(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


def columns(row: Row) -> tuple[tuple[str, int, str | None], ...]:
    """Heading, width and row key of each column of the plain lines; 75 columns in all for a classification.

    The metrics are those that the row has, or a classification's where the row has only an estimate of the accuracy.
    They are of validation samples if no test sample is used.
    """
    shown = measures(row) or CLASSIFICATION_MEASURES
    names = {metric: wording.name(metric) for metric in shown}
    return (
        ("round", 7, None),
        *((name, max(10, len(name) + 3), f"test/{metric}") for metric, name in names.items()),
        ("loss", 11, "test/loss"),
        ("train loss", 12, "train/loss"),
        ("time left", 14, None),
    )


def header(row: Row) -> str:
    """The headings of the plain lines, given the run's first row."""
    return "".join(f"{heading:>{width}}" for heading, width, _ in columns(row))


def line(progress: Progress, row: Row) -> str:
    """The plain line of a row, in the columns of :func:`header`."""
    cells = {"round": str(round_of(row)), "time left": time_left(progress) or wording.ABSENT}
    shown = columns(row)
    for heading, _, key in shown:
        if key is not None:
            part, _, metric = key.partition("/")
            cells[heading] = wording.value(key, pooled_metric(row, metric) if part == "test" else row.get(key))
    if (estimate := pooled_metric(row, ESTIMATED_ACCURACY)) is not None:
        cells["accuracy"] = f"~ {wording.value(f'test/{ESTIMATED_ACCURACY}', estimate)}"
    return "".join(f"{cells[heading]:>{width}}" for heading, width, _ in shown)


def time_left(progress: Progress) -> str:
    """The expected time until the run ends, such as ``2:05 min``; ``> 2:05 min`` if another phase follows the current
    one; empty while it is not known.
    """
    left = progress.seconds_left
    return "" if left is None else f"{'> ' * progress.before_last_phase}{wording.duration(left)}"


def panel(progress: Progress, width: int) -> Panel:
    """The live panel, ``width`` columns wide: bars, newest metrics, best score, targets."""
    run = progress.run
    resumed = "" if run.resumed_after is None else f"resumed after round {run.resumed_after}"
    parts: list[RenderableType] = [bars(progress, speeds=width >= NARROW), Text(), facts(progress)]
    if run.decisions:
        parts += [Text(), decisions_table(run)]
    return Panel(
        Group(*parts),
        title=Text(run.title, style="bold"),
        title_align="left",
        subtitle=Text(resumed, style="dim") if resumed else None,
        subtitle_align="left",
        width=width,
        border_style="dim",
        padding=(0, 1),
    )


def bars(progress: Progress, speeds: bool) -> Table:
    """Rounds made and, under it, clients done in the round in progress; at the right speeds, if wanted, and times."""
    rounds, made = progress.run.rounds, progress.round
    left, speed, samples = time_left(progress), progress.rounds_per_second, progress.samples_per_second
    grid = Table.grid(padding=(0, 2), expand=True)
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(ratio=1)
    for _ in range(3 if speeds else 2):
        grid.add_column(justify="right", no_wrap=True)
    grid.add_row(
        "rounds",
        ProgressBar(total=max(rounds, 1), completed=made, style="dim", complete_style="cyan", finished_style="green"),
        f"{made}/{rounds}",
        *(["" if speed is None else f"{wording.rate(speed)} rounds/s"] if speeds else []),
        left and f"{left} left",
    )
    _, done, cohort = progress.cohort or (made, 0, 0)
    grid.add_row(
        "clients",
        ProgressBar(total=max(cohort, 1), completed=done, style="dim", complete_style="cyan", finished_style="cyan"),
        f"{done}/{cohort}" if cohort else wording.ABSENT,
        *(["" if samples is None else f"{wording.rate(samples)} samples/s"] if speeds else []),
        f"{wording.duration(progress.elapsed)} so far",
    )
    return grid


def facts(progress: Progress) -> Table:
    """The newest metrics, the best score, and each target with the round that reached it."""
    row: Row = progress.row or {}
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    part = recorded_split(row)
    grid.add_row(
        part, measured(row, tuple(f"{part}/{metric}" for metric in (ESTIMATED_ACCURACY, *measures(row), "loss")))
    )
    score = recorded_score(row)
    if row.get("train/loss") is not None:
        grid.add_row("train", measured(row, (f"train/{score}", "train/loss")))
    if excluded := row.get("clients/excluded"):
        grid.add_row("excluded", Text(f"{excluded:.0f} clients whose update was not finite", style="yellow"))
    if progress.best is not None:
        best, round = progress.best
        grid.add_row("best", Text(f"{wording.value(score, best)} in round {round}"))
    if progress.hits:
        grid.add_row("targets", Text("   ").join(goal(target, hit) for target, hit in progress.hits.items()))
    return grid


def decisions_table(run: RunInfo) -> Table:
    """The choices of the run, such as its model and partition."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(style="dim")
    for name, words in run.decisions.items():
        grid.add_row(name, Text(words))
    return grid


def measured(row: Row, keys: tuple[str, ...]) -> Text:
    """``accuracy 71.23 %   F1 68.20 %   loss 0.9321``, for the keys that the row has."""
    parts = [
        Text.assemble((wording.name(key.rpartition("/")[2]), "dim"), " ", (wording.value(key, row[key]), "bold"))
        for key in keys
        if key in row
    ]
    return Text("   ").join(parts) if parts else Text(wording.ABSENT, style="dim")


def goal(target: Target, hit: int | None) -> Text:
    """``70 % in round 43`` or ``80 % not yet``."""
    reached = ("not yet", "dim") if hit is None else (f"in round {hit}", "green")
    return Text.assemble(wording.target(target), " ", reached)
