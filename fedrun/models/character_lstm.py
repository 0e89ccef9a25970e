"""An LSTM that reads symbols (imported only where a network is built: it needs torch at import)."""

from __future__ import annotations

from contextlib import nullcontext

import torch

from fedrun.data.datasets.base import Spec


class CharacterLSTM(torch.nn.Module):
    """Symbol numbers int64 ``[batch, length]`` to states of the top layer.

    This is the state after the last symbol that is not padding, ``[batch, d]``; for a task of symbols it is the state
    after every symbol, ``[batch, length, d]``.
    """

    def __init__(self, spec: Spec, symbol_dim: int, hidden: int, layers: int) -> None:
        super().__init__()
        assert spec.vocabulary is not None
        self.symbols = torch.nn.Embedding(spec.vocabulary, symbol_dim)
        self.lstm = torch.nn.LSTM(symbol_dim, hidden, num_layers=layers, batch_first=True)
        self._per_symbol, self._padding = spec.task.per_symbol, spec.padding

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        states: torch.Tensor
        # on CPUs always in float32: not all of them have an LSTM in bfloat16
        with torch.autocast("cpu", enabled=False) if torch.is_autocast_enabled("cpu") else nullcontext():
            states, (hidden, _) = self.lstm(self.symbols(text))
        if self._per_symbol:
            return states
        if self._padding is None:
            last: torch.Tensor = hidden[-1]
            return last
        lengths = (text != self._padding).sum(1).clamp_min(1)
        return states[torch.arange(len(text), device=text.device), lengths - 1]
