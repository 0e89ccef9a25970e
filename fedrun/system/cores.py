"""The number of processor cores that this process may use."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

CONTROL_GROUPS = Path("/sys/fs/cgroup")
"""The folder in which Linux shows the limits of control groups, such as those of containers."""

OWN_GROUPS = Path("/proc/self/cgroup")
"""The control groups of this process, one per line: ``number:controllers:/path``; version 2 has no controllers."""


def cores() -> int:
    """The number of cores that this process may use: those of its affinity, limited by its CPU quota."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.floor(min(allowed, cpu_quota())))


def cpu_quota(groups: Path = CONTROL_GROUPS, own: Path = OWN_GROUPS) -> float:
    """The least CPU quota of this process's control groups, in cores; infinity without a quota.

    Args:
        groups: see :data:`CONTROL_GROUPS`.
        own: see :data:`OWN_GROUPS`.
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return math.inf  # not Linux
    quotas = [math.inf]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            quotas += [_ratio(*_words(folder / "cpu.max")) for folder in _enclosing(groups, path)]
        elif "cpu" in controllers.split(","):
            for folder in _enclosing(groups / "cpu", path):
                quotas.append(_ratio(*_words(folder / "cpu.cfs_quota_us"), *_words(folder / "cpu.cfs_period_us")))
    return min(quotas)


def _enclosing(root: Path, path: str) -> Iterator[Path]:
    """The folder of a group and those of its enclosing groups. A container may see only the last one."""
    group = Path(path.lstrip("/"))
    yield from (root / folder for folder in (group, *group.parents))


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []


def _ratio(quota: str = "max", period: str = "") -> float:
    """Quota over period, both in µs; infinity without a quota, which is ``max`` or -1."""
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() else math.inf
