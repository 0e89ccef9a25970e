"""What a rule of participation keeps between rounds, and what it learns of a round."""

from __future__ import annotations

import torch

from fedrun.experiment.participation.base import Participation, RoundOutcome
from fedrun.experiment.state import State
from fedrun.simulation.round_runner import RoundResult
from fedrun.strategies.contract import is_tensor, kind, listed, mistake
from fedrun.strategies.phase import Phase
from fedrun.strategies.vectors import Vectors


def initial_history(participation: Participation, clients: int) -> Vectors:
    """What a rule keeps before the first round with these N clients.

    Raises:
        InputError: the rule, which may be a user's, returned something else than a dictionary of CPU tensors.
    """
    return _checked(participation, "initial_history", participation.initial_history(clients))


def next_history(
    participation: Participation,
    state: State,
    phase: Phase,
    cohort: torch.Tensor,
    result: RoundResult,
    seconds: torch.Tensor,
) -> Vectors:
    """What a rule keeps after a round.

    Args:
        participation: the rule.
        state: before the round.
        phase: phase of the round.
        cohort: the participants, int64 ``[C]``.
        result: the result of their local work.
        seconds: virtual time of each participant, float64 ``[C]``.

    Raises:
        InputError: the rule, which may be a user's, returned other tensors than before.
    """
    if not state.history:
        return state.history
    losses = {  # the same in each update to which a client has contributed
        client: loss
        for update in result.updates
        for client, loss in zip(update.clients.tolist(), update.losses.tolist(), strict=True)
    }
    used = torch.tensor([client in losses for client in cohort.tolist()], dtype=torch.bool)
    clients = cohort[used]
    outcome = RoundOutcome(
        round=state.round,
        clients=clients,
        samples=phase.federation.train.sizes[clients],
        losses=torch.tensor([losses[client] for client in clients.tolist()], dtype=torch.float64),
        seconds=seconds[used],
    )
    return _checked(participation, "next_history", participation.next_history(copied(state), outcome), state.history)


def copied(state: State) -> Vectors:
    """Copies of what a rule has kept, without gradients. A user's rule could change tensors in place, and the graph of
    gradients would grow from round to round.
    """
    return {name: tensor.detach().clone() for name, tensor in state.history.items()}


def _checked(participation: Participation, method: str, returned: object, before: Vectors | None = None) -> Vectors:
    """What a rule has returned from a method, given what it had kept before the round."""
    allowed = "a dictionary of tensors on the CPU, by name"
    if not isinstance(returned, dict):
        raise mistake(participation, method, returned, allowed)
    for name, value in returned.items():
        plain = type(value) is torch.Tensor  # a checkpoint could not hold a subclass
        if not (isinstance(name, str) and plain and value.device.type == "cpu"):
            what = f"{kind(value)} on {value.device}" if plain else type(value).__name__
            raise mistake(participation, method, f"{what} as {name!r}", allowed)
    history: Vectors = returned
    expected = history if before is None else before
    if history.keys() != expected.keys():
        raise mistake(participation, method, listed("tensors", history), listed("tensors", expected))
    for name, tensor in expected.items():
        if not is_tensor(history[name], tensor.shape, tensor.dtype):
            raise mistake(participation, method, f"{kind(history[name])} as {name}", kind(tensor))
    return history
