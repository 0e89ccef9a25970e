"""The rules for federated low-rank adapters: worked numbers, invariants, and runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.execution.vector_store import VectorStore
from fedrun.experiment.experiment import build_experiment
from fedrun.experiment.strategy import Strategy
from fedrun.models.base import encoder_and_head
from fedrun.models.flat_network import FlatNetwork
from fedrun.models.lora import LoRA
from fedrun.models.lora_layout import adapters_of
from fedrun.runs import checkpoint
from fedrun.runs.checkpoint import Checkpoint, Identity
from fedrun.runs.metrics_file import Written
from fedrun.runs.saved_model import load_network, save_model
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.server import CohortUpdate, Round
from fedrun.strategies.vectors import MODEL
from fedrun.system.errors import InputError

from ..conftest import SIZES
from ..helpers.quadratic_clients import SGD
from ..helpers.small_networks import advanced
from ..helpers.strategies import fedaws

pytestmark = pytest.mark.needs("peft")

S = 2.0
"""alpha / rank in the worked example: W = W0 + 2 (R + B A), W0 = 0, 2 x 2, rank 1."""

CLIENTS = {"A": [[0.0, 1.0], [1.0, 1.0]], "B": [[1.0, 0.0], [0.0, 2.0]]}
"""A_1 = (0, 1), A_2 = (1, 1); B_1 = (1, 0)ᵀ, B_2 = (0, 2)ᵀ."""

RULES = ("fedit", "ffalora", "flora", "fedsalora", "fedexlora")


MIXED = {"A": [[[0.0, 1.0], [0, 0]], [[1.0, 1.0], [0, 1]]], "B": [[[1.0, 0.0], [0, 0]], [[0.0, 1.0], [2, 0]]]}
"""Client 1 of rank 1 in matrices of rank 2: A_1 = (0, 1; 0, 0), B_1 = (1, 0; 0, 0). Client 2 is of rank 2."""


def after_one_step(name, shares, clients=CLIENTS, rank=1, **changes):
    """The network and the next model when two clients with these shares have sent their matrices."""
    server = option("strategy/server", name, **changes)
    network = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False))
    torch.nn.init.zeros_(network[0].weight)
    LoRA(rank=rank, alpha=rank * S, targets=("0",), dropout=0.0).insert(network)
    server.prepare(network)
    flat = FlatNetwork(encoder_and_head(network, torch.nn.Identity()))
    state = server.init(flat.vector.clone(), flat.layout, 2)
    sent = torch.stack([flat.vector.clone() for _ in range(2)])
    views = flat.layout.views(sent)
    for matrix, values in clients.items():
        if (name := f"encoder.0.lora_{matrix}.default.weight") in views:
            views[name].copy_(torch.tensor(values).view(views[name].shape))
    samples = torch.tensor([round(100 * share) for share in shares])
    update = CohortUpdate(
        clients=torch.arange(2), samples=samples, steps=torch.ones(2, dtype=torch.int64),
        mean={MODEL: torch.tensor(shares) @ sent}, weights=samples.double(),
        rows=sent[:, : flat.layout.trainable], excluded=(), loss=0.0, score=0.0,
    )  # fmt: skip
    after, _ = server.aggregate(state, update, Round(0, 1, 2, flat.layout, 0, 0.1))
    return flat, after.model


def weight(flat, model):
    """W, column by column: the network is linear."""
    flat.load(model)
    with torch.no_grad():
        return flat.network(torch.eye(2)).T


@pytest.mark.parametrize(
    ("name", "changes", "shares", "expected"),
    [
        ("fedit", {}, [0.25, 0.75], [[0.375, 0.5], [2.25, 3]]),
        ("fedit", {}, [0.5, 0.5], [[0.5, 1], [1, 2]]),
        ("fedit", {"variant": "first_client"}, [0.5, 0.5], [[0, 0.5], [0, 0]]),  # 2 (0.5 B_1) (0.5 A_1)
        ("flora", {}, [0.25, 0.75], [[0, 0.5], [3, 3]]),
        ("fedexlora", {}, [0.25, 0.75], [[0, 0.5], [3, 3]]),
        ("fedexlora", {}, [0.5, 0.5], [[0, 1], [2, 2]]),
        # s Bbar Abar = (0.5, 1; 1, 2) and the transpose of s R = (-0.5, 0; 1, 0)
        ("fedexlora", {"residual": "transposed"}, [0.5, 0.5], [[0, 2], [1, 2]]),
    ],
)
def test_the_worked_numbers(name, changes, shares, expected):
    torch.testing.assert_close(
        weight(*after_one_step(name, shares, **changes)), torch.tensor(expected, dtype=torch.float32)
    )


@pytest.mark.parametrize(("name", "expected"), [("flora", [[0, 2], [3, 3]]), ("fedit", [[0.375, 1.625], [2.25, 3]])])
def test_the_worked_numbers_of_different_ranks(name, expected):
    """FLoRA is exact, FedIT is the zero-padding baseline."""
    weights = weight(*after_one_step(name, [0.25, 0.75], MIXED, rank=2))
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=torch.float32))


def test_ffalora_averages_exactly():
    """A_0 = (1, 2), p = (0.25, 0.75): s (Σ p_k B_k) A_0 = (0.5, 1; 3, 6)."""
    flat, model = after_one_step("ffalora", [0.25, 0.75])
    assert [slot.name for slot in flat.layout.slots] == ["encoder.0.lora_B.default.weight"]
    flat.frozen["encoder.0.lora_A.default.weight"].copy_(torch.tensor([[1.0, 2.0]]))
    torch.testing.assert_close(weight(flat, model), torch.tensor([[0.5, 1], [3, 6]]))


def test_flora_begins_anew_with_other_adapters():
    flat, model = after_one_step("flora", [0.25, 0.75])
    (adapter,) = adapters_of(flat.layout)
    assert not adapter.b.view(model).any()
    a = adapter.a.view(model)
    assert a.all() and a.abs().max() <= 2**-0.5 and not torch.equal(a, adapter.a.view(flat.initial))


@pytest.mark.parametrize("name", ["fedit", "fedexlora"])
def test_with_the_same_a_nothing_is_missing(name):
    flat, model = after_one_step(name, [0.25, 0.75], {"A": [[1.0, 3.0]] * 2, "B": CLIENTS["B"]})
    torch.testing.assert_close(weight(flat, model), 2 * torch.tensor([[0.25], [1.5]]) @ torch.tensor([[1.0, 3.0]]))


def layered(spec):
    torch.manual_seed(4)
    network = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(16, 6), torch.nn.Tanh(), torch.nn.Linear(6, 6), torch.nn.Tanh()
    )
    LoRA(rank=2, alpha=4.0, targets=("1", "3"), dropout=0.0).insert(network)
    return encoder_and_head(network, torch.nn.Linear(6, spec.classes))


A, B, HEAD = 2 * (16 + 6), 2 * (6 + 6), 6 * 3 + 3
"""Numbers of both layers' A, of both B, of the head."""

R = 6 * 16 + 6 * 6
"""And of both residuals."""


@pytest.fixture
def simulation(make_experiment):
    def make(name, executor="in_process", **changes):
        strategy = build_experiment(compose([f"strategy={name}"])).strategy
        given = {"network": layered, "clients_per_round": 2, "strategy": strategy, **changes}
        return Simulation(make_experiment(hardware={"executor": executor}, **given))

    return make


def logits(simulation, state):
    simulation.network.load(state.server.model)
    with torch.no_grad():
        images, _ = simulation.phase(state).samples.gather(torch.arange(8))
        return simulation.network.network.eval()(simulation.phase(state).samples.encoding(images))


@pytest.mark.parametrize(
    ("name", "up", "down"),
    [
        ("fedit", A + B + HEAD, A + B + HEAD),
        ("ffalora", B + HEAD, B + HEAD),
        ("flora", A + B + HEAD, A + B + HEAD),  # R = 0 before the first round
        ("fedsalora", A, A),
        ("fedexlora", A + B + HEAD, A + B + HEAD),
    ],
)
def test_what_is_sent(simulation, name, up, down):
    run = simulation(name)
    before, after = run.initial().totals, advanced(run).totals
    assert (after.params_up, after.params_down - before.params_down) == (2 * up, 2 * down)
    assert after.bytes_up == 4 * 2 * up


@pytest.mark.parametrize(
    ("name", "changes", "change"),
    [
        # layers of 6 x 16 and 6 x 6: (M - 1) r (in + out) with M = 2, r = 2
        ("fedexlora", {}, 1 * 2 * 22 + 1 * 2 * 12),
        # of the whole cohort: M = 6, r = 2: the matrices are smaller than 5 * 2 * 22 and 5 * 2 * 12
        ("fedexlora", {"clients_per_round": 1.0}, R),
        # Σ_k r_k (in + out) = 4 * 22 and 4 * 12, of which the second is more than 6 * 6
        ("flora", {}, 4 * 22 + 36),
        ("flora", {"compression": option("compression", "topk", memory="none", down="half")}, 4 * 22 + 36),
        ("flora", {"clients_per_round": 1}, 2 * 22 + 2 * 12),
    ],
)
def test_what_clients_of_the_last_round_receive(simulation, name, changes, change):
    """The change of R in the fewest numbers; the others receive R."""
    run = simulation(name, **changes)
    states, whole = [run.initial()], A + B + HEAD + R
    halved = 2 * (A + B + HEAD) if "compression" in changes else 0  # bytes less than 4 per number
    updated = []
    for _ in range(4):
        states.append(run.advance(states[-1])[0])
    cohorts = [set(run.uploads(state).clients.tolist()) for state in states[:-1]]
    for before, after, last, cohort in zip(states[1:], states[2:], cohorts, cohorts[1:], strict=False):
        updated.append(len(cohort & last))
        numbers = len(cohort) * whole - updated[-1] * (R - change)
        assert after.totals.params_down - before.totals.params_down == numbers
        assert after.totals.bytes_down - before.totals.bytes_down == 4 * numbers - len(cohort) * halved
    assert run.experiment.clients_per_round == 1.0 or sum(updated) < sum(map(len, cohorts[1:]))


def test_a_refined_head_leaves_the_costs_of_adapters(simulation):
    base = option("strategy/server", "fedexlora")
    refined = Strategy(client=option("strategy/client", "sgd"), server=fedaws(base))
    totals = [advanced(simulation("fedexlora", **changes), 2).totals for changes in ({}, {"strategy": refined})]
    assert totals[0].params_down == totals[1].params_down


@pytest.mark.parametrize("name", RULES)
def test_it_starts_as_the_network_without_adapters_and_trains(simulation, name):
    run = simulation(name)
    initial, state = run.initial(), advanced(run)
    plain = simulation("fedavg")
    torch.testing.assert_close(logits(run, initial), logits(plain, plain.initial()), rtol=0, atol=0)
    if name != "fedsalora":  # whose global model has B = 0 and the first head
        assert not torch.equal(logits(run, state), logits(run, initial))


@pytest.mark.parametrize("name", RULES)
def test_side_by_side_and_one_by_one(simulation, name):
    states = [advanced(simulation(name, executor), 2) for executor in ("in_process", "vectorized")]
    torch.testing.assert_close(states[0].server.model, states[1].server.model, rtol=1e-4, atol=1e-6)


def test_of_one_client_nothing_is_lost(simulation):
    """M = 1: FedIT, FedEx-LoRA and FLoRA end at the client's own weights."""
    outputs = []
    for name in ("fedit", "fedexlora", "flora"):
        run = simulation(name, clients_per_round=1)
        outputs.append(logits(run, advanced(run)))
    torch.testing.assert_close(outputs[0], outputs[1])
    torch.testing.assert_close(outputs[0], outputs[2])


def test_exact_rules_agree_after_one_round_only(simulation):
    runs = {name: simulation(name) for name in ("fedexlora", "flora")}
    first = [logits(run, advanced(run)) for run in runs.values()]
    second = [logits(run, advanced(run, 2)) for run in runs.values()]
    torch.testing.assert_close(*first)
    assert not torch.allclose(*second, rtol=1e-3)


def test_a_client_keeps_its_b(simulation):
    run = simulation("fedsalora", clients_per_round=1)
    state = advanced(run)
    adapters = adapters_of(run.network.layout)
    assert all(not adapter.b.view(state.server.model).any() for adapter in adapters)
    (held,) = state.client_states.held.values()
    assert held["private"].count_nonzero() >= B  # both B and the head


def test_the_saved_model_has_the_residual_in_its_weights(simulation, tmp_path, make_experiment):
    run = simulation("fedexlora")
    state = advanced(run)
    save_model(run.phase(state), state, tmp_path / "model.safetensors")
    saved = load_network(tmp_path / "model.safetensors", run.experiment.model, run.dataset.spec)
    images, _ = run.phase(state).samples.gather(torch.arange(8))
    torch.testing.assert_close(saved(run.phase(state).samples.encoding(images)), logits(run, state))


@pytest.mark.parametrize("name", ["fedexlora", "fedsalora"])
def test_a_resumed_run_is_the_same_to_the_last_bit(simulation, name, tmp_path):
    run = simulation(name)
    identity = Identity("config", 0, "data", frozen=run.network.frozen_fingerprint)
    store, state = VectorStore(run.network.layout.size, 2**20, None), advanced(run)
    checkpoint.save(tmp_path / "checkpoint.pt", Checkpoint(state, Written(), "", 0.0, 1), identity, store)
    again = simulation(name)
    resumed = checkpoint.load(tmp_path / "checkpoint.pt", identity, again.initial(), again.store).state
    models = [each.advance(at)[0].server.model for each, at in ((run, state), (again, resumed))]
    assert torch.equal(*models)


@pytest.mark.parametrize("name", RULES)
def test_a_model_without_adapters_is_refused(simulation, name):
    def plain(spec):
        encoder = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 6))
        return encoder_and_head(encoder, torch.nn.Linear(6, spec.classes))

    with pytest.raises(InputError, match=r"^strategy.(server|client)=\w+: the model has no low-rank adapters; allow"):
        advanced(simulation(name, network=plain))


def test_the_transpose_needs_square_weights(simulation):
    strategy = build_experiment(compose(["strategy=fedexlora", "strategy.server.residual=transposed"])).strategy
    with pytest.raises(InputError, match=r"^strategy.server.residual=transposed: encoder.1 has weights of shape 6x16"):
        simulation("fedexlora", strategy=strategy).initial()


# --- ranks that differ from client to client --------------------------------------------------------------------------


def ranked(ranks):
    return option("strategy/client", "lora_ranks", ranks=ranks)


def mixed(simulation, server, ranks=(1, 2), executor="in_process", **changes):
    strategy = build_experiment(compose([f"strategy={server}"])).strategy
    return simulation(server, executor, strategy=replace(strategy, client=ranked(ranks)), **changes)


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
@pytest.mark.parametrize(
    "local",
    [
        {"momentum": 0.9, "weight_decay": 0.1},
        {"optimizer": "nesterov", "momentum": 0.5},
        {"optimizer": "adam"},
        {"optimizer": "adamw", "weight_decay": 0.1, "max_gradient_norm": 0.5},
    ],
)
def test_what_lies_beyond_a_clients_rank_stays_zero(simulation, executor, local):
    """All clients have rank 1 of 2, so the mean is zero there, too; the first model has a random A."""
    run = mixed(simulation, "fedit", (1,), executor, local={"lr": 0.1, "momentum": 0.0, "epochs": 2, **local})
    initial, after = run.initial().server.model, advanced(run).server.model
    for adapter in adapters_of(run.network.layout):
        a, b = adapter.a.view(after), adapter.b.view(after)
        assert adapter.a.view(initial).all() and a[0].all() and b[:, 0].all()
        assert not a[1].any() and not b[:, 1].any()


def test_a_client_of_lower_rank_is_one_of_a_smaller_model(simulation):
    """Rank 1 and alpha 2 in place of rank 2 and alpha 4, from the same first row of A."""

    def small(spec):
        wide, narrow = layered(spec), layered(spec)
        for k in (1, 3):
            a = wide[0][k].lora_A["default"].weight.data[:1]
            narrow[0][k].lora_A["default"].weight = torch.nn.Parameter(a.clone())
            rows = narrow[0][k].lora_B["default"].weight.data[:, :1]
            narrow[0][k].lora_B["default"].weight = torch.nn.Parameter(rows.clone())
        return narrow

    states = []
    for run in (mixed(simulation, "fedit", (1,)), simulation("fedit", network=small)):
        states.append(logits(run, advanced(run, 2)))
    torch.testing.assert_close(*states)


def test_stacks_of_different_ranks(simulation):
    """Client k has rank 1 + k modulo 2: stacks have Σ r_k rows, and rank 1 sends and receives (A + B) / 2 less."""
    run = mixed(simulation, "flora")
    states = [run.initial()]
    for _ in range(4):
        states.append(run.advance(states[-1])[0])
    cohorts = [run.uploads(state).clients.tolist() for state in states[:-1]]
    for before, after, last, cohort in zip(states[1:], states[2:], cohorts, cohorts[1:], strict=False):
        rows = sum(1 + client % 2 for client in last)
        change = min(22 * rows, 6 * 16) + min(12 * rows, 6 * 6)
        numbers = sum((A + B) // (2 - client % 2) + HEAD + (change if client in last else R) for client in cohort)
        assert after.totals.params_down - before.totals.params_down == numbers
    assert {sum(1 + client % 2 for client in cohort) for cohort in cohorts[:-1]} - {4}


def test_numbers_of_different_ranks(simulation):
    """Of all N clients every other one, from client 0 on, has rank 1 of 2: it sends (A + B) / 2 less."""
    run = mixed(simulation, "fedit", clients_per_round=1.0)
    before, after = run.initial().totals, advanced(run).totals
    clients = len(SIZES)
    numbers = clients * (A + B + HEAD) - (clients + 1) // 2 * (A + B) // 2
    assert (after.params_up, after.params_down - before.params_down) == (numbers, numbers)
    assert (after.bytes_up, after.bytes_down - before.bytes_down) == (4 * numbers, 4 * numbers)


def test_idle_clients_of_lower_rank_receive_less(simulation):
    """With FedUmf all clients download what they have of the model, also those that are not selected."""
    run = mixed(simulation, "fedumf", clients_per_round=2)
    before, after = run.initial().totals, advanced(run).totals
    clients = len(SIZES)
    numbers = clients * (A + B + HEAD) - (clients + 1) // 2 * (A + B) // 2
    assert after.params_down - before.params_down == numbers
    assert after.bytes_down - before.bytes_down == 4 * numbers


class OwnAdapter(torch.nn.Linear):
    """A user's layer with a low-rank product, whose matrices have the names of peft's."""

    def __init__(self) -> None:
        super().__init__(4, 3)
        self.lora_A = torch.nn.Parameter(torch.rand(2, 4))
        self.lora_B = torch.nn.Parameter(torch.zeros(3, 2))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input) + input @ self.lora_A.T @ self.lora_B.T


@pytest.mark.parametrize("name", ["fedit", "flora", "fedexlora"])
def test_adapters_that_are_not_pefts(name):
    server, network = option("strategy/server", name), encoder_and_head(OwnAdapter(), torch.nn.Identity())
    server.prepare(network)
    flat = FlatNetwork(network)
    with pytest.raises(InputError, match=rf"^strategy/server={name}: the model has no low-rank adapters; allowed: "):
        server.init(flat.vector, flat.layout, 2)


@pytest.mark.parametrize(
    ("server", "ranks", "message"),
    [
        ("flora", (1, 3), r"^strategy.client.ranks: 3 is above model.lora.rank=2; allowed: 1 to 2$"),
        ("ffalora", (1, 2), r"^strategy/client=lora_ranks: A is frozen .*; allowed: a server strategy that trains it"),
    ],
)
def test_ranks_that_are_refused(simulation, server, ranks, message):
    with pytest.raises(InputError, match=message):
        mixed(simulation, server, ranks)


def test_clients_that_need_both_matrices_of_a_server_that_freezes_one(simulation):
    pair = Strategy(client=option("strategy/client", "fedsalora"), server=option("strategy/server", "ffalora"))
    with pytest.raises(InputError, match=r"^strategy/client=fedsalora: A is frozen and common .*=ffalora\); allowed: "):
        simulation("ffalora", strategy=pair)


@pytest.mark.parametrize("name", ["flora", "fedexlora"])
@pytest.mark.parametrize("refined", [False, True])
def test_servers_of_products_whose_clients_keep_a_factor(simulation, name, refined):
    """The server would get its own B = 0 back."""
    base = option("strategy/server", name)
    client = option("strategy/client", "fedsalora", head="average")
    pair = Strategy(client=client, server=fedaws(base) if refined else base)
    with pytest.raises(InputError, match=r"^strategy/client=fedsalora keeps matrices of .*; choose another server st"):
        simulation(name, strategy=pair)


@pytest.mark.parametrize("server", ["flora", "fedexlora"])
@pytest.mark.parametrize(
    ("client", "rejected"),
    [
        ("fedlesam", True),
        ("ditto", True),
        ("apfl", True),
        ("sgd_lasting_momentum", True),
        ("moon", False),
        ("pfedme", False),
        ("fedala", False),
    ],
)
def test_adapters_of_earlier_rounds(simulation, server, client, rejected):
    """MOON and pFedMe keep models with their residuals; of the layered network FedALA adapts the head alone."""
    chosen = build_experiment(compose([f"strategy/client={client}", f"strategy/server={server}"])).strategy
    if not rejected:
        advanced(simulation(server, strategy=chosen), 2)
        return
    message = rf"^strategy/client={client} combines adapters of .*, and strategy/server={server} .*; choose another ser"
    with pytest.raises(InputError, match=message):
        simulation(server, strategy=chosen)
    averaged = build_experiment(compose(["strategy=fedit"])).strategy.server
    simulation(server, strategy=replace(chosen, server=averaged))


@pytest.mark.parametrize("server", ["flora", "fedexlora"])
def test_models_of_earlier_rounds(simulation, server):
    """FLoRA's A begins anew in every round, so that distances and means of models of several rounds say nothing."""
    changing, averaging = (option("strategy/server", name) for name in (server, "fedit"))
    clusters = option("strategy", "fesem")
    means = replace(build_experiment(compose()).evaluation, client_means=True)
    for settings, named in (
        ({"strategy": clusters}, "strategy/clustering=fesem"),
        ({"strategy": Strategy(client=SGD, server=averaging), "evaluation": means}, "evaluation.client_means=true"),
    ):
        rejected = {**settings, "strategy": replace(settings["strategy"], server=changing)}
        with pytest.raises(
            InputError, match=rf"^{named} uses .* rounds, and strategy/server={server} .*such as fedit$"
        ):
            simulation(server, **rejected)
        allowed = {**settings, "strategy": replace(settings["strategy"], server=averaging)}
        simulation("fedit", **allowed)


def test_fedala_that_adapts_adapters(simulation):
    """Head and bias are the last two tensors, the third is the upper layer's B."""
    settings = ["strategy=fedala", "strategy/server=flora", "strategy.client.tensors=3"]
    with pytest.raises(InputError, match=r"^strategy/client=fedala combines adapters of earlier rounds"):
        simulation("flora", strategy=build_experiment(compose(settings)).strategy)


@pytest.mark.parametrize("ranks", [(), (0, 1)])
def test_ranks_below_one(ranks):
    with pytest.raises(InputError, match=r"ranks"):
        ranked(ranks)
