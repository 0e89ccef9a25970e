"""Client states in a checkpoint.

PyTorch writes and reads each tensor separately; for short vectors this overhead takes longer than their content. So
short vectors of many clients are stacked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

import torch

from fedrun.execution.vector_store import Slot, VectorStore
from fedrun.strategies.vectors import Vectors

SHORT = 16_384
"""The largest length of vectors that are stacked. Stacking copies them; longer ones are written unchanged."""


def packed(held: Mapping[int, Vectors], store: VectorStore) -> dict[str, Any]:
    """The states of clients in few tensors, which ``torch.save`` can write.

    Returns:
        ``clients``: their numbers, int64 ``[n]``. The other entries name a client by its position among these:
        ``stacked``: short vectors, by name and length; ``slots``: those in the store's file, by name; ``single``: the
        others.
    """
    stacked: dict[tuple[str, int], list[tuple[int, torch.Tensor]]] = defaultdict(list)
    slots: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    single: list[tuple[str, int, torch.Tensor]] = []
    for position, vectors in enumerate(held.values()):
        for name, vector in vectors.items():
            slot = store.slot(vector)
            if slot is not None:
                slots[name].append((position, *astuple(slot)))
            elif len(vector) <= SHORT:
                stacked[name, len(vector)].append((position, vector))
            else:
                single.append((name, position, vector))
    return {
        "clients": torch.tensor(list(held), dtype=torch.int64),
        "stacked": [
            (name, torch.tensor([position for position, _ in rows]), torch.stack([vector for _, vector in rows]))
            for (name, _), rows in stacked.items()
        ],
        "slots": {name: torch.tensor(rows) for name, rows in slots.items()},
        "single": single,
    }


def unpacked(content: Mapping[str, Any], store: VectorStore) -> dict[int, Vectors]:
    """The inverse of :func:`packed`; vectors are in the store afterwards.

    Raises:
        OSError: the store's file cannot be opened.
        DamagedFileError: a vector in it is missing or differs from its checksum.
    """
    slots = {name: [(row[0], Slot(*row[1:])) for row in rows.tolist()] for name, rows in content["slots"].items()}
    if slots:
        store.reopen(slot for rows in slots.values() for _, slot in rows)
    held: list[dict[str, torch.Tensor]] = [{} for _ in content["clients"]]
    for name, positions, vectors in content["stacked"]:
        for position, vector in zip(positions.tolist(), vectors, strict=True):
            held[position][name] = store.keep(vector)
    for name, rows in slots.items():
        for position, slot in rows:
            held[position][name] = store.read(slot)
    for name, position, vector in content["single"]:
        held[position][name] = store.keep(vector)
    return dict(zip(content["clients"].tolist(), held, strict=True))
