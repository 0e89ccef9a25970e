"""The base of executors, which run local training. Strategies do not depend on the executor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

import torch

from fedrun.execution.client_measurements import initial_gradients, initial_losses, measured_samples
from fedrun.execution.context import ClientResult, CohortJob, ExecutionContext, Progress
from fedrun.strategies.client import state_names
from fedrun.strategies.client_contract import check_acknowledged, check_constants, check_finished, check_vector
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.client_state import OPTIMIZER, PRIVATE, ClientStates
from fedrun.strategies.contract import versions
from fedrun.strategies.idle_training import IDLE
from fedrun.strategies.vectors import MODEL, Vectors
from fedrun.system.randomness import generator
from fedrun.training.batches import processed, steps_of
from fedrun.uploads.attacks.contract import check_tampered


class Executor(ABC):
    """Runs local training.

    Attributes:
        context: what is the same in all rounds.
        usual_steps: the steps of each client in a round if the server requests no others, int64 ``[N]``.
    """

    name: ClassVar[str]
    """The value of ``hardware.executor``."""

    def __init__(self, context: ExecutionContext) -> None:
        self.context = context
        clients, local, device = context.clients, context.local, context.network.vector.device
        self._batches_per_step = len(context.client.passes)
        sizes = clients.sizes.double()[:, None]
        self.usual_steps = steps_of(clients.sizes, local, self._batches_per_step)
        self._samples = sizes.float().to(device)  # [N, 1], as is the next
        self._relative_sizes = (sizes / sizes.mean()).float().to(device)
        self._mean_steps = int(steps_of(sizes.mean().ceil().long(), local, self._batches_per_step))

    @classmethod
    def unsupported(cls, context: ExecutionContext) -> str | None:
        """Why this executor does not support the work; None if it does."""
        return None

    @abstractmethod
    def client_results(self, job: CohortJob, progress: Progress = lambda done: None) -> Iterator[ClientResult]:
        """Train the cohort's clients and yield each once, in any order.

        ``progress`` is called with the number of finished clients.
        """

    def steps(self, job: CohortJob) -> torch.Tensor:
        """The local steps of each of the job's cohort, int64 ``[C]``."""
        return self.usual_steps[job.cohort] if job.steps is None else job.steps

    def batch_count(self, steps: int) -> int:
        """The number of batches that some steps use."""
        return steps * self._batches_per_step

    def infos(self, job: CohortJob) -> ClientInfo:
        """The information about the cohort's clients, stacked: tensors ``[C, ...]``."""
        context, clients, device = self.context, job.cohort, self.context.network.vector.device
        wants, layout = context.client.wants, context.network.layout
        names, thresholds = state_names(context.client, layout), None
        if "threshold" in wants and context.thresholds is not None:
            thresholds = context.thresholds()
        is_new = [names.isdisjoint(job.client_states.held.get(client, {})) for client in clients.tolist()]
        return ClientInfo(
            layout=layout,
            local=context.local,
            seed=context.seed,
            round=job.round,
            clients=clients,
            is_new=torch.tensor(is_new)[:, None].to(device),
            samples=self._samples[clients],
            relative_size=self._relative_sizes[clients],
            steps=self.steps(job).float()[:, None].to(device),
            mean_steps=self._mean_steps,
            label_counts=context.label_counts[clients].float().to(device) if "label_counts" in wants else None,
            initial_loss=initial_losses(context, job) if "initial_loss" in wants else None,
            initial_gradient=initial_gradients(context, job) if "initial_gradient" in wants else None,
            threshold=None if thresholds is None else thresholds[clients, None].to(device),
            initial_model=context.initial_model,
            mixture=None if job.mixture is None else job.mixture.float().to(device),
        )

    @cached_property
    def usual_samples(self) -> torch.Tensor:
        """The number of samples that each client processes in a round: forward and backward, forward only.

        int64 ``[N, 2]``.
        """
        context, client, sizes = self.context, self.context.client, self.context.clients.sizes
        by_size: dict[int, tuple[int, int]] = {}
        for number, size in enumerate(sizes.tolist()):
            if size not in by_size:
                batch_count = self.batch_count(int(self.usual_steps[number]))
                trained = processed(size, context.local.batch_size, batch_count, client.passes)
                # in the first epoch there are no earlier embeddings to compare with
                compared = trained - min(size, trained) if "earlier_embeddings" in client.wants else trained
                extra, forward = measured_samples(context, size)
                by_size[size] = trained + extra, len(client.reference_models) * compared + forward
        return torch.tensor([by_size[size] for size in sizes.tolist()])

    def begun(
        self, broadcast: Vectors, client_state: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors, torch.Tensor]:
        """What precedes the first step of local training.

        Args:
            broadcast: the server's, with a model ``[P]``, or ``[..., P]`` if each client receives its own.
            client_state: the clients' states, with private entries ``[..., h]``.
            client: information about the clients.

        Returns:
            The broadcast in which each client's private entries replace the global ones, what stays the same during
            local training (:meth:`ClientStrategy.constants`), and the model ``[..., P]`` at which it starts.

        Raises:
            InputError: the client strategy returns something else.
        """
        context, strategy, clients = self.context, self.context.client, client.is_new.shape[:-1]
        received, private = broadcast, context.private
        if private is not None:
            shared = broadcast[MODEL]
            model = shared.expand(*clients, -1).clone()
            model[..., private] = torch.where(client.is_new, shared[..., private], client_state[PRIVATE])
            received = {**broadcast, MODEL: model}
        constants = strategy.constants(received, client_state, client)
        check_constants(strategy, constants, client.clients.shape, len(context.network.vector))
        start = strategy.start(received, client_state, constants, client)
        check_vector(strategy, "start", start, len(context.network.vector))
        start = start.expand(*clients, -1)
        if context.idle_training is not None:
            start = context.idle_training.start(start, client_state, client)
        return received, constants, start

    def finished(
        self,
        model: torch.Tensor,
        job: CohortJob,
        received: Vectors,
        client_state: Vectors,
        constants: Vectors,
        optimizer: torch.Tensor | None,
        client: ClientInfo,
    ) -> tuple[Vectors, Vectors]:
        """The uploads of clients, and their next states (see :meth:`ClientStrategy.finish`).

        Args:
            model: ``[..., P]`` after local training, and after an attack.
            job: the cohort's job, with the broadcast.
            received: the broadcast as :meth:`begun` returns it.
            client_state: before the round.
            constants: the result of :meth:`ClientStrategy.constants`.
            optimizer: its state after local training, ``[..., S]``.
            client: information about the clients, with the start.

        Raises:
            InputError: ``finish`` does not return what the strategy declares.
        """
        context, strategy = self.context, self.context.client
        returned = strategy.finish(model, received, client_state, constants, client)
        check_finished(strategy, returned, strategy.client_state(context.network.layout), model)
        uploads, state = returned
        if optimizer is not None and context.optimizer_length:
            state = {**state, OPTIMIZER: optimizer}
        if context.private is not None:
            state = {**state, PRIVATE: model[..., context.private]}
            if MODEL in uploads:
                shared = uploads[MODEL].clone()
                shared[..., context.private] = job.received[MODEL][..., context.private]
                uploads = {**uploads, MODEL: shared}
        return uploads, state

    def tampered(self, model: torch.Tensor, job: CohortJob, client: int) -> torch.Tensor:
        """The model ``[P]`` that a client sends: its trained model, or an attacker's changed one; ``job`` has what this
        client receives.
        """
        context = self.context
        if context.attack is None or not job.sends_models or client not in context.attackers:
            return model
        trainable = context.network.layout.trainable
        draw = generator(context.seed, "attack", job.round, client)
        trained, broadcast = model[:trainable], job.received[MODEL][:trainable]
        arguments = {"model": trained, "broadcast": broadcast}
        before = versions(arguments)
        tampered = context.attack.tampered(trained, broadcast, draw)
        check_tampered(context.attack, tampered, arguments, before)
        changed = model.clone()
        changed[:trainable] = tampered
        if context.private is not None:
            changed[context.private] = model[context.private]  # they are not sent
        return changed

    def uploaded(self, result: ClientResult, job: CohortJob, info: Callable[[], ClientInfo]) -> ClientResult:
        """A client's result with the uploads that the server receives, and the client's state after that.

        Args:
            result: result of its local training.
            job: with what this client receives.
            info: builds the information about the client, if it is needed.
        """
        if not job.sends_models:
            return result
        if self.context.pipeline.changes_uploads:
            result = self._transformed(result, job, info)
        if job.lost is not None and MODEL in result.uploads:
            # D_k = y_k − x̂ is the client's displacement; the server adds it to x
            result = replace(result, uploads={**result.uploads, MODEL: result.uploads[MODEL] + job.lost})
        return result

    def _transformed(self, result: ClientResult, job: CohortJob, info: Callable[[], ClientInfo]) -> ClientResult:
        """A client's result after the transforms of its uploads."""
        context = self.context
        lengths = context.pipeline.client_state(context.client.sends)
        own = job.client_states.of(result.client, lengths, context.network.vector.device)
        sent = context.pipeline.send(result.uploads, job.received, own, job.round, result.client)
        state = context.client.acknowledge(result.client_state, result.uploads, sent.vectors, info())
        check_acknowledged(context.client, state, result.client_state)
        return replace(result, uploads=sent.vectors, client_state={**state, **sent.state}, measures=sent.measures)

    def next_states(
        self, states: ClientStates, accepted: Mapping[int, Vectors], excluded: Iterable[int]
    ) -> ClientStates:
        """The client states after a round.

        Args:
            states: before the round.
            accepted: the next states of the clients whose uploads were accepted.
            excluded: the clients whose uploads were not accepted. They lose the result of their idle training, which
                lasts for one round.
        """
        expired = {
            client: {name: vector for name, vector in states.held[client].items() if name != IDLE}
            for client in excluded
            if self.context.idle_training is not None and IDLE in states.held.get(client, {})
        }
        return states.updated({**expired, **accepted})

    def idle(self, job: CohortJob) -> ClientStates:
        """Train idle clients; return the client states with the results.

        The rest of their states does not change. Results that are not finite are dropped.
        """
        idle_training, layout = self.context.idle_training, self.context.network.layout
        assert idle_training is not None
        changes: dict[int, Vectors] = {}
        for result in self.client_results(replace(job, sends_models=False)):
            kept = idle_training.keep(result.start, result.model, layout)
            if all(bool(vector.sum().isfinite()) for vector in kept.values()):
                held = job.client_states.held.get(result.client, {})
                changes[result.client] = {**held, **job.client_states.keep(kept)}
            del result, kept
        return job.client_states.updated(changes)
