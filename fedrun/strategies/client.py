"""The client side of a strategy: how local training differs from plain SGD.

Hooks are written for tensors whose *last* dimension is the vector: the same code serves one client (``[P]``, ``[T]``)
and a vectorised cohort (``[C, P]``, ``[C, T]``). P is the length of a model's vector and T ≤ P its trainable part, as
in :mod:`fedrun.models.flat_network`. The broadcast, which all clients share, has no dimension of clients: ``[m]`` each,
the model ``[P]``; the model is ``[..., P]`` with each client's own private entries, or if the server sends each client
its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol

import torch

from fedrun.data.tasks.base import Task
from fedrun.data.tasks.classification import CLASSIFICATION
from fedrun.models.flat_network import Layout
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.client_state import OPTIMIZER, PRIVATE
from fedrun.strategies.local_training import LocalTraining
from fedrun.strategies.vectors import MODEL, Vectors


class Gradient(Protocol):
    """The gradient of a step's batches."""

    def __call__(self, parameters: torch.Tensor, batch: int, *, moves_buffers: bool = True) -> torch.Tensor:
        """The gradient ``[..., T]`` of the step's batch 0, 1, .. at any parameters ``[..., T]``; a new tensor.

        Args:
            parameters: where the gradient is computed.
            batch: its number in the step.
            moves_buffers: whether the pass changes buffers, such as BatchNorm's running statistics.
        """


class Network(Protocol):
    """A client's network with its current parameters."""

    def __call__(self, inputs: torch.Tensor) -> Outputs:
        """The outputs for encoded inputs ``[n, ...]``, with all that the strategy requests."""


Measurement = Literal[
    "label_counts",
    "initial_loss",
    "initial_gradient",
    "threshold",
    "initial_model",
    "batch_gradient",
    "training_embeddings",
    "embeddings",
    "earlier_embeddings",
]
"""What a client strategy can request in :attr:`ClientStrategy.wants`: the attribute of :class:`ClientInfo` (the first
seven) or of :class:`Outputs` (the last two) that has this name.
"""

EMBEDDINGS = frozenset({"embeddings", "earlier_embeddings"})
"""What client strategies want whose loss compares the head's inputs."""

EvaluatedModel = Literal["global", "own", "tuned"]
"""Which model a client is evaluated by: the global one, its own, or the global one after its own tuning."""

Averaging = Literal["samples", "clients"]
"""How accuracies are averaged: over all clients' test samples, or plainly over clients."""


Hook = Literal["absent", "batch_loss", "direction", "frozen", "loss", "own_model", "private"]
"""A method of a client strategy that few strategies override."""


@dataclass(frozen=True)
class LinearCorrection:
    """A correction of the gradient that is linear in the model y: strength · y + shift.

    The trainer applies such a correction without an extra pass over the gradient: see
    :func:`fedrun.training.optimizer_step.linear_update`.

    Attributes:
        shift: float32 ``[..., T]``.
        strength: float32 ``[..., 1]``; None: 0.
        decays: whether strength · y is added like the optimizer's own weight decay, after gradient clipping.
    """

    shift: torch.Tensor
    strength: torch.Tensor | None = None
    decays: bool = False

    def add_to(self, gradient: torch.Tensor, model: torch.Tensor) -> None:
        """Add the part that precedes gradient clipping to the gradient ``[..., T]`` at this model, in place."""
        if self.strength is None or self.decays:
            gradient.add_(self.shift)
        else:
            # Product and sum are rounded one after the other, so that the sum is exactly 0 where the correction is 0.
            # From the rounding error of a fused multiply-add, Adam would make a full step.
            gradient.add_((model * self.strength).add_(self.shift))


@dataclass(frozen=True)
class Outputs:
    """What a network computes for one batch of B samples.

    Attributes:
        logits: float32 ``[B, classes]``; of other tasks than classification the outputs, ``[B, ...]``.
        embeddings: the inputs of the head, float32 ``[B, d]``; only for strategies that request ``embeddings``.
        references: the outputs of the same batch under each of :attr:`ClientStrategy.reference_models`, without
            gradient and in evaluation mode; empty in the first epoch for strategies that request
            ``earlier_embeddings``.
        earlier_embeddings: embeddings of the same positions of the batch in this round's e earlier epochs, without
            gradient, ``[e, B, d]``; None in the first epoch, and for strategies that do not request them.
        task: task of the dataset.
    """

    logits: torch.Tensor
    embeddings: torch.Tensor | None = None
    references: Mapping[str, Outputs] = field(default_factory=dict)
    earlier_embeddings: torch.Tensor | None = None
    task: Task = CLASSIFICATION


class ClientStrategy:
    """Plain local SGD, and the hooks by which a strategy changes it.

    The attributes may be properties that depend on hyper-parameters. They must not use torch: they are compared with
    the server strategy's before anything is loaded.

    Attributes:
        needs: names that the server must broadcast besides the model, or maintain (:attr:`ServerStrategy.maintains`).
        sends: names that the client uploads; empty: the client does not communicate.
        wants: measurements that the executor makes for the client.
        reference_models: names of constants that are models ``[P]``; :meth:`loss` receives their outputs, too.
        needs_classes: whether it requires a classification task; by default if it :attr:`wants` labels.
        passes: one number per batch of a step: how many forward and backward passes it gets at most. ``(1,)``: one
            batch, one gradient. Anything else needs a :meth:`direction` that calls ``gradient`` that often, or a
            :meth:`batch_loss` that calls ``network`` that often. Costs and virtual time are predicted from it.
        assumes_sgd: whether the algorithm reads gradients off a client's displacement, or makes its own SGD steps
            besides the optimizer's; then ``local.optimizer`` must be ``sgd``.
        reported: the accuracy that the strategy's paper reports: of which models, and how averaged. The default is the
            accuracy over all test samples, of clients' own models if they have some.
        evaluates_newcomers: whether :meth:`own_model` also gives the model of a client that has not taken part yet;
            otherwise the global model evaluates such a client.
        steps_before_loss: SGD steps by which the client adapts the received model before it measures its
            ``initial_loss``. Local training begins at the received model all the same.
        keeps_optimizer: whether a client keeps the optimizer's state between its rounds, as
            :data:`fedrun.strategies.client_state.OPTIMIZER`; otherwise it is reset in every round.
    """

    reference_models: ClassVar[tuple[str, ...]] = ()

    @property
    def evaluates_newcomers(self) -> bool:
        return False

    @property
    def reported(self) -> tuple[EvaluatedModel, Averaging]:
        return ("own" if is_personal(self) else "global"), "samples"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset()

    @property
    def sends(self) -> frozenset[str]:
        return frozenset({MODEL})

    @property
    def wants(self) -> frozenset[Measurement]:
        return frozenset()

    @property
    def needs_classes(self) -> bool:
        return not self.wants.isdisjoint(("label_counts", "training_embeddings"))

    @property
    def passes(self) -> tuple[int, ...]:
        return (1,)

    @property
    def steps_before_loss(self) -> int:
        return 0

    @property
    def assumes_sgd(self) -> bool:
        return False

    @property
    def keeps_optimizer(self) -> bool:
        return False

    def check(self, local: LocalTraining) -> None:
        """Reject settings of the local training that this strategy cannot work with.

        Raises:
            InputError: naming the key and what is allowed.
        """

    def absent(self, layout: Layout, clients: torch.Tensor) -> torch.Tensor:
        """The number of model entries that each of these clients (int64 ``[C]``) lacks, int64 ``[C]``; 0 by default.

        They are not counted as sent in either direction, so all clients must have the same values there without
        communication. Called once for all clients, before the first round.

        Raises:
            InputError: the strategy cannot work with the model.
        """
        return torch.zeros(len(clients), dtype=torch.int64)

    def client_state(self, layout: Layout) -> dict[str, int]:
        """The lengths of the vectors that a client keeps between its rounds, by name; zero until :meth:`finish` has
        returned them for the first time.
        """
        return {}

    def carried(self, layout: Layout) -> slice:
        """The parameters whose values from earlier rounds a client combines with a later broadcast; empty: none.

        The server must not change what these parameters mean from round to round. By default they are all, if a vector
        of the client state has the length of a model or of its parameters, or the client keeps the optimizer's state. A
        strategy that uses earlier models only as a whole, such as MOON, overrides it.
        """
        lengths = self.client_state(layout).values()
        carries = self.keeps_optimizer or not {layout.trainable, layout.size}.isdisjoint(lengths)
        return slice(0, layout.trainable if carries else 0)

    def private(self, layout: Layout) -> torch.Tensor | None:
        """Which entries of the model never leave the client, bool ``[P]``; None: the whole model is shared.

        The executor keeps them: every hook receives the model with the client's own private entries, and the upload
        has those of the received model. Private entries are neither counted as sent nor changed by attacks.
        """
        return None

    def frozen(self, layout: Layout, epoch: int) -> torch.Tensor | None:
        """Which parameters do not move in an epoch (0, 1, ..) of local training, bool ``[T]``; None: all move.

        Their gradient counts as zero, also in gradient clipping, and they have neither momentum nor weight decay. A
        step whose batches lie in two epochs belongs to the later one.
        """
        return None

    def start(self, received: Vectors, client_state: Vectors, constants: Vectors, client: ClientInfo) -> torch.Tensor:
        """The model ``[..., P]`` at which local training starts: the received one."""
        return received[MODEL]

    def own_model(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> torch.Tensor:
        """The model ``[P]`` by which a client is evaluated.

        Args:
            received: the newest broadcast, with the global model that is evaluated, or the model that the server would
                send to the client now, ``[P]``.
            client_state: the client's state.
            client: its information in the next round, with :attr:`ClientInfo.batch_gradient`,
                :attr:`ClientInfo.training_embeddings` and :attr:`ClientInfo.measured_statistics`, but without the
                threshold and the initial model.
        """
        private = self.private(client.layout)
        if private is None:
            return received[MODEL]
        own = received[MODEL].clone()
        own[private.to(own.device)] = client_state[PRIVATE]
        return own

    def constants(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> Vectors:
        """Vectors that the hooks below use in this round's local training.

        ``[..., m]`` each, or ``[m]`` if all clients share it: a matrix that they share is flattened, a number is
        ``[1]``. Only :meth:`direction` may change them, in place; then a vector must be each client's own, also if it
        begins at a shared one: ``received["v"].expand(*client.clients.shape, -1).clone()``.
        """
        return {}

    def loss(self, outputs: Outputs, targets: torch.Tensor, constants: Vectors) -> torch.Tensor:
        """The loss of every sample of one client's batch, ``[B]``: the task's, such as cross-entropy.

        Always called for a single client (the vectorised executor maps it over the cohort).

        Args:
            outputs: outputs of the network for the batch.
            targets: int64 ``[B]``; of other tasks than classification ``[B, ...]``.
            constants: the client's own, ``[m]`` each.
        """
        return outputs.task.loss(outputs.logits, targets)

    def batch_loss(
        self, network: Network, inputs: torch.Tensor, targets: torch.Tensor, constants: Vectors
    ) -> torch.Tensor:
        """The loss of every sample of a client's batch, ``[B]``: :meth:`loss` of the network's outputs.

        A strategy that trains on changed or additional inputs overrides it. It then trains in process only, one client
        at a time.

        Args:
            network: computes outputs with their graph. Every call counts as a forward and backward pass over its
                inputs. The training score is that of the first B outputs of the first call.
            inputs: encoded inputs ``[B, ...]``.
            targets: as in :meth:`loss`.
            constants: the client's own, ``[m]`` each.
        """
        return self.loss(network(inputs), targets, constants)

    def linear_correction(self, constants: Vectors) -> LinearCorrection | None:
        """The correction of every gradient of the local training, if it is linear in the model; None: no correction.

        Called before the first step; the vectorised executor calls it again for the clients that still train.
        """
        return None

    def direction(self, gradient: Gradient, model: torch.Tensor, constants: Vectors) -> torch.Tensor:
        """The direction that replaces the gradient in a step, ``[..., T]``; a new tensor.

        Args:
            gradient: computes the gradient of the step's batches 0, 1, .. (one for each of :attr:`passes`), at any
                parameters.
            model: the current parameters ``[..., T]``.
            constants: the result of :meth:`constants`. Those that are trained along with the model are updated here, in
                place.
        """
        return gradient(model, 0)

    def finish(
        self, model: torch.Tensor, received: Vectors, client_state: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        """The client's uploads and its next state.

        Args:
            model: ``[..., P]`` after local training.
            received: the broadcast.
            client_state: before this round, ``[..., m]`` each with the lengths of :meth:`client_state`.
            constants: the result of :meth:`constants`.
            client: information about the client, with :attr:`ClientInfo.start`.

        Returns:
            The uploads (exactly what is sent: a vector ``[..., m]`` for each name in :attr:`sends`), and the next state
            (a float32 vector for each name in :meth:`client_state`). Models are uploaded in float32; other uploads may
            be of any floating-point type.
        """
        return {MODEL: model}, {}

    def acknowledge(self, client_state: Vectors, sent: Vectors, arrived: Vectors, client: ClientInfo) -> Vectors:
        """The client's next state if compression has changed its uploads.

        If the server follows the mean of client states, they must change by what the server received.

        Args:
            client_state: one client's result of :meth:`finish`; it may be overwritten.
            sent: the uploads from :meth:`finish`.
            arrived: those that the server receives.
            client: the client's own information.
        """
        return client_state


def state_names(strategy: ClientStrategy, layout: Layout) -> frozenset[str]:
    """The names of the vectors that a strategy keeps for a client, which holds none until it has taken part."""
    return frozenset({*strategy.client_state(layout), PRIVATE, *([OPTIMIZER] if strategy.keeps_optimizer else [])})


def is_personal(strategy: ClientStrategy) -> bool:
    """Whether clients are evaluated by models of their own: ``private`` or ``own_model`` is overridden."""
    return overrides(strategy, "private", "own_model")


def trains_global_model(strategy: ClientStrategy) -> bool:
    """Whether the server's model is trained: clients have no models of their own, or send their models all the same."""
    return not is_personal(strategy) or MODEL in strategy.sends


def compares_embeddings(strategy: ClientStrategy) -> bool:
    """Whether the loss compares embeddings, or outputs with those of reference models."""
    return bool(strategy.reference_models) or not EMBEDDINGS.isdisjoint(strategy.wants)


def overrides(strategy: ClientStrategy, *hooks: Hook) -> bool:
    """Whether a strategy overrides one of these hooks. If it does not, the executors can take a faster path."""
    return any(getattr(type(strategy), hook) is not getattr(ClientStrategy, hook) for hook in hooks)
