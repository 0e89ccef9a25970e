"""The lazy import of PyTorch, which users' modules need not know about."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("statement", ["import torch.nn as nn", "from torch.utils.data import Dataset"])
def test_a_submodule_that_loads_its_package_is_executed_once(statement: str) -> None:
    code = f"""
import sys
from fedrun.system.lazy_import import lazy_import
lazy_import("torch")
{statement}
import torch
for name in ("torch.nn", "torch.utils"):
    assert sys.modules[name] is getattr(torch, name.removeprefix("torch."))
    assert sys.modules[name].__spec__.origin == sys.modules[name].__file__
    for submodule in sorted(sys.modules):
        parent, _, child = submodule.rpartition(".")
        assert parent != name or hasattr(sys.modules[name], child), submodule
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
