"""Label distributions that the server infers from the clients' first models, without being told anything."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge
from pydantic.dataclasses import dataclass

from fedrun.clustering.base import Place, Sent
from fedrun.clustering.kmeans import check_number
from fedrun.clustering.label_clusters import LabelClusters, evenly
from fedrun.errors import InputError
from fedrun.parameters import Layout
from fedrun.randomness import generator
from fedrun.recipe import STRICT

NOISE_BATCH = 500
"""Random inputs per forward pass."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Inferred(LabelClusters):
    """In the first round all clients train the common model; K-means on what their models tell of their labels.

    The same local models are then averaged within their clusters, so that the round counts.

    By labels, a client has those whose logits its training has raised above the labels' mean. A step of SGD moves the
    logit of c by a multiple of [y = c] − p_c: it lowers a label that the client lacks in every step, and raises one
    that it has until p_c is the label's share. So labels count that are more frequent than the common model expects
    (about 1/C), however different the shares; of a client with equal shares of all labels some rise by chance.
    """

    infers: ClassVar[bool] = True

    @abstractmethod
    def distribution(self, place: Place, initial: torch.Tensor, sent: Sent) -> torch.Tensor:
        """v_k, what a client's model tells of the shares of its labels, float64 ``[C]``."""

    @abstractmethod
    def logits(self, place: Place, model: torch.Tensor) -> torch.Tensor:
        """What a model ``[P]`` answers, whatever it is shown, float64 ``[C]``; softmax ignores their mean."""

    def before(self, place: Place) -> torch.Tensor | None:
        check_number(self.clusters, len(place.clients))
        return None

    def told(self, place: Place, initial: torch.Tensor, sent: Sent) -> torch.Tensor:
        return self.logits(place, sent.model) if self.by == "labels" else self.distribution(place, initial, sent)

    def inferred(self, place: Place, initial: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
        if self.by == "labels":
            return self.membership(evenly(self.labels(told - self.logits(place, initial))), place.seed)
        # Of a client whose training diverged nothing is known.
        known = told.isfinite().all(1, keepdim=True)
        return self.membership(torch.where(known, told, 1 / told.shape[1]), place.seed)

    def labels(self, moved: torch.Tensor) -> torch.Tensor:
        """Which labels each client has, bool ``[N, C]``, by how its training has moved the logits ``[N, C]``; none for
        one whose training diverged.
        """
        return moved > moved.mean(1, keepdim=True)


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
        return self._mean(place, sent.model, lambda logits: torch.softmax(logits, 1))

    def logits(self, place: Place, model: torch.Tensor) -> torch.Tensor:
        return self._mean(place, model, lambda logits: logits)

    def _mean(self, place: Place, model: torch.Tensor, outputs: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """The mean of a function of the logits ``[n, C]`` on the random inputs, float64 ``[C]``."""
        network, samples = place.network, place.samples
        network.load(model)
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
                total += outputs(module(noise.to(samples.device))).sum(0).cpu()
        return total / self.inputs


@dataclass(frozen=True, kw_only=True, config=STRICT)
class BiasMovement(Inferred):
    """FedConcat-IB: v_k from how the head's bias has moved (Ramakrishna, Dan, AISec 2022).

    Attributes:
        formula: ``published``: v = (b − b_0) (1 − ρ) / (η steps) + softmax(b_0) with ρ the momentum, because
            b − b_0 = −η Σ_steps (mean softmax − label share); ``softmax_bias``: softmax(b), which is what the authors'
            code clusters, since its b_0 is a view of b. By labels both are the same.
    """

    formula: Literal["published", "softmax_bias"]

    def before(self, place: Place) -> torch.Tensor | None:
        bias_of(place.network.vector, place.network.layout)  # refused before a round has been wasted
        return super().before(place)

    def distribution(self, place: Place, initial: torch.Tensor, sent: Sent) -> torch.Tensor:
        after, before = self.logits(place, sent.model), self.logits(place, initial)
        if self.formula == "softmax_bias":
            return torch.softmax(after, 0)
        rate = sent.rate * sent.steps / (1 - place.local.momentum)
        return (after - before) / rate + torch.softmax(before, 0)

    def logits(self, place: Place, model: torch.Tensor) -> torch.Tensor:
        return bias_of(model, place.network.layout)


def bias_of(model: torch.Tensor, layout: Layout) -> torch.Tensor:
    """The head's bias in a model's vector, float64 ``[C]``.

    Raises:
        InputError: it has none.
    """
    bias = model[layout.head][layout.classes * layout.embedding :]
    if not len(bias):
        raise InputError("strategy.clustering=bias_movement needs a model whose last layer has a bias")
    return bias.double().cpu()
