"""FedLC: logits calibrated by the client's class frequencies (Zhang et al., ICML 2022, arXiv 2209.00189)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.strategies.client import ClientStrategy, Measurement, Outputs
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.vectors import Vectors


@config_class
class FedLC(ClientStrategy):
    """The loss of z'_c = z_c − τ n_c^(−1/4), where n_c is the number of the client's samples of class c.

    A class that the client does not have is left out (its margin is infinite). Evaluation uses plain logits.

    Attributes:
        tau: τ ≥ 0; 0: no margins; with ``denominator: all`` this is plain SGD.
        denominator: ``all``: the task's loss, such as cross-entropy, of z'; ``others``: −z'_y + log Σ_{c≠y} exp z'_c,
            exactly as printed in the paper, which has no lower bound and is known to collapse. A sample of a client
            that has no other class then has loss 0, as the cross-entropy under ``all``.
    """

    tau: Annotated[float, Ge(0)]
    denominator: Literal["all", "others"]

    wants: ClassVar[frozenset[Measurement]] = frozenset({"label_counts"})

    def constants(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> Vectors:
        assert client.label_counts is not None
        counts = client.label_counts
        if not self.tau:
            return {"margin": torch.zeros_like(counts)}
        return {"margin": (self.tau * counts.clamp_min(1) ** -0.25).masked_fill(counts == 0, math.inf)}

    def loss(self, outputs: Outputs, targets: torch.Tensor, constants: Vectors) -> torch.Tensor:
        calibrated = outputs.logits - constants["margin"]
        if self.denominator == "all":
            return super().loss(replace(outputs, logits=calibrated), targets, constants)
        true = torch.arange(calibrated.shape[-1], device=calibrated.device) == targets[:, None]
        # entries of −∞ are masked, too: where all are −∞, logsumexp has the gradient NaN, which the mask stops
        left_out = true | constants["margin"].isinf()
        others = calibrated.masked_fill(left_out, -math.inf).logsumexp(-1)
        loss = others - calibrated.gather(-1, targets[:, None]).squeeze(-1)
        return torch.where(others == -math.inf, torch.zeros_like(loss), loss)
