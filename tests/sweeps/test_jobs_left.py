from pathlib import Path

import pytest

from fedrun.runs.outcome import Outcome
from fedrun.sweeps.jobs_left import JobsLeft, jobs_left


@pytest.mark.parametrize(
    ("done", "earlier", "total", "seconds", "line"),
    [
        (3, 0, 20, 180.0, "3 of 20 jobs done, 17:00 min left"),
        (1, 0, 2, 30.0, "1 of 2 jobs done, 30 s left"),
        (2, 0, 2, 9.0, "2 of 2 jobs done"),
        (12, 10, 20, 60.0, "12 of 20 jobs done, 4:00 min left"),  # two were computed, 30 s each; eight remain
        (10, 10, 20, 1.0, "10 of 20 jobs done"),
        (20, 20, 20, 1.0, "20 of 20 jobs done"),
    ],
)
def test_the_rest_takes_as_long_per_computed_job(
    done: int, earlier: int, total: int, seconds: float, line: str
) -> None:
    assert jobs_left(done, earlier, total, seconds) == line


def test_jobs_that_were_finished_earlier_are_known_by_their_outcomes(tmp_path: Path) -> None:
    for number, earlier in {5: True, 6: False}.items():
        (folder := tmp_path / str(number)).mkdir()
        Outcome(("seed=1",), {}, None, earlier).save(folder)
    left = JobsLeft(tmp_path, 4)
    assert left.ended(5) == "1 of 4 jobs done"
    assert left.ended(6) == "2 of 4 jobs done, 0.0 s left"
    assert left.ended(7) == "3 of 4 jobs done, 0.0 s left"  # its process was lost
