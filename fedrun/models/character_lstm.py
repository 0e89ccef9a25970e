"""An LSTM that reads symbols (imported only where a network is built: it needs torch at import)."""

from __future__ import annotations

import torch


class CharacterLSTM(torch.nn.Module):
    """Symbol numbers int64 ``[batch, length]`` to the top layer's state after the last symbol, ``[batch, d]``."""

    def __init__(self, vocabulary: int, symbol_dim: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.symbols = torch.nn.Embedding(vocabulary, symbol_dim)
        self.lstm = torch.nn.LSTM(symbol_dim, hidden, num_layers=layers, batch_first=True)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        _, (hidden, _) = self.lstm(self.symbols(text))
        last: torch.Tensor = hidden[-1]
        return last
