"""Compression of uploads: what a compressor is, and the one that changes nothing."""

from __future__ import annotations

from typing import Literal

import torch

from fedrun.config.config_class import config_class

FLOAT = 4
"""Bytes of an uncompressed number."""


@config_class
class Compression:
    """Uploads travel as they are; the base of all compressors.

    Attributes:
        down: how the model travels to the clients: ``none``: in float32; ``half``: rounded to float16. A client's
            displacement is counted from the model that it has received.
    """

    down: Literal["none", "half"]

    @property
    def compresses(self) -> bool:
        """Whether uploads change."""
        return type(self) is not Compression

    @property
    def error_feedback(self) -> bool:
        """Whether a client keeps what its last upload left out and adds it to the next."""
        return False

    @property
    def decay(self) -> float:
        """The factor of that error for every round."""
        return 1.0

    @property
    def skips_head(self) -> bool:
        """Whether the head's entries travel as they are."""
        return False

    @property
    def shared_draw(self) -> bool:
        """Whether all clients of a round draw the same random numbers."""
        return False

    def compress(self, vector: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
        """C(v): what the receiver makes of a compressed vector.

        Args:
            vector: v, float32 ``[d]``, finite; it is not changed.
            draw: of random numbers, on the CPU.

        Returns:
            float32 ``[d]``.
        """
        return vector

    def size(self, entries: int) -> int:
        """Bytes of a compressed vector of so many entries."""
        return FLOAT * entries
