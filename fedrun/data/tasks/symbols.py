"""One class for every symbol of a text: tags of symbols, or the next symbol."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from fedrun.data.tasks.base import SampleResults, Task, require_shape
from fedrun.data.tasks.classification import require_classes
from fedrun.data.tasks.confusion import accuracy, confusion_matrix, macro_f1

IGNORED = -100
"""The target of a symbol that is ignored, such as padding."""


@dataclass(frozen=True)
class TokenClassification(Task):
    """Targets are a class for every symbol, int64 ``[n, length]`` in 0 to k − 1, or :data:`IGNORED`.

    A sample's loss and score are means over its symbols that are not ignored. Means over samples weight each sample by
    the number of these symbols, so that they are means over symbols. Outputs may be shorter than the targets if the
    rest of every text of a batch is padding. Metrics: token accuracy, macro-F1 over symbols.
    """

    measures: ClassVar[tuple[str, ...]] = ("token_accuracy", "f1")
    per_symbol: ClassVar[bool] = True

    def output_shape(self, input_shape: tuple[int, ...], outputs: int) -> tuple[int, ...]:
        return (*input_shape, outputs)

    def check_targets(self, targets: torch.Tensor, outputs: int, where: str) -> None:
        require_shape(targets, (None,), "a class for every symbol", where)
        require_classes(targets[targets != IGNORED], outputs, where)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        targets = targets[:, : outputs.shape[1]]
        losses = torch.nn.functional.cross_entropy(
            outputs.flatten(0, 1), targets.flatten(), reduction="none", ignore_index=IGNORED
        )
        return losses.view(targets.shape).sum(1) / (targets != IGNORED).sum(1).clamp_min(1)

    def weights(self, targets: torch.Tensor) -> torch.Tensor:
        return (targets != IGNORED).sum(-1).float()

    def predictions(self, outputs: torch.Tensor) -> torch.Tensor:
        return outputs.argmax(-1)

    def scores(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        targets = targets[:, : predictions.shape[1]]
        return (predictions == targets).sum(1) / (targets != IGNORED).sum(1).clamp_min(1)

    def metrics(self, results: SampleResults, outputs: int) -> dict[str, float]:
        counted = results.targets != IGNORED
        confusion = confusion_matrix(results.targets[counted], results.predictions[counted], outputs)
        return {"token_accuracy": accuracy(confusion), "f1": macro_f1(confusion)}


@dataclass(frozen=True)
class LanguageModelling(TokenClassification):
    """The class of a symbol is the symbol that follows it. Metrics: token accuracy, perplexity."""

    measures: ClassVar[tuple[str, ...]] = ("token_accuracy", "perplexity")

    def metrics(self, results: SampleResults, outputs: int) -> dict[str, float]:
        loss, counted = results.mean_loss, results.targets != IGNORED
        # counted, because the rounded scores of texts may miss a target that is reached exactly
        correct, symbols = int((results.predictions == results.targets)[counted].sum()), int(counted.sum())
        # exp of the mean loss per symbol; infinite beyond float64
        perplexity = math.exp(loss) if loss < 700 else math.inf if loss == loss else math.nan
        return {"token_accuracy": correct / symbols if symbols else math.nan, "perplexity": perplexity}
