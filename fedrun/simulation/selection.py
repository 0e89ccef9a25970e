"""Which clients take part in a round."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch

from fedrun.evaluation.client_results import Metrics
from fedrun.experiment.participation.base import Participation
from fedrun.experiment.state import State
from fedrun.strategies.phase import Phase
from fedrun.system.randomness import generator, numpy_generator

log = logging.getLogger(__name__)


def select(seed: int, round: int, clients: int, count: int) -> torch.Tensor:
    """The cohort of round t = 0, 1, .. if every client is available.

    It is drawn uniformly without replacement and in random order. It depends on the arguments alone, so the cohort of
    any round can be computed in any other round.

    Args:
        seed: the run's seed.
        round: t.
        clients: N.
        count: C, at most N.

    Returns:
        Client numbers, int64 ``[C]``.
    """
    if count == clients:
        return torch.randperm(clients, generator=generator(seed, "selection", round))
    drawn = numpy_generator(seed, "selection", round).choice(clients, count, replace=False)
    return torch.from_numpy(drawn).to(torch.int64)


def select_poisson(seed: int, round: int, clients: int, probability: float) -> torch.Tensor:
    """The cohort of round t by Poisson sampling: every client independently with the same probability.

    Returns:
        Client numbers, int64 ``[C]``, ascending; C is random and may be 0.
    """
    drawn = numpy_generator(seed, "selection", round).random(clients) < probability
    return torch.from_numpy(drawn.nonzero()[0])


class Participations:
    """Counts the rounds of :func:`select` in which each client took part; later counts build on earlier ones.

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
        """By client, after this many rounds: int64 ``[N]``."""
        if rounds < self._rounds:
            self._counts.zero_()
            self._rounds = 0
        for round in range(self._rounds, rounds):
            self._counts[select(self._seed, round, len(self._counts), self._count)] += 1
        self._rounds = rounds
        return self._counts.clone()


def select_cohort(
    state: State,
    phase: Phase,
    participation: Participation,
    willing_clients: Callable[[], torch.Tensor],
    poisson: bool = False,
) -> tuple[torch.Tensor, Metrics]:
    """The clients that take part in the next round.

    Args:
        state: before the round.
        phase: of the round.
        participation: the rule by which clients decline.
        willing_clients: computes which clients are willing to take part, bool ``[N]``; called only if needed.
        poisson: draw every client independently with probability M / N.

    Returns:
        Client numbers, int64 ``[C]`` (C = 0 if no client is willing), and the numbers of willing clients and of
        participants where participation depends on the clients.
    """
    clients, size = len(phase.federation.train), phase.cohort_size
    if phase.clustering.infers and state.membership is None:
        return select(phase.seed, state.round, clients, clients), {}
    if poisson:
        return select_poisson(phase.seed, state.round, clients, size / clients), {}
    if not participation.by_appeal:
        return select(phase.seed, state.round, clients, size), {}
    willing = torch.ones(clients, dtype=torch.bool)
    if not participation.mandatory(state.round, phase.rounds):
        willing = willing_clients()
    if participation.rule == "draw_then_drop":
        cohort = select(phase.seed, state.round, clients, size)
        cohort = cohort[willing[cohort]]
    else:
        available = willing.nonzero().flatten()
        count = min(size, len(available))
        cohort = available[select(phase.seed, state.round, len(available), count)] if count else available
    if len(cohort) < size:
        log.info("round %d: %d of %d clients take part", state.round + 1, len(cohort), size)
    return cohort, {"clients/willing": float(willing.sum()), "clients/participants": float(len(cohort))}
