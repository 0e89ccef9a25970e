"""The costs of a round: numbers and bytes sent, samples processed, and the time on the clients' devices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from fedrun.execution.executor import Executor
from fedrun.experiment.clock.base import Devices
from fedrun.experiment.state import Totals
from fedrun.simulation.round_runner import RoundResult
from fedrun.strategies.contract import check_counts
from fedrun.strategies.phase import Phase
from fedrun.strategies.server import ServerState
from fedrun.strategies.vectors import MODEL, Vectors
from fedrun.uploads.transform import FLOAT


@dataclass(frozen=True)
class RoundCosts:
    """The costs of a round.

    Attributes:
        totals: of all clients.
        seconds: virtual time of each participant from the broadcast to the end of its upload, float64 ``[C]``; zeros if
            virtual time is not measured.
    """

    totals: Totals
    seconds: torch.Tensor


@dataclass(frozen=True)
class Costs:
    """Computes the costs of a phase's rounds.

    Attributes:
        phase: the phase.
        executor: computes how many samples a client processes in a round.
        devices: the clients' devices; None: virtual time is not measured.
    """

    phase: Phase
    executor: Executor
    devices: Devices | None

    @property
    def server_seconds(self) -> float:
        """The server's time in a round; 0 if virtual time is not measured."""
        return 0.0 if self.devices is None else self.devices.server

    @cached_property
    def usual_seconds(self) -> torch.Tensor:
        """T_k, the time of every client from the broadcast to the end of its upload, float64 ``[N]``.

        It is known before a client trains, if there is one model, clients make their usual number of steps, and the
        broadcast contains vectors like those that clients send.
        """
        assert self.devices is not None
        phase, pipeline = self.phase, self.executor.context.pipeline
        clients = torch.arange(len(phase.federation.train))
        server = phase.initial_server()
        broadcast = phase.server.broadcast(server)
        bytes_up = pipeline.bytes_up({name: broadcast[name].numel() for name in phase.client.sends})
        backward, forward = self.executor.usual_samples.unbind(1)
        bytes_down = pipeline.bytes_down(self._received(phase.broadcast(server)), clients, pipeline.slots())
        return self.devices.seconds(clients, bytes_down, backward, forward, torch.full_like(clients, bytes_up))

    def of_start(self) -> Totals:
        """The costs of the exchange with all clients before the phase's first round."""
        phase, sizes = self.phase, self.phase.federation.train.sizes
        reports_labels = phase.clustering.reports_labels or "label_counts" in phase.server.wants
        reports = phase.samples.classes if reports_labels and not phase.federation.is_pooled else 0
        seconds = torch.zeros(1)
        if self.devices is not None:
            seconds = self.devices.seconds(
                torch.arange(len(sizes)),
                torch.full_like(sizes, FLOAT * phase.params_down // len(sizes)),
                torch.zeros_like(sizes),
                phase.forward_samples * sizes.double() / sizes.sum(),
                torch.full_like(sizes, FLOAT * reports),
            )
        return Totals(
            params_up=len(sizes) * reports,
            params_down=phase.params_down,
            bytes_up=FLOAT * len(sizes) * reports,
            bytes_down=FLOAT * phase.params_down,
            forward_samples=phase.forward_samples,
            virtual_seconds=float(seconds.max()),
        )

    def of_round(self, cohort: torch.Tensor, result: RoundResult) -> RoundCosts:
        """The costs of one round.

        Args:
            cohort: its participants, int64 ``[C]``.
            result: the result of their local work.
        """
        phase, nothing = self.phase, torch.zeros_like(cohort)
        idle = torch.full((len(phase.federation.train),), phase.server.idle_training is not None)
        idle[cohort] = False
        idle_clients = idle.nonzero().flatten()  # all of them train; only those that are selected next are computed
        params_up, params_down, bytes_up, bytes_down = nothing, nothing, nothing, nothing
        if not phase.federation.is_pooled:
            params_down, bytes_down = self._downloads(torch.cat([cohort, idle_clients]), len(cohort), result)
            params_up, bytes_up = self._uploads(cohort, result)
        processed = result.processed[:, 1:].sum(0)
        if len(idle_clients):  # computed for all clients, of which there may be many
            processed += self.executor.usual_samples[idle_clients].sum(0)
        backward, forward = processed.tolist()
        seconds = self._seconds(cohort, bytes_down, bytes_up, result.processed)
        totals = Totals(
            params_up=int(params_up.sum()),
            params_down=int(params_down.sum()),
            bytes_up=int(bytes_up.sum()),
            bytes_down=int(bytes_down.sum()),
            client_samples=backward,
            forward_samples=forward + backward * phase.frozen_encoders,
            excluded=len(result.excluded),
            # t ← t + max_k T_k + the server's time
            virtual_seconds=max(seconds.tolist(), default=0.0) + self.server_seconds,
        )
        return RoundCosts(totals, seconds)

    def of_late(self, server: ServerState, clients: torch.Tensor) -> Totals:
        """The downloads of clients (int64 ``[L]``) whose uploads are not used. What they compute is not counted."""
        if not len(clients):
            return Totals()
        numbers = self._received(self.phase.broadcast(server))
        sent = self.executor.context.pipeline.bytes_down(numbers, clients, server.transforms)
        return Totals(params_down=numbers * len(clients), bytes_down=int(sent.sum()))

    def _received(self, vectors: Vectors) -> int:
        """How many numbers of these vectors a client receives: all but the model's private entries."""
        return _numbers(vectors) - self.executor.context.private_size

    def _downloads(self, clients: torch.Tensor, count: int, result: RoundResult) -> tuple[torch.Tensor, torch.Tensor]:
        """The numbers and the bytes that each client downloads, int64 ``[n]``; the first ``count`` are participants."""
        phase, pipeline = self.phase, self.executor.context.pipeline
        params, sizes = torch.zeros_like(clients), torch.zeros_like(clients)
        saved = phase.absent[clients]
        if phase.clustering.downloads_all:  # downloads of several models are never compressed
            params += sum(_numbers(phase.broadcast(server)) for server in result.models)
            sizes += FLOAT * params
            saved = len(result.models) * saved
        else:
            slots = result.models[0].transforms if len(result.models) == 1 else {}
            for job in result.jobs:
                receives = torch.isin(clients, job.cohort)
                receives[count:] = True
                numbers = self._received(job.received_by(0).received)
                params[receives] = numbers
                sizes[receives] = pipeline.bytes_down(numbers, clients[receives], slots)
            if len(result.models) == 1:
                unsent = phase.server.unsent(result.models[0], clients)
                check_counts(phase.server, "unsent", unsent, len(clients), 0)
                saved = saved + unsent
        # no transform has changed them: the checks allow none where clients lack entries, and buffers pass unchanged
        return params - saved, sizes - FLOAT * saved

    def _uploads(self, cohort: torch.Tensor, result: RoundResult) -> tuple[torch.Tensor, torch.Tensor]:
        """The numbers and the bytes that each participant uploads, int64 ``[C]``."""
        context, layout = self.executor.context, self.phase.network.layout
        sent = next((update.mean for update in result.updates if update.mean), {})
        kept = context.private_size + layout.size - layout.uploaded if MODEL in sent else 0
        absent = self.phase.absent[cohort] * (MODEL in sent)
        sizes = context.pipeline.bytes_up({name: vector.numel() for name, vector in sent.items()})
        return _numbers(sent) - kept - absent, sizes - FLOAT * absent

    def _seconds(
        self, cohort: torch.Tensor, bytes_down: torch.Tensor, bytes_up: torch.Tensor, processed: torch.Tensor
    ) -> torch.Tensor:
        """T_k of the participants, float64 ``[C]``, given their bytes and the samples that each has processed (int64
        ``[C, 3]``).
        """
        if self.devices is None:
            return torch.zeros(len(cohort), dtype=torch.float64)
        order = processed[:, 0].argsort()[cohort.argsort().argsort()]  # the row of each participant
        _, backward, forward = processed[order].unbind(1)
        forward = forward + backward * self.phase.frozen_encoders
        return self.devices.seconds(cohort, bytes_down[: len(cohort)], backward, forward, bytes_up)


def _numbers(vectors: Vectors) -> int:
    """The number of entries of several vectors."""
    return sum(vector.numel() for vector in vectors.values())
