"""Several trackers at once."""

from __future__ import annotations

from fedrun.config.config_class import config_class
from fedrun.experiment.observer import Observer
from fedrun.experiment.tracking import Tracking


@config_class
class Several(Tracking):
    """Record a run with up to three trackers. ``tracking@tracking.mlflow=mlflow`` chooses an option for one of them.

    Attributes:
        wandb: the first one; default: W&B.
        tensorboard: the second one; default: TensorBoard.
        mlflow: the third one; default: none.
    """

    wandb: Tracking
    tensorboard: Tracking
    mlflow: Tracking

    def observers(self) -> list[Observer]:
        """The observers of all trackers."""
        return [observer for each in (self.wandb, self.tensorboard, self.mlflow) for observer in each.observers()]
