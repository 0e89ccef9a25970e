"""How fedrun-report and fedrun-data end when their output cannot be written, or nobody wants it any more."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import fedrun
from fedrun.cli.entrypoint import exit_status
from fedrun.system.errors import InputError

from ..helpers.run_folders import rows

COMMAND = [
    sys.executable,
    "-c",
    "import sys; from fedrun.cli.report import main; sys.argv[0] = 'fedrun-report'; main()",
]


def ended(shell: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A shell's command line, in which "$@" is ``fedrun-report``."""
    return subprocess.run(
        ["bash", "-c", shell, "bash", *COMMAND],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk(folders):
    folders.write(0, rows(0.1, 0.2, 0.3))
    found = ended(f'"$@" {folders.top} > /dev/full')
    assert (found.returncode, found.stderr) == (
        2,
        "fedrun-report: the output cannot be written (No space left on device)\n",
    )


@pytest.mark.parametrize("module", ["fedrun", "fedrun.cli.report"])
def test_a_deleted_current_folder(module, tmp_path):
    """PyTorch would end the process with a message about one of its libraries."""
    command = f"import runpy; runpy.run_module({module!r}, run_name='__main__')"
    found = subprocess.run(
        ["bash", "-c", 'mkdir gone; cd gone; rmdir ../gone; exec "$0" -c "$1"', sys.executable, command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(fedrun.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    line = "the current folder has been deleted; allowed: a folder that exists\n"
    assert (found.returncode, found.stderr.partition(": ")[2]) == (2, line)


def test_an_error_begins_with_the_commands_name_however_it_was_started(capsys, monkeypatch):
    def command(arguments):
        raise MemoryError

    monkeypatch.setattr(sys, "argv", ["report.py"])
    assert exit_status(command, "fedrun-report", []) == 1
    assert capsys.readouterr().err.startswith("fedrun-report: not enough memory")


def test_an_error_keeps_its_status_if_nobody_reads_it(monkeypatch):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    def command(arguments):
        raise InputError("wrong")

    monkeypatch.setattr(sys, "stderr", Closed())
    assert exit_status(command, "fedrun-report", []) == 2


def test_a_closed_output():
    found = ended('"$@" no_such_folder >&-')
    assert found.returncode == 2
    assert "Traceback" not in found.stderr
    assert "fedrun-report: no_such_folder: no such folder" in found.stderr


def test_a_reader_who_has_seen_enough():
    found = ended('set -o pipefail; "$@" --help | true')
    assert (found.returncode, found.stderr) == (0, "")


def test_an_encoding_that_lacks_a_character(folders):
    for seed in (0, 1):
        folders.write(seed, rows(0.1, 0.2, 0.3))
    found = ended(f'"$@" {folders.top}', PYTHONIOENCODING="ascii")
    assert found.returncode == 2
    assert found.stderr == (
        "fedrun-report: the output cannot be written (ascii lacks '\\xb1'); try PYTHONIOENCODING=utf-8\n"
    )


def test_ctrl_c():
    code = (
        "import signal, time\n"
        "from fedrun.cli import entrypoint\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored where the suite runs in the background
        "def command(arguments):\n"
        "    print('begun', flush=True)\n"
        "    time.sleep(60)\n"
        "entrypoint.run_command(command, 'fedrun-report')\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"begun\n"
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=60)
    assert (process.returncode, complaint) == (130, b"")


def test_a_stop_without_a_standard_output():
    code = (
        "import os, signal, sys\n"
        "from fedrun.cli import entrypoint\n"
        "entrypoint.run_command(lambda arguments: os.kill(os.getpid(), signal.SIGTERM), 'fedrun-report')\n"
    )
    found = subprocess.run(["sh", "-c", '"$@" >&-', "sh", sys.executable, "-c", code], stderr=-1, check=False)
    assert (found.returncode, found.stderr) == (143, b"")


@pytest.mark.parametrize(
    ("command", "module", "arguments", "slow"),
    [
        ("fedrun", "main", "--help", "torch hydra rich pydantic numpy"),
        ("fedrun", "main", "--version", "torch hydra rich pydantic numpy"),
        ("fedrun-data", "data", "list", "torchvision hydra omegaconf"),
    ],
)
def test_quick_answers_load_nothing_slow(command: str, module: str, arguments: str, slow: str, tmp_path: Path) -> None:
    code = (
        f"import sys; sys.argv = ['{command}', '{arguments}']\n"
        f"from fedrun.cli.{module} import main\n"
        "try: main()\n"
        "finally:\n"
        f"    loaded = [name for name in '{slow}'.split() if type(sys.modules.get(name)).__name__ == 'module']\n"
        "    print(loaded, file=sys.stderr)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "[]\n")
    assert result.stdout.strip()
