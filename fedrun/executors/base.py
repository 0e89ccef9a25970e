"""What an executor is: it carries out a cohort's local training. Strategies do not know which one runs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch

from fedrun.client_memory import ClientMemory
from fedrun.evaluation import evaluate, per_holder
from fedrun.federation import Shares
from fedrun.parameters import FlatNetwork
from fedrun.strategies.base import MODEL, ClientHalf, ClientInfo, CohortUpdate, ServerHalf, Vectors
from fedrun.training import LocalTraining, Samples, Trained, steps_of


@dataclass(frozen=True)
class Workplace:
    """Everything an executor needs that does not change from round to round.

    Attributes:
        network: the network; its vector is scratch space.
        samples: the dataset on its device.
        clients: who holds which training samples.
        client: the strategy's client half.
        server: its server half (how clients are weighted, which rows it must see).
        local: how clients train.
        seed: the run's seed.
    """

    network: FlatNetwork
    samples: Samples
    clients: Shares
    client: ClientHalf
    server: ServerHalf
    local: LocalTraining
    seed: int


Progress = Callable[[int], None]


FORWARD_BATCH = 1024
"""Samples per forward pass where clients only look at the broadcast model."""


class Executor(ABC):
    """Carries out the local work of a round."""

    def __init__(self, workplace: Workplace) -> None:
        self.workplace = workplace
        shares, local, device = workplace.clients, workplace.local, workplace.network.vector.device
        sizes = shares.sizes.double()[:, None]
        steps = torch.tensor([steps_of(size, local) for size in shares.sizes.tolist()], dtype=torch.float32)
        self._samples = sizes.float().to(device)  # [N, 1], and so are the next two
        self._shares = (sizes / sizes.mean()).float().to(device)
        self._steps = steps[:, None].to(device)
        self._mean_steps = steps_of(math.ceil(sizes.mean().item()), local)
        self._label_counts = self._counted_labels().to(device) if workplace.client.counts_labels else None

    def _counted_labels(self) -> torch.Tensor:
        """How many samples of each class every client holds, float32 ``[N, classes]``."""
        shares, classes = self.workplace.clients, self.workplace.network.layout.classes
        holder = torch.repeat_interleave(torch.arange(len(shares)), shares.sizes)
        targets = self.workplace.samples.targets.cpu()[shares.samples]
        counts = torch.bincount(holder * classes + targets, minlength=len(shares) * classes)
        return counts.view(len(shares), classes).float()

    def info(self, clients: int | torch.Tensor, round: int, initial_loss: torch.Tensor | None) -> ClientInfo:
        """What one client, or each of several stacked ones (int64 ``[C]``), knows of itself."""
        work = self.workplace
        return ClientInfo(
            trainable=work.network.layout.trainable,
            samples=self._samples[clients],
            share=self._shares[clients],
            steps=self._steps[clients],
            mean_steps=self._mean_steps,
            lr=work.local.rate(round),
            initial_lr=work.local.lr,
            momentum=work.local.momentum,
            label_counts=None if self._label_counts is None else self._label_counts[clients],
            initial_loss=initial_loss,
        )

    def initial_losses(self, cohort: torch.Tensor, received: Vectors, gathering: Gathering) -> torch.Tensor | None:
        """F_k at the broadcast model for each of the cohort, float32 ``[C, 1]``, if the client half wants it."""
        work = self.workplace
        if not work.client.measures_initial_loss:
            return None
        work.network.load(received[MODEL])
        parts = [work.clients[client] for client in cohort.tolist()]
        shares = Shares(torch.cat(parts), torch.tensor([0, *map(len, parts)]).cumsum(0))
        losses, _ = per_holder(evaluate(work.network, work.samples, shares.samples, FORWARD_BATCH), shares)
        gathering.forward_samples += len(shares.samples)
        return losses.float()[:, None].to(work.network.vector.device)

    @abstractmethod
    def run(
        self, cohort: torch.Tensor, round: int, received: Vectors, memory: ClientMemory, progress: Progress
    ) -> tuple[CohortUpdate, ClientMemory]:
        """Train the cohort.

        Args:
            cohort: client numbers, int64 ``[C]``, in the order of selection.
            round: t, 0 in the first round.
            received: what the server broadcasts.
            memory: what clients remember before the round.
            progress: called with the number of clients done so far.

        Returns:
            What the server learns of the round, and what clients remember after it.
        """


class Gathering:
    """Folds the clients' uploads, one after the other, into a :class:`CohortUpdate`.

    Only running means and the rows the server half asks for are kept, never a model per client. Uploads that are not
    finite are left out, and so is their client's new memory.

    Attributes:
        forward_samples: samples that clients have processed by forward passes only.
    """

    def __init__(self, workplace: Workplace, cohort: torch.Tensor) -> None:
        self._work = workplace
        self._cohort = cohort
        self._samples = workplace.clients.sizes[cohort]
        self._weights = workplace.server.weights(self._samples).tolist()
        self._total = 0.0
        self._means: dict[str, torch.Tensor] = {}
        self._rows: list[torch.Tensor] = []
        self._memory: dict[int, Vectors] = {}
        self._accepted: list[int] = []
        self._steps: list[int] = []
        self._processed = 0
        self.forward_samples = 0
        self._seen = 0
        self._loss = 0.0
        self._correct = 0

    def add(self, position: int, uploads: Vectors, memory: Vectors, trained: Trained) -> None:
        """Fold in the client at this position of the cohort; clients are added in ascending positions.

        Args:
            position: index into the cohort.
            uploads: what the client half sends.
            memory: what the client will remember.
            trained: counts and sums of its local training.
        """
        self._processed += trained.processed
        self.forward_samples += trained.processed * len(self._work.client.compares)
        # A sum is finite exactly if every entry is, short of an overflow, which would be no less of a failure.
        if not all(bool(vector.sum().isfinite()) for vector in uploads.values()):
            return
        weight = self._weights[position]
        self._total += weight
        for name, vector in uploads.items():
            if name in self._means:
                # mean + (weight / total) (vector − mean): an entry that no client moved stays exactly where it was;
                # Σ w x / Σ w is off by a rounding error, which a server's Adam would blow up to a step of its own.
                self._means[name].lerp_(vector, weight / self._total)
            else:
                self._means[name] = vector.clone()
        rows = self._work.server.rows
        if rows != "none":
            model = uploads[MODEL]
            self._rows.append((model[self._work.network.layout.head] if rows == "head" else model).clone())
        if memory:
            stored = {name: vector.detach().cpu().clone() for name, vector in memory.items()}
            self._memory[int(self._cohort[position])] = stored
        self._accepted.append(position)
        self._steps.append(trained.steps)
        self._seen += trained.processed
        self._loss += float(trained.loss_sum)
        self._correct += int(trained.correct)

    def result(self, memory: ClientMemory) -> tuple[CohortUpdate, ClientMemory]:
        """The cohort's update, over the clients that were accepted, and the memory after the round."""
        accepted = torch.tensor(self._accepted, dtype=torch.int64)
        left_out = set(range(len(self._cohort))) - set(self._accepted)
        update = CohortUpdate(
            clients=self._cohort[accepted],
            samples=self._samples[accepted],
            steps=torch.tensor(self._steps, dtype=torch.int64),
            mean=self._means,
            rows=torch.stack(self._rows) if self._rows else None,
            excluded=tuple(int(self._cohort[position]) for position in sorted(left_out)),
            loss=self._loss / self._seen if self._seen else float("nan"),
            accuracy=self._correct / self._seen if self._seen else float("nan"),
            client_samples=self._processed,
            forward_samples=self.forward_samples,
        )
        return update, memory.updated(self._memory)
