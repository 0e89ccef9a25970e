"""Blocks that are freed are used again: counted by the pages that the kernel has to lay out anew."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, torch
from fedrun.execution.allocator import keep_freed_memory
def use():
    torch.ones(9 * 2**20)  # 36 MiB, above the largest block that glibc keeps by itself: 9216 pages of 4 KiB
def faults():
    for _ in range(10):
        use()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        use()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
given_back = faults()
assert keep_freed_memory()
print(given_back, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such settings")
def test_large_blocks_are_used_again():
    ended = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    given_back, kept = map(int, ended.stdout.split())
    assert given_back >= 10 * 9216
    assert kept <= 3 * 9216  # a block that does not fit into what is free is laid out elsewhere
