"""The information about the client and the round that a client strategy may use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import torch

from fedrun.models.flat_network import Layout
from fedrun.strategies.local_training import LocalTraining
from fedrun.system.randomness import generator

LabelledEmbeddings = Callable[["torch.Tensor"], "tuple[torch.Tensor, torch.Tensor]"]
"""The embeddings ``[n, d]`` of a client's n training samples under a model ``[P]``, in evaluation mode and without
gradient, and their labels, int64 ``[n]``."""

Steps = TypeVar("Steps", float, "torch.Tensor")


def effective_steps(steps: Steps, momentum: float) -> Steps:
    """‖a‖₁, the sum of the weights with which the gradients of SGD enter a displacement / η (FedNova, arXiv 2007.07481,
    section 4).

    K steps along the same gradient g move a model by −‖a‖₁ η g, because step i's direction is v_i = ρ v_{i−1} + g.

    Args:
        steps: K, also of many clients.
        momentum: ρ; without momentum ‖a‖₁ = K.
    """
    if not momentum:
        return steps
    # (K − ρ (1 − ρ^K) / (1 − ρ)) / (1 − ρ)
    power: Steps = momentum**steps
    return (steps - momentum * (1 - power) / (1 - momentum)) / (1 - momentum)


@dataclass(frozen=True)
class ClientInfo:
    """One client in one round, or C stacked clients: ``...`` is empty or ``C``.

    Attributes:
        layout: the position of every tensor in a model's vector.
        local: the settings of local training.
        seed: the run's seed.
        round: t, 0 in the first round.
        clients: the clients' numbers, int64 ``[...]``, on the CPU.
        is_new: whether the client has no state of its strategy yet, bool ``[..., 1]``.
        samples: n_k, training samples, float32 ``[..., 1]``.
        relative_size: ω_k = n_k N / Σ_j n_j over all N clients, float32 ``[..., 1]``; 1 if all have as many samples.
        steps: K_k, the SGD steps that the client makes in the round, float32 ``[..., 1]``.
        mean_steps: K̄, the steps of a client that holds the mean number of samples: E ⌈mean n_k / B⌉, or K.
        label_counts: training samples per class, float32 ``[..., classes]``. This and the next three are None unless
            requested (:attr:`fedrun.strategies.client.ClientStrategy.wants`).
        initial_loss: F_k at the received model, over all of the client's training samples and in evaluation mode,
            float64 ``[..., 1]``, as the client reports it. It costs a forward pass over the samples.
        initial_gradient: the gradient of that loss, float32 ``[..., T]``. It costs a forward and a backward pass.
        threshold: ρ_k, the training loss below which the global model appeals to the client, float64 ``[..., 1]``.
        initial_model: x_0, the global model before the first round, ``[P]``; for strategies that request it.
        batch_gradient: maps a model ``[P]`` and positions among the client's training samples (int64 ``[b]``) to their
            mean loss and its gradient ``[T]``, in evaluation mode; for strategies that request it, one client at a
            time, and in :meth:`ClientStrategy.own_model`.
        training_embeddings: maps a model ``[P]`` to the embeddings and labels of the client's training samples; for
            strategies that want it, in :meth:`ClientStrategy.finish`, one client at a time, and in
            :meth:`ClientStrategy.own_model`. It costs a forward pass over the samples, which counts once in a round.
        measured_statistics: maps a model ``[P]`` to the same model with the means and variances of the client's
            training samples in its BatchNorm layers, in :meth:`ClientStrategy.own_model`.
        mixture: the weight of each of several models for the client, float32 ``[..., M]``; None if there is only one.
        start: where local training started, ``[..., P]``; None before :meth:`ClientStrategy.finish`.
    """

    layout: Layout
    local: LocalTraining
    seed: int
    round: int
    clients: torch.Tensor
    is_new: torch.Tensor
    samples: torch.Tensor
    relative_size: torch.Tensor
    steps: torch.Tensor
    mean_steps: int
    label_counts: torch.Tensor | None = None
    initial_loss: torch.Tensor | None = None
    initial_gradient: torch.Tensor | None = None
    threshold: torch.Tensor | None = None
    initial_model: torch.Tensor | None = None
    batch_gradient: Callable[[torch.Tensor, torch.Tensor], tuple[float, torch.Tensor]] | None = None
    training_embeddings: LabelledEmbeddings | None = None
    measured_statistics: Callable[[torch.Tensor], torch.Tensor] | None = None
    mixture: torch.Tensor | None = None
    start: torch.Tensor | None = None

    @property
    def trainable(self) -> int:
        """T, the number of trainable parameters; they are the first T entries of a model."""
        return self.layout.trainable

    @property
    def lr(self) -> float:
        """η_t, the learning rate of the round."""
        return self.local.rate(self.round)

    @property
    def effective_steps(self) -> torch.Tensor:
        """‖a_k‖₁ of :func:`effective_steps`: K_k without momentum, float32 ``[..., 1]``."""
        return effective_steps(self.steps.double(), self.local.momentum).float()

    @property
    def mean_effective_steps(self) -> float:
        """‖ā‖₁ of :func:`effective_steps`, of K̄ steps: K̄ without momentum."""
        return effective_steps(float(self.mean_steps), self.local.momentum)

    def random(self, purpose: str, draw: Callable[[torch.Generator], torch.Tensor]) -> torch.Tensor:
        """Random numbers of the client, ``[..., m]`` where ``draw`` returns ``[m]``.

        They depend on the seed, the purpose, the round and the client alone.

        Args:
            purpose: distinguishes these numbers from others that the strategy draws for the same client and round.
            draw: maps a generator on the CPU to a tensor ``[m]``.
        """
        purpose, clients = f"strategy/{purpose}", self.clients.flatten().tolist()
        drawn = [draw(generator(self.seed, purpose, self.round, client)) for client in clients]
        return torch.stack(drawn).view(*self.clients.shape, -1).to(self.samples.device)

    def of(self, positions: int | list[int]) -> ClientInfo:
        """One client of a stacked cohort, or several."""

        def some(stacked: torch.Tensor | None) -> torch.Tensor | None:
            return None if stacked is None else stacked[positions]

        return replace(
            self,
            clients=self.clients[positions],
            is_new=self.is_new[positions],
            samples=self.samples[positions],
            relative_size=self.relative_size[positions],
            steps=self.steps[positions],
            label_counts=some(self.label_counts),
            initial_loss=some(self.initial_loss),
            initial_gradient=some(self.initial_gradient),
            threshold=some(self.threshold),
            mixture=some(self.mixture),
            start=some(self.start),
        )
