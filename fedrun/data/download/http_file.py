"""Download of one file over HTTP: resumed after an interruption, verified, and renamed only when it is complete."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fedrun.system.errors import InputError

CHUNK = 1 << 20
ATTEMPTS = 3
TIMEOUT_SECONDS = 30
MOST_JSON_BYTES = 16 << 20

Progress = Callable[[int, int | None], None]
"""Called with the bytes received and, if known, the bytes of the whole file."""


class UnreachableError(InputError):
    """The address cannot be reached, has no such file, or its answer cannot be used."""


class FailedDownloadError(InputError):
    """The server has cut the connection several times, or has another file; another server may have the right one.

    Args:
        reason: what happened.
        advice: what the user can do.
    """

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(f"{reason}; {advice}")
        self.reason = reason


class CutError(Exception):
    """The connection ended before the answer did, or the answer is not the part that was requested."""


def download(url: str, path: Path, checksum: str | None, progress: Progress) -> None:
    """Download a file. An earlier interrupted download is continued if the server allows it.

    Args:
        url: an ``http`` or ``https`` address.
        path: the file's final name. Until it is complete its content is in ``<name>.partial``, and the server's name
            for its version in ``<name>.validator``.
        checksum: such as ``md5:...`` or ``sha256:...``; None if none has been published.
        progress: called after every chunk.

    Raises:
        UnreachableError: no connection, no such file, or an answer that cannot be used.
        FailedDownloadError: the connection was cut several times, or the checksum is wrong.
        InputError: the file cannot be written.
    """
    require_address(url)
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(ATTEMPTS):
            if _transfer(url, partial, progress):
                break
        else:
            size = partial.stat().st_size if partial.exists() else 0
            raise FailedDownloadError(f"{url}: the connection was cut after {size} bytes", "the same command continues")
        try:
            if checksum is not None:
                verify(partial, checksum)
        except InputError as error:
            partial.unlink()  # continuing it could not correct it
            _validator(partial).unlink(missing_ok=True)
            raise FailedDownloadError(
                f"{url}: {error}; the downloaded file is deleted",
                "try again, or fedrun-data with another --url or with --from FOLDER",
            ) from None
        with open(partial, "rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
        _validator(partial).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}; the same command continues") from error


def require_address(url: str) -> None:
    """Check that a string is an address to which a connection can be made.

    Raises:
        InputError: it is not.
    """
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").removesuffix(".").split(".")
        usable = parts.scheme in ("http", "https") and all(0 < len(label) < 64 for label in host)
        _ = parts.port  # a ValueError if it is not a number
    except ValueError:  # such as a bracket without its counterpart
        usable = False
    if not (usable and url.isascii() and url.isprintable()):
        raise InputError(f"{url!a}: allowed: an http or https address")


def verify(path: Path, checksum: str) -> None:
    """Check a file against a checksum, such as ``md5:...``.

    Raises:
        InputError: it is wrong.
        OSError: the file cannot be read.
    """
    kind, _, wanted = checksum.partition(":")
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()
    if found != wanted:
        raise InputError(f"its {kind} is {found} instead of {wanted}")


def get_json(url: str) -> object:
    """A JSON document of at most 16 MiB.

    Raises:
        UnreachableError: no connection, or no such document.
        InputError: it is not JSON, is too large or nested too deeply, or ``url`` is not an address.
    """
    require_address(url)
    try:
        with _open(urllib.request.Request(url)) as response:
            content = response.read(MOST_JSON_BYTES + 1)
    except (OSError, http.client.HTTPException) as error:
        raise _unreachable(url, error) from error
    if len(content) > MOST_JSON_BYTES:
        raise InputError(f"{url} has more than {MOST_JSON_BYTES >> 20} MiB instead of a list of files")
    try:
        return json.loads(content)
    except RecursionError as error:
        raise InputError(f"{url} is JSON that is nested too deeply") from error
    except ValueError as error:
        raise InputError(f"{url} is not JSON: {error}") from error


def _transfer(url: str, partial: Path, progress: Progress) -> bool:
    """One attempt to append the missing bytes; whether the file is complete now."""
    received, validator = partial.stat().st_size if partial.exists() else 0, _validator(partial)
    request = urllib.request.Request(url)
    if received and validator.exists():
        request.add_header("Range", f"bytes={received}-")
        request.add_header("If-Range", validator.read_text(encoding="latin-1"))  # another version is sent completely
    try:
        with _open(request) as response:
            resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
            if resumed and not request.has_header("Range"):
                raise UnreachableError(f"{url}: the server sends a part of the file where all of it was requested")
            if resumed and not _is_range_from(response, received):
                validator.unlink(missing_ok=True)  # the next attempt requests the whole file
                raise CutError
            received = received if resumed else 0
            length = _content_length(url, response)
            total = None if length is None else received + length
            version = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
            if version and not version.startswith("W/"):
                validator.write_text(version, encoding="latin-1")
            else:
                validator.unlink(missing_ok=True)
            with open(partial, "ab" if resumed else "wb") as file:
                for chunk in _chunks(response):
                    file.write(chunk)
                    received += len(chunk)
                    progress(received, total)
    except CutError:
        return False
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and request.has_header("Range"):
            return True  # it was complete, or is another file, which the checksum shows
        raise _unreachable(url, error) from error
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        raise _unreachable(url, error) from error
    return total is None or received == total


class _CheckedRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to http and https addresses only."""

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: str) -> Any:
        """The request for the new address."""
        try:
            require_address(newurl)
        except InputError as error:
            raise urllib.error.URLError(f"a redirect to {error}") from None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _open(request: urllib.request.Request) -> http.client.HTTPResponse:
    """The answer to a request.

    Raises:
        OSError: no connection, an error of the server, or a redirect that cannot be followed.
        http.client.HTTPException: an answer that is not HTTP.
    """
    opener = urllib.request.build_opener(_CheckedRedirects)
    try:
        response: http.client.HTTPResponse = opener.open(request, timeout=TIMEOUT_SECONDS)
    except ValueError as error:  # an address in a redirect that cannot be parsed
        raise urllib.error.URLError(f"a redirect that cannot be followed: {error}") from error
    return response


def _is_range_from(response: http.client.HTTPResponse, start: int) -> bool:
    """Whether an answer is the part of the file that begins at a byte."""
    unit, _, span = response.headers.get("Content-Range", "").strip().partition(" ")
    first = span.partition("-")[0].strip()
    return unit.lower() == "bytes" and first.isdecimal() and int(first) == start


def _content_length(url: str, response: http.client.HTTPResponse) -> int | None:
    """The length of an answer in bytes; None if the server does not state it."""
    length = response.headers.get("Content-Length")
    if length is None:
        return None
    if not (length.strip().isdecimal() and length.isascii() and len(length) < 20):
        raise UnreachableError(f"{url}: the server's answer has Content-Length {length!r}")
    return int(length)


def _chunks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """The content of an answer.

    Raises:
        CutError: the connection was cut before the end. Without a length nothing else shows this.
    """
    try:
        while chunk := response.read1(CHUNK):  # read() would keep the received part of a chunk that is cut
            yield chunk
    except (http.client.HTTPException, ConnectionError, TimeoutError, ValueError) as error:
        raise CutError from error


def _validator(partial: Path) -> Path:
    return partial.with_suffix(".validator")


def _unreachable(url: str, error: Exception) -> UnreachableError:
    """One line with an address and why it cannot be used."""
    reason = getattr(error, "reason", error)
    text = " ".join(str(getattr(reason, "strerror", None) or reason).split()) or type(error).__name__
    status = f"{error.code} " if isinstance(error, urllib.error.HTTPError) else ""
    return UnreachableError(f"{url}: {status}{text}")
