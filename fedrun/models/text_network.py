"""A text model of transformers as a function of symbols (imported where one is built: it needs torch at import)."""

from __future__ import annotations

from typing import Any

import torch


class TextNetwork(torch.nn.Module):
    """Symbols int64 ``[B, length]`` to the model's logits.

    Args:
        model: a model of transformers.
        padding: the symbol that the model does not attend to; None: it attends to all symbols.
        first_position: the number of the first position, if positions are passed to the model; None: it counts them.
    """

    def __init__(self, model: Any, padding: int | None, first_position: int | None) -> None:
        super().__init__()
        self.model = model
        self.padding = padding
        self.first_position = first_position

    def forward(self, symbols: torch.Tensor) -> torch.Tensor:
        mask = None if self.padding is None else (symbols != self.padding).long()
        positions = {}
        if self.first_position is not None:
            last = self.first_position + symbols.shape[-1]
            positions["position_ids"] = torch.arange(self.first_position, last, device=symbols.device).expand_as(
                symbols
            )
        logits: torch.Tensor = self.model(input_ids=symbols, attention_mask=mask, **positions).logits
        return logits
