"""A remark where some settings are tested client by client and others are not, so that their metrics differ, too."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from fedrun.report.settings import Setting


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
    if not any(len({"client's" in text for text in of_dataset}) == 2 for of_dataset in texts.values()):
        return []
    parts = (f"{', '.join(of_text)}: {text}" for text, of_text in names.items())
    return [f"Not tested alike: {'; '.join(parts)}."]
