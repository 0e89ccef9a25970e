"""The clients that train while the server makes its steps, and whose upload arrives next."""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch

from fedrun.strategies.vectors import Vectors, on_device
from fedrun.system.randomness import numpy_generator


@dataclass(frozen=True, order=True)
class Start:
    """A client's local training, from its start to the arrival of its upload.

    Attributes:
        arrival: virtual seconds at which the upload arrives.
        client: the client's number. Uploads that arrive at the same time are ordered by it.
        version: the number of server steps made when the client started.
    """

    arrival: float
    client: int
    version: int


@dataclass(frozen=True)
class InTraining:
    """The clients that train between two server steps. The state of an asynchronous run.

    A client's local training is computed in the step that its upload is for, because nothing depends on it before.

    Attributes:
        starts: of the clients that train or whose upload waits for the server, by arrival.
        drawn: number of starts since the start of the run, the address of the random draws.
        received: what the clients have received, by version.
    """

    starts: tuple[Start, ...] = ()
    drawn: int = 0
    received: Mapping[int, Vectors] = field(default_factory=dict)

    def with_received(self, before: InTraining, version: int, received: Vectors) -> InTraining:
        """These clients with what each of them has received.

        Args:
            before: the clients that trained before the last server step.
            version: the number of server steps made before it.
            received: what the clients received that started during that step.
        """
        needed = {start.version for start in self.starts}
        known = {**before.received, version: received}
        return replace(self, received={number: known[number] for number in sorted(needed)})

    def to(self, device: torch.device | str) -> InTraining:
        """The same on a device."""
        received = {version: on_device(vectors, device) for version, vectors in self.received.items()}
        return replace(self, received=received)


def next_arrivals(
    training: InTraining, *, seed: int, version: int, time: float, concurrency: int, count: int, seconds: torch.Tensor
) -> tuple[list[Start], InTraining, float]:
    """The uploads that arrive next.

    A client whose upload has arrived is replaced by one that is drawn uniformly from the clients that neither train nor
    have an upload that waits for this step or a later one: at once, or at the beginning of this step if the upload
    arrived during the server's work on the step before. All uploads of an instant arrive before any client starts.

    Args:
        training: before the step.
        seed: the run's seed.
        version: number of server steps made.
        time: virtual seconds at the beginning of the step.
        concurrency: number of clients that train at once.
        count: K, the number of uploads, at most N.
        seconds: T_k, float64 ``[N]``.

    Returns:
        The K uploads in the order of arrival, the clients that train after that or whose upload waits, and the time at
        which the K uploads are complete.
    """
    running, drawn, arrived = list(training.starts), training.drawn, list[Start]()
    heapq.heapify(running)
    while len(arrived) < count:
        if not running or running[0].arrival != time:
            busy = sorted(start.client for start in (*running, *arrived))
            free = concurrency - sum(start.arrival > time for start in running)
            for _ in range(min(free, len(seconds) - len(busy))):
                place = int(numpy_generator(seed, "start", drawn).integers(len(seconds) - len(busy)))
                for client in busy:  # the client at this place among those that are not busy
                    place += client <= place
                drawn += 1
                insort(busy, place)
                heapq.heappush(running, Start(time + float(seconds[place]), place, version))
        first = heapq.heappop(running)
        time = max(time, first.arrival)
        arrived.append(first)
    return arrived, InTraining(tuple(sorted(running)), drawn), time
