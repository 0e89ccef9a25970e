"""The way of uploads through whole rounds: compression, secure sums and attacks against naive servers."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from fedrun.config.build import option
from fedrun.config.config_class import config_class
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation
from fedrun.system.errors import InputError
from fedrun.uploads.compression.base import Compression
from fedrun.uploads.compression.sign import Sign
from fedrun.uploads.privacy.base import Mechanism, NoisedSteps, Privacy
from fedrun.uploads.transform import Combined, Sender, Sent, Shape

from ..helpers.quadratic_clients import SGD, UNIFORM
from ..helpers.small_networks import batch_norm, mlp
from ..helpers.upload_rounds import EXECUTORS, compression, displacements, rounds, strategy


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


@pytest.mark.parametrize("down", ["none", "half"])
@pytest.mark.parametrize("executor", EXECUTORS)
def test_fedexp_measures_what_has_arrived(make_experiment, executor, down):
    """η_g = mean_k ‖D_k‖² / (2 (‖mean_k D_k‖² + ε)) of decoded displacements, the longer ones without compression."""
    how = compression("topk", fraction=0.1, memory="none", down=down)
    fedexp = Strategy(client=option("strategy/client", "fedprox"), server=option("strategy/server", "fedexp"))
    plain = Strategy(client=fedexp.client, server=UNIFORM)
    moved, x = displacements(make_experiment, strategy=plain, compression=how)
    assert [int((each != 0).sum()) for each in moved] == [round(0.1 * len(x))] * 6
    experiment = make_experiment(
        network=mlp, clients_per_round=6, strategy=fedexp, compression=how, hardware={"executor": executor}
    )
    _, (_, first), metrics = rounds(experiment)
    delta = moved.mean(0)
    lr = float(moved.square().sum(1).mean() / (2 * (delta.square().sum() + 1e-3)))
    assert lr > 1
    assert metrics["server/lr"] == pytest.approx(lr, rel=1e-4)
    torch.testing.assert_close(first.server.model, x + lr * delta / 2, rtol=1e-4, atol=1e-6)
    assert first.totals.params_up == 6 * len(x)  # and no number besides


@pytest.mark.parametrize(("decay", "round", "sent"), [(1.0, 4, 7.0), (0.5, 2, 7.0), (0.5, 3, 5.0), (0.5, 4, 4.0)])
def test_what_was_left_out_is_added_to_the_next_upload(decay, round, sent):
    # D = (1, 3) with e = (0, 4) of round 1: v = (1, 7) in round 2; with a decay of 1/2 (1, 5) in round 3, after an
    # absence of one round, and (1, 4) in round 4; the larger entry is sent (rounds count from 0)
    how = compression("topk", fraction=0.5, memory_decay=decay)
    state = {"compression error of model": torch.tensor([0.0, 4.0]), "compression round": torch.tensor([2.0])}
    shapes = {"model": Shape((2,), 0)}
    after = how.send({"model": torch.tensor([1.0, 3.0])}, Sender(0, round, 0, {}, state, shapes))
    assert after.vectors["model"].tolist() == [0.0, sent]
    assert after.state["compression error of model"].tolist() == [1.0, 0.0]
    assert how.client_state({"model": 2}).keys() == state.keys() - ({"compression round"} if decay == 1 else set())


def test_an_error_decays_in_rounds_of_absence(make_experiment):
    """The same client's numbers from round to round; only the count of the last round is new in its state."""
    how = compression("topk", fraction=0.1, memory_decay=0.5)
    experiment = make_experiment(network=mlp, clients_per_round=2, compression=how, rounds=6)
    simulation, states, _ = rounds(experiment, 6)
    last = {}
    for number, state in enumerate(states[:-1]):
        last |= dict.fromkeys(simulation.uploads(state).clients.tolist(), number + 1)
    held = states[-1].client_states.held
    assert {client: float(vectors["compression round"]) for client, vectors in held.items()} == last


@pytest.mark.parametrize("executor", EXECUTORS)
def test_training_does_not_copy_what_the_transforms_keep(make_experiment, monkeypatch, executor):
    """Of FedNova's uploads the number of effective steps is too short to be compressed, and has no error."""
    seen = []
    client = option("strategy/client", "fednova")
    finish = type(client).finish

    def observed(self, model, received, client_state, constants, info):
        seen.append(client_state)
        return finish(self, model, received, client_state, constants, info)

    monkeypatch.setattr(type(client), "finish", observed)
    nova = Strategy(client=client, server=option("strategy/server", "fednova"))
    how, hardware = compression("topk", fraction=0.1), {"executor": executor}
    experiment = make_experiment(network=mlp, strategy=nova, compression=how, clients_per_round=6, hardware=hardware)
    _, states, _ = rounds(experiment, 2)
    assert seen and all(state == {} for state in seen)
    assert {tuple(held) for held in states[-1].client_states.held.values()} == {("compression error of direction",)}


@pytest.mark.parametrize("down", ["none", "half"])
@pytest.mark.parametrize("name", ["scaffold", "feddyn", "feddc"])
def test_control_variates_follow_what_has_arrived(make_experiment, name, down):
    """The server's mean of all clients' states stays their mean, though uploads are compressed."""
    how = compression("topk", fraction=0.2, down=down)
    experiment = make_experiment(network=mlp, clients_per_round=3, strategy=strategy(name), compression=how)
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
        {"compression": ("topk", {"fraction": 0.1, "down": "half"})},
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


def test_the_nearest_in_float16():
    # between 512 and 1024 float16 has multiples of 1/2; its largest number is 65504
    received = compression("none", down="half").download(torch.tensor([512.3, -600.2, 1e6, -1e6, 0.25]))
    assert received.tolist() == [512.5, -600.0, 65504.0, -65504.0, 0.25]


@config_class
class Signs(Compression):
    """A user's rule: clients receive signs."""

    def download(self, parameters):
        return parameters.sign()


@config_class
class Halving(Sign):
    """A user's compressor, whose server halves the mean of the scaled signs."""

    def combine(self, displacements, update, slots, round):
        halved = {name: mean / 2 for name, mean in displacements.items()}
        return Combined(halved, {}, {}, len(update.clients))


def test_a_server_side_of_ones_own_is_used_with_every_rule(make_experiment):
    settings = {"rule": "scaled", "vote_step": 0.1, "scope": "vector", "memory": "none", "memory_decay": 1.0}
    models = []
    for rule in (Sign, Halving):
        how = rule(down="none", skip="none", **settings)
        _, states, _ = rounds(make_experiment(network=mlp, clients_per_round=6, compression=how))
        models.append([state.server.model for state in states])
    (x, whole), (_, half) = models
    torch.testing.assert_close(half - x, (whole - x) / 2, rtol=1e-4, atol=1e-7)


def in_float16(model):
    return torch.from_numpy(model.numpy().astype("float16").astype("float32"))


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(
    ("rule", "rounded"), [(compression("none", down="half"), in_float16), (Signs(down="none"), torch.sign)]
)
def test_a_model_that_is_broadcast_with_fewer_bits(make_experiment, executor, rule, rounded):
    """Clients train from the rounded model x̂; the server adds the mean of y_k − x̂ to its own."""
    settings = {"network": mlp, "clients_per_round": 6, "strategy": Strategy(client=SGD, server=UNIFORM)}
    plain = Simulation(make_experiment(**settings))
    start = plain.initial()
    x = start.server.model
    received = rounded(x)
    from_rounded, _ = plain.advance(replace(start, models=(replace(start.server, model=received),)))
    _, (_, state), _ = rounds(make_experiment(**settings, compression=rule, hardware={"executor": executor}))
    expected = x + (from_rounded.server.model - received)
    torch.testing.assert_close(state.server.model, expected, rtol=0, atol=2e-6)
    assert (x - received).abs().max() > 2e-5  # the test would see a server that continues from the rounded model
    if rule.down == "half":
        assert state.totals.bytes_down == 6 * 2 * len(x)
    assert state.totals.bytes_up == 6 * 4 * len(x) == 4 * state.totals.params_down


def test_buffers_and_private_parts_are_not_rounded(make_experiment):
    how = compression("none", down="half")
    simulation, (_, state), _ = rounds(make_experiment(network=batch_norm, clients_per_round=6, compression=how))
    layout = simulation.network.layout
    assert state.totals.bytes_down == 6 * (2 * layout.trainable + 4 * (layout.size - layout.trainable))
    pipeline = simulation.round_runner(state).executor.context.pipeline
    model = torch.linspace(0.1, 0.9, layout.size)
    mine = torch.arange(layout.size) % 3 == 0
    received = replace(pipeline, private=mine).download(model)
    in_full = mine | (torch.arange(layout.size) >= layout.trainable)
    assert torch.equal(received, torch.where(in_full, model, model.half().float()))


def test_a_vote(make_experiment):
    """x + η_g sign(Σ sign D_k): every entry moves by the same amount or not at all."""
    how = compression("sign", rule="vote", vote_step=0.25, memory="none")
    moved, x = displacements(make_experiment)
    _, (_, state), _ = rounds(make_experiment(network=mlp, clients_per_round=6, compression=how))
    votes = torch.where(moved >= 0, 1.0, -1.0).sum(0).sign()
    torch.testing.assert_close(state.server.model, x + 0.25 * votes)


@pytest.mark.parametrize(("cohort", "voters", "size"), [(6, 6, 5), (3, 3, 3)])
def test_a_client_that_has_voted_downloads_the_result(cohort, voters, size):
    """17 entries: 3 bytes at one bit each, 5 at two bits, where a tie is possible; 68 in float32."""
    how = compression("sign", rule="vote", memory="none")
    clients, slots = torch.arange(cohort), {"voters": torch.arange(voters)}
    assert how.download_bytes(17, clients, slots).tolist() == cohort * [size]
    assert how.download_bytes(17, torch.tensor([0, 9, 8]), slots).tolist() == [size, 68, 68]
    assert how.download_bytes(17, clients, how.slots()).tolist() == cohort * [68]
    assert how.download_bytes(17, clients, {}) is None
    assert replace(how, down="half").download_bytes(17, clients, slots).tolist() == cohort * [34]


def test_bytes_of_votes_from_round_to_round(make_experiment):
    """BatchNorm's buffers are always sent in float32."""
    how = compression("sign", rule="vote", memory="none")
    experiment = make_experiment(network=batch_norm, clients_per_round=3, compression=how, rounds=4)
    simulation, states, _ = rounds(experiment, 4)
    layout = simulation.network.layout
    buffers = 4 * (layout.size - layout.trainable)
    before = set()
    for state, after in pairwise(states):
        cohort = set(simulation.uploads(state).clients.tolist())
        parameters = [-(-layout.trainable // 8) if client in before else 4 * layout.trainable for client in cohort]
        assert after.totals.bytes_down - state.totals.bytes_down == sum(parameters) + 3 * buffers
        assert after.totals.params_down - state.totals.params_down == 3 * layout.size
        before = cohort


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


@pytest.mark.parametrize("executor", EXECUTORS)
def test_scaled_signs_of_every_tensor(make_experiment, executor):
    """The magnitude of a tensor is its own mean; each has 4 bytes of it besides its signs."""
    moved, x = displacements(make_experiment, strategy=Strategy(client=SGD, server=UNIFORM))
    simulation, (_, state), _ = rounds(
        make_experiment(
            network=mlp,
            clients_per_round=6,
            compression=compression("sign", memory="none"),
            strategy=Strategy(client=SGD, server=UNIFORM),
            hardware={"executor": executor},
        )
    )
    sizes = [parameter.numel() for parameter in mlp(simulation.dataset.spec).parameters()]
    expected, size = [], 0
    for own in torch.split(moved, sizes, 1):
        signs = torch.where(own >= 0, 1.0, -1.0)
        expected.append((signs * own.abs().mean(1, keepdim=True)).mean(0))
        size += -(-own.shape[1] // 8) + 4
    torch.testing.assert_close(state.server.model, x + torch.cat(expected), rtol=1e-4, atol=1e-6)
    assert state.totals.bytes_up == 6 * size


def test_buffers_travel_in_full(make_experiment):
    how = compression("topk", fraction=0.1)
    simulation, (_, state), _ = rounds(make_experiment(network=batch_norm, clients_per_round=6, compression=how))
    layout = simulation.network.layout
    assert layout.size > layout.trainable
    assert state.totals.bytes_up == 6 * (how.size(layout.trainable) + 4 * (layout.size - layout.trainable))


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


class Sending(Mechanism):
    """A user's mechanism that returns something else."""

    def __init__(self, returned):
        self.returned = returned

    def send(self, displacements, sender):
        return self.returned(displacements["model"])


class Summing(Mechanism):
    """Its metric would replace that of a test."""

    def combine(self, displacements, update, slots, round):
        return Combined(displacements, {}, {"test/accuracy": 1.0}, len(update.clients))


class Telling(Mechanism):
    def __init__(self, reported):
        self.reported = reported

    def report(self, rounds, participations):
        return self.reported


class Noising(Mechanism):
    """Noises local training, of which its option says nothing."""

    @property
    def noised_steps(self):
        return NoisedSteps(clip=1.0, noise_multiplier=1.0, probability=0.5)


@config_class
class Own(Privacy):
    number: int

    def mechanism(self, cohorts):
        return RETURNED[self.number][0]


RETURNED = (
    (None, "Own.mechanism: returned NoneType; allowed: a Mechanism, of fedrun.uploads.privacy.base"),
    (Sending(lambda moved: {"model": moved}), "Sending.send: returned dict; allowed: a Sent"),
    (Sending(lambda moved: Sent({"drift": moved})), "Sending.send: returned the vectors drift; allowed: some of model"),
    (Sending(lambda moved: Sent({"model": moved[:3]})), "Sending.send: returned float32 [3]; allowed: 'model' as "),
    (Sending(lambda moved: Sent({"model": moved.double()})), "Sending.send: returned float64 "),
    (Sending(lambda moved: Sent({}, {}, {"norm": moved})), "; allowed: a number as measure 'norm'"),
    (
        Sending(lambda moved: Sent({}, {}, {"norm": 1.0})),
        "Sending.send: returned the metric 'norm'; allowed: a dictionary of numbers named privacy/...",
    ),
    (Summing(), "Summing.combine: returned the metric 'test/accuracy'; allowed: a dictionary of numbers named priv"),
    (Telling({"privacy/delta": 0.1, "epsilon": 1.0}), "Telling.report: returned the metric 'epsilon'; allowed: "),
    (Noising(), "Own.mechanism: returned a Mechanism with noised_steps; allowed: that with noises_steps=True"),
    (Telling(None), "Telling.report: returned NoneType; allowed: a dictionary of numbers named privacy/..."),
)


def evaluated_after_a_round(experiment):
    simulation, states, _ = rounds(experiment)
    return simulation.test(states[-1])


@pytest.mark.parametrize("number", range(len(RETURNED)))
def test_what_a_mechanism_of_ones_own_returns(make_experiment, number):
    with pytest.raises(InputError) as refusal:
        evaluated_after_a_round(make_experiment(network=mlp, privacy=Own(number=number)))
    assert RETURNED[number][1] in str(refusal.value)
