"""Label distributions that the server infers from the clients' first models, without being told anything."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge
from pydantic.dataclasses import dataclass

from fedrun.clustering.base import Clustering, Place, Sent
from fedrun.clustering.kmeans import check_number, clustered
from fedrun.errors import InputError
from fedrun.parameters import Layout
from fedrun.randomness import generator
from fedrun.recipe import STRICT

NOISE_BATCH = 500
"""Random inputs per forward pass."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Inferred(Clustering):
    """In the first round all clients train the common model; K-means on what their models tell of their labels.

    The same local models are then averaged within their clusters, so that the round counts.

    Attributes:
        clusters: K ≥ 1; None: where the curve of K-means inertias bends most.
        max_clusters: the largest K that is considered for that.
        balanced: limit the clusters' sizes to 1.2 of the mean.
    """

    infers: ClassVar[bool] = True

    clusters: Annotated[int, Ge(1)] | None
    max_clusters: Annotated[int, Ge(1)]
    balanced: bool

    @property
    def several(self) -> bool:
        return True

    def before(self, place: Place) -> torch.Tensor | None:
        check_number(self.clusters, len(place.clients))
        return None

    def inferred(self, place: Place, distributions: torch.Tensor) -> torch.Tensor:
        # Of a client whose training diverged nothing is known.
        known = distributions.isfinite().all(1, keepdim=True)
        vectors = torch.where(known, distributions, 1 / distributions.shape[1])
        return clustered(vectors, self.clusters, self.max_clusters, self.balanced, place.seed)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class RandomInputs(Inferred):
    """FedConcat-ID: v_k is the mean softmax output of the client's model on random inputs.

    The inputs are uniform on [0, 1] in the space that the network reads (random symbols for texts), the same for all
    clients (the authors draw anew for each), and the network is in evaluation mode (theirs is in training mode).

    Attributes:
        inputs: how many random inputs; 10 000 in the paper.
    """

    inputs: Annotated[int, Ge(1)]

    def distribution(self, place: Place, initial: torch.Tensor, sent: Sent) -> torch.Tensor:
        network, samples = place.network, place.samples
        network.load(sent.model)
        module = network.network.eval()
        example = samples.encoding(samples.inputs[:1])
        draw = generator(place.seed, "clusters/inputs")
        total = torch.zeros(network.layout.classes, dtype=torch.float64)
        with torch.no_grad():
            for first in range(0, self.inputs, NOISE_BATCH):
                shape = (min(NOISE_BATCH, self.inputs - first), *example.shape[1:])
                if example.is_floating_point():
                    noise = torch.rand(shape, generator=draw)
                else:
                    noise = torch.randint(int(samples.inputs.max()) + 1, shape, generator=draw)
                total += torch.softmax(module(noise.to(samples.device)), 1).sum(0).cpu()
        return total / self.inputs


@dataclass(frozen=True, kw_only=True, config=STRICT)
class BiasMovement(Inferred):
    """FedConcat-IB: v_k from how the head's bias has moved (Ramakrishna, Dan, AISec 2022).

    Attributes:
        formula: ``published``: v = (b − b_0) (1 − ρ) / (η steps) + softmax(b_0) with ρ the momentum, because
            b − b_0 = −η Σ_steps (mean softmax − label share); ``softmax_bias``: softmax(b), which is what the authors'
            code clusters, since its b_0 is a view of b.
    """

    formula: Literal["published", "softmax_bias"]

    def before(self, place: Place) -> torch.Tensor | None:
        bias_of(place.network.vector, place.network.layout)  # refused before a round has been wasted
        return super().before(place)

    def distribution(self, place: Place, initial: torch.Tensor, sent: Sent) -> torch.Tensor:
        layout = place.network.layout
        after, before = bias_of(sent.model, layout), bias_of(initial, layout)
        if self.formula == "softmax_bias":
            return torch.softmax(after, 0)
        rate = sent.rate * sent.steps / (1 - place.local.momentum)
        return (after - before) / rate + torch.softmax(before, 0)


def bias_of(model: torch.Tensor, layout: Layout) -> torch.Tensor:
    """The head's bias in a model's vector, float64 ``[C]``.

    Raises:
        InputError: it has none.
    """
    bias = model[layout.head][layout.classes * layout.embedding :]
    if not len(bias):
        raise InputError("strategy.clustering=bias_movement needs a model whose last layer has a bias")
    return bias.double().cpu()
