"""The objective of a group of clients that train side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial

import torch

from fedrun.data.tasks.base import divisor
from fedrun.execution.context import ExecutionContext
from fedrun.execution.stacked import Drop, Passed, StackedPerceptron
from fedrun.execution.vmap import client_views
from fedrun.models.precision import computing
from fedrun.strategies.client import Outputs, overrides
from fedrun.strategies.client_contract import check_differentiable, check_separable, mapped_losses
from fedrun.strategies.vectors import Vectors


def of_last(vectors: Vectors, clients: int) -> dict[str, torch.Tensor]:
    """The rows of vectors ``[C, m]`` for the last clients; vectors ``[m]``, which clients share, stay as they are."""
    return {name: vector[-clients:] if vector.ndim > 1 else vector for name, vector in vectors.items()}


class GroupObjective:
    """The objective of a group of clients: gradients, and sums over the processed samples.

    Args:
        context: the context of local training, with the network, the samples and the client strategy.
        constants: the result of :meth:`ClientStrategy.constants`, ``[C, m]`` or ``[m]`` each.
        batches: sample numbers int64 ``[C, S, B]``.
        counts: the number of real samples of each batch, int64 ``[C, S]``; 0 after a client's last batch. Clients are
            in ascending order of their numbers of batches.
        uniforms: the random numbers of the samples' augmentation, float32 ``[C, S, B, 5]``, or None.
        forward: makes the generators of each client's dropout layers, seeded as by :class:`InProcess`.

    Attributes:
        descends: whether :meth:`descend` can be used.
        losses: Σ over the samples processed of their losses, float32 ``[C]``.
        scores: Σ over them of the task's score, float64 ``[C]``.
        weights: Σ over them of the task's weights, float64 ``[C]``.
        processed: the number of these samples, int64 ``[C]``.
    """

    def __init__(
        self,
        context: ExecutionContext,
        constants: Vectors,
        batches: torch.Tensor,
        counts: torch.Tensor,
        uniforms: torch.Tensor | None,
        forward: Callable[[], Sequence[torch.Generator]],
    ) -> None:
        device = context.network.vector.device
        self._samples = context.samples
        self._task = task = context.samples.task
        self._constants = constants
        self._batches = batches.to(context.samples.inputs.device)  # a copy in every step would make a GPU wait
        self._uniforms = None if uniforms is None else uniforms.to(device)
        self._make_forward = forward
        self._sizes = counts.T.tolist()  # [S][C]
        self._batches_of = (counts > 0).sum(1).tolist()  # [C], ascending
        self._counts = counts.to(device)
        self._slots = torch.arange(batches.shape[2], device=device)
        self.losses = torch.zeros(len(batches), device=device)
        self.scores = torch.zeros(len(batches), dtype=torch.float64, device=device)
        self.weights = torch.zeros(len(batches), dtype=torch.float64, device=device)
        self.processed = torch.zeros(len(batches), dtype=torch.int64, device=device)
        self._strategy = strategy = context.client
        module, self._views = context.network.network.train(), context.network.layout.views
        self._tensors = client_views(context)
        dims = {name: 0 if vector.ndim > 1 else None for name, vector in constants.items()}
        precision = context.local.precision
        self._perceptron = StackedPerceptron.of(module) if precision == "float32" else None
        self.descends = self._perceptron is not None
        # one fused call if the loss is plain
        plain = not overrides(strategy, "loss")
        self._separable = plain

        def loss(logits: torch.Tensor, targets: torch.Tensor, fixed: Vectors) -> torch.Tensor:
            instead = "hardware.executor=in_process, or a loss of tensor operations alone"
            return mapped_losses(strategy, Outputs(logits, task=task), targets, fixed, instead)

        self._losses_of = None if plain else torch.vmap(loss, in_dims=(0, 0, dims))

        def client_loss(
            parameters: dict[str, torch.Tensor], fixed: Vectors, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor]:
            with computing(precision, device):
                logits = torch.func.functional_call(module, parameters, (x,))
            logits = logits.float()
            losses = loss(logits, y, fixed)
            check_differentiable(strategy, losses)
            return (losses * weight).sum(), logits

        self._gradients = torch.vmap(torch.func.grad_and_value(client_loss, has_aux=True), in_dims=(0, dims, 0, 0, 0))

    @cached_property
    def _forward(self) -> Sequence[torch.Generator]:
        """The generators, if a layer needs them: making them takes as long as a step of a small model."""
        return self._make_forward()

    def batch_ranges(self) -> Iterator[tuple[int, int, int]]:
        """The ranges of batches in which the same clients train: how many clients (the last ones), the first batch, and
        the batch after the last.
        """
        begin = 0
        for end in sorted(set(self._batches_of)):
            yield sum(batches > begin for batches in self._batches_of), begin, end
            begin = end

    def gradient(self, at: torch.Tensor, index: int) -> torch.Tensor:
        """The gradients of the last c clients on their batches of this number, at parameters ``[c, T]``: a new tensor
        ``[c, T]``.
        """
        if self._perceptron is not None:
            gradients = torch.empty_like(at)
            loss, passed = self._total_loss(self._perceptron, at, index)
            self._perceptron.gradient(loss, passed, self._views(gradients))
            return gradients
        x, y, weights, shares = self._batch(index, len(at))
        # by tensor: the gradient of a view of the whole vector would be as long as the vector
        gradients, (loss, logits) = self._gradients(self._tensors(at), of_last(self._constants, len(at)), x, y, shares)
        self._check_separable(logits, y, index)
        gradient = torch.empty_like(at)
        for name, part in self._views(gradient).items():
            part.copy_(gradients[name])
        self._add_sums(loss, logits, y, weights, index)
        return gradient

    def descend(
        self, weights: torch.Tensor, index: int, rate: float, linear: Callable[[torch.Tensor], object] | None
    ) -> None:
        """SGD's step of the last c clients on their batches of this number, in place on parameters ``[c, T]``, with
        the linear update ``linear``.
        """
        assert self._perceptron is not None
        loss, passed = self._total_loss(self._perceptron, weights, index)
        update = None if linear is None else partial(linear, weights)
        self._perceptron.descend(loss, passed, self._views(weights), rate, update)

    def _total_loss(
        self, perceptron: StackedPerceptron, at: torch.Tensor, index: int
    ) -> tuple[torch.Tensor, list[Passed]]:
        """The sum of the last c clients' losses, whose gradient for each is its own."""
        x, y, weights, shares = self._batch(index, len(at))
        logits, passed = perceptron.forward(self._views(at), x, self._drop(index, len(at)))
        if self._losses_of is None:
            losses = self._task.loss(logits.flatten(0, 1), y.flatten(0, 1)).view_as(weights)
        else:
            losses = self._losses_of(logits, y, of_last(self._constants, len(at)))
            check_differentiable(self._strategy, losses)
            self._check_separable(logits, y, index)
        client_losses = (losses * shares).sum(1)
        self._add_sums(client_losses.detach(), logits.detach(), y, weights, index)
        return client_losses.sum(), passed

    def _check_separable(self, logits: torch.Tensor, targets: torch.Tensor, index: int) -> None:
        """Check on one client's short batch that the samples which fill it up do not change its losses.

        Args:
            logits: of the last c clients, ``[c, B, ...]``.
            targets: ``[c, B, ...]``.
            index: the number of the batch.

        Raises:
            InputError: they do.
        """
        width, sizes = logits.shape[1], self._sizes[index][-len(logits) :]
        if self._separable or min(sizes) == width:
            return
        k, size = min(enumerate(sizes), key=lambda item: item[1])
        constants = of_last(self._constants, len(logits))
        fixed = {name: vector[k] if vector.ndim > 1 else vector for name, vector in constants.items()}
        reason = (
            "the vectorised executor fills up short batches with repeated ones; allowed: hardware.executor=in_process"
        )
        check_separable(self._strategy, logits[k].detach(), targets[k], size, fixed, self._task, reason)
        self._separable = True

    def _drop(self, index: int, clients: int) -> Drop:
        """Dropout on the last clients' batches: each client draws for its real samples, as if it trained alone."""
        sizes = self._sizes[index][-clients:]

        def drop(x: torch.Tensor, probability: float) -> torch.Tensor:
            mask, kept = torch.zeros_like(x), 1 - probability
            for rows, size, draw in zip(mask, sizes, self._forward[-clients:], strict=True):
                rows[:size].bernoulli_(kept, generator=draw)
            return x * mask.div_(kept or 1.0)  # the mask is 0 if no unit is kept

        return drop

    def _batch(self, index: int, clients: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """The batches of the last c clients: encoded inputs ``[c, B, ...]``, targets ``[c, B, ...]``, the samples'
        weights, 0 for those that fill up a batch, and their shares in a mean loss, ``[c, B]`` each.
        """
        inputs, targets = self._samples.gather(self._batches[-clients:, index])
        if self._samples.augmentation is not None and self._uniforms is not None:
            flat = self._samples.augmentation(inputs.flatten(0, 1), self._uniforms[-clients:, index].flatten(0, 1))
            inputs = flat.view(inputs.shape)
        count = self._counts[-clients:, index, None]
        real = self._slots < count
        weights = self._task.weights(targets.flatten(0, 1))
        if weights is None:
            return self._samples.encoding(inputs), targets, real, real / count
        weights = weights.view_as(real) * real
        return self._samples.encoding(inputs), targets, weights, weights / divisor(weights.sum(1, keepdim=True))

    def _add_sums(
        self, loss: torch.Tensor, logits: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor, index: int
    ) -> None:
        """Add the last c clients' batches of this number, with their mean losses ``[c]``."""
        count = weights.sum(1)
        last = slice(-len(count), None)
        self.losses[last] += loss * count
        scores = self._task.scores(self._task.predictions(logits.flatten(0, 1)), targets.flatten(0, 1))
        self.scores[last] += (scores.view_as(weights) * weights).sum(1)
        self.weights[last] += count
        self.processed[last] += self._counts[last, index]
