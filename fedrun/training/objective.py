"""The objective of one client, and a record of the processed samples."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from fedrun.data.tasks.base import Task
from fedrun.models.flat_network import FlatNetwork
from fedrun.models.frozen_encoders import FrozenEncoders
from fedrun.models.precision import Precision, computing
from fedrun.strategies.client import ClientStrategy, Outputs, overrides
from fedrun.strategies.contract import check_losses
from fedrun.strategies.vectors import Vectors


@dataclass(frozen=True)
class Trained:
    """The record of one client's local training.

    Attributes:
        steps: SGD steps made.
        processed: samples processed.
        loss_sum: sum over processed samples of :meth:`ClientStrategy.loss`, float32 scalar on the device.
        score_sum: sum over processed samples of the task's score, a scalar on the device; for classification the number
            of correct predictions, int64.
        compared: samples processed by forward passes under reference models.
        measured: samples processed forward and backward besides the steps.
    """

    steps: int
    processed: int
    loss_sum: torch.Tensor
    score_sum: torch.Tensor
    compared: int = 0
    measured: int = 0


MOST_OUTPUTS = 2**24
"""Outputs that are collected before their scores are computed, so that one call serves several steps."""


class Objective:
    """The objective of one client: gradients batch by batch, and a record of the processed samples.

    Args:
        network: the loaded network, set to training mode.
        strategy: the client strategy, whose hooks change plain SGD.
        constants: from :meth:`ClientStrategy.constants`.
        task: of the dataset.
        precision: of forward and backward passes.
    """

    def __init__(
        self,
        network: FlatNetwork,
        strategy: ClientStrategy,
        constants: Vectors,
        task: Task,
        precision: Precision = "float32",
    ) -> None:
        self._network = network
        self._precision = precision
        self._strategy = strategy
        self._constants = constants
        self._task = task
        self._plain = not overrides(strategy, "loss")  # then one fused call computes the mean
        references = {name: constants[name] for name in strategy.reference_models}
        self._frozen = FrozenEncoders(network, references) if references else None
        self._recalls = "earlier_embeddings" in strategy.wants
        self._embeds = self._recalls or "embeddings" in strategy.wants
        self._encoder, self._head = (network.network.get_submodule(name) for name in ("encoder", "head"))
        self._earlier: list[torch.Tensor] = []  # embeddings [n_k, d] of each finished epoch
        self._embedded: list[torch.Tensor] = []  # of the current one, batch by batch
        self._compared = 0
        self._losses: list[torch.Tensor] = []
        self._sizes: list[int] = []
        self._logits: list[torch.Tensor] = []
        self._targets: list[torch.Tensor] = []
        self._collected = 0
        self._scores: list[torch.Tensor] = []
        network.network.train()

    def gradient(self, x: torch.Tensor, y: torch.Tensor, index: int = 0) -> torch.Tensor:
        """The gradient ``[T]`` of :meth:`loss` at the loaded model, overwritten by the next call."""
        return self._network.backward(self.loss(x, y, index))

    def loss(self, x: torch.Tensor, y: torch.Tensor, index: int = 0) -> torch.Tensor:
        """A batch's mean loss at the loaded model, a scalar with its graph.

        Args:
            x: encoded inputs ``[B, ...]``.
            y: targets ``[B, ...]``.
            index: of the batch within its epoch.
        """
        embeddings = None
        with self._computing:
            if self._embeds:
                embeddings = self._encoder(x)
                logits = self._head(embeddings)
            else:
                logits = self._network.network(x)
        logits = logits.float()
        if self._plain:
            loss = self._task.mean_loss(logits, y)
        else:
            outputs = self._outputs(x, embeddings, logits, index)
            losses = self._strategy.loss(outputs, y, self._constants)
            check_losses(self._strategy, losses, len(y))
            loss = self._task.mean_of(losses, y)
        self._losses.append(loss.detach())
        self._sizes.append(len(y))
        self._logits.append(logits.detach())
        self._targets.append(y)
        self._collected += logits.numel()
        if self._task.per_symbol or self._collected > MOST_OUTPUTS:  # texts of several lengths cannot be joined
            self._compute_scores()
        return loss

    def _compute_scores(self) -> None:
        """Add the scores of the collected outputs."""
        predictions = self._task.predictions(torch.cat(self._logits))
        self._scores.append(self._task.scores(predictions, torch.cat(self._targets)).sum())
        self._logits.clear()
        self._targets.clear()
        self._collected = 0

    def _outputs(self, x: torch.Tensor, embeddings: torch.Tensor | None, logits: torch.Tensor, index: int) -> Outputs:
        """A batch's outputs, with the measurements that the strategy requests."""
        embeddings, earlier = None if embeddings is None else embeddings.float(), None
        if self._recalls:
            assert embeddings is not None
            self._embedded.append(embeddings.detach())
            if not self._earlier:
                return Outputs(logits, embeddings, task=self._task)
            # Right for whole batches; TurboSVM-FL's code takes the same slice for a last, shorter one.
            first, size = index * len(embeddings), len(embeddings)
            earlier = torch.stack([epoch[first : first + size] for epoch in self._earlier])
        if self._frozen is None:
            return Outputs(logits, embeddings, earlier_embeddings=earlier, task=self._task)
        with self._computing:
            computed = self._frozen.outputs(x)
        self._compared += len(computed) * len(x)
        references = {name: Outputs(z.float(), embedded.float()) for name, (embedded, z) in computed.items()}
        return Outputs(logits, embeddings, references, earlier, self._task)

    @property
    def _computing(self) -> AbstractContextManager[object]:
        return computing(self._precision, self._network.vector.device)

    def end_epoch(self) -> None:
        """Keep the epoch's embeddings for later epochs, if the strategy requests them."""
        if self._recalls:
            self._earlier.append(torch.cat(self._embedded))
            self._embedded.clear()

    def trained(self, steps: int) -> Trained:
        """The record, after this many steps."""
        losses = torch.stack(self._losses)
        if self._collected:
            self._compute_scores()
        score_sum = self._scores[0] if len(self._scores) == 1 else torch.stack(self._scores).sum()
        return Trained(steps, sum(self._sizes), losses @ losses.new_tensor(self._sizes), score_sum, self._compared)
