"""Compression of uploads and of the broadcast model: the base of compressors, and the option without compression."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Le

from fedrun.config.config_class import config_class
from fedrun.config.identity import Neutral
from fedrun.config.marks import NoEffect
from fedrun.strategies.vectors import Vectors
from fedrun.system.randomness import generator
from fedrun.uploads.compression.contract import check_compressed, check_sizes
from fedrun.uploads.transform import FLOAT, Sender, Sent, Shape, UploadTransform

HALF = 2
"""Bytes of a number in float16."""

ERROR = "compression error of "
"""Before an upload's name: e_k in a client's state."""

ROUND = "compression round"
"""In a client's state: the number, from 1, of the last round in which it has sent compressed uploads; 0: none yet."""


@config_class
class Compression(UploadTransform):
    """Uploads travel in float32.

    Attributes:
        down: ``half``: the broadcast model's parameters travel in float16, the nearest to each, at most ±65504. Clients
            train from the rounded model x̂ and upload y_k − x̂; the server adds that to its own model x. ``none``.
    """

    down: Annotated[Literal["none", "half"], Neutral("none")]

    @property
    def changes_downloads(self) -> bool:
        return self.down == "half" or type(self).download is not Compression.download

    def download(self, parameters: torch.Tensor) -> torch.Tensor:
        if self.down == "none":
            return parameters
        most = torch.finfo(torch.float16).max
        return parameters.clamp(-most, most).half().float()

    def download_bytes(self, entries: int, clients: torch.Tensor, slots: Vectors) -> torch.Tensor | None:
        return torch.full((len(clients),), HALF * entries) if self.down == "half" else None


@config_class
class Compressor(Compression, ABC):
    """A compressor of the clients' displacements, with or without error feedback.

    Error feedback (Stich et al., 2018, arXiv 1809.07599; Karimireddy et al., 2019, arXiv 1901.09847): a client keeps
    the error e_k of its uploads, and adds it to the next one.

    Attributes:
        memory: ``client``: error feedback, for biased compressors; ``none``: the error is lost.
        memory_decay: λ in [0, 1], a factor of e_k for each round since then in which the client took no part: a stale
            error counts less; 1 is plain error feedback.
        skip: ``head``: the head's entries travel in float32, for servers that look at heads; ``none``.
    """

    memory: Literal["none", "client"]
    memory_decay: Annotated[float, Ge(0), Le(1), NoEffect("memory", ("none",))]
    skip: Literal["none", "head"]

    @property
    def is_unbiased(self) -> bool:
        """Whether the expectation of C(v) is v. The error of such a compressor can be longer than v, and error feedback
        would make it grow.
        """
        return False

    @property
    def by_tensor(self) -> bool:
        """Whether every parameter tensor is compressed by itself, instead of all of them as one vector."""
        return False

    @property
    def shared_draw(self) -> bool:
        """Whether all clients of a round draw the same random numbers."""
        return False

    @abstractmethod
    def compress(self, vector: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
        """C(v): the vector that the receiver decodes.

        Args:
            vector: v, float32 ``[d]``, finite; it is not changed.
            draw: generator of random numbers, on the CPU.

        Returns:
            A new tensor, float32 ``[d]``.
        """

    @abstractmethod
    def size(self, entries: int) -> int:
        """Bytes of a compressed vector of this length."""

    def parts(self, shape: Shape) -> list[int]:
        """The lengths of the parts of a displacement that are compressed, in order; a skipped head follows them."""
        left, parts = shape.entries - (shape.head if self.skip == "head" else 0), list[int]()
        for entries in shape.layers if self.by_tensor else (left,):
            if part := min(entries, left):
                parts.append(part)
                left -= part
        return parts

    def upload_bytes(self, shape: Shape) -> int:
        parts = self.parts(shape)
        sizes = [self.size(part) for part in parts]
        check_sizes(self, sizes)
        return sum(sizes) + FLOAT * (shape.entries - sum(parts))

    def client_state(self, entries: Mapping[str, int]) -> dict[str, int]:
        if self.memory == "none":
            return {}
        ages = {ROUND: 1} if self.memory_decay < 1 else {}
        return {ERROR + name: length for name, length in entries.items()} | ages

    def send(self, displacements: Vectors, sender: Sender) -> Sent:
        draw = generator(sender.seed, "compress", sender.round) if self.shared_draw else sender.draw("compress")
        sent, state, squared_error, squared = dict[str, torch.Tensor](), dict[str, torch.Tensor](), 0.0, 0.0
        decay = 1.0
        if self.memory == "client" and self.memory_decay < 1:
            # λ^(t − 1 − t'), where t' is the round of the last upload
            decay = self.memory_decay ** (sender.round - int(sender.state[ROUND]))
            state[ROUND] = torch.full_like(sender.state[ROUND], sender.round + 1)
        for name in sorted(displacements):
            wanted = displacements[name]
            if self.memory == "client":
                # v_k = D_k + λ^(t − 1 − t') e_k,  m_k = C(v_k),  e_k ← v_k − m_k
                wanted = wanted.add(sender.state[ERROR + name], alpha=decay)
            parts = self.parts(sender.shapes[name])
            cut = sum(parts)
            pieces = [self._compressed(part, draw) for part in torch.split(wanted[:cut], parts)] if parts else []
            if cut < len(wanted):
                pieces.append(wanted[cut:])
            compressed = pieces[0] if len(pieces) == 1 else torch.cat(pieces)
            squared += float(torch.linalg.vector_norm(wanted)) ** 2
            if compressed.data_ptr() == wanted.data_ptr():  # compress has returned its argument
                compressed = compressed.clone()
            left_out = wanted.sub_(compressed)
            squared_error += float(torch.linalg.vector_norm(left_out)) ** 2
            sent[name] = compressed
            if self.memory == "client":
                state[ERROR + name] = left_out
        measures = {"compress/error": squared_error / squared if squared else 0.0}
        float_bytes = FLOAT * sum(map(len, displacements.values()))
        compressed_bytes = sum(self.upload_bytes(sender.shapes[name]) for name in displacements)
        measures["compress/ratio"] = float_bytes / compressed_bytes if compressed_bytes else 1.0
        if self.memory == "client":
            measures["compress/memory_norm"] = squared_error**0.5
        return Sent(sent, state, measures)

    def _compressed(self, vector: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
        before = vector._version
        compressed = self.compress(vector, draw)
        check_compressed(self, compressed, vector, before)
        return compressed
