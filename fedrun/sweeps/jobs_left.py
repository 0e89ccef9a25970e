"""The progress of a sweep, in one line."""

from __future__ import annotations


def jobs_left(done: int, total: int, seconds: float) -> str:
    """``3 of 20 jobs done, 12:00 min left``: the remaining jobs are expected to take as long as those done.

    Args:
        done: jobs that have ended, at least 1.
        total: all jobs.
        seconds: since the first one began.
    """
    from fedrun.runs.display import wording

    left = f", {wording.duration(seconds / done * (total - done))} left" if done < total else ""
    return f"== {done} of {wording.counted(total, 'job')} done{left}"
