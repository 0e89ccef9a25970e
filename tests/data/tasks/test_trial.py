"""A user's task is tried on two samples before a run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from fedrun.data.tasks.base import SampleResults
from fedrun.data.tasks.classification import Classification
from fedrun.data.tasks.metric_names import lower_is_better, measures, recorded_score
from fedrun.data.tasks.regression import Regression
from fedrun.data.tasks.symbols import LanguageModelling
from fedrun.data.tasks.trial import check_task
from fedrun.runs.display import wording
from fedrun.system.errors import InputError


@dataclass(frozen=True)
class Mean(Classification):
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().loss(outputs, targets).mean()


@dataclass(frozen=True)
class Wrong(Classification):
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (outputs.argmax(1) != targets).float()


@dataclass(frozen=True)
class Centred(Classification):
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().loss(outputs - outputs.mean(0), targets)


@dataclass(frozen=True)
class Squeezed(Classification):
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().loss(outputs, targets).squeeze()


@dataclass(frozen=True)
class PerClass(Classification):
    def scores(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(targets), 3)


@dataclass(frozen=True)
class Three(Classification):
    def weights(self, targets: torch.Tensor) -> torch.Tensor:
        return torch.ones(3)


@dataclass(frozen=True)
class Doubled(Classification):
    def mean_loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return 2 * super().mean_loss(outputs, targets)


@dataclass(frozen=True)
class Worst(Classification):
    def mean_of(self, losses: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return losses.max()


@dataclass(frozen=True)
class Uneven(Classification):
    """Class 2 counts three times; its mean loss is one fused call."""

    def weights(self, targets: torch.Tensor) -> torch.Tensor:
        return torch.where(targets == 2, 3.0, 1.0)

    def mean_loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(outputs, targets, torch.tensor([1.0, 1.0, 3.0]))


@dataclass(frozen=True)
class Fewer(Classification):
    def metrics(self, results: SampleResults, outputs: int) -> dict[str, float]:
        return {"accuracy": 1.0}


@dataclass(frozen=True)
class Loss(Classification):
    measures: ClassVar[tuple[str, ...]] = ("accuracy", "loss")


@dataclass(frozen=True)
class Evaluated(Classification):
    measures: ClassVar[tuple[str, ...]] = ("evaluated", "f1_of_all")


@dataclass(frozen=True)
class None_(Classification):  # noqa: N801
    measures: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True)
class Undefined(Classification):
    def metrics(self, results: SampleResults, outputs: int) -> dict[str, float]:
        raise ValueError("Only one class is present")


def returning(method: str, returned: object) -> Classification:
    """A task one of whose methods returns this, such as None for a forgotten ``return``."""
    return type("Forgetful", (Classification,), {method: lambda self, *arguments: returned})()


@pytest.mark.parametrize(
    ("method", "returned", "message"),
    [
        ("loss", None, "loss: returned NoneType for 2 samples; allowed: a number for each"),
        ("predictions", None, "predictions: returned NoneType; allowed: [2, ...]"),
        ("scores", [True, False], "scores: returned list for 2 samples; allowed: a number for each"),
        ("metrics", 0.5, "metrics: returned a float; allowed: the metrics of its measures, accuracy, f1, mcc"),
    ],
)
def test_other_types_than_tensors(method: str, returned: object, message: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(f'Forgetful.{message}')}$"):
        check_task(returning(method, returned), torch.tensor([0, 2]), (3,), 3)


@dataclass(frozen=True)
class Wide(Classification):
    def output_shape(self, input_shape: tuple[int, ...], outputs: int) -> tuple[int, ...]:
        return (outputs, 7)


ALLOWED = (
    "allowed: different names without a slash, other than loss, evaluated, attack_success, and not ending in "
    "_estimate, _of_participants, _of_all"
)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (Mean(), "Mean.loss: returned float32 [] for 2 samples; allowed: a number for each"),
        (Wrong(), "Wrong.loss: returned losses without a gradient; allowed: losses computed from the outputs"),
        (Centred(), "Centred.loss: the loss of a sample depends on the other samples of its batch, so that results "),
        (Squeezed(), "Squeezed.loss: returned float32 [] for one sample; allowed: a number for each"),
        (PerClass(), "PerClass.scores: returned float32 [2, 3] for 2 samples; allowed: a number for each"),
        (Three(), "Three.weights: returned float32 [3] for 2 samples; allowed: a number for each"),
        (Doubled(), "Doubled.mean_loss: returned "),
        (Worst(), "Worst.mean_loss: returned "),
        (Fewer(), "Fewer.metrics: returned accuracy; allowed: the metrics of its measures, accuracy, f1, mcc"),
        (Loss(), f"Loss.measures: accuracy, loss; {ALLOWED}"),
        (Evaluated(), f"Evaluated.measures: evaluated, f1_of_all; {ALLOWED}"),
        (
            Undefined(),
            "Undefined.metrics: fails for 2 samples (ValueError: Only one class is present); allowed: NaN where ",
        ),
        (None_(), f"None_.measures: none; {ALLOWED}"),
        (
            Wide(),
            "Wide: rejects outputs float32 [2, 3, 7], as its output_shape says, with targets int64 [2] (RuntimeError: ",
        ),
    ],
)
def test_what_is_rejected(task: Classification, message: str) -> None:
    with pytest.raises(InputError) as error:
        check_task(task, torch.tensor([0, 2]), task.output_shape((4,), 3), 3)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("task", "targets", "outputs"),
    [
        (Classification(), torch.tensor([0, 2]), 3),
        (Uneven(), torch.tensor([0, 2]), 3),
        (Regression(), torch.rand(2, 3), 3),
        (LanguageModelling(), torch.randint(3, (2, 4)), 3),
    ],
)
def test_what_is_allowed(task: Classification, targets: torch.Tensor, outputs: int) -> None:
    check_task(task, targets, task.output_shape((4,), outputs), outputs)


def test_a_tasks_metrics_among_those_of_a_row() -> None:
    row = ["round", "test/loss", "test/dice", "test/hausdorff_error", "test/dice_of_all", "test/attack_success"]
    more = ["train/dice", "clients/dice_mean", "clients/tuned_dice_std", "clients/participants", "cost/params_up"]
    assert measures(row + more) == ["dice", "hausdorff_error"]
    assert recorded_score(row) == "dice"
    assert lower_is_better("test/hausdorff_error") and not lower_is_better("test/dice")
    assert wording.in_order(row + more) == [
        "test/dice",
        "test/hausdorff_error",
        "test/loss",
        "test/attack_success",
        "test/dice_of_all",
        "train/dice",
        "clients/dice_mean",
        "clients/tuned_dice_std",
    ]
    assert wording.name("clients/tuned_dice_std") == "clients tuned std of dice"
    assert wording.value("test/dice", 0.5) == "0.5000"
