"""FedRep, FedBABU, LG-FedAvg, FedBN: worked numbers, and networks against naive rounds."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

import pytest
import torch
from torch import nn

from fedrun.experiment.strategy import Strategy
from fedrun.models.flat_network import Layout, Slot
from fedrun.simulation.simulation import Simulation
from fedrun.system.errors import InputError

from ..helpers.naive_averaging import NaiveClients
from ..helpers.naive_personal import NaiveParts
from ..helpers.quadratic_clients import DEFAULTS, FEDAVG, UNIFORM
from ..helpers.small_networks import COHORT, assert_equal_after, batch_norm, data_of, mlp, network_of
from ..helpers.strategies import client

BODY_AND_HEAD = Layout(
    slots=(Slot("encoder.0.weight", (1, 1), 0, 1, "Linear"), Slot("head.weight", (1, 1), 1, 2, "Linear")),
    trainable=2,
    size=2,
    head=slice(1, 2),
    classes=1,
    embedding=1,
)


def trained(client_strategy, target: float, epochs: int) -> list[float]:
    """(w, h) after steps of rate 0.1 on (h w - t)^2 / 2 from (1, 0.5), one step an epoch."""
    model = torch.tensor([1.0, 0.5], dtype=torch.float64)
    for epoch in range(epochs):
        w, h = model.tolist()
        gradient = torch.tensor([(h * w - target) * h, (h * w - target) * w], dtype=torch.float64)
        frozen = client_strategy.frozen(BODY_AND_HEAD, epoch)
        model -= 0.1 * (gradient if frozen is None else gradient.masked_fill(frozen, 0.0))
    return model.tolist()


# --- worked numbers, of clients with targets 1 and 3 ------------------------------------------------------------------


def test_fedrep():
    fedrep = client("fedrep", head_epochs=2)
    (w1, h1), (w2, h2) = trained(fedrep, 1.0, 3), trained(fedrep, 3.0, 3)
    assert (h1, h2, w1, w2) == pytest.approx((0.595, 0.975, 1.0240975, 1.1974375), abs=1e-9)
    assert fedrep.private(BODY_AND_HEAD).tolist() == [False, True]


def test_fedbabu():
    fedbabu = client("fedbabu")
    assert trained(fedbabu, 1.0, 1) == pytest.approx((1.025, 0.5), abs=1e-9)
    assert trained(fedbabu, 3.0, 1) == pytest.approx((1.125, 0.5), abs=1e-9)


def test_lgfedavg():
    lgfedavg = client("lgfedavg")
    assert trained(lgfedavg, 1.0, 1) == pytest.approx((1.025, 0.55), abs=1e-9)
    assert lgfedavg.private(BODY_AND_HEAD).tolist() == [True, False]


def test_lgfedavg_shares_what_is_named():
    lgfedavg = client("lgfedavg", shared=("encoder.0", "head.weight"))
    assert lgfedavg.private(BODY_AND_HEAD).tolist() == [False, False]
    with pytest.raises(InputError, match=r"no layer or tensor 'enc'; allowed: encoder.0.weight, head.weight"):
        client("lgfedavg", shared=("enc",)).private(BODY_AND_HEAD)


@pytest.mark.parametrize(
    ("layers", "expected"), [("batch", [False, True, False, True]), ("all", [False, True, True, True])]
)
def test_fedbns_private_entries(layers, expected):
    """Found by the layer's class, whatever its name; running statistics included."""
    kinds = ("Conv2d", "BatchNorm2d", "GroupNorm", "BatchNorm2d")
    slots = tuple(Slot(f"downsample.{n}", (1,), n, n + 1, kind) for n, kind in enumerate(kinds))
    layout = replace(BODY_AND_HEAD, slots=slots, size=4)
    assert client("fedbn", layers=layers).private(layout).tolist() == expected


def test_fedbn_rejects_models_without_normalisation(make_experiment):
    experiment = make_experiment(network=mlp, strategy=Strategy(client=client("fedbn"), server=FEDAVG))
    with pytest.raises(InputError, match=r"the model has no batch normalisation layer"):
        Simulation(experiment)


@pytest.mark.parametrize("local", [{"epochs": 2}, {"epochs": None, "steps": 5}])
def test_fedrep_rejects_rounds_without_epochs_of_the_encoder(local):
    with pytest.raises(InputError, match=r"FedRep trains only the head in the first 2 .*allowed: a larger number"):
        client("fedrep", head_epochs=2).check(replace(DEFAULTS, **local))


@pytest.mark.parametrize("newcomers", ["measured", "initial"])
def test_fedbns_newcomers(make_experiment, default_experiment, newcomers):
    """Who has not trained yet is evaluated with its own samples' means and variances, or with the initial 0 and 1."""
    experiment = make_experiment(
        network=batch_norm,
        local={"epochs": 3},
        strategy=Strategy(client=client("fedbn", newcomers=newcomers), server=FEDAVG),
        clients_per_round=2,
        population=replace(default_experiment.population, test_share=0.4),
    )
    simulation = Simulation(experiment)
    state, _ = simulation.advance(simulation.initial())
    hits, tests, losses = 0, 0, 0.0
    for number, (inputs, _) in enumerate(data_of(simulation)):
        network = batch_norm(simulation.dataset.spec)
        own = state.client_states.held.get(number)
        model = state.server.model.clone()
        if own is not None:
            mask = experiment.strategy.client.private(simulation.network.layout)
            model[mask] = own["private"]
        network.load_state_dict(simulation.network.tensors(model), strict=False)
        normalisation = network.encoder[1]
        if own is None and newcomers == "measured":
            with torch.no_grad():
                channels = network.encoder[0](inputs).movedim(1, 0).flatten(1)
            normalisation.running_mean.copy_(channels.mean(1))
            normalisation.running_var.copy_(channels.var(1))
        elif own is None:
            assert normalisation.running_mean.tolist() == [0, 0, 0] and normalisation.running_var.tolist() == [1, 1, 1]
        tested = simulation.federation.client_test[number]
        labels = simulation.dataset.targets[tested]
        with torch.no_grad():
            logits = network.eval()(simulation.dataset.inputs[tested].float() / 255)
        hits += int((logits.argmax(1) == labels).sum())
        losses += nn.functional.cross_entropy(logits, labels, reduction="sum").item()
        tests += len(tested)
    metrics = simulation.test(state)
    assert metrics["test/loss"] == pytest.approx(losses / tests, rel=1e-5)
    assert metrics["test/accuracy"] == pytest.approx(hits / tests)
    layer = simulation.network.network.get_submodule("encoder.1")
    assert layer.momentum == 0.1 and int(layer.num_batches_tracked) == 0  # as before the measurement


# --- networks against naive rounds ------------------------------------------------------------------------------------


def in_head(name: str) -> bool:
    return name.startswith("head.")


def group_norm(spec):
    encoder = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten())
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(16, spec.classes)))


CASES = {
    "fedrep": (
        client("fedrep", head_epochs=2),
        FEDAVG,
        {"is_own": in_head, "trains": lambda epoch, name: in_head(name) == (epoch < 2)},
        (mlp, batch_norm),
    ),
    "fedbabu": (
        client("fedbabu"),
        UNIFORM,
        {"is_own": in_head, "trains": lambda epoch, name: not in_head(name), "uniform": True},
        (mlp, batch_norm),
    ),
    "lgfedavg": (
        client("lgfedavg"),
        UNIFORM,
        {"is_own": lambda name: not in_head(name), "uniform": True},
        (mlp, batch_norm),
    ),
    "fedbn": (client("fedbn"), FEDAVG, {"is_own": lambda name: name.startswith("encoder.1.")}, (batch_norm,)),
    "fedbn of groups": (
        client("fedbn", layers="all"),
        FEDAVG,
        {"is_own": lambda name: name.startswith("encoder.1.")},
        (group_norm,),
    ),
}


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
@pytest.mark.parametrize(("case", "network"), [(case, network) for case in CASES for network in CASES[case][3]])
def test_networks(make_experiment, default_experiment, case, network, executor):
    client_strategy, server, settings, _ = CASES[case]
    experiment = make_experiment(
        network=network,
        local={"epochs": 3},
        strategy=Strategy(client=client_strategy, server=server),
        clients_per_round=COHORT,
        population=replace(default_experiment.population, test_share=0.4),
        hardware={"executor": executor},
    )
    simulation = Simulation(experiment)
    clients = NaiveClients(epochs=3)
    naive = NaiveParts(network_of(simulation, network), data_of(simulation), clients, 0, **settings)
    state = assert_equal_after(simulation, naive, 4)
    hits, tests = 0, 0
    for number in range(len(naive.data)):
        own = simulation.federation.client_test[number]
        predicted = naive.of(number).eval()(simulation.dataset.inputs[own].float() / 255).argmax(1)
        hits += int((predicted == simulation.dataset.targets[own]).sum())
        tests += len(own)
    assert simulation.test(state)["test/accuracy"] == pytest.approx(hits / tests)
    sent = int((~client_strategy.private(simulation.network.layout)).sum())
    assert state.totals.params_up == state.totals.params_down == 4 * COHORT * sent
    assert state.totals.bytes_up == state.totals.bytes_down == 4 * state.totals.params_up
