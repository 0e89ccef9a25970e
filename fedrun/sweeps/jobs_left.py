"""The progress of a sweep, in a line for each job that ends."""

from __future__ import annotations

import time
from pathlib import Path

from fedrun.runs.outcome import finished_earlier


class JobsLeft:
    """Counts the jobs of a sweep that have ended; the clock starts when it is created.

    Args:
        sweep: the sweep's folder.
        total: all jobs.
    """

    def __init__(self, sweep: Path, total: int) -> None:
        self._sweep = sweep
        self._total = total
        self._began = time.monotonic()
        self._done = 0
        self._earlier = 0

    def ended(self, number: int) -> str:
        """Count a job, and return the line."""
        self._done += 1
        self._earlier += finished_earlier(self._sweep / str(number))
        return jobs_left(self._done, self._earlier, self._total, time.monotonic() - self._began)


def jobs_left(done: int, earlier: int, total: int, seconds: float) -> str:
    """``3 of 20 jobs done, 12:00 min left``: the remaining jobs are expected to take as long as those computed.

    With parallel jobs the time left is too long until the first jobs have all ended, as those running do not count.

    Args:
        done: jobs that have ended, at least 1.
        earlier: how many of these had been finished before the sweep, and took no time. If all of them: no time is
            expected yet.
        total: all jobs.
        seconds: since the first one began.
    """
    from fedrun.runs.display import wording

    line = f"{done} of {wording.counted(total, 'job')} done"
    if done in (total, earlier):
        return line
    return f"{line}, {wording.duration(seconds / (done - earlier) * (total - done))} left"
