"""LEAF's network for the next character."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Spec
from fedrun.models.base import ModelConfig, encoder_and_head, require_text


@config_class
class LeafShakespeareLSTM(ModelConfig):
    """A symbol embedding, a stack of LSTM layers, and a head that reads the last time step (LEAF; TurboSVM-FL).

    For a task of symbols the head reads every time step.

    819 920 parameters with LEAF's widths and 80 symbols (PyTorch's LSTM has two bias vectors per layer; with one it
    would have 817 872).

    Attributes:
        symbol_dim: length of a symbol's learnt embedding; 8 in LEAF.
        embedding_dim: d, hidden units of each LSTM layer; 256 in LEAF.
        layers: number of LSTM layers; 2 in LEAF.
    """

    symbol_dim: Annotated[int, Ge(1)]
    embedding_dim: Annotated[int, Ge(1)]
    layers: Annotated[int, Ge(1)]
    reads_any_length: ClassVar[bool] = True

    def check(self, spec: Spec) -> None:
        require_text("leaf_shakespeare_lstm", spec)

    def build(self, spec: Spec) -> torch.nn.Sequential:
        from fedrun.models.character_lstm import CharacterLSTM

        encoder = CharacterLSTM(spec, self.symbol_dim, self.embedding_dim, self.layers)
        return encoder_and_head(encoder, torch.nn.Linear(self.embedding_dim, spec.classes))
