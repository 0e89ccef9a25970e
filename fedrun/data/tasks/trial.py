"""A trial of a task on two samples: whether its methods return what their docstrings say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedrun.data.tasks.base import SampleResults, Task
from fedrun.data.tasks.metric_names import APART, ENDINGS_APART, measures
from fedrun.system.errors import InputError, one_line


def check_task(task: Task, targets: torch.Tensor, output_shape: tuple[int, ...], outputs: int) -> None:
    """Reject a task, such as a user's, with wrong measures or whose methods return wrong shapes.

    Args:
        task: task of the dataset.
        targets: targets of some samples, ``[B, ...]``.
        output_shape: shape of a model's outputs for a sample.
        outputs: k, see :meth:`Task.output_shape`.

    Raises:
        InputError: naming the task's class and its method.
    """
    if not task.measures or measures(f"test/{name}" for name in task.measures) != list(task.measures):
        raise InputError(
            f"{task.name}.measures: {', '.join(task.measures) or 'none'}; allowed: different names without a slash, "
            f"other than {', '.join(APART)}, and not ending in {', '.join(ENDINGS_APART)}"
        )
    logits = torch.zeros(len(targets), *output_shape)
    shapes = f"outputs {_shape(logits)}, as its output_shape says, with targets {_shape(targets)}"
    with _calling(f"{task.name}: rejects {shapes}"):
        with torch.enable_grad():
            differentiable = task.loss(logits.clone().requires_grad_(), targets)
        _require_one_each("loss", task, differentiable, targets)
        losses, predictions = differentiable.detach(), task.predictions(logits)
        if not differentiable.requires_grad:
            raise InputError(
                f"{task.name}.loss: returned losses without a gradient; allowed: losses computed from the outputs"
            )
        if not isinstance(predictions, torch.Tensor) or predictions.shape[:1] != targets.shape[:1]:
            raise InputError(f"{task.name}.predictions: returned {_shape(predictions)}; allowed: [{len(targets)}, ...]")
        _require_one_each("scores", task, task.scores(predictions, targets), targets)
        if (weights := task.weights(targets)) is not None:
            _require_one_each("weights", task, weights, targets)
        drawn = torch.randn(logits.shape, generator=torch.Generator().manual_seed(0))
        together, alone = task.loss(drawn, targets)[:1], task.loss(drawn[:1], targets[:1])
        _require_one_each("loss", task, alone, targets[:1])
        if not torch.allclose(together, alone, rtol=1e-3, atol=1e-5, equal_nan=True):
            raise InputError(
                f"{task.name}.loss: the loss of a sample depends on the other samples of its batch, so that results "
                "would depend on how samples are divided into batches; allowed: the loss of each sample alone"
            )
        _check_means(task, drawn, targets)
    with _calling(
        f"{task.name}.metrics: fails for {len(targets)} samples", "; allowed: NaN where a metric is not defined"
    ):
        SampleResults(losses, predictions, targets, task).metrics(outputs)


def _check_means(task: Task, outputs: torch.Tensor, targets: torch.Tensor) -> None:
    """Reject means of a batch's losses other than those with the task's weights: where the losses of several clients
    or of single samples are computed together, their means are computed in another way.
    """
    losses = task.loss(outputs, targets)
    mean = Task.mean_of(task, losses, targets)
    for method, own in (("mean_loss", task.mean_loss(outputs, targets)), ("mean_of", task.mean_of(losses, targets))):
        if own.shape != () or not torch.allclose(own, mean, rtol=1e-3, atol=1e-5, equal_nan=True):
            raise InputError(
                f"{task.name}.{method}: returned {_shape(own) if own.shape else f'{own:.4g}'} for losses whose mean is "
                f"{mean:.4g}; allowed: the mean with the task's weights; another loss belongs in its loss, other "
                "weights in its weights"
            )


@contextmanager
def _calling(problem: str, allowed: str = "") -> Iterator[None]:
    """Report an error of the task's methods in the block in one line.

    Args:
        problem: begins the message; the error follows in brackets.
        allowed: ends it.

    Raises:
        InputError: there was an error, of which it is raised.
    """
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:  # of any kind, because the task is the user's; the message has it
        raise InputError(f"{problem} ({type(error).__name__}: {one_line(str(error), 200)}){allowed}") from error


def _require_one_each(method: str, task: Task, returned: object, targets: torch.Tensor) -> None:
    if not isinstance(returned, torch.Tensor) or returned.shape != (len(targets),):
        samples = "one sample" if len(targets) == 1 else f"{len(targets)} samples"
        raise InputError(f"{task.name}.{method}: returned {_shape(returned)} for {samples}; allowed: a number for each")


def _shape(returned: object) -> str:
    """The type of a tensor's entries and its shape; of anything else its type."""
    if not isinstance(returned, torch.Tensor):
        return type(returned).__name__
    return f"{str(returned.dtype).removeprefix('torch.')} {list(returned.shape)}"
