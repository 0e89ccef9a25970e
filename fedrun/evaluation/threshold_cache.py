"""Files of thresholds that earlier runs of the same clients have computed."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from fedrun.data.datasets.base import Dataset
from fedrun.evaluation.client_groups import ClientGroup
from fedrun.execution.ranks import Ranks
from fedrun.experiment.appeal.base import Thresholds
from fedrun.experiment.experiment import Experiment
from fedrun.models.flat_network import Layout
from fedrun.system.checksums import DamagedFileError, read_sealed, write_sealed

log = logging.getLogger(__name__)

FIELDS = ("train", "test", "solo_accuracy")


def key(
    experiment: Experiment,
    dataset: Dataset,
    layout: Layout,
    initial: torch.Tensor,
    frozen: str,
    groups: Sequence[ClientGroup],
) -> str:
    """Sixteen hex digits that change with everything that thresholds depend on.

    These are the clients, their samples and the encoding, the initial model and the local training, but not the
    strategy: all strategies of a sweep share the thresholds, unless the server strategy freezes parameters or adds
    some. The code is not among them, either.

    Args:
        experiment: experiment of the run.
        dataset: dataset of the run.
        layout: layout of the network, which the server strategy may have changed.
        initial: the initial model, ``[P]``; its weights may come from a file that has changed.
        frozen: the fingerprint of the network's frozen parameters.
        groups: the clients, with their training and test samples.
    """
    keys = ("partition", "population", "validation", "attack", "seed", "model", "local", "appeal")
    settings = tuple(getattr(experiment, name) for name in keys)
    data = (dataset.spec, dataset.fingerprint, dataset.encoding, dataset.augmentation)
    parameters = tuple(slot.name for slot in layout.slots)
    digest = hashlib.sha256(repr((settings, data, parameters, frozen)).encode())
    digest.update(initial.cpu().numpy().tobytes())
    for group in groups:
        digest.update(group.name.encode())
        for shares in (group.train, group.test):
            for numbers in () if shares is None else (shares.offsets, shares.samples):
                digest.update(numbers.numpy().tobytes())
    return digest.hexdigest()[:16]


def cached(path: Path, compute: Callable[[], dict[str, Thresholds]], ranks: Ranks) -> dict[str, Thresholds]:
    """The thresholds in the file, by group; if there is no file, they are computed and written to it.

    Only the leader reads and writes the file; the ranks compute together.
    """
    from safetensors.torch import save

    known = ranks.broadcast(_read(path) if ranks.is_leader else None)
    if known is not None:
        return known
    thresholds = compute()
    if not ranks.is_leader:
        return thresholds
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with write_sealed(path, shared=True) as file:
            file.write(save(packed(thresholds)))
    except OSError as error:  # the run needs them in memory only
        log.warning("%s: cannot be written (%s); other runs will compute the thresholds again", path, error.strerror)
    return thresholds


def _read(path: Path) -> dict[str, Thresholds] | None:
    """The thresholds in the file; None if there is no file that can be used."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return unpacked(load(read_sealed(path)))
    except FileNotFoundError:
        return None
    except (OSError, DamagedFileError, SafetensorError, KeyError) as error:
        log.warning("%s: cannot be used (%s); the thresholds are computed again", path, error)
        return None


def packed(thresholds: dict[str, Thresholds]) -> dict[str, torch.Tensor]:
    """One tensor per group and field."""
    return {
        f"{group}/{name}": value.contiguous()
        for group, values in thresholds.items()
        for name in FIELDS
        if (value := getattr(values, name)) is not None
    }


def unpacked(tensors: dict[str, torch.Tensor]) -> dict[str, Thresholds]:
    """The inverse of :func:`packed`."""
    groups = {name.rpartition("/")[0] for name in tensors}
    return {
        group: Thresholds(tensors[f"{group}/train"], tensors[f"{group}/test"], tensors.get(f"{group}/solo_accuracy"))
        for group in groups
    }
