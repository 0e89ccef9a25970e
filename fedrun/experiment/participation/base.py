"""Which clients take part in a round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch

from fedrun.config.config_class import config_class
from fedrun.strategies.vectors import Vectors
from fedrun.system.randomness import generator, numpy_generator


def select(seed: int, round: int, clients: int, count: int) -> torch.Tensor:
    """A uniform draw without replacement for round t = 0, 1, .., in random order.

    It depends on the arguments alone, so the draw of any round can be repeated in any other round.

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


@dataclass(frozen=True)
class Candidates:
    """What the choice of a round's participants may depend on.

    Attributes:
        seed: the run's seed; random numbers depend on it, on the round and on nothing else.
        round: t = 0, 1, ..
        rounds: T, the rounds until the run's phase ends, counted from the run's beginning.
        size: M, the number of participants of a round, at most N; with ``aggregation=deadline`` that of the clients
            that start.
        samples: n_k, the training samples of each client, int64 ``[N]``.
        losses: computes F_k(w), the mean loss of the model that a client uses (the global one, its cluster's, or
            its own) on its training samples, float64 ``[c]``, given the numbers of some clients, int64 ``[c]``.
        thresholds: returns ρ_k, float64 ``[N]``, if the clients have thresholds (``appeal``).
        history: what the rule has kept of earlier rounds (:meth:`Participation.next_history`).
    """

    seed: int
    round: int
    rounds: int
    size: int
    samples: torch.Tensor
    losses: Callable[[torch.Tensor], torch.Tensor]
    thresholds: Callable[[], torch.Tensor]
    history: Vectors


@dataclass(frozen=True)
class RoundOutcome:
    """What the server knows, after a round, of the clients whose uploads it has used.

    Attributes:
        round: t = 0, 1, ..
        clients: int64 ``[C]``, in the order of selection; C may be 0.
        samples: n_k, the training samples of each, int64 ``[C]``.
        losses: mean training loss of each over the samples that it has processed in the round, float64 ``[C]``; NaN if
            their weights are 0, and infinite or NaN if losses have overflowed.
        seconds: virtual time of each from the broadcast to the end of its upload, float64 ``[C]``; zeros without a
            clock.
    """

    round: int
    clients: torch.Tensor
    samples: torch.Tensor
    losses: torch.Tensor
    seconds: torch.Tensor


@config_class
class Participation:
    """Every selected client takes part, and selection is uniform; the base of other rules.

    Attributes:
        varies: whether the number of participants is random, with the selected number as its mean. A rule that may
            choose more than :attr:`Candidates.size` clients must say so.
        needs_thresholds: whether it compares losses with the clients' thresholds.
    """

    varies: ClassVar[bool] = False
    needs_thresholds: ClassVar[bool] = False

    @property
    def is_uniform(self) -> bool:
        """Whether the participants are those of :func:`select`, as privacy accounts for them."""
        return type(self).participants is Participation.participants

    @property
    def known_in_advance(self) -> bool:
        """Whether the participants depend on the seed, the round and the number of clients only, so that those of the
        next round are known, too.
        """
        return self.is_uniform

    def fewest(self, size: int, clients: int, rounds: int) -> int:
        """The fewest clients that a round with an upload may have.

        Args:
            size: M, the number of participants of a round, at most N.
            clients: N.
            rounds: T, the rounds of the run's first phase.
        """
        return 1 if self.varies and size < clients else size

    def participants(self, candidates: Candidates) -> tuple[torch.Tensor, dict[str, float]]:
        """The clients that take part in a round, a pure function of the candidates.

        Args:
            candidates: see :class:`Candidates`.

        Returns:
            Client numbers, int64 ``[C]``, different ones; C may be 0. And metrics to record, whose names begin with
            ``clients/``, such as ``clients/willing``.
        """
        return select(candidates.seed, candidates.round, len(candidates.samples), candidates.size), {}

    def initial_history(self, clients: int) -> Vectors:
        """What the rule keeps between rounds, before the first one of a phase: CPU tensors by name; {}: nothing.

        Args:
            clients: N.
        """
        return {}

    def next_history(self, history: Vectors, outcome: RoundOutcome) -> Vectors:
        """What the rule keeps after a round: new tensors of the same names, shapes and types. It is called after every
        round if there is a history, also if no client took part.

        Args:
            history: before the round; it must not be changed.
            outcome: see :class:`RoundOutcome`.
        """
        return history
