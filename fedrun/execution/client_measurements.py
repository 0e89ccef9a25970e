"""The computations of clients on their training samples besides their SGD steps."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from fedrun.data.federation import ClientIndices
from fedrun.data.offsets import offsets_of
from fedrun.execution.client_training import train_client
from fedrun.execution.context import CohortJob, ExecutionContext
from fedrun.models.inference import FORWARD_BATCH, evaluate, labelled_embeddings, training_losses
from fedrun.models.precision import computing
from fedrun.strategies.client_info import ClientInfo, LabelledEmbeddings
from fedrun.strategies.sgd import SGD
from fedrun.strategies.vectors import MODEL
from fedrun.system.randomness import address
from fedrun.training.batches import processed
from fedrun.training.train import full_gradient
from fedrun.uploads.attacks.contract import check_reported


class BatchGradient:
    """The loss and its gradient at any model, over any of a client's training samples, in evaluation mode; the loaded
    model stays loaded.

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
            model: where they are computed.
            positions: positions among the client's training samples, int64 ``[b]``.
        """
        network, samples = self._context.network, self._context.samples
        inputs, targets = samples.gather(self._context.clients[self._client][positions.cpu()])
        self.processed += len(positions)
        with network.loaded(model):
            loss = samples.task.mean_loss(network.evaluated(samples.encoding(inputs)), targets)
            return loss.item(), network.backward(loss).clone()


def with_measurements(context: ExecutionContext, client: int, info: ClientInfo) -> ClientInfo:
    """A client's information, with the functions that make measurements on its training samples."""
    return replace(
        info,
        batch_gradient=BatchGradient(context, client),
        training_embeddings=training_embeddings(context, client),
        measured_statistics=partial(with_measured_statistics, context, client),
    )


def training_embeddings(context: ExecutionContext, client: int) -> LabelledEmbeddings:
    """Measures the embeddings of a client's training samples under any model; the loaded model stays loaded."""

    def embed(model: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        network, indices, precision = context.network, context.clients[client], context.local.precision
        with network.loaded(model):
            return labelled_embeddings(network, context.samples, indices, FORWARD_BATCH, precision)

    return embed


def initial_losses(context: ExecutionContext, job: CohortJob) -> torch.Tensor:
    """F_k at the model that it receives, as each of the cohort reports it, float64 ``[C, 1]``."""
    clients, received = job.cohort.tolist(), job.received[MODEL]
    if context.client.steps_before_loss or received.ndim > 1:
        each = [_initial_loss(context, job.received_by(k), client) for k, client in enumerate(clients)]
        losses = torch.tensor(each, dtype=torch.float64)
    else:
        context.network.load(received)
        parts = [context.clients[client] for client in clients]
        indices = ClientIndices(torch.cat(parts), torch.from_numpy(offsets_of([*map(len, parts)])))
        results = evaluate(context.network, context.samples, indices.samples, FORWARD_BATCH)
        losses = training_losses(results, indices)
    if context.attack is not None and job.sends_models:
        for position, client in enumerate(clients):
            if client in context.attackers:
                reported = context.attack.reported(losses[position])
                check_reported(context.attack, reported)
                losses[position] = reported
    return losses[:, None].to(context.network.vector.device)


def _initial_loss(context: ExecutionContext, job: CohortJob, client: int) -> float:
    """F_k of one client after it has adapted the model that it receives by its steps of SGD before the loss."""
    model = job.received[MODEL]
    if context.client.steps_before_loss:
        adapting = replace(context, client=SGD(), seed=address(context.seed, "tuning"))
        train_client(adapting, context.client.steps_before_loss, client, job.round, model, {})
        model = context.network.vector
    return context.results(model, client).training_loss


def initial_gradients(context: ExecutionContext, job: CohortJob) -> torch.Tensor:
    """The gradient of F_k at the model that it receives for each of the cohort, float32 ``[C, T]``."""
    gradients = []
    for position, client in enumerate(job.cohort.tolist()):
        context.network.load(job.received_by(position).received[MODEL])
        gradients.append(full_gradient(context.network, context.samples, context.clients[client], FORWARD_BATCH))
    return torch.stack(gradients)


def measured_samples(context: ExecutionContext, samples: int) -> tuple[int, int]:
    """The number of samples that a client with ``samples`` of its own processes for its measurements: forward and
    backward, forward only.
    """
    client = context.client
    adapting = processed(samples, context.local.batch_size, client.steps_before_loss)
    backward = adapting + samples * ("initial_gradient" in client.wants)
    return backward, samples * len(client.wants & {"initial_loss", "training_embeddings"})


def with_measured_statistics(context: ExecutionContext, client: int, model: torch.Tensor) -> torch.Tensor:
    """A model ``[P]`` with the means and variances of a client's training samples in its BatchNorm layers; the loaded
    model stays loaded.

    They are those of the batches of one pass, averaged over the batches. Other layers are in evaluation mode.
    """
    network, samples, indices = context.network, context.samples, context.clients[client]
    layers = [layer for layer in network.network.eval().modules() if isinstance(layer, _BatchNorm)]
    momenta = [layer.momentum for layer in layers]
    with network.loaded(model):
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # a plain average over the batches
            layer.train()
        with torch.no_grad(), computing(context.local.precision, samples.device):
            for batch in indices.tensor_split(math.ceil(len(indices) / FORWARD_BATCH)):
                network.network(samples.encoding(samples.gather(batch)[0]))
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
            layer.eval()
        return network.vector.clone()
