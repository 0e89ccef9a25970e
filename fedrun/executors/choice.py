"""Which executor works."""

from __future__ import annotations

import logging

from fedrun.executors.base import Executor, Workplace
from fedrun.executors.in_process import InProcess
from fedrun.executors.vectorized import Vectorized

log = logging.getLogger(__name__)

EXECUTORS: dict[str, type[Executor]] = {"in_process": InProcess, "vectorized": Vectorized}


def chosen(name: str, workplace: Workplace, warns: bool = True) -> Executor:
    """The executor of this name, or, where it cannot do the work, the sequential one.

    Args:
        name: a key of :data:`EXECUTORS`.
        workplace: where the work is.
        warns: say in a warning why it is not the one of this name; False where somebody else has said so.
    """
    executor = EXECUTORS[name]
    if reason := executor.refusal(workplace):
        if warns:
            log.warning("hardware.executor=%s does not support %s; using hardware.executor=in_process", name, reason)
        executor = InProcess
    return executor(workplace)
