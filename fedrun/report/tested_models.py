"""A remark where some settings are tested client by client and others are not, so that their metrics differ, too."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any


def tested_models(settings: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """A line that names the model and the samples behind each setting's pooled metrics, if some settings of a dataset
    are tested client by client and others are not; otherwise none.

    Args:
        settings: the summaries of each setting's complete runs, by its name.
    """
    names: dict[str, dict[str, None]] = defaultdict(dict)  # of the settings with each text; ordered sets
    texts: dict[str, set[str]] = defaultdict(set)  # of each dataset
    for name, runs in settings.items():
        for run in runs:
            text = run.get("decisions", {}).get("tested")  # summaries of earlier versions may have none
            if text is not None:
                names[text][name] = None
                texts[run["dataset"]].add(text)
    if not any(len({"client's" in text for text in of_dataset}) == 2 for of_dataset in texts.values()):
        return []
    parts = (f"{', '.join(of_text)}: {text}" for text, of_text in names.items())
    return [f"Not tested alike: {'; '.join(parts)}."]
