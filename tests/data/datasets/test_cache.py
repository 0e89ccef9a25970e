from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from fedrun.data.datasets.cache import Index, create, open_cache, write_cache
from fedrun.data.datasets.femnist import Femnist
from fedrun.system.errors import InputError

INDEX = Index(names=("ann", "bob", "cat"), sizes=(1, 2, 1), training=2, shape=(2,))
SAMPLES = {0: [[1, 2]], 1: [[3, 4], [5, 6]], 2: [[7, 8]]}
CLASSES = {0: [9], 1: [8, 7], 2: [6]}


def users(*order: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    for user in order:
        yield user, np.array(SAMPLES[user], dtype=np.uint8), np.array(CLASSES[user], dtype=np.uint8)


def fill(folder: Path) -> None:
    write_cache(folder, INDEX, users(2, 0, 1))


def femnist(root: Path, cache_dir: Path | None = None) -> Femnist:
    return Femnist(
        data_dir=str(root),
        cache_dir=None if cache_dir is None else str(cache_dir),
        min_samples=1,
        min_samples_after_split=1,
    )


def images(*greys: int) -> tuple[list[list[float]], list[int]]:
    return [[grey / 255] * 784 for grey in greys], [0] * len(greys)


def folders(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def test_a_cache_with_an_unknown_entry_is_read(tmp_path: Path) -> None:
    """Caches of earlier versions have one."""

    def earlier(folder: Path) -> None:
        fill(folder)
        meta = json.loads((folder / "meta.json").read_text())
        (folder / "meta.json").write_text(json.dumps(meta | {"remarks": ["a remark"]}))

    create(tmp_path / "key", earlier)
    assert open_cache(tmp_path / "key").index == INDEX


def test_users_written_in_any_order_are_read_in_theirs(tmp_path: Path) -> None:
    create(tmp_path / "key", fill)
    cached = open_cache(tmp_path / "key")
    assert cached.index == INDEX
    assert cached.inputs.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert cached.targets.tolist() == [9, 8, 7, 6]
    create(tmp_path / "other", lambda folder: write_cache(folder, INDEX, users(0, 1, 2)))
    assert open_cache(tmp_path / "other").fingerprint == cached.fingerprint


def test_what_is_done_to_the_samples_does_not_reach_the_file(tmp_path: Path) -> None:
    create(tmp_path / "key", fill)
    open_cache(tmp_path / "key").inputs.fill_(0)
    assert (tmp_path / "key/inputs.bin").read_bytes() == bytes(range(1, 9))


def test_the_cache_is_made_once(
    tmp_path: Path, write_leaf: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_leaf("femnist/train/a.json", {"ann": images(1, 2)})
    first = femnist(tmp_path).load()
    monkeypatch.setattr(Femnist, "_read", lambda *_: pytest.fail("read the source again"))
    again = femnist(tmp_path).load()
    assert again.inputs.tolist() == first.inputs.tolist()
    assert again.fingerprint == first.fingerprint


@pytest.mark.parametrize("change", ["content", "time", "name", "another file"])
def test_a_change_of_the_source_makes_a_new_cache(tmp_path: Path, write_leaf: Callable[..., Path], change: str) -> None:
    path = write_leaf("femnist/train/a.json", {"ann": images(1, 2)})
    place = tmp_path / "femnist/.fedrun-cache"
    femnist(tmp_path).load()
    before = folders(place)
    expected = {1, 2}
    match change:
        case "content":
            write_leaf("femnist/train/a.json", {"ann": images(1, 2, 30)})
            expected = {1, 2, 30}
        case "time":
            os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
        case "name":
            path.rename(path.with_name("b.json"))
        case "another file":
            write_leaf("femnist/train/b.json", {"bob": images(40)})
            expected = {1, 2, 40}
    assert set(femnist(tmp_path).load().inputs.flatten().tolist()) == expected
    assert len(folders(place)) == 2
    assert set(before) < set(folders(place))


def test_a_cache_elsewhere_leaves_the_source_untouched(tmp_path: Path, write_leaf: Callable[..., Path]) -> None:
    write_leaf("femnist/train/a.json", {"ann": images(1)})
    femnist(tmp_path, tmp_path / "cache").load()
    assert folders(tmp_path / "femnist") == ["train"]
    assert folders(tmp_path / "cache") == ["femnist"]
    assert len(folders(tmp_path / "cache/femnist")) == 1


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("inputs.bin", bytes(7), "differs from its checksum"),
        ("inputs.bin", bytes(9), "differs from its checksum"),
        ("inputs.bin", None, "cannot be read"),
        ("targets.bin", bytes(3), "differs from its checksum"),
        ("targets.bin", None, "cannot be read"),
        ("meta.json", b"", "differs from its checksum"),
        ("meta.json", b"{}", "differs from its checksum"),
        ("meta.json", b"[]", "differs from its checksum"),
        ("meta.json", None, "cannot be read"),
        ("inputs.bin", bytes([1, 2, 3, 4, 5, 6, 7, 9]), "differs from its checksum"),
        ("targets.bin", bytes([9, 8, 7, 7]), "differs from its checksum"),
        ("checksums.txt", b"", "differs from its checksum"),
        ("checksums.txt", None, "cannot be read"),
    ],
)
def test_a_damaged_cache_is_refused_and_left_alone(
    tmp_path: Path, name: str, content: bytes | None, complaint: str
) -> None:
    folder = tmp_path / "key"
    create(folder, fill)
    path = folder / name
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    create(folder, lambda _: pytest.fail("overwrites what is there"))
    with pytest.raises(InputError) as refusal:
        open_cache(folder)
    assert str(refusal.value) == f"{path} {complaint}: the cache is damaged; delete the folder {folder} and run again"


def test_a_place_that_cannot_be_written_is_refused(
    tmp_path: Path, write_leaf: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_leaf("femnist/train/a.json", {"ann": images(1)})

    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", read_only)
    with pytest.raises(InputError) as refusal:
        femnist(tmp_path).load()
    assert str(refusal.value) == (
        f"the cache {tmp_path}/femnist/.fedrun-cache cannot be written (Read-only file system): "
        "set cache_dir to a writable folder with enough space"
    )


def test_a_cache_dir_that_is_a_file_is_refused(tmp_path: Path, write_leaf: Callable[..., Path]) -> None:
    write_leaf("femnist/train/a.json", {"ann": images(1)})
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="set cache_dir to a writable folder"):
        femnist(tmp_path, tmp_path / "file").load()


def test_a_disk_that_is_too_small_is_refused_before_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=11)  # 4 samples of 2 bytes and 4 classes need 12
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(InputError, match="0 MB needed"):
        create(tmp_path / "key", lambda folder: write_cache(folder, INDEX, iter([])))
    assert folders(tmp_path) == []


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, write_leaf: Callable[..., Path]) -> None:
    write_leaf("femnist/train/a.json", {"ann": images(*range(100))})  # 78 400 bytes
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(InputError, match=r"cannot be written \(File too large\)"):
            femnist(tmp_path).load()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert folders(tmp_path / "femnist/.fedrun-cache") == []


def test_an_interrupted_write_leaves_nothing(tmp_path: Path) -> None:
    def interrupted(folder: Path) -> None:
        (folder / "inputs.bin").write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        create(tmp_path / "key", interrupted)
    assert folders(tmp_path) == []


def test_what_a_killed_process_left_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / "key.0123456789abcdef.partial").mkdir()
    (tmp_path / "another.0123456789abcdef.partial").mkdir()
    create(tmp_path / "key", fill)
    assert folders(tmp_path) == ["another.0123456789abcdef.partial", "key"]


def test_where_locks_do_not_work_the_slower_process_throws_its_copy_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", no_locks)

    def overtaken(folder: Path) -> None:
        create(tmp_path / "key", fill)  # another process, faster
        (folder / "inputs.bin").write_bytes(b"of the slower one")

    create(tmp_path / "key", overtaken)
    assert folders(tmp_path) == ["key"]
    assert open_cache(tmp_path / "key").inputs.tolist()[0] == [1, 2]


def test_a_source_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, write_leaf: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_leaf("femnist/train/a.json", {"ann": images(1)})

    def write_and_touch(*arguments: object) -> None:
        write_cache(*arguments)  # type: ignore[arg-type]
        os.utime(path, ns=(0, 0))

    monkeypatch.setattr("fedrun.data.datasets.leaf.write_cache", write_and_touch)
    with pytest.raises(InputError, match="changed while they were read"):
        femnist(tmp_path).load()
    assert folders(tmp_path / "femnist/.fedrun-cache") == []


CHILD = """
import logging, sys
logging.basicConfig(level=logging.INFO, stream=sys.stdout)
from fedrun.data.datasets.femnist import Femnist
print("ready", flush=True)
sys.stdin.readline()
dataset = Femnist(data_dir=sys.argv[1], cache_dir=None, min_samples=1, min_samples_after_split=1).load()
print("sum", int(dataset.inputs.sum()))
"""


def test_of_two_processes_that_start_at_once_one_reads(tmp_path: Path, write_leaf: Callable[..., Path]) -> None:
    greys = [user % 256 for user in range(400)]
    write_leaf("femnist/train/a.json", {f"user{user}": images(grey) for user, grey in enumerate(greys)})
    command = [sys.executable, "-c", CHILD, str(tmp_path)]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path.cwd())
        for _ in range(2)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"

        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        outputs = [process.communicate(timeout=60)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0]
    assert all(f"sum {sum(greys) * 784}" in output for output in outputs)
    assert sum("reading" in output for output in outputs) == 1
    assert len(folders(tmp_path / "femnist/.fedrun-cache")) == 1


def test_the_cache_opens_quickly_with_many_users(tmp_path: Path) -> None:
    index = Index(tuple(map(str, range(3550))), (2,) * 3550, 3195, (3,))
    content = np.zeros((2, 3), np.uint8), np.zeros(2, np.uint8)
    create(tmp_path / "key", lambda folder: write_cache(folder, index, ((u, *content) for u in range(3550))))
    start = time.perf_counter()
    open_cache(tmp_path / "key")
    assert time.perf_counter() - start < 0.5


def test_a_source_that_cannot_be_read_is_not_the_caches_fault(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"^{tmp_path}/elsewhere cannot be read: No such file"):
        create(tmp_path / "cache" / "key", lambda _: (tmp_path / "elsewhere").read_bytes())
    assert list((tmp_path / "cache").glob("*.partial")) == []
