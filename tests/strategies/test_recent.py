"""Strategies of one global model since 2019: worked numbers, naive servers, limits."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import log

import pytest
import torch

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.experiment.experiment import build_experiment
from fedrun.experiment.strategy import Strategy
from fedrun.models.flat_network import Layout, Slot
from fedrun.strategies.client import Outputs
from fedrun.strategies.feddisco import discrepancies
from fedrun.strategies.server import Senders, ServerState
from fedrun.strategies.vectors import MODEL
from fedrun.system.errors import InputError

from ..helpers import naive_recent as naive
from ..helpers.quadratic_clients import FEDAVG, ONE, SGD, UNIFORM, Quadratics, info_of, round_of, start, update_of
from ..helpers.small_networks import COHORT, assert_as_naive, batch_norm, final_model, mlp
from ..helpers.strategies import client

CURVES = ((1.0, 0.0), (1.0, 4.0))


def server(name: str, **settings: object):
    return option("strategy/server", name, **settings)


# --- worked numbers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "expected"),
    [("heavy_ball", (0.375, -0.2875)), ("nesterov", (-0.1875, -0.88375)), ("average", (0.9375, 0.87125))],
)
def test_fedavgm_in_two_rounds(form, expected):
    fedavgm = server("fedavgm", momentum=0.9, form=form)
    state, models = start(fedavgm, 1.0), []
    for index, delta in enumerate((-0.625, -0.1)):
        update = update_of({MODEL: state.model + delta}, (1, 3))
        state, _ = fedavgm.aggregate(state, update, round_of(index, 2))
        models.append(state.model.item())
    assert models == pytest.approx(expected, abs=1e-6)


def test_fedcm_in_three_rounds():
    federation = Quadratics(client("fedcm", alpha=0.1), server("fedcm"), CURVES, (1, 1), lr=0.1, steps=2)
    state = start(federation.server, 1.0)
    models, directions = [], []
    for index in range(3):
        state = federation.round(state, index)
        models.append(state.model.item())
        directions.append(state.slots["global_gradient"].item())
    assert models == pytest.approx((1.0199, 1.05722444, 1.1094097097), abs=1e-6)
    assert directions[:2] == pytest.approx((-0.0995, -0.1866222), abs=1e-6)


def test_fedcm_with_momentum():
    """Both clients step along 0.1 (y - b) + 0.9 m with velocity v <- 0.9 v + d, so on average along b = 2.

    Round 1: d = -0.1, -0.099, the gradients count 1.9 and 1 times, and m = -(1.9 * 0.1 + 0.099) / 2.9.
    """
    federation = Quadratics(client("fedcm", alpha=0.1), server("fedcm"), CURVES, (1, 1), lr=0.1, steps=2, momentum=0.9)
    state = federation.round(start(federation.server, 1.0))
    assert state.model.item() == pytest.approx(1.0289, abs=1e-6)
    assert state.slots["global_gradient"].item() == pytest.approx(-0.0996551724, abs=1e-6)
    state = federation.round(state, 1)
    assert state.model.item() == pytest.approx(1.0828851003, abs=1e-6)
    assert state.slots["global_gradient"].item() == pytest.approx(-0.186155518, abs=1e-6)


def test_fedcm_with_momentum_converges():
    federation = Quadratics(client("fedcm", alpha=0.1), server("fedcm"), CURVES, (1, 1), 0.01, 10, momentum=0.9)
    state = start(federation.server, 1.0)
    for index in range(300):
        state = federation.round(state, index)
    assert state.model.item() == pytest.approx(2.0, abs=1e-3)  # the mean of the two minima


TWO = Layout(slots=(Slot("head.weight", (1, 2), 0, 2),), trainable=2, size=2, head=slice(0, 2), classes=1, embedding=2)


def bowl(at: torch.Tensor, index: int, *, moves_buffers: bool = True) -> torch.Tensor:
    """The gradient of (y₁² + 4 y₂²) / 2."""
    return at * torch.tensor([1.0, 4.0])


def stepped(
    client_strategy, received: dict[str, torch.Tensor], y: list[float], state=None, steps: int = 1, is_new: bool = True
):
    info = replace(info_of((1,), 0, steps, 0.1), layout=TWO, is_new=torch.tensor([is_new]))
    constants = client_strategy.constants(received, state or {}, info)
    model, models = torch.tensor(y), []
    for _ in range(steps):
        model = model - 0.1 * client_strategy.direction(bowl, model, constants)
        models.append(model.tolist())
    return models


def test_fedsams_step():
    (model,) = stepped(client("fedsam", rho=0.1), {MODEL: torch.zeros(2)}, [1.0, 0.5])
    assert model == pytest.approx((0.8955278640, 0.2642229124), abs=1e-6)


def test_fedasams_step():
    (model,) = stepped(client("fedasam", rho=0.7, eta=0.2), {MODEL: torch.zeros(2)}, [1.0, 0.5])
    assert model == pytest.approx((0.8453335246, 0.1511857059), abs=1e-6)


def test_fedasam_scales_weights_only():
    fedasam = client("fedasam")
    slots = (Slot("head.weight", (1, 1), 0, 1), Slot("head.bias", (1,), 1, 2))
    info = replace(info_of((1,), 0, 1, 0.1), layout=replace(TWO, slots=slots))
    assert fedasam.constants({}, {}, info)["scaled"].tolist() == [True, False]


def test_mofedsams_step():
    received = {MODEL: torch.zeros(2), "global_gradient": torch.tensor([1.0, -1.0])}
    (model,) = stepped(client("mofedsam", rho=0.1, alpha=0.1), received, [1.0, 0.5])
    assert model == pytest.approx((0.8995527864, 0.5664222912), abs=1e-6)


def test_mofedsams_step_in_fedlesams_repository():
    received = {MODEL: torch.zeros(2), "global_gradient": torch.tensor([1.0, -1.0])}
    (model,) = stepped(client("mofedsam", rho=0.1, alpha=0.1, variant="fedlesam"), received, [1.0, 0.5])
    assert model == pytest.approx((0.805527864, 0.3542229124), abs=1e-6)


def test_fedlesams_released_perturbation():
    """Of two tensors of 2 and 1 entries, after the move (-0.3, 0.4, 0.1)."""
    slots = (Slot("head.weight", (1, 2), 0, 2), Slot("head.bias", (1,), 2, 3))
    info = replace(info_of((1,), 0, 2, 0.1), layout=replace(TWO, slots=slots, trainable=3, size=3))
    received = {MODEL: torch.zeros(3), "move": torch.tensor([-0.3, 0.4, 0.1])}
    shift = client("fedlesam", rho=0.1, perturbation="released").constants(received, {}, info)["perturbation"]
    assert shift.tolist() == pytest.approx((0.0428571429, 0.0428571429, -0.0571428571), abs=1e-7)


def test_fedlesams_released_perturbation_reads_kernels_in_c_order():
    """A kernel (1, 2, 1, 2), channel by channel, then one more tensor: u_0, u_1 = 3, 1 are of the first channel."""
    slots = (Slot("encoder.weight", (1, 2, 1, 2), 0, 4), Slot("head.weight", (1, 1), 4, 5))
    layout = replace(TWO, slots=slots, trainable=5, size=5)
    move = torch.zeros(5)
    slots[0].view(move).copy_(torch.tensor([[[[3.0, 1.0]], [[-5.0, 7.0]]]]))
    fedlesam = client("fedlesam", rho=0.4, perturbation="released")
    info = replace(info_of((1,), 0, 2, 0.1), layout=layout)
    shift = fedlesam.constants({MODEL: torch.zeros(5), "move": move}, {}, info)["perturbation"]
    assert shift.tolist() == pytest.approx((-0.3, -0.3, -0.3, -0.3, -0.1), abs=1e-7)


@pytest.mark.parametrize(
    ("client_strategy", "broadcast", "state"),
    [
        (client("fedlesam_s", rho=0.1, perturbation="released", correction=0.1), {"control": [2.0, 1.0]}, "control"),
        (client("fedlesam_d", rho=0.1, perturbation="released", alpha=0.1), {}, "drift"),
    ],
)
def test_fedlesams_released_combinations(client_strategy, broadcast, state):
    """One tensor and u_0 < 0, so e = (0.1, 0.1) at y = x = (1, 0.5) and g(y + e) = (1.1, 2.4).

    -S with c - c_k = (2, 1) - (1, 2) and -D with h_k = (1, -1) both add 0.1 (1, -1): the step is 0.1 (1.2, 2.3).
    """
    received = {MODEL: torch.tensor([1.0, 0.5]), "move": torch.tensor([-0.3, 7.0])}
    received |= {name: torch.tensor(vector) for name, vector in broadcast.items()}
    held = {state: torch.tensor([1.0, 2.0] if broadcast else [1.0, -1.0])}
    constants = client_strategy.constants(received, held, replace(info_of((1,), 0, 1, 0.1), layout=TWO))
    correction = client_strategy.linear_correction(constants)
    step = client_strategy.direction(bowl, received[MODEL], constants)
    step = step + correction.shift + (0 if correction.strength is None else correction.strength * received[MODEL])
    assert (received[MODEL] - 0.1 * step).tolist() == pytest.approx((0.88, 0.27), abs=1e-6)


def test_the_last_move_of_feddyns_server_has_the_mean_drift():
    """x = 1, the only client of two moves by 0.5: the model by 0.5 + 0.25, then with no displacement by 0.25."""
    fedlesam_d = server("fedlesam_d")
    state, moves = start(fedlesam_d, 1.0), []
    for moved in (0.5, 0.0):
        state, _ = fedlesam_d.aggregate(state, update_of({MODEL: state.model + moved}, (1,)), round_of(0, 2))
        moves.append(fedlesam_d.broadcast(state)["move"].item())
    assert moves == pytest.approx((0.75, 0.25))


@pytest.mark.parametrize(
    ("metric", "expected"),
    [("kl", (0, 0.4770897314, 0.5229102686)), ("l2", (0, 0.5288217279, 0.4711782721))],
)
def test_feddiscos_weights(metric, expected):
    feddisco = server("feddisco", discrepancy_weight=0.5, offset=0.1, metric=metric)
    counts = torch.tensor([[1, 0], [3, 3], [1, 3]])
    senders = Senders(clients=torch.arange(3), samples=torch.tensor([1, 3, 4]), label_counts=counts)
    weights = feddisco.weights(start(feddisco, 0.0), senders)
    assert (weights / weights.sum()).tolist() == pytest.approx(expected, abs=1e-9)


def test_feddisco_with_another_target():
    """u = (3/4, 1/4) and q = (1, 0), (1/2, 1/2), (1/4, 3/4): all distances by hand."""
    counts = torch.tensor([[1, 0], [3, 3], [1, 3]])
    distances = discrepancies(counts, "l2", (6.0, 2.0))
    assert distances.tolist() == pytest.approx([8**-0.5, 8**-0.5, 2**-0.5])
    divergences = [log(4 / 3), log(2 / 3) / 2 + log(2) / 2, log(1 / 3) / 4 + log(3) * 3 / 4]
    distances = discrepancies(counts, "kl", (6.0, 2.0))
    assert distances.tolist() == pytest.approx([one / sum(divergences) for one in divergences])
    feddisco = server("feddisco", discrepancy_weight=0.5, offset=0.1, metric="l2", target=(6.0, 2.0))
    senders = Senders(clients=torch.arange(3), samples=torch.tensor([1, 3, 4]), label_counts=counts)
    raw = [1 / 8 - 8**-0.5 / 2 + 0.1, 3 / 8 - 8**-0.5 / 2 + 0.1, 1 / 2 - 2**-0.5 / 2 + 0.1]
    assert feddisco.weights(ServerState(torch.zeros(1)), senders).tolist() == pytest.approx(raw)


def test_feddiscos_target_has_a_number_for_each_class():
    feddisco = server("feddisco", target=(1.0, 2.0))
    counts = torch.tensor([[1, 0, 2], [0, 3, 0]])
    senders = Senders(clients=torch.arange(2), samples=torch.tensor([3, 3]), label_counts=counts)
    message = r"^strategy.server.target: 2 numbers; allowed: one for each of 3 classes$"
    with pytest.raises(InputError, match=message):  # before the run
        feddisco.init(torch.zeros(9), replace(ONE, classes=3), 4)
    feddisco.init(torch.zeros(9), replace(ONE, classes=0), 4)
    with pytest.raises(InputError, match=message):  # of a model without a head
        feddisco.weights(ServerState(torch.zeros(9)), senders)
    with pytest.raises(InputError, match=r"^strategy.server.target=\[1.0,0.0\]: allowed: a list, each item .* above 0"):
        server("feddisco", target=(1.0, 0.0))


def test_feddisco_without_any_weight_is_fedavg():
    """Raw weights 1/4 - 10 * 1/2 and 3/4 - 10 * 1/2."""
    feddisco = server("feddisco", discrepancy_weight=10, offset=0)
    counts = torch.tensor([[1, 0], [0, 3]])
    senders = Senders(clients=torch.arange(2), samples=torch.tensor([1, 3]), label_counts=counts)
    assert feddisco.weights(start(feddisco, 0.0), senders).tolist() == [0.25, 0.75]


def test_fedlesams_steps():
    received, state = {MODEL: torch.tensor([1.0, 0.5])}, {"earlier": torch.tensor([2.0, 1.5])}
    fedlesam = client("fedlesam", rho=0.1)
    models = stepped(fedlesam, received, [1.0, 0.5], state, steps=2, is_new=False)
    assert models[0] == pytest.approx((0.8929289322, 0.2717157288), abs=1e-6)
    assert models[1] == pytest.approx((0.7965649712, 0.1347451660), abs=1e-6)


@pytest.mark.parametrize("is_new", [True, False])
def test_fedlesam_without_a_move_is_sgd(is_new):
    """A client that is new, or that receives the model that it knows."""
    received = {MODEL: torch.tensor([1.0, 0.5])}
    state = {"earlier": torch.zeros(2) if is_new else torch.tensor([1.0, 0.5])}
    (model,) = stepped(client("fedlesam", rho=0.1), received, [1.0, 0.5], state, is_new=is_new)
    assert model == pytest.approx((0.9, 0.3), abs=1e-7)


@pytest.mark.parametrize(("tau", "expected"), [(1.0, 0.4747367189), (3.0, 0.5232944613)])
def test_fedntds_loss(tau, expected):
    fedntd = client("fedntd", beta=1.0, tau=tau)
    outputs = Outputs(torch.tensor([[2.0, 1.0, 0.0]]), references={MODEL: Outputs(torch.tensor([[1.0, 2.0, 0.0]]))})
    assert fedntd.loss(outputs, torch.tensor([0]), {}).item() == pytest.approx(expected, abs=1e-6)


def test_fedacg_in_two_rounds():
    federation = Quadratics(client("fedprox", mu=0.01), server("fedacg", momentum=0.85), CURVES, (1, 1), 0.1, 2)
    state = federation.round(start(federation.server, 1.0))
    assert (state.model.item(), state.slots["fedacg/velocity"].item()) == pytest.approx((1.1899, 0.1899), abs=1e-6)
    assert federation.server.broadcast(state)[MODEL].item() == pytest.approx(1.351315, abs=1e-6)
    assert federation.round(state, 1).model.item() == pytest.approx(1.4745002815, abs=1e-6)


def test_fedexps_step():
    fedexp = server("fedexp", eps=1e-3)
    update = update_of({MODEL: torch.tensor([0.75])}, (1, 1))  # D = (-1, 0.5) from 1
    update = replace(update, squared_norms=torch.tensor([1.0, 0.25], dtype=torch.float64))
    state, metrics = fedexp.aggregate(start(fedexp, 1.0), update, round_of(0, 2))
    assert metrics["lr"] == pytest.approx(4.9212598425, abs=1e-6)
    assert fedexp.broadcast(state)[MODEL].item() == pytest.approx(-0.2303149606, abs=1e-6)
    assert state.model.item() == pytest.approx(0.3848425197, abs=1e-6)


@pytest.mark.parametrize("name", ["fedlesam", "fedlesam_released", "apfl", "fedbabu", "lgfedavg", "perfedavg"])
def test_papers_with_a_plain_mean(name):
    senders = Senders(clients=torch.arange(2), samples=torch.tensor([1, 3]))
    server_strategy = build_experiment(compose([f"strategy={name}"])).strategy.server
    assert server_strategy.weights(start(server_strategy, 0.0), senders).tolist() == [1, 1]


BUFFERED = Layout(
    slots=(Slot("head.weight", (1, 1), 0, 1), Slot("encoder.0.running_mean", (1,), 1, 2)),
    trainable=1,
    size=2,
    head=slice(0, 1),
    classes=1,
    embedding=1,
)


@pytest.mark.parametrize("name", ["fedavgm", "fedcm", "fedacg", "fedexp"])
def test_buffers_are_averaged_and_have_no_momentum(name):
    server_strategy = server(name)
    state = server_strategy.init(torch.tensor([1.0, 5.0]), BUFFERED, 2)
    for index, mean in enumerate((9.0, 7.0)):
        update = update_of({MODEL: torch.tensor([0.5, mean])}, (1, 1))
        update = replace(update, squared_norms=torch.tensor([1.0, 0.25], dtype=torch.float64))
        state, _ = server_strategy.aggregate(state, update, replace(round_of(index, 2), layout=BUFFERED))
        assert state.model[1] == server_strategy.broadcast(state)[MODEL][1] == mean


# --- networks against naive servers -----------------------------------------------------------------------------------

CASES = {
    "fedavgm": (SGD, server("fedavgm", momentum=0.8), naive.NaiveFedAvgM, {"momentum": 0.8}),
    "fedavgm nesterov": (
        SGD,
        server("fedavgm", momentum=0.8, form="nesterov", lr=0.5),
        naive.NaiveFedAvgM,
        {"momentum": 0.8, "form": "nesterov", "lr": 0.5},
    ),
    "fedcm": (client("fedcm", alpha=0.3), server("fedcm"), naive.NaiveFedCM, {"alpha": 0.3}),
    "fedsam": (client("fedsam", rho=0.3), FEDAVG, naive.NaiveFedSAM, {"rho": 0.3}),
    "fedasam": (client("fedasam", rho=0.5, eta=0.2), FEDAVG, naive.NaiveFedSAM, {"rho": 0.5, "eta": 0.2}),
    "mofedsam": (
        client("mofedsam", rho=0.2, alpha=0.4),
        server("fedcm"),
        naive.NaiveFedCM,
        {"alpha": 0.4, "inner": naive.sharpness_aware(0.2)},
    ),
    "mofedsam of fedlesam's repository": (
        client("mofedsam", rho=0.2, alpha=0.4, variant="fedlesam"),
        server("fedcm"),
        naive.NaiveFedCM,
        {"alpha": 0.4, "own": 1.0, "inner": naive.sharpness_aware(0.2)},
    ),
    "fedlesam released": (
        client("fedlesam", rho=0.5, perturbation="released"),
        server("fedlesam"),
        naive.NaiveReleasedFedLESAM,
        {"rho": 0.5},
    ),
    "fedlesam_s released": (
        client("fedlesam_s", rho=0.5, perturbation="released", correction=0.3),
        server("fedlesam_s"),
        naive.NaiveReleasedFedLESAMScaffold,
        {"rho": 0.5, "lamb": 0.3},
    ),
    "fedlesam_d released": (
        client("fedlesam_d", rho=0.5, perturbation="released", alpha=0.2),
        server("fedlesam_d"),
        naive.NaiveReleasedFedLESAMDyn,
        {"rho": 0.5, "alpha": 0.2},
    ),
    "feddisco": (SGD, server("feddisco", discrepancy_weight=0.6), naive.NaiveFedDisco, {"a": 0.6}),
    "feddisco l2": (
        SGD,
        server("feddisco", discrepancy_weight=0.2, offset=0.05, metric="l2"),
        naive.NaiveFedDisco,
        {"a": 0.2, "b": 0.05, "metric": "l2"},
    ),
    "fedlesam": (client("fedlesam", rho=0.5), FEDAVG, naive.NaiveFedLESAM, {"rho": 0.5}),
    "fedntd": (client("fedntd", beta=0.7, tau=2.0), FEDAVG, naive.NaiveFedNTD, {"beta": 0.7, "tau": 2.0}),
    "fedacg": (client("fedprox", mu=0.2), server("fedacg"), naive.NaiveFedACG, {"beta": 0.2}),
    "fedexp": (SGD, server("fedexp"), naive.NaiveFedExP, {}),
    "fedexp on fedprox": (client("fedprox", mu=0.5), server("fedexp"), naive.NaiveFedExP, {"mu": 0.5}),
}


@pytest.mark.parametrize(
    ("case", "momentum"), [*((case, 0.0) for case in CASES), ("fedcm", 0.9), ("mofedsam", 0.9), ("fedacg", 0.9)]
)
def test_networks(make_experiment, case, momentum):
    """With both executors."""
    client_strategy, server_strategy, kind, settings = CASES[case]
    local = {"epochs": 2, "lr": 0.2, "lr_decay": 0.5, "momentum": momentum}
    pair = Strategy(client=client_strategy, server=server_strategy)
    assert_as_naive(make_experiment, mlp, partial(kind, **settings), local=local, strategy=pair, rounds=4)


def test_fedsams_running_statistics_are_those_of_the_unperturbed_pass(make_experiment):
    pair = Strategy(client=client("fedsam", rho=0.3), server=FEDAVG)
    assert_as_naive(make_experiment, batch_norm, partial(naive.NaiveFedSAM, rho=0.3), strategy=pair)


def test_fedsams_second_pass_is_not_counted(make_experiment):
    """With momentum None, BatchNorm weights a batch by 1 / the number of batches so far."""

    def counting(spec):
        network = batch_norm(spec)
        network.encoder[1].momentum = None
        return network

    pairs = [Strategy(client=client_strategy, server=FEDAVG) for client_strategy in (client("fedsam", rho=0.0), SGD)]
    models = [final_model(make_experiment(network=counting, strategy=pair), 1) for pair in pairs]
    torch.testing.assert_close(*models, rtol=1e-5, atol=1e-6)


# --- limits -----------------------------------------------------------------------------------------------------------

NEUTRAL = {
    "fedavgm": (SGD, server("fedavgm", momentum=0.0), FEDAVG),
    "fedcm": (client("fedcm", alpha=1.0), server("fedcm"), UNIFORM),
    "fedsam": (client("fedsam", rho=0.0), FEDAVG, FEDAVG),
    "mofedsam": (client("mofedsam", rho=0.0, alpha=1.0), server("fedcm"), UNIFORM),
    "fedlesam": (client("fedlesam", rho=0.0), FEDAVG, FEDAVG),
    "fedlesam released": (client("fedlesam", rho=0.0, perturbation="released"), server("fedlesam"), UNIFORM),
    "feddisco": (SGD, server("feddisco", discrepancy_weight=0.0, offset=0.0), FEDAVG),
    "fedntd": (client("fedntd", beta=0.0), FEDAVG, FEDAVG),
    "fedacg": (SGD, server("fedacg", momentum=0.0), UNIFORM),
}


@pytest.mark.parametrize("network", [mlp, batch_norm])
def test_neutral_settings_are_fedavg(make_experiment, network):
    experiment = make_experiment(network=network, clients_per_round=COHORT)
    plain_models = [
        (plain, final_model(replace(experiment, strategy=Strategy(client=SGD, server=plain)), 3))
        for plain in (FEDAVG, UNIFORM)
    ]
    for case, (client_strategy, server_strategy, plain) in NEUTRAL.items():
        (expected,) = [model for server, model in plain_models if server is plain]
        model = final_model(replace(experiment, strategy=Strategy(client=client_strategy, server=server_strategy)), 3)
        torch.testing.assert_close(model, expected, rtol=1e-5, atol=1e-6, msg=lambda m, c=case: f"{c}: {m}")


def test_fedlesam_with_control_variates_or_dynamic_regularisation(make_experiment):
    """Without a perturbation they are SCAFFOLD and FedDyn."""
    for name, settings, base in (("fedlesam_s", {}, "scaffold"), ("fedlesam_d", {"alpha": 0.1}, "feddyn")):
        pair = Strategy(client=client(name, rho=0.0, **settings), server=server(base))
        reference = Strategy(client=client(base, **settings), server=server(base))
        models = [
            final_model(make_experiment(network=mlp, strategy=each, clients_per_round=COHORT), 3)
            for each in (pair, reference)
        ]
        torch.testing.assert_close(*models, rtol=1e-5, atol=1e-6)
