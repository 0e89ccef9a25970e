"""Oort: clients with useful data and fast devices take part, and some new ones."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from fedrun.config.build import option
from fedrun.experiment.participation.base import Candidates, RoundOutcome
from fedrun.strategies.vectors import Vectors


def oort(**changes: float):
    """Without clipping and penalties, and with clients drawn from the best only, unless a test sets these keys."""
    plain = {"exploration": 0.5, "exploration_decay": 1.0, "exploration_min": 0.0, "clip": 1.0, "cutoff": 1.0}
    return option("participation", "oort", **{**plain, "penalty": 0.0, "fast_share": 1.0, **changes})


def history(utility: list[float], last: list[int], seconds: list[float] | None = None, fast_share: float = 1.0):
    return {
        "utility": torch.tensor(utility, dtype=torch.float64),
        "seconds": torch.tensor([0.0] * len(utility) if seconds is None else seconds, dtype=torch.float64),
        "round": torch.tensor(last),
        "fast_share": torch.tensor([fast_share], dtype=torch.float64),
        "window": torch.zeros(2, dtype=torch.float64),
    }


def candidates(known: Vectors, size: int, round: int = 1) -> Candidates:
    return Candidates(
        seed=0,
        round=round,
        rounds=100,
        size=size,
        samples=torch.ones(len(known["round"]), dtype=torch.int64),
        losses=lambda clients: pytest.fail("no losses are needed"),
        thresholds=lambda: pytest.fail("no thresholds are needed"),
        history=known,
    )


def drawn(rule, known: Vectors, size: int, round: int = 1) -> list[int]:
    return rule.participants(candidates(known, size, round))[0].tolist()


def outcome(round: int, clients: list[int], samples: list[int], losses: list[float], seconds: list[float]):
    return RoundOutcome(
        round=round,
        clients=torch.tensor(clients, dtype=torch.int64),
        samples=torch.tensor(samples, dtype=torch.int64),
        losses=torch.tensor(losses, dtype=torch.float64),
        seconds=torch.tensor(seconds, dtype=torch.float64),
    )


def test_everyone_is_new_in_the_first_round() -> None:
    """3 of 6, each as likely: 300 of 600 times, with standard deviation √(600 / 4) = 12.2."""
    times = torch.zeros(6)
    for seed in range(600):
        chosen, metrics = oort().participants(replace(candidates(oort().initial_history(6), 3, 0), seed=seed))
        assert len(set(chosen.tolist())) == 3 and metrics == {"clients/explored": 0.0}
        times[chosen] += 1
    assert ((times - 300).abs() < 5 * 12.2).all()


def test_the_best_and_as_many_new_clients_as_epsilon_says() -> None:
    """Clients 0 to 3 took part in round 1; of a cohort of 4, ε = 0.5 leaves 2 for the best of them: 1 and 3."""
    known = history([1.0, 4.0, 2.0, 3.0, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0, 0, 0])
    for round in range(1, 20):
        chosen = drawn(oort(), known, 4, round)
        assert sorted(chosen[:2]) == [1, 3] and set(chosen[2:]) < {4, 5, 6, 7} and len(set(chosen)) == 4


@pytest.mark.parametrize(("round", "new"), [(1, 9), (5, 6), (10, 4), (50, 2)])
def test_epsilon_falls_to_its_least_value(round: int, new: int) -> None:
    """ε = max(0.2, 0.9 · 0.9^round); 10 ε is rounded up: 8.1, 5.3, 3.1 and 2 become 9, 6, 4 and 2."""
    rule = oort(exploration=0.9, exploration_decay=0.9, exploration_min=0.2)
    known = history([1.0] * 30, [1] * 15 + [0] * 15)
    assert sum(client >= 15 for client in drawn(rule, known, 10, round)) == new


@pytest.mark.parametrize(
    ("last", "exploited", "explored"),
    [
        ([1, 1, 1, 1, 1, 1], 4, 0),  # nobody is new
        ([1, 1, 1, 1, 1, 0], 3, 1),
        ([1, 0, 0, 0, 0, 0], 1, 3),  # only one client is known
    ],
)
def test_a_group_that_is_too_small_is_filled_up_by_the_other(last: list[int], exploited: int, explored: int) -> None:
    chosen = drawn(oort(), history([1.0] * 6, last), 4)
    assert len(set(chosen)) == 4
    assert sum(last[client] > 0 for client in chosen) == exploited
    assert sum(last[client] == 0 for client in chosen) == explored


def test_clients_above_the_cutoff_are_drawn_by_their_utility() -> None:
    """Scaled utilities are 0, 1/2, 3/4 and 1. To each √(0.1 ln 2 / 1) = 0.2633 is added.

    The second best of them has 1.0133, so that with c = 0.7 clients of at least 0.7093 are admitted: 1, 2 and 3. One is
    drawn with probabilities 0.7633, 1.0133 and 1.2633 over 3.0398.
    """
    known = history([2.0, 4.0, 5.0, 6.0], [1, 1, 1, 1])
    rule, times = oort(exploration=0.0, cutoff=0.7), torch.zeros(4)
    for seed in range(4000):
        chosen, _ = rule.participants(replace(candidates(known, 2), seed=seed))
        times[chosen[0]] += 1  # the first of two that are drawn without replacement
    expected = torch.tensor([0.0, 0.2511, 0.3333, 0.4156]) * 4000
    assert times[0] == 0
    assert ((times - expected).abs() < 4 * (4000 / 4) ** 0.5).all()


def test_clients_that_did_not_take_part_for_long_gain() -> None:
    """In round 10, √(0.1 ln 10 / 1) = 0.48 for client 0 of round 1, and 0.16 for client 1 of round 9.

    Their scaled utilities are 0.75 and 1, so client 0 is better; with 0.6 instead it is not.
    """
    rule = oort(exploration=0.0)
    for utility, best in ((3.0, 0), (2.4, 1)):
        assert drawn(rule, history([utility, 4.0, 0.0], [1, 9, 9]), 1, round=9) == [best]


def test_large_utilities_are_clipped() -> None:
    """The quantile 0.5 of 0, 2, 4, 100 is 3: clients 2 and 3 are equal, and client 2 was last in an earlier round."""
    known = history([0.0, 2.0, 4.0, 100.0], [9, 9, 1, 9])
    assert drawn(oort(exploration=0.0, clip=0.5), known, 1, round=9) == [2]
    assert drawn(oort(exploration=0.0), known, 1, round=9) == [3]


def test_slow_clients_lose() -> None:
    """A quarter of four clients is fast, so T = 10 s. The scores are 0.75 and 1 plus 0.2633 in round 2.

    Client 1 needs 12 s: 1.2633 · (10 / 12)^α is 1.0528 for α = 1, more than 1.0133, and 0.8773 for α = 2.
    """
    known = history([3.0, 4.0, 0.0, 0.0], [1, 1, 1, 1], [10.0, 12.0, 20.0, 20.0], fast_share=0.25)
    assert drawn(oort(exploration=0.0, penalty=1.0), known, 1) == [1]
    assert drawn(oort(exploration=0.0, penalty=2.0), known, 1) == [0]
    known = {**known, "fast_share": torch.tensor([0.5], dtype=torch.float64)}  # T = 12 s
    assert drawn(oort(exploration=0.0, penalty=2.0), known, 1) == [1]


def test_the_fastest_client_is_fast_whatever_the_share() -> None:
    """T is 10 s, the time of client 0, also if the share of fast clients is far below one client's."""
    known = history([0.0, 4.0], [1, 1], [10.0, 1000.0], fast_share=1e-12)
    assert drawn(oort(exploration=0.0, penalty=2.0), known, 1) == [0]


def test_a_penalty_that_leaves_slow_clients_no_utility() -> None:
    """(1 / 1000)^200 is 0 in float64: the fast clients come first, and slow ones fill up the cohort."""
    known = history([1.0] * 6, [1] * 6, [1.0, 1.0, 1e3, 1e3, 1e3, 1e3], fast_share=0.3)
    rule = oort(exploration=0.0, penalty=200.0)
    for size in (1, 2, 4, 6):
        chosen = drawn(rule, known, size)
        assert len(set(chosen)) == size
        assert len({0, 1} & set(chosen)) == min(2, size)


def test_a_loss_that_has_overflowed_is_a_large_utility() -> None:
    rule = oort(exploration=0.0)
    known = rule.next_history(
        rule.initial_history(4), outcome(0, [0, 1, 2, 3], [5] * 4, [1, math.inf, 2, math.nan], [0] * 4)
    )
    assert known["utility"].tolist() == [5.0, 1e300, 10.0, 0.0]
    assert drawn(rule, known, 1) == [1]
    assert drawn(oort(exploration=0.0, clip=0.5), {**known, "round": torch.tensor([1, 2, 1, 2])}, 1, round=4) == [2]


def test_what_is_kept_of_a_round() -> None:
    rule = oort(window=20)
    first = rule.initial_history(4)
    after = rule.next_history(first, outcome(0, [2, 0], [10, 5], [0.5, 2.0], [3.0, 7.0]))
    assert after["utility"].tolist() == [10.0, 0.0, 5.0, 0.0]  # n · loss
    assert after["seconds"].tolist() == [7.0, 0.0, 3.0, 0.0]
    assert after["round"].tolist() == [1, 0, 1, 0]
    assert after["window"].tolist() == [0.0, 0.0]  # nobody was drawn by utility
    again = rule.next_history(after, outcome(1, [0, 1], [5, 8], [1.0, math.nan], [6.0, 1.0]))
    assert again["utility"].tolist() == [5.0, 0.0, 5.0, 0.0]
    assert again["round"].tolist() == [2, 2, 1, 0]
    assert again["window"].tolist() == [0.0, 5.0]  # of client 0 only, which was known
    assert first["round"].tolist() == [0, 0, 0, 0]


def test_the_pacer_admits_slower_clients_when_the_utility_falls() -> None:
    """Windows of 2 rounds with one known client of utility 3, 3; 2, 2; 2, 2; 1, 1; and two rounds without clients."""
    rule = oort(window=2, fast_share=0.8, fast_step=0.15)
    known = {**rule.initial_history(1), "round": torch.tensor([1])}
    shares = []
    for round, loss in enumerate([3, 3, 2, 2, 2, 2, 1, 1, None, None]):
        of_round = outcome(round, [], [], [], []) if loss is None else outcome(round, [0], [1], [loss], [1.0])
        known = rule.next_history(known, of_round)
        shares.append(float(known["fast_share"]))
    # sums 6, 4, 4, 2, 0: it falls at the end of the second, fourth and fifth window; 1.1 becomes 1
    assert shares == pytest.approx([0.8, 0.8, 0.8, 0.95, 0.95, 0.95, 0.95, 1.0, 1.0, 1.0])


def test_the_pacer_does_not_compare_the_first_window_with_nothing() -> None:
    """A task of one's own may have losses below 0: windows of -1, then -2."""
    rule = oort(window=1, fast_share=0.5, fast_step=0.1)
    known = {**rule.initial_history(1), "round": torch.tensor([1])}
    for round, share in enumerate((0.5, 0.6)):
        known = rule.next_history(known, outcome(round, [0], [1], [-1.0 - round], [1.0]))
        assert float(known["fast_share"]) == pytest.approx(share)
