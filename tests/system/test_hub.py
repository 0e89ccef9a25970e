"""The hub is a server of this machine, or a port of it where nothing listens."""

import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from huggingface_hub import constants, hf_hub_download

from fedrun.system.hub import hub_advice, hub_or_cache, hub_silence, no_folder


class Refusing(BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.send_response(401)
        self.end_headers()

    def log_message(self, format, *arguments):
        pass


@pytest.fixture(autouse=True)
def own_hub(monkeypatch, tmp_path):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_HUB_ETAG_TIMEOUT", raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def address(port):
    return f"http://127.0.0.1:{port}"


@pytest.fixture
def closed_port(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setattr(constants, "ENDPOINT", address(taken.getsockname()[1]))
        yield


def test_a_hub_that_refuses_answers(monkeypatch):
    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        monkeypatch.setattr(constants, "ENDPOINT", address(server.server_port))
        threading.Thread(target=server.handle_request).start()
        assert hub_silence() is None


def test_a_hub_that_keeps_silent_is_given_the_users_patience(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(constants, "ENDPOINT", address(silent.getsockname()[1]))
        monkeypatch.setenv("HF_HUB_ETAG_TIMEOUT", "1")
        monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 1)
        began = time.monotonic()
        assert str(hub_silence()).startswith(f"{constants.ENDPOINT} does not answer: ")
        assert time.monotonic() - began < 2.5


def test_without_the_hub_its_cache_is_read_and_nothing_is_repeated(closed_port, tmp_path, caplog):
    began = time.monotonic()
    with pytest.raises(ConnectionError, match=r"^http://127.0.0.1:\d+ does not answer: .*refused"), hub_or_cache():
        hf_hub_download("some/model", "config.json", cache_dir=tmp_path)
    assert time.monotonic() - began < 2.5
    assert not constants.HF_HUB_OFFLINE and not caplog.records


def test_other_errors_stay_themselves(closed_port):
    with pytest.raises(ValueError, match="^of the model$"), hub_or_cache():
        raise ValueError("of the model")


def test_offline_mode_of_the_user_asks_nothing(closed_port, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(OSError, match="^its own$"), hub_or_cache():
        raise OSError("its own")
    assert constants.HF_HUB_OFFLINE


def test_the_cure_names_the_command_and_the_folder():
    line = hub_advice("some/model", OSError("no\nanswer"))
    assert "(no); where the internet can be reached: hf download some/model " in line
    assert "models--some--model" in line


@pytest.mark.parametrize(
    ("name", "path"), [("./bert", True), ("/models/bert", True), ("a/b/c", True), ("a/bert", False)]
)
def test_a_path_is_not_looked_for_on_the_hub(name: str, path: bool) -> None:
    line = no_folder("model.name", name, OSError("no"))
    assert line.startswith(f"model.name={name}: no such folder")
    assert ("hf download" not in line) is path
