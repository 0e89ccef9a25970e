"""Sweeps on a cluster: a job array of SLURM, whose commands stand here as scripts that run the tasks at once."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fedrun.runs.outcome import outcomes
from fedrun.sweeps.cluster_launcher import last_line

pytest.importorskip("submitit")

SBATCH = """#!{python}
import os, re, subprocess, sys
script = sys.argv[-1]
text = open(script).read()
open(os.environ["SEEN"], "w").write(text)
for task in range(int(re.search(r"--array=0-([0-9]+)", text)[1]) + 1):
    place = dict(SLURM_JOB_ID="77", SLURM_ARRAY_JOB_ID="77", SLURM_ARRAY_TASK_ID=str(task), SLURM_PROCID="0",
                 SLURM_LOCALID="0", SLURM_NODEID="0", SLURM_NTASKS="1", SLURM_JOB_NUM_NODES="1",
                 SLURM_JOB_NODELIST="here")
    subprocess.Popen(["bash", script], env=os.environ | place, stdout=-3, stderr=-3)  # sbatch does not wait
print("Submitted batch job 77")
"""
SRUN = """#!{python}
import os, sys
words, files = sys.argv[1:], {{}}
while words[0].startswith("-"):
    option = words.pop(0)
    if option in ("--output", "--error"):
        files[option] = words.pop(0)
for option, number in (("--output", 1), ("--error", 2)):
    name = files[option].replace("%A", "77").replace("%a", os.environ["SLURM_ARRAY_TASK_ID"]).replace("%t", "0")
    os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), number)
os.execvp(words[0], words)
"""
SACCT = "#!/bin/sh\necho 'JobID|State|NodeList'\necho '77_0|RUNNING|here'\necho '77_1|RUNNING|here'\n"
SETTING = ("rounds=1", "model=logistic", "partition.clients=2", "hardware.threads=1", "tracking=none")


def fedrun(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fedrun", "-m", "hydra/launcher=cluster", *SETTING, *arguments]
    environment = {**os.environ, **environment}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_job_array(tmp_path: Path) -> None:
    """Its script, what is printed, and the outcomes of its jobs."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, script in (("sbatch", SBATCH), ("srun", SRUN), ("sacct", SACCT)):
        (commands / name).write_text(script.format(python=sys.executable) if "python" in script else script)
        (commands / name).chmod(stat.S_IRWXU)
    ended = fedrun(
        tmp_path,
        "seed=0,1",
        "name=mine",
        "hydra.launcher.minutes=7",
        "+hydra.launcher.parameters.slurm_partition=gpu",
        PATH=f"{commands}:{os.environ['PATH']}",
        SEEN=str(tmp_path / "seen"),
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    script = (tmp_path / "seen").read_text()
    for flag in ("array=0-1%2", "job-name=fedrun-mine", "time=7", "partition=gpu", "signal=USR2@90"):
        assert f"#SBATCH --{flag}\n" in script
    lines = ended.stdout.splitlines()
    (sweep,) = (tmp_path / "outputs" / "sweeps").iterdir()
    assert lines[:2] == [
        f"== {number}: job 77_{number} (fedrun-mine), log {sweep}/logs/77_{number}_0_log.out" for number in (0, 1)
    ]
    assert lines[2].startswith("1 of 2 jobs done, ") and lines[3] == "2 of 2 jobs done"
    assert "complete after round 1 of 1" in (sweep / "logs" / "77_0_0_log.out").read_text()
    assert [outcome.summary is not None for outcome in outcomes(sweep)] == [True, True]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), 'Could not detect "srun", are you indeed on a slurm cluster?'),
        (("hydra.launcher.cluster=local", "+hydra.launcher.parameters.nope=1"), "Parameter 'nope' need to be prefixed"),
    ],
)
def test_what_submitit_refuses_is_shown_as_it_is(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    ended = fedrun(tmp_path, "seed=0", *arguments)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"fedrun: hydra/launcher=cluster: {message}")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("Job 7 failed during processing with trace:\n--------\nKeyError: 3\n", "KeyError: 3"),
        ("Job 7 has not produced any output\nNo error stream produced.\n--------\n\n", "No error stream produced."),
    ],
)
def test_why_a_job_was_lost(message: str, shown: str) -> None:
    assert last_line(RuntimeError(message)) == shown
