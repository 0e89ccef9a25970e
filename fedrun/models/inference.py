"""Forward passes over samples: per-sample losses and predictions, of which every metric is a sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from fedrun.data.datasets.base import is_ragged
from fedrun.data.federation import ClientIndices
from fedrun.data.samples import Samples
from fedrun.data.tasks.base import SampleResults, divisor
from fedrun.models.cuda_graphs import RecordedFunction
from fedrun.models.flat_network import FlatNetwork
from fedrun.models.precision import Precision, computing

FORWARD_BATCH = 1024
"""Samples per forward pass where clients only evaluate the broadcast model."""


def evaluate(
    network: FlatNetwork, samples: Samples, indices: torch.Tensor, batch_size: int, precision: Precision = "float32"
) -> SampleResults:
    """Run the loaded model over samples (sample numbers, int64 ``[n]``) in evaluation mode."""
    module, graphs = network.network.eval(), network.cuda_graphs

    def outputs(encoded: torch.Tensor) -> torch.Tensor:
        computed: torch.Tensor = module(encoded)
        return computed.float()

    if graphs is None or is_ragged(samples.encoding):
        with torch.no_grad(), computing(precision, samples.device):
            return _results(lambda batch: _of_batch(outputs, samples, batch), samples, indices, batch_size)

    def of_batch(batch: torch.Tensor) -> OfBatch:
        with computing(precision, samples.device):  # inside, because a recording must round the parameters itself
            return _of_batch(outputs, samples, batch)

    def recorded() -> tuple[RecordedFunction[OfBatch], Samples]:
        return RecordedFunction(graphs, of_batch, "a forward pass"), samples  # kept, so that its id is not reused

    function, _ = graphs.cached(("evaluate", id(samples), precision), recorded)
    with torch.no_grad():
        return _results(lambda batch: [part.clone() for part in function(batch)], samples, indices, batch_size)


def labelled_embeddings(
    network: FlatNetwork, samples: Samples, indices: torch.Tensor, batch_size: int, precision: Precision
) -> tuple[torch.Tensor, torch.Tensor]:
    """The embeddings ``[n, d]`` of samples under the loaded model, in evaluation mode; their labels, int64 ``[n]``."""
    encoder = network.network.eval().get_submodule("encoder")
    embeddings, labels = [], []
    with torch.no_grad(), computing(precision, samples.device):
        for batch in torch.split(indices, batch_size):
            inputs, truth = samples.gather(batch)
            embeddings.append(encoder(samples.encoding(inputs)).float())
            labels.append(truth)
    return torch.cat(embeddings), torch.cat(labels)


def ensemble(
    network: FlatNetwork,
    models: Sequence[torch.Tensor],
    samples: Samples,
    indices: torch.Tensor,
    batch_size: int,
    precision: Precision = "float32",
) -> SampleResults:
    """The results of several models ``[P]`` whose outputs are combined (:meth:`fedrun.data.tasks.base.Task.combined`),
    otherwise as :func:`evaluate`.

    The sum of the logits equals the logits of one model with the concatenated encoders, the concatenated heads and the
    sum of the biases.
    """
    module = network.network.eval()

    def summed(encoded: torch.Tensor) -> torch.Tensor:
        total = torch.zeros((), device=samples.device)
        for model in models:
            network.load(model)
            with computing(precision, samples.device):
                total = total + module(encoded).float()
        return samples.task.combined(total, len(models))

    with torch.no_grad():
        return _results(lambda batch: _of_batch(summed, samples, batch), samples, indices, batch_size)


OfBatch = Sequence["torch.Tensor"]
"""The losses, predictions and targets of a batch, ``[B, ...]`` each."""


def _of_batch(outputs_of: Callable[[torch.Tensor], torch.Tensor], samples: Samples, batch: torch.Tensor) -> OfBatch:
    """The results for sample numbers ``[B]`` of a function from encoded samples ``[B, ...]`` to outputs."""
    task = samples.task
    inputs, truth = samples.gather(batch)
    outputs = outputs_of(samples.encoding(inputs))
    predicted = task.predictions(outputs)
    if task.per_symbol:  # a batch is cut to its longest text
        predicted = torch.nn.functional.pad(predicted, (0, truth.shape[1] - predicted.shape[1]))
    return task.loss(outputs, truth), predicted, truth


def _results(
    of_batch: Callable[[torch.Tensor], OfBatch], samples: Samples, indices: torch.Tensor, batch_size: int
) -> SampleResults:
    """The results for sample numbers ``[n]``, batch by batch."""
    count = len(indices)
    numbers = indices if count else indices.new_zeros(1)  # a network may reject a batch without samples
    parts = [of_batch(batch) for batch in torch.split(numbers.to(samples.inputs.device), batch_size)]
    losses, predictions, targets = (torch.cat(some)[:count].cpu() for some in zip(*parts, strict=True))
    return SampleResults(losses, predictions, targets, samples.task)


def per_client(results: SampleResults, clients: ClientIndices) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean loss and score of each client, float64 ``[N]``, NaN for one whose samples have no weight.

    Args:
        results: those of ``clients.samples``, in that order.
        clients: the clients' samples.
    """
    weights, owners = results.weights, clients.owners
    totals = clients.sums(weights, owners)
    losses, scores = results.losses.double() * weights, results.scores * weights
    return clients.sums(losses, owners) / totals, clients.sums(scores, owners) / totals


def training_losses(results: SampleResults, clients: ClientIndices) -> torch.Tensor:
    """F_k, the mean loss of each client on training samples, float64 ``[N]``: as in training, 0 for one whose samples
    have no weight.

    Args:
        results: those of ``clients.samples``, in that order.
        clients: the clients' samples.
    """
    weights, owners = results.weights, clients.owners
    return clients.sums(results.losses.double() * weights, owners) / divisor(clients.sums(weights, owners))


def total_weights(samples: Samples, clients: ClientIndices) -> torch.Tensor:
    """The sum of the weights of each client's samples (:meth:`fedrun.data.tasks.base.Task.weights`), float64 ``[N]``:
    their number, or of texts the number of their predicted symbols.
    """
    indices = clients.samples.to(samples.targets.device)
    weights = samples.task.weights(samples.targets.index_select(0, indices))
    return clients.sizes.double() if weights is None else clients.sums(weights.cpu())
