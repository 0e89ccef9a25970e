"""MLflow: an observer that records a run's settings, rows and files."""

from __future__ import annotations

import fcntl
import math
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrun.config.config_class import config_class
from fedrun.experiment.observer import Observer, Row, RunInfo, round_of
from fedrun.experiment.tracking import Tracking
from fedrun.runs.tracking.settings import FILES, Artifact, flat_settings, run_name
from fedrun.system.extras import require_package

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

ID = "fedrun.id"
"""The tag by which a resumed run finds its record."""

PARAMETERS_AT_ONCE, LONGEST = 100, 500
"""MLflow's limits: parameters of one call, and characters of one parameter."""

RETRIES = "3"
"""How often a request is repeated, unless the user's environment says otherwise. MLflow's own 7 make a run wait four
minutes for a server that does not answer.
"""


@config_class
class MLflow(Tracking):
    """Record a run at an MLflow server or in its file store.

    Attributes:
        uri: address of the server or the store; None: ``MLFLOW_TRACKING_URI``, or MLflow's own default.
        experiment: MLflow's experiment; it is created if it does not exist.
        tags: tags of the run.
        artifacts: which of the run's files are recorded at the end.
    """

    uri: str | None
    experiment: str
    tags: tuple[str, ...]
    artifacts: tuple[Artifact, ...]

    def observer(self) -> MLflowObserver:
        """The observer of one run.

        Raises:
            InputError: MLflow is not installed.
        """
        require_package("mlflow", "mlflow", "tracking=mlflow")
        return MLflowObserver(self)


class MLflowObserver(Observer):
    """Records a run through MLflow's client. If the server fails, it raises, and the run continues without it."""

    def __init__(self, settings: MLflow) -> None:
        self._settings = settings
        self._client: MlflowClient | None = None
        self._id = ""
        self._folder = Path()
        self._completed = False

    def on_start(self, run: RunInfo) -> None:
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", RETRIES)
        self._folder = run.folder
        name = self._settings.experiment
        with _alone():
            client = MlflowClient(tracking_uri=self._settings.uri)
            experiment = client.get_experiment_by_name(name)
            experiment_id = client.create_experiment(name) if experiment is None else experiment.experiment_id
        earlier = client.search_runs([experiment_id], f"tags.`{ID}` = '{run.tracking_id}'")
        if earlier:
            self._id = earlier[0].info.run_id
            client.update_run(self._id, status="RUNNING")
        else:
            tags = {ID: run.tracking_id, "group": run.sweep or run.group, **dict.fromkeys(self._settings.tags, "true")}
            self._id = client.create_run(experiment_id, tags=tags, run_name=run_name(run)).info.run_id
            parameters = [Param(key, str(value)[:LONGEST]) for key, value in flat_settings(run).items()]
            for begin in range(0, len(parameters), PARAMETERS_AT_ONCE):
                client.log_batch(self._id, params=parameters[begin : begin + PARAMETERS_AT_ONCE])
        self._client = client
        sent = earlier[0].data.metrics.get("round", -1) if earlier else -1
        for row in run.history:  # sessions without this tracker have made some
            if round_of(row) > sent:
                self.on_row(row)

    def on_row(self, row: Row) -> None:
        from mlflow.entities import Metric

        assert self._client is not None
        step, now = round_of(row), int(1000 * time.time())
        known = {key: value for key, value in row.items() if value is not None and math.isfinite(value)}
        self._client.log_batch(self._id, metrics=[Metric(key, value, now, step) for key, value in known.items()])

    def on_end(self, summary: Mapping[str, Any]) -> None:
        if self._client is None:
            return
        self._completed = True
        for artifact in self._settings.artifacts:
            for name in FILES[artifact]:
                self._client.log_artifact(self._id, str(self._folder / name))

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.set_terminated(self._id, "FINISHED" if self._completed else "KILLED")


@contextmanager
def _alone() -> Iterator[None]:
    """A block that one of this user's processes runs at a time: MLflow creates a store's tables without a lock, and
    rejects the second of two experiments with the same name, as for parallel jobs.
    """
    lock = Path(tempfile.gettempdir()) / f"fedrun-mlflow-{os.getuid()}.lock"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
