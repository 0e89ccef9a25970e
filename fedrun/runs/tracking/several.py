"""Several trackers at once."""

from __future__ import annotations

from fedrun.config.config_class import config_class
from fedrun.experiment.observer import Observer
from fedrun.experiment.tracking import Tracking


@config_class
class Several(Tracking):
    """Record a run at up to three places. ``tracking@tracking.mlflow=mlflow`` chooses an option for one of them.

    Attributes:
        wandb: the first one, W&B if nothing else is chosen.
        tensorboard: likewise TensorBoard.
        mlflow: none if nothing is chosen.
    """

    wandb: Tracking
    tensorboard: Tracking
    mlflow: Tracking

    def observers(self) -> list[Observer]:
        """Those of all."""
        return [observer for each in (self.wandb, self.tensorboard, self.mlflow) for observer in each.observers()]
