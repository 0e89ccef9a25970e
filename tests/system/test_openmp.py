"""The active waiting of OpenMP's threads is limited before PyTorch is loaded; the user's setting wins."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CODE = """
import sys, os, fedrun
assert "torch" not in sys.modules
print(os.environ.get("GOMP_SPINCOUNT"))
"""


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "300"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "None")],
    ids=["nothing set", "spins set", "policy set"],
)
def test_the_spinning_is_limited(given: dict[str, str], expected: str) -> None:
    rest = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    ended = subprocess.run(
        [sys.executable, "-c", CODE], env={**rest, **given}, capture_output=True, text=True, check=False
    )
    assert (ended.stdout.strip(), ended.stderr) == (expected, "")
