"""Sentiment140, from the publisher's CSV and from LEAF's JSON, with small word vectors."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedrun.data.datasets.sent140 import Sent140, tokens
from fedrun.system.errors import InputError

from ...helpers.refused_datasets import refused

GLOVE = "good 1 2\nbad -1 0.5\n<user> 0.25 0\ncafé 8 8\n! 0 -4\ngood 9 9\n"


def sent140(root: Path, min_samples: int = 1) -> Sent140:
    vectors = root / "vectors.txt"
    if not vectors.exists():
        vectors.write_text(GLOVE, encoding="utf-8")
    return Sent140(
        data_dir=str(root),
        cache_dir=None,
        min_samples=min_samples,
        min_samples_after_split=1,
        vectors=str(vectors),
        dimension=2,
    )


def row(label: int, user: str, text: str) -> str:
    return f'"{label}","1467810369","Mon Apr 06 22:19:45 PDT 2009","NO_QUERY","{user}","{text}"\n'


def write_csv(root: Path, *rows: str) -> Path:
    path = root / "sent140/train/training.1600000.processed.noemoticon.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(rows).encode("latin-1"))
    return path


def test_a_tweet_is_the_mean_of_its_words(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_csv(
        tmp_path,
        row(0, "ann", "@bob BAD, bad &lt;unheard-of"),
        row(4, "bob", "Good!"),
        row(4, "ann", "caf\xe9 good"),
        row(0, "ann", "nothing known"),
    )
    dataset = sent140(tmp_path).load()
    assert dataset.users is not None
    assert dataset.users.names == ("bob", "ann")
    assert dataset.inputs.dtype == torch.float32
    # (1, 2) and (0, -4); <user> (0.25, 0) and twice (-1, 0.5); (8, 8) and (1, 2)
    expected = [[0.5, -1.0], [-1.75 / 3, 1 / 3], [4.5, 5.0], [0.0, 0.0]]
    assert torch.allclose(dataset.inputs, torch.tensor(expected))
    assert torch.equal(dataset.encoding(dataset.inputs), dataset.inputs)
    assert dataset.targets.tolist() == [1, 0, 1, 0]
    assert "1 of 4 tweets have no word in vectors.txt and became zero vectors" in caplog.text


def test_leafs_json_gives_the_same(tmp_path: Path, write_leaf: Callable[..., Path]) -> None:
    write_csv(tmp_path / "csv", row(4, "ann", "good"), row(0, "ann", "bad"))
    tweets = [["1", "Mon", "NO_QUERY", "ann", text] for text in ("good", "bad")]
    write_leaf("json/sent140/train/a.json", {"ann": (tweets, [1, 0])})
    assert sent140(tmp_path / "csv").load().fingerprint == sent140(tmp_path / "json").load().fingerprint


def test_word_vectors_are_read_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_csv(tmp_path, row(0, "ann", "bad bad"))
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            assert sent140(tmp_path).load().inputs.tolist() == [[-1.0, 0.5]]
    assert sum("vectors.txt (once)" in message for message in caplog.messages) == 1
    (tmp_path / "vectors.txt").write_text("good 5 5\nbad 6 7\n")
    assert sent140(tmp_path).load().inputs.tolist() == [[6.0, 7.0]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't stop", ["don't", "stop"]),
        ("see http://a.b/c?d=e www.f.g", ["see", "<url>", "<url>"]),
        ("@Ann: #Fun!! 3,000.5", ["<user>", ":", "<hashtag>", "fun", "!", "!", "<number>"]),
        ("&quot;caf\xe9&quot; &amp; you", ['"', "caf\xe9", '"', "&", "you"]),
        ("  ", []),
    ],
)
def test_tokens(text: str, expected: list[str]) -> None:
    assert tokens(text) == expected


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (row(0, "ann", "x") + row(2, "ann", "x"), "line 2 has label '2'; labels are 0 and 4"),
        ('"0","1","Mon"\n', "line 1 has 3 columns; the 6 columns are label, id, date, query, user, text"),
        ("label,id,date,query,user,text\n", "line 1 has label 'label'"),
        (row(0, "ann", "x") + row(0, "ann", "cut off")[:-6], "is cut short"),
        (row(0, "ann", "x") + row(0, "ann", 'caf\xe9 ""cut"" off')[:-6], "is cut short"),
        (row(0, "ann", "x") + row(0, "ann", "cut off")[:-20], "line 2 has 4 columns"),
        ("", "have no users"),
    ],
)
def test_tables_that_cannot_be_used_are_refused(tmp_path: Path, content: str, complaint: str) -> None:
    path = write_csv(tmp_path, content)
    refused(sent140(tmp_path), path if content else path.parent, complaint)


@pytest.mark.parametrize(
    ("sample", "complaint"),
    [
        (["1", "Mon", "NO_QUERY", "ann"], "a tweet is [id, date, query, user, text]"),
        ("good", "sample 0 is 'good'; a tweet is"),
        (["1", "Mon", "NO_QUERY", "ann", None], "a tweet is"),
    ],
)
def test_samples_that_are_no_tweets_are_refused(
    tmp_path: Path, write_leaf: Callable[..., Path], sample: Any, complaint: str
) -> None:
    path = write_leaf("sent140/train/a.json", {"ann": ([sample], [0])})
    refused(sent140(tmp_path), path, complaint)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", " has no words"),
        (b"good 1 2\nbad 1", ": line 2 is not a word and 2 finite numbers"),
        (b"good 1 2 3\n", ": line 1 is not a word and 2 finite numbers"),
        (b"good 1 nan\n", ": line 1 is not a word and 2 finite numbers"),
        (b"good 1 two\n", ": line 1 is not a word and 2 numbers in UTF-8"),
        (b"caf\xe9 1 2\n", ": line 1 is not a word and 2 numbers in UTF-8"),
    ],
)
def test_word_vectors_that_cannot_be_used_are_refused(tmp_path: Path, content: bytes, complaint: str) -> None:
    write_csv(tmp_path, row(0, "ann", "x"))
    (tmp_path / "vectors.txt").write_bytes(content)
    with pytest.raises(InputError) as refusal:
        sent140(tmp_path).load()
    assert str(refusal.value) == f"{tmp_path / 'vectors.txt'}{complaint}"  # the tweets' file is not named


def test_missing_word_vectors_are_refused_with_the_way_to_get_them(tmp_path: Path) -> None:
    config = sent140(tmp_path)
    write_csv(tmp_path, row(0, "ann", "x"))
    (tmp_path / "vectors.txt").unlink()
    refused(config, tmp_path / "vectors.txt", "no such file; fedrun-data glove fetches")
