"""A small HTTP server with files, and with the accidents of the network."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class Site:
    """What the server has.

    Attributes:
        address: of the server, without a slash at the end.
        files: content by path, such as ``/a.zip``.
        cuts: how many more answers end after half of what they promised.
        asked: path and ``Range`` header of every request.
        chunked: whether answers come in chunks, without a length.
        tag: the version that the server says its files have.
        answers: whole answers, status line and headers included, in place of files, by path.
        wrong_range: whether the server answers a range request with another range.
    """

    def __init__(self) -> None:
        self.address = ""
        self.files: dict[str, bytes] = {}
        self.cuts = 0
        self.asked: list[tuple[str, str | None]] = []
        self.chunked = False
        self.tag = '"one"'
        self.answers: dict[str, bytes] = {}
        self.wrong_range = False


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            site.asked.append((self.path, wanted))
            if self.path in site.answers:
                self.wfile.write(site.answers[self.path])
                self.close_connection = True
                return
            content = site.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            start = 0
            if wanted is not None and self.headers.get("If-Range") == site.tag:
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start and start >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            if start:
                start += site.wrong_range
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.send_header("ETag", site.tag)
            rest = content[start:]
            self.close_connection = True
            if site.chunked:
                self.send_header("Transfer-Encoding", "chunked")
                rest = b"%x\r\n%s\r\n0\r\n\r\n" % (len(rest), rest)
            else:
                self.send_header("Content-Length", str(len(rest)))
            self.end_headers()
            if site.cuts:
                site.cuts -= 1
                rest = rest[: len(rest) // 2]
            self.wfile.write(rest)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    site.address = f"http://127.0.0.1:{server.server_port}"
    yield site
    server.shutdown()
    server.server_close()
