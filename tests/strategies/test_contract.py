"""Mistakes in strategies of a user's own: one line that names the method, what it returned and what is allowed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.config.config_class import config_class
from fedrun.execution.executor_choice import EXECUTORS
from fedrun.experiment.experiment import Experiment, build_experiment
from fedrun.models.flat_network import Layout
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.client import Gradient, LinearCorrection
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.fedavg import FedAvg
from fedrun.strategies.server import ServerState
from fedrun.strategies.sgd import SGD
from fedrun.strategies.vectors import MODEL, Vectors
from fedrun.system.errors import InputError, RunError

from ..helpers.small_networks import advanced, convolution, mlp

P = 64 * 10 + 10
"""The parameters of softmax regression on digits."""


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    overrides = ["model=logistic", "partition.clients=4", "local.epochs=1", "hardware.threads=1"]
    return build_experiment(compose(overrides))


def with_part(experiment: Experiment, side: str, method: str, hook: Callable[..., Any]) -> Simulation:
    """The experiment with a strategy that replaces one method."""
    base, settings = (FedAvg, {"weighting": "samples"}) if side == "server" else (SGD, {})
    part = config_class(type("Mine", (base,), {method: hook, "__module__": "mine"}))(**settings)
    return Simulation(replace(experiment, strategy=replace(experiment.strategy, **{side: part})))


def with_client(experiment: Experiment, module: str = "mine", **members: object) -> Simulation:
    """The experiment with a client strategy that has these members."""
    mine = config_class(type("Mine", (SGD,), {**members, "__module__": module}))()
    return Simulation(replace(experiment, strategy=replace(experiment.strategy, client=mine)))


def mean_of(update: Any) -> torch.Tensor:
    return update.mean[MODEL]


def losses_of(outputs: Any, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs.logits, targets, reduction="none")


def with_slot(state: ServerState, value: Any) -> ServerState:
    return ServerState(state.model, {"steps": value})


def adding_a_slot(state: ServerState) -> ServerState:
    """The same state, changed in place."""
    cast("dict[str, torch.Tensor]", state.slots)["steps"] = torch.ones(1)
    return state


SERVER = {
    "short": ("aggregate", lambda s, state, update, r: (ServerState(mean_of(update)[:9]), {}), "float32 [9]"),
    "alone": ("aggregate", lambda s, state, update, r: ServerState(mean_of(update)), "ServerState"),
    "nothing": ("aggregate", lambda s, state, update, r: None, "NoneType"),
    "doubles": ("aggregate", lambda s, state, update, r: (ServerState(mean_of(update).double()), {}), f"float64 [{P}]"),
    "metric": ("aggregate", lambda s, state, update, r: (state, {"n": torch.ones(3)}), "float32 [3]"),
    "slot": ("aggregate", lambda s, state, update, r: (with_slot(state, torch.ones(1)), {}), "the slots steps"),
    "added": ("aggregate", lambda s, state, update, r: (adding_a_slot(state), {}), "the slots steps"),
    "number": ("aggregate", lambda s, state, update, r: (with_slot(state, 0.5), {}), "slot 'steps' of type float"),
    "weights": ("weights", lambda s, state, senders: torch.ones(1, dtype=torch.float64), "float64 [1]"),
    "negative": ("weights", lambda s, state, senders: -senders.samples.double(), "the weight -"),
    "list of steps": ("steps", lambda s, state, cohort, usual, r: usual.tolist(), "list"),
    "no steps": ("steps", lambda s, state, cohort, usual, r: 0 * usual, "the number 0"),
    "unsent": ("unsent", lambda s, state, clients: torch.zeros(1), "float32 [1]"),
    "unknown": ("weights", lambda s, state, senders: senders.samples * torch.nan, "the weight nan"),
    "trained": (
        "aggregate",
        lambda s, state, update, r: (ServerState(mean_of(update).requires_grad_()), {}),
        "a model that requires a gradient",
    ),
}
INITIAL = {
    "init": ("init", lambda s, model, layout, clients: model, f"float32 [{P}]"),
    "slot of the model's name": (
        "init",
        lambda s, model, layout, clients: ServerState(model, {"model": model.clone()}),
        "a slot 'model'",
    ),
    "slot": ("init", lambda s, model, layout, clients: with_slot(ServerState(model), []), "slot 'steps' of type list"),
    "trained": (
        "init",
        lambda s, model, layout, clients: with_slot(ServerState(model), torch.ones(1, requires_grad=True)),
        "a slot 'steps' that requires a gradient",
    ),
    "broadcast": ("broadcast", lambda s, state: {"modle": state.model}, "the vectors modle"),
}
CLIENT = {
    "mean": ("loss", lambda s, outputs, y, c: F.cross_entropy(outputs.logits, y), "float32 []"),
    "no loss": ("loss", lambda s, outputs, y, c: None, "NoneType"),
    "model": ("finish", lambda s, model, r, state, c, client: model, None),
    "part": ("finish", lambda s, model, r, state, c, client: ({MODEL: model[..., :9]}, {}), None),
    "double": ("finish", lambda s, model, r, state, c, client: ({MODEL: model.double()}, {}), "float64 ["),
    "other": ("finish", lambda s, model, r, state, c, client: ({"modle": model}, {}), "the uploads modle"),
    "detached": ("loss", lambda s, outputs, y, c: losses_of(outputs, y).detach(), "losses without a gradient"),
    "no constants": ("constants", lambda s, received, state, client: None, "NoneType"),
    "constant": ("constants", lambda s, received, state, client: {"mu": 0.1}, "'mu' of type float"),
    "number": ("constants", lambda s, received, state, client: {"mu": torch.tensor(0.1)}, "float32 []"),
    "matrix": ("constants", lambda s, received, state, client: {"means": torch.ones(7, 2)}, "float32 [7, 2]"),
    "shift": ("linear_correction", lambda s, c: torch.ones(P), f"float32 [{P}]"),
    "length": ("linear_correction", lambda s, c: LinearCorrection(torch.ones(5)), "float32 [5]"),
    "strength": ("linear_correction", lambda s, c: LinearCorrection(torch.ones(P), cast("Any", 0.1)), "float"),
    "strengths": ("linear_correction", lambda s, c: LinearCorrection(torch.ones(P), torch.ones(P)), f"float32 [{P}]"),
    "direction": ("direction", lambda s, gradient, model, c: gradient(model, 0)[..., :5], None),
    "same model": ("direction", lambda s, gradient, model, c: model, "the model itself"),
    "no direction": ("direction", lambda s, gradient, model, c: None, "NoneType"),
    "double start": ("start", lambda s, received, state, c, client: received[MODEL].double(), f"float64 [{P}]"),
    "start": ("start", lambda s, received, state, c, client: received[MODEL][:5], "float32 [5]"),
}


@pytest.mark.parametrize("name", SERVER)
def test_servers(experiment: Experiment, name: str) -> None:
    method, hook, returned = SERVER[name]
    simulation = with_part(experiment, "server", method, hook)
    with pytest.raises(InputError) as refusal:
        simulation.advance(simulation.initial())
    message = str(refusal.value)
    assert message.startswith(f"mine.Mine.{method}: returned {returned}") and "; allowed: " in message


@pytest.mark.parametrize(
    ("weights", "returned"),
    [(torch.ones(2), "float32 [2]"), (1.0, "float"), (torch.tensor([-0.5]), "the weight -0.5")],
)
def test_weights_by_single_numbers(experiment: Experiment, weights: object, returned: str) -> None:
    """A client's weight is computed when its numbers arrive, before those of others."""

    class Reporting(SGD):
        sends = frozenset({MODEL, "loss"})

        def finish(
            self, model: torch.Tensor, received: Vectors, client_state: Vectors, constants: Vectors, client: ClientInfo
        ) -> tuple[Vectors, Vectors]:
            return {MODEL: model, "loss": torch.ones_like(client.samples)}, {}

    strategy = replace(experiment.strategy, client=config_class(Reporting)())
    simulation = with_part(replace(experiment, strategy=strategy), "server", "weights", lambda *_: weights)
    with pytest.raises(InputError) as refusal:
        simulation.advance(simulation.initial())
    assert str(refusal.value).startswith(f"mine.Mine.weights: returned {returned}; allowed: ")


@pytest.mark.parametrize("name", INITIAL)
def test_first_states(experiment: Experiment, name: str) -> None:
    method, hook, returned = INITIAL[name]
    with pytest.raises(InputError) as refusal:
        with_part(experiment, "server", method, hook).initial()
    assert str(refusal.value).startswith(f"mine.Mine.{method}: returned {returned}; allowed: ")


@pytest.mark.parametrize(("lengths", "returned"), [({"steps": 2.5}, "2.5 as length of 'steps'"), (["steps"], "list")])
def test_client_states(experiment: Experiment, lengths: object, returned: str) -> None:
    with pytest.raises(InputError) as refusal:
        with_part(experiment, "client", "client_state", lambda s, layout: lengths).initial()
    assert str(refusal.value).startswith(f"mine.Mine.client_state: returned {returned}; allowed: ")


@pytest.mark.parametrize(
    ("absent", "returned"),
    [(lambda clients: 3, "int"), (lambda clients: torch.full_like(clients, -1), "the number -1")],
)
def test_absent_parameters(experiment: Experiment, absent: Callable[[torch.Tensor], object], returned: str) -> None:
    with pytest.raises(InputError) as refusal:
        with_part(experiment, "client", "absent", lambda s, layout, clients: absent(clients))
    assert str(refusal.value).startswith(f"mine.Mine.absent: returned {returned}; allowed: ")


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", CLIENT)
def test_clients(experiment: Experiment, name: str, executor: str) -> None:
    method, hook, returned = CLIENT[name]
    hardware = option("hardware", "cpu", executor=executor, threads=1)
    simulation = with_part(replace(experiment, hardware=hardware), "client", method, hook)
    with pytest.raises(InputError) as refusal:
        simulation.advance(simulation.initial())
    message = str(refusal.value)
    assert message.startswith(f"mine.Mine.{method}: returned {returned or 'float32 ['}") and "; allowed: " in message


@pytest.mark.parametrize(("rows", "returned"), [((), f"{P}"), ((1,), f"1, {P}")])
def test_one_upload_for_several_clients(experiment: Experiment, rows: tuple[int, ...], returned: str) -> None:
    """The vectorised executor stacks clients; a part of the broadcast has no row for each of them."""

    def hook(s: SGD, model: torch.Tensor, received: Vectors, *rest: object) -> object:
        return {MODEL: received[MODEL].expand(*rows, P)}, {}

    hardware = option("hardware", "cpu", executor="vectorized", threads=1)
    simulation = with_part(replace(experiment, hardware=hardware), "client", "finish", hook)
    with pytest.raises(InputError, match=rf"returned float32 \[{returned}\]; allowed: 'model' of \[2, {P}\]"):
        simulation.advance(simulation.initial())


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_direction_that_is_a_constant(experiment: Experiment, executor: str) -> None:
    """A momentum of one's own, which weight decay and gradient clipping would change with every step."""

    def constants(s: SGD, received: Vectors, state: Vectors, client: ClientInfo) -> Vectors:
        return {"momentum": torch.zeros(*client.clients.shape, client.trainable)}

    def direction(s: SGD, gradient: Gradient, model: torch.Tensor, constants: Vectors) -> torch.Tensor:
        return constants["momentum"].mul_(0.9).add_(gradient(model, 0))[...]

    hardware = option("hardware", "cpu", executor=executor, threads=1)
    simulation = with_client(replace(experiment, hardware=hardware), constants=constants, direction=direction)
    with pytest.raises(InputError, match=r"^mine.Mine.direction: returned the constant 'momentum' itself; allowed: a"):
        simulation.advance(simulation.initial())


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("shared", [True, False])
def test_a_constant_of_all_clients_that_a_step_changes(experiment: Experiment, executor: str, shared: bool) -> None:
    """A sum of squared gradients that begins at a vector which all clients have received."""

    def constants(s: SGD, received: Vectors, state: Vectors, client: ClientInfo) -> Vectors:
        begin = received[MODEL][..., : client.trainable]
        return {"sum": begin.clone() if shared else begin.expand(*client.clients.shape, -1).clone()}

    def direction(s: SGD, gradient: Gradient, model: torch.Tensor, constants: Vectors) -> torch.Tensor:
        constants["sum"].addcmul_(step := gradient(model, 0), step)
        return step

    hardware = option("hardware", "cpu", executor=executor, threads=1)
    simulation = with_client(replace(experiment, hardware=hardware), constants=constants, direction=direction)
    if executor == "in_process" or not shared:
        assert simulation.advance(simulation.initial())[0].round == 1
        return
    line = rf"^mine.Mine.direction: changes the constant 'sum' \[{P}\], which all clients of a group share; allowed: "
    with pytest.raises(InputError, match=rf"{line}a constant of each client, .*expand\(\*client.clients.shape, -1\)"):
        simulation.advance(simulation.initial())


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(
    ("hook", "problem"),
    [
        (lambda s, gradient, model, c: gradient(model, 1), r"of batch 1; allowed with passes=\(1,\): 0$"),
        (
            lambda s, gradient, model, c: gradient(model + gradient(model, 0), 0),
            r"of batch 0 more often in a step than passes=\(1,\) says; allowed: as often, ",
        ),
    ],
    ids=["another batch", "more often"],
)
def test_gradients_that_a_step_does_not_have(experiment: Experiment, executor: str, hook: Any, problem: str) -> None:
    """The time that a deadline predicts would be too short."""
    hardware = option("hardware", "cpu", executor=executor, threads=1)
    simulation = with_part(replace(experiment, hardware=hardware), "client", "direction", hook)
    with pytest.raises(InputError, match=rf"^mine.Mine.direction: asks for the gradient {problem}"):
        simulation.advance(simulation.initial())


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_a_direction_that_changes_the_model(experiment: Experiment, executor: str, first: bool) -> None:
    """The executors move the model themselves to compute a gradient elsewhere, which is no such change."""
    hardware = option("hardware", "cpu", executor=executor, threads=1)

    def hook(s: SGD, gradient: Gradient, model: torch.Tensor, constants: Vectors) -> torch.Tensor:
        if first:
            model += 1.0
        found = gradient(model + 1.0, 0)
        return found if first else found + model.mul_(2)

    simulation = with_part(replace(experiment, hardware=hardware), "client", "direction", hook)
    with pytest.raises(InputError, match=r"^mine.Mine.direction: has changed the model in place; allowed: new tensors"):
        simulation.advance(simulation.initial())


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("value", [0.5, torch.tensor(0.5)])
def test_an_upload_that_is_no_vector(experiment: Experiment, executor: str, value: object) -> None:
    def finish(s: SGD, model: torch.Tensor, *rest: object) -> object:
        return {MODEL: model, "drift": value}, {}

    hardware = option("hardware", "cpu", executor=executor, threads=1)
    sends = frozenset({MODEL, "drift"})
    simulation = with_client(replace(experiment, hardware=hardware), finish=finish, sends=sends)
    with pytest.raises(InputError, match=r"^mine.Mine.finish: returned float.*; allowed: 'drift' of \[(2, )?m\]$"):
        simulation.advance(simulation.initial())


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.float64])
def test_a_state_that_is_not_kept_exactly(experiment: Experiment, executor: str, dtype: torch.dtype) -> None:
    """2²⁴ + 1 is no float32."""

    def finish(s: SGD, model: torch.Tensor, *rest: object) -> object:
        return {MODEL: model}, {"samples": torch.full((*model.shape[:-1], 2), 2**24 + 1, dtype=dtype)}

    hardware = option("hardware", "cpu", executor=executor, threads=1)
    simulation = with_client(
        replace(experiment, hardware=hardware), finish=finish, client_state=lambda s, layout: {"samples": 2}
    )
    with pytest.raises(
        InputError, match=r"^mine.Mine.finish: returned (int|float)64 .*; allowed: 'samples' in float32$"
    ):
        simulation.advance(simulation.initial())


@pytest.mark.parametrize("executor", EXECUTORS)
def test_an_upload_of_whole_numbers(experiment: Experiment, executor: str) -> None:
    """The server takes means of uploads."""

    def finish(s: SGD, model: torch.Tensor, *rest: object) -> object:
        return {MODEL: model, "samples": torch.full((*model.shape[:-1], 2), 7)}, {}

    hardware = option("hardware", "cpu", executor=executor, threads=1)
    sends = frozenset({MODEL, "samples"})
    simulation = with_client(replace(experiment, hardware=hardware), finish=finish, sends=sends)
    with pytest.raises(InputError, match=r"^mine.Mine.finish: returned int64 .*; allowed: 'samples' in float32$"):
        simulation.advance(simulation.initial())


def centred(s: SGD, outputs: Any, y: torch.Tensor, constants: Vectors) -> torch.Tensor:
    """A loss of each sample that depends on the whole batch."""
    losses = losses_of(outputs, y)
    return losses - 0.5 * losses.mean()


def decorrelated(s: SGD, outputs: Any, y: torch.Tensor, constants: Vectors) -> torch.Tensor:
    """A loss that depends on the whole batch, by less than rounding at the initial model."""
    logits = outputs.logits - outputs.logits.mean(0)
    return losses_of(outputs, y) + 0.01 * (logits.T @ logits / len(y)).square().mean()


@pytest.mark.parametrize("loss", [centred, decorrelated])
@pytest.mark.parametrize("network", [mlp, convolution])
def test_a_loss_that_couples_the_samples_of_a_batch(
    make_experiment: Callable[..., Experiment], network: Any, loss: Any
) -> None:
    """Its clients have 4 to 24 samples: batches of 5 leave short ones, which only the vectorised executor fills up."""

    def simulation(executor: str) -> Simulation:
        experiment = make_experiment(network=network, local={"batch_size": 5})
        hardware = option("hardware", "cpu", executor=executor, threads=1)
        return with_part(replace(experiment, hardware=hardware), "client", "loss", loss)

    in_process = simulation("in_process")
    in_process.advance(in_process.initial())
    vectorized = simulation("vectorized")
    with pytest.raises(InputError, match=r"^mine.Mine.loss: the loss of a sample depends on the other samples of its "):
        vectorized.advance(vectorized.initial())


def branching(s: SGD, outputs: Any, y: torch.Tensor, constants: Vectors) -> torch.Tensor:
    losses = losses_of(outputs, y)
    return losses / 2 if losses.mean() > 1 else losses


def with_item(s: SGD, outputs: Any, y: torch.Tensor, constants: Vectors) -> torch.Tensor:
    return losses_of(outputs, y) / (1 + y.sum().item())


def with_array(s: SGD, outputs: Any, y: torch.Tensor, constants: Vectors) -> torch.Tensor:
    return losses_of(outputs, y) * torch.from_numpy(1 + y.numpy())


@pytest.mark.parametrize(
    ("loss", "problem"),
    [
        (branching, ".* data-dependent control flow.*"),
        (with_item, r".*\.item\(\) on a Tensor.*"),
        (with_array, "Cannot .*"),
    ],
)
@pytest.mark.parametrize("network", [mlp, convolution])
def test_a_loss_that_depends_on_values_in_python(
    make_experiment: Callable[..., Experiment], network: Any, loss: Any, problem: str
) -> None:
    """Clients train with it in process; many at once are computed by ``torch.vmap``, for which there are no values."""

    def simulation(executor: str) -> Simulation:
        hardware = option("hardware", "cpu", executor=executor, threads=1)
        return with_part(replace(make_experiment(network=network), hardware=hardware), "client", "loss", loss)

    in_process = simulation("in_process")
    in_process.advance(in_process.initial())
    vectorized = simulation("vectorized")
    with pytest.raises(
        InputError, match=rf"^mine.Mine.loss: torch.vmap cannot compute it \({problem}\); allowed: hard"
    ):
        vectorized.advance(vectorized.initial())


def test_a_loss_that_depends_on_values_of_single_samples(experiment: Experiment) -> None:
    private = replace(experiment, privacy=option("privacy", "sample_level", noise_multiplier=1.0))
    simulation = with_part(private, "client", "loss", branching)
    with pytest.raises(
        InputError, match=r"^mine.Mine.loss: torch.vmap cannot compute it .*; allowed: a loss of tensor"
    ):
        simulation.advance(simulation.initial())


def test_an_error_of_a_loss_that_is_mapped(experiment: Experiment) -> None:
    """It keeps its traceback."""
    hardware = option("hardware", "cpu", executor="vectorized", threads=1)
    simulation = with_part(
        replace(experiment, hardware=hardware), "client", "loss", lambda s, outputs, y, c: losses_of(outputs, y[:1])
    )
    with pytest.raises(ValueError, match="Expected input batch_size"):
        simulation.advance(simulation.initial())


def test_a_loss_that_couples_samples_whose_gradients_are_computed_alone(experiment: Experiment) -> None:
    private = replace(experiment, privacy=option("privacy", "sample_level", noise_multiplier=1.0))
    simulation = with_part(private, "client", "loss", centred)
    with pytest.raises(InputError, match=r"^mine.Mine.loss: the loss .*, and privacy=sample_level computes the grad"):
        simulation.advance(simulation.initial())


@pytest.mark.parametrize("network", [mlp, convolution])
def test_losses_of_clients_that_diverge_are_no_mistake(
    make_experiment: Callable[..., Experiment], network: Any
) -> None:
    """Their losses are NaN, with and without the samples that fill up a batch."""
    hardware = option("hardware", "cpu", executor="vectorized", threads=1)
    local = {"batch_size": 5, "epochs": 4, "lr": 1e30}
    experiment = replace(make_experiment(network=network, local=local), hardware=hardware)
    simulation = with_part(experiment, "client", "loss", lambda s, outputs, y, c: losses_of(outputs, y))
    with pytest.raises(RunError, match="no client's upload was finite .* local training diverged"):
        simulation.advance(simulation.initial())


def test_a_loss_without_a_gradient_of_convolutions(make_experiment: Callable[..., Experiment]) -> None:
    """Whose clients are vectorised by ``torch.func``."""
    hardware = option("hardware", "cpu", executor="vectorized", threads=1)
    experiment = replace(make_experiment(network=convolution), hardware=hardware)
    simulation = with_part(experiment, "client", "loss", CLIENT["detached"][1])
    with pytest.raises(InputError, match=r"^mine.Mine.loss: returned losses without a gradient; allowed: "):
        simulation.advance(simulation.initial())


def test_a_loss_without_a_gradient_of_single_samples(experiment: Experiment) -> None:
    """DP-SGD would train on the noise alone."""
    private = replace(experiment, privacy=option("privacy", "sample_level", noise_multiplier=1.0))
    simulation = with_part(private, "client", "loss", CLIENT["detached"][1])
    with pytest.raises(InputError, match=r"^mine.Mine.loss: returned losses without a gradient; allowed: "):
        simulation.advance(simulation.initial())


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_client_that_changes_the_broadcast(experiment: Experiment, executor: str) -> None:
    hardware = option("hardware", "cpu", executor=executor, threads=1)
    changed = replace(experiment, hardware=hardware)
    simulation = with_part(changed, "client", "start", lambda s, received, state, c, client: received[MODEL].add_(1))
    with pytest.raises(InputError, match=r"^mine.Mine: a method has changed 'model' of the broadcast in place"):
        simulation.advance(simulation.initial())


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_client_that_changes_its_state_in_place(experiment: Experiment, executor: str) -> None:
    """A round is a pure function of the state before it: from one state it gives the same result twice."""

    class Counting(SGD):
        def client_state(self, layout: Layout) -> dict[str, int]:
            return {"rounds": 1}

        def finish(
            self, model: torch.Tensor, received: Vectors, client_state: Vectors, constants: Vectors, client: ClientInfo
        ) -> tuple[Vectors, Vectors]:
            client_state["rounds"] += 1
            return {MODEL: model}, {"rounds": client_state["rounds"]}

    hardware = option("hardware", "cpu", executor=executor, threads=1)
    strategy = replace(experiment.strategy, client=config_class(Counting)())
    simulation = Simulation(replace(experiment, hardware=hardware, strategy=strategy, clients_per_round=1.0))
    first, _ = simulation.advance(simulation.initial())
    for _ in range(2):
        second, _ = simulation.advance(first)
        assert [float(second.client_states.held[client]["rounds"]) for client in range(4)] == [2.0] * 4


def test_a_server_that_changes_its_state_in_place(experiment: Experiment) -> None:
    """Asynchronous clients still train from it."""

    def aggregate(s: FedAvg, state: ServerState, update: Any, round: object) -> object:
        state.model.lerp_(mean_of(update), 0.5)
        return state, {}

    simulation = with_part(experiment, "server", "aggregate", aggregate)
    with pytest.raises(InputError, match=r"^mine.Mine.aggregate: has changed 'model' of the state in place; allowed: "):
        simulation.advance(simulation.initial())


OWN_MODELS: dict[str, tuple[Callable[[Vectors], object], str]] = {
    "in place": (lambda received: received[MODEL].mul_(0.5), "Mine: a method has changed 'model' of the broadcast in"),
    "short": (lambda received: received[MODEL][:9], "Mine.own_model: returned float32 [9]; allowed: "),
    "double": (lambda received: received[MODEL].double(), f"Mine.own_model: returned float64 [{P}]; allowed: "),
    "nothing": (lambda received: None, "Mine.own_model: returned NoneType; allowed: "),
}


@pytest.mark.parametrize("name", OWN_MODELS)
def test_own_models(experiment: Experiment, name: str) -> None:
    """Evaluated by them, a client would change the global model of the next rounds."""
    own, message = OWN_MODELS[name]
    hook = {"own_model": lambda s, received, state, client: own(received)}
    simulation = with_client(experiment, **hook, evaluates_newcomers=True)
    with pytest.raises(InputError) as refusal:
        simulation.test(simulation.initial())
    assert str(refusal.value).startswith(f"mine.{message}")


MASKS: dict[str, tuple[str, Callable[[Layout], object]]] = {
    "positions": ("private", lambda layout: torch.arange(5)),
    "integers": ("private", lambda layout: torch.ones(layout.size, dtype=torch.int64)),
    "slice": ("private", lambda layout: layout.head),
    "short": ("private", lambda layout: torch.ones(5, dtype=torch.bool)),
    "array": ("frozen", lambda layout: np.zeros(layout.trainable, dtype=bool)),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks(experiment: Experiment, name: str) -> None:
    method, mask = MASKS[name]
    with pytest.raises(InputError, match=rf"^mine.Mine.{method}: returned .*; allowed: a mask, bool \[{P}\], or None$"):
        with_part(experiment, "client", method, lambda s, layout, epoch=0: mask(layout))


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
def test_a_mask_of_a_later_epoch(experiment: Experiment, executor: str) -> None:
    """With ``local.steps`` the epochs are as many as a client's samples require. A mask of one entry would fit."""
    local = replace(experiment.local, epochs=None, steps=500)
    hardware = replace(experiment.hardware, executor=executor)
    changed = replace(experiment, local=local, hardware=hardware)
    short = torch.ones(1, dtype=torch.bool)
    simulation = with_part(changed, "client", "frozen", lambda s, layout, epoch: short if epoch == 2 else None)
    refused = rf"^mine.Mine.frozen: returned .*; allowed: a mask, bool \[{P}\], or None$"
    with pytest.raises(InputError, match=refused):
        simulation.advance(simulation.initial())


def test_a_reference_model_that_is_no_constant(experiment: Experiment) -> None:
    simulation = with_client(experiment, reference_models=("old",))
    with pytest.raises(
        InputError, match=r"^mine.Mine.constants: returned the constants none; allowed: .*, with old of r"
    ):
        simulation.advance(simulation.initial())


def test_a_reference_model_without_its_buffers_is_rejected(experiment: Experiment) -> None:
    """The missing ones would be those of the model in training."""

    def constants(s: SGD, received: Vectors, *rest: object) -> Vectors:
        return {"old": received[MODEL][..., : P - 1]}

    simulation = with_client(experiment, reference_models=("old",), constants=constants)
    allowed = rf"'old' of reference_models as a model, \[..., {P}\]"
    with pytest.raises(InputError, match=rf"^mine.Mine.constants: returned float32 \[{P - 1}\]; allowed: {allowed}$"):
        simulation.advance(simulation.initial())


DECLARED: dict[str, tuple[str, str, object, str]] = {
    "text": ("client", "needs", "model", "'model': allowed: a set of names"),
    "list": ("client", "sends", ["model"], r"\['model'\]: allowed: a set of names"),
    "unknown": (
        "client",
        "wants",
        frozenset({"initial_los"}),
        ".*initial_los.*: allowed: a set of some of label_",
    ),
    "no pass": ("client", "passes", (), r"\(\): allowed: a tuple of numbers, such as "),
    "number": ("client", "passes", 2, r"2: allowed: a tuple of numbers, such as \(1, 1\)"),
    "name": ("client", "reference_models", "old", "'old': allowed: a tuple of names"),
    "sent": ("server", "sends", "model", "'model': allowed: a set of names"),
    "head": ("server", "wants", "head", "'head': allowed: a set of some of label_counts, head, squared_norms"),
    "rows": ("server", "rows", "parameter", "'parameter': allowed: none, head, parameters, all"),
}


@pytest.mark.parametrize("name", DECLARED)
def test_declared_attributes(experiment: Experiment, name: str) -> None:
    side, attribute, value, message = DECLARED[name]
    base, settings = (FedAvg, {"weighting": "samples"}) if side == "server" else (SGD, {})
    part = config_class(type("Mine", (base,), {attribute: value, "__module__": "mine"}))(**settings)
    with pytest.raises(InputError, match=rf"^mine.Mine.{attribute}={message}"):
        replace(experiment.strategy, **{side: part}).check()


def times(vectors: torch.Tensor, scale: float = 1.5) -> torch.Tensor:
    """Vectors divided by the norm of all of them together."""
    return scale * vectors / vectors.norm()


def perturbed(gradient: Gradient, model: torch.Tensor) -> torch.Tensor:
    """The gradient at a distance from all models that is one for all of them together."""
    return gradient(model + times(gradient(model, 0), 0.1), 0)


MIXING: list[tuple[str, dict[str, Any]]] = [
    (
        "constants",
        {
            "client_state": lambda s, layout: {"numbers": 1},
            "constants": lambda s, received, state, client: {"mean": state["numbers"].mean(0)},
            "finish": lambda s, model, r, state, c, client: ({MODEL: model}, {"numbers": client.samples}),
        },
    ),
    ("start", {"start": lambda s, received, state, c, client: times(received[MODEL] * client.samples)}),
    (
        "linear_correction",
        {
            "constants": lambda s, received, state, client: {"samples": client.samples},
            "linear_correction": lambda s, c: LinearCorrection(times(c["samples"]) * torch.ones(P), c["samples"] / 1e3),
        },
    ),
    ("direction", {"direction": lambda s, gradient, model, c: times(gradient(model, 0))}),
    ("direction", {"passes": (2,), "direction": lambda s, gradient, model, c: perturbed(gradient, model)}),
    (
        "direction",
        {
            "constants": lambda s, received, state, client: {"mean": client.samples.clone()},
            "direction": lambda s, gradient, model, c: gradient(model, 0) + 0 * c["mean"].copy_(times(c["mean"])),
        },
    ),
    ("finish", {"finish": lambda s, model, r, state, c, client: ({MODEL: times(model)}, {})}),
]


OWN_GENERATOR = random.Random(0)


def vectorized_by(experiment: Experiment, module: str = "mine", **members: object) -> Simulation:
    hardware = option("hardware", "cpu", executor="vectorized", threads=1)
    return with_client(replace(experiment, hardware=hardware), module, **members)


@pytest.mark.parametrize(("method", "members"), MIXING)
def test_a_method_that_mixes_the_clients_of_a_group(
    experiment: Experiment, method: str, members: dict[str, Any]
) -> None:
    simulation = vectorized_by(experiment, **members)
    with pytest.raises(
        InputError, match=rf"^mine.Mine.{method}: what it returns for a client depends on the other clients of its g"
    ):
        advanced(simulation, 4)  # states are equal until clients have taken part


@pytest.mark.parametrize(
    "members",
    [
        {"finish": lambda s, model, *rest: ({MODEL: model / model.norm(dim=-1, keepdim=True)}, {})},
        {"finish": lambda s, model, *rest: ({MODEL: model * random.random()}, {})},
        {"finish": lambda s, model, *rest: ({MODEL: model + torch.randn_like(model)}, {})},
        {"finish": lambda s, model, *rest: ({MODEL: model * OWN_GENERATOR.random()}, {})},
        {
            "passes": (2,),
            "direction": lambda s, gradient, model, c: gradient(model, 0).add_(gradient(model + 0.1, 0)).mul_(0.5),
        },
        {
            "constants": lambda s, received, state, client: {"anchor": received[MODEL], "velocity": 0 * client.samples},
            "direction": lambda s, gradient, model, c: c["velocity"].add_(1) + c["anchor"] + gradient(model, 0),
        },
    ],
)
def test_methods_that_keep_the_clients_of_a_group_apart(experiment: Experiment, members: dict[str, Any]) -> None:
    """Also with random numbers, which differ from client to client."""
    advanced(vectorized_by(experiment, **members), 2)


GLOBAL_GENERATORS: dict[str, Callable[[int], torch.Tensor]] = {
    "PyTorch": torch.randn,
    "NumPy": lambda length: torch.from_numpy(np.random.normal(size=length)).float(),
    "Python": lambda length: torch.tensor([random.gauss() for _ in range(length)]),
}


@pytest.mark.parametrize("name", GLOBAL_GENERATORS)
def test_that_clients_are_apart_is_checked_without_an_effect(experiment: Experiment, name: str) -> None:
    """Methods draw the same from global generators as in a class of fedrun's, which is not checked."""
    draw = GLOBAL_GENERATORS[name]

    def model(module: str) -> torch.Tensor:
        simulation = vectorized_by(
            experiment,
            constants=lambda s, received, state, client: {"noise": draw(client.clients.numel() * P).view(-1, P)},
            direction=lambda s, gradient, model, c: gradient(model, 0) + c["noise"].mul_(0.9),
            finish=lambda s, model, *rest: ({MODEL: model + draw(model.numel()).view(model.shape)}, {}),
            module=module,
        )
        return advanced(simulation, 2).server.model

    assert torch.equal(model("mine"), model("fedrun.mine"))


@pytest.mark.parametrize("side", ["client", "server"])
@pytest.mark.parametrize("name", GLOBAL_GENERATORS)
def test_methods_that_draw_from_a_global_generator_repeat(experiment: Experiment, name: str, side: str) -> None:
    """A repeated run is equal; another seed and another round draw other numbers."""
    draw = GLOBAL_GENERATORS[name]
    drawn: list[torch.Tensor] = []

    def noted(*_: object) -> torch.Tensor:
        drawn.append(draw(P))
        return drawn[-1]

    if side == "client":
        method = "start", lambda s, received, *rest: received[MODEL] + noted()
    else:
        method = "aggregate", lambda s, state, update, _: (replace(state, model=update.mean[MODEL] + noted()), {})
    for seed in (0, 0, 1):
        advanced(with_part(replace(experiment, seed=seed), side, *method), 2)
    runs = torch.stack(drawn).view(3, -1, P)
    assert torch.equal(runs[0], runs[1]) and not (runs[0] == runs[2]).any()
    assert len(runs[0].unique(dim=0)) == len(runs[0])


@pytest.mark.parametrize("measurement", ["batch_gradient", "training_embeddings"])
def test_a_measurement_after_training_leaves_the_trained_model(experiment: Experiment, measurement: Any) -> None:
    """Gradients count as processed whenever they are computed."""

    def finish(
        self: Any, model: torch.Tensor, received: Vectors, state: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        before = model.clone()
        if measurement == "batch_gradient":
            assert client.batch_gradient is not None
            client.batch_gradient(received[MODEL], torch.arange(3))
        else:
            assert client.training_embeddings is not None
            client.training_embeddings(received[MODEL])
        assert torch.equal(model, before)
        return {MODEL: model}, {}

    plain = advanced(Simulation(experiment), 1)
    after = advanced(with_client(experiment, wants=frozenset({measurement}), finish=finish), 1)
    assert torch.equal(after.server.model, plain.server.model)
    gradients = 3 * 2 if measurement == "batch_gradient" else 0
    assert after.totals.client_samples == plain.totals.client_samples + gradients


def test_a_gradient_of_an_acknowledgement_counts_as_processed(experiment: Experiment) -> None:
    def acknowledge(self: Any, state: Vectors, sent: Vectors, arrived: Vectors, client: ClientInfo) -> Vectors:
        assert client.batch_gradient is not None
        client.batch_gradient(arrived[MODEL], torch.arange(3))
        return state

    compressed = replace(experiment, compression=option("compression", "topk"))
    plain = advanced(Simulation(compressed), 1)
    after = advanced(with_client(compressed, wants=frozenset({"batch_gradient"}), acknowledge=acknowledge), 1)
    assert torch.equal(after.server.model, plain.server.model)
    assert after.totals.client_samples == plain.totals.client_samples + 3 * 2


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ({"a": torch.zeros(1)}, r"the states a; allowed: the states a, b$"),
        (None, r"NoneType; allowed: the states a, b$"),
        ({"a": torch.zeros(1), "b": torch.zeros(2)}, r"float32 \[2\]; allowed: 'b' of \[1\] in float32$"),
    ],
)
def test_a_state_that_is_acknowledged_is_complete(experiment: Experiment, returned: object, message: str) -> None:
    """A missing vector was silently read as zeros in the next round."""

    def finish(
        self: Any, model: torch.Tensor, received: Vectors, state: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        return {MODEL: model}, {name: vector + 1 for name, vector in state.items()}

    simulation = with_client(
        replace(experiment, compression=option("compression", "topk")),
        client_state=lambda self, layout: {"a": 1, "b": 1},
        finish=finish,
        acknowledge=lambda self, state, sent, arrived, client: returned,
    )
    with pytest.raises(InputError, match=r"^mine\.Mine\.acknowledge: returned " + message):
        simulation.advance(simulation.initial())


@pytest.mark.parametrize("reported", ["own", ("personal", "clients"), ("own", "uniform")])
def test_a_reported_accuracy_is_a_model_and_an_average(experiment: Experiment, reported: object) -> None:
    """It was a KeyError at the end of the run."""
    allowed = r"allowed: \('global', 'own' or 'tuned', 'samples' or 'clients'\)$"
    with pytest.raises(InputError, match=rf"^mine\.Mine\.reported={re.escape(repr(reported))}: {allowed}"):
        with_client(experiment, reported=reported)
