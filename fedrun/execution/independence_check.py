"""A check of users' client strategies: what a method returns for one client does not depend on others of its group."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, repeat

import torch

from fedrun.config.own_methods import is_fedruns
from fedrun.strategies.client import ClientStrategy, Gradient
from fedrun.strategies.client_contract import checked_linear_correction
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.contract import owner
from fedrun.strategies.direction_contract import check_direction
from fedrun.strategies.vectors import MODEL, Vectors
from fedrun.system.errors import InputError
from fedrun.system.randomness import restored_generators, seed_generators


class IndependenceCheck:
    """Checks one group of C clients. The first client is computed with the last one, and with itself in its place.

    Later rounds may show what earlier ones do not, because states are zero at first. Groups are checked in the rounds
    t = 0, 1, 2, 4, 8, .., so that the checks of a long run take little time.

    Args:
        strategy: the client strategy; fedrun's own are not checked.
        received: the broadcast, with a model ``[P]`` or ``[C, P]``.
        client_state: the clients' states before the round, ``[C, m]`` each.
        client: information about the clients.
    """

    def __init__(self, strategy: ClientStrategy, received: Vectors, client_state: Vectors, client: ClientInfo) -> None:
        self._strategy, self._received, self._state, self._info = strategy, received, client_state, client
        self._clients = len(client.clients)
        self._device = client.samples.device

    @classmethod
    def due(
        cls, strategy: ClientStrategy, received: Vectors, client_state: Vectors, client: ClientInfo
    ) -> IndependenceCheck | None:
        """The check of a group; None if there is nothing to check in this round."""
        in_round = client.round & (client.round - 1) == 0
        checks = in_round and len(client.clients) > 1 and not is_fedruns(type(strategy))
        return cls(strategy, received, client_state, client) if checks else None

    def check_start(self, constants: Vectors) -> None:
        """Check what precedes the first step, given the clients' constants.

        Raises:
            InputError: a method mixes clients.
        """
        strategy = self._strategy

        def correction(positions: list[int]) -> list[torch.Tensor]:
            linear = checked_linear_correction(strategy, _of(constants, positions), self._info.trainable)
            return [] if linear is None else [linear.shift, *([] if linear.strength is None else [linear.strength])]

        self._check("constants", lambda positions: strategy.constants(*self._inputs(positions)).values())
        self._check(
            "start",
            lambda positions: [
                strategy.start(*self._inputs(positions)[:2], _of(constants, positions), self._info.of(positions))
            ],
        )
        self._check("linear_correction", correction)

    def direction(
        self,
        gradient: Gradient,
        model: torch.Tensor,
        constants: Vectors,
    ) -> torch.Tensor:
        """The strategy's direction of all clients in a step, which is checked.

        Raises:
            InputError: it mixes clients, or is not a vector of each.
        """
        before, fixed = model.clone(), {name: vector.clone() for name, vector in constants.items()}
        gradients: list[torch.Tensor] = []

        def recorded(parameters: torch.Tensor, batch: int, *, moves_buffers: bool = True) -> torch.Tensor:
            gradients.append(gradient(parameters, batch, moves_buffers=moves_buffers))
            return gradients[-1].clone()

        def again(positions: list[int]) -> list[torch.Tensor]:
            known = chain(gradients, repeat(before))  # endless: the method may make more calls than before
            changed, asked = _of(fixed, positions), list[torch.Tensor]()

            def replayed(parameters: torch.Tensor, batch: int, *, moves_buffers: bool = True) -> torch.Tensor:
                asked.append(parameters.clone())
                return next(known)[positions]

            direction = self._strategy.direction(replayed, before[positions], changed)
            return [direction, *asked, *changed.values()]

        direction = self._strategy.direction(recorded, model, constants)
        check_direction(self._strategy, direction, model, constants)
        self._check("direction", again)
        return direction

    def check_finish(self, model: torch.Tensor, constants: Vectors, client: ClientInfo) -> None:
        """Check the uploads and the next states, given the models ``[C, P]`` after local training.

        Raises:
            InputError: they mix clients.
        """

        def finish(positions: list[int]) -> list[torch.Tensor]:
            received, state, _ = self._inputs(positions)
            fixed, info = _of(constants, positions), client.of(positions)
            uploads, kept = self._strategy.finish(model[positions], received, state, fixed, info)
            return [*uploads.values(), *kept.values()]

        self._check("finish", finish)

    def _inputs(self, positions: list[int]) -> tuple[Vectors, Vectors, ClientInfo]:
        """The broadcast, the states and the information of some clients."""
        model = self._received[MODEL]
        received = {**self._received, MODEL: model[positions]} if model.ndim > 1 else self._received
        return received, {name: vector[positions] for name, vector in self._state.items()}, self._info.of(positions)

    def _check(self, method: str, hook: Callable[[list[int]], Iterable[torch.Tensor]]) -> None:
        """Check a method, given what it returns for clients at some positions: ``[2, m]`` each, or ``[m]`` for all."""

        def first(positions: list[int]) -> list[torch.Tensor]:
            seed_generators(0, self._device)
            return [vector[0] if vector.ndim > 1 else vector for vector in hook(positions)]

        with restored_generators(self._device):
            pair = first([0, self._clients - 1])
            # a method with a generator of its own returns something else in every call
            if _alike(pair, first([0, 0])) or not _alike(pair, first([0, self._clients - 1])):
                return
        raise InputError(
            f"{owner(self._strategy)}.{method}: what it returns for a client depends on the other clients of its "
            "group; allowed: reductions along the last dimension, such as vector.norm(dim=-1, keepdim=True), or "
            "hardware.executor=in_process"
        )


def _of(vectors: Vectors, positions: list[int]) -> dict[str, torch.Tensor]:
    return {name: vector[positions] if vector.ndim > 1 else vector.clone() for name, vector in vectors.items()}


def _alike(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return len(first) == len(second) and all(
        torch.allclose(one, other, rtol=1e-3, atol=1e-6, equal_nan=True)
        for one, other in zip(first, second, strict=True)
    )
