"""The files of a complete run that can be sent to a tracking service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from fedrun.models.saved_tensors import MODEL_FILE
from fedrun.runs.folder import CLIENTS, CURVES, FEDERATION

Artifact = Literal["plots", "clients", "model"]

FILES: Mapping[Artifact, tuple[str, ...]] = {
    "plots": (CURVES, FEDERATION),
    "clients": (CLIENTS,),
    "model": (MODEL_FILE,),
}
