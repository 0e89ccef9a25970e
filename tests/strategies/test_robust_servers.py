"""Median, trimmed mean, Krum and norm clipping: worked numbers, networks against naive servers, an attacker."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from statistics import median

import pytest
import torch

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.experiment.experiment import build_experiment
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.krum import krum_scores
from fedrun.strategies.server import ServerState, ServerStrategy
from fedrun.system.errors import InputError, RunError

from ..helpers.naive_averaging import Tensors
from ..helpers.naive_strategies import NaiveAggregation
from ..helpers.quadratic_clients import SGD, UNIFORM, round_of, update_of
from ..helpers.small_networks import NETWORKS, assert_as_naive, final_model, mlp
from ..helpers.strategies import fedaws

COHORT = 5


def server(name: str, **settings: object) -> ServerStrategy:
    server_strategy = option("strategy/server", name, **settings)
    assert isinstance(server_strategy, ServerStrategy)
    return server_strategy


def aggregate(server_strategy: ServerStrategy, before: float, ends: list[float]) -> tuple[float, dict[str, float]]:
    """One round on a model of one number, of clients with equally many samples."""
    rows = torch.tensor(ends)[:, None]
    update = replace(update_of({"model": rows.mean(0)}, (1,) * len(ends)), rows=rows)
    state, metrics = server_strategy.aggregate(ServerState(torch.tensor([before])), update, round_of(0, len(ends)))
    return state.model.item(), metrics


@pytest.mark.parametrize(
    ("server_strategy", "ends", "expected"),
    [
        (server("median"), [5.0, 1.0, 1e9], 5.0),
        (server("median"), [5.0, 1.0, 1e9, 7.0], 6.0),
        (server("median"), [5.0], 5.0),
        (server("median"), [5.0, 8.0], 6.5),
        (server("trimmed_mean", trim=0.2), [-1e9, 1.0, 2.0, 6.0, 1e9], 3.0),
        (server("trimmed_mean", trim=0.39), [-1e9, 1.0, 2.0, 6.0, 1e9], 3.0),  # ⌊0.39 · 5⌋ = 1
        (server("trimmed_mean", trim=0.4), [-1e9, 1.0, 2.0, 6.0, 1e9], 2.0),
        (server("trimmed_mean", trim=0.1), [1.0, 2.0, 6.0], 3.0),  # nobody is left out
        (server("norm_clipping", max_norm=2.0), [1.0, 4.0, -9.0, 3.0], 2.0 + (-1 + 2 - 2 + 1) / 4),  # from x = 2
        (server("krum", byzantine=1, keep=1), [1.0, 2.0, 2.5, 9.0, 100.0], 2.0),
        (server("krum", byzantine=1, keep=3), [1.0, 2.0, 2.5, 9.0, 100.0], 5.5 / 3),
    ],
)
def test_worked_numbers(server_strategy, ends, expected):
    assert aggregate(server_strategy, 2.0, ends)[0] == pytest.approx(expected, abs=1e-6)


def test_the_geometric_median_by_hand():
    """From the mean 4 of 1, 1, 10: distances 3, 3, 6, so 1, 1, 10 weigh 2, 2, 1, and their mean is 2.8."""
    one, three = (server("geometric_median", iterations=count, weighting="uniform") for count in (1, 60))
    assert aggregate(one, 0.0, [1.0, 1.0, 10.0])[0] == pytest.approx(2.8)
    assert aggregate(three, 0.0, [1.0, 1.0, 10.0])[0] == pytest.approx(1.0, abs=1e-4)
    assert aggregate(one, 0.0, [5.0, 5.0])[0] == 5.0


def test_centered_clipping_by_hand():
    """Displacements 1, 3, -9 from 2, clipped to 2 around 0: 1, 2, -2; then around 1/3, where they are 2/3, 2, -2."""
    clipping = server("centered_clipping", radius=2.0, iterations=1)
    state = clipping.init(torch.tensor([2.0]), round_of(0, 3).layout, 3)
    rows = torch.tensor([[3.0], [5.0], [-7.0]])
    update = replace(update_of({"model": rows.mean(0)}, (1, 1, 1)), rows=rows)
    after, metrics = clipping.aggregate(state, update, round_of(0, 3))
    assert after.model.item() == pytest.approx(2 + 1 / 3)
    assert metrics == {"clipped": 2.0}
    again, _ = clipping.aggregate(replace(after, model=state.model), update, round_of(1, 3))
    assert again.model.item() == pytest.approx(2 + 1 / 3 + (2 / 3 + 2 - 2) / 3)
    twice, _ = server("centered_clipping", radius=2.0, iterations=2).aggregate(state, update, round_of(0, 3))
    assert twice.model.item() == again.model.item()


def test_krums_scores():
    """M = 5, f = 1: the two nearest others count. 1: 1 + 2.25; 2: 0.25 + 1; 2.5: 0.25 + 2.25; 9: 42.25 + 49."""
    scores = krum_scores(torch.tensor([[1.0], [2.0], [2.5], [9.0], [100.0]]), 1)
    assert scores.tolist() == pytest.approx([3.25, 1.25, 2.5, 91.25, 91**2 + 97.5**2])


def test_clipping_is_reported():
    assert aggregate(server("norm_clipping", max_norm=2.0), 2.0, [1.0, 4.0, -9.0, 3.0])[1] == {
        "clipped": 1.0,
        "update_norm": (1 + 2 + 11 + 1) / 4,
    }


def test_clipping_weighs_by_samples_and_survives_clients_that_did_not_move():
    rows = torch.tensor([[0.0, 0.0], [6.0, 8.0]])  # norms 0 and 10
    update = replace(update_of({"model": rows.mean(0)}, (1, 3)), rows=rows)
    round = replace(round_of(0, 2), layout=replace(round_of(0, 2).layout, trainable=2))
    state, _ = server("norm_clipping", max_norm=5.0).aggregate(ServerState(torch.zeros(2)), update, round)
    assert state.model.tolist() == pytest.approx([0.75 * 3, 0.75 * 4])


@pytest.mark.parametrize(("clients", "settings", "least"), [(4, (1, 1), 5), (6, (2, 1), 7), (5, (0, 6), 6)])
def test_krum_needs_enough_uploads(clients, settings, least):
    krum = server("krum", byzantine=settings[0], keep=settings[1])
    with pytest.raises(RunError, match=rf"round 1: Krum .* needs at least {least} uploads, but there are {clients}"):
        aggregate(krum, 0.0, [1.0] * clients)


def test_a_cohort_that_is_too_small_for_krum_is_refused_before_anything_is_trained(make_experiment):
    experiment = make_experiment(strategy=Strategy(client=SGD, server=server("krum", byzantine=1)), clients_per_round=4)
    with pytest.raises(
        InputError, match=r"^clients_per_round=4 with strategy/server=krum, .* 5 uploads: a round may have only 4; "
    ):
        Simulation(experiment)
    everyone = replace(make_experiment(sizes=(3, 12, 8), strategy=experiment.strategy), clients_per_round=1.0)
    with pytest.raises(InputError, match=r"^clients_per_round=1\.0 with .* a round may have only 3; "):  # all, not one
        Simulation(everyone)
    varying = replace(experiment, clients_per_round=5, participation=option("participation", "bernoulli"))
    message = (
        r"^participation=bernoulli with strategy/server=krum, .* 5 uploads: a round may have only 1; allowed: part"
    )
    with pytest.raises(InputError, match=message):
        Simulation(varying)
    Simulation(replace(varying, clients_per_round=1.0))


def test_krum_with_rules_that_leave_clients_out(make_experiment):
    """Of two rounds, flexible ones are mandatory from a share of 1 / 2 + 1e-6 on: then nobody may stay away."""
    strategy = Strategy(client=SGD, server=server("krum", byzantine=1))
    given = {"strategy": strategy, "clients_per_round": 1.0, "rounds": 2, "appeal": option("appeal", "constant")}
    for share in (0.5, 0.51):
        rule = option("participation", "flexible", mandatory_share=share)
        experiment = make_experiment(**given, participation=rule)
        if share > 0.5:
            Simulation(experiment)
            continue
        with pytest.raises(
            InputError, match=r"^participation=flexible with strategy/server=krum, .* may have only 1; "
        ):
            Simulation(experiment)


@pytest.mark.parametrize("name", ["ifca", "fesem", "fedconcat"])
@pytest.mark.parametrize("refined", [False, True])
def test_krum_with_clusters(name, refined):
    """2 f + 3 = 3 uploads with f = 0, of clients that may be of different models."""
    krum = server("krum", byzantine=0)
    server_strategy, named = (fedaws(krum), "fedaws") if refined else (krum, "krum")
    clusters = build_experiment(compose([f"strategy={name}"])).strategy
    chosen = "label_distributions" if name == "fedconcat" else name
    message = rf"^strategy/clustering={chosen} with strategy/server={named}, which needs at least 3 uploads: "
    with pytest.raises(InputError, match=message):
        replace(clusters, server=server_strategy).check()
    replace(clusters, server=server("trimmed_mean")).check()


def entrywise(function) -> object:
    def combine(before: Tensors, states: list[Tensors], sizes: list[float]) -> Tensors:
        columns = {name: torch.stack([state[name].flatten() for state in states]).T.tolist() for name in before}
        return {
            name: torch.tensor([function(column) for column in columns[name]]).view(before[name].shape)
            for name in before
        }

    return combine


def naive_krum(before: Tensors, states: list[Tensors], sizes: list[float]) -> Tensors:
    names = [name for name in before if "running" not in name]
    scores = []
    for one in states:
        others = sorted(
            sum(((one[name] - other[name]) ** 2).sum().item() for name in names) for other in states if other is not one
        )
        scores.append(sum(others[: len(states) - 1 - 2]))
    kept = sorted(range(len(states)), key=scores.__getitem__)[:2]
    return {name: sum(states[k][name] for k in kept) / 2 for name in before}


def naive_clipping(before: Tensors, states: list[Tensors], sizes: list[float]) -> Tensors:
    names = [name for name in before if "running" not in name]
    result = {name: sum(n * s[name] for n, s in zip(sizes, states, strict=True)) / sum(sizes) for name in before}
    for name in names:
        result[name] = before[name].clone()
    for state, size in zip(states, sizes, strict=True):
        norm = sum(((state[name] - before[name]) ** 2).sum().item() for name in names) ** 0.5
        for name in names:
            result[name] += size / sum(sizes) * min(1, 0.2 / norm) * (state[name] - before[name])
    return result


CASES = {
    "median": (server("median"), entrywise(median)),
    "trimmed mean": (server("trimmed_mean", trim=0.2), entrywise(lambda values: sum(sorted(values)[1:-1]) / 3)),
    "krum": (server("krum", byzantine=1, keep=2), naive_krum),
    "norm clipping": (server("norm_clipping", max_norm=0.2), naive_clipping),
}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("case", CASES)
def test_networks(make_experiment, case, network):
    server_strategy, combine = CASES[case]
    naive, strategy = partial(NaiveAggregation, combine=combine), Strategy(client=SGD, server=server_strategy)
    assert_as_naive(make_experiment, network, naive, local={"epochs": 2}, strategy=strategy, cohort=COHORT)


@pytest.mark.parametrize(
    "server_strategy",
    [
        server("trimmed_mean", trim=0.0),
        server("krum", byzantine=0, keep=COHORT),
        server("norm_clipping", max_norm=1e6, weighting="uniform"),
    ],
)
def test_without_robustness_it_is_the_plain_mean(make_experiment, server_strategy):
    plain = Strategy(client=SGD, server=UNIFORM)
    experiment = make_experiment(network=mlp, strategy=plain, clients_per_round=COHORT)
    own = final_model(replace(experiment, strategy=Strategy(client=SGD, server=server_strategy)), 3)
    torch.testing.assert_close(own, final_model(experiment, 3), rtol=1e-5, atol=1e-6)


def test_no_upload_is_lost_to_rounding():
    # 0.29 * 100 is 28.999999999999996: 29 are left out on either side all the same
    found, metrics = aggregate(server("trimmed_mean", trim=0.29), 0.0, [-1e3] * 29 + [3.0] * 42 + [1e3] * 29)
    assert (found, metrics) == (3.0, {"trimmed": 58.0})


def test_the_share_that_is_trimmed_is_of_what_arrived():
    # M = 4 uploads arrived of 5: ⌊0.2 * 4⌋ = 0 are left out
    rows = torch.tensor([[-9.0], [1.0], [2.0], [6.0]])
    update = replace(update_of({"model": rows.mean(0)}, (1,) * 4), rows=rows, excluded=(4,))
    state, _ = server("trimmed_mean", trim=0.2).aggregate(ServerState(torch.tensor([0.0])), update, round_of(0, 5))
    assert state.model.item() == 0.0
