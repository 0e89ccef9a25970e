import pytest

from fedrun.sweeps.jobs_left import jobs_left


@pytest.mark.parametrize(
    ("done", "total", "seconds", "line"),
    [
        (3, 20, 180.0, "== 3 of 20 jobs done, 17:00 min left"),
        (1, 2, 30.0, "== 1 of 2 jobs done, 30 s left"),
        (2, 2, 9.0, "== 2 of 2 jobs done"),
    ],
)
def test_the_rest_takes_as_long_per_job(done: int, total: int, seconds: float, line: str) -> None:
    assert jobs_left(done, total, seconds) == line
