"""A run's name, settings and files, as tracking services show them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from fedrun.config.dotted_keys import flattened
from fedrun.config.identity import IRRELEVANT
from fedrun.experiment.observer import RunInfo
from fedrun.models.saved_tensors import MODEL_FILE
from fedrun.runs.folder import CLIENTS, CURVES, FEDERATION

NOT_IN_NAME = IRRELEVANT | {"data_dir", "cache_dir"}
"""Keys that are not part of a run's name, with those below them."""

PARTS = re.compile(r"[.=@/]")
"""What ends the first part of a key."""

Artifact = Literal["plots", "clients", "model"]

FILES: Mapping[Artifact, tuple[str, ...]] = {
    "plots": (CURVES, FEDERATION),
    "clients": (CLIENTS,),
    "model": (MODEL_FILE,),
}
"""The files of a complete run that can be sent to a tracking service."""

Scalar = str | int | float | bool | None


def run_name(run: RunInfo) -> str:
    """Strategy, dataset, further overrides that can change a result, and seed: ``fedavg digits rounds=5 seed=0``."""
    others = [
        text
        for text in run.overrides
        if not text.startswith(("strategy=", "dataset=")) and PARTS.split(text.lstrip("+~"))[0] not in NOT_IN_NAME
    ]
    return " ".join([run.choices["strategy"], run.choices["dataset"], *others, f"seed={run.seed}"])


def flat_settings(run: RunInfo) -> dict[str, Scalar]:
    """The chosen option of each group (``strategy: fedavg``), every key (``local.lr: 0.1``), and fedrun's commit."""
    keys = {key: value if isinstance(value, Scalar) else str(list(value)) for key, value in flattened(run.config)}
    return {**run.choices, **keys, **({"commit": run.commit} if run.commit else {})}
