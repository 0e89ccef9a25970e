"""What a single client computes on its training samples besides its SGD steps."""

from __future__ import annotations

import torch

from fedrun.execution.context import ExecutionContext
from fedrun.models.precision import computing
from fedrun.strategies.clustering.context import FORWARD_BATCH


class BatchGradient:
    """The loss and its gradient at any model, over any of a client's training samples, in evaluation mode.

    Attributes:
        processed: samples processed so far.
    """

    def __init__(self, context: ExecutionContext, client: int) -> None:
        self._context = context
        self._client = client
        self.processed = 0

    def __call__(self, model: torch.Tensor, positions: torch.Tensor) -> tuple[float, torch.Tensor]:
        """The mean loss, and its gradient ``[T]``, at a model ``[P]``.

        Args:
            model: it replaces the loaded one.
            positions: among the client's training samples, int64 ``[b]``.
        """
        network, samples = self._context.network, self._context.samples
        network.load(model)
        inputs, targets = samples.gather(self._context.clients[self._client][positions.cpu()])
        module = network.network.eval()
        loss = samples.task.mean_loss(module(samples.encoding(inputs)), targets)
        self.processed += len(positions)
        return loss.item(), network.backward(loss).clone()


def class_means(context: ExecutionContext, client: int) -> torch.Tensor:
    """The mean embedding of each class over a client's training samples, under the loaded model in evaluation mode.

    float32 ``[classes, d]``; zeros for classes that the client does not hold.
    """
    network, samples = context.network, context.samples
    encoder, layout = network.network.get_submodule("encoder").eval(), network.layout
    sums = torch.zeros(layout.classes, layout.embedding, device=samples.device)
    counts = torch.zeros(layout.classes, 1, device=samples.device)
    with torch.no_grad(), computing(context.local.precision, samples.device):
        for part in torch.split(context.clients[client], FORWARD_BATCH):
            inputs, labels = samples.gather(part)
            embeddings = encoder(samples.encoding(inputs)).float()
            sums.index_add_(0, labels, embeddings)
            counts.index_add_(0, labels, torch.ones_like(labels, dtype=counts.dtype)[:, None])
    return sums / counts.clamp_min(1)
