"""Small files in LEAF's format."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def write_leaf(tmp_path: Path) -> Callable[..., Path]:
    """``write_leaf("femnist/train/a.json", {"ann": (x, y)}, **changes)`` writes a file, with the changes given."""

    def write(name: str, users: dict[str, tuple[list[Any], list[Any]]], /, **changes: object) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "users": list(users),
            "num_samples": [len(y) for _, y in users.values()],
            "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
        }
        path.write_text(json.dumps(content | changes))
        return path

    return write
