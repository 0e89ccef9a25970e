"""The computations of a single client on its training samples besides its SGD steps."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from fedrun.execution.context import ExecutionContext
from fedrun.models.inference import labelled_embeddings
from fedrun.models.precision import computing
from fedrun.strategies.client_info import ClientInfo, LabelledEmbeddings
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
        loss = samples.task.mean_loss(network.evaluated(samples.encoding(inputs)), targets)
        self.processed += len(positions)
        return loss.item(), network.backward(loss).clone()


def measuring(context: ExecutionContext, client: int, info: ClientInfo) -> ClientInfo:
    """A client's information with its measurements on its training samples."""
    return replace(
        info,
        batch_gradient=BatchGradient(context, client),
        training_embeddings=training_embeddings(context, client),
        measured_statistics=partial(with_measured_statistics, context, client),
    )


def training_embeddings(context: ExecutionContext, client: int) -> LabelledEmbeddings:
    """Measures the embeddings of a client's training samples under any model; the loaded model stays loaded."""

    def embed(model: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        network, loaded = context.network, context.network.vector.clone()
        network.load(model)
        indices, precision = context.clients[client], context.local.precision
        measured = labelled_embeddings(network, context.samples, indices, FORWARD_BATCH, precision)
        network.load(loaded)
        return measured

    return embed


def with_measured_statistics(context: ExecutionContext, client: int, model: torch.Tensor) -> torch.Tensor:
    """A model ``[P]`` with the means and variances of a client's training samples in its BatchNorm layers; the loaded
    model stays loaded.

    They are those of the batches of one pass, averaged over the batches. Other layers are in evaluation mode.
    """
    network, samples, indices = context.network, context.samples, context.clients[client]
    loaded = network.vector.clone()
    network.load(model)
    layers = [layer for layer in network.network.eval().modules() if isinstance(layer, _BatchNorm)]
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # a plain average over the batches
        layer.train()
    with torch.no_grad(), computing(context.local.precision, samples.device):
        for batch in indices.tensor_split(math.ceil(len(indices) / FORWARD_BATCH)):
            network.network(samples.encoding(samples.gather(batch)[0]))
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
    measured = network.vector.clone()
    network.load(loaded)
    return measured
