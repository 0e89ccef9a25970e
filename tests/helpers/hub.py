"""A Hugging Face hub on this machine, with one dataset, and another process that loads it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

REVISION = "a" * 40

USERS = """
import sys
from fedrun.config.build import option
for client in sys.argv[1:]:
    users = option("dataset", "huggingface", name="me/users", text="text", length=4, client=client or None).load().users
    print("users:", *(users.names if users else ["none"]))
"""


@contextmanager
def hub(files: Mapping[str, bytes]) -> Iterator[str]:
    """A hub that answers what the library datasets asks about ``me/users``; its address."""

    class Hub(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = urlsplit(self.path).path
            named = re.fullmatch(r"/datasets/me/users/resolve/[^/]+/(.+)", path)
            entries = [{"type": "file", "path": name, "size": len(files[name]), "oid": "b" * 40} for name in files]
            status, content = 200, json.dumps({"id": "me/users", "sha": REVISION, "siblings": []}).encode()
            if named:
                status, content = (200, files[named[1]]) if named[1] in files else (404, b"")
            elif "/tree/" in path or "/paths-info/" in path:
                content = json.dumps(entries).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", REVISION)
            if status == 404:
                self.send_header("X-Error-Code", "EntryNotFound")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def do_GET(self) -> None:
            self.answer()

        def do_HEAD(self) -> None:
            self.answer()

        def do_POST(self) -> None:
            self.answer()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def users_from(address: str, home: Path, *clients: str) -> list[str]:
    """The users of the dataset at a hub, as a process with its cache in ``home`` loads them, for each column of clients
    (empty: none).
    """
    environment = {**os.environ, "HF_ENDPOINT": address, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0"}
    command = [sys.executable, "-c", USERS, *clients]
    done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True, timeout=300)
    return [line.removeprefix("users: ") for line in done.stdout.splitlines() if line.startswith("users: ")]
