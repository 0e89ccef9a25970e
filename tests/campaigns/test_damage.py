"""Every file that fedrun reads back, damaged in every way once."""

from __future__ import annotations

from pathlib import Path

from .damage import DAMAGES, campaign


def test_no_damage_is_unnoticed(tmp_path: Path, plain: None) -> None:
    damages = list(campaign(tmp_path, 13 * len(DAMAGES), seed=1))
    assert [(name, kind) for name, kind, noticed in damages if not noticed] == []
    assert len(set(damages)) == 13 * len(DAMAGES)
