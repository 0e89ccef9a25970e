"""Which clients take part in a round."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import cast

import torch

from fedrun.evaluation.client_results import Metrics
from fedrun.experiment.participation.base import Candidates, Participation, select
from fedrun.experiment.state import State
from fedrun.strategies.contract import kind, mistake, owner
from fedrun.strategies.phase import Phase
from fedrun.system.errors import InputError

log = logging.getLogger(__name__)


class ParticipationCounts:
    """Counts the rounds of :func:`select` in which each client took part. A later count continues from the last one.

    Args:
        seed: the run's seed.
        clients: N.
        count: C.
    """

    def __init__(self, seed: int, clients: int, count: int) -> None:
        self._seed = seed
        self._count = count
        self._counts = torch.zeros(clients, dtype=torch.int64)
        self._rounds = 0

    def after(self, rounds: int) -> torch.Tensor:
        """The number of each client's rounds among the first ``rounds``, int64 ``[N]``."""
        if rounds < self._rounds:
            self._counts.zero_()
            self._rounds = 0
        for round in range(self._rounds, rounds):
            self._counts[select(self._seed, round, len(self._counts), self._count)] += 1
        self._rounds = rounds
        return self._counts.clone()


def select_cohort(
    state: State, phase: Phase, participation: Participation, candidates: Candidates
) -> tuple[torch.Tensor, Metrics]:
    """The clients that take part in the next round.

    Args:
        state: before the round.
        phase: phase of the round.
        participation: the rule.
        candidates: what the rule may depend on.

    Returns:
        Client numbers, int64 ``[C]`` (C = 0 if no client takes part), and the rule's metrics.

    Raises:
        InputError: the rule, which may be a user's, returned something else.
    """
    clients, size = len(phase.federation.train), candidates.size
    if phase.clustering.infers and state.membership is None:
        return select(phase.seed, state.round, clients, clients), {}
    cohort, metrics = checked_participants(participation, candidates)
    if len(cohort) < size and not participation.varies:
        log.info("round %d: %d of %d clients take part", state.round + 1, len(cohort), size)
    return cohort, metrics


def checked_participants(participation: Participation, candidates: Candidates) -> tuple[torch.Tensor, Metrics]:
    """The clients that a rule chooses for a round.

    Args:
        participation: the rule.
        candidates: what the rule may depend on.

    Returns:
        Client numbers, int64 ``[C]``, and the rule's metrics.

    Raises:
        InputError: the rule, which may be a user's, returned something else.
    """
    clients, size = len(candidates.samples), candidates.size
    returned: object = participation.participants(candidates)
    if wrong := _mistake(returned, clients):
        allowed = f"the numbers of different clients, int64 [C], each from 0 to {clients - 1}"
        raise mistake(participation, "participants", wrong, f"{allowed}, and a dictionary of numbers named clients/...")
    cohort, metrics = cast("tuple[torch.Tensor, Metrics]", returned)
    if len(cohort) > size and not participation.varies:  # the run's checks have counted on at most ``size``
        allowed = f"at most {size}, as clients_per_round says, or a rule whose property varies is True"
        raise mistake(participation, "participants", f"{len(cohort)} clients", allowed)
    return cohort, metrics


def checked_clients(participation: Participation, numbers: object, clients: int) -> torch.Tensor:
    """Client numbers for which a rule asks the losses.

    Args:
        participation: the rule.
        numbers: what it asks for.
        clients: N.

    Raises:
        InputError: they are not the numbers of different clients.
    """
    if wrong := _mistaken_clients(numbers, clients):
        raise InputError(
            f"{owner(participation)}.participants: asks for the losses of {wrong}; allowed: the numbers of different "
            f"clients, int64 [c], each from 0 to {clients - 1}"
        )
    return cast("torch.Tensor", numbers)


def _mistaken_clients(numbers: object, clients: int) -> str:
    """What is wrong with client numbers; empty if nothing is."""
    if not isinstance(numbers, torch.Tensor):
        return f"a {type(numbers).__name__}"
    if numbers.ndim != 1 or numbers.dtype != torch.int64:
        return kind(numbers)
    if len(outside := numbers[(numbers < 0) | (numbers >= clients)]):
        return f"client {int(outside[0])}"
    if twice := [client for client, times in Counter(numbers.tolist()).items() if times > 1]:
        return f"client {twice[0]} twice"
    return ""


def _mistake(returned: object, clients: int) -> str:
    """What is wrong with the result of a rule; empty if nothing is."""
    if not (isinstance(returned, tuple) and len(returned) == 2):
        return f"a {type(returned).__name__}"
    cohort, metrics = returned
    if wrong := _mistaken_clients(cohort, clients):
        return wrong
    if not isinstance(metrics, Mapping):
        return f"a {type(metrics).__name__} of metrics"
    for name, value in metrics.items():
        if not str(name).startswith("clients/"):  # another name could replace a metric of fedrun's
            return f"the metric {name}"
        if not isinstance(value, int | float):
            return f"a {type(value).__name__} as {name}"
    return ""
