"""Which clients take part in a round."""

from __future__ import annotations

import math

import torch

from fedrun.system.errors import InputError
from fedrun.system.randomness import generator, numpy_generator


def cohort_size(clients_per_round: int | float, clients: int) -> int:
    """M, the number of clients per round: an int is the number itself, a float up to 1.0 the share of all clients
    (rounded up, as in TurboSVM-FL: ⌈C N⌉).

    Raises:
        InputError: more than there are.
    """
    if isinstance(clients_per_round, int):
        if clients_per_round > clients:
            raise InputError(
                f"clients_per_round={clients_per_round}: the federation has {clients} clients; "
                f"allowed: 1 to {clients}, or a share such as 0.1"
            )
        return clients_per_round
    return min(clients, max(1, math.ceil(clients_per_round * clients - 1e-9)))


def select(seed: int, round: int, clients: int, count: int) -> torch.Tensor:
    """The cohort of round t = 0, 1, ..: ``count`` of the clients, uniformly without replacement, in random order.

    A function of its arguments alone, so that any round's cohort can be known in any other. int64 ``[count]``, with
    ``count`` at most ``clients``.
    """
    if count == clients:
        return torch.randperm(clients, generator=generator(seed, "selection", round))
    drawn = numpy_generator(seed, "selection", round).choice(clients, count, replace=False)
    return torch.from_numpy(drawn).to(torch.int64)
