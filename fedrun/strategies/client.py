"""The client side of a strategy: how local training differs from plain SGD.

Functions are written for tensors whose *last* dimension is the vector: the same code serves one client (``[P]``,
``[T]``) and a vectorised cohort (``[C, P]``, ``[C, T]``). P is the length of a model's vector and T ≤ P its trainable
part, as in :mod:`fedrun.models.flat_network`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import torch

from fedrun.models.flat_network import Layout
from fedrun.strategies.vectors import MODEL, Vectors

if TYPE_CHECKING:
    from fedrun.strategies.local_training import LocalTraining

Gradient = Callable[["torch.Tensor", int], "torch.Tensor"]
"""The gradient ``[..., T]`` of a step's i-th batch at any parameters ``[..., T]``; a fresh tensor."""


@dataclass(frozen=True)
class ClientInfo:
    """What a client knows of itself before a round's training; ``...`` is nothing, or ``C`` for a stacked cohort.

    Attributes:
        trainable: T, the number of trainable parameters.
        samples: n_k, training samples, float32 ``[..., 1]``.
        share: ω_k = n_k N / Σ_j n_j over all N clients (1 where all hold equally many), float32 ``[..., 1]``.
        steps: K_k, the SGD steps this client makes in the round, float32 ``[..., 1]``.
        mean_steps: K̄, the steps of a client that holds the mean number of samples: E ⌈mean n_k / B⌉.
        lr: η_t, the learning rate of the round.
        initial_lr: η_0, the learning rate before any decay.
        momentum: ρ of the local SGD.
        label_counts: training samples per class, float32 ``[..., classes]``; only for halves that ask
            (:attr:`ClientStrategy.counts_labels`).
        initial_loss: F_k at the broadcast model, over all of the client's training samples and in evaluation mode,
            float64 ``[..., 1]``, as the client reports it; only for halves that ask
            (:attr:`ClientStrategy.measures_initial_loss`).
        initial_gradient: the gradient of that loss, float32 ``[..., T]``; only for halves that ask
            (:attr:`ClientStrategy.measures_initial_gradient`).
        threshold: ρ_k, the training loss below which the global model appeals to the client, float64 ``[..., 1]``; only
            for halves that ask (:attr:`ClientStrategy.knows_threshold`).
        mixture: what each of several models counts for the client, float32 ``[..., M]``; None where there is one model.
        head: which entries of a model's vector are the head's; None where the model is not a network.
        start: where local training started, ``[..., P]``: the broadcast model, moved as :meth:`ClientStrategy.start`
            and an idle displacement have it (FedUmf); None before :meth:`ClientStrategy.finish`.
    """

    trainable: int
    samples: torch.Tensor
    share: torch.Tensor
    steps: torch.Tensor
    mean_steps: int
    lr: float
    initial_lr: float
    momentum: float
    label_counts: torch.Tensor | None = None
    initial_loss: torch.Tensor | None = None
    initial_gradient: torch.Tensor | None = None
    threshold: torch.Tensor | None = None
    mixture: torch.Tensor | None = None
    head: slice | None = None
    start: torch.Tensor | None = None

    def of(self, positions: int | list[int]) -> ClientInfo:
        """One client of a stacked cohort, or several."""

        def some(stacked: torch.Tensor | None) -> torch.Tensor | None:
            return None if stacked is None else stacked[positions]

        return replace(
            self,
            samples=self.samples[positions],
            share=self.share[positions],
            steps=self.steps[positions],
            label_counts=some(self.label_counts),
            initial_loss=some(self.initial_loss),
            initial_gradient=some(self.initial_gradient),
            threshold=some(self.threshold),
            mixture=some(self.mixture),
        )


@dataclass(frozen=True)
class LinearCorrection:
    """What is added to the gradient at a model y, where that is linear in y: strength · y + shift.

    A step by such a gradient need not lay it down: see :func:`fedrun.training.sgd.linear_update`.

    Attributes:
        shift: float32 ``[..., T]``.
        strength: float32 ``[..., 1]``; None: 0.
        decays: whether strength · y is added like the optimizer's own weight decay, after gradient clipping.
    """

    shift: torch.Tensor
    strength: torch.Tensor | None = None
    decays: bool = False

    def add_to(self, gradient: torch.Tensor, model: torch.Tensor) -> None:
        """Add to the gradient ``[..., T]`` at this model, in place, what comes before gradient clipping."""
        gradient.add_(self.shift)
        if self.strength is not None and not self.decays:
            gradient.addcmul_(model, self.strength)

    @property
    def decay(self) -> torch.Tensor | None:
        """The strength, if it is a weight decay."""
        return self.strength if self.decays else None


class ClientStrategy:
    """Plain local SGD, and the hooks by which a strategy changes it.

    Class attributes (torch-free, so that a configuration can be checked for halves that do not fit together):

    Attributes:
        needs: names the server must broadcast beside the model.
        sends: names the client uploads.
        remembers: names of vectors ``[T]`` kept between a client's rounds; zero until it first takes part.
        remembers_models: names of vectors ``[P]`` kept likewise.
        remembers_heads: names of vectors ``[h]``, the head's entries, kept likewise.
        compares: names of constants that are models ``[P]``; every batch is also embedded by their encoders, frozen and
            in evaluation mode, for :meth:`contrast`.
        relies_on: sums over all clients' memories that the server must keep account of and use (see
            :attr:`ServerStrategy.maintains`), without which local training goes astray.
        counts_labels: whether :attr:`ClientInfo.label_counts` is wanted.
        measures_initial_loss: whether :attr:`ClientInfo.initial_loss` is wanted, at the cost of a forward pass over all
            of the client's samples.
        measures_initial_gradient: likewise for :attr:`ClientInfo.initial_gradient`, forward and backward.
        knows_threshold: whether :attr:`ClientInfo.threshold` is wanted.
        tunes_first: SGD steps by which the client adapts the broadcast model before it measures its initial loss. Local
            training begins at the broadcast model all the same.
        passes: how often each batch of a step is processed, forward and backward: one batch, once, but with
            :meth:`direction`.
        trains_beside: whether :meth:`direction` also changes constants, as a second model in training does.
        shuffles: whether samples are reshuffled for every epoch.
        recalls: whether :meth:`contrast` is also given the batch's embeddings of this round's earlier epochs; in the
            first, which has none, it is not asked.
        keeps_momentum: whether the optimizer's momentum survives from round to round, in the client's memory.
        personal: name of the vector in a client's memory that makes the client's own model (see :meth:`own_model`), by
            which it is evaluated instead of the global one.
        keeps_head: whether the head stays with the client, so that it does not count as sent, in either direction.
        pools: whether the data of all clients are brought to one place.
        communicates: whether models travel, and so count as costs.
    """

    needs: ClassVar[frozenset[str]] = frozenset()
    sends: ClassVar[frozenset[str]] = frozenset({MODEL})
    remembers: ClassVar[frozenset[str]] = frozenset()
    remembers_models: ClassVar[frozenset[str]] = frozenset()
    remembers_heads: ClassVar[frozenset[str]] = frozenset()
    compares: ClassVar[tuple[str, ...]] = ()
    relies_on: ClassVar[frozenset[str]] = frozenset()
    counts_labels: ClassVar[bool] = False
    measures_initial_loss: ClassVar[bool] = False
    knows_threshold: ClassVar[bool] = False
    passes: ClassVar[tuple[int, ...]] = (1,)
    trains_beside: ClassVar[bool] = False
    shuffles: ClassVar[bool] = True
    recalls: ClassVar[bool] = False
    keeps_momentum: ClassVar[bool] = False
    personal: ClassVar[str | None] = None
    keeps_head: ClassVar[bool] = False
    pools: ClassVar[bool] = False
    communicates: ClassVar[bool] = True

    @property
    def measures_initial_gradient(self) -> bool:
        return False

    @property
    def tunes_first(self) -> int:
        return 0

    @property
    def directs(self) -> bool:
        """Whether steps are taken along :meth:`direction`."""
        return type(self).direction is not ClientStrategy.direction

    @property
    def takes_the_gradient(self) -> bool:
        """Whether a step is taken along the gradient of the loss, neither replaced nor corrected but by a pull."""
        return not self.directs and type(self).correct is ClientStrategy.correct

    def check(self, local: LocalTraining) -> None:
        """Refuse settings of the local training that this half cannot work with.

        Raises:
            InputError: naming the key and what is allowed.
        """

    def start(self, received: Vectors, memory: Vectors, client: ClientInfo) -> torch.Tensor:
        """The model ``[..., P]`` at which local training starts: the broadcast one."""
        return received[MODEL]

    def own_model(self, model: torch.Tensor, kept: torch.Tensor, layout: Layout) -> torch.Tensor:
        """A client's own model ``[P]``, where :attr:`personal` is given.

        Args:
            model: the global one, ``[P]``.
            kept: what the client remembers under the name ``personal``: its own model.
            layout: where things lie in a model's vector.
        """
        return kept

    def constants(self, received: Vectors, memory: Vectors, client: ClientInfo) -> Vectors:
        """What stays fixed during a client's local training, computed once for the hooks below.

        Each is ``[..., m]`` with some m, or ``[m]`` where it is the same for every client.
        """
        return {}

    def loss(self, logits: torch.Tensor, targets: torch.Tensor, constants: Vectors) -> torch.Tensor:
        """The loss of every sample of one client's batch: cross-entropy.

        Always called for a single client (the vectorised executor maps it over the cohort).

        Args:
            logits: ``[B, classes]``.
            targets: int64 ``[B]``.
            constants: the client's own, ``[m]`` each.

        Returns:
            ``[B]``.
        """
        return torch.nn.functional.cross_entropy(logits, targets, reduction="none")

    def contrast(self, embeddings: torch.Tensor, others: Vectors, constants: Vectors) -> torch.Tensor:
        """What is added to the loss of every sample, ``[B]``, where :attr:`compares` names models.

        Args:
            embeddings: of the batch under the model in training, ``[B, d]``.
            others: of the same batch under each of the models to compare with, ``[B, d]``, without gradient.
            constants: the client's own.
        """
        raise NotImplementedError

    def linear_correction(self, constants: Vectors) -> LinearCorrection | None:
        """What is added to every gradient of a client's local training, if that is linear in the model; None: nothing.

        Asked for once, before the first step.
        """
        return None

    def correct(self, gradient: torch.Tensor, model: torch.Tensor, constants: Vectors) -> None:
        """Change the gradient ``[..., T]`` in place in any other way, given the current model ``[..., T]``."""

    def direction(self, gradient: Gradient, model: torch.Tensor, constants: Vectors) -> torch.Tensor:
        """What takes the gradient's place in a step ``[..., T]``, for halves that define it.

        Every other half's steps follow the gradient of one batch.

        Args:
            gradient: of the step's batches 0, 1, .., at any parameters.
            model: the current trainable part ``[..., T]``.
            constants: from :meth:`constants`.
        """
        raise NotImplementedError

    def finish(
        self, model: torch.Tensor, received: Vectors, memory: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        """What the client sends up, and what it remembers.

        Args:
            model: ``[..., P]`` after local training.
            received: the broadcast.
            memory: what the client remembered before this round, ``[..., T]``, ``[..., P]`` or ``[..., h]`` each.
            constants: from :meth:`constants`; those that were computed there may be overwritten now.
            client: what the client knows of itself.

        Returns:
            The uploads, exactly what is sent (a vector ``[..., m]`` for each name in ``sends``), and the new memory
            (``[..., T]`` for each in ``remembers``, ``[..., P]`` in ``remembers_models``, ``[..., h]`` in
            ``remembers_heads``).
        """
        return {MODEL: model}, {}
