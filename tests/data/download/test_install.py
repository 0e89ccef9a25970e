"""From a publisher, or from files that are there, to what a loader reads."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import json
import logging
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image

from fedrun.cli import data
from fedrun.cli.entrypoint import exit_status
from fedrun.data.datasets.femnist import Femnist
from fedrun.data.datasets.sent140 import Sent140
from fedrun.data.download import install
from fedrun.data.download.catalogue import DatasetFiles, RemoteFile, catalogue, published
from fedrun.data.download.install import STAGING, Reporter, download_dataset
from fedrun.system.errors import InputError
from fedrun.system.folder_lock import waiting_lock

TWEET = '"4","1","Mon","NO_QUERY","ann","good"\n'


def report(_: str) -> Any:
    return lambda have, whole: None


QUIET: Reporter = report


def tweets(text: str = TWEET) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("testdata.manual.2009.06.14.csv", text.replace('"4"', '"2"'))
        archive.writestr("training.1600000.processed.noemoticon.csv", text)
    return content.getvalue()


def parquet() -> bytes:
    picture = io.BytesIO()
    Image.fromarray(np.full((28, 28), 9, np.uint8)).save(picture, "PNG")
    table = pa.table(
        {"image": [{"bytes": picture.getvalue(), "path": "a.png"}] * 2, "writer_id": ["f1", "f2"], "character": [3, 61]}
    )
    content = io.BytesIO()
    pa.parquet.write_table(table, content)
    return content.getvalue()


def command(*arguments: str | Path) -> int:
    return exit_status(data.run, "fedrun-data", [*map(str, arguments)])


def test_an_archive_becomes_what_the_loader_reads(site: Any, tmp_path: Path) -> None:
    site.files["/trainingandtestdata.zip"] = tweets()
    assert command("sent140", "--data-dir", tmp_path, "--url", site.address) == 0
    assert [path.name for path in (tmp_path / "sent140/train").iterdir()] == [
        "training.1600000.processed.noemoticon.csv"
    ]
    (tmp_path / "vectors").write_text("good 3 4\n")
    config = Sent140(
        data_dir=str(tmp_path),
        cache_dir=None,
        min_samples=1,
        min_samples_after_split=1,
        vectors=str(tmp_path / "vectors"),
        dimension=2,
    )
    assert config.load().inputs.tolist() == [[3.0, 4.0]]
    assert [*(tmp_path / STAGING).iterdir()] == []
    assert command("sent140", "--data-dir", tmp_path, "--url", "http://127.0.0.1:9") == 0  # is there: nothing to ask


def test_a_republished_file_without_a_published_checksum_is_fetched(site: Any, tmp_path: Path) -> None:
    file = tmp_path / "sent140/train/training.1600000.processed.noemoticon.csv"
    for text in (TWEET, TWEET.replace("good", "evil")):
        site.files["/trainingandtestdata.zip"] = tweets(text)
        assert command("sent140", "--data-dir", tmp_path, "--url", site.address) == 0
        assert file.read_text() == text
        file.unlink()


def test_parquet_from_the_hub(site: Any, tmp_path: Path) -> None:
    listed = {"default": {"train": [f"{site.address}/0.parquet", f"{site.address}/1.parquet"]}}
    site.files |= {
        "/api/datasets/flwrlabs/femnist/parquet": json.dumps(listed).encode(),
        "/0.parquet": parquet(),
        "/1.parquet": parquet(),
    }
    assert command("femnist", "--data-dir", tmp_path, "--url", site.address) == 0
    dataset = Femnist(data_dir=str(tmp_path), cache_dir=None, min_samples=1, min_samples_after_split=1).load()
    assert dataset.users is not None
    assert (dataset.users.names, dataset.targets.tolist()) == (("f1", "f2"), [3, 3, 61, 61])


@pytest.mark.parametrize(
    "listed",
    [
        b"[]",
        b"{}",
        b'{"default": {"../x": ["a"]}}',
        b'{"default": {"train": [1]}}',
        b'{"default": {"train": null}}',
        b'{"default": {"train": 5}}',
        b'{"default": null}',
        b"null",
        b"7",
        b"[" * 100_000,
        b'{"default": {"train": ["http://a/\\u001b[31m"]}}',
        b'"\x1b[31m',
        b"<p>",
    ],
)
def test_a_hub_that_says_something_else(
    site: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], listed: bytes
) -> None:
    site.files["/api/datasets/flwrlabs/femnist/parquet"] = listed
    assert command("femnist", "--data-dir", tmp_path, "--url", site.address) == 2
    said = capsys.readouterr().err
    assert "/api/datasets/flwrlabs/femnist/parquet" in said or "http://a/" in said
    assert said.endswith("\n") and said[:-1].isprintable()


def test_wrong_checksums_hostile_archives_and_other_mirrors(
    site: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site.files |= {"/a.bin": b"content", "/a.zip": tweets()}
    wrong = DatasetFiles(
        "", "", 0, ("a.bin",), published(RemoteFile((f"{site.address}/a.bin",), "a.bin", "md5:" + "0" * 32))
    )
    with pytest.raises(InputError, match="its md5 is "):
        download_dataset("wrong", wrong, tmp_path, None, QUIET)
    assert not (tmp_path / "a.bin").exists()

    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("good", b"x")
        archive.writestr("../../../evil", b"x")
    site.files["/evil.zip"] = content.getvalue()
    evil = DatasetFiles("", "", 0, ("e/good",), published(RemoteFile((f"{site.address}/evil.zip",), "e", unpack="")))
    download_dataset("evil", evil, tmp_path, None, QUIET)
    assert [path for path in tmp_path.rglob("evil") if path.is_file()] == [tmp_path / "e/evil"]

    urls = (f"{site.address}/gone.bin", f"{site.address}/a.bin")
    mirrored = DatasetFiles("", "", 0, ("b.bin",), published(RemoteFile(urls, "b.bin")))
    download_dataset("mirrored", mirrored, tmp_path, None, QUIET)
    assert (tmp_path / "b.bin").read_bytes() == b"content"
    assert "gone.bin: 404" in caplog.text


def test_a_mirror_with_a_wrong_file_or_cut_connections_does_not_block_the_next(
    site: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site.files |= {"/wrong.bin": b"a page", "/a.bin": b"content"}
    checksum = f"md5:{hashlib.md5(b'content').hexdigest()}"
    urls = (f"{site.address}/wrong.bin", f"{site.address}/a.bin")
    mirrored = DatasetFiles("", "", 0, ("a.bin",), published(RemoteFile(urls, "a.bin", checksum)))
    download_dataset("mirrored", mirrored, tmp_path, None, QUIET)
    assert (tmp_path / "a.bin").read_bytes() == b"content"
    assert "wrong.bin: its md5 is " in caplog.text and f"is deleted; trying {site.address}/a.bin" in caplog.text

    site.files["/cut.bin"], site.cuts = b"content", 3
    urls = (f"{site.address}/cut.bin", f"{site.address}/a.bin")
    cut = DatasetFiles("", "", 0, ("b.bin",), published(RemoteFile(urls, "b.bin", checksum)))
    download_dataset("cut", cut, tmp_path, None, QUIET)
    assert (tmp_path / "b.bin").read_bytes() == b"content"
    assert "cut.bin: the connection was cut" in caplog.text


def test_from_files_that_are_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "trainingandtestdata.zip").write_bytes(tweets())
    place = "sent140/train/training.1600000.processed.noemoticon.csv"
    for number, source in enumerate((here, here / "trainingandtestdata.zip", tmp_path / "0")):
        assert command("sent140", "--data-dir", tmp_path / str(number), "--from", source) == 0
        assert (tmp_path / str(number) / place).read_text() == TWEET
    assert (here / "trainingandtestdata.zip").exists()  # the source is only read

    (here / "x.parquet").write_bytes(parquet())
    assert command("femnist", "--data-dir", tmp_path / "3", "--from", here) == 0
    assert (tmp_path / "3/femnist/train/x.parquet").exists()

    (here / "cifar-10-python.tar.gz").write_bytes(b"another file")
    (here / "x.parquet").unlink()
    capsys.readouterr()
    assert command("cifar10", "--data-dir", tmp_path / "4", "--from", here) == 2
    assert "cifar-10-python.tar.gz: its md5 is " in capsys.readouterr().err


@pytest.mark.parametrize("layout", ["", "digits/raw"], ids=["as published", "as data_dir"])
def test_a_damaged_file_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], layout: str
) -> None:
    content = {"train.gz": b"digits", "test.gz": b"more digits"}
    files = [
        RemoteFile((f"http://127.0.0.1:9/{file}",), f"digits/raw/{file}", f"md5:{hashlib.md5(whole).hexdigest()}")
        for file, whole in content.items()
    ]
    digits = DatasetFiles("digits", "none", 1, ("digits/raw/train*", "digits/raw/test*"), published(*files))
    monkeypatch.setattr("fedrun.data.download.catalogue.catalogue", lambda: {"digits": digits})
    here = tmp_path / "here" / layout
    here.mkdir(parents=True)
    for file, whole in content.items():
        (here / file).write_bytes(whole)
    taking = ("digits", "--from", tmp_path / "here", "--data-dir")
    assert command(*taking, tmp_path / "0") == 0
    assert (tmp_path / "0/digits/raw/test.gz").read_bytes() == b"more digits"

    (here / "test.gz").write_bytes(b"more dig")
    capsys.readouterr()
    assert command(*taking, tmp_path / "1") == 2
    assert capsys.readouterr().err.startswith(f"fedrun-data: {here / 'test.gz'}: its md5 is ")
    assert not list((tmp_path / "1").rglob("*.gz"))

    (here / "test.gz").unlink()  # a file that the user unpacked has no stated checksum
    (here / "test").write_bytes(b"unpacked")
    assert command(*taking, tmp_path / "2") == (0 if layout else 2)


def test_a_source_of_a_dataset_that_exists_is_said_to_be_unused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = tmp_path / "here.zip"
    here.write_bytes(tweets())
    fetching = ("sent140", "--data-dir", tmp_path)
    assert command(*fetching, "--from", here) == 0
    capsys.readouterr()
    assert command(*fetching) == 0
    assert capsys.readouterr().out == f"sent140 is in {tmp_path}\n"
    assert command(*fetching, "--from", here, "--url", "http://127.0.0.1:9") == 0
    unused = f"--from {here} and --url http://127.0.0.1:9"
    said = f"sent140 is in {tmp_path}; {unused} not used: to replace the files, delete them first\n"
    assert capsys.readouterr().out == said
    assert command(*fetching, "--from", "/nowhere") == 2
    assert capsys.readouterr().err == "fedrun-data: --from /nowhere: no such file or folder\n"


def test_tables_are_no_files_of_a_dataset_that_is_not_published_as_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "train.parquet").write_bytes(parquet())
    for name, lacked in (("sent140", "trainingandtestdata.zip"), ("mnist", "train-images-idx3-ubyte.gz")):
        assert command(name, "--data-dir", tmp_path / "there", "--from", here) == 2
        assert capsys.readouterr().err.startswith(f"fedrun-data: {here} lacks {lacked}; ")
    assert not list((tmp_path / "there").rglob("*.parquet"))


WHOLE = {
    "femnist": ("femnist/train/a.json", "femnist/test/a.json"),
    "cifar10": tuple(
        f"cifar-10-batches-py/{file}"
        for file in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch", "batches.meta")
    ),
    "cifar100": tuple(f"cifar-100-python/{file}" for file in ("train", "test", "meta")),
    "tinyimagenet": tuple(
        f"tiny-imagenet-200/{file}"
        for file in ("wnids.txt", "train/n1/images/a.JPEG", "val/val_annotations.txt", "val/images/b.JPEG")
    ),
    "celeba": ("celeba/train/a.json", "celeba/test/a.json", "celeba/img_align_celeba/1.jpg"),
    "emnist": (
        *(
            f"EMNIST/raw/emnist-byclass-{part}-{kind}-ubyte.gz"
            for part in ("train", "test")
            for kind in ("images-idx3", "labels-idx1")
        ),
        "EMNIST/raw/emnist-letters-mapping.txt",
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_all_of_a_datasets_files_are_taken(tmp_path: Path, name: str) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for file in (*WHOLE[name], f"{WHOLE[name][0].partition('/')[0]}/.fedrun-cache/old"):
        (here / file).parent.mkdir(parents=True, exist_ok=True)
        (here / file).write_text(file)
    assert command(name, "--data-dir", there, "--from", here) == 0
    taken = [str(path.relative_to(there)) for path in there.rglob("*") if path.is_file() and STAGING not in path.parts]
    assert sorted(taken) == sorted(WHOLE[name])


def test_a_part_of_cifar_is_not_taken_for_the_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cifar-10-batches-py").mkdir()
    for file in ("data_batch_5", "test_batch"):
        (tmp_path / "cifar-10-batches-py" / file).touch()
    assert command("list", "--data-dir", tmp_path) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("cifar10 ")]
    assert line.split()[1] == "missing"


def test_tables_of_splits_lie_where_the_hubs_do(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    for split in ("train", "valid", "test"):
        (here / f"{split}-0000.parquet").write_bytes(parquet())
    assert command("celeba", "--data-dir", tmp_path / "there", "--from", here) == 0
    taken = [str(path.relative_to(tmp_path / "there/celeba")) for path in (tmp_path / "there").rglob("*.parquet")]
    assert sorted(taken) == ["test/test-0000.parquet", "train/train-0000.parquet", "train/valid-0000.parquet"]


@pytest.mark.parametrize("failed", [False, True])
def test_two_commands_take_turns(site: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, failed: bool) -> None:
    """A failed one has removed the folder that both lock."""
    site.files["/a.bin"] = b"content"
    entry = DatasetFiles("", "", 0, ("a.bin",), published(RemoteFile((f"{site.address}/a.bin",), "a.bin")))
    (tmp_path / STAGING).mkdir()
    second = threading.Thread(target=download_dataset, args=("a", entry, tmp_path, None, QUIET))
    with caplog.at_level(logging.INFO):
        with waiting_lock(tmp_path / STAGING):
            second.start()
            while "waiting for another process" not in caplog.text:
                time.sleep(0.01)
            assert site.asked == []
            if failed:
                (tmp_path / STAGING).rmdir()
        second.join(timeout=10)
    assert (tmp_path / "a.bin").read_bytes() == b"content"


def test_without_locks_each_process_has_its_own_staging_folder(
    site: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one process downloads, another one begins and ends; each has a partial file of its own."""
    site.files["/a.bin"] = b"content"
    entry = DatasetFiles("", "", 0, ("a.bin",), published(RemoteFile((f"{site.address}/a.bin",), "a.bin")))
    monkeypatch.setattr(fcntl, "flock", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOLCK, "no locks")))
    others = [1]

    def meanwhile(_: str) -> Any:
        if others:
            others.clear()
            download_dataset("a", entry, tmp_path, None, QUIET)
        return lambda have, whole: None

    download_dataset("a", entry, tmp_path, None, meanwhile)
    assert (tmp_path / "a.bin").read_bytes() == b"content"
    assert list((tmp_path / STAGING).iterdir()) == []


def test_what_another_process_has_fetched_is_not_fetched_again(
    site: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site.files["/a.zip"] = tweets()
    archive = RemoteFile((f"{site.address}/a.zip",), ".", unpack="training.")
    entry = DatasetFiles("", "", 0, ("training.*",), published(archive))
    (tmp_path / STAGING).mkdir()
    second = threading.Thread(target=download_dataset, args=("a", entry, tmp_path, None, QUIET))
    with caplog.at_level(logging.INFO), waiting_lock(tmp_path / STAGING):
        second.start()
        while "waiting for another process" not in caplog.text:
            time.sleep(0.01)
        (tmp_path / "training.csv").touch()
    second.join(timeout=10)
    assert site.asked == []
    assert not (tmp_path / STAGING / "a").exists()


@pytest.mark.parametrize("name", catalogue())
def test_offline_every_dataset_says_which_file_goes_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert command(name, "--data-dir", tmp_path, "--url", "http://127.0.0.1:9") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert all(str(tmp_path / pattern) in said for pattern in catalogue()[name].required)
    assert f"fedrun-data {name} --data-dir {tmp_path} --from FOLDER" in said


def test_a_failed_download_into_a_misspelt_folder_leaves_no_folder(site: Any, tmp_path: Path) -> None:
    entry = DatasetFiles("", "", 0, ("a.bin",), published(RemoteFile((f"{site.address}/a.bin",), "a.bin")))
    (tmp_path / "mine").mkdir()
    for data_dir in (tmp_path / "new" / "data", tmp_path / "mine"):
        with pytest.raises(InputError, match="404"):
            download_dataset("a", entry, data_dir, None, QUIET)
    assert list(tmp_path.rglob("*")) == [tmp_path / "mine"]


def test_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "femnist/train").mkdir(parents=True)
    (tmp_path / "femnist/train/a.json").write_text("{}")
    assert command("list", "--data-dir", tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "available" in next(line for line in lines if line.startswith("femnist"))
    assert "missing" in next(line for line in lines if line.startswith("celeba"))
    assert f"lacks {tmp_path}/celeba/train/*" in "\n".join(lines)


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("femnist", ("all_data/all_data_0.json",)),
        ("sent140", ("all_data/all_data.json",)),
        ("celeba", ("identity_CelebA.txt", "list_attr_celeba.txt", "img_align_celeba/000001.jpg")),
    ],
)
def test_other_forms_that_the_loader_reads_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, files: tuple[str, ...]
) -> None:
    def listed() -> str:
        assert command("list", "--data-dir", tmp_path) == 0
        return next(line for line in capsys.readouterr().out.splitlines() if line.startswith(name)).split()[1]

    for file in files:
        assert listed() == "missing"
        path = tmp_path / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert listed() == "available"


@pytest.fixture(autouse=True)
def _log_as_before() -> Any:
    root = logging.getLogger()
    handlers = root.handlers[:]
    yield
    root.handlers[:] = handlers


def test_a_part_of_the_files_is_not_put_in_place(site: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second of two files fails once; then what was fetched already is not fetched again."""
    listed = {"default": {"train": [f"{site.address}/0.parquet", f"{site.address}/1.parquet"]}}
    site.files |= {"/api/datasets/flwrlabs/femnist/parquet": json.dumps(listed).encode(), "/0.parquet": parquet()}
    fetching = ("femnist", "--data-dir", tmp_path, "--url", site.address)
    assert command(*fetching) == 2
    assert "404" in capsys.readouterr().err
    assert not (tmp_path / "femnist").exists()
    site.files["/1.parquet"] = parquet()
    assert command(*fetching) == 0
    assert len(list((tmp_path / "femnist/train").iterdir())) == 2
    assert [path for path, _ in site.asked].count("/0.parquet") == 1


def test_a_command_that_was_killed_as_it_put_files_in_place(site: Any, tmp_path: Path) -> None:
    """One file is in its place, the other still aside: together they look like the dataset, and are not."""
    listed = {"default": {"train": [f"{site.address}/0.parquet", f"{site.address}/1.parquet"]}}
    site.files["/api/datasets/flwrlabs/femnist/parquet"] = json.dumps(listed).encode()
    placed, aside = tmp_path / "femnist/train", tmp_path / STAGING / "femnist"
    for path in (placed / "train-0000.parquet", aside / "train-0001.parquet"):
        path.parent.mkdir(parents=True)
        path.write_bytes(parquet())
    (aside / "placing").touch()
    assert command("femnist", "--data-dir", tmp_path, "--url", site.address) == 0
    assert sorted(path.name for path in placed.iterdir()) == ["train-0000.parquet", "train-0001.parquet"]
    assert not aside.exists()


def test_a_folder_without_a_hubs_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").mkdir()
    offline = ("--url", "http://127.0.0.1:9")
    assert command("femnist", "--data-dir", tmp_path, "--from", tmp_path / "mine", *offline) == 2
    assert f"{tmp_path / 'mine'} has no files of femnist; " in capsys.readouterr().err


def test_files_that_were_taken_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted after the first of two tables; the same command then takes both."""
    here, there = tmp_path / "mine", tmp_path / "data"
    here.mkdir()
    for number in (0, 1):
        (here / f"train-{number}.parquet").write_bytes(parquet())
    whole, copied = install.shutil.copyfile, []

    def once(source: Path, target: Path) -> None:
        if copied:
            raise KeyboardInterrupt
        copied.append(source)
        whole(source, target)

    taking = ("femnist", "--data-dir", there, "--from", here)
    with monkeypatch.context() as patch:
        patch.setattr(install.shutil, "copyfile", once)
        assert command(*taking) == 130
    assert len(list((there / "femnist/train").iterdir())) == 1
    assert command(*taking) == 0
    assert len(list((there / "femnist/train").iterdir())) == 2


def test_a_rejected_archive_leaves_nothing_behind(
    site: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The name of a file in it is also a folder's. The next command downloads it again, and finds another one."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("training.1.csv", TWEET)
        archive.writestr("training.2.csv", TWEET)
        archive.writestr("training.2.csv/a", TWEET)
    site.files["/trainingandtestdata.zip"] = content.getvalue()
    fetching = ("sent140", "--data-dir", tmp_path, "--url", site.address)
    assert command(*fetching) == 2
    assert "trainingandtestdata.zip cannot be unpacked: " in capsys.readouterr().err
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []
    site.files["/trainingandtestdata.zip"] = tweets()
    assert command(*fetching) == 0

    mine = tmp_path / "mine.zip"
    mine.write_bytes(content.getvalue())
    assert command("sent140", "--data-dir", tmp_path / "other", "--from", mine) == 2
    assert mine.exists()
    assert not [path for path in (tmp_path / "other").rglob("*") if path.is_file()]
