"""Label distributions that the server infers from the clients' first models, without reports from the clients."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Annotated, Literal

import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.clustering.context import TrainingContext
from fedrun.strategies.clustering.kmeans import check_number
from fedrun.strategies.clustering.label_clusters import LabelClusters, evenly
from fedrun.system.errors import InputError
from fedrun.system.randomness import generator

NOISE_BATCH = 500
"""Random inputs per forward pass."""


@config_class
class Inferred(LabelClusters):
    """In the first round all clients train the common model; K-means on estimates of their labels.

    The same local models are then averaged within their clusters, so no training is wasted.

    With ``by=labels``, a client has the labels whose logits increased when its head was trained. For a sample with
    embedding h, an SGD step adds a multiple of ([y = c] − p_c) h to row c of the head. If no coordinate of an embedding
    is negative, as after ReLU, every step decreases the logit of a label that the client lacks, for any input, and
    increases the logit of a label it has until p_c equals the label's share. The result is the set of labels that are
    more frequent than the common model predicts (about 1/C). For a client with equal shares of all labels, some
    logits increase by chance.
    """

    @abstractmethod
    def distribution(
        self, context: TrainingContext, initial: torch.Tensor, model: torch.Tensor, steps: int
    ) -> torch.Tensor:
        """v_k, the estimate of a client's label distribution from its model, float64 ``[C]``."""

    @abstractmethod
    def moved(self, context: TrainingContext, initial: torch.Tensor, model: torch.Tensor) -> torch.Tensor:
        """The change of a client's logits by the training of its head, float64 ``[C]``."""

    def before(self, context: TrainingContext) -> torch.Tensor | None:
        check_number(self.clusters, len(context.clients))
        return None

    def estimate(
        self, context: TrainingContext, initial: torch.Tensor, model: torch.Tensor, steps: int
    ) -> torch.Tensor:
        if self.by == "labels":
            return self.moved(context, initial, model)
        return self.distribution(context, initial, model, steps)

    def infer(self, context: TrainingContext, estimates: torch.Tensor) -> torch.Tensor:
        if self.by == "labels":
            return self.membership(evenly(self.labels(estimates)), context.seed)
        # A client whose training diverged has no estimate: it gets the uniform distribution.
        known = estimates.isfinite().all(1, keepdim=True)
        return self.membership(torch.where(known, estimates, 1 / estimates.shape[1]), context.seed)

    def labels(self, moved: torch.Tensor) -> torch.Tensor:
        """The labels of each client, bool ``[N, C]``, from the changes of its logits ``[N, C]``; none if its training
        diverged.
        """
        return moved > 0


@config_class
class RandomInputs(Inferred):
    """FedConcat-ID: v_k is the mean softmax output of the client's model on random inputs.

    The inputs are uniform on [0, 1] in the space that the network reads (random symbols for texts), the same for all
    clients (the authors draw new ones for each), and the network is in evaluation mode (theirs is in training mode).

    Attributes:
        inputs: number of random inputs; 10 000 in the paper.
    """

    inputs: Annotated[int, Ge(1)]

    def distribution(
        self, context: TrainingContext, initial: torch.Tensor, model: torch.Tensor, steps: int
    ) -> torch.Tensor:
        network = context.network.network
        return self._mean(context, model, lambda inputs: torch.softmax(network(inputs), 1))

    def moved(self, context: TrainingContext, initial: torch.Tensor, model: torch.Tensor) -> torch.Tensor:
        layout = context.network.layout
        after, before = (
            layout.head_rows(each[layout.head], with_bias=True).double().cpu() for each in (model, initial)
        )
        embedding = self._mean(context, model, context.network.network.get_submodule("encoder"))
        known = torch.nn.functional.pad(embedding, (0, after.shape[1] - len(embedding)), value=1.0)  # 1 for the bias
        return (after - before) @ known

    def _mean(
        self, context: TrainingContext, model: torch.Tensor, outputs: Callable[[torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        """The mean of a model's outputs ``[n, m]`` on the random inputs, float64 ``[m]``."""
        network, samples = context.network, context.samples
        network.load(model)
        network.network.eval()
        example = samples.encoding(samples.inputs[:1])
        draw = generator(context.seed, "clusters/inputs")
        total = torch.zeros((), dtype=torch.float64)
        with torch.no_grad():
            for first in range(0, self.inputs, NOISE_BATCH):
                shape = (min(NOISE_BATCH, self.inputs - first), *example.shape[1:])
                if example.is_floating_point():
                    noise = torch.rand(shape, generator=draw)
                else:
                    noise = torch.randint(int(samples.inputs.max()) + 1, shape, generator=draw)
                total = total + outputs(noise.to(samples.device)).sum(0).double().cpu()
        return total / self.inputs


@config_class
class BiasMovement(Inferred):
    """FedConcat-IB: v_k from the change of the head's bias (Ramakrishna, Dan, AISec 2022).

    Attributes:
        formula: ``published``: v = (b − b_0) (1 − ρ) / (η steps) + softmax(b_0) with ρ the momentum, because
            b − b_0 = −η Σ_steps (mean softmax − label share); ``softmax_bias``: softmax(b), which is what the authors'
            code clusters, since its b_0 is a view of b. By labels both are the same.
    """

    formula: Literal["published", "softmax_bias"]

    @property
    def assumes_sgd(self) -> bool:
        return self.formula == "published"

    def before(self, context: TrainingContext) -> torch.Tensor | None:
        bias_of(context.network.vector, context.network.layout)  # rejected before the first round
        return super().before(context)

    def distribution(
        self, context: TrainingContext, initial: torch.Tensor, model: torch.Tensor, steps: int
    ) -> torch.Tensor:
        layout = context.network.layout
        if self.formula == "softmax_bias":
            return torch.softmax(bias_of(model, layout), 0)
        # v = (b − b_0) (1 − ρ) / (η steps) + softmax(b_0)
        rate = context.local.rate(0) * steps / (1 - context.local.momentum)
        return self.moved(context, initial, model) / rate + torch.softmax(bias_of(initial, layout), 0)

    def moved(self, context: TrainingContext, initial: torch.Tensor, model: torch.Tensor) -> torch.Tensor:
        layout = context.network.layout
        return bias_of(model, layout) - bias_of(initial, layout)


def bias_of(model: torch.Tensor, layout: Layout) -> torch.Tensor:
    """The head's bias in a model's vector, float64 ``[C]``.

    Raises:
        InputError: the head has no bias.
    """
    bias = layout.head_bias(model[layout.head])
    if not len(bias):
        raise InputError("strategy.clustering=bias_movement needs a model whose last layer has a bias")
    return bias.double().cpu()
