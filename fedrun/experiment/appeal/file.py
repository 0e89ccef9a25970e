"""Thresholds from the user's file."""

from __future__ import annotations

import csv
import hashlib
import math
from pathlib import Path

import torch

from fedrun.config.config_class import config_class
from fedrun.data.federation import ClientIndices
from fedrun.experiment.appeal.base import Solo, Thresholds, WithThresholds
from fedrun.strategies.local_training import LocalTraining
from fedrun.system.errors import InputError
from fedrun.system.user_path import user_path


@config_class
class FromFile(WithThresholds):
    """ρ_k is read from a CSV file with the columns ``client`` and ``threshold``.

    Clients are named as in ``clients.parquet``: by their number in the partition, or by their user's name. Lines of
    clients that are not in the federation are ignored.

    Attributes (besides those of :class:`WithThresholds`):
        path: path of the file.
    """

    path: str

    @property
    def file(self) -> Path:
        return user_path(self.path, "appeal.path")

    def fingerprint(self) -> str:
        try:
            return hashlib.sha256(self.file.read_bytes()).hexdigest()[:16]
        except OSError as error:
            raise InputError(f"appeal.path={self.path}: cannot be read ({error.strerror or error})") from None

    def thresholds(self, clients: ClientIndices, local: LocalTraining, solo: Solo) -> Thresholds:
        known = read(self.file)
        names = [clients.name(client) for client in range(len(clients))]
        if missing := [name for name in names if name not in known]:
            raise InputError(
                f"appeal.path={self.path}: no threshold for client {missing[0]!r}"
                f"{f' and {len(missing) - 1} others' if len(missing) > 1 else ''}; every client needs a line"
            )
        rho = torch.tensor([known[name] for name in names], dtype=torch.float64)
        return Thresholds(rho, rho, None)


def read(path: Path) -> dict[str, float]:
    """The thresholds by client name.

    Raises:
        InputError: the file cannot be read, or a line of it is wrong.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            if not {"client", "threshold"} <= set(rows.fieldnames or ()):
                raise InputError(f"appeal.path={path}: its first line must name the columns client and threshold")
            thresholds: dict[str, float] = {}
            for row in rows:
                client, text = row["client"], row["threshold"]
                try:
                    threshold = float(text)
                except (TypeError, ValueError):
                    threshold = math.nan
                if not math.isfinite(threshold):
                    raise InputError(f"{path}, line {rows.line_num}: threshold {text!r}: allowed: a finite number")
                if client in thresholds:
                    raise InputError(f"{path}, line {rows.line_num}: client {client!r} has a threshold already")
                thresholds[client] = threshold
            return thresholds
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"appeal.path={path}: cannot be read ({reason}); a CSV file in UTF-8 is expected") from None
