"""A text model of transformers as a function of symbols (imported where one is built: it needs torch at import)."""

from __future__ import annotations

from typing import Any

import torch


class TextNetwork(torch.nn.Module):
    """Symbols int64 ``[B, length]`` to the model's logits.

    Args:
        model: a model of transformers.
        padding: the symbol that the model does not attend to; None: it attends to all symbols.
    """

    def __init__(self, model: Any, padding: int | None) -> None:
        super().__init__()
        self.model = model
        self.padding = padding

    def forward(self, symbols: torch.Tensor) -> torch.Tensor:
        mask = None if self.padding is None else (symbols != self.padding).long()
        logits: torch.Tensor = self.model(input_ids=symbols, attention_mask=mask).logits
        return logits
