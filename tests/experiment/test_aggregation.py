"""Which uploads a server step has: worked examples with clients whose times are given."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from fedrun.config.build import option
from fedrun.experiment.aggregation.base import Aggregation, NextStep
from fedrun.experiment.aggregation.in_training import InTraining, Start, next_arrivals
from fedrun.experiment.participation.base import select
from fedrun.system.errors import InputError

TARGETS = (0.0, 4.0, -2.0)
"""Client k's loss is (y - b_k)^2 / 2; with one step of rate 0.5 it moves from x to (x + b_k) / 2."""

SECONDS = torch.tensor([2.0, 3.0, 7.0], dtype=torch.float64)


def asynchronous_models(rule: Aggregation, steps: int) -> list[tuple[float, float, float]]:
    """Time, staleness and model after each server step; x_0 = 1, three clients that all train at any time."""
    x, time, training, versions, rows = 1.0, 0.0, InTraining(), [], []
    for version in range(steps):
        versions.append(x)
        uploads = rule.uploads(
            NextStep(
                seed=0,
                round=version,
                time=time,
                size=3,
                draw=lambda size: pytest.fail("clients are not drawn by rounds"),
                seconds=lambda: SECONDS,
                training=training,
            )
        )
        arrived = []
        for client in uploads.clients.tolist():
            sent = versions[uploads.started[client]]
            y, tau = (sent + TARGETS[client]) / 2, version - uploads.started[client]
            vectors = (torch.tensor([value], dtype=torch.float64) for value in (y, sent, x))
            arrived.append(float(rule.arrived(*vectors, tau, 1)))
        x, time, training = sum(arrived) / len(arrived), uploads.time, uploads.training
        rows.append((time, uploads.metrics["clients/staleness_max"], x))
    return rows


TIMES, STALENESS = [2, 3, 4, 6, 6, 7, 8, 9], [0, 1, 1, 0, 2, 5, 1, 2]
"""At t = 6 two clients finish; both uploads are aggregated before either of them starts again."""


@pytest.mark.parametrize(
    ("settings", "models"),
    [
        (
            {"staleness": "constant"},
            [0.7, 1.78, 0.922, 0.6454, 1.99216, 0.496864, 0.7963936, 2.11620544],
        ),
        (
            {"staleness": "polynomial", "a": 0.5},
            [0.7, 1.46367532, 0.991182900, 0.693828030, 1.39981528, 0.934457472, 0.834946405, 1.48098793],
        ),
        (
            {"staleness": "hinge", "a": 10.0, "b": 1.0},
            [0.7, 1.78, 0.922, 0.6454, 0.767832727, 0.749279078, 0.530061449, 0.631180808],
        ),
    ],
)
def test_fedasync_moves_towards_each_upload(settings, models):
    rows = asynchronous_models(option("aggregation", "fedasync", alpha=0.6, **settings), 8)
    assert [time for time, _, _ in rows] == TIMES
    assert [staleness for _, staleness, _ in rows] == STALENESS
    assert [x for _, _, x in rows] == pytest.approx(models, rel=1e-8)


def test_fedbuff_moves_by_the_mean_of_scaled_displacements():
    """Worked by hand. A client with an upload in the buffer waits for the next step.

    t = 2, 3: D = -0.5, 1.5. t = 5, 6 (started at 3): -0.75, 1.25. t = 7 (started at 0, two steps ago), 8 (at 6):
    -1.5 / sqrt(3), -0.875. t = 9 (at 6, one step ago), 10 (at 8): 1.125 / sqrt(2), -x / 2 with x of step 3.
    """
    rows = asynchronous_models(option("aggregation", "fedbuff", buffer=2), 4)
    third = 1.75 + (-1.5 / math.sqrt(3) - 0.875) / 2
    expected = [1.5, 1.75, third, third + (1.125 / math.sqrt(2) - third / 2) / 2]
    assert [time for time, _, _ in rows] == [3, 6, 8, 10]
    assert [staleness for _, staleness, _ in rows] == [0, 0, 2, 1]
    assert [x for _, _, x in rows] == pytest.approx(expected)


def test_buffers_of_fedbuff_are_means_of_uploads():
    rule = option("aggregation", "fedbuff", staleness="constant")
    upload, sent, current = torch.tensor([5.0, 7.0]), torch.tensor([2.0, 100.0]), torch.tensor([10.0, 200.0])
    assert rule.arrived(upload, sent, current, 3, 1).tolist() == [13.0, 7.0]
    assert upload.tolist() == [5.0, 7.0]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"staleness": "constant"}, [1, 1, 1, 1, 1, 1]),
        ({"staleness": "polynomial", "a": 0.5}, [1, 0.707107, 0.5, 0.447214, 0.408248, 1 / 3]),
        ({"staleness": "hinge", "a": 10.0, "b": 4.0}, [1, 1, 1, 1, 0.0909091, 0.0243902]),
    ],
)
def test_factors_of_staleness(settings, expected):
    rule = option("aggregation", "fedasync", **settings)
    assert [rule.factor(tau) for tau in (0, 1, 3, 4, 5, 8)] == pytest.approx(expected, rel=1e-5)


def naive_arrivals(seconds, concurrency, buffer, steps, chosen):
    """The clients of each step and its time, by an ordinary list of events; ``chosen`` are the clients that start."""
    now, running, waiting, result = 0.0, [], set(), []
    chosen = iter(chosen)

    def fill(version):
        while len(running) < concurrency and len(running) + len(waiting) < len(seconds):
            client = next(chosen)
            assert client not in waiting
            assert client not in [other for _, other, _ in running]
            running.append((now + seconds[client], client, version))

    for version in range(steps):
        buffered = []
        while len(buffered) < buffer:
            if not any(arrival == now for arrival, _, _ in running):
                fill(version)
            event = min(running)
            running.remove(event)
            now = event[0]
            buffered.append(event[1:])
            waiting.add(event[1])
        waiting.clear()
        result.append((now, buffered))
    return result


def test_clients_are_replaced_when_they_finish():
    """Against a naive loop of events with the same draws, with equal times among the clients."""
    seconds = torch.tensor([1, 2, 2, 3, 5, 8, 1, 4, 4, 2], dtype=torch.float64)
    training, time, found, starts = InTraining(), 0.0, [], {}
    for version in range(40):
        arrived, training, time = next_arrivals(
            training, seed=3, version=version, time=time, concurrency=4, count=3, seconds=seconds
        )
        for start in (*arrived, *training.starts):
            starts.setdefault((start.arrival - float(seconds[start.client]), start.version, start.client), start)
        found.append((time, [(start.client, start.version) for start in arrived]))
    # starts at the same time and version come in the order of their draws, which the naive loop need not know
    order = [client for _, _, client in sorted(starts)]
    naive = naive_arrivals(seconds.tolist(), 4, 3, 40, order)
    assert [(time, sorted(clients)) for time, clients in found] == [(time, sorted(clients)) for time, clients in naive]
    assert training.drawn == len(starts)
    assert max(Counter(client for _, clients in found for client, _ in clients).values()) <= 40


def test_clients_start_after_the_servers_work():
    """Two of five clients train at any time. Both uploads arrived before the server's work ended at 2 s: two others
    start then. One upload is used at 2 s, the other waits for the next step, which can begin at 2.25 s.
    """
    seconds = torch.full((5,), 1.0, dtype=torch.float64)
    before = InTraining((Start(1.0, 0, 0), Start(1.5, 1, 0)))
    arrived, after, time = next_arrivals(before, seed=0, version=1, time=2.0, concurrency=2, count=1, seconds=seconds)
    assert (arrived, time) == ([Start(1.0, 0, 0)], 2.0)
    waiting, *started = after.starts
    assert waiting == Start(1.5, 1, 0)
    assert [(start.arrival, start.version) for start in started] == [(3.0, 1), (3.0, 1)]
    assert {start.client for start in started} < {2, 3, 4}
    arrived, after, time = next_arrivals(after, seed=0, version=2, time=2.25, concurrency=2, count=1, seconds=seconds)
    assert (arrived, time, list(after.starts)) == ([waiting], 2.25, started)
    # none has arrived at 2.5 s; the third step waits for both, without a start in between
    arrived, _, time = next_arrivals(after, seed=0, version=3, time=2.5, concurrency=2, count=2, seconds=seconds)
    assert (arrived, time) == (started, 3.0)


def test_a_step_begins_when_its_uploads_have_arrived():
    """The first of three uploads arrives 2 s after the step before, which ended at 100 s."""
    uploads = option("aggregation", "fedasync").uploads(step_of([3.0, 2.0, 7.0], 3))
    assert (uploads.clients.tolist(), uploads.time) == ([1], 102.0)


def test_every_free_client_is_equally_likely():
    """Of five clients two train; each of the three others is the replacement in about a third of 3 000 seeds."""
    seconds = torch.full((5,), 10.0, dtype=torch.float64)
    before = InTraining((Start(1.0, 1, 0), Start(2.0, 3, 0)))
    replaced = Counter()
    for seed in range(3000):
        arrived, after, time = next_arrivals(
            before, seed=seed, version=4, time=0.5, concurrency=2, count=2, seconds=seconds
        )
        assert [start.client for start in arrived] == [1, 3]
        assert time == 2.0
        ((arrival, client, version),) = [(s.arrival, s.client, s.version) for s in after.starts]
        assert (arrival, version) == (11.0, 4)
        replaced[client] += 1
    assert set(replaced) == {0, 2, 4}
    assert all(abs(count - 1000) < 5 * math.sqrt(1000 * 2 / 3) for count in replaced.values())


def step_of(seconds, size, drawn=None, **changes):
    values = {
        "seed": 0,
        "round": 0,
        "time": 100.0,
        "size": size,
        "draw": drawn or (lambda count: (select(0, 0, len(seconds), count), {"x": 1.0})),
        "seconds": lambda: torch.tensor(seconds, dtype=torch.float64),
        "training": InTraining(),
    }
    return NextStep(**{**values, **changes})


def test_over_selection_takes_the_first_uploads():
    """Four of ⌈1.5 · 4⌉ = 6 clients; ties go to the smaller number; the order is that of selection."""
    order = torch.tensor([5, 3, 0, 1, 4, 2])
    asked = []

    def drawn(count):
        asked.append(count)
        return order[:count], {"x": 1.0}

    rule = option("aggregation", "deadline", over_selection=1.5)
    uploads = rule.uploads(step_of([1.0, 4.0, 9.0, 2.0, 4.0, 3.0], 4, drawn))
    assert asked == [6]
    assert uploads.clients.tolist() == [5, 3, 0, 1]
    assert uploads.late.tolist() == [4, 2]
    assert uploads.time == 100 + 4.0
    assert uploads.metrics == {"x": 1.0, "clients/late": 2.0}


def test_a_product_that_is_rounded_up_starts_no_further_client():
    """1.1 · 50 is 55.00000000000001 in floating point; 55 clients start."""
    uploads = option("aggregation", "deadline", over_selection=1.1).uploads(step_of([1.0] * 60, 50))
    assert (len(uploads.clients), len(uploads.late)) == (50, 5)


@pytest.mark.parametrize(
    ("deadline", "clients", "end"),
    [(2.5, [3, 0], 102.5), (4.0, [5, 3, 0, 1], 104.0), (0.5, [], 100.5), (20.0, [5, 3, 0, 1], 104.0)],
)
def test_a_round_ends_at_the_deadline_unless_it_is_complete(deadline, clients, end):
    order = torch.tensor([5, 3, 0, 1, 4, 2])
    rule = option("aggregation", "deadline", over_selection=1.5, seconds=deadline)
    seconds = [1.0, 4.0, 9.0, 2.0, 4.0, 3.0, 0.1]  # the fastest client is not drawn
    uploads = rule.uploads(step_of(seconds, 4, lambda count: (order[:count], {})))
    assert uploads.clients.tolist() == clients
    assert sorted([*clients, *uploads.late.tolist()]) == [0, 1, 2, 3, 4, 5]
    assert uploads.time == end


def test_clients_that_fail_never_send():
    """30 clients of equal speed over 200 rounds, a third of which fails: 4 000 uploads, give or take 5 sigma. A failed
    client is drawn anew in each round, and the round lasts until the deadline unless enough others have sent.
    """
    rule, start = option("aggregation", "deadline", over_selection=1.0, seconds=7.0, failure=1 / 3), list(range(30))
    arrived = Counter()
    for round in range(200):
        uploads = rule.uploads(step_of([5.0] * 30, 30, lambda count: (torch.tensor(start), {}), round=round))
        arrived.update(uploads.clients.tolist())
        assert sorted([*uploads.clients.tolist(), *uploads.late.tolist()]) == start
        assert uploads.time == 100 + (7.0 if len(uploads.late) else 5.0)
        again = rule.uploads(step_of([5.0] * 30, 30, lambda count: (torch.tensor(start), {}), round=round))
        assert torch.equal(again.clients, uploads.clients)
    assert abs(sum(arrived.values()) - 4000) < 5 * math.sqrt(6000 * 2 / 9)
    assert all(abs(count - 400 / 3) < 5 * math.sqrt(200 * 2 / 9) for count in arrived.values())


def test_failures_need_a_deadline():
    with pytest.raises(InputError, match=r"^aggregation.failure=0.1: the server would wait .*aggregation.seconds=60$"):
        option("aggregation", "deadline", failure=0.1)


def test_a_deadline_before_every_upload_is_refused():
    rule = option("aggregation", "deadline", seconds=0.5)
    message = "aggregation.seconds=0.5: no upload would arrive in time, because the fastest client needs 1 s; allowed: "
    with pytest.raises(InputError, match=message):
        rule.uploads(step_of([4.0, 1.0], 2))


def test_a_small_cohort_is_complete_when_all_have_arrived():
    rule = option("aggregation", "deadline", over_selection=1.0, seconds=50.0)
    uploads = rule.uploads(step_of([1.0, 4.0, 9.0], 3, lambda count: (torch.tensor([1, 0]), {})))
    assert (uploads.clients.tolist(), uploads.late.tolist(), uploads.time) == ([1, 0], [], 104.0)


def test_a_buffer_has_one_upload_of_each_client():
    rule = option("aggregation", "fedbuff", buffer=7)
    rule.check_clients(7)
    with pytest.raises(InputError, match=r"aggregation\.buffer=7.*1 to 6"):
        rule.check_clients(6)
