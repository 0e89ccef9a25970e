"""A stop that is asked for at any moment: it is never lost, and never a traceback."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = r"""
import os, signal, sys, time
from fedrun.system.signals import TERMINATING, Stop, describe_stop
stop = Stop()
stop.handle(signal.SIGINT, *TERMINATING)
def ask():
    os.kill(os.getpid(), signal.SIG{name})
    for _ in range(3): time.sleep(0.01)  # a handler would have run by now
try:
{body}
    sys.stdout.write("went on\n")  # in one piece, whenever the stop is raised again
    time.sleep(30)
    print("lost")
except KeyboardInterrupt as error:
    stop.end()
    os.kill(os.getpid(), signal.SIG{name})
    time.sleep(0.1)
    print(*describe_stop(error))
"""

BODIES = {
    "anywhere": "ask()\n",
    "in a finalizer": "class Thing:\n    def __del__(self): ask()\nThing()\n",
    "in a callback of weakref": "import weakref\nclass Thing: pass\nthing = Thing()\n"
    "ref = weakref.ref(thing, lambda _: ask())\ndel thing\n",
    "where everything is caught": "try: ask()\nexcept BaseException: pass\n",
    "while a module is loaded": "import catching\nprint(catching.whole)\n",
}
"""What is done when the signal comes."""


def ended(body: str, name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    program = PROGRAM.format(name=name, body=lines)
    (folder / "catching.py").write_text(
        "import os, signal, time\n"
        "try:\n"
        f"    os.kill(os.getpid(), signal.SIG{name})\n"
        "    time.sleep(0.05)\n"
        "    whole = 'whole'\n"
        "except BaseException:\n"
        "    whole = 'broken'\n"
    )
    code = f"import sys; sys.path.insert(0, {str(folder)!r})\n{program}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
@pytest.mark.parametrize("moment", BODIES)
def test_a_stop_is_never_lost(moment: str, name: str, tmp_path: Path) -> None:
    result = ended(BODIES[moment], name, tmp_path)
    word = "interrupted 130" if name == "INT" else "terminated 143"
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1] == word
    assert "lost" not in result.stdout and "broken" not in result.stdout


SLOW = """
real = signal.setitimer
def slow(which, seconds, interval):
    real(which, seconds, interval)
    if seconds < 0.5:  # the stop was lost, and is to be raised again; here for once the machine is too busy
        signal.setitimer = real
        time.sleep(10 * seconds)
signal.setitimer = slow
"""


def test_a_stop_is_not_raised_in_the_hook_that_notices_its_loss(tmp_path: Path) -> None:
    """On a busy machine the timer may expire before Python has left the hook."""
    result = ended(SLOW + BODIES["in a callback of weakref"], "TERM", tmp_path)
    assert (result.stderr, result.stdout.splitlines()[-1]) == ("", "terminated 143")


def test_what_ends_a_run_is_not_disturbed(tmp_path: Path) -> None:
    """Writing a checkpoint takes longer than the time after which a stop counts as lost. The timer, which repeats in
    case that a system call misses it, ends then.
    """
    timer = "print(signal.getitimer(signal.ITIMER_REAL)[1])"
    body = f"try: ask()\nfinally:\n    {timer}\n    time.sleep(1.5)\n    {timer}\n    print('written')\n"
    result = ended(body, "TERM", tmp_path)
    assert (result.stderr, result.stdout.splitlines()) == ("", ["0.02", "0.0", "written", "terminated 143"])


def test_the_timer_repeats_after_an_unsafe_point(tmp_path: Path) -> None:
    body = BODIES["in a finalizer"].replace("ask()", "ask(); print(signal.getitimer(signal.ITIMER_REAL)[1])")
    result = ended(body, "TERM", tmp_path)
    assert (result.stderr, result.stdout.splitlines()[0]) == ("", "0.02")


def test_ctrl_c_pressed_again_waits_for_nothing(tmp_path: Path) -> None:
    body = "try: ask()\nfinally:\n    ask()\n    print('written')\n"
    result = ended(body, "INT", tmp_path)
    assert (result.stderr, result.stdout.splitlines()) == ("", ["interrupted 130"])


@pytest.mark.parametrize(
    ("sent", "word", "seconds"),
    [
        *((signal.SIGINT, "interrupted", seconds) for seconds in (0.0, 1.0)),
        *((signal.SIGTERM, "terminated", seconds) for seconds in (0.3, 2.5)),
    ],
)
def test_a_command_that_is_stopped_while_it_starts(
    tmp_path: Path, sent: signal.Signals, word: str, seconds: float
) -> None:
    """While modules are loaded, while the configuration is composed, in the first rounds."""
    keys = ["rounds=100000", "model=logistic", "hardware.threads=1", "tracking=none", "dataset=digits"]
    command = [sys.executable, "-m", "fedrun", *keys]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the suite runs in the background
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, before)
    with process:
        while not catches(process.pid, signal.SIGTERM):  # until then Python itself is starting
            assert process.poll() is None
            time.sleep(0.005)
        time.sleep(seconds)
        process.send_signal(sent)
        _, complaint = process.communicate(timeout=60)
    assert complaint == f"fedrun: {word}; the same command (without overwrite=true) continues\n"
    assert process.returncode == 128 + sent


REPLACED = """
import sys
from fedrun.config import composed
from fedrun.cli.main import main
def interrupted(arguments, single_run):
    try:
        raise KeyboardInterrupt
    except BaseException:
        try:
            None.attribute
        except AttributeError as error:
            raise ValueError("the library tidies up") from error
composed.compose_plainly = interrupted
sys.argv[1:] = ["rounds=1"]
main()
"""


def test_an_error_that_replaced_a_stop_ends_the_command_like_the_stop(tmp_path: Path) -> None:
    """OmegaConf, stopped between two statements, raises an error of its own about what it had not set yet."""
    command = [sys.executable, "-c", REPLACED]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert result.stderr == "fedrun: interrupted; the same command (without overwrite=true) continues\n"
    assert (result.stdout, result.returncode) == ("", 130)


def catches(process: int, number: int) -> bool:
    """Whether a process has a handler for a signal."""
    status = Path(f"/proc/{process}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)
