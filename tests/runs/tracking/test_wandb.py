import dataclasses
import json
import logging
import struct
import subprocess
import sys
import tempfile
import time

import PIL.Image
import pytest

from fedrun.config.build import option
from fedrun.config.config_class import ArgumentError
from fedrun.runs.observers import Observers
from fedrun.runs.tracking.wandb import Tracking, WandbObserver, known_key

SUMMARY = {
    "rounds_to": {"0.70": 2, "0.90": None},
    "best": {"test/accuracy": {"value": 0.8, "round": 2}, "test/loss": {"value": 0.5, "round": 1}},
}


def observing(mode, **changes):
    return WandbObserver(option("tracking", "wandb", mode=mode, **{"artifacts": [], **changes}))


@pytest.fixture(autouse=True)
def no_account(monkeypatch, tmp_path):
    """No key, no settings and no service of the person who runs the tests."""
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL", "WANDB_DIR", "WANDB_PROJECT", "WANDB_ENTITY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    # Nobody listens at the discard port: no test can reach the real service.
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    yield
    import wandb

    wandb.teardown()  # what it read from the environment is forgotten, too


def recorded(folder):
    """Every record of the offline sessions of a run in a folder.

    The file is 7 bytes and then a LevelDB log: blocks of 32 KiB, in them chunks of crc32 (4 bytes), length (2) and
    type (1: whole record, 2: first, 3: middle, 4: last part of one).
    """
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record

    wandb.teardown()  # returns when everything is written
    for path in sorted(folder.glob("wandb/offline-run-*/run-*.wandb")):
        data, at, parts = path.read_bytes(), 7, []
        while at < len(data):
            if (room := 32768 - at % 32768) < 7:
                at += room
                continue
            length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
            parts.append(data[at + 7 : at + 7 + length])
            at += 7 + length
            if kind in (1, 4):
                record = Record()
                record.ParseFromString(b"".join(parts))
                parts = []
                yield record


def warnings(caplog):
    own = [entry for entry in caplog.records if entry.name in ("fedrun.runs.observers", "fedrun.runs.tracking.wandb")]
    return [entry.getMessage() for entry in own if entry.levelno >= logging.WARNING]


def items(records):
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in records}


def test_every_row_is_sent_once_whichever_sessions_had_the_tracker(run_info, tmp_path):
    """Rounds 0 and 1, and later 3 and 4, are of sessions with another tracker."""
    history = [{"round": 0, "test/accuracy": 0.1}, {"round": 1, "test/accuracy": 0.2}]
    for row, others in (({"round": 2}, [{"round": 3}, {"round": 4}]), ({"round": 5}, []), ({"round": 6}, [])):
        time.sleep(1.1)  # W&B names its folders by the second
        observer = observing("offline")
        observer.on_start(run_info(history=tuple(history)))
        observer.on_row(row)
        observer.close()
        history += [row, *others]
    sent = [items(record.history.item)["round"] for record in recorded(tmp_path) if record.HasField("history")]
    assert sorted(sent) == [0, 1, 2, 3, 4, 5, 6]


def test_an_offline_run_holds_the_rows_the_summary_and_its_place(run_info, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    PIL.Image.new("RGB", (4, 3)).save(tmp_path / "curves.png")
    PIL.Image.new("RGB", (4, 3)).save(tmp_path / "federation.png")
    (tmp_path / "clients.parquet").write_bytes(b"clients")
    observer = observing("offline", artifacts=["plots", "clients"], tags=["a"], notes="why", job_type="train")
    observer.on_start(run_info())
    observer.on_row({"round": 1, "test/accuracy": 0.25, "train/loss": None})
    observer.on_row({"round": 10, "test/accuracy": 0.75, "test/loss": float("nan")})
    observer.on_end(SUMMARY)
    observer.close()
    records = list(recorded(tmp_path))
    (run,) = [record.run for record in records if record.HasField("run")]
    assert (run.run_id, run.run_group, run.display_name, run.project) == (
        "abc123",
        "runs/femnist/turbosvm/0f3a",
        "turbosvm femnist local.lr=0.2 seed=3",
        "fedrun",
    )
    settings = items(run.config.update)
    assert (settings["rounds"], settings["strategy"], settings["strategy.server.lr"]) == (100, "turbosvm", 1.0)
    assert (settings["targets"], settings["commit"]) == ("[0.5, 0.7]", "0123abc")
    rows = [items(record.history.item) for record in records if record.HasField("history")]
    assert [(row["_step"], row["round"], row["test/accuracy"]) for row in rows] == [(1, 1, 0.25), (10, 10, 0.75)]
    assert (list(run.tags), run.notes, run.job_type) == (["a"], "why", "train")
    assert {"curves.width", "federation.width"} <= set(rows[1])
    (artifact,) = [record.artifact for record in records if record.HasField("artifact")]
    assert (artifact.name, artifact.type) == ("clients-abc123", "clients")
    assert [entry.path for entry in artifact.manifest.contents] == ["clients.parquet"]
    assert "train/loss" not in rows[0]
    summary = {}
    for record in records:
        if record.HasField("summary"):
            summary |= items(record.summary.update)
    assert summary["rounds_to/0.70"] == 2
    assert summary["rounds_to/0.90"] is None
    assert (summary["best/test/accuracy"], summary["best_round/test/accuracy"]) == (0.8, 2)
    (ending,) = [record.exit.exit_code for record in records if record.HasField("exit")]
    assert ending == 0
    (folder,) = tmp_path.glob("wandb/offline-run-*")
    assert f"wandb sync --id abc123 {folder}" in caplog.text


def test_a_run_that_did_not_end_is_marked_as_failed_and_closing_again_does_nothing(run_info, tmp_path):
    observer = observing("auto")  # no key is known: offline
    observer.on_start(run_info())
    observer.close()
    observer.close()
    (ending,) = [record.exit.exit_code for record in recorded(tmp_path) if record.HasField("exit")]
    assert ending == 1


def test_jobs_of_one_process_do_not_leak_into_one_another(run_info, tmp_path):
    """The first job was never closed; the second still gets a run of its own."""
    folders = [tmp_path / "a", tmp_path / "b"]
    observers = [observing("offline") for _ in folders]
    for number, (observer, folder) in enumerate(zip(observers, folders, strict=True)):
        folder.mkdir()
        observer.on_start(dataclasses.replace(run_info(), folder=folder, seed=number, tracking_id=f"id{number}"))
        observer.on_row({"round": 1, "test/accuracy": 0.5 + number / 10})
    for observer in observers:
        observer.close()
    for number, folder in enumerate(folders):
        records = list(recorded(folder))
        (name,) = [record.run.display_name for record in records if record.HasField("run")]
        assert name.endswith(f" seed={number}")
        rows = [items(record.history.item) for record in records if record.HasField("history")]
        assert [row["test/accuracy"] for row in rows] == [0.5 + number / 10]


def test_without_a_network_the_run_is_recorded_offline_after_a_short_wait(run_info, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    for wait in ("START_SECONDS", "FINISH_SECONDS"):
        monkeypatch.setattr(f"fedrun.runs.tracking.wandb.{wait}", 1.0)
    observer = observing("auto")
    began = time.monotonic()
    observer.on_start(run_info())
    observer.on_row({"round": 1, "test/accuracy": 0.5})
    observer.close()
    assert time.monotonic() - began < 8
    (warning,) = warnings(caplog)
    assert warning.startswith("W&B cannot be used online, so this run is recorded offline: ")
    assert "\n" not in warning
    assert "wandb sync --id abc123 " in caplog.text
    assert len([record for record in recorded(tmp_path) if record.HasField("history")]) == 1


def test_online_without_a_key_warns_and_asks_nothing(run_info, tmp_path, caplog):
    observer = observing("online")
    observer.on_start(run_info())
    observer.close()
    assert "no API key" in caplog.text
    assert list(tmp_path.glob("wandb/offline-run-*"))


class Broken:
    """A run whose service has died: everything raises."""

    offline = True
    resumed = False
    id = "abc123"
    finished = 0

    def __init__(self, folder):
        self.dir = str(folder)

    def log(self, row, step):
        raise BrokenPipeError("the service\nis gone")

    def finish(self, exit_code):
        self.finished += 1
        raise ConnectionResetError


def test_a_dead_service_costs_one_warning(run_info, monkeypatch, tmp_path, caplog):
    import wandb

    observers, broken = Observers([observing("offline")]), Broken(tmp_path)
    monkeypatch.setattr(wandb, "init", lambda **settings: broken)
    observers.notify(lambda observer: observer.on_start(run_info()))
    for round in (7, 8, 9):
        observers.notify(lambda observer, row={"round": round}: observer.on_row(row))
    observers.notify(lambda observer: observer.on_end(SUMMARY))
    observers.close()
    assert broken.finished == 1
    assert warnings(caplog) == ["Wandb failed and is not used any more in this run: the service is gone"]


def test_nothing_is_recorded_after_a_failed_start(run_info, monkeypatch, tmp_path, caplog):
    """The file with the last recorded round was cut, so W&B would lack the rounds before this session."""
    import wandb

    observers, broken = Observers([observing("offline")]), Broken(tmp_path / "wandb" / "offline-run" / "files")
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "last-round-abc123").touch()
    monkeypatch.setattr(wandb, "init", lambda **settings: broken)
    observers.notify(lambda observer: observer.on_start(run_info(history=({"round": 1},))))
    observers.notify(lambda observer: observer.on_row({"round": 2}))
    observers.notify(lambda observer: observer.on_end(SUMMARY))
    observers.close()
    assert broken.finished == 1
    (warning,) = warnings(caplog)
    assert warning.startswith("Wandb failed and is not used any more in this run: invalid literal for int()")


def test_a_folder_that_cannot_be_used_does_not_stop_the_run(run_info, tmp_path, monkeypatch, caplog):
    elsewhere, blocked = tmp_path / "elsewhere", tmp_path / "a file"
    elsewhere.mkdir()
    blocked.touch()
    monkeypatch.setattr(tempfile, "tempdir", str(elsewhere))
    observer = observing("offline")
    observer.on_start(dataclasses.replace(run_info(), folder=blocked / "below"))
    observer.on_row({"round": 1})
    observer.close()
    (record,) = elsewhere.glob("wandb/offline-run-*")
    assert warnings(caplog) == [f"W&B cannot write to {blocked / 'below'}, so it records in {record}"]


def test_disabled_does_not_import_wandb():
    code = (
        "import sys;"
        "from fedrun.config.build import option; o = option('tracking', 'wandb', mode='disabled').observer();"
        "o.on_start(None); o.on_row({'round': 1}); o.on_end({}); o.close();"
        "assert 'wandb' not in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_key_is_found_without_asking(monkeypatch, tmp_path):
    assert known_key("https://api.example.org") is None
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password from-netrc\n")
    assert known_key("https://api.example.org") == "from-netrc"
    (tmp_path / "netrc").write_text(
        "machine api.wandb.ai login user password old\nmachine api.example.org login user password own\n"
    )
    assert known_key("https://api.example.org") == "own"
    monkeypatch.setenv("WANDB_API_KEY", "from-environment")
    assert known_key("https://api.example.org") == "from-environment"
    monkeypatch.delenv("WANDB_API_KEY")
    (tmp_path / "netrc").write_text("not a netrc file")
    assert known_key("https://api.example.org") is None


@pytest.mark.parametrize(("word", "mode"), [("dryrun", "offline"), ("offline", "offline"), ("", "online")])
def test_modes_of_the_environment(monkeypatch, caplog, word, mode):
    """dryrun is W&B's old word for offline; it is not one that may upload."""
    monkeypatch.setenv("WANDB_MODE", word)
    assert observing("auto")._effective_mode("key") == mode
    assert ("WANDB_MODE=dryrun: this run is recorded offline; allowed: " in caplog.text) == (word == "dryrun")


def test_an_unknown_mode_is_refused():
    with pytest.raises(ArgumentError):
        Tracking(mode="on", project="fedrun", entity=None)
