"""The steps of one client's local training."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import torch

from fedrun.data.tasks.base import Task
from fedrun.models.flat_network import FlatNetwork
from fedrun.strategies.client import ClientStrategy, LinearCorrection, overrides
from fedrun.strategies.client_contract import checked_linear_correction
from fedrun.strategies.direction_contract import checked_direction
from fedrun.strategies.local_training import LocalTraining
from fedrun.strategies.vectors import Vectors
from fedrun.training.fused_sgd import FusedSGDStep
from fedrun.training.objective import Objective
from fedrun.training.optimizer_step import linear_update, optimizer_step, repair
from fedrun.training.tally import Tally, Trained


class Steps:
    """Steps that move the loaded network in place, in a block: ``with Steps(...) as steps: steps.step(x, y)``.

    Args:
        network: holds the model.
        strategy: the client strategy, whose hooks change plain SGD.
        local: hyper-parameters.
        rate: η_t.
        task: task of the dataset.
        constants: the result of :meth:`ClientStrategy.constants`.
        state: state of the optimizer, ``[S]``, updated in place; None: it has none.
        tally: sums over the processed samples.
    """

    def __init__(
        self,
        network: FlatNetwork,
        strategy: ClientStrategy,
        local: LocalTraining,
        rate: float,
        task: Task,
        constants: Vectors,
        state: torch.Tensor | None,
        tally: Tally,
    ) -> None:
        self._network = network
        self._weights = network.weights
        self._strategy = strategy
        self._local = local
        self._rate = rate
        self._constants = constants
        self._state = state
        self._tally = tally
        self._objective = Objective(network, strategy, constants, task, tally, local.precision)
        self._directs = overrides(strategy, "direction")
        self._group: list[tuple[torch.Tensor, torch.Tensor]] = []  # the batches of a step along `direction`
        self._correction: LinearCorrection | None = None
        self._fused: FusedSGDStep | None = None
        self._linear: Callable[[], object] | None = None

    def __enter__(self) -> Steps:
        self._correction = checked_linear_correction(self._strategy, self._constants, len(self._weights))
        # batch_loss may compute gradients of its own, which must not move the model
        plain = not overrides(self._strategy, "direction", "frozen", "batch_loss")
        if plain and self._state is None and self._local.max_gradient_norm is None:
            update = linear_update(self._correction, self._local, self._rate)
            self._linear = None if update is None else partial(update, self._weights)
            self._fused = FusedSGDStep(self._network.network).__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._fused is not None:
            self._fused.__exit__(*error)
            self._fused = None  # its gradient edges belong to a stream, so the next block needs new ones

    def step(self, x: torch.Tensor, y: torch.Tensor, frozen: torch.Tensor | None = None) -> None:
        """Process one batch, and make a step if it completes one: steps of some strategies use several batches.

        Args:
            x: encoded inputs ``[B, ...]``.
            y: targets ``[B, ...]``.
            frozen: the parameters that do not move, bool ``[T]``; None: all move.
        """
        if self._fused is not None:
            self._fused.step(self._objective.loss(x, y), self._rate, self._linear)
        elif (gradient := self._gradient(x, y)) is not None:
            optimizer_step(self._weights, gradient, self._state, self._rate, self._local, self._correction, frozen)
        else:
            return
        if self._local.repair_nonfinite:
            repair(self._weights)

    def _gradient(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor | None:
        """The direction of a step, ``[T]``; None: it needs more batches."""
        if not self._directs:
            return self._objective.gradient(x, y)
        self._group.append((x, y))
        if len(self._group) < len(self._strategy.passes):
            return None
        strategy = self._strategy
        gradient = checked_direction(strategy, strategy.direction, self._gradient_at, self._weights, self._constants)
        self._group.clear()
        return gradient

    def _gradient_at(self, parameters: torch.Tensor, batch: int, *, moves_buffers: bool = True) -> torch.Tensor:
        current = self._weights.clone()
        self._weights.copy_(parameters)
        with nullcontext() if moves_buffers else self._network.unmoved_buffers():
            gradient = self._objective.gradient(*self._group[batch]).clone()
        self._weights.copy_(current)
        return gradient

    def end_epoch(self) -> None:
        """Note the end of an epoch."""
        self._objective.end_epoch()

    def trained(self, steps: int) -> Trained:
        """The counts and sums after this many steps."""
        return Trained(steps, self._objective.processed, *self._tally.sums(), self._objective.compared)
