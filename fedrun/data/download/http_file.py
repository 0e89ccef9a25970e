"""One file over HTTP: resumed where it was cut, checked, and under its name only when it is whole."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from fedrun.system.errors import InputError

CHUNK = 1 << 20
ATTEMPTS = 3
TIMEOUT_SECONDS = 30

Progress = Callable[[int, int | None], None]
"""Told the bytes that are there and, if known, the bytes of the whole."""


class UnreachableError(InputError):
    """The address cannot be reached or has no such file."""


class CutError(Exception):
    """A connection ended before what was sent over it."""


def download(url: str, path: Path, checksum: str | None, progress: Progress) -> str:
    """Fetch a file, continuing an earlier attempt where the server allows it.

    Args:
        url: an ``http`` or ``https`` address.
        path: the file's final name; beside it ``.partial`` grows, and ``.validator`` says of which version it is.
        checksum: such as ``md5:...`` or ``sha256:...``; None where nobody has published one.
        progress: told after every chunk.

    Returns:
        The file's ``sha256:...``.

    Raises:
        UnreachableError: no connection, or no such file.
        InputError: the connection was cut again and again, the disk is full, or the checksum is wrong.
    """
    require_address(url)
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(ATTEMPTS):
            if _transfer(url, partial, progress):
                break
        else:
            size = partial.stat().st_size
            raise InputError(f"{url}: the connection was cut after {size} bytes; the same command continues")
        try:
            found = verified(partial, checksum)
        except InputError as error:
            partial.unlink()  # continuing it would never become right
            raise InputError(f"{url}: {error}; what was fetched is deleted, try again") from None
        with open(partial, "rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
        _validator(partial).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}; the same command continues") from error
    return found


def require_address(url: str) -> None:
    """Refuse what no connection can be made to.

    Raises:
        InputError: it is no address.
    """
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").removesuffix(".").split(".")
        usable = parts.scheme in ("http", "https") and all(0 < len(label) < 64 for label in host)
    except ValueError:  # a bracket without its other half
        usable = False
    if not (usable and url.isascii()):
        raise InputError(f"{url!a}: allowed: an http or https address")


def verified(path: Path, checksum: str | None) -> str:
    """The ``sha256:...`` of a file whose checksum is right.

    Raises:
        InputError: it is not.
        OSError: the file cannot be read.
    """
    kind, _, wanted = (checksum or "sha256:").partition(":")
    digests = {name: hashlib.new(name, usedforsecurity=False) for name in {kind, "sha256"}}
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            for digest in digests.values():
                digest.update(chunk)
    if checksum is not None and digests[kind].hexdigest() != wanted:
        raise InputError(f"its {kind} is {digests[kind].hexdigest()} instead of {wanted}")
    return f"sha256:{digests['sha256'].hexdigest()}"


def get_json(url: str) -> object:
    """A small JSON document.

    Raises:
        UnreachableError: no connection, or no such document.
        InputError: it is not JSON, or ``url`` is no address.
    """
    require_address(url)
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
            return json.loads(response.read())
    except ValueError as error:
        raise InputError(f"{url} is not JSON: {error}") from error
    except (OSError, http.client.HTTPException) as error:
        raise UnreachableError(f"{url}: {_reason(error)}") from error


def _transfer(url: str, partial: Path, progress: Progress) -> bool:
    """One attempt to append what is missing; whether the file is whole now."""
    have, validator = partial.stat().st_size if partial.exists() else 0, _validator(partial)
    request = urllib.request.Request(url)
    if have and validator.exists():
        request.add_header("Range", f"bytes={have}-")
        request.add_header("If-Range", validator.read_text(encoding="latin-1"))  # another version is sent whole
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
            resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
            have = have if resumed else 0
            length = response.headers.get("Content-Length")
            whole = have + int(length) if length is not None else None
            version = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
            if version and not version.startswith("W/"):
                validator.write_text(version, encoding="latin-1")
            else:
                validator.unlink(missing_ok=True)
            with open(partial, "ab" if resumed else "wb") as file:
                for chunk in _received(response):
                    file.write(chunk)
                    have += len(chunk)
                    progress(have, whole)
    except CutError:
        return False
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:  # it was whole, or is another file
            return True
        raise UnreachableError(f"{url}: {error.code} {error.reason}") from error
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError) as error:
        raise UnreachableError(f"{url}: {_reason(error)}") from error
    return whole is None or have == whole


def _received(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """What the server sends, piece by piece.

    Raises:
        CutError: the connection is cut before the end; without a length only this tells a part from the whole.
    """
    try:
        while chunk := response.read1(CHUNK):  # read() would keep what has come of a chunk that is cut
            yield chunk
    except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
        raise CutError from error


def _validator(partial: Path) -> Path:
    return partial.with_suffix(".validator")


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", error)
    return " ".join(str(getattr(reason, "strerror", None) or reason or type(error).__name__).split())
