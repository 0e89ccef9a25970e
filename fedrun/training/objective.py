"""The objective of one client."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from fedrun.data.tasks.base import Task
from fedrun.models.flat_network import FlatNetwork
from fedrun.models.frozen_encoders import FrozenEncoders
from fedrun.models.precision import Precision, computing
from fedrun.strategies.client import ClientStrategy, Outputs, overrides
from fedrun.strategies.client_contract import check_differentiable, check_losses, first_logits
from fedrun.strategies.vectors import Vectors
from fedrun.training.tally import Tally


class Objective:
    """The objective of one client: gradients batch by batch.

    Attributes:
        processed: samples processed, forward and backward.
        compared: samples processed by forward passes under reference models.

    Args:
        network: the loaded network, set to training mode.
        strategy: the client strategy, whose hooks change plain SGD.
        constants: the result of :meth:`ClientStrategy.constants`.
        task: task of the dataset.
        tally: sums over the processed samples; every call adds to it.
        precision: precision of forward and backward passes.
    """

    def __init__(
        self,
        network: FlatNetwork,
        strategy: ClientStrategy,
        constants: Vectors,
        task: Task,
        tally: Tally,
        precision: Precision,
    ) -> None:
        self._tally = tally
        self._network = network
        self._precision = precision
        self._strategy = strategy
        self._constants = constants
        self._task = task
        self._plain = not overrides(strategy, "loss", "batch_loss")  # then one fused call computes the mean
        references = {name: constants[name] for name in strategy.reference_models}
        self._frozen = FrozenEncoders(network, references) if references else None
        self._recalls = "earlier_embeddings" in strategy.wants
        self._embeds = self._recalls or "embeddings" in strategy.wants
        self._encoder, self._head = (network.network.get_submodule(name) for name in ("encoder", "head"))
        self._earlier: list[torch.Tensor] = []  # embeddings [n_k, d] of each finished epoch
        self._embedded: list[torch.Tensor] = []  # of the current one, batch by batch
        self.processed = 0
        self.compared = 0
        if not network.network.training:
            network.network.train()

    def gradient(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The gradient ``[T]`` of :meth:`loss` at the loaded model, overwritten by the next call."""
        return self._network.backward(self.loss(x, y))

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """A batch's mean loss at the loaded model, a scalar with its graph.

        Args:
            x: encoded inputs ``[B, ...]``.
            y: targets ``[B, ...]``.
        """
        if self._plain:
            with self._computing:
                logits = self._network.network(x).float()
            self.processed += len(y)
            loss = self._task.mean_loss(logits, y)
        else:
            calls: list[torch.Tensor] = []  # the logits of each pass

            def network(inputs: torch.Tensor) -> Outputs:
                outputs = self._outputs(inputs)
                calls.append(outputs.logits)
                return outputs

            losses = self._strategy.batch_loss(network, x, y, self._constants)
            check_losses(self._strategy, losses, len(y))
            check_differentiable(self._strategy, losses)
            logits = first_logits(self._strategy, calls, len(y))
            loss = self._task.mean_of(losses, y)
        self._tally.add(loss.detach(), logits.detach(), y)
        return loss

    def _outputs(self, x: torch.Tensor) -> Outputs:
        """The outputs for encoded inputs, with the measurements that the strategy requests."""
        embeddings, earlier = None, None
        with self._computing:
            if self._embeds:
                embeddings = self._encoder(x)
                logits = self._head(embeddings)
            else:
                logits = self._network.network(x)
        self.processed += len(x)
        logits, embeddings = logits.float(), None if embeddings is None else embeddings.float()
        if self._recalls:
            assert embeddings is not None
            # Right for whole batches; TurboSVM-FL's code takes the same slice for a last, shorter one.
            first, size = len(self._embedded) * len(embeddings), len(embeddings)
            self._embedded.append(embeddings.detach())
            if not self._earlier:
                return Outputs(logits, embeddings, task=self._task)
            earlier = torch.stack([epoch[first : first + size] for epoch in self._earlier])
        if self._frozen is None:
            return Outputs(logits, embeddings, earlier_embeddings=earlier, task=self._task)
        with self._computing:
            computed = self._frozen.outputs(x)
        self.compared += len(computed) * len(x)
        references = {
            name: Outputs(z.float(), embedded.float(), task=self._task) for name, (embedded, z) in computed.items()
        }
        return Outputs(logits, embeddings, references, earlier, self._task)

    @property
    def _computing(self) -> AbstractContextManager[object]:
        return computing(self._precision, self._network.vector.device)

    def end_epoch(self) -> None:
        """Keep the epoch's embeddings for later epochs, if the strategy requests them."""
        if self._recalls:
            self._earlier.append(torch.cat(self._embedded))
            self._embedded.clear()
