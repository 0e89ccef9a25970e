"""The steps of one client after another on a GPU, recorded as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fedrun.data.datasets.base import Encoding, is_ragged
from fedrun.models.cuda_graphs import CudaGraphs, RecordedFunction
from fedrun.models.flat_network import FlatNetwork
from fedrun.strategies.client import ClientStrategy, overrides
from fedrun.strategies.vectors import Vectors
from fedrun.training.steps import Steps
from fedrun.training.tally import RunningTally, Trained


def can_record(strategy: ClientStrategy, encoding: Encoding) -> bool:
    """Whether a client strategy's steps do the same with every batch of the same shape, of every client.

    The strategy must have a hash, under which the recorded steps are kept.
    """
    try:
        hash(strategy)
    except TypeError:
        return False
    changes = overrides(strategy, "direction", "frozen", "batch_loss")
    return not (changes or "earlier_embeddings" in strategy.wants or is_ragged(encoding))


class RecordedSteps:
    """:class:`Steps` that serve one client after another.

    What a step reads and writes besides the network stays where it is: the constants, the optimizer's state and the
    tally.

    Args:
        graphs: the recorded functions of the network.
        network: holds the model.
        build: the steps with constants, a state of the optimizer and a tally; their client strategy is one for which
            :func:`can_record` is true.
        constants: one client's result of :meth:`ClientStrategy.constants`.
        state: state of its optimizer, ``[S]``; None: it has none.
        tally: sums over the processed samples.
        references: number of reference models of the client strategy.
    """

    def __init__(
        self,
        graphs: CudaGraphs,
        network: FlatNetwork,
        build: Callable[[Vectors, torch.Tensor | None, RunningTally], Steps],
        constants: Vectors,
        state: torch.Tensor | None,
        tally: RunningTally,
        references: int,
    ) -> None:
        self._constants = {name: torch.empty_like(vector) for name, vector in constants.items()}
        self._state = None if state is None else torch.empty_like(state)
        self._tally = tally
        self._references = references
        self._module = network.network
        steps = build(self._constants, self._state, tally)

        def make(x: torch.Tensor, y: torch.Tensor) -> None:  # without self: a cycle would keep GPU memory for long
            with steps:
                steps.step(x, y)

        self._step = RecordedFunction(graphs, make, "an SGD step")
        self._of_client: torch.Tensor | None = None
        self._processed = 0

    def of(self, constants: Vectors, state: torch.Tensor | None) -> RecordedSteps:
        """These steps for another client: with its constants, and the state of its optimizer, updated at the end."""
        for name, vector in self._constants.items():
            vector.copy_(constants[name])
        if self._state is not None and state is not None:
            self._state.copy_(state)
        self._of_client = state
        self._tally.clear()
        self._processed = 0
        return self

    def __enter__(self) -> RecordedSteps:
        if not self._module.training:
            self._module.train()
        return self

    def __exit__(self, *error: object) -> None:
        if self._of_client is not None and self._state is not None:
            self._of_client.copy_(self._state)

    def step(self, x: torch.Tensor, y: torch.Tensor, frozen: torch.Tensor | None = None) -> None:
        """Make one step: see :meth:`Steps.step`."""
        self._step(x, y)
        self._processed += len(y)

    def end_epoch(self) -> None:
        """Nothing is kept from one epoch for the next."""

    def trained(self, steps: int) -> Trained:
        """The counts and sums after this many steps."""
        return Trained(steps, self._processed, *self._tally.sums(), self._references * self._processed)
