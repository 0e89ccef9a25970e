"""FedAMP and HeurFedAMP: each client receives a mixture of the clients' models, in which similar ones weigh more (Huang
et al., AAAI 2021, arXiv 2007.03797).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Le

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.client import Averaging, EvaluatedModel
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.distances import squared_distances
from fedrun.strategies.fedprox import FedProx
from fedrun.strategies.server import CohortUpdate, Round, Rows, ServerState, ServerStrategy
from fedrun.strategies.vectors import MODEL, Vectors
from fedrun.system.errors import RunError

OWN = "own"
"""w_k, the model that the client trained last: its state, ``[P]``."""

MODELS = "models"
"""w_k of every client, ``[N, P]``: the initial model until the client has taken part."""

SIMILARITIES = "similarities"
"""How similar the models of two clients are, float64 ``[N, N]``; -∞ where one of them has not taken part yet."""


MIXED = 0.2
"""FedAMP's default: the most that the models of all other clients weigh together."""


@config_class
class FedAMPClient(FedProx):
    """Minimise F_k(w) + μ/2 ‖w − u_k‖², beginning at the client's own model; u_k is the received one.

    ``mu`` is λ/α of the paper. In PFLlib the term has no gradient, so its clients are not pulled: 0 here. Float buffers
    begin as the client's own, too.
    """

    reported: ClassVar[tuple[EvaluatedModel, Averaging]] = ("own", "clients")

    def client_state(self, layout: Layout) -> dict[str, int]:
        return {OWN: layout.size}

    def start(self, received: Vectors, client_state: Vectors, constants: Vectors, client: ClientInfo) -> torch.Tensor:
        return torch.where(client.is_new, received[MODEL], client_state[OWN])

    def own_model(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> torch.Tensor:
        return client_state[OWN]

    def finish(
        self, model: torch.Tensor, received: Vectors, client_state: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        return {MODEL: model}, {OWN: model}


class AttentiveServer(ServerStrategy):
    """Sends each client a mixture of all clients' newest models. The global model is the mean of a round's models.

    A client that has not taken part yet receives the initial model, and its model is in no mixture. The paper's clients
    all take part in every round; PFLlib mixes only the models of the newest round. The server keeps a model per client.
    """

    rows: ClassVar[Rows] = "all"

    @abstractmethod
    def similarity(self, models: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        """How similar two clients' parameters are, ``[C, T]`` and ``[N, T]``: finite, float64 ``[C, N]``."""

    @abstractmethod
    def attention(self, similarities: torch.Tensor) -> torch.Tensor:
        """ξ_kj, the weights of other clients' models, float64 ``[n, N]``, given their similarities: 0 for -∞."""

    def init(self, model: torch.Tensor, layout: Layout, clients: int) -> ServerState:
        similarities = torch.full((clients, clients), -torch.inf, dtype=torch.float64, device=model.device)
        return ServerState(model, {MODELS: model.repeat(clients, 1), SIMILARITIES: similarities})

    def models_for(self, state: ServerState, clients: torch.Tensor, layout: Layout) -> torch.Tensor:
        # u_k = Σ_j ξ_kj w_j
        return self._weights(state.slots[SIMILARITIES], clients).float() @ state.slots[MODELS]

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        assert update.rows is not None
        models, similarities = state.slots[MODELS].clone(), state.slots[SIMILARITIES].clone()
        clients, trainable = update.clients.to(models.device), round.layout.trainable
        models[clients] = update.rows
        absent = similarities.diagonal().isinf()
        absent[clients] = False
        of_clients = self.similarity(update.rows[:, :trainable], models[:, :trainable])
        of_clients = of_clients.masked_fill(absent, -torch.inf)
        similarities[clients], similarities[:, clients] = of_clients, of_clients.T
        present = (~absent).nonzero()
        own = self._weights(similarities, present[:, 0]).gather(1, present)
        after = ServerState(update.mean[MODEL], {MODELS: models, SIMILARITIES: similarities})
        return after, {"self_weight": float(own.mean())}

    def _weights(self, similarities: torch.Tensor, clients: torch.Tensor) -> torch.Tensor:
        """ξ of some clients (int64 ``[n]``), float64 ``[n, N]``: rows with sum 1."""
        places = clients.to(similarities.device)[:, None]
        weights = self.attention(similarities[places[:, 0]].scatter(1, places, -torch.inf))
        # ξ_kk = 1 − Σ_{j≠k} ξ_kj
        return weights.scatter(1, places, 1 - weights.sum(1, keepdim=True))


@config_class
class FedAMP(AttentiveServer):
    """FedAMP: other models weigh the more, the nearer they are. Similarity is -‖w_k − w_j‖².

    Attributes:
        alpha: α > 0, the size of the mixing step: each other model has a weight of at most α/σ. None: σ / (5 N), with
            which those of N clients weigh less than 1/5 together. If they exceed 1, with a larger α, and the client's
            own weight, ``server/self_weight``, is negative, the run ends with an error.
        sigma: σ > 0, the squared distance within which models attract each other.
    """

    alpha: Annotated[float, Gt(0)] | None
    sigma: Annotated[float, Gt(0)]

    def similarity(self, models: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        return -squared_distances(models, others)

    def attention(self, similarities: torch.Tensor) -> torch.Tensor:
        # ξ_kj = α A'(‖w_k − w_j‖²),  A(d) = 1 − e^(−d/σ)
        alpha = MIXED * self.sigma / similarities.shape[1] if self.alpha is None else self.alpha
        weights = alpha / self.sigma * (similarities / self.sigma).exp()
        if (total := float(weights.sum(1).max())) > 1:
            raise RunError(
                f"strategy.server.alpha={alpha:g}: the weights of the other clients' models sum to {total:.3g}, "
                "and a client's own would be negative; lower alpha"
            )
        return weights


@config_class
class HeurFedAMP(AttentiveServer):
    """HeurFedAMP, for deep networks: a fixed weight of a client's own model, the others by their cosines.

    Attributes:
        self_weight: ξ_kk in [0, 1]; 1: each client trains alone.
        sigma: σ ≥ 0; 0: all other models weigh the same.
    """

    self_weight: Annotated[float, Ge(0), Le(1)]
    sigma: Annotated[float, Ge(0)]

    def similarity(self, models: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        return (normalized(models) @ normalized(others).T).double()

    def attention(self, similarities: torch.Tensor) -> torch.Tensor:
        # ξ_kj = (1 − ξ_kk) e^(σ cos(w_k, w_j)) / Σ_{h≠k} e^(σ cos(w_k, w_h))
        shares = torch.where(similarities.isinf(), -torch.inf, self.sigma * similarities).softmax(1)
        return (1 - self.self_weight) * shares.nan_to_num(0.0)  # NaN: there are no others


def normalized(vectors: torch.Tensor) -> torch.Tensor:
    """Vectors ``[n, T]`` of length 1."""
    return torch.nn.functional.normalize(vectors, dim=1)
