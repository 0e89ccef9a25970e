import math

import pytest

from fedrun.data.targets import Target
from fedrun.runs.display.console import time_left
from fedrun.runs.display.progress import Progress


def rows(*accuracies):
    return [{"round": r, "test/accuracy": value, "cost/client_samples": 300 * r} for r, value in enumerate(accuracies)]


def test_a_target_is_hit_once_and_never_by_the_initial_model(run_info, clock):
    progress = Progress(run_info(), clock)
    reached = [progress.take(row) for row in rows(0.90, 0.40, 0.55, 0.45, 0.72, 0.80)]
    assert reached == [(), (), (Target.of(0.5),), (), (Target.of(0.7),), ()]
    assert progress.hits == {Target.of(0.5): 2, Target.of(0.7): 4}
    assert progress.best == (0.90, 0)


def test_one_row_may_reach_several_targets(run_info, clock):
    progress = Progress(run_info(), clock)
    assert [progress.take(row) for row in rows(0.1, 0.75)] == [(), (Target.of(0.5), Target.of(0.7))]


def test_the_first_of_equal_bests_counts_and_nan_never_does(run_info, clock):
    progress = Progress(run_info(), clock)
    for row in rows(math.nan, 0.6, None, 0.6, math.nan):
        progress.take(row)
    assert progress.best == (0.6, 1)
    assert progress.hits == {Target.of(0.5): 1, Target.of(0.7): None}


def test_history_counts_for_targets_and_best_but_not_for_speed(run_info, clock):
    progress = Progress(run_info(history=tuple(rows(0.1, 0.6, 0.5))), clock)
    assert (progress.run.resumed_after, progress.round, progress.best) == (2, 2, (0.6, 1))
    assert progress.hits == {Target.of(0.5): 1, Target.of(0.7): None}
    assert progress.rounds_per_second is None
    clock.seconds = 4.0
    progress.take({"round": 4, "test/accuracy": 0.5, "cost/client_samples": 1200})
    # 2 rounds and 1200 - 600 samples in 4 seconds; 96 rounds to go.
    assert progress.rounds_per_second == 0.5
    assert progress.samples_per_second == 150.0
    assert progress.seconds_left == 192.0
    clock.seconds = 14.0
    assert progress.seconds_left == 182.0


def test_a_run_resumed_between_two_evaluations(run_info, clock):
    """Its speed is that of the rounds made since; the row of round 0 is not where they began."""
    info = run_info(rounds=4000, history=({"round": 0, "test/accuracy": 0.1},), resumed_after=37)
    progress = Progress(info, clock)
    assert (progress.round, progress.rounds_per_second) == (37, None)
    progress.client(38, 10, 10)
    assert progress.round == 38
    for round, seconds in ((1000, 500.0), (2000, 700.0)):
        clock.seconds = seconds
        progress.take({"round": round, "test/accuracy": 0.5})
    assert progress.rounds_per_second == 5.0


def test_speed_is_that_of_the_last_32_rows(run_info, clock):
    progress = Progress(run_info(rounds=1000), clock)
    for row in rows(*[0.1] * 101):
        clock.seconds += 100.0 if row["round"] <= 50 else 0.5
        progress.take(row)
    assert progress.rounds_per_second == pytest.approx(2.0)


def test_each_phase_has_its_own_time_left(run_info, clock):
    progress = Progress(run_info(rounds=103, first_rounds=3), clock)
    lefts = []
    for row in rows(*[0.1] * 6):
        clock.seconds += 20.0 if row["round"] <= 4 else 1.0
        progress.take(row)
        lefts.append((time_left(progress), progress.before_last_phase))
    # First 20 s for each remaining round of the first phase, and more for the 100 others. The first of these also
    # prepares the phase, so it has no part in the estimate: 1 s each.
    assert lefts == [
        ("", True),
        ("> 40 s", True),
        ("> 20 s", True),
        ("", False),
        ("", False),
        ("1:38 min", False),
    ]


def test_a_run_without_another_phase_has_one_time_left(run_info, clock):
    progress = Progress(run_info(rounds=10), clock)
    for row in rows(*[0.1] * 3):
        clock.seconds += 20.0
        progress.take(row)
    assert time_left(progress) == "2:40 min"


def test_rounds_between_evaluations_are_seen_through_their_clients(run_info, clock):
    progress = Progress(run_info(), clock)
    progress.take({"round": 0, "test/accuracy": 0.1})
    progress.client(8, 3, 10)
    assert progress.round == 7
    assert progress.cohort == (8, 3, 10)
    assert progress.samples_per_second is None
