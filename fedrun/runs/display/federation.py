"""A federation in a few lines of text, and a picture of the clients' labels."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import torch

from fedrun.data.federation import Federation
from fedrun.runs.display.picture_file import save_figure
from fedrun.runs.display.wording import counted

COLUMNS = 300
"""The largest number of clients that the heat map shows side by side."""


def summarise(federation: Federation) -> str:
    """The federation in three lines, one more about inferred facts, and a warning if no client has some class."""
    dataset, sizes = federation.dataset, federation.train.sizes.numpy()
    task, outputs = dataset.spec.task, f"{dataset.spec.classes:,}"
    missing: list[str] = []
    if task.has_classes:
        counts = federation.train.class_counts(dataset.targets, dataset.spec.classes).numpy()
        missing = [printable(dataset.class_names[label]) for label in np.flatnonzero(counts.sum(0) == 0)]
        predicted = f"classes   {_spread((counts > 0).sum(1))} per client, {outputs} in the dataset"
    else:
        predicted = f"task      {task.name} with {counted(dataset.spec.classes, 'output')}"
    lines = [f"data      {dataset.note}"] if dataset.note else []
    lines += [
        f"clients   {len(federation.train):,} with {_spread(sizes)} training samples each, {int(sizes.sum()):,} in all",
        predicted,
        f"{federation.evaluation_split:<9} {len(federation.test.samples):,} samples {_holders(federation)}"
        + _own_tests(federation),
    ]
    if missing:
        shown = ", ".join(missing[:10]) + (", ..." if len(missing) > 10 else "")
        lines.append(f"warning: no client holds {len(missing)} of the {outputs} classes: {shown}")
    return "\n".join(lines)


def _spread(numbers: np.ndarray) -> str:
    """The smallest, the largest and the middle one of integers ``[N]``; 0 if there is no client."""
    least, most = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    return f"{least:,}" if least == most else f"{least:,} to {most:,} (median {np.median(numbers):,g})"


def _holders(federation: Federation) -> str:
    """Who holds the test samples, in words."""
    if federation.has_pooled_test or not len(federation.test):
        return "in one pooled set"
    names = federation.test.names or ()
    training = len(_training_users(federation).intersection(names))
    users = f"of {len(federation.test):,} {'' if training else 'held-out '}{'user' if len(names) == 1 else 'users'}"
    if 0 < training < len(names):
        return f"{users}, {training:,} of whom also {'trains' if training == 1 else 'train'}"
    return f"{users}, who also {'trains' if training == 1 else 'train'}" if training else users


def _training_users(federation: Federation) -> set[str]:
    """The clients that train, and the users whose samples they have: several clients may divide a user's."""
    names, users = set(federation.train.names or ()), federation.dataset.users
    if users is not None and federation.evaluation_split == "test":  # validation may hold out clients, not users
        owners = torch.bucketize(federation.train.samples, users.offsets[1:-1], right=True)
        names.update(users.names[user] for user in torch.unique(owners).tolist())
    return names


def _own_tests(federation: Federation) -> str:
    """The clients' own tests in words, after those of :func:`_holders`; empty if they have none."""
    if federation.client_test is None:
        return ""
    sizes = federation.client_test.sizes.numpy()
    return f"; clients' own tests: {_spread(sizes)} samples each, {int(sizes.sum()):,} in all"


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
