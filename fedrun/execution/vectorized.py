"""Many clients at once: one batched forward and backward pass per step (``torch.func``).

Clients of unequal size are padded: their batches with repeated samples of weight zero. A cohort is divided into groups
of clients with similar numbers of steps, in ascending order: the first clients of a group finish first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch

from fedrun.config.option_name import chosen
from fedrun.data.datasets.augmentation import UNIFORMS, draws
from fedrun.execution.context import ClientResult, CohortJob, ExecutionContext, Progress
from fedrun.execution.executor import Executor
from fedrun.execution.group_objective import GroupObjective, of_last
from fedrun.execution.independence_check import IndependenceCheck
from fedrun.execution.stacked import StackedPerceptron
from fedrun.execution.vmap import vmap_problem
from fedrun.models.parallel_encoders import OutsideEncoder
from fedrun.strategies.client import compares_embeddings, overrides
from fedrun.strategies.client_contract import checked_frozen, checked_linear_correction
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.client_state import OPTIMIZER
from fedrun.strategies.direction_contract import checked_direction
from fedrun.strategies.vectors import MODEL, Vectors
from fedrun.system.randomness import address, generator, seed_generators
from fedrun.training.batches import batches_per_epoch, epochs
from fedrun.training.optimizer_step import fresh_state, linear_update, optimizer_step, repair
from fedrun.training.tally import Trained

GROUP = 128
"""The largest number of clients trained at once; more would cost memory and gain little."""

VECTORS = 8
"""Vectors of the model's size per client: start, model, upload, gradient, step, and a strategy's vectors."""

CPU_BYTES = 2**30
"""Bytes of main memory for a group's vectors; on a GPU a quarter of its memory is used."""

UNSUPPORTED = (
    torch.nn.modules.batchnorm._BatchNorm,
    torch.nn.RNNBase,
    torch.nn.modules.dropout._DropoutNd,
    OutsideEncoder,  # it may have such layers
)


class Vectorized(Executor):
    """Trains groups of clients as one batched computation, with the results of :class:`InProcess` up to rounding."""

    name = "vectorized"

    @classmethod
    def unsupported(cls, context: ExecutionContext) -> str | None:
        strategy = context.client
        if compares_embeddings(strategy):
            return f"{chosen('strategy/client', strategy)}, which uses embeddings or reference models"
        if overrides(strategy, "batch_loss"):
            return f"{chosen('strategy/client', strategy)}, which trains on inputs of its own"
        if not strategy.wants.isdisjoint(("batch_gradient", "training_embeddings")):
            return f"{chosen('strategy/client', strategy)}, which measures one client at a time"
        if context.noised_steps is not None:
            return "privacy=sample_level, whose gradients are computed for the samples of one client at once"
        network = context.network
        if context.sends_own_models and network.layout.size > network.layout.trainable:
            return "clients that receive models with different float buffers"
        stacked = context.local.precision == "float32" and StackedPerceptron.of(network.network) is not None
        if stacked and network.vector.device.type == "cpu":
            return None  # a GPU's dropout draws in another order, which cannot be reproduced here
        for module in network.network.modules():
            idle = isinstance(module, torch.nn.modules.dropout._DropoutNd) and module.p == 0
            if isinstance(module, UNSUPPORTED) and not idle:
                return f"a model with {type(module).__name__} layers"
        return None if stacked else vmap_problem(context)

    def client_results(self, job: CohortJob, progress: Progress = lambda done: None) -> Iterator[ClientResult]:
        steps, sizes = self.steps(job).tolist(), self.context.clients.sizes[job.cohort].tolist()
        alike = sorted(range(len(sizes)), key=lambda position: (steps[position], sizes[position]))
        infos = self.infos(job)
        together = self.group_size()
        for first in range(0, len(alike), together):
            positions = alike[first : first + together]
            yield from self._train(job.part(torch.tensor(positions)), infos.of(positions))
            progress(first + len(positions))

    def group_size(self) -> int:
        """The number of clients trained at once; it depends on the model and the machine only."""
        vector = self.context.network.vector
        room = CPU_BYTES
        if vector.device.type == "cuda":
            room = torch.cuda.get_device_properties(vector.device).total_memory // 4
        return max(1, min(GROUP, room // (VECTORS * vector.numel() * vector.element_size())))

    def _train(self, job: CohortJob, info: ClientInfo) -> Iterator[ClientResult]:
        """Train one group of clients, the job's cohort."""
        context, strategy = self.context, self.context.client
        clients, steps = job.cohort.tolist(), self.steps(job).tolist()
        context.network.load(job.received_by(0).received[MODEL])  # source of the entries that are not trained
        lengths, device = context.training_lengths, context.network.vector.device
        # so that hooks which draw from PyTorch's global generator are reproducible
        seed_generators(address(context.seed, "hooks", job.round, clients[0]), device)
        states = [job.client_states.of(client, lengths, device) for client in clients]
        state = {name: torch.stack([client_state[name] for client_state in states]) for name in lengths}
        received, constants, start = self.begun(job.received, state, info)
        check = IndependenceCheck.due(strategy, received, state, info)
        if check is not None:
            check.check_start(constants)
        model = start.clone()
        weights = model[:, : context.network.layout.trainable]
        optimizer = state[OPTIMIZER].clone() if context.optimizer_length else fresh_state(weights, context.local)
        objective = GroupObjective(
            context,
            constants,
            *self._batches(clients, job.round, steps),
            lambda: [generator(context.seed, "forward", job.round, client) for client in clients],
        )
        rate, together = context.local.rate(job.round), len(strategy.passes)
        per_epoch = batches_per_epoch(context.clients.sizes[clients], context.local.batch_size)
        for working, begin, end in objective.batch_ranges():
            carried = None if optimizer is None else optimizer[-working:]
            firsts = range(begin, end, together)
            first_check = check if begin == 0 else None
            self._descend(
                weights[-working:],
                carried,
                objective,
                of_last(constants, working),
                rate,
                per_epoch[-working:],
                firsts,
                first_check,
            )
        sent = model
        if context.attack is not None and job.sends_models:
            sent = torch.stack(
                [self.tampered(model[k], job.received_by(k), client) for k, client in enumerate(clients)]
            )
        info = replace(info, start=start)
        uploads, next_state = self.finished(sent, job, received, state, constants, optimizer, info)
        if check is not None:
            check.check_finish(sent, constants, info)
        processed = objective.processed.tolist()
        for k, client in enumerate(clients):
            result = ClientResult(
                client,
                start[k],
                model[k],
                {name: vectors[k] for name, vectors in uploads.items()},
                {name: vectors[k] for name, vectors in next_state.items()},
                Trained(steps[k], processed[k], objective.losses[k], objective.scores[k], objective.weights[k]),
            )
            yield self.uploaded(result, job.received_by(k), partial(info.of, k))

    def _descend(
        self,
        weights: torch.Tensor,
        optimizer: torch.Tensor | None,
        objective: GroupObjective,
        constants: Vectors,
        rate: float,
        per_epoch: torch.Tensor,
        firsts: range,
        check: IndependenceCheck | None,
    ) -> None:
        """Steps that the last c clients of a group all make, in place on parameters ``[c, T]`` and the
        optimizer's state ``[c, S]``.

        ``per_epoch`` are the clients' batches in an epoch (int64 ``[c]``), ``firsts`` the numbers of each step's first
        batch; ``check`` checks the first of these directions.
        """
        strategy, local = self.context.client, self.context.local
        correction = checked_linear_correction(strategy, constants, weights.shape[-1])
        directs = overrides(strategy, "direction")
        plain = not overrides(strategy, "direction", "frozen")
        fused = plain and optimizer is None and local.max_gradient_norm is None and objective.descends
        linear = linear_update(correction, local, rate) if fused else None
        frozen, frozen_in = None, list[int]()
        for first in firsts:
            last = first + len(strategy.passes) - 1
            if not plain and (running := (last // per_epoch).tolist()) != frozen_in:
                frozen, frozen_in = self._frozen(running), running

            def gradient(
                parameters: torch.Tensor, batch: int, *, moves_buffers: bool = True, first: int = first
            ) -> torch.Tensor:
                return objective.gradient(parameters, first + batch)

            if fused:
                objective.descend(weights, first, rate, linear)
            else:
                if directs:
                    direction = strategy.direction if check is None or first > firsts[0] else check.direction
                    step = checked_direction(strategy, direction, gradient, weights, constants)
                else:
                    step = gradient(weights, 0)
                optimizer_step(weights, step, optimizer, rate, local, correction, frozen)
            if local.repair_nonfinite:
                repair(weights)

    def _frozen(self, epochs: Sequence[int]) -> torch.Tensor | None:
        """The parameters that do not move in clients' steps of these epochs, bool ``[c, T]``; None: all move."""
        context = self.context
        if not overrides(context.client, "frozen"):
            return None
        layout = context.network.layout
        moving = torch.zeros(layout.trainable, dtype=torch.bool)
        masks = {epoch: checked_frozen(context.client, layout, epoch) for epoch in set(epochs)}
        rows = [moving if (mask := masks[epoch]) is None else mask for epoch in epochs]
        return torch.stack(rows).to(context.network.vector.device)

    def _batches(
        self, clients: list[int], round: int, steps: list[int]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Every client's batches, in the order in which :class:`InProcess` visits them.

        Returns:
            Sample numbers int64 ``[C, S, B]``, padded with the client's first sample; the number of real samples in
            each batch, int64 ``[C, S]``, 0 after a client's last step; and the random numbers of their augmentation,
            float32 ``[C, S, B, 5]``, if there is one.
        """
        context = self.context
        sizes, offsets = context.clients.sizes[clients].tolist(), context.clients.offsets[clients]
        batch_counts, batch_size = [self.batch_count(count) for count in steps], context.local.batch_size
        width, longest = min(max(sizes), batch_size or max(sizes)), max(batch_counts)
        places = torch.full((len(clients), longest * width), -1)  # among the client's samples
        augmented = context.samples.augmentation is not None
        uniforms = torch.zeros(*places.shape, UNIFORMS) if augmented else None
        for k, client in enumerate(clients):
            draw = draws(context.seed, round, client) if augmented else None
            order = generator(context.seed, "batches", round, client)
            first, per_epoch = 0, -(-sizes[k] // width)
            for visits in epochs(sizes[k], batch_size, batch_counts[k], order):
                places[k, first : first + len(visits)] = visits
                if draw is not None and uniforms is not None:
                    uniforms[k, first : first + len(visits)] = draw(len(visits))
                first += per_epoch * width  # all batches but an epoch's last one are full
        shape = (len(clients), longest, width)
        counts = (places >= 0).view(shape).sum(2)
        batches = context.clients.samples[offsets[:, None] + places.clamp_min_(0)].view(shape)
        return batches, counts, None if uniforms is None else uniforms.view(*shape, UNIFORMS)
