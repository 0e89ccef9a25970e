"""APFL: a mixture of the global model and one of the client's own (Deng, Kamani, Mahdavi, 2020, arXiv 2003.13461)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Le

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.client import ClientStrategy, Gradient
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.vectors import MODEL, Vectors

OWN = "own"
"""v_k: the client's own model, its parameters ``[T]``."""

SHARE = "share"
"""α_k: the own model's share in the mixture ``[1]``."""


@config_class
class APFL(ClientStrategy):
    """Plain local SGD of the global model w, and SGD of the client's own model v in the mixture α v + (1 − α) w.

    The mixture is evaluated, with the newest global model. v begins as the first model that the client receives. Its
    steps have neither momentum nor weight decay, and they are neither clipped nor repaired. Float buffers are the
    global model's. Only the passes at w move them, so that clients send the models of plain SGD.

    Attributes:
        share: α in [0, 1], of the first round; 0: FedAvg.
        adaptive: whether clients learn α, by steps of the rate ``local.lr``.
        variant: how v is trained: ``paper``: by the gradient of the mixture; ``fedrep``: as FedRep's code compares it,
            by the gradient at α v + α w; ``pfllib``: as in PFLlib, by the gradient at v, and the mixture takes the
            place of v after every round (there, v itself is evaluated: it is the mixture with the local model).
    """

    share: Annotated[float, Ge(0), Le(1)]
    adaptive: bool
    variant: Literal["paper", "fedrep", "pfllib"]

    passes: ClassVar[tuple[int, ...]] = (2,)
    assumes_sgd: ClassVar[bool] = True

    def client_state(self, layout: Layout) -> dict[str, int]:
        return {OWN: layout.trainable, SHARE: 1}

    def own_model(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> torch.Tensor:
        model, own, share = received[MODEL], client_state[OWN], client_state[SHARE]
        trained = own if self.variant == "pfllib" else mixed(share, own, model[: client.trainable])
        return torch.cat([trained, model[client.trainable :]])

    def constants(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> Vectors:
        first = received[MODEL][..., : client.trainable]
        own = torch.where(client.is_new, first, client_state[OWN])
        share = torch.where(client.is_new, self.share, client_state[SHARE])
        return {OWN: own, SHARE: share, "lr": own.new_tensor([client.lr])}

    def direction(self, gradient: Gradient, model: torch.Tensor, constants: Vectors) -> torch.Tensor:
        own, share, lr = constants[OWN], constants[SHARE], constants["lr"]
        if self.variant == "pfllib":
            return self._apart(gradient, model, constants)
        # v ← v − η α g(v̄) at v̄ = α v + (1 − α) w
        at = mixed(share, own, model) if self.variant == "paper" else share * (own + model)
        slope = gradient(at, 0, moves_buffers=False)
        # α ← α − η ⟨v − w, g(v̄)⟩, in [0, 1], with the v and w before their steps
        change = lr * ((own - model) * slope).sum(-1, keepdim=True)
        own -= lr * share * slope
        if self.adaptive:
            share.sub_(change).clamp_(0, 1)
        return gradient(model, 0)

    def _apart(self, gradient: Gradient, model: torch.Tensor, constants: Vectors) -> torch.Tensor:
        """PFLlib's step: v and w are trained apart, and α is updated after both."""
        own, share, lr = constants[OWN], constants[SHARE], constants["lr"]
        of_model, of_own = gradient(model, 0), gradient(own, 0, moves_buffers=False)
        own -= lr * of_own
        if self.adaptive:
            # α ← α − η (⟨v − w, α g(v) + (1 − α) g(w)⟩ + 0.02 α), in [0, 1], with the v and w after their steps
            apart = own - (model - lr * of_model)
            slope = (apart * mixed(share, of_own, of_model)).sum(-1, keepdim=True) + 0.02 * share
            share.copy_((share - lr * slope).clamp(0, 1))
        return of_model

    def finish(
        self, model: torch.Tensor, received: Vectors, client_state: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        own, share = constants[OWN], constants[SHARE]
        if self.variant == "pfllib":
            own = mixed(share, own, model[..., : client.trainable])
        return {MODEL: model}, {OWN: own, SHARE: share}


def mixed(share: torch.Tensor, own: torch.Tensor, common: torch.Tensor) -> torch.Tensor:
    """α v + (1 − α) w."""
    return share * own + (1 - share) * common
