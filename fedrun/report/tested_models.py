"""Which models and samples metrics are of, and remarks where settings differ in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from fedrun.data.evaluation_split import EVALUATION_SPLITS
from fedrun.report.runs import REPORTED
from fedrun.report.settings import Setting
from fedrun.runs.display import wording

BY_CLIENTS = "client's"
"""A part of every text on pooled metrics that are computed client by client, and of no other."""


def tested_models(settings: Sequence[Setting]) -> list[str]:
    """A line that names the model and the samples behind each setting's pooled metrics, if some settings of a dataset
    are tested client by client and others are not; otherwise none.
    """
    names: dict[str, dict[str, None]] = defaultdict(dict)  # of the settings with each text; ordered sets
    texts: dict[str, set[str]] = defaultdict(set)  # of each dataset
    for setting in settings:
        for run in setting.complete:
            if run.tested is not None:
                names[run.tested][setting.name] = None
                texts[setting.dataset].add(run.tested)
    if not any(len({BY_CLIENTS in text for text in of_dataset}) == 2 for of_dataset in texts.values()):
        return []
    parts = (f"{', '.join(of_text)}: {text}" for text, of_text in names.items())
    return [f"Not tested alike: {'; '.join(parts)}."]


def reported_accuracies(settings: Sequence[Setting]) -> list[str]:
    """A line for each metric that settings report, :data:`fedrun.report.runs.REPORTED`."""
    names: dict[str, list[str]] = defaultdict(list)
    for setting in settings:
        for metric in dict.fromkeys(run.reported or "" for run in setting.complete):
            names[metric].append(setting.name)
    if len(names) == 1:
        return [f"Reported: {wording.name(metric)}." for metric in names if metric]
    return [f"Reported: {wording.name(metric)} of {', '.join(of)}." for metric, of in names.items() if metric]


def remarks(settings: Sequence[Setting], metrics: Collection[str]) -> list[str]:
    """What these metrics are of, where settings differ in it."""
    keys = {run.key_of(metric) for setting in settings for run in setting.complete for metric in metrics}
    return [
        *(tested_models(settings) if any(map(_is_pooled, keys)) else []),
        *(reported_accuracies(settings) if REPORTED in metrics else []),
    ]


def tested_alike(one: Setting, other: Setting, metric: str) -> bool:
    """Whether a metric of two settings is of the same kind of models and samples, as far as it is recorded.

    Metrics of pooled samples may be of the global model or of clients' own ones; all others are of clients in both.
    """
    runs = [*one.complete, *other.complete]
    keys = {run.key_of(metric) for run in runs}
    kinds = {BY_CLIENTS in run.tested for run in runs if run.tested is not None}
    return len(keys) == 1 and not (len(kinds) == 2 and any(map(_is_pooled, keys)))


def _is_pooled(key: str) -> bool:
    return key.partition("/")[0] in EVALUATION_SPLITS
