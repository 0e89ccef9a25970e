"""Which executor works."""

from __future__ import annotations

import logging

from fedrun.executors.base import Executor, Workplace
from fedrun.executors.in_process import InProcess
from fedrun.executors.vectorized import Vectorized

log = logging.getLogger(__name__)

EXECUTORS: dict[str, type[Executor]] = {"in_process": InProcess, "vectorized": Vectorized}


def chosen(name: str, workplace: Workplace) -> Executor:
    """The executor of this name, or, where it cannot do the work, the sequential one; a warning then says why."""
    executor = EXECUTORS[name]
    if reason := executor.refusal(workplace):
        log.warning("hardware.executor=%s does not support %s; using hardware.executor=in_process", name, reason)
        executor = InProcess
    return executor(workplace)
