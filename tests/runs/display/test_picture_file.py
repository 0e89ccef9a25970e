"""Pictures appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from fedrun.runs.display.picture_file import save_figure


def test_the_format_is_the_suffixs(tmp_path: Path) -> None:
    for suffix, beginning in (("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")):
        save_figure(Figure(), tmp_path / f"picture.{suffix}", dpi=20)
        assert (tmp_path / f"picture.{suffix}").read_bytes().startswith(beginning)
    with pytest.raises(ValueError, match="xyz"):
        save_figure(Figure(), tmp_path / "picture.xyz", dpi=20)
    assert len(list(tmp_path.iterdir())) == 3


def test_the_earlier_picture_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(b"earlier")

    class Interrupted(Figure):
        def savefig(self, file, **_: object) -> None:
            file.write(b"\x89PNG")
            assert path.read_bytes() == b"earlier"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save_figure(Interrupted(), path, dpi=20)
    assert path.read_bytes() == b"earlier"
    assert [entry.name for entry in tmp_path.iterdir()] == ["picture.png"]
