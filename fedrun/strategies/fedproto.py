"""FedProto: clients share class means of embeddings in place of models (Tan et al., AAAI 2022, arXiv 2105.00243)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.config.identity import Neutral
from fedrun.models.flat_network import Layout
from fedrun.strategies.client import Averaging, ClientStrategy, EvaluatedModel, Measurement, Outputs
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.server import CohortUpdate, Round, ServerState, UniformServer
from fedrun.strategies.vectors import MODEL, Vectors
from fedrun.system.errors import InputError

PROTOTYPES = "prototypes"
"""c_j for every class: broadcast, and sent up times its weight, ``[classes · d]``."""

KNOWN = "known"
"""Whether there is a prototype of each class: 0 or 1, broadcast, ``[classes]``."""

CLASS_WEIGHTS = "class_weights"
"""The weight of each of a client's prototypes, 0 for classes that it does not hold: sent up, ``[classes]``."""

UNKNOWN = -1e6
"""The logit of a class without a prototype, where the nearest prototype is the prediction."""


@config_class
class FedProtoClient(ClientStrategy):
    """SGD of the client's own model, whose embeddings z are pulled to the global prototypes: CE + λ mean_d (z − c_y)².

    The model begins as the common initial one and is never sent. A client sends the mean embedding of each of its
    classes under the model that it has trained; the published code averages those met in the last local epoch.

    Attributes:
        strength: λ ≥ 0 of the pull; 0: each client trains alone.
        weighting: of a client's prototypes in the mean over clients: ``clients``: equal, as in the published code;
            ``samples``: by its samples of the class.
        evaluate: how a client is evaluated: ``model``: by its model; ``prototypes``: its embeddings belong to the class
            of the nearest global prototype, as in PFLlib. The loss is then that of the logits −‖z − c_j‖² / 2, up to
            a term that all classes share; classes without a prototype have the logit −10⁶.
    """

    strength: Annotated[float, Ge(0)]
    weighting: Literal["clients", "samples"]
    evaluate: Annotated[Literal["model", "prototypes"], Neutral("model")]

    needs: ClassVar[frozenset[str]] = frozenset({PROTOTYPES, KNOWN})
    sends: ClassVar[frozenset[str]] = frozenset({PROTOTYPES, CLASS_WEIGHTS})
    wants: ClassVar[frozenset[Measurement]] = frozenset({"embeddings", "label_counts", "training_embeddings"})
    reported: ClassVar[tuple[EvaluatedModel, Averaging]] = ("own", "clients")

    def private(self, layout: Layout) -> torch.Tensor:
        if self.evaluate == "prototypes" and not layout.has_head_bias:
            raise InputError(
                "strategy.client.evaluate=prototypes: the model's head has no bias; allowed: model, or a model whose "
                "last layer has one"
            )
        return torch.ones(layout.size, dtype=torch.bool)

    def own_model(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> torch.Tensor:
        own, layout = super().own_model(received, client_state, client), client.layout
        if self.evaluate == "prototypes":
            # argmin_j ‖z − c_j‖² = argmax_j (c_jᵀ z − ‖c_j‖² / 2)
            rows = received[PROTOTYPES].view(layout.classes, layout.embedding)
            bias = torch.where(received[KNOWN] > 0, -rows.square().sum(1) / 2, UNKNOWN)
            own[layout.head] = layout.head_entries(rows, bias)
        return own

    def constants(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> Vectors:
        return {PROTOTYPES: received[PROTOTYPES], KNOWN: received[KNOWN]}

    def loss(self, outputs: Outputs, targets: torch.Tensor, constants: Vectors) -> torch.Tensor:
        assert outputs.embeddings is not None
        known = constants[KNOWN]
        prototypes = constants[PROTOTYPES].view(len(known), -1)[targets]
        # λ mean_d (z − c_y)², 0 for classes without a prototype
        distance = known[targets] * (outputs.embeddings - prototypes).square().mean(-1)
        return super().loss(outputs, targets, constants) + self.strength * distance

    def finish(
        self, model: torch.Tensor, received: Vectors, client_state: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        assert client.label_counts is not None
        assert client.training_embeddings is not None
        embeddings, labels = client.training_embeddings(model)
        counts = client.label_counts
        # c_kj = the mean of z over the client's samples of class j;  w_kj c_kj and w_kj are sent
        sums = embeddings.new_zeros(len(counts), embeddings.shape[1]).index_add_(0, labels, embeddings)
        means = sums / counts.clamp_min(1)[:, None]
        weights = counts if self.weighting == "samples" else (counts > 0).float()
        return {PROTOTYPES: (weights[:, None] * means).flatten(), CLASS_WEIGHTS: weights}, {}


@config_class
class FedProtoServer(UniformServer):
    """The weighted mean of the clients' prototypes, class by class. The initial model stays the initial model.

    A class that no participant holds keeps its prototype.
    """

    needs: ClassVar[frozenset[str]] = frozenset({PROTOTYPES, CLASS_WEIGHTS})
    sends: ClassVar[frozenset[str]] = frozenset({MODEL, PROTOTYPES, KNOWN})

    def init(self, model: torch.Tensor, layout: Layout, clients: int) -> ServerState:
        prototypes = model.new_zeros(layout.classes * layout.embedding)
        return ServerState(model, {PROTOTYPES: prototypes, KNOWN: model.new_zeros(layout.classes)})

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        weights = update.mean[CLASS_WEIGHTS]
        held = weights[:, None] > 0
        shape = (round.layout.classes, round.layout.embedding)
        # c_j ← Σ_k w_kj c_kj / Σ_k w_kj
        means = update.mean[PROTOTYPES].view(shape) / weights[:, None].where(held, 1.0)
        prototypes = means.where(held, state.slots[PROTOTYPES].view(shape)).flatten()
        known = state.slots[KNOWN].maximum((weights > 0).to(weights.dtype))
        return ServerState(state.model, {PROTOTYPES: prototypes, KNOWN: known}), {"prototypes": float(known.sum())}
