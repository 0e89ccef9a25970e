"""What compressors of uploads have in common."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge, Le

from fedrun.config.config_class import config_class
from fedrun.uploads.compression.base import Compression


@config_class
class UploadCompression(Compression):
    """A compressor of the clients' displacements.

    Attributes:
        memory: ``client``: error feedback (Stich et al., 2018, arXiv 1809.07599; Karimireddy et al., 2019, arXiv
            1901.09847): a client keeps e_k, what its uploads left out, sends C(D_k + e_k) and keeps e_k ← D_k + e_k −
            C(D_k + e_k); ``none``: it forgets it.
        memory_decay: in [0, 1]: the factor of e_k before it is added; 1 is plain error feedback.
        skip: ``head``: the head's entries travel as they are, for servers that look at heads; ``none``.
    """

    memory: Literal["none", "client"]
    memory_decay: Annotated[float, Ge(0), Le(1)]
    skip: Literal["none", "head"]

    @property
    def error_feedback(self) -> bool:
        return self.memory == "client"

    @property
    def decay(self) -> float:
        return self.memory_decay

    @property
    def skips_head(self) -> bool:
        return self.skip == "head"
