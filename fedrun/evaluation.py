"""Evaluate once, report per sample: every metric is a sum over the same per-sample losses and predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass as value
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt, Le
from pydantic.dataclasses import dataclass

from fedrun.federation import Shares
from fedrun.metrics.classification import accuracy, confusion_matrix, macro_f1, matthews
from fedrun.parameters import FlatNetwork
from fedrun.precision import Precision, computing
from fedrun.recipe import STRICT
from fedrun.training import Samples


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Evaluation:
    """When and how the global model is evaluated.

    Attributes:
        every: evaluate after every this many rounds (and before the first, and after the last).
        batch_size: samples per forward pass; it changes speed and memory, not results beyond rounding. With
            ``adaptive`` it is also the step in which samples are drawn, and so changes how many a model is judged by.
        precision: of the global models' evaluation. ``bfloat16``: products of numbers with 8 significant bits, faster
            where the machine has instructions for it; losses then differ from the third digit on, and a few predictions
            with them. Models that clients have trained for themselves are always evaluated in float32.
        train_clients: at the end of a run, also evaluate the final model on every training client's own samples, for
            ``clients.parquet``. ``auto``: where the run has trained on three times as many samples or more, so that
            this takes no more than a ninth of that time.
        adaptive: test a model only until it is clear that it has not reached the lowest target that is still to be
            reached; the last round's is tested fully. Rounds to the targets are those of full evaluations. Other
            metrics are known where an evaluation was full; where it was not, there is ``test/accuracy_estimate``.
        full_every: with ``adaptive``, test fully after every this many rounds, too; None: do not.
        miss_probability: with ``adaptive``, of overlooking the round that first reaches a target, for each target of a
            run; 0: never, at many times the cost.
        tuning_steps: also evaluate every client after it has adapted the model by this many SGD steps on its own
            training samples; 0: do not.
        tuning_lr: learning rate of those steps; None: ``local.lr``.
        client_means: also test the mean of the models that the last round's participants have sent, weighted as the
            server half weighs them, and the plain mean of those that all clients have last sent (the initial model, for
            those that have not taken part). Servers such as FedDyn's move the global model beyond them. Only FedAvg's,
            FedDyn's, FedDC's and FedUmf's can tell the former. Every client that has taken part is remembered by a
            model.
    """

    every: Annotated[int, Ge(1)]
    batch_size: Annotated[int, Ge(1)]
    precision: Precision
    train_clients: bool | Literal["auto"]
    adaptive: bool
    full_every: Annotated[int, Ge(1)] | None
    miss_probability: Annotated[float, Ge(0), Le(0.01)]
    tuning_steps: Annotated[int, Ge(0)]
    tuning_lr: Annotated[float, Gt(0)] | None
    client_means: bool


@value(frozen=True)
class SampleResults:
    """One model's results on some samples, in their order.

    Attributes:
        losses: cross-entropy, float32 ``[n]``.
        predictions: int64 ``[n]``, the arg max of the logits, the lowest class on ties.
        targets: int64 ``[n]``.
    """

    losses: torch.Tensor
    predictions: torch.Tensor
    targets: torch.Tensor


def evaluate(
    network: FlatNetwork, samples: Samples, indices: torch.Tensor, batch_size: int, precision: Precision = "float32"
) -> SampleResults:
    """Run the loaded model over samples (sample numbers, int64 ``[n]``) in evaluation mode."""
    module = network.network.eval()
    with torch.no_grad(), computing(precision, samples.device):
        return _results(lambda encoded: module(encoded).float(), samples, indices, batch_size)


def ensemble(
    network: FlatNetwork,
    models: Sequence[torch.Tensor],
    samples: Samples,
    indices: torch.Tensor,
    batch_size: int,
    precision: Precision = "float32",
) -> SampleResults:
    """The results of several models ``[P]`` whose logits are summed, otherwise as :func:`evaluate`.

    That is also what the models' encoders side by side do, with their heads side by side and the sum of the biases.
    """
    module = network.network.eval()

    def summed(encoded: torch.Tensor) -> torch.Tensor:
        logits = torch.zeros(len(encoded), network.layout.classes, device=samples.device)
        for model in models:
            network.load(model)
            with computing(precision, samples.device):
                logits += module(encoded).float()
        return logits

    with torch.no_grad():
        return _results(summed, samples, indices, batch_size)


def _results(
    logits_of: Callable[[torch.Tensor], torch.Tensor], samples: Samples, indices: torch.Tensor, batch_size: int
) -> SampleResults:
    """The results of what gives logits ``[B, classes]`` for encoded samples ``[B, ...]``, batch by batch."""
    losses, predictions, targets = [], [], []
    for batch in torch.split(indices, batch_size):
        inputs, labels = samples.gather(batch)
        logits = logits_of(samples.encoding(inputs))
        losses.append(torch.nn.functional.cross_entropy(logits, labels, reduction="none"))
        predictions.append(logits.argmax(1))
        targets.append(labels)
    return SampleResults(torch.cat(losses).cpu(), torch.cat(predictions).cpu(), torch.cat(targets).cpu())


def joined(parts: Sequence[SampleResults]) -> SampleResults:
    """Results on several sets of samples, one after the other."""
    return SampleResults(
        torch.cat([part.losses for part in parts]),
        torch.cat([part.predictions for part in parts]),
        torch.cat([part.targets for part in parts]),
    )


def pooled_metrics(results: SampleResults, classes: int) -> dict[str, float]:
    """Loss, accuracy, macro-F1 and MCC over all the samples together."""
    confusion = confusion_matrix(results.targets, results.predictions, classes)
    return {
        "loss": results.losses.double().mean().item(),
        "accuracy": accuracy(confusion),
        "f1": macro_f1(confusion),
        "mcc": matthews(confusion),
    }


def per_holder(results: SampleResults, shares: Shares) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean loss and accuracy of each holder, float64 ``[holders]``, NaN for one without samples.

    ``results`` must be those of ``shares.samples``, in that order.
    """
    sizes = shares.sizes.double()
    holder = torch.repeat_interleave(torch.arange(len(shares)), shares.sizes)
    zeros = torch.zeros(len(shares), dtype=torch.float64)
    losses = zeros.index_add(0, holder, results.losses.double())
    correct = zeros.index_add(0, holder, (results.predictions == results.targets).double())
    return losses / sizes, correct / sizes
