import dataclasses
import multiprocessing
import socket
from pathlib import Path

import pytest

from fedrun.config.build import option
from fedrun.runs.tracking.mlflow import RETRIES

mlflow = pytest.importorskip("mlflow")


def test_rows_settings_and_files_are_recorded_and_a_resumed_run_goes_on(run_info, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MLflow puts files into ./mlruns
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    tracking = option("tracking", "mlflow", uri=uri, tags=["a"], artifacts=["clients"])
    info = dataclasses.replace(run_info(), sweep="today")
    (tmp_path / "clients.parquet").write_bytes(b"clients")
    history = [{"round": 0, "test/accuracy": 0.0}, {"round": 1, "test/accuracy": 0.25}]
    for round in (1, 2):
        observer = tracking.observer()
        observer.on_start(dataclasses.replace(info, history=tuple(history[:round])))
        observer.on_row({"round": round, "test/accuracy": round / 4, "train/loss": None, "test/loss": float("nan")})
        if round == 2:
            observer.on_end({})
        observer.close()
    client = mlflow.tracking.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("fedrun")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("turbosvm femnist local.lr=0.2 seed=3", "FINISHED")
    assert (run.data.params["strategy"], run.data.params["strategy.server.lr"]) == ("turbosvm", "1.0")
    assert (run.data.tags["group"], run.data.tags["a"]) == ("today", "true")
    history = client.get_metric_history(run.info.run_id, "test/accuracy")
    assert [(metric.step, metric.value) for metric in history] == [(0, 0.0), (1, 0.25), (2, 0.5)]
    assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["clients.parquet"]


def test_a_server_that_does_not_answer_is_given_up_soon(run_info, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "0")
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", raising=False)
    with socket.socket() as taken:
        taken.bind(("localhost", 0))  # and nothing listens
        tracking = option("tracking", "mlflow", uri=f"http://localhost:{taken.getsockname()[1]}")
        with pytest.raises(mlflow.MlflowException, match=r"Max retries exceeded"):
            tracking.observer().on_start(run_info())
    assert mlflow.environment_variables.MLFLOW_HTTP_REQUEST_MAX_RETRIES.get() == int(RETRIES)


def record(tracking, info, begin):
    begin.wait()
    tracking.observer().on_start(info)


def test_jobs_that_begin_together_can_all_open_a_new_store(run_info, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tracking, processes) = option("tracking", "mlflow", uri="sqlite:///mlflow.db"), multiprocessing.get_context("fork")
    begin = processes.Barrier(3)
    jobs = [
        processes.Process(target=record, args=(tracking, dataclasses.replace(run_info(), tracking_id=str(job)), begin))
        for job in range(3)
    ]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert [job.exitcode for job in jobs] == [0, 0, 0]
    assert Path("mlflow.db").exists()
