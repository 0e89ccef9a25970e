"""SCAFFOLD (Karimireddy et al., ICML 2020, arXiv 1910.06378)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Gt

from fedrun.config.config_class import config_class
from fedrun.config.identity import Neutral
from fedrun.models.flat_network import Layout
from fedrun.strategies.client import ClientStrategy, LinearCorrection, Measurement
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.local_training import LocalTraining
from fedrun.strategies.server import CohortUpdate, Round, ServerState, UniformServer
from fedrun.strategies.vectors import MODEL, Vectors
from fedrun.system.errors import InputError

CONTROL = "control"
"""The control variate's name: c in the broadcast, c_k⁺ − c_k in an upload, c_k in a client's state."""


@config_class
class ScaffoldClient(ClientStrategy):
    """Correct every local step by the difference of the server's and the client's control variates.

    Attributes:
        option: how the client renews its control variate: ``I``: the gradient of F_k at the broadcast model, an extra
            pass over its data; ``II``: from its displacement, without extra cost. With momentum the displacement is
            divided by the number of effective steps, so that the control variate stays a mean gradient.
        variant: ``paper``, or ``feddc``: as in the code of FedDC (utils_methods.py), whose tables contain SCAFFOLD. It
            needs option II. The displacement is divided by ‖ā‖₁ η_0 (K̄ η_0 without momentum) instead of ‖a_k‖₁ η_t, so
            by the same number for all clients and rounds. The server's control variate is divided by ω_k = n_k N / Σ
            n_j in a client's step, and the client's change is multiplied by ω_k in the upload. In that code all clients
            make K̄ steps: set ``local.steps``.
    """

    option: Literal["I", "II"]
    variant: Annotated[Literal["paper", "feddc"], Neutral("paper")]

    sends: ClassVar[frozenset[str]] = frozenset({MODEL, CONTROL})

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({CONTROL})

    @property
    def wants(self) -> frozenset[Measurement]:
        return frozenset({"initial_gradient"} if self.option == "I" else set())

    @property
    def assumes_sgd(self) -> bool:
        return self.option == "II"

    def check(self, local: LocalTraining) -> None:
        if self.variant == "feddc" and self.option == "I":
            raise InputError("strategy.client.variant=feddc: with strategy.client.option=I; allowed: option II")

    def client_state(self, layout: Layout) -> dict[str, int]:
        return {CONTROL: layout.trainable}

    def constants(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> Vectors:
        if self.variant == "feddc":
            return {"correction": received[CONTROL] / client.relative_size - client_state[CONTROL]}
        return {"correction": received[CONTROL] - client_state[CONTROL]}

    def linear_correction(self, constants: Vectors) -> LinearCorrection | None:
        # y ← y − η (g(y) − c_k + c)
        return LinearCorrection(constants["correction"])

    def finish(
        self, model: torch.Tensor, received: Vectors, client_state: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        if client.initial_gradient is not None:
            # c_k⁺ = ∇F_k(x)
            change = client.initial_gradient - client_state[CONTROL]
            return {MODEL: model, CONTROL: change}, {CONTROL: client.initial_gradient}
        # c_k⁺ = c_k − c + (x − y_k) / (‖a_k‖₁ η), where ‖a_k‖₁ = K_k without momentum, and η is the rate in use
        moved = received[MODEL][..., : client.trainable] - model[..., : client.trainable]
        if self.variant == "feddc":
            # c_k⁺ = c_k − c + (x − y_k) / (‖ā‖₁ η_0);  Δc_k = ω_k (c_k⁺ − c_k)
            change = moved / (client.mean_effective_steps * client.local.lr) - received[CONTROL]
            return {MODEL: model, CONTROL: client.relative_size * change}, {CONTROL: client_state[CONTROL] + change}
        change = moved / (client.effective_steps * client.lr) - received[CONTROL]
        return {MODEL: model, CONTROL: change}, {CONTROL: client_state[CONTROL] + change}

    def acknowledge(self, client_state: Vectors, sent: Vectors, arrived: Vectors, client: ClientInfo) -> Vectors:
        # c_k ← c_k + C(c_k⁺ − c_k); in the variant feddc c_k + C(Δc_k) / ω_k
        lost = arrived[CONTROL] - sent[CONTROL]
        lost = lost / client.relative_size if self.variant == "feddc" else lost
        return {**client_state, CONTROL: client_state[CONTROL] + lost}


@config_class
class ScaffoldServer(UniformServer):
    """Plain means of the clients' displacements and of their control variates' changes.

    Attributes:
        lr: η_g > 0, the server's learning rate.
    """

    lr: Annotated[float, Gt(0)]

    needs: ClassVar[frozenset[str]] = frozenset({MODEL, CONTROL})
    maintains: ClassVar[frozenset[str]] = frozenset({CONTROL})

    @property
    def sends(self) -> frozenset[str]:
        return frozenset({MODEL, CONTROL})

    def init(self, model: torch.Tensor, layout: Layout, clients: int) -> ServerState:
        return ServerState(model, {CONTROL: model.new_zeros(layout.trainable)})

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        # x ← x + η_g mean_S (y_k − x); buffers are averaged plainly
        model = update.mean[MODEL]
        model[: round.layout.trainable].lerp_(state.model[: round.layout.trainable], 1 - self.lr)
        # c ← c + (1/N) Σ_S (c_k⁺ − c_k)
        share = update.count / round.clients
        return ServerState(model, {CONTROL: state.slots[CONTROL].add(update.mean[CONTROL], alpha=share)}), {}
