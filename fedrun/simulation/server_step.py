"""The server's side of a round: received updates pass the transforms of uploads, then the strategy makes its step."""

from __future__ import annotations

from dataclasses import replace

import torch

from fedrun.execution.context import ExecutionContext
from fedrun.experiment.state import State
from fedrun.simulation.round_runner import RoundResult
from fedrun.strategies.contract import versions
from fedrun.strategies.phase import Phase
from fedrun.strategies.server import CohortUpdate, Round, ServerState
from fedrun.strategies.server_contract import check_aggregated, check_unchanged
from fedrun.strategies.vectors import MODEL
from fedrun.system.randomness import address, seed_generators
from fedrun.training.batches import steps_of
from fedrun.training.optimizer_step import repair
from fedrun.uploads.attacks.colluding import Colluding


def empty_round(state: State) -> RoundResult:
    """The work of an empty cohort."""
    update = CohortUpdate.empty()
    return RoundResult(state.models, (), (update,), state.client_states, state.membership, update.processed)


def without_displacement(phase: Phase, result: RoundResult) -> RoundResult:
    """The work of a cohort whose uploads, if there are any, all count as the zero vector."""
    (server,), (update,) = result.models, result.updates
    received = phase.server.broadcast(server)
    mean = {
        name: received[name].clone() if name == MODEL else torch.zeros_like(received[name])
        for name in phase.client.sends
    }
    return replace(result, updates=(replace(update, mean=mean),))


def aggregate(
    phase: Phase, state: State, result: RoundResult, context: ExecutionContext, *, sums_only: bool
) -> tuple[tuple[ServerState, ...], dict[str, float]]:
    """The next models, and the mean metrics of the server steps. A model without an update stays as it is.

    Args:
        phase: phase of the round.
        state: before the round.
        result: result of the cohort's local work.
        context: context of the local work.
        sums_only: whether the server may use only the sum of the uploads (:attr:`Privacy.sees_sums_only`).
    """
    models, steps = list(result.models), []
    seed_generators(address(phase.seed, "hooks", state.round), state.server.model.device)
    for number, update in enumerate(result.updates):
        if not (update.mean or len(update.clients)):  # clients that send nothing have no mean
            continue
        round = phase.round(state.round, number, result.membership)
        server = result.models[number]
        sent = phase.server.broadcast(server)
        counts = context.senders(update.clients, phase.server).label_counts
        arrived, attack = replace(update, label_counts=counts), context.attack
        if isinstance(attack, Colluding) and len(update.clients):
            arrived = attack.replaced(arrived, context.attackers, sent[MODEL], phase.server.rows, phase.network.layout)
        if sums_only:  # who took part is private; the steps of all clients are taken as known
            arrived = replace(arrived, steps=steps_of(context.clients.sizes, context.local, len(context.client.passes)))
        combined, transforms, measured = context.pipeline.combine(arrived, sent, server.transforms, round)
        usable = combined.without_participants() if sums_only else combined
        after, metrics = _next_state(phase, server, usable, round)
        models[number] = replace(after, transforms={**server.transforms, **transforms})
        steps.append({**{f"server/{name}": value for name, value in metrics.items()}, **measured})
    values: dict[str, list[float]] = {}  # a step of one model may have metrics that another's has not
    for step in steps:
        for name, value in step.items():
            values.setdefault(name, []).append(value)
    return tuple(models), {name: sum(known) / len(known) for name, known in values.items()}


def _next_state(
    phase: Phase, server: ServerState, combined: CohortUpdate, round: Round
) -> tuple[ServerState, dict[str, float]]:
    """What the strategy makes of an update, checked and repaired: its next state and the metrics of the step."""
    slots = frozenset(server.slots)  # before aggregate, which could add to the dictionary
    received = {**server.slots, MODEL: server.model}
    before = versions(received)
    aggregated = phase.server.aggregate(server, combined, round)
    check_unchanged(phase.server, received, before)
    check_aggregated(phase.server, aggregated, round.layout.size, slots)
    after, metrics = aggregated
    if phase.local.repair_nonfinite:
        repaired = after.model.clone()
        repair(repaired[: round.layout.trainable])
        after = replace(after, model=repaired)
    return after, metrics
