"""Ranks that torchrun, or a launcher with the same environment variables, has started."""

from __future__ import annotations

import os
from datetime import timedelta

from fedrun.execution.ranks import Ranks, connected, joining_errors

START_TIMEOUT = timedelta(minutes=5)
"""The longest time that ranks wait for each other at the start."""


def launched() -> bool:
    """Whether torchrun, or a launcher with the same environment variables, started this process as one of several."""
    return all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))


def join() -> Ranks:
    """Connect to the other processes that torchrun has started.

    Raises:
        RunError: they cannot be reached.
    """
    import torch

    torch.distributed.is_available()  # loads a deferred torch: an import of its submodule would load that twice
    from torch.distributed.rendezvous import rendezvous

    where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    number = int(os.environ["RANK"])
    with joining_errors(number, where):
        store, number, count = next(rendezvous("env://", timeout=START_TIMEOUT))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    local, local_count = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return connected(Ranks(number, count, local, local_count), store, f"fedrun/{attempt}", where)
