"""Files that a dataset refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedrun.data.datasets.base import DatasetConfig
from fedrun.system.errors import InputError


def refused(config: DatasetConfig, place: Path, complaint: str) -> None:
    """In one line, which names the place."""
    with pytest.raises(InputError) as refusal:
        config.load()
    assert str(place) in str(refusal.value)
    assert complaint in str(refusal.value)
    assert "\n" not in str(refusal.value)
