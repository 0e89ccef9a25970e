"""The processes that share a run, as seen by one of them. torchrun (:mod:`fedrun.execution.launched_ranks`) or fedrun
itself (:mod:`fedrun.execution.forked_ranks`) has started them.

Each process ("rank") builds the same simulation and computes the same rounds. All communication goes through this
module, in the same order on all ranks: small values as objects, long vectors as sums. Rank 0 is the leader: it alone
writes files and prints.
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from fedrun.system.errors import InputError, RunError
from fedrun.system.signals import INTERRUPTED, TERMINATED, TERMINATING, not_ignored

if TYPE_CHECKING:
    import torch
    from torch.distributed.distributed_c10d import ProcessGroup, Store

T = TypeVar("T")

COLLECTIVE_TIMEOUT = timedelta(hours=1)
"""The longest time that a rank may delay the others. A rank that dies is noticed at once by its broken connections."""

SECONDS_FOR_REASON = 10.0
"""Seconds for which a rank waits for the leader to print why the run ends: torchrun stops all ranks if one exits."""

SECONDS_FOR_READERS = 2.0
"""Seconds for which the leader then waits for the others, because the store that they read may be in its process."""

SECONDS_TO_END_ROUND = 20.0
"""Seconds that a round may still take after a signal to stop: torchrun kills the remaining ranks after 30."""

LOST = "another rank was lost (its process, its machine or the connection to it)"


class RankLostError(RunError):
    """A rank has died, or cannot be reached."""


class StoppedError(RunError):
    """A signal has stopped a run between two rounds, with a checkpoint.

    Attributes:
        exit_status: exit status of the process: that of a command of one process that this signal stops.
    """

    def __init__(self, number: int, round: int) -> None:
        name = signal.Signals(number).name
        super().__init__(f"stopped by {name} after round {round}; the same command (without overwrite=true) continues")
        self.exit_status = INTERRUPTED if number == signal.SIGINT else TERMINATED


class Ranks:
    """The ranks of a run. Without arguments: a run of a single process.

    Attributes:
        number: this rank's number, 0 for the leader.
        count: the number of ranks.
        local: number of this rank among those on its machine.
        local_count: the number of ranks on its machine.
        stop_signal: the number of the signal that requested a stop of this rank; 0: none.
    """

    def __init__(
        self, number: int = 0, count: int = 1, local: int = 0, local_count: int = 1, store: Store | None = None
    ) -> None:
        self.number = number
        self.count = count
        self.local = local
        self.local_count = local_count
        self.stop_signal = 0
        self._store = store
        self._devices: ProcessGroup | None = None

    @property
    def is_leader(self) -> bool:
        return self.number == 0

    def part(self, count: int) -> slice:
        """Return this rank's slice of a sequence of this length."""
        return slice(count * self.number // self.count, count * (self.number + 1) // self.count)

    def all_gather(self, value: T) -> list[T]:
        """Every rank's value, in the order of ranks."""
        if self.count == 1:
            return [value]
        from torch import distributed

        values: list[Any] = [None] * self.count
        with self._connection_errors():
            distributed.all_gather_object(values, value)
        return values

    def broadcast(self, value: T) -> T:
        """The leader's value. The values of the other ranks are ignored."""
        if self.count == 1:
            return value
        from torch import distributed

        values: list[Any] = [value if self.is_leader else None]
        with self._connection_errors():
            distributed.broadcast_object_list(values, 0)
        received: T = values[0]
        return received

    def scatter(self, values: Sequence[T] | None) -> T:
        """One value for each rank, from the leader; the other ranks' arguments are ignored."""
        from torch import distributed

        own: list[Any] = [None]
        with self._connection_errors():
            distributed.scatter_object_list(own, None if values is None else list(values), 0)
        return own[0]  # type: ignore[no-any-return]  # the leader's value has this type

    def gather(self, value: T) -> list[T]:
        """Every rank's value for the leader; nothing for the others."""
        from torch import distributed

        values: list[Any] | None = [None] * self.count if self.is_leader else None
        with self._connection_errors():
            distributed.gather_object(value, values, 0)
        return values or []

    def all_reduce(self, vector: torch.Tensor) -> None:
        """Replace a vector by its sum over all ranks, the same to the last bit for each of them."""
        if self.count == 1:
            return
        from torch import distributed

        with self._connection_errors():
            if vector.is_cuda and self._devices is None:
                self._devices = distributed.new_group(backend="nccl", timeout=COLLECTIVE_TIMEOUT)
            distributed.all_reduce(vector, group=self._devices if vector.is_cuda else None)

    def after_round(self, due: bool) -> tuple[bool, int]:
        """Decide together, between two rounds, whether to write a checkpoint and whether to stop.

        Args:
            due: whether a checkpoint is due on this rank.

        Returns:
            The leader's ``due``, and the number of the signal that requested a stop of any rank, or 0.
        """
        requests = self.all_gather((due, self.stop_signal))
        stop_signal = max(number for _, number in requests)
        if stop_signal:
            signal.setitimer(signal.ITIMER_REAL, 0)  # the timer was for the finished round
        return requests[0][0], stop_signal

    def handle_signals(self) -> None:
        """Handle the stop signals from now on: they request a stop after the round.

        A rank that stopped at once could not write the client states of the others. If the round takes too long, it
        ends with :class:`RankLostError`: the signal may mean that another rank has died, because torchrun then stops
        the remaining ranks.
        """

        def request_stop(number: int, _: object) -> None:
            if not self.stop_signal:
                self.stop_signal = number
                signal.setitimer(signal.ITIMER_REAL, SECONDS_TO_END_ROUND)

        signal.signal(signal.SIGALRM, _overdue)
        for number in not_ignored(signal.SIGINT, *TERMINATING):
            signal.signal(number, request_stop)

    @contextmanager
    def raise_on_all(self) -> Iterator[None]:
        """Raise an :class:`InputError` of one rank in the block on all ranks."""
        message = None
        try:
            yield
        except InputError as error:
            if self.count == 1:
                raise
            message = str(error)
        messages = [(rank, line) for rank, line in enumerate(self.all_gather(message)) if line is not None]
        if messages:
            rank, line = messages[0]
            raise InputError(f"rank {rank}: {line}" if rank else line)

    def require_same(self, what: str, value: object) -> None:
        """Reject ranks whose values differ.

        Raises:
            InputError: the value is not the same everywhere.
        """
        values = self.all_gather(value)
        if different := [rank for rank, other in enumerate(values) if other != values[0]]:
            raise InputError(
                f"rank {different[0]} has {what} {values[different[0]]}, rank 0 has {values[0]}; all ranks need the "
                "same command and the same data"
            )

    @contextmanager
    def _connection_errors(self) -> Iterator[None]:
        """Turn errors of the connections into one line: the lost rank's own message if there is one."""
        try:
            yield
        except RuntimeError as error:  # gloo's, NCCL's and the store's errors are of this kind
            raise RankLostError(self._reason()) from error

    def _reason(self) -> str:
        assert self._store is not None
        with suppress(RuntimeError):
            for rank in range(self.count):
                if self._store.check([f"ended/{rank}"]):
                    return f"rank {rank}: {self._store.get(f'ended/{rank}').decode()}"
        return f"{LOST}; the newest checkpoint is kept, and the same command continues the run"

    def leave(self, reason: str | None = None, lost: bool = False) -> bool:
        """Leave the group; called after the leader has printed why the run ends.

        Args:
            reason: why, in one line; None after a complete run.
            lost: whether another rank was lost.

        Returns:
            Whether this rank must print the reason, because the leader was lost.
        """
        if self._store is None:
            return False
        from torch import distributed

        signal.setitimer(signal.ITIMER_REAL, 0)  # no timer during the exit
        with suppress(RuntimeError):
            if self.is_leader:
                self._store.set("over", "")
            elif reason is not None and not lost:
                self._store.set(f"ended/{self.number}", reason)
        with suppress(RuntimeError):
            distributed.destroy_process_group()
        if reason is None:
            return False
        if self.is_leader:
            self._wait_for([f"read/{rank}" for rank in range(1, self.count)], SECONDS_FOR_READERS)
            return False
        if not self._wait_for(["over"], SECONDS_FOR_REASON):
            return True
        with suppress(RuntimeError):
            self._store.set(f"read/{self.number}", "")
        return False

    def _wait_for(self, keys: list[str], seconds: float) -> bool:
        """Whether the store has all these keys within some seconds."""
        assert self._store is not None
        until = time.monotonic() + seconds
        with suppress(RuntimeError):
            while not self._store.check(keys):
                if time.monotonic() > until:
                    return False
                time.sleep(0.05)
            return True
        return False


SINGLE_PROCESS = Ranks()
"""The only rank of a run in a single process."""


def connected(place: Ranks, store: Store, prefix: str, where: str) -> Ranks:
    """Connect to the other ranks through a store, and handle signals as ranks do.

    Args:
        place: the numbers of this rank.
        store: that all ranks can reach.
        prefix: prefix of the keys in the store.
        where: the store is, for the message.

    Raises:
        RunError: they cannot be reached.
    """
    from torch.distributed.distributed_c10d import PrefixStore, init_process_group

    store = PrefixStore(prefix, store)
    with joining_errors(place.number, where):
        init_process_group("gloo", store=store, rank=place.number, world_size=place.count, timeout=COLLECTIVE_TIMEOUT)
    ranks = Ranks(place.number, place.count, place.local, place.local_count, store)
    ranks.handle_signals()
    return ranks


@contextmanager
def joining_errors(number: int, where: str) -> Iterator[None]:
    """Turn errors of the first connection into one line."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        line = str(error).splitlines()[0]
        raise RunError(
            f"rank {number} on {socket.gethostname()} cannot connect to the other ranks at {where}: {line}"
        ) from error


def _overdue(*_: object) -> NoReturn:
    raise RankLostError(
        f"stopped within a round, by a signal or because {LOST}; the newest checkpoint is kept, and the same command "
        "continues the run"
    )
