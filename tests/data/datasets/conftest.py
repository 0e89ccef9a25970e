"""Small files in LEAF's format; a server of files."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def write_leaf(tmp_path: Path) -> Callable[..., Path]:
    """``write_leaf("femnist/train/a.json", {"ann": (x, y)}, **changes)`` writes a file, with the changes given."""

    def write(name: str, users: dict[str, tuple[list[Any], list[Any]]], /, **changes: object) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "users": list(users),
            "num_samples": [len(y) for _, y in users.values()],
            "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
        }
        path.write_text(json.dumps(content | changes))
        return path

    return write


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def serve() -> Iterator[Callable[[Path], str]]:
    """``serve(folder)`` serves a folder's files on this machine until the test ends, and returns their address."""
    with ExitStack() as stack:

        def start(folder: Path) -> str:
            server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            return f"http://127.0.0.1:{server.server_port}/"

        yield start
