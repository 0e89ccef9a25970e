"""The way of uploads through whole rounds: privacy, compression and secure sums against naive servers."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from fedrun.config.build import option
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation
from fedrun.system.errors import InputError
from fedrun.system.randomness import generator
from fedrun.uploads.transform import Sender, Shape

from ..strategies.test_averaging import FEDAVG, SGD, UNIFORM, batch_norm, mlp

EXECUTORS = ["in_process", "vectorized"]


def compression(name, **settings):
    return option("compression", name, **settings)


def private(name="user_level", **settings):
    return option("privacy", name, **{"noise_multiplier": 0.0, **settings})


def strategy(name, server=None):
    return Strategy(client=option("strategy/client", name), server=option("strategy/server", server or name))


def rounds(experiment, count=1):
    """The simulation, its states after 0, 1, .. rounds, and the last round's metrics."""
    simulation = Simulation(experiment)
    states, metrics = [simulation.initial()], {}
    for _ in range(count):
        state, metrics = simulation.advance(states[-1])
        states.append(state)
    return simulation, states, metrics


def displacements(make_experiment, **changes):
    """What each of six clients moves by in the first round, ``[6, T]``, found by letting each train alone."""
    simulation = Simulation(make_experiment(network=mlp, clients_per_round=6, **changes))
    state, moved = simulation.initial(), []
    runner = simulation.round_runner(state)
    everyone, _ = simulation.cohort(state)
    for client in range(6):
        work = runner.run(state, everyone[everyone == client], lambda done: None)
        moved.append(work.accepted[0].mean["model"] - state.server.model)
    return torch.stack(moved), state.server.model


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("denominator", ["fixed", "cohort"])
def test_clipped_sums_with_noise(make_experiment, executor, denominator):
    """x + (Σ c_k + z S ξ) / den with every client's displacement clipped to S, and noise addressed by the round."""
    moved, x = displacements(make_experiment)
    bound = float(moved.norm(dim=1).median())
    clipped = moved * (bound / moved.norm(dim=1, keepdim=True)).clamp(max=1)
    noise = torch.randn(len(x), generator=generator(0, "privacy", 0))
    privacy = private(clip=bound, noise_multiplier=0.5, sampling="fixed", denominator=denominator)
    experiment = make_experiment(
        network=mlp,
        clients_per_round=6,
        privacy=privacy,
        hardware={"executor": executor},
        strategy=Strategy(client=SGD, server=FEDAVG),
    )
    _, (_, state), metrics = rounds(experiment)
    expected = x + (clipped.sum(0) + 0.5 * bound * noise) / 6
    torch.testing.assert_close(state.server.model, expected, rtol=1e-4, atol=1e-6)
    assert metrics["privacy/clipped_share"] == pytest.approx(float((moved.norm(dim=1) > bound).float().mean()))
    assert metrics["privacy/sigma_mean"] == pytest.approx(0.5 * bound / 6)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_local_noise(make_experiment, executor):
    """x + Σ (c_k + 2 S z ξ_k) / 6: every client's displacement is clipped to S, then noised by itself."""
    pair = Strategy(client=SGD, server=UNIFORM)
    moved, x = displacements(make_experiment, strategy=pair)
    bound = float(moved.norm(dim=1).median())
    clipped = moved * (bound / moved.norm(dim=1, keepdim=True)).clamp(max=1)
    noise = torch.stack([torch.randn(len(x), generator=generator(0, "privacy", 0, client)) for client in range(6)])
    privacy = private("local", clip=bound, noise_multiplier=0.5)
    experiment = make_experiment(
        network=mlp, clients_per_round=6, strategy=pair, privacy=privacy, hardware={"executor": executor}
    )
    _, (_, state), _ = rounds(experiment)
    expected = x + (clipped + 2 * bound * 0.5 * noise).mean(0)
    torch.testing.assert_close(state.server.model, expected, rtol=1e-4, atol=1e-6)


def test_compressed_uploads_are_clipped(make_experiment):
    """What is sent is bounded: compression comes first, and clipping looks at what it has left."""
    pair = Strategy(client=SGD, server=UNIFORM)
    moved, x = displacements(make_experiment, strategy=pair)
    how = compression("topk", fraction=0.1, memory="none")
    sparse = torch.stack([how.compress(each, torch.Generator()) for each in moved])
    bound = float(sparse.norm(dim=1).min()) / 2
    experiment = make_experiment(
        network=mlp, clients_per_round=6, strategy=pair, compression=how, privacy=private(clip=bound, sampling="fixed")
    )
    _, (_, state), _ = rounds(experiment)
    expected = x + (bound * sparse / sparse.norm(dim=1, keepdim=True)).mean(0)
    torch.testing.assert_close(state.server.model, expected, rtol=1e-4, atol=1e-6)


def test_capped_weights(make_experiment):
    """Clients weigh min(n_k, 10); the mean is over the expected weight."""
    moved, x = displacements(make_experiment)
    sizes = torch.tensor([3.0, 12, 8, 5, 20, 12]).clamp(max=10)
    privacy = private(clip=1e6, sampling="fixed", max_weight=10.0)
    _, (_, state), _ = rounds(make_experiment(network=mlp, clients_per_round=6, privacy=privacy))
    torch.testing.assert_close(state.server.model, x + (sizes @ moved) / sizes.sum(), rtol=1e-4, atol=1e-6)
    # noise for a client of the largest weight: 0.5 * 10 * 2 on a sum over the weight 46
    privacy = private(clip=2.0, noise_multiplier=0.5, sampling="fixed", max_weight=10.0)
    _, _, metrics = rounds(make_experiment(network=mlp, clients_per_round=6, privacy=privacy))
    assert metrics["privacy/sigma_mean"] == pytest.approx(10 / 46)


def test_poisson_cohorts(make_experiment):
    """Sizes vary around M; an empty cohort is a round with noise alone; the denominator is M all the same."""
    privacy = private(clip=0.5, noise_multiplier=1.0)
    experiment = make_experiment(network=mlp, clients_per_round=1, privacy=privacy)
    simulation = Simulation(experiment)
    state, sizes, empty = simulation.initial(), [], 0
    for _ in range(30):
        cohort, _ = simulation.cohort(state)
        after, metrics = simulation.advance(state)
        sizes.append(len(cohort))
        if not len(cohort):
            empty += 1
            noise = torch.randn(len(state.server.model), generator=generator(0, "privacy", state.round))
            torch.testing.assert_close(after.server.model, state.server.model + 0.5 * noise)
            assert after.totals == state.totals
        assert metrics["privacy/cohort"] == len(cohort)
        state = after
    assert empty and 0.5 < sum(sizes) / 30 < 1.6 and max(sizes) > 1


def test_noise_has_its_variance(make_experiment):
    """Over 36 entries and 40 rounds without movement: the sample's deviation within 5 standard errors."""
    privacy = private(clip=2.0, noise_multiplier=0.7, sampling="fixed")
    experiment = make_experiment(network=mlp, clients_per_round=3, privacy=privacy, local={"lr": 1e-12})
    _, states, _ = rounds(experiment, 40)
    steps = torch.stack([after.server.model - before.server.model for before, after in pairwise(states)])
    deviation, expected = steps.std().item(), 0.7 * 2.0 / 3
    assert abs(deviation - expected) < 5 * expected / (2 * steps.numel()) ** 0.5


def test_adaptive_bounds(make_experiment):
    """Without noise the bound moves by the share of unclipped clients, and the next round is clipped with it."""
    moved, x = displacements(make_experiment)
    bound = float(moved.norm(dim=1).median())
    privacy = private("user_level_adaptive", clip=bound, sampling="fixed", quantile=0.9, lr=0.5)
    _, (_, first, second), metrics = rounds(make_experiment(network=mlp, clients_per_round=6, privacy=privacy), 2)
    share = float((moved.norm(dim=1) <= bound).double().mean())
    following = bound * torch.tensor(-0.5 * (share - 0.9), dtype=torch.float64).exp().item()
    assert float(first.server.slots["privacy/clip"]) == pytest.approx(following)
    assert metrics["privacy/clip"] == pytest.approx(following)
    clipped = moved * (bound / moved.norm(dim=1, keepdim=True)).clamp(max=1)
    torch.testing.assert_close(first.server.model, x + clipped.mean(0), rtol=1e-4, atol=1e-6)
    assert second.totals.bytes_down == 4 * second.totals.params_down == 4 * 2 * 6 * (len(x) + 1)


@pytest.mark.parametrize("name", ["scaffold", "feddyn", "fedadam", "fedper"])
def test_strategies_that_need_sums_only(make_experiment, name):
    """Two vectors are clipped together, entries that stay with the client get no noise, and rounds go on."""
    server = {"fedper": "fedavg"}.get(name)
    client = {"fedadam": "sgd"}.get(name, name)
    half = Strategy(client=option("strategy/client", client), server=option("strategy/server", server or name))
    experiment = make_experiment(network=mlp, clients_per_round=3, strategy=half, privacy=private(noise_multiplier=1.0))
    simulation, states, metrics = rounds(experiment, 3)
    assert metrics["privacy/sigma_mean"] == pytest.approx(1 / 3)
    if name == "fedper":
        head = simulation.network.layout.head
        assert torch.equal(states[0].server.model[head], states[3].server.model[head])
    if name == "scaffold":
        assert not torch.equal(states[2].server.slots["control"], states[3].server.slots["control"])


@pytest.mark.parametrize("executor", EXECUTORS)
def test_topk_with_error_feedback(make_experiment, executor):
    """A round against sums by hand; what is not sent is kept."""
    settings = {"network": mlp, "clients_per_round": 6, "strategy": Strategy(client=SGD, server=UNIFORM)}
    how = compression("topk", fraction=0.1)
    moved, x = displacements(make_experiment, strategy=settings["strategy"])
    experiment = make_experiment(**settings, compression=how, hardware={"executor": executor})
    _, (_, first, _), metrics = rounds(experiment, 2)
    draw = torch.Generator()
    sent = torch.stack([how.compress(each, draw) for each in moved])
    assert int((sent[0] != 0).sum()) == round(0.1 * len(x))
    torch.testing.assert_close(first.server.model, x + sent.mean(0), rtol=1e-4, atol=1e-6)
    for client in range(6):
        kept = first.client_states.held[client]["compression error of model"]
        torch.testing.assert_close(kept, (moved - sent)[client], rtol=1e-4, atol=1e-6)
    assert metrics["compress/memory_norm"] > 0
    assert first.totals.bytes_up == 6 * how.size(len(x)) < first.totals.bytes_down == 6 * 4 * len(x)


@pytest.mark.parametrize(("decay", "sent"), [(1.0, 7.0), (0.5, 5.0)])
def test_what_was_left_out_is_added_to_the_next_upload(decay, sent):
    # D = (1, 3) with e = (0, 4): v = (1, 7), or (1, 5) with a decay of 1/2; the larger entry is sent
    how = compression("topk", fraction=0.5, memory_decay=decay)
    state = {"compression error of model": torch.tensor([0.0, 4.0])}
    after = how.send({"model": torch.tensor([1.0, 3.0])}, Sender(0, 1, 0, {}, state, {"model": Shape((2,), 0)}))
    assert after.displacements["model"].tolist() == [0.0, sent]
    assert after.state["compression error of model"].tolist() == [1.0, 0.0]


@pytest.mark.parametrize("name", ["scaffold", "feddyn", "feddc"])
def test_control_variates_follow_what_has_arrived(make_experiment, name):
    """The server's mean of all clients' states stays their mean, though uploads are compressed."""
    half = strategy(name)
    experiment = make_experiment(
        network=mlp, clients_per_round=3, strategy=half, compression=compression("topk", fraction=0.2)
    )
    simulation, states, _ = rounds(experiment, 3)
    names = {"scaffold": ["control"], "feddyn": ["drift"], "feddc": ["drift"]}[name]
    held, zero = states[-1].client_states.held, torch.zeros(simulation.network.layout.trainable)
    for kept in names:
        mean = torch.stack([held.get(client, {}).get(kept, zero) for client in range(6)]).mean(0)
        torch.testing.assert_close(states[-1].server.slots[kept], mean, rtol=1e-4, atol=1e-6)
        assert mean.norm() > 0


@pytest.mark.parametrize(
    "changes",
    [
        {"compression": ("topk", {"fraction": 0.1})},
        {"compression": ("quantize", {})},
        {"compression": ("randk", {"fraction": 0.3})},
        {"compression": ("sign", {})},
        {"privacy": ("user_level_adaptive", {"noise_multiplier": 0.2})},
        {"privacy": ("local", {"noise_multiplier": 0.1})},
        {"secure_sum": ("fixed_point", {})},
    ],
    ids=lambda changes: next(iter(changes.values()))[0],
)
def test_both_executors_and_any_process(make_experiment, changes):
    """The executors agree; a state taken up by another process goes on to the bit."""
    ((group, (name, settings)),) = changes.items()
    models = []
    for executor in EXECUTORS:
        transform = option(group, name, **settings)
        experiment = make_experiment(
            network=mlp, clients_per_round=4, hardware={"executor": executor}, **{group: transform}
        )
        _, states, _ = rounds(experiment, 3)
        torch.rand(5)
        again, _ = Simulation(experiment).advance(states[2])
        assert torch.equal(again.server.model, states[3].server.model)
        models.append(states[3].server.model)
    torch.testing.assert_close(*models, rtol=1e-3, atol=2e-4)


def test_a_vote(make_experiment):
    """x + η_g sign(Σ sign D_k): every entry moves by the same amount or not at all."""
    how = compression("sign", rule="vote", vote_step=0.25, memory="none")
    moved, x = displacements(make_experiment)
    _, (_, state), _ = rounds(make_experiment(network=mlp, clients_per_round=6, compression=how))
    votes = torch.where(moved >= 0, 1.0, -1.0).sum(0).sign()
    torch.testing.assert_close(state.server.model, x + 0.25 * votes)


def test_sums_in_fixed_point(make_experiment):
    """Coarse levels show: displacements are multiples of the step."""
    fixed = option("secure_sum", "fixed_point", levels=200)
    moved, x = displacements(make_experiment)
    _, (_, state), _ = rounds(
        make_experiment(
            network=mlp, clients_per_round=6, secure_sum=fixed, strategy=Strategy(client=SGD, server=UNIFORM)
        )
    )
    expected = (moved * 100).round() / 100
    torch.testing.assert_close(state.server.model, x + expected.mean(0), rtol=1e-4, atol=1e-5)
    assert state.totals.bytes_up == 6 * (4 * len(x) + 4)


def test_head_in_full(make_experiment):
    how = compression("topk", fraction=0.01, skip="head", memory="none")
    moved, x = displacements(make_experiment)
    simulation, (_, state), _ = rounds(
        make_experiment(
            network=mlp, clients_per_round=6, compression=how, strategy=Strategy(client=SGD, server=UNIFORM)
        )
    )
    layout = simulation.network.layout
    torch.testing.assert_close(state.server.model[layout.head], (x + moved.mean(0))[layout.head], rtol=1e-4, atol=1e-6)
    encoder = layout.size - layout.head_size
    assert state.totals.bytes_up == 6 * (how.size(encoder) + 4 * layout.head_size)


def test_buffers_travel_in_full(make_experiment):
    how = compression("topk", fraction=0.1)
    simulation, (_, state), _ = rounds(make_experiment(network=batch_norm, clients_per_round=6, compression=how))
    layout = simulation.network.layout
    assert layout.size > layout.trainable
    assert state.totals.bytes_up == 6 * (how.size(layout.trainable) + 4 * (layout.size - layout.trainable))


def test_epsilon_is_reported(make_experiment):
    """Everybody in every round: ε of t rounds is that of one Gaussian release with z / √t."""
    experiment = make_experiment(network=mlp, clients_per_round=6, privacy=private(noise_multiplier=4.0, delta=1e-5))
    simulation, states, _ = rounds(experiment, 4)
    reports = [simulation.test(state) for state in states]
    spent = [report["privacy/epsilon"] for report in reports]
    assert spent[:2] + spent[4:] == pytest.approx([0.0, 0.926342, 1.993091], abs=1e-5)
    assert reports[2]["privacy/epsilon_rdp"] > reports[2]["privacy/epsilon"]
    local = make_experiment(
        network=mlp, clients_per_round=2, privacy=private("local", noise_multiplier=4.0, delta=1e-5)
    )
    simulation, states, _ = rounds(local, 4)
    most = max(sum(client in simulation.cohort(state)[0] for state in states[:-1]) for client in range(6))
    assert most > 1
    assert simulation.test(states[-1])["privacy/epsilon"] == reports[most]["privacy/epsilon"]


def test_noise_of_a_larger_cohort(make_experiment):
    """The noise of a mean over 60 clients on a sum of 6: a tenth, and both losses are reported."""
    privacy = private(noise_multiplier=1.0, noise_cohort=60, population=1000, delta=1e-5)
    simulation, states, metrics = rounds(make_experiment(network=mlp, clients_per_round=6, privacy=privacy))
    assert metrics["privacy/sigma_mean"] == pytest.approx(1 / 60)
    report = simulation.test(states[1])
    assert report["privacy/epsilon"] > 20 * report["privacy/epsilon_at_scale"] > 0
    assert report["privacy/noise_multiplier"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"privacy": private(), "strategy": ("krum",)}, r"^privacy=UserLevel: .* every single client's model.*fedavg"),
        ({"privacy": private(), "strategy": ("fednova",)}, r"^privacy=UserLevel: .*client's 'direction'"),
        (
            {"privacy": private(), "compression": compression("topk")},
            r"compression.memory=client: .*compression.memory=none$",
        ),
        ({"privacy": private(epsilon=2.0)}, r"^privacy.noise_multiplier, privacy.epsilon: 0 and 2 are both given"),
        ({"privacy": private(noise_multiplier=None)}, r"^privacy.noise_multiplier, privacy.epsilon: neither is given"),
        ({"privacy": private(noise_cohort=3)}, r"^privacy.noise_cohort=3 with privacy.population=None: .*neither$"),
        ({"secure_sum": option("secure_sum", "fixed_point"), "strategy": ("median",)}, r"^secure_sum=FixedPoint: "),
        (
            {"secure_sum": option("secure_sum", "fixed_point"), "compression": compression("sign")},
            r"^secure_sum=FixedPoint with compression=Sign",
        ),
        ({"compression": compression("sign", rule="vote")}, r"^compression.rule=vote with compression.memory=client"),
        (
            {"compression": compression("topk"), "strategy": ("solo", "solo")},
            r"^compression=TopK: .*Solo\w* sends nothing",
        ),
        ({"attack": option("attack", "alie"), "privacy": private()}, r"^attack=ALIE forges uploads"),
    ],
)
def test_what_is_refused(make_experiment, changes, message):
    if "strategy" in changes:
        name = changes["strategy"][0]
        client = name if name in ("fednova", "solo") else "sgd"
        changes = {
            **changes,
            "strategy": Strategy(client=option("strategy/client", client), server=option("strategy/server", name)),
        }
    with pytest.raises(InputError, match=message):
        make_experiment(**changes).check()


def test_what_the_data_refuse(make_experiment):
    with pytest.raises(InputError, match=r"^privacy=UserLevel with model=.*BatchNorm.*GroupNorm$"):
        Simulation(make_experiment(network=batch_norm, privacy=private()))
    with pytest.raises(InputError, match=r"^secure_sum.bits=16 with secure_sum.levels=1048576"):
        Simulation(make_experiment(network=mlp, secure_sum=option("secure_sum", "fixed_point", bits=16)))
    with pytest.raises(InputError, match=r"^privacy.count_noise=0.15 costs more than the whole noise multiplier 1;"):
        Simulation(
            make_experiment(
                network=mlp, clients_per_round=3, privacy=private("user_level_adaptive", noise_multiplier=1.0)
            )
        )


def test_a_delta_that_means_nothing(make_experiment, caplog):
    with caplog.at_level("WARNING", "fedrun"):
        Simulation(make_experiment(network=mlp, privacy=private(delta=0.5)))
    assert "privacy.delta=0.5" in caplog.text and "0.166667" in caplog.text


@pytest.mark.parametrize("executor", EXECUTORS)
def test_attackers_that_know_the_others(make_experiment, executor):
    """Inner-product manipulation in the plain mean: the attackers send −ε times the honest mean."""
    attack = option("attack", "ipm", share=0.34, scale=2.0)
    honest = make_experiment(
        network=mlp, clients_per_round=6, strategy=Strategy(client=SGD, server=UNIFORM), hardware={"executor": executor}
    )
    moved, x = displacements(make_experiment, strategy=honest.strategy)
    simulation, (_, state), _ = rounds(replace(honest, attack=attack))
    attackers = sorted(simulation.federation.attackers)
    good = [client for client in range(6) if client not in attackers]
    assert len(attackers) == 2
    expected = (moved[good].sum(0) - 2 * 2.0 * moved[good].mean(0)) / 6
    torch.testing.assert_close(state.server.model, x + expected, rtol=1e-4, atol=1e-6)
