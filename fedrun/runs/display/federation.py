"""A federation in a few lines of text, and a picture of the clients' labels."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedrun.data.evaluation_split import EvaluationSplit
from fedrun.data.federation import Federation
from fedrun.runs.display.picture_file import save_figure
from fedrun.runs.display.wording import counted

COLUMNS = 300
"""The largest number of clients that the heat map shows side by side."""


@dataclass(frozen=True)
class Spread:
    """Smallest, middle and largest of one number per client."""

    min: int
    median: float
    max: int

    @classmethod
    def of(cls, numbers: np.ndarray) -> Spread:
        """The spread of integers ``[N]``; all zero if there is no client."""
        if len(numbers) == 0:
            return cls(0, 0.0, 0)
        return cls(int(numbers.min()), float(np.median(numbers)), int(numbers.max()))

    def __str__(self) -> str:
        if self.min == self.max:
            return f"{self.min:,}"
        return f"{self.min:,} to {self.max:,} (median {self.median:,g})"


@dataclass(frozen=True)
class FederationSummary:
    """A federation in numbers.

    Attributes:
        clients: N, the clients that training draws from.
        samples: training samples per client.
        total: training samples of all clients.
        outputs: the task, and what it predicts, in words.
        client_classes: different classes per client; None: the task has none.
        test_holders: how many users hold the test samples; 0 for a pooled test set.
        held_out: whether none of these users is a client.
        test_samples: samples that the global model is tested on.
        evaluation_split: whether these are test or validation samples.
        missing: names of the classes that no client holds.
        note: what was inferred about the data; empty: nothing was.
    """

    clients: int
    samples: Spread
    total: int
    outputs: str
    client_classes: Spread | None
    test_holders: int
    held_out: bool
    test_samples: int
    evaluation_split: EvaluationSplit
    missing: tuple[str, ...]
    note: str

    def lines(self) -> list[str]:
        """Three lines, one more about inferred facts, and a warning if a class is missing."""
        one = self.test_holders == 1
        users = f"{'held-out ' if self.held_out else ''}{'user' if one else 'users'}"
        training = "" if self.held_out else f", who also {'trains' if one else 'train'}"
        test = f"of {self.test_holders:,} {users}{training}" if self.test_holders else "in one pooled set"
        lines = [
            f"clients   {self.clients:,} with {self.samples} training samples each, {self.total:,} in all",
            f"task      {self.outputs}"
            if self.client_classes is None
            else f"classes   {self.client_classes} per client, {self.outputs} in the dataset",
            f"{self.evaluation_split:<9} {self.test_samples:,} samples {test}",
        ]
        if self.note:
            lines.insert(0, f"data      {self.note}")
        if self.missing:
            shown = ", ".join(self.missing[:10]) + (", ..." if len(self.missing) > 10 else "")
            lines.append(f"warning: no client holds {len(self.missing)} of the {self.outputs} classes: {shown}")
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines())


def summarise(federation: Federation) -> FederationSummary:
    """The federation in numbers."""
    dataset, sizes = federation.dataset, federation.train.sizes.numpy()
    task, outputs = dataset.spec.task, dataset.spec.classes
    summary = FederationSummary(
        clients=len(federation.train),
        samples=Spread.of(sizes),
        total=int(sizes.sum()),
        outputs=f"{outputs:,}" if task.has_classes else f"{task.name} with {counted(outputs, 'output')}",
        client_classes=None,
        test_holders=0 if federation.has_pooled_test else len(federation.test),
        held_out=set(federation.train.names or ()).isdisjoint(federation.test.names or ()),
        test_samples=len(federation.test.samples),
        evaluation_split=federation.evaluation_split,
        missing=(),
        note=dataset.note,
    )
    if not task.has_classes:
        return summary
    counts = federation.train.class_counts(dataset.targets, outputs).numpy()
    missing = tuple(printable(dataset.class_names[label]) for label in np.flatnonzero(counts.sum(0) == 0))
    return replace(summary, client_classes=Spread.of((counts > 0).sum(1)), missing=missing)


def plot_labels(federation: Federation, path: Path) -> None:
    """Write a heat map (PNG) of how many samples of each label (rows) each client (columns) holds.

    The colour scale is logarithmic and starts at one sample, so that small counts stay visible next to large ones while
    equal ones look equal; white is none. Beyond :data:`COLUMNS` clients, evenly spaced ones are shown in order of their
    number of samples. Without classes the picture is that of :func:`plot_sizes`.
    """
    if not federation.dataset.spec.task.has_classes:
        plot_sizes(federation, path)
        return
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    dataset = federation.dataset
    counts = federation.train.class_counts(dataset.targets, dataset.spec.classes).numpy()
    clients, classes = counts.shape
    title, axis = f"Training samples of each label: {clients:,} clients", "client"
    if clients > COLUMNS:
        order = np.argsort(counts.sum(1), kind="stable")
        counts = counts[order[np.linspace(0, clients - 1, COLUMNS).round().astype(np.int64)]]
        title = f"Training samples of each label: {COLUMNS} of {clients:,} clients"
        axis = "clients, evenly spaced by number of samples (fewest left)"

    most = max(int(counts.max(initial=0)), 2)  # a scale from 1 to 1 would be none
    ticks = [step * 10**power for power in range(len(str(most))) for step in ((1, 2, 5) if most <= 200 else (1,))]
    width, height = 9.0, min(max(1.6 + 0.16 * classes, 2.4), 11.0)
    figure = Figure(figsize=(width, height), dpi=150)
    axes = figure.add_subplot()
    image = axes.imshow(
        np.ma.masked_equal(counts.T, 0),
        aspect="auto",
        interpolation="nearest",
        cmap="viridis_r",
        norm=LogNorm(vmin=1, vmax=most),
    )
    axes.set_title(title, fontsize=11)
    axes.set_xlabel(axis)
    axes.set_ylabel("label")
    labels = np.arange(0, classes, max(1, -(-classes // 100)))
    class_names = [printable(dataset.class_names[label]) for label in labels]
    axes.set_yticks(labels, class_names, fontsize=8 if classes <= 20 else 6, parse_math=False)
    if clients > COLUMNS:
        axes.set_xticks([])
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    scale = figure.colorbar(image, ax=axes, label="samples (white: none)", pad=0.01, aspect=30, format="{x:,.0f}")
    scale.set_ticks([tick for tick in ticks if tick <= most])
    scale.minorticks_off()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph ")  # a class in a script that the font lacks has boxes for a name
        # Margins in inches: a constrained layout would take half of the time of drawing.
        names = axes.yaxis.get_tightbbox(None)
        left = 0.2 + (0.0 if names is None else names.width / figure.dpi)
        figure.subplots_adjust(left / width, 0.5 / height, 1 + 0.4 / width, 1 - 0.35 / height)
        save_figure(figure, path, dpi=150)


def plot_sizes(federation: Federation, path: Path) -> None:
    """Write a picture (PNG) of how many training samples each client holds, the clients by their number of samples."""
    from matplotlib.figure import Figure

    sizes = np.sort(federation.train.sizes.numpy())[::-1]
    figure = Figure(figsize=(9.0, 3.2), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    logarithmic = len(sizes) > 0 and sizes[0] > 20 * max(sizes[-1], 1)
    axes.stairs(sizes, fill=not logarithmic, baseline=None if logarithmic else 0)  # areas mean nothing on a log scale
    axes.set_xlim(0, max(len(sizes), 1))
    if logarithmic:
        axes.set_yscale("log")
    axes.set_title(f"Training samples: {len(sizes):,} clients, {int(sizes.sum()):,} samples", fontsize=11)
    axes.set_xlabel("clients, sorted by number of samples")
    axes.set_ylabel("samples")
    save_figure(figure, path, dpi=150)


def printable(name: str) -> str:
    """A class name as it can be seen: the space of a text dataset becomes ``' '``."""
    return name if name.strip() else repr(name)
