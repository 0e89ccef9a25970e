"""What one client minimises, and a record of what was processed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from fedrun.models.flat_network import FlatNetwork
from fedrun.models.frozen_encoders import FrozenEncoders
from fedrun.models.precision import Precision, computing
from fedrun.strategies.client import ClientStrategy
from fedrun.strategies.vectors import EARLIER, Vectors


@dataclass(frozen=True)
class Trained:
    """What one client's local training produced.

    Attributes:
        steps: SGD steps made.
        processed: samples processed.
        loss_sum: sum over processed samples of :meth:`ClientStrategy.loss`, float32 scalar on the device.
        correct: number of processed samples that were predicted correctly, int64 scalar on the device.
        compared: samples processed by forward passes under models to compare with.
    """

    steps: int
    processed: int
    loss_sum: torch.Tensor
    correct: torch.Tensor
    compared: int = 0


class Objective:
    """What one client minimises: gradients batch by batch, and a record of what was processed.

    Args:
        network: the loaded network, set to training mode.
        half: what differs from plain SGD.
        constants: from :meth:`ClientStrategy.constants`.
        precision: of forward and backward passes.
    """

    def __init__(
        self, network: FlatNetwork, half: ClientStrategy, constants: Vectors, precision: Precision = "float32"
    ) -> None:
        self._network = network
        self._precision = precision
        self._half = half
        self._constants = constants
        self._plain = type(half).loss is ClientStrategy.loss  # then one fused call computes the mean
        self._frozen = (
            FrozenEncoders(network, {name: constants[name] for name in half.compares}) if half.compares else None
        )
        self._embeds = bool(half.compares) or half.recalls
        self._encoder, self._head = (network.network.get_submodule(name) for name in ("encoder", "head"))
        self._recalled: list[torch.Tensor] = []  # embeddings [n_k, d] of each finished epoch
        self._embedded: list[torch.Tensor] = []  # of the current one, batch by batch
        self._compared = 0
        self._losses: list[torch.Tensor] = []
        self._sizes: list[int] = []
        self._logits: list[torch.Tensor] = []
        self._targets: list[torch.Tensor] = []
        network.network.train()

    def gradient(self, x: torch.Tensor, y: torch.Tensor, index: int = 0) -> torch.Tensor:
        """The gradient ``[T]`` of :meth:`loss` at the loaded model, overwritten by the next call."""
        return self._network.backward(self.loss(x, y, index))

    def loss(self, x: torch.Tensor, y: torch.Tensor, index: int = 0) -> torch.Tensor:
        """A batch's mean loss at the loaded model, a scalar with its graph.

        Args:
            x: encoded inputs ``[B, ...]``.
            y: int64 ``[B]``.
            index: of the batch within its epoch.
        """
        half, constants = self._half, self._constants
        if not self._embeds:
            with self._computing:
                z = self._network.network(x)
            z = z.float()
            loss = torch.nn.functional.cross_entropy(z, y) if self._plain else half.loss(z, y, constants).mean()
        else:
            with self._computing:
                embeddings = self._encoder(x)
                z = self._head(embeddings)
            z, embeddings = z.float(), embeddings.float()
            losses = half.loss(z, y, constants)
            if others := self._others(x, embeddings, index):
                losses = losses + half.contrast(embeddings, others, constants)
            loss = losses.mean()
        self._losses.append(loss.detach())
        self._sizes.append(len(y))
        self._logits.append(z.detach())
        self._targets.append(y)
        return loss

    def _others(self, encoded: torch.Tensor, embeddings: torch.Tensor, index: int) -> Vectors:
        """The embeddings that those of a batch are compared with; none in the first epoch of a half that recalls."""
        recalled: dict[str, torch.Tensor] = {}
        if self._half.recalls:
            self._embedded.append(embeddings.detach())
            if not self._recalled:
                return {}
            # Right for whole batches; TurboSVM-FL's code takes the same slice for a last, shorter one.
            first, size = index * len(embeddings), len(embeddings)
            recalled[EARLIER] = torch.stack(self._recalled)[:, first : first + size]
        with self._computing:
            others = {} if self._frozen is None else self._frozen(encoded)
        self._compared += len(others) * len(encoded)
        return {name: each.float() for name, each in others.items()} | recalled

    @property
    def _computing(self) -> AbstractContextManager[object]:
        return computing(self._precision, self._network.vector.device)

    def end_epoch(self) -> None:
        """Remember the epoch's embeddings for later ones, if the client half wants them."""
        if self._half.recalls:
            self._recalled.append(torch.cat(self._embedded))
            self._embedded.clear()

    def trained(self, steps: int) -> Trained:
        """The record, after this many steps."""
        losses = torch.stack(self._losses)
        correct = (torch.cat(self._logits).argmax(1) == torch.cat(self._targets)).sum()
        return Trained(steps, sum(self._sizes), losses @ losses.new_tensor(self._sizes), correct, self._compared)
