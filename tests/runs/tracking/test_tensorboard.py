import dataclasses

import PIL.Image
import pytest

from fedrun.config.build import option

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def events(folder):
    read = accumulator.EventAccumulator(str(folder / "tensorboard"))
    read.Reload()
    return read


def test_rows_are_scalars_and_the_curves_an_image(run_info, tmp_path):
    PIL.Image.new("RGB", (4, 3)).save(tmp_path / "curves.png")
    observer = option("tracking", "tensorboard").observer()
    observer.on_start(run_info())
    observer.on_row({"round": 0, "test/accuracy": 0.25, "train/loss": None})
    observer.on_row({"round": 10, "test/accuracy": 0.75, "test/loss": float("nan")})
    observer.on_end({})
    observer.close()
    read = events(tmp_path)
    assert [(event.step, event.value) for event in read.Scalars("test/accuracy")] == [(0, 0.25), (10, 0.75)]
    assert read.Tags()["scalars"] == ["test/accuracy"]
    (image,) = read.Images("curves")
    assert (image.width, image.height, image.step) == (4, 3, 10)
    (settings,) = read.Tensors("settings/text_summary")
    assert b"| strategy.server.lr | 1.0 |" in settings.tensor_proto.string_val[0]


def test_a_resumed_run_has_the_rows_of_its_history(run_info, tmp_path):
    """Whatever an earlier session wrote: rows after the checkpoint, or none, as with another tracker."""
    killed = option("tracking", "tensorboard", plots=False).observer()
    killed.on_start(run_info())
    for round in range(4):
        killed.on_row({"round": round, "test/accuracy": 0.5})
    killed.close()
    history = tuple({"round": round, "test/accuracy": 0.5} for round in range(2))
    resumed = option("tracking", "tensorboard", plots=False).observer()
    resumed.on_start(run_info(history=history))
    resumed.on_row({"round": 2, "test/accuracy": 0.25})
    resumed.close()
    steps = [(event.step, event.value) for event in events(tmp_path).Scalars("test/accuracy")]
    assert steps == [(0, 0.5), (1, 0.5), (2, 0.25)]


def test_a_run_that_starts_over_forgets_what_was(run_info, tmp_path):
    for value in (0.5, 0.25):
        observer = option("tracking", "tensorboard", plots=False).observer()
        observer.on_start(dataclasses.replace(run_info(), folder=tmp_path))
        observer.on_row({"round": 1, "test/accuracy": value})
        observer.close()
    assert [event.value for event in events(tmp_path).Scalars("test/accuracy")] == [0.25]
