"""How many cores a process may use, by its affinity and by the quota of its control groups."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from fedrun.system.cores import cores, cpu_quota


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_the_least_quota_of_the_enclosing_groups_counts(tmp_path: Path) -> None:
    own, groups = tmp_path / "own", tmp_path / "groups"
    own.write_text("0::/jobs/7\n")
    write(groups / "jobs/7/cpu.max", "max 100000\n")
    assert cpu_quota(groups, own) == math.inf
    write(groups / "jobs/cpu.max", "250000 100000\n")
    assert cpu_quota(groups, own) == 2.5
    write(groups / "jobs/7/cpu.max", "50000 100000\n")
    assert cpu_quota(groups, own) == 0.5


def test_version_1_and_a_container_that_sees_its_own_group_only(tmp_path: Path) -> None:
    own, groups = tmp_path / "own", tmp_path / "groups"
    own.write_text("5:memory:/docker/a\n4:cpu,cpuacct:/docker/a\n0::/\n")
    write(groups / "cpu/cpu.cfs_quota_us", "-1\n")
    write(groups / "cpu/cpu.cfs_period_us", "100000\n")
    assert cpu_quota(groups, own) == math.inf
    write(groups / "cpu/cpu.cfs_quota_us", "400000\n")
    assert cpu_quota(groups, own) == 4.0


def test_without_control_groups_there_is_no_quota(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path, tmp_path / "none") == math.inf


@pytest.mark.parametrize(("quota", "expected"), [(math.inf, 3), (2.9, 2), (0.5, 1), (64.0, 3)])
def test_affinity_and_quota(monkeypatch: pytest.MonkeyPatch, quota: float, expected: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 5}, raising=False)
    monkeypatch.setattr("fedrun.system.cores.cpu_quota", lambda: quota)
    assert cores() == expected
