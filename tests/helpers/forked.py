"""Many fedrun commands in little time: each runs in a forked child of one process that has the slow packages loaded.

``python forked.py PACKAGE...`` imports the packages, then reads one order per line from standard input (a JSON object:
a key of ``ORDERS`` and the function's arguments) and answers each with a line, the function's result.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from fedrun.system.lazy_import import lazy_import

RUNS = (
    "fedrun.models.logistic",
    "fedrun.runs.display.console",
    "fedrun.runs.display.progress",
    "fedrun.runs.division",
    "fedrun.runs.run",
    "fedrun.simulation.process_count",
    "pyarrow.pandas_compat",
    "pyarrow.parquet",
    "rich.console",
    "rich.panel",
    "safetensors.torch",
    "sklearn.datasets",
)
"""The packages that every run needs, or loads where they are installed."""

SWEEPS = (
    "fedrun.report.sweep_table",
    "fedrun.sweeps.cluster_launcher",
    "fedrun.sweeps.job_processes",
    "fedrun.sweeps.jobs_left",
    "fedrun.sweeps.plugins",
    "fedrun.sweeps.search",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
)
"""The packages that a sweep needs as well."""

SLOW = ("torch", "torch._dynamo")
"""Packages that take long to load: no run needs PyTorch's compilers, and a command that is refused not even torch."""

PATIENCE = 300.0
"""Seconds after which a command is killed: ranks that wait for each other would wait for an hour."""


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit status (negative: the signal that killed it), and what it printed.

    ``loaded``: those of ``SLOW`` that were loaded.
    """

    status: int
    out: str
    err: str
    loaded: list[str]


class Fedrun:
    """Runs commands; a context manager, which holds the process that forks."""

    def __init__(self, *packages: str) -> None:
        command = [sys.executable, __file__, *packages]
        self._parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Fedrun:
        return self

    def __exit__(self, *_: object) -> None:
        self._parent.communicate(timeout=60)

    def __call__(
        self,
        *arguments: str,
        folder: Path,
        send: int | None = None,
        kill_at: tuple[str, str, int, float] | None = None,
        largest_file: int | None = None,
        plots: bool = False,
    ) -> Ended:
        """``fedrun ARGUMENTS...`` in a folder.

        Args:
            arguments: of the command.
            folder: where it runs.
            send: a signal to send it when a run has recorded its first round.
            kill_at: module or class, function, n, seconds: the process dies without warning when it calls the function
                for the n-th time, or so many seconds later.
            largest_file: no file can grow larger than this many bytes.
            plots: whether runs and sweeps draw their plots, which takes most of the time.
        """
        (ended,) = self._ordered(arguments, folder, send, kill_at, largest_file, [{}], plots=plots)
        return ended

    def together(
        self,
        ranks: int,
        *arguments: str,
        folder: Path,
        kill_at: tuple[str, str, int, float] | None = None,
        killed: int = 0,
        kill_with: int = signal.SIGKILL,
        extra: Sequence[tuple[str, ...]] = (),
    ) -> list[Ended]:
        """The same command in several processes that find one another as those that torchrun has started.

        Args:
            ranks: how many.
            arguments: of the command.
            folder: where they run.
            kill_at: as in :meth:`__call__`, for one of them.
            killed: which one.
            kill_with: the signal.
            extra: further arguments of each rank.
        """
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        common = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        places = [
            {name: str(value) for name, value in {**common, "RANK": rank, "LOCAL_RANK": rank}.items()}
            for rank in range(ranks)
        ]
        moment = None if kill_at is None else (*kill_at, kill_with)
        return self._ordered(arguments, folder, None, moment, None, places, killed, extra)

    def start(self, *arguments: str, folder: Path, out: Path, err: Path, nohup: bool = False) -> int:
        """Start ``fedrun ARGUMENTS...`` in a folder and a session of its own, as a terminal does.

        Args:
            arguments: of the command.
            folder: where it runs.
            out: the file or named pipe that it prints to.
            err: the file of its errors.
            nohup: whether it ignores SIGHUP.

        Returns:
            Its process number, for :meth:`wait`.
        """
        order = {"arguments": arguments, "folder": str(folder), "out": str(out), "err": str(err), "nohup": nohup}
        number: int = self._answer("start", order)
        return number

    def wait(self, number: int) -> int:
        """The exit status of a command of :meth:`start`, when it has ended."""
        status: int = self._answer("wait", {"number": number})
        return status

    def _ordered(
        self,
        arguments: Sequence[str],
        folder: Path,
        send: int | None,
        kill_at: tuple[str, str, int, float] | tuple[str, str, int, float, int] | None,
        largest_file: int | None,
        environments: list[dict[str, str]],
        killed: int = 0,
        extra: Sequence[tuple[str, ...]] = (),
        plots: bool = False,
    ) -> list[Ended]:
        commands = [
            {
                "arguments": [*arguments, *(extra[number] if extra else ())],
                "environment": environment,
                "plots": plots,
                "kill_at": kill_at if number == killed else None,
            }
            for number, environment in enumerate(environments)
        ]
        order = {"commands": commands, "folder": str(folder), "send": send, "largest_file": largest_file}
        return [Ended(**ended) for ended in self._answer("run", order)]

    def _answer(self, order: str, arguments: dict[str, Any]) -> Any:
        assert self._parent.stdin is not None and self._parent.stdout is not None
        print(json.dumps({order: arguments}), file=self._parent.stdin, flush=True)
        return json.loads(self._parent.stdout.readline())


def serve() -> None:
    """Carry out the orders that arrive."""
    lazy_import("torch")  # as the command does; a package that needs it loads it
    for package in ("composing", *sys.argv[1:]):
        importlib.import_module(package)
    gc.freeze()  # collections in the commands' processes leave out what they all share
    for line in sys.stdin:
        ((order, arguments),) = json.loads(line).items()
        print(json.dumps(ORDERS[order](**arguments)), flush=True)


def run_commands(
    commands: list[dict[str, Any]], folder: str, send: int | None, largest_file: int | None
) -> list[dict[str, Any]]:
    """Run commands at the same time; how each ended."""
    with ExitStack() as opened:
        children = [Child(command, folder, send, largest_file, opened) for command in commands]
        signal.signal(signal.SIGALRM, lambda *_: [child.kill() for child in children])
        signal.setitimer(signal.ITIMER_REAL, PATIENCE)
        return [child.ended() for child in children]


def start_command(arguments: list[str], folder: str, out: str, err: str, nohup: bool) -> int:
    """Start a command in a session of its own; its process number."""
    number = os.fork()
    if number == 0:
        os.setsid()
        signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)
        importlib.import_module("plotless")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        become(arguments, folder, [os.open(path, flags) for path in (out, err, os.devnull)], None, None)
    return number


def wait_for_command(number: int) -> int:
    """Wait for a command that was started; its exit status."""
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


ORDERS = {"run": run_commands, "start": start_command, "wait": wait_for_command}


class Child:
    """One process that carries out a command."""

    def __init__(
        self,
        command: dict[str, Any],
        folder: str,
        send: int | None,
        largest_file: int | None,
        opened: ExitStack,
    ) -> None:
        self._files = [opened.enter_context(tempfile.TemporaryFile()) for _ in range(3)]  # noqa: SIM115
        self._ended = False
        self._number = os.fork()
        if self._number == 0:
            os.environ.update(command["environment"])
            files = [file.fileno() for file in self._files]
            if not command["plots"] and "fedrun.runs.session" in sys.modules:
                importlib.import_module("plotless")
            become(command["arguments"], folder, files, command["kill_at"], largest_file)
        self._over = threading.Event()
        self._sender = None if send is None else threading.Thread(target=self._send, args=(send, Path(folder)))
        if self._sender is not None:
            self._sender.start()

    def kill(self) -> None:
        if not self._ended:
            os.kill(self._number, signal.SIGKILL)

    def _send(self, number: int, folder: Path) -> None:
        """Send a signal when a run in the folder has recorded a round after the initial model's row."""
        while not self._over.wait(0.05):
            if any(path.read_bytes().count(b"\n") > 1 for path in folder.glob("outputs/runs/**/metrics.jsonl")):
                os.kill(self._number, number)
                return

    def ended(self) -> dict[str, Any]:
        """Wait for it; how it ended."""
        os.waitid(os.P_PID, self._number, os.WEXITED | os.WNOWAIT)  # it keeps its number until no signal can be sent
        self._over.set()
        if self._sender is not None:
            self._sender.join()
        self._ended = True  # from now on its number may be another process's
        status = os.waitstatus_to_exitcode(os.waitpid(self._number, 0)[1])
        printed, complained, loaded = map(written, self._files)
        return {"status": status, "out": printed, "err": complained, "loaded": loaded.split()}


def written(file: IO[bytes]) -> str:
    """All of a file's content."""
    file.seek(0)
    return file.read().decode()


def become(
    arguments: list[str],
    folder: str,
    files: list[int],
    kill_at: tuple[str, str, int, float] | tuple[str, str, int, float, int] | None,
    largest_file: int | None,
) -> None:
    """Turn this process into the command, which prints to the first two files; never returns."""
    status: Any = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(files[0], 1)
        os.dup2(files[1], 2)
        os.chdir(folder)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        if kill_at is not None:
            arrange_death(*kill_at)
        if largest_file is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
        sys.argv = ["fedrun", *arguments]
        from fedrun.cli.main import main

        main()
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        loaded = (name for name in SLOW if type(sys.modules.get(name)) is ModuleType)
        os.write(files[2], " ".join(loaded).encode())
        os._exit(status)


def arrange_death(place: str, name: str, calls: int, seconds: float, number: int = signal.SIGKILL) -> None:
    """Replace a function of a module or class by one that ends this process when it is called the n-th time, or sends
    it another signal.
    """
    module, _, attribute = place.partition(":")
    owner = importlib.import_module(module)
    owner = getattr(owner, attribute) if attribute else owner
    real, left = getattr(owner, name), calls

    def fatal(*arguments: object, **named: object) -> object:
        nonlocal left
        left -= 1
        if left == 0 and seconds == 0:
            os.kill(os.getpid(), number)
        if left == 0:
            signal.setitimer(signal.ITIMER_REAL, seconds)  # nobody handles its signal, so that the kernel ends us
        return real(*arguments, **named)

    setattr(owner, name, fatal)


if __name__ == "__main__":
    serve()
