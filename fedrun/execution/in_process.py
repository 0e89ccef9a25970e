"""One client at a time, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fedrun.execution.client_measurements import BatchGradient, training_embeddings
from fedrun.execution.client_training import train_client
from fedrun.execution.context import ClientResult, CohortJob, Progress
from fedrun.execution.executor import Executor
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.client_state import OPTIMIZER
from fedrun.system.randomness import address, seed_generators


class InProcess(Executor):
    """Trains a cohort's clients one after the other on one network."""

    name = "in_process"

    def client_results(self, job: CohortJob, progress: Progress = lambda done: None) -> Iterator[ClientResult]:
        infos, steps = self.infos(job), self.steps(job).tolist()
        for position in range(len(job.cohort)):
            yield self._client_result(job, position, infos.of(position), steps[position])
            progress(position + 1)

    def _client_result(self, job: CohortJob, position: int, info: ClientInfo, steps: int) -> ClientResult:
        """Train one client. A separate method, so that its vectors are freed before the next client trains."""
        context, client, job = self.context, int(job.cohort[position]), job.received_by(position)
        network = context.network
        # so that hooks which draw from PyTorch's global generator are reproducible
        seed_generators(address(context.seed, "hooks", job.round, client), network.vector.device)
        state = job.client_states.of(client, context.training_lengths, network.vector.device)
        measure = BatchGradient(context, client) if "batch_gradient" in context.client.wants else None
        info = replace(info, batch_gradient=measure)
        received, constants, start = self.begun(job.received, state, info)
        optimizer = state[OPTIMIZER].clone() if context.optimizer_length else None
        trained = train_client(context, self.batch_count(steps), client, job.round, start, constants, optimizer)
        info = replace(info, start=start)
        if "training_embeddings" in context.client.wants:
            info = replace(info, training_embeddings=training_embeddings(context, client))
        model = self.tampered(network.vector, job, client)
        uploads, next_state = self.finished(model, job, received, state, constants, optimizer, info)
        result = ClientResult(client, start, network.vector, uploads, next_state, trained)
        result = self.uploaded(result, job, lambda: info)
        if measure is None:
            return result
        return replace(result, trained=replace(trained, processed=trained.processed + measure.processed))
