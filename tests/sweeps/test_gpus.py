"""Parallel jobs of a sweep on several GPUs: what each of them sees."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from fedrun.sweeps import parallel_launcher
from fedrun.sweeps.parallel_launcher import Parallel


@pytest.mark.parametrize(
    ("named", "count", "names"),
    [
        (None, 3, ("0", "1", "2")),
        ("5, 7", 2, ("5", "7")),
        ("GPU-8f2e,GPU-01ab", 2, ("GPU-8f2e", "GPU-01ab")),
        ("5,99", 1, ("5",)),  # CUDA ignores all names from the first unknown one
        ("", 0, ()),
        (None, 0, ()),
    ],
)
def test_the_visible_gpus(
    monkeypatch: pytest.MonkeyPatch, named: str | None, count: int, names: tuple[str, ...]
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if named is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert parallel_launcher.visible_gpus() == names


def launcher(folder: Path, device: str, jobs: int | None) -> Parallel:
    one = Parallel(jobs)
    one.config = OmegaConf.create(
        {
            "hydra": {"sweep": {"dir": str(folder)}, "job": {"name": "fedrun"}, "launcher": {}},
            "hardware": {"device": device, "threads": None},
        }
    )
    context: Any = SimpleNamespace(
        config_loader=SimpleNamespace(
            load_sweep_config=lambda config, overrides: OmegaConf.merge(config, OmegaConf.from_dotlist(overrides))
        )
    )
    one.hydra_context = context
    one.task_function = lambda config: None
    return one


@pytest.mark.parametrize(
    ("jobs", "seen"), [(None, ["3", "5", "3", "5"]), (4, ["3", "5", "3", "5"]), (1, ["3", "3", "3", "3"])]
)
def test_jobs_are_distributed_over_the_gpus(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, jobs: int | None, seen: list[str]
) -> None:
    """Two GPUs and four jobs: by default one job per GPU at once; with jobs=4 two on each."""
    at_once = []

    def one_wave_after_another(job: Any, count: int, many: int, lost: Any, progress: Any) -> list[Any]:
        at_once.append(many)
        return [job(number, number % many) for number in range(count)]

    monkeypatch.setattr("fedrun.sweeps.parallel_launcher.visible_gpus", lambda: ("3", "5"))
    monkeypatch.setattr("fedrun.sweeps.job_processes.run_jobs", one_wave_after_another)
    monkeypatch.setattr(parallel_launcher, "run_job", lambda *args, **kwargs: os.environ["CUDA_VISIBLE_DEVICES"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    results: Any = launcher(tmp_path, "cuda", jobs).launch([[f"seed={seed}"] for seed in range(4)], 0)
    assert (at_once, results) == ([jobs or 2], seen)


@pytest.mark.parametrize(
    ("device", "override"), [("cpu", "seed=0"), ("cuda:1", "seed=0"), ("cuda", "hardware.device=cuda:1")]
)
def test_jobs_with_a_device_of_their_own_see_all_gpus(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: str, override: str
) -> None:
    monkeypatch.setattr("fedrun.sweeps.parallel_launcher.visible_gpus", lambda: ("3", "5"))
    monkeypatch.setattr(
        "fedrun.sweeps.job_processes.run_jobs",
        lambda job, count, many, lost, progress: [job(number, number % many) for number in range(count)],
    )
    monkeypatch.setattr(parallel_launcher, "run_job", lambda *args, **kwargs: os.environ["CUDA_VISIBLE_DEVICES"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    results: Any = launcher(tmp_path, device, 2).launch([[override], [override]], 0)
    assert results == ["3,5", "3,5"]
