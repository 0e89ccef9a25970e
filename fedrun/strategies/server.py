"""The server side of a strategy: how the uploads of a cohort become the next global state."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Literal

import torch

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.idle_training import IdleTraining
from fedrun.strategies.vectors import MODEL, Vectors, on_device

Rows = Literal["none", "head", "parameters", "all"]
"""The entries of each client's model that a server strategy needs besides the weighted mean."""

Requirement = Literal["label_counts", "head", "squared_norms"]
"""What a server strategy can request in :attr:`ServerStrategy.wants`."""

Weighting = Literal["samples", "uniform"]
"""How a mean weights clients: p_k = n_k / Σ_S n_j over the round's participants S, or p_k = 1 / |S|."""

COLUMNS = 2**14
"""Entries of the clients' models that a server strategy processes at a time, to avoid a copy of all of them."""


def row_entries(rows: Rows, layout: Layout) -> slice:
    """Where the entries that a server strategy needs lie in a model's vector; for ``none`` there are none."""
    return {"none": slice(0), "head": layout.head, "parameters": slice(layout.trainable), "all": slice(None)}[rows]


@dataclass(frozen=True)
class Round:
    """The information about a round that a server strategy may use.

    Attributes:
        index: t, 0 in the first round.
        total: T, the rounds of the run under this strategy (a further phase may follow).
        clients: N, the number of clients in the federation, or in a permanent cluster.
        layout: the position of every tensor in a model's vector.
        seed: the run's seed, for :func:`fedrun.system.randomness.generator`.
        lr: η_t, the learning rate with which the clients trained.
        momentum: ρ, the momentum with which they trained.
    """

    index: int
    total: int
    clients: int
    layout: Layout
    seed: int
    lr: float
    momentum: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Senders:
    """The clients whose uploads are aggregated.

    Attributes:
        clients: int64 ``[C]``, in the order of selection.
        samples: int64 ``[C]``, training samples n_k.
        reports: the uploads that are single numbers, float64 ``[C]`` each.
        label_counts: their training samples per class, int64 ``[C, classes]``; None if not requested.
    """

    clients: torch.Tensor
    samples: torch.Tensor
    reports: Vectors = field(default_factory=dict)
    label_counts: torch.Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class CohortUpdate(Senders):
    """The result of a cohort's local training.

    Clients whose upload is not finite are left out of everything but ``excluded``. With user-level privacy the server
    strategy receives :meth:`without_participants`.

    Attributes:
        steps: int64 ``[C]``, SGD steps made; of all N clients with user-level privacy, which hides who has taken part.
        mean: weighted mean over the clients of each uploaded vector, with :meth:`ServerStrategy.weights`. The server
            strategy may overwrite them, and build the next state in their memory.
        weights: those weights, not negative, float64 ``[C]``.
        rows: ``[C, r]``, the entries of every client's model that :attr:`ServerStrategy.rows` asks for, or None.
        excluded: clients whose upload held NaN or infinity.
        loss: mean training loss over the samples processed during local training.
        score: mean of the task's score over those samples, when they were processed; of a classification the share
            predicted correctly.
        processed: a row for each participant, also for those that are left out: its number, the samples that it has
            processed forward and backward, and those in forward passes only, int64 ``[n, 3]``.
        sample_weight: the weight of the samples of these means: of most tasks their number.
        losses: mean training loss of each client over the samples that it has processed, float64 ``[C]``; NaN if their
            weights are 0.
        measures: measurements by the transforms of uploads, float64 ``[C]`` each.
        squared_norms: ‖y_k − x‖² over the parameters of each client's model as it has arrived, where x is the
            broadcast one: float64 ``[C]``; None if not requested.
        represented: the number of clients that the means represent, if it is not C: the expected cohort of a private
            round, because C itself is private.
    """

    steps: torch.Tensor
    mean: Vectors
    weights: torch.Tensor
    rows: torch.Tensor | None = None
    excluded: tuple[int, ...] = ()
    loss: float = math.nan
    score: float = math.nan
    processed: torch.Tensor = field(default_factory=lambda: torch.zeros(0, 3, dtype=torch.int64))
    sample_weight: float = 0.0
    losses: torch.Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    measures: Vectors = field(default_factory=dict)
    squared_norms: torch.Tensor | None = None
    represented: float | None = None

    @classmethod
    def empty(cls) -> CohortUpdate:
        """The update of no clients."""
        none = torch.zeros(0, dtype=torch.int64)
        return cls(clients=none, samples=none, steps=none, mean={}, weights=none.double())

    def without_participants(self) -> CohortUpdate:
        """What a server may use that must not learn who has taken part: :attr:`mean`, :attr:`steps` and
        :attr:`count`. The other fields are those of an update of no clients.
        """
        return replace(self.empty(), mean=self.mean, steps=self.steps, represented=self.count)

    @property
    def total_weight(self) -> float:
        """The sum of the weights, which does not depend on their order."""
        return math.fsum(self.weights.tolist())

    @property
    def shares(self) -> torch.Tensor:
        """p_k, the clients' shares in the means: float64 ``[C]``, with sum 1; equal ones if all weights are 0."""
        weights = self.weights if self.weights.any() else torch.ones_like(self.weights)
        return weights / math.fsum(weights.tolist())

    @property
    def count(self) -> float:
        """The number of clients that the means represent."""
        return len(self.clients) if self.represented is None else self.represented


@dataclass(frozen=True)
class ServerState:
    """The server's state between rounds; all of it is in the checkpoint.

    Attributes:
        model: the global model, ``[P]``.
        slots: the strategy's further tensors, by name (an optimizer's moments, a control variate, ...).
        transforms: the tensors of the transforms of uploads, by name. The strategy does not return them.
    """

    model: torch.Tensor
    slots: Vectors = field(default_factory=dict)
    transforms: Vectors = field(default_factory=dict)

    def to(self, device: torch.device | str) -> ServerState:
        """The same state on a device."""
        return ServerState(self.model.to(device), on_device(self.slots, device), on_device(self.transforms, device))


def uniform(senders: Senders) -> torch.Tensor:
    """The weights of a plain mean: 1 for every client, float64 ``[C]``."""
    return torch.ones(len(senders.clients), dtype=torch.float64)


class ServerStrategy(ABC):
    """How a cohort's uploads become the next global state.

    Attributes:
        needs: names that the clients must upload.
        sends: names that the server broadcasts, the model included.
        maintains: client states whose mean over all N clients this strategy keeps up to date, by names that a client
            strategy's ``needs`` may contain. Not allowed with clusterings that reassign clients.
        rows: which entries of every single client's model it needs (it always has the mean).
        needs_classes: whether it requires a classification task; by default if it :attr:`wants` labels or a head.
        wants: ``label_counts``: clients send their numbers of training samples per class, once, before training;
            ``head``: the model has a head, which the server strategy changes beyond what the clients send;
            ``squared_norms``: the server measures how far each model that it receives lies from its broadcast.
        idle_training: training of clients that are not selected; None: they do not train.
        least_uploads: the fewest uploads from which it can aggregate.
        sends_own_models: whether each client receives another model: :meth:`models_for` is overridden.
        refinable: whether the state's model may be changed after :meth:`aggregate`, because what clients receive next
            follows from it; by default if all receive the same model.
    """

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({MODEL})

    @property
    def sends(self) -> frozenset[str]:
        return frozenset({MODEL})

    @property
    def maintains(self) -> frozenset[str]:
        return frozenset()

    @property
    def rows(self) -> Rows:
        return "none"

    @property
    def needs_classes(self) -> bool:
        return not self.wants.isdisjoint(("label_counts", "head"))

    @property
    def idle_training(self) -> IdleTraining | None:
        return None

    @property
    def least_uploads(self) -> int:
        return 1

    @property
    def sends_own_models(self) -> bool:
        return type(self).models_for is not ServerStrategy.models_for

    @property
    def refinable(self) -> bool:
        return not self.sends_own_models

    @property
    def wants(self) -> frozenset[Requirement]:
        return frozenset()

    def check(self, rounds: int) -> None:
        """Reject settings that cannot work in a run of this many rounds.

        Raises:
            InputError: naming the key and what is allowed.
        """

    def prepare(self, network: torch.nn.Module) -> None:
        """Change a model's network in place before its vector is laid out: freeze parameters, add buffers.

        Raises:
            InputError: the strategy cannot work with the network.
        """

    def init(self, model: torch.Tensor, layout: Layout, clients: int) -> ServerState:
        """The state before the first round, given the initial model ``[P]`` and the number N of clients.

        ``model`` of the state is what is evaluated; :meth:`broadcast` may send another model.
        """
        return ServerState(model)

    def steps(self, state: ServerState, cohort: torch.Tensor, usual: torch.Tensor, round: Round) -> torch.Tensor:
        """The number of local steps of each of the cohort (int64 ``[C]``): ``usual``, int64 ``[C]``, by default."""
        return usual

    def weights(self, state: ServerState, senders: Senders) -> torch.Tensor:
        """Unnormalised weight of each client in the mean, float64 ``[C]``: n_k by default.

        Called once for the whole cohort. If clients upload single numbers, it is called for each client alone, because
        uploads are averaged as they arrive; then a weight must not depend on other clients. A strategy that wants label
        counts always gets the whole cohort, without :attr:`Senders.reports`.
        """
        return senders.samples.double()

    def broadcast(self, state: ServerState) -> Vectors:
        """The vectors that every client of the cohort receives: the model, and the slots that :attr:`sends` names."""
        return {MODEL: state.model, **{name: slot for name, slot in state.slots.items() if name in self.sends}}

    def models_for(self, state: ServerState, clients: torch.Tensor, layout: Layout) -> torch.Tensor | None:
        """The models that these clients (int64 ``[n]``) receive, ``[n, P]``; None: all receive the broadcast one.

        Clients are then evaluated by models of their own (:meth:`ClientStrategy.own_model`), and the state's model is
        the global one.
        """
        return None

    def unsent(self, state: ServerState, clients: torch.Tensor) -> torch.Tensor:
        """How many numbers of the broadcast each of these clients (int64 ``[n]``) saves, int64 ``[n]``; 0 by default.

        Only float buffers can be saved, because compression does not change them: a client has them already, or
        receives them as fewer numbers. Not called if there are several global models.
        """
        return torch.zeros(len(clients), dtype=torch.int64)

    @abstractmethod
    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        """The next state, with the slots of :meth:`init`, and metrics of the step to be logged under ``server/``.

        The tensors of ``state`` stay as they are.
        """


class UniformServer(ServerStrategy):
    """A server strategy that weights clients equally."""

    def weights(self, state: ServerState, senders: Senders) -> torch.Tensor:
        return uniform(senders)


@config_class
class WeightedServer(ServerStrategy):
    """A server strategy whose weights of the clients are a setting.

    Attributes:
        weighting: weights of the clients: ``samples`` or ``uniform``.
    """

    weighting: Weighting

    def weights(self, state: ServerState, senders: Senders) -> torch.Tensor:
        return senders.samples.double() if self.weighting == "samples" else uniform(senders)
