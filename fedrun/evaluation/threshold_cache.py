"""Thresholds that other runs of the same clients have computed before."""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
import platform
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from fedrun.data.datasets.base import Dataset
from fedrun.data.federation import ClientIndices
from fedrun.execution.ranks import SINGLE_PROCESS, Ranks
from fedrun.experiment.appeal.base import Thresholds
from fedrun.experiment.experiment import Experiment
from fedrun.system.atomic_file import atomic_write

log = logging.getLogger(__name__)

FIELDS = ("train", "test", "solo_accuracy")

Populations = Mapping[str, tuple[ClientIndices, ClientIndices | None]]
"""Training and test samples of the clients, by population."""


def key(experiment: Experiment, dataset: Dataset, populations: Populations) -> str:
    """Sixteen hex digits that change with everything that thresholds depend on.

    That is who the clients are, what they hold and how it is encoded, the initial model and how they train, and the
    code of all that, but no strategy: all strategies of a sweep share them.

    Args:
        experiment: of the run.
        dataset: as it was loaded.
        populations: training and test samples of the clients, by population.
    """
    of = experiment
    recipes = (of.partition, of.population, of.validation, of.attack, of.seed, of.model, of.local, of.appeal)
    data = (dataset.spec, dataset.fingerprint, dataset.encoding, dataset.augmentation)
    code = [source(type(recipe)) for recipe in recipes]
    digest = hashlib.sha256(repr((recipes, data, code)).encode())
    for name, held in populations.items():
        digest.update(name.encode())
        for shares in held:
            for numbers in () if shares is None else (shares.offsets, shares.samples):
                digest.update(numbers.numpy().tobytes())
    return digest.hexdigest()[:16]


def source(kind: type) -> str:
    """The text of the module in which a class is; empty where it has none, as for built-in ones."""
    try:
        return inspect.getsource(inspect.getmodule(kind) or kind)
    except (OSError, TypeError):
        return ""


def cached(
    path: Path, compute: Callable[[], dict[str, Thresholds]], ranks: Ranks = SINGLE_PROCESS
) -> dict[str, Thresholds]:
    """The thresholds in the file, by population, or, where there is none, those computed now and written to it.

    The leader alone touches the file; the ranks compute together.
    """
    from safetensors.torch import save

    known = ranks.broadcast(_read(path) if ranks.leads else None)
    if known is not None:
        return known
    found = compute()
    if not ranks.leads:
        return found
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path, f"{platform.node()}.{os.getpid()}") as file:  # another run may be writing the same
            file.write(save(packed(found)))
    except OSError as error:  # the run needs them in memory only
        log.warning("%s: cannot be written (%s); other runs will compute the thresholds again", path, error.strerror)
    return found


def _read(path: Path) -> dict[str, Thresholds] | None:
    """The thresholds in the file; None if there is no file that can be used."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return unpacked(load(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, SafetensorError, KeyError) as error:
        log.warning("%s: cannot be used (%s); the thresholds are computed again", path, error)
        return None


def packed(thresholds: dict[str, Thresholds]) -> dict[str, torch.Tensor]:
    """One tensor per population and field."""
    return {
        f"{population}/{name}": value.contiguous()
        for population, found in thresholds.items()
        for name in FIELDS
        if (value := getattr(found, name)) is not None
    }


def unpacked(tensors: dict[str, torch.Tensor]) -> dict[str, Thresholds]:
    """The inverse of :func:`packed`."""
    populations = {name.rpartition("/")[0] for name in tensors}
    return {
        population: Thresholds(
            tensors[f"{population}/train"], tensors[f"{population}/test"], tensors.get(f"{population}/solo_accuracy")
        )
        for population in populations
    }
