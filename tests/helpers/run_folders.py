"""Run folders with given contents, so that a report can be made without computing anything."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from fedrun.report.runs import FoundRuns, find

CONFIG: dict[str, Any] = {
    "seed": 0,
    "rounds": 2,
    "name": "runs",
    "targets": [0.7],
    "data_dir": "data",
    "output_dir": "outputs",
    "clients_per_round": 0.5,
    "local": {"_target_": "fedrun.strategies.local_training.LocalTraining", "lr": 0.1},
    "strategy": {"server": {"_target_": "fedrun.strategies.fedavg.FedAvg"}},
    "partition": {"_target_": "fedrun.data.partitions.iid.IID", "clients": 10},
}


def rows(*accuracies: float | None, **more: float) -> list[dict[str, float | None]]:
    """A row per accuracy, from round 0 on; every round sends 10 numbers up and 20 down and takes half a second."""
    return [
        {
            "round": round,
            "test/accuracy": accuracy,
            "test/loss": None if accuracy is None else 1 - accuracy,
            "cost/params_up": 10 * round,
            "cost/params_down": 20 * round,
            "cost/client_samples": 100 * round,
            **({"time/round_s": 0.5} if round else {}),
            **more,
        }
        for round, accuracy in enumerate(accuracies)
    ]


class Folders:
    """Writes run folders below one folder, each in a place of its own."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.written = 0

    @property
    def found(self) -> FoundRuns:
        """What a report finds of the runs written so far."""
        return find([str(self.top)])

    def write(
        self,
        seed: int,
        content: Sequence[Mapping[str, Any]],
        *,
        strategy: str = "fedavg",
        dataset: str = "digits",
        complete: bool = True,
        config: Mapping[str, Any] | None = None,
        changes: Mapping[str, Any] | None = None,
        data: str = "0123456789abcdef",
        summary: Mapping[str, Any] | None = None,
    ) -> Path:
        """A run's folder.

        Args:
            seed: of the run.
            content: the rows of its metrics.jsonl.
            strategy: the chosen option's name.
            dataset: the chosen option's name.
            complete: whether there is a summary.json.
            config: the whole configuration; None: a small one.
            changes: to the configuration, under dotted keys.
            data: fingerprint of its data.
            summary: more keys of its summary.
        """
        node = OmegaConf.create(copy.deepcopy(dict(CONFIG if config is None else config)))
        for key, value in {"seed": seed, **(changes or {})}.items():
            OmegaConf.update(node, key, value, force_add=True)
        self.written += 1
        folder = self.top / "runs" / dataset / strategy / f"{self.written:08x}" / f"seed={seed}"
        (folder / ".hydra").mkdir(parents=True)
        OmegaConf.save(node, folder / ".hydra" / "config.yaml")
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in content))
        if complete:
            content_of_summary = {
                "status": "complete",
                "title": f"{strategy} · {dataset} · seed {seed}",
                "group": f"{dataset}/{strategy}/{self.written:08x}",
                "dataset": dataset,
                "strategy": strategy,
                "overrides": [],
                "seed": seed,
                "data": data,
                "rounds": content[-1]["round"] if content else 0,
                "cap": node.rounds,
                "final": dict(content[-1]) if content else {},
                "best": {},
                "rounds_to": {},
                "seconds": 0.5 * (len(content) - 1),
                "versions": {"fedrun": "0.1.0", "torch": "2.11.0", "commit": "abc123"},
                **(summary or {}),
            }
            (folder / "summary.json").write_text(json.dumps(content_of_summary))
        return folder
