"""Downloads from a server that behaves, and from one that does not."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedrun.data.download.http_file import UnreachableError, download, get_json
from fedrun.system.errors import InputError

CONTENT = bytes(range(256)) * 1000
SHA256 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
MD5 = f"md5:{hashlib.md5(CONTENT).hexdigest()}"


def quiet(have: int, whole: int | None) -> None:
    pass


@pytest.mark.parametrize("checksum", [None, SHA256, MD5])
def test_a_file_arrives_whole(site: Any, tmp_path: Path, checksum: str | None) -> None:
    site.files["/a.bin"] = CONTENT
    told: list[tuple[int, int | None]] = []
    path = tmp_path / "deep/a.bin"
    download(f"{site.address}/a.bin", path, checksum, lambda have, whole: told.append((have, whole)))
    assert path.read_bytes() == CONTENT
    assert [path.name for path in path.parent.iterdir()] == ["a.bin"]
    assert told[-1] == (256_000, 256_000)


def test_a_cut_connection_is_continued(site: Any, tmp_path: Path) -> None:
    site.files["/a.bin"], site.cuts = CONTENT, 2
    download(f"{site.address}/a.bin", tmp_path / "a.bin", MD5, quiet)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert [wanted for _, wanted in site.asked] == [None, "bytes=128000-", "bytes=192000-"]


def test_without_a_length_a_cut_is_noticed_by_the_missing_end(site: Any, tmp_path: Path) -> None:
    site.files["/a.bin"], site.cuts, site.chunked = CONTENT, 2, True
    download(f"{site.address}/a.bin", tmp_path / "a.bin", SHA256, quiet)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    starts = [int(wanted.strip("bytes=-")) for _, wanted in site.asked[1:]]
    assert 120_000 < starts[0] < starts[1] < 200_000  # half of what is sent, of which a few bytes are the chunks' own


def test_a_connection_cut_for_good_is_continued_by_the_next_command(site: Any, tmp_path: Path) -> None:
    site.files["/a.bin"], site.cuts = CONTENT, 3
    with pytest.raises(InputError, match="the connection was cut after 224000 bytes; the same command continues"):
        download(f"{site.address}/a.bin", tmp_path / "a.bin", MD5, quiet)
    assert not (tmp_path / "a.bin").exists()
    download(f"{site.address}/a.bin", tmp_path / "a.bin", MD5, quiet)
    assert site.asked[-1] == ("/a.bin", "bytes=224000-")
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


def test_another_version_is_fetched_from_its_beginning(site: Any, tmp_path: Path) -> None:
    site.files["/a.bin"], site.cuts = CONTENT, 3
    with pytest.raises(InputError, match="was cut"):
        download(f"{site.address}/a.bin", tmp_path / "a.bin", None, quiet)
    site.files["/a.bin"], site.tag = CONTENT[::-1], '"two"'
    download(f"{site.address}/a.bin", tmp_path / "a.bin", None, quiet)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT[::-1]


def test_a_whole_partial_file_is_used(site: Any, tmp_path: Path) -> None:
    site.files["/a.bin"] = CONTENT
    (tmp_path / "a.bin.partial").write_bytes(CONTENT)
    (tmp_path / "a.bin.validator").write_text(site.tag)
    download(f"{site.address}/a.bin", tmp_path / "a.bin", MD5, quiet)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing(site: Any, tmp_path: Path) -> None:
    site.files["/a.bin"] = CONTENT[:-1] + b"x"
    with pytest.raises(
        InputError,
        match=f"its md5 is [0-9a-f]{{32}} instead of {MD5[4:]}; the downloaded file is deleted; try again, or ",
    ):
        download(f"{site.address}/a.bin", tmp_path / "a.bin", MD5, quiet)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "kind", "complaint"),
    [
        ("{site}/missing", UnreachableError, "404 Not Found"),
        ("http://127.0.0.1:9/a", UnreachableError, "Connection refused"),
        ("file:///etc/hostname", InputError, "allowed: an http or https address"),
    ],
)
def test_addresses_that_cannot_be_used(
    site: Any, tmp_path: Path, url: str, kind: type[InputError], complaint: str
) -> None:
    with pytest.raises(kind, match=complaint):
        download(url.format(site=site.address), tmp_path / "a.bin", None, quiet)


def test_a_full_disk_is_one_line_and_the_next_command_continues(site: Any, tmp_path: Path) -> None:
    site.files["/a.bin"] = CONTENT
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from pathlib import Path\n"
        "from fedrun.data.download.http_file import download\n"
        "try: download(sys.argv[1], Path(sys.argv[2]), None, lambda *_: None)\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    path = tmp_path / "a.bin"
    command = [sys.executable, "-c", script, f"{site.address}/a.bin", str(path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert said == f"InputError {path} cannot be written: File too large; the same command continues\n"
    assert not path.exists()
    assert 0 < (tmp_path / "a.bin.partial").stat().st_size <= 100_000
    download(f"{site.address}/a.bin", path, MD5, quiet)
    assert path.read_bytes() == CONTENT


def test_another_range_than_the_requested_one_is_not_appended(site: Any, tmp_path: Path) -> None:
    site.files["/a.bin"], site.cuts, site.wrong_range = CONTENT, 1, True
    download(f"{site.address}/a.bin", tmp_path / "a.bin", SHA256, quiet)
    assert [wanted for _, wanted in site.asked] == [None, "bytes=128000-", None]


ANSWERS = {
    "a length that is no number": (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\nx", "has Content-Length 'many'"),
    "a negative length": (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nx", "has Content-Length '-5'"),
    "a redirect to a broken address": (b"HTTP/1.1 302 Found\r\nLocation: http://[x\r\n\r\n", "a redirect "),
    "a redirect to a file": (b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n", "a redirect|not allowed"),
    "a redirect to FTP": (b"HTTP/1.1 302 Found\r\nLocation: ftp://127.0.0.1/a\r\n\r\n", "a redirect to 'ftp:"),
    "a redirect to a bad port": (b"HTTP/1.1 302 Found\r\nLocation: http://a:b/\r\n\r\n", "a redirect to 'http://a:b/'"),
    "a redirect to itself": (b"HTTP/1.1 302 Found\r\nLocation: /a.bin\r\n\r\n", "302 "),
    "control characters": (b"HTTP/1.1 500 \x1b[31mred\x07\r\n\r\n", r"500 \\x1b\[31mred\\x07$"),
    "a part nobody requested": (b"HTTP/1.1 206 OK\r\nContent-Range: bytes 5-6/9\r\n\r\nxy", "sends a part of the file"),
    "no HTTP": (b"\x1b]0;title\x07\r\n\r\n", "title|closed|BadStatusLine"),
    "nothing": (b"", "closed connection without response"),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_answers_that_cannot_be_used_are_one_printable_line(site: Any, tmp_path: Path, answer: str) -> None:
    site.answers["/a.bin"], complaint = ANSWERS[answer]
    with pytest.raises(UnreachableError, match=complaint) as error:
        download(f"{site.address}/a.bin", tmp_path / "a.bin", None, quiet)
    assert str(error.value).isprintable()
    assert not (tmp_path / "a.bin").exists()
    with pytest.raises(InputError) as refused:
        get_json(f"{site.address}/a.bin")
    assert str(refused.value).isprintable()
