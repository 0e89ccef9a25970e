"""The input of an executor, and its result for each client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch

from fedrun.strategies.client import ClientStrategy
from fedrun.strategies.client_contract import check_client_state
from fedrun.strategies.client_state import LAST, OPTIMIZER, PRIVATE, ClientStates
from fedrun.strategies.clustering.context import TrainingContext
from fedrun.strategies.contract import owner
from fedrun.strategies.idle_training import IDLE, IdleTraining
from fedrun.strategies.phase import Phase
from fedrun.strategies.server import Senders, ServerStrategy
from fedrun.strategies.vectors import MODEL, Vectors
from fedrun.system.errors import InputError
from fedrun.training.tally import Trained
from fedrun.uploads.attacks.base import Attack
from fedrun.uploads.pipeline import UploadPipeline
from fedrun.uploads.privacy.base import NoisedSteps


@dataclass(frozen=True)
class ExecutionContext(TrainingContext):
    """The part of an executor's input that is the same in all rounds.

    Attributes:
        client: the client strategy.
        noised_steps: how the steps of local training are noised; None: they are not.
        idle_training: training of clients that are not selected; None: they do not train.
        pipeline: the transforms of updates between client and server.
        attack: the behaviour of the attackers among the clients.
        attackers: their numbers.
        thresholds: returns the threshold ρ_k of every client, float64 ``[N]``, for client strategies that request it;
            None: unknown.
        initial_model: the global model before the first round, ``[P]``, if the client strategy requests it.
        stores_last_upload: whether a client's state contains the model that it sent last.
        sends_own_models: whether each client receives another model.
    """

    client: ClientStrategy
    pipeline: UploadPipeline
    noised_steps: NoisedSteps | None = None
    idle_training: IdleTraining | None = None
    attack: Attack | None = None
    attackers: frozenset[int] = frozenset()
    thresholds: Callable[[], torch.Tensor] | None = None
    initial_model: torch.Tensor | None = None
    stores_last_upload: bool = False
    sends_own_models: bool = False

    @classmethod
    def of(cls, phase: Phase, client_means: bool = False) -> ExecutionContext:
        """The context of a phase without upload transforms, attacks and idle training.

        Args:
            phase: phase of the rounds.
            client_means: whether the mean of the models that all clients sent last is evaluated.
        """
        return cls(
            network=phase.network,
            samples=phase.samples,
            clients=phase.federation.train,
            client=phase.client,
            local=phase.local,
            seed=phase.seed,
            pipeline=UploadPipeline((), phase.network.layout, phase.seed),
            stores_last_upload=phase.clustering.stores_last_upload or client_means,
            sends_own_models=phase.server.sends_own_models,
        )

    @cached_property
    def private(self) -> torch.Tensor | None:
        """The numbers of the model's private entries on the device, int64 ``[h]``; None: no private entries."""
        mask = self.client.private(self.network.layout)
        return None if mask is None else mask.nonzero().flatten().to(self.network.vector.device)

    @property
    def private_size(self) -> int:
        """The number of a model's entries that stay with the clients."""
        return 0 if self.private is None else len(self.private)

    @cached_property
    def label_counts(self) -> torch.Tensor:
        """Training samples of every client per class, int64 ``[N, classes]``, on the CPU."""
        return self.clients.class_counts(self.samples.targets.cpu(), self.samples.classes)

    def senders(self, clients: torch.Tensor, server: ServerStrategy) -> Senders:
        """The information about a cohort (int64 ``[C]``) that a server strategy may use before the uploads arrive."""
        counts = self.label_counts[clients] if "label_counts" in server.wants else None
        return Senders(clients=clients, samples=self.clients.sizes[clients], label_counts=counts)

    @cached_property
    def state_lengths(self) -> dict[str, int]:
        """The lengths of all vectors that a client keeps, by name."""
        last = {LAST: self.network.layout.size} if self.stores_last_upload else {}
        return self._joined(self.training_lengths, {**self.pipeline.client_state(self.client.sends), **last})

    @cached_property
    def training_lengths(self) -> dict[str, int]:
        """The lengths of the vectors among them that local training and the strategy's hooks use, by name, ascending.
        The others are not copied for them: there may be one for every upload.
        """
        layout = self.network.layout
        lengths = self.client.client_state(layout)
        check_client_state(self.client, lengths)
        kept = {OPTIMIZER: self.optimizer_length} if self.optimizer_length else {}
        private = {} if self.private is None else {PRIVATE: self.private_size}
        idle = {} if self.idle_training is None else {IDLE: layout.trainable}
        return dict(sorted(self._joined(lengths, {**kept, **private, **idle}).items()))

    @property
    def optimizer_length(self) -> int:
        """The length of the optimizer's state that a client keeps between its rounds; 0: it keeps none."""
        return self.local.optimizer_state(self.network.layout.trainable) if self.client.keeps_optimizer else 0

    def _joined(self, own: Mapping[str, int], added: Mapping[str, int]) -> dict[str, int]:
        """The lengths of a strategy's vectors and of those that are kept besides them.

        Raises:
            InputError: the strategy has a vector of the same name.
        """
        if taken := sorted(own.keys() & added.keys()):
            raise InputError(
                f"{owner(self.client)}.client_state: names a vector {taken[0]!r}, as fedrun does in this run; allowed: "
                "another name"
            )
        return {**own, **added}


@dataclass(frozen=True)
class ClientResult:
    """The result of one client's local training.

    Attributes:
        client: its number.
        start: ``[P]``, the model at which training started.
        model: ``[P]``, the model after training, valid until the next client's result.
        uploads: the vectors that the client sends.
        client_state: the client's next state.
        trained: counts and sums of the training.
        measures: measurements by the transforms of uploads.
    """

    client: int
    start: torch.Tensor
    model: torch.Tensor
    uploads: Vectors
    client_state: Vectors
    trained: Trained
    measures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class CohortJob:
    """The local training of a cohort.

    Attributes:
        cohort: client numbers, int64 ``[C]``.
        round: t, 0 in the first round.
        received: the server's broadcast. The model is ``[P]``, or ``[C, P]`` if the server sends each client its own.
        client_states: the states of the clients.
        steps: local steps of each, int64 ``[C]``; None: those of the settings of local training.
        sends_models: whether the trained models will be sent; attackers change only those.
        mixture: the weight of each of several models for each of the cohort, float64 ``[C, M]``.
        lost: x − x̂, the part of the server's model that rounding removed from the broadcast, of the shape of the
            model; None: no such part.
    """

    cohort: torch.Tensor
    round: int
    received: Vectors
    client_states: ClientStates
    steps: torch.Tensor | None = None
    sends_models: bool = True
    mixture: torch.Tensor | None = None
    lost: torch.Tensor | None = None

    def part(self, members: torch.Tensor) -> CohortJob:
        """The job of a part of the cohort, by positions or a mask ``[C]``."""

        def some(values: torch.Tensor | None) -> torch.Tensor | None:
            return None if values is None else values[members]

        own = self.received_by(members)
        return replace(own, cohort=self.cohort[members], steps=some(self.steps), mixture=some(self.mixture))

    def received_by(self, members: int | torch.Tensor) -> CohortJob:
        """The job with the model ``[P]`` that one of the cohort receives, by its position; of several ``[n, P]``."""
        model, lost = self.received[MODEL], self.lost
        if model.ndim == 1:
            return self
        received = {**self.received, MODEL: model[members]}
        return replace(self, received=received, lost=None if lost is None else lost[members])


Progress = Callable[[int], None]
"""Called with the number of clients that have finished their local training."""
