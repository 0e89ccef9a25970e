"""One bit per entry: scaled signs, and signSGD with majority vote (Bernstein et al., 2018, arXiv 1802.04434)."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from annotated_types import Gt

from fedrun.config.config_class import config_class
from fedrun.uploads.compression.base import FLOAT
from fedrun.uploads.compression.upload import UploadCompression


@config_class
class Sign(UploadCompression):
    """Only the signs of a displacement's entries are sent; the sign of 0 is +1.

    Attributes:
        rule: ``scaled``: with their mean magnitude ‖v‖₁ / d; ``vote``: alone, and the server moves every entry by
            ``vote_step`` towards what most clients want.
        vote_step: η_g > 0, by how much a vote moves an entry; a tie moves nothing.
    """

    rule: Literal["scaled", "vote"]
    vote_step: Annotated[float, Gt(0)]

    @property
    def votes(self) -> bool:
        """Whether the server takes a vote."""
        return self.rule == "vote"

    def compress(self, vector: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
        signs = torch.where(vector >= 0, 1.0, -1.0)
        # (‖v‖₁ / d) sign(v), or sign(v)
        return signs if self.votes else signs * vector.abs().mean()

    def size(self, entries: int) -> int:
        return -(-entries // 8) + (0 if self.votes else FLOAT)
