"""Private rounds against naive servers: clipping, noise, cohorts, and the ε that is reported."""

from __future__ import annotations

import importlib.util
import math
import re
from collections import OrderedDict
from dataclasses import replace
from itertools import pairwise
from typing import ClassVar

import pytest
import torch

from fedrun.config.build import option
from fedrun.config.config_class import config_class
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.client import ClientStrategy
from fedrun.strategies.fedavg import FedAvg
from fedrun.strategies.server import CohortUpdate
from fedrun.strategies.vectors import MODEL
from fedrun.system.errors import InputError, RunError
from fedrun.system.randomness import generator
from fedrun.uploads.attacks.gaussian import Gaussian
from fedrun.uploads.privacy.base import Cohorts
from fedrun.uploads.privacy.clipping import clip
from fedrun.uploads.transform import Shape

from ...helpers.poisoned_samples import poisoned_experiment
from ...helpers.quadratic_clients import FEDAVG, SGD, UNIFORM
from ...helpers.small_networks import batch_norm, mlp
from ...helpers.upload_rounds import EXECUTORS, compression, displacements, private, rounds, strategy


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
    signal, loudness = clipped.sum(0).norm().item(), 0.5 * bound * len(x) ** 0.5
    assert metrics["privacy/snr"] == pytest.approx(signal / loudness, rel=1e-4)


def test_settings_that_follow_from_the_federation(make_experiment):
    """δ = 1000^−1.1 = 10^−3.3, and the count's noise is 40 / 20."""
    cohorts = Cohorts(torch.full((1000,), 5), 40, 5, make_experiment().local)
    mechanism = private("user_level_adaptive", count_noise=None, delta=None).mechanism(cohorts)
    assert (mechanism.delta, mechanism.count_noise) == pytest.approx((5.0118723e-4, 2.0))


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


def test_local_noise_is_compressed(make_experiment):
    """What leaves the client is private before it is compressed, so that no more bytes are sent than are counted."""
    pair = Strategy(client=SGD, server=UNIFORM)
    moved, x = displacements(make_experiment, strategy=pair)
    how = compression("topk", fraction=0.1)
    noise = torch.stack([torch.randn(len(x), generator=generator(0, "privacy", 0, client)) for client in range(6)])
    sent = torch.stack([how.compress(each, torch.Generator()) for each in moved + 0.02 * noise])
    privacy = private("local", clip=1.0, noise_multiplier=0.01)
    experiment = make_experiment(network=mlp, clients_per_round=6, strategy=pair, privacy=privacy, compression=how)
    _, (_, state), _ = rounds(experiment)
    torch.testing.assert_close(state.server.model, x + sent.mean(0), rtol=1e-4, atol=1e-6)
    assert int((sent[0] != 0).sum()) == round(0.1 * len(x))


def test_control_variates_follow_noised_uploads(make_experiment):
    """Unclipped uploads with local noise: the server's control variate stays the mean of the clients'."""
    privacy = private("local", clip=1e3, noise_multiplier=1e-4)
    experiment = make_experiment(network=mlp, clients_per_round=6, strategy=strategy("scaffold"), privacy=privacy)
    _, (*_, state), _ = rounds(experiment, 2)
    mean = torch.stack([held["control"] for held in state.client_states.held.values()]).mean(0)
    torch.testing.assert_close(state.server.slots["control"], mean, rtol=1e-4, atol=1e-6)


def test_a_bound_of_its_own_for_what_is_sent_besides_the_model():
    """S = 1 and s = 0.36, so the model's bound is 0.8 and the other's 0.6; without s both share the norm 13."""
    shapes = {"model": Shape((1, 1), 0), "control": Shape((1, 1), 0)}

    def clipped(model, share, layers="flat"):
        uploads = {"model": torch.tensor(model), "control": torch.tensor([0.0, 12.0])}
        assert clip(uploads, 1.0, layers, shapes, share)
        return uploads["model"].tolist(), uploads["control"].tolist()

    assert clipped([3.0, 4.0], None) == (pytest.approx([3 / 13, 4 / 13]), pytest.approx([0, 12 / 13]))
    assert clipped([3.0, 4.0], 0.36) == (pytest.approx([0.48, 0.64]), pytest.approx([0, 0.6]))
    assert clipped([0.3, 0.4], 0.36) == (pytest.approx([0.3, 0.4]), pytest.approx([0, 0.6]))
    root = 0.5**0.5  # a bound for each of two tensors
    assert clipped([0.1, 4.0], 0.36, "equal") == (pytest.approx([0.1, 0.8 * root]), pytest.approx([0, 0.6 * root]))
    alone = {"model": torch.tensor([3.0, 4.0])}
    assert clip(alone, 1.0, "flat", shapes, 0.36) and alone["model"].tolist() == pytest.approx([0.6, 0.8])


@pytest.mark.parametrize("executor", EXECUTORS)
def test_scaffolds_two_bounds(make_experiment, executor):
    """In the first round c_k = −D_k / (K_k η), so that with η = 0.01 it is many times longer than D_k."""
    pair, local = strategy("scaffold"), {"lr": 0.01}
    moved, x = displacements(make_experiment, strategy=pair, local=local)
    steps = torch.tensor([1, 3, 2, 2, 5, 3])[:, None]  # batches of 4 of (3, 12, 8, 5, 20, 12) samples
    control, bound = -moved / (steps * 0.01), float(moved.norm(dim=1).median())
    assert (control.norm(dim=1) > 10 * moved.norm(dim=1)).all()
    privacy = private(clip=bound, extra_share=0.19, sampling="fixed")
    _, (_, state), _ = rounds(
        make_experiment(
            network=mlp,
            clients_per_round=6,
            strategy=pair,
            local=local,
            privacy=privacy,
            hardware={"executor": executor},
        )
    )

    def mean(vectors, most):
        return (vectors * (most / vectors.norm(dim=1, keepdim=True)).clamp(max=1)).mean(0)

    torch.testing.assert_close(state.server.model, x + mean(moved, bound * 0.81**0.5), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(state.server.slots["control"], mean(control, bound * 0.19**0.5), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "settings", "warned"), [("scaffold", {}, 1), ("scaffold", {"extra_share": 0.5}, 0), ("feddyn", {}, 0)]
)
def test_one_bound_for_two_vectors_is_named(make_experiment, caplog, name, settings, warned):
    with caplog.at_level("WARNING", "fedrun"):
        Simulation(make_experiment(network=mlp, strategy=strategy(name), privacy=private(**settings)))
    assert caplog.text.count("strategy/client=scaffold also sends control, which may be much longer") == warned


@pytest.mark.parametrize("name", ["user_level", "local"])
def test_a_share_for_nothing_is_rejected(make_experiment, name):
    privacy = option("privacy", name, noise_multiplier=1.0, extra_share=0.5)
    message = "privacy.extra_share=0.5: strategy/client=sgd sends nothing besides the model; allowed: null"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        Simulation(make_experiment(network=mlp, privacy=privacy))


def test_noise_covers_the_rounding_of_a_secure_sum(make_experiment):
    """Rounding can lengthen a clipped upload by half a step in every entry."""
    fixed = option("secure_sum", "fixed_point", levels=100)  # steps of 0.02
    privacy = private(clip=0.5, noise_multiplier=2.0, sampling="fixed")
    simulation, _, metrics = rounds(
        make_experiment(network=mlp, clients_per_round=6, privacy=privacy, secure_sum=fixed)
    )
    entries = simulation.network.layout.trainable
    assert metrics["privacy/sigma_mean"] == pytest.approx(2 * (0.5 + 0.01 * entries**0.5) / 6)


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


class Contrast(torch.nn.Module):
    """Three bright places, times the only parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = torch.nn.Parameter(torch.ones(1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.factor * images[:, 0].diagonal(dim1=1, dim2=2)[:, :3]


@pytest.mark.parametrize(
    ("pair", "extra_share", "moved"),
    [(Strategy(client=SGD, server=FEDAVG), None, 1e-3), (strategy("scaffold"), 0.75, 0.5e-3)],
    ids=["sgd", "scaffold"],
)
def test_the_weights_of_a_model_of_one_parameter(make_experiment, pair, extra_share, moved):
    """Six clients move by the bound in one direction, with the weights min(n_k, 10): so does the model."""

    def contrast(spec):
        return torch.nn.Sequential(OrderedDict(encoder=Contrast(), head=torch.nn.Identity()))

    privacy = private(clip=1e-3, sampling="fixed", max_weight=10.0, extra_share=extra_share)
    experiment = make_experiment(network=contrast, clients_per_round=6, privacy=privacy, strategy=pair)
    _, (first, state), _ = rounds(experiment)
    torch.testing.assert_close(state.server.model, first.server.model + moved, rtol=0, atol=1e-6)


def test_capped_weights_below_one(make_experiment):
    """A cohort's weight may be below 1: the mean over the participants does not depend on the unit of weights."""
    moved, x = displacements(make_experiment)
    privacy = private(clip=1e6, sampling="fixed", denominator="cohort", max_weight=0.1)
    _, (_, state), _ = rounds(make_experiment(network=mlp, clients_per_round=6, privacy=privacy))
    torch.testing.assert_close(state.server.model, x + moved.mean(0), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("denominator", ["fixed", "cohort"])
def test_an_upload_that_is_not_finite_counts_as_zero(make_experiment, monkeypatch, denominator):
    """Its client stays in the denominator: 46 with the weights min(n_k, 10), and in the count of unclipped uploads."""
    moved, x = displacements(make_experiment)
    monkeypatch.setattr(Gaussian, "tampered", lambda _, model, __, ___: model + math.inf)
    attack = replace(option("attack", "gaussian"), share=0.2)
    (attacker,) = attack.attackers(6, 0).tolist()
    sizes = torch.tensor([3.0, 12, 8, 5, 20, 12]).clamp(max=10)
    sizes[attacker] = 0
    settings = {"clip": 1e6, "max_weight": 10.0, "quantile": 0.5, "lr": 0.2}
    privacy = private("user_level_adaptive", sampling="fixed", denominator=denominator, **settings)
    experiment = make_experiment(network=mlp, clients_per_round=6, privacy=privacy, attack=attack)
    _, (_, state), metrics = rounds(experiment)
    assert (metrics["clients/excluded"], metrics["privacy/cohort"]) == (1, 6)
    torch.testing.assert_close(state.server.model, x + (sizes @ moved) / 46, rtol=1e-4, atol=1e-6)
    assert float(state.server.transforms["privacy/clip"]) == pytest.approx(1e6 * math.exp(-0.1))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_round_without_a_finite_upload_is_noise_alone(make_experiment, caplog, executor):
    """x + z S ξ / 4, as of an empty cohort; four zero vectors are unclipped; what was sent is counted."""
    settings = {"clip": 0.5, "noise_multiplier": 1e-3, "count_noise": 1.0, "quantile": 0.5, "lr": 0.2}
    experiment = poisoned_experiment(
        make_experiment,
        *(0, 1, 2, 3),
        network=mlp,
        local={"epochs": 2},
        hardware={"executor": executor},
        privacy=private("user_level_adaptive", sampling="fixed", **settings),
        strategy=Strategy(client=SGD, server=FEDAVG),
    )
    _, (before, after), metrics = rounds(experiment)
    x = before.server.model
    noise = torch.randn(len(x), generator=generator(0, "privacy", 0))
    torch.testing.assert_close(after.server.model, x + 1e-3 * 0.5 * noise / 4)
    assert (metrics["clients/excluded"], metrics["privacy/cohort"], metrics["privacy/snr"]) == (4, 4, 0)
    assert after.totals.params_up == 4 * len(x) and after.totals.bytes_up == 4 * (4 * len(x) + 1)
    count = torch.randn((), generator=generator(0, "privacy count", 0), dtype=torch.float64)
    bound = 0.5 * math.exp(-0.2 * ((4 + float(count)) / 4 - 0.5))
    assert float(after.server.transforms["privacy/clip"]) == pytest.approx(bound)
    assert "uploads of clients [0, 1, 2, 3] are not finite and count as the zero vector" in caplog.text


def test_noise_that_overflows_the_model_ends_the_run(make_experiment):
    """A model of 1e30 is finite, but no client can train it; local.lr has no part in it."""
    for bound, reason in (
        (1.0, r"^round 2: no client's .* had overflowed before, by the noise"),
        (1e30, "^round 1: the global model is not finite any more, by the noise"),
    ):
        privacy = private(noise_multiplier=1e30, clip=bound)
        experiment = make_experiment(network=mlp, clients_per_round=6, privacy=privacy)
        with pytest.raises(RunError, match=reason) as caught:
            rounds(experiment, 2)
        assert "local" not in str(caught.value)


@config_class
class Watching(FedAvg):
    """Sees who has taken part, if it is shown."""

    seen: ClassVar[list[CohortUpdate]] = []

    def aggregate(self, state, update, round):
        self.seen.append(update)
        return super().aggregate(state, update, round)


class TwoBatches(ClientStrategy):
    """Makes a step of two batches."""

    passes: ClassVar[tuple[int, ...]] = (1, 1)

    def direction(self, gradient, model, constants):
        return gradient(model, 0).clone() + gradient(model, 1)


@pytest.mark.parametrize(("client", "steps"), [(SGD, [1, 3, 2, 2, 5, 3]), (TwoBatches(), [1, 2, 1, 1, 3, 2])])
def test_the_servers_strategy_is_not_shown_who_took_part(make_experiment, client, steps):
    """Clients have (3, 12, 8, 5, 20, 12) samples in batches of 4."""
    Watching.seen.clear()
    strategy = Strategy(client=client, server=Watching(weighting="samples"))
    experiment = make_experiment(network=mlp, clients_per_round=3, strategy=strategy, privacy=private(clip=1.0))
    rounds(experiment)
    (update,) = Watching.seen
    assert update.count == 3 and MODEL in update.mean
    assert update.steps.tolist() == steps  # of all clients
    for vector in (update.clients, update.samples, update.weights, update.processed):
        assert len(vector) == 0
    assert math.isnan(update.loss) and math.isnan(update.score) and update.excluded == ()


def test_local_noise_that_overflows(make_experiment):
    privacy = private("local", noise_multiplier=1e30, clip=1e30)
    with pytest.raises(RunError, match=r"^round 1: no client's .* a smaller local.lr or less noise usually helps$"):
        rounds(make_experiment(network=mlp, clients_per_round=6, privacy=privacy))


def test_poisson_cohorts(make_experiment):
    """Sizes vary around M; an empty cohort is a round with noise alone; the denominator is M all the same."""
    privacy = private(clip=0.5, noise_multiplier=1.0)
    experiment = make_experiment(network=mlp, clients_per_round=1, privacy=privacy)
    simulation = Simulation(experiment)
    state, sizes, empty = simulation.initial(), [], 0
    for _ in range(30):
        cohort = simulation.uploads(state).clients
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
    """Over 36 entries and 40 rounds without movement, each with its own noise: the sample's deviation within 5 standard
    errors.
    """
    privacy = private(clip=2.0, noise_multiplier=0.7, sampling="fixed")
    experiment = make_experiment(network=mlp, clients_per_round=3, privacy=privacy, local={"lr": 1e-12})
    _, states, _ = rounds(experiment, 40)
    steps = torch.stack([after.server.model - before.server.model for before, after in pairwise(states)])
    deviation, expected = steps.std().item(), 0.7 * 2.0 / 3
    assert abs(deviation - expected) < 5 * expected / (2 * steps.numel()) ** 0.5
    draws = [torch.randn(steps.shape[1], generator=generator(0, "privacy", index)) for index in range(40)]
    torch.testing.assert_close(steps, expected * torch.stack(draws), rtol=1e-3, atol=1e-4)


def test_adaptive_bounds(make_experiment):
    """Without noise the bound moves by the share of unclipped clients, and the next round is clipped with it."""
    moved, x = displacements(make_experiment)
    bound = float(moved.norm(dim=1).median())
    privacy = private("user_level_adaptive", clip=bound, sampling="fixed", quantile=0.9, lr=0.5)
    _, (_, first, second), metrics = rounds(make_experiment(network=mlp, clients_per_round=6, privacy=privacy), 2)
    share = float((moved.norm(dim=1) <= bound).double().mean())
    following = bound * torch.tensor(-0.5 * (share - 0.9), dtype=torch.float64).exp().item()
    assert float(first.server.transforms["privacy/clip"]) == pytest.approx(following)
    assert metrics["privacy/clip"] == pytest.approx(following)
    clipped = moved * (bound / moved.norm(dim=1, keepdim=True)).clamp(max=1)
    torch.testing.assert_close(first.server.model, x + clipped.mean(0), rtol=1e-4, atol=1e-6)
    assert second.totals.bytes_down == 4 * second.totals.params_down == 4 * 2 * 6 * (len(x) + 1)


def test_adaptive_bounds_count_clients(make_experiment):
    """The share of unclipped clients is over the participants, whatever they weigh: here it is 1."""
    settings = {"clip": 1e6, "quantile": 0.5, "lr": 0.2, "max_weight": 100.0}
    privacy = private("user_level_adaptive", sampling="fixed", denominator="cohort", **settings)
    _, states, _ = rounds(make_experiment(network=mlp, clients_per_round=2, privacy=privacy), 4)
    bounds = [float(state.server.transforms["privacy/clip"]) for state in states]
    assert bounds == pytest.approx([1e6 * math.exp(-0.1 * number) for number in range(5)])


@pytest.mark.parametrize(("clip", "side"), [(1e6, 0.5), (1e-6, -0.5)])
def test_a_client_more_changes_the_count_by_a_half(make_experiment, clip, side):
    """As theorem 1 of Andrew et al. assumes: a cohort of n, all unclipped or all clipped, gives b̃ = ½ ± n / (2 M).

    Counted as 1 or 0, an unclipped client more would change the sum by 1, at twice the privacy loss. M = 2.
    """
    privacy = private("user_level_adaptive", clip=clip, quantile=0.3, lr=0.2)
    simulation = Simulation(make_experiment(network=mlp, clients_per_round=2, privacy=privacy))
    state, sizes = simulation.initial(), set()
    for _ in range(8):
        cohort = simulation.uploads(state).clients
        sizes.add(len(cohort))
        after, _ = simulation.advance(state)
        moved = math.log(float(after.server.transforms["privacy/clip"] / state.server.transforms["privacy/clip"]))
        assert moved == pytest.approx(-0.2 * (0.5 + side * len(cohort) / 2 - 0.3))
        state = after
    assert len(sizes) > 2


def test_the_noise_of_counts_is_addressed_by_the_round(make_experiment):
    """All six are clipped: b̃ = ½ + (−3 + σ_b ξ_t) / 6."""
    settings = {"clip": 1e-6, "quantile": 0.3, "lr": 0.2, "noise_multiplier": 0.5, "count_noise": 1.5}
    privacy = private("user_level_adaptive", sampling="fixed", **settings)
    _, states, _ = rounds(make_experiment(network=mlp, clients_per_round=6, privacy=privacy), 3)
    bounds = [float(state.server.transforms["privacy/clip"]) for state in states]
    for index, (before, after) in enumerate(pairwise(bounds)):
        noise = torch.randn((), generator=generator(0, "privacy count", index), dtype=torch.float64).item()
        assert math.log(after / before) == pytest.approx(-0.2 * (0.5 + (-3 + 1.5 * noise) / 6 - 0.3))


@pytest.mark.parametrize("name", ["scaffold", "feddyn", "fedadam", "fedper"])
def test_strategies_that_need_sums_only(make_experiment, name):
    """Two vectors are clipped together, entries that stay with the client get no noise, and rounds go on."""
    server = {"fedper": "fedavg"}.get(name)
    client = {"fedadam": "sgd"}.get(name, name)
    pair = Strategy(client=option("strategy/client", client), server=option("strategy/server", server or name))
    experiment = make_experiment(network=mlp, clients_per_round=3, strategy=pair, privacy=private(noise_multiplier=1.0))
    simulation, states, metrics = rounds(experiment, 3)
    assert metrics["privacy/sigma_mean"] == pytest.approx(1 / 3)
    if name == "fedper":
        head = simulation.network.layout.head
        assert torch.equal(states[0].server.model[head], states[3].server.model[head])
    if name == "scaffold":
        assert not torch.equal(states[2].server.slots["control"], states[3].server.slots["control"])


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
    most = max(sum(client in simulation.uploads(state).clients for state in states[:-1]) for client in range(6))
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


def test_fixed_cohorts_as_if_poisson(make_experiment):
    """What is assumed is not reported as what is proved."""
    settings = {"noise_multiplier": 4.0, "delta": 1e-5, "accountant": "rdp"}
    reports = {}
    for sampling in ("poisson", "fixed", "assume_poisson"):
        privacy = private(**settings, sampling=sampling)
        simulation = Simulation(make_experiment(network=mlp, clients_per_round=2, privacy=privacy))
        reports[sampling] = simulation.test(replace(simulation.initial(), round=3))
    assert "privacy/epsilon_if_poisson" not in reports["poisson"].keys() | reports["fixed"].keys()
    assumed = reports["assume_poisson"]
    assert assumed["privacy/epsilon"] == reports["fixed"]["privacy/epsilon"] > 0
    assert assumed["privacy/epsilon_if_poisson"] == reports["poisson"]["privacy/epsilon"] < assumed["privacy/epsilon"]


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"privacy": private(denominator="cohort")}, r"privacy.denominator=cohort: .* and ε does not cover"),
        (
            {"privacy": private(), "targets": (0.9,), "stop_at_targets": True},
            r"stop_at_targets=true with privacy=user_level: .* which ε does not cover",
        ),
    ],
)
def test_what_epsilon_does_not_cover(make_experiment, caplog, changes, warning):
    with caplog.at_level("WARNING", "fedrun"):
        Simulation(make_experiment(network=mlp, **changes))
    assert re.search(warning, caplog.text)


@pytest.mark.parametrize(
    ("name", "units", "largest"),
    [("user_level", "6 clients", 6), ("local", "6 clients", 6), ("sample_level", "20 samples", 20)],
)
def test_a_large_delta_must_be_allowed(make_experiment, name, units, largest):
    def build(**settings):
        return Simulation(make_experiment(network=mlp, privacy=private(name, **settings)))

    with pytest.raises(InputError, match=rf"privacy.delta=0.2: .* {units} .* allowed: below {1 / largest:g}, .*=true"):
        build(delta=0.2)
    with pytest.raises(InputError, match="allow_large_delta"):
        build(delta=1 / largest)
    build(delta=0.99 / largest)
    build(delta=0.2, allow_large_delta=True)


def test_batch_normalisation_that_stays_with_the_clients(make_experiment):
    """FedBN sends no running statistics, so that nothing of the clients is averaged without noise."""
    pair = Strategy(client=option("strategy/client", "fedbn"), server=FEDAVG)
    _, (before, after), _ = rounds(make_experiment(network=batch_norm, strategy=pair, privacy=private(clip=0.1)))
    moved = (after.server.model - before.server.model).norm()
    assert 0 < moved <= 0.1


def test_steps_of_private_cohorts(make_experiment):
    """FedCM's K is the mean over all clients, because the participants are private, and exists for empty cohorts."""
    experiment = make_experiment(
        network=mlp, clients_per_round=1, strategy=strategy("fedcm"), privacy=private(clip=0.5, noise_multiplier=1.0)
    )
    simulation = Simulation(experiment)
    state, sizes = simulation.initial(), set()
    per_client = [1, 3, 2, 2, 5, 3]  # batches of 4 of (3, 12, 8, 5, 20, 12) samples
    for _ in range(6):
        sizes.add(len(simulation.uploads(state).clients))
        before, (state, _) = state, simulation.advance(state)
        moved = state.server.model - before.server.model  # without float buffers
        expected = -moved / (sum(per_client) / 6 * experiment.local.lr)
        torch.testing.assert_close(state.server.slots["global_gradient"], expected, rtol=1e-4, atol=1e-4)
    assert 0 in sizes and max(sizes) > 0


def test_noised_training_in_rounds(make_experiment):
    """Without noise and clipping, and with every sample in every step, clients descend along whole gradients."""
    whole = {"batch_size": None, "epochs": 3}
    experiment = make_experiment(network=mlp, clients_per_round=4, local=whole)
    _, (*_, expected), _ = rounds(experiment, 2)
    noised = private("sample_level", clip=1e6, sample_share=1.0)
    _, (*_, state), metrics = rounds(replace(experiment, privacy=noised), 2)
    torch.testing.assert_close(state.server.model, expected.server.model, rtol=1e-4, atol=1e-6)
    assert metrics["train/loss"] > 0


def test_noised_training_is_vectorized_over_samples_only(make_experiment, caplog):
    """Clients train one by one, also on request; the noise is that of the seed."""
    noised = private("sample_level", noise_multiplier=1.0)
    experiment = make_experiment(network=mlp, clients_per_round=3, privacy=noised)
    _, (*_, alone), _ = rounds(experiment)
    vectorized = replace(experiment, hardware=replace(experiment.hardware, executor="vectorized"))
    _, (*_, state), _ = rounds(vectorized)
    assert torch.equal(state.server.model, alone.server.model)
    assert "hardware.executor=vectorized does not support privacy=sample_level" in caplog.text
    _, (*_, other), _ = rounds(replace(experiment, seed=1))
    assert not torch.equal(other.server.model, alone.server.model)


def test_noise_is_addressed_by_round_and_client(make_experiment):
    """Steps without samples: −η z C Σ ξ / (q_s n_k), where the ξ are the client's own in the round."""
    noised = private("sample_level", clip=1e-9, noise_multiplier=2.0, sample_share=1e-6)
    steps = {"epochs": None, "steps": 2, "lr": 0.1, "momentum": 0.0}
    experiment = make_experiment(network=mlp, clients_per_round=6, local=steps, privacy=noised)
    simulation, states, _ = rounds(experiment, 2)
    sizes = simulation.federation.train.sizes.double()
    for index, (before, after) in enumerate(pairwise(states)):
        draws = [generator(0, "sample noise", index, client) for client in range(6)]
        noise = torch.stack(
            [sum(torch.randn(len(before.server.model), generator=draw) for _ in range(2)) for draw in draws]
        )
        moved = -0.1 * 2.0 * 1e-3 * noise.double() / sizes[:, None]
        expected = (sizes[:, None] * moved).sum(0) / sizes.sum()
        torch.testing.assert_close((after.server.model - before.server.model).double(), expected, rtol=1e-3, atol=1e-5)


def test_the_loss_of_single_samples(make_experiment):
    """ε of the steps of all rounds in which a client took part: the worked number of 14040 steps, and half of it."""
    pytest.importorskip("dp_accounting")
    noised = private("sample_level", noise_multiplier=1.1, sample_share=256 / 60000, delta=1e-5)
    experiment = make_experiment(
        network=mlp, clients_per_round=3, local={"epochs": None, "steps": 7020}, privacy=noised
    )
    cohorts = Cohorts(torch.tensor([10, 20]), 1, 5, experiment.local)
    report = noised.mechanism(cohorts).report(5, lambda: torch.tensor([2, 0]))
    assert report["privacy/epsilon"] == pytest.approx(2.379644, rel=1e-3)
    assert report["privacy/epsilon_mean"] == pytest.approx(2.379644 / 2, rel=1e-3)
    assert report["privacy/delta"] == 1e-5
    by_rdp = replace(noised, accountant="rdp").mechanism(cohorts).report(5, lambda: torch.tensor([2, 0]))
    assert by_rdp["privacy/epsilon"] == pytest.approx(2.594363, rel=1e-3)


@pytest.mark.parametrize("name", ["local", "sample_level", "user_level", "user_level_adaptive"])
def test_without_the_library(make_experiment, monkeypatch, caplog, name):
    """A given noise needs no accountant: the run goes on without ε and says so; a target ε needs one."""
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda module, *rest: None if module == "dp_accounting" else found(module, *rest)
    )
    settings = {"count_noise": 1.0} if name == "user_level_adaptive" else {}
    experiment = make_experiment(
        network=mlp, clients_per_round=3, privacy=private(name, noise_multiplier=1.0, **settings)
    )
    simulation, (*_, state), _ = rounds(experiment)
    metrics = simulation.test(state)
    assert metrics["privacy/noise_multiplier"] == 1.0
    assert not any("epsilon" in metric for metric in metrics)
    assert "privacy/epsilon is not reported" in caplog.text
    assert "install it: pip install 'fedrun[privacy]'" in caplog.text
    target = private(name, noise_multiplier=None, epsilon=8.0, **settings)
    with pytest.raises(InputError, match=r"install it: pip install 'fedrun\[privacy\]'$"):
        Simulation(replace(experiment, privacy=target))


def test_noise_for_a_target_loss_of_single_samples(make_experiment):
    pytest.importorskip("dp_accounting")
    noised = private("sample_level", noise_multiplier=None, epsilon=3.0, sample_share=0.1, accountant="rdp")
    experiment = make_experiment(network=mlp, local={"epochs": 2})
    mechanism = noised.mechanism(Cohorts(torch.tensor([10, 100]), 1, 5, experiment.local))
    assert mechanism.local(experiment.local).steps == 20
    spent = mechanism.report(5, lambda: torch.tensor([5, 5]))  # a client that took part in every round
    assert spent["privacy/delta"] == pytest.approx(100**-1.1)
    assert 2.99 < spent["privacy/epsilon"] <= 3.0
