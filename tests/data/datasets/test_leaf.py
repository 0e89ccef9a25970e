"""Reading LEAF's files: what all of its datasets share, tried with FEMNIST."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedrun.data.datasets.femnist import Femnist
from fedrun.data.datasets.leaf import ordered
from fedrun.system.errors import InputError

Samples = tuple[list[Any], list[Any]]


def image(grey: int) -> list[float]:
    return [grey / 255] * 784


def samples(*greys: int) -> Samples:
    """One image of each grey level, all of class 1."""
    return [image(grey) for grey in greys], [1] * len(greys)


def femnist(root: Path, min_samples: int = 1, cache_dir: Path | None = None) -> Femnist:
    return Femnist(
        data_dir=str(root),
        cache_dir=None if cache_dir is None else str(cache_dir),
        min_samples=min_samples,
        min_samples_after_split=1,
    )


def test_users_of_a_split_come_from_all_its_files(tmp_path: Path, write_leaf: Callable[..., Path]) -> None:
    write_leaf("femnist/train/b.json", {"ann": samples(1, 2, 3), "cat": samples(4)})
    write_leaf("femnist/train/a.json", {"bob": samples(5, 6)})
    write_leaf("femnist/test/a.json", {"dan": samples(7), "eve": samples(8, 9), "ann": samples(10)})
    dataset = femnist(tmp_path).load()
    users = dataset.users
    assert users is not None
    # Training users by ascending, test users by descending number of samples, then by name.
    assert users.names == ("cat", "bob", "ann", "eve", "ann", "dan")
    assert users.offsets.tolist() == [0, 1, 3, 6, 8, 9, 10]
    assert users.offsets.dtype == torch.int64
    assert users.training == 3
    assert dataset.train_size == 6
    assert dataset.inputs.shape == (10, 1, 28, 28)
    assert dataset.inputs[:, 0, 27, 0].tolist() == [4, 5, 6, 1, 2, 3, 8, 9, 10, 7]
    assert dataset.targets.tolist() == [1] * 10
    assert dataset.targets.dtype == torch.int64


def test_suffixes_in_capitals_are_read(tmp_path: Path, write_leaf: Callable[..., Path]) -> None:
    write_leaf("femnist/train/a.json", {"ann": samples(1)})
    write_leaf("femnist/train/B.JSON", {"bob": samples(2)})
    assert femnist(tmp_path).load().inputs[:, 0, 0, 0].tolist() == [1, 2]


def test_without_a_test_folder_all_users_are_training_users(tmp_path: Path, write_leaf: Callable[..., Path]) -> None:
    write_leaf("femnist/train/a.json", {"ann": samples(1, 2), "bob": samples(3)})
    dataset = femnist(tmp_path).load()
    assert dataset.users is not None
    assert dataset.users.training == len(dataset.users.names) == 2
    assert dataset.train_size == 3


@pytest.mark.parametrize(
    ("min_samples", "names", "greys", "training"),
    [
        (1, ("cat", "bob", "ann", "eve", "dan"), [4, 5, 6, 1, 2, 3, 8, 9, 7], 3),
        (2, ("bob", "ann", "eve"), [5, 6, 1, 2, 3, 8, 9], 2),
    ],
)
def test_users_with_few_samples_are_left_out_of_both_splits(
    tmp_path: Path,
    write_leaf: Callable[..., Path],
    caplog: pytest.LogCaptureFixture,
    min_samples: int,
    names: tuple[str, ...],
    greys: list[int],
    training: int,
) -> None:
    write_leaf("femnist/train/a.json", {"ann": samples(1, 2, 3), "cat": samples(4), "bob": samples(5, 6)})
    write_leaf("femnist/test/a.json", {"dan": samples(7), "eve": samples(8, 9)})
    with caplog.at_level(logging.INFO):
        dataset = femnist(tmp_path, min_samples).load()
    assert dataset.users is not None
    assert dataset.users.names == names
    assert dataset.users.training == training
    assert dataset.inputs[:, 0, 0, 0].tolist() == greys
    assert dataset.users.offsets[-1] == len(greys)
    assert dataset.train_size == dataset.users.offsets[training]
    assert (
        f"{training} training users of 3, those with at least dataset.min_samples={min_samples} samples" in caplog.text
    )


@pytest.mark.parametrize(("min_samples", "split"), [(4, "training"), (3, "test")])
def test_a_split_without_users_is_refused(
    tmp_path: Path, write_leaf: Callable[..., Path], min_samples: int, split: str
) -> None:
    write_leaf("femnist/train/a.json", {"ann": samples(1, 2, 3)})
    write_leaf("femnist/test/a.json", {"bob": samples(1, 2)})
    with pytest.raises(InputError, match=f"dataset.min_samples={min_samples} leaves no {split} user"):
        femnist(tmp_path, min_samples).load()


def test_the_fingerprint_follows_the_content(tmp_path: Path, write_leaf: Callable[..., Path]) -> None:
    write_leaf("one/femnist/train/a.json", {"ann": samples(1, 2), "bob": samples(3, 4, 5)})
    write_leaf("two/femnist/train/x.json", {"bob": samples(3, 4, 5)})
    write_leaf("two/femnist/train/y.json", {"ann": samples(1, 2)})
    write_leaf("three/femnist/train/a.json", {"ann": samples(1, 2), "bob": samples(3, 4, 6)})
    one, two, three = (femnist(tmp_path / name).load().fingerprint for name in ("one", "two", "three"))
    assert one == two != three
    assert femnist(tmp_path / "one", min_samples=2).load().fingerprint == one  # leaves nobody out
    assert femnist(tmp_path / "one", min_samples=3).load().fingerprint != one


def test_user_data_may_come_before_the_lists(tmp_path: Path, write_leaf: Callable[..., Path]) -> None:
    path = write_leaf("femnist/train/a.json", {"a.b": samples(1, 2), "": samples(3)})
    path.write_text(json.dumps(json.loads(path.read_text()), sort_keys=True))
    dataset = femnist(tmp_path).load()
    assert dataset.users is not None
    assert dataset.users.names == ("", "a.b")


def test_what_leafs_split_by_sample_leaves_behind_is_ignored(tmp_path: Path, write_leaf: Callable[..., Path]) -> None:
    users = {"ann": samples(1, 2), "single": samples()}
    write_leaf("femnist/train/a.json", users, users=["ann"], num_samples=[2], hierarchies=["play"])
    dataset = femnist(tmp_path).load()
    assert dataset.users is not None
    assert dataset.users.names == ("ann",)


ANN = {"ann": samples(1, 2)}


@pytest.mark.parametrize(
    ("users", "changes", "complaint"),
    [
        (ANN, {"users": ["ann", "bob"], "num_samples": [2, 1]}, "user 'bob' has no data in user_data"),
        (ANN, {"user_data": {}}, "user 'ann' has no data in user_data"),
        (ANN, {"user_data": [1]}, "user 'ann' has no data in user_data"),
        (ANN, {"users": [], "num_samples": []}, "have no users"),
        (ANN | {"bob": samples(3)}, {"users": ["ann"], "num_samples": [2]}, "has user 'bob', who is not in users"),
        (ANN, {"num_samples": [3]}, "user 'ann' has 2 samples, but num_samples says 3"),
        (ANN, {"num_samples": [2, 2]}, "1 users, but num_samples has 2 entries"),
        (ANN, {"num_samples": [2.0]}, "num_samples must be a list of integers"),
        (ANN, {"num_samples": [True]}, "num_samples must be a list of integers"),
        (ANN, {"num_samples": 2}, "num_samples must be a list of integers"),
        (ANN, {"users": [1]}, "users must be a list of names"),
        (ANN, {"users": None}, "users must be a list of names"),
        (ANN, {"users": ["ann", "ann"], "num_samples": [2, 2]}, "user 'ann' is twice in users"),
        ({"ann": samples()}, {}, "user 'ann' has 0 samples"),
        (ANN, {"user_data": {"ann": 5}}, "user 'ann' must have two lists, x and y"),
        (ANN, {"user_data": {"ann": [1]}}, "user 'ann' must have two lists, x and y"),
        (ANN, {"user_data": {"ann": {"x": []}}}, "user 'ann' must have two lists, x and y"),
        (ANN, {"user_data": {"ann": {"x": [image(1)], "y": [1, 1]}}}, "user 'ann' has 1 samples but 2 labels"),
        ({"a\nb": samples(1)}, {"num_samples": [3]}, r"user 'a\nb' has 1 samples"),
    ],
)
def test_lists_that_contradict_the_data_are_refused(
    tmp_path: Path,
    write_leaf: Callable[..., Path],
    users: dict[str, Samples],
    changes: dict[str, object],
    complaint: str,
) -> None:
    path = write_leaf("femnist/train/a.json", users, **changes)
    refused(tmp_path, path.parent if "no users" in complaint else path, complaint)


def test_a_user_twice_in_a_split_is_refused(tmp_path: Path, write_leaf: Callable[..., Path]) -> None:
    write_leaf("femnist/train/a.json", {"ann": samples(1)})
    path = write_leaf("femnist/train/b.json", {"ann": samples(2)})
    refused(tmp_path, path, "user 'ann' is also in another file")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("]}}}", "]}}", "is cut short"),
        ("]}}}", "", "is cut short"),
        ("]}}}", "]}}} x", "is not valid JSON in UTF-8: trailing garbage"),
        ('"y":', '"y"', "is not valid JSON in UTF-8"),
        ('"ann": {', '"ann": {"x": [], "y": []}, "ann": {', "has 0 samples, but num_samples says 1"),
        ("}}}", '}, "ann": {"x": [], "y": []}}}', "has user 'ann' twice"),
        ('"x": [[', '"x": [[NaN, ', "is not valid JSON in UTF-8: invalid char in json text."),
        ('"x": [[', '"x": [[1e999, ', "is not valid JSON in UTF-8: numeric (floating point) overflow"),
    ],
)
def test_text_that_is_not_json_is_refused(
    tmp_path: Path, write_leaf: Callable[..., Path], old: str, new: str, complaint: str
) -> None:
    path = write_leaf("femnist/train/a.json", {"ann": samples(1)})
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    refused(tmp_path, path, complaint)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is cut short"),
        (b"[1]", "users must be a list of names"),
        (b'{"users": ["\xff"], "num_samples": [1], "user_data": {}}', "not valid JSON in UTF-8: invalid bytes in UTF8"),
        (b"\xef\xbb\xbf{}", "is not valid JSON in UTF-8"),
    ],
)
def test_other_bytes_are_refused(
    tmp_path: Path, write_leaf: Callable[..., Path], content: bytes, complaint: str
) -> None:
    path = write_leaf("femnist/train/a.json", {})
    path.write_bytes(content)
    refused(tmp_path, path, complaint)


def test_missing_data_are_refused_with_the_way_to_get_them(tmp_path: Path) -> None:
    complaint = "git clone https://github.com/TalwalkarLab/leaf && cd leaf/data/femnist && ./preprocess.sh"
    refused(tmp_path, tmp_path / "femnist/train", complaint)
    (tmp_path / "femnist/train").mkdir(parents=True)
    refused(tmp_path, tmp_path / "femnist/train", "has no .json or .parquet files")


def test_an_empty_test_folder_is_refused(tmp_path: Path, write_leaf: Callable[..., Path]) -> None:
    write_leaf("femnist/train/a.json", ANN)
    (tmp_path / "femnist/test").mkdir()
    refused(tmp_path, tmp_path / "femnist/test", "has no .json or .parquet files")


def test_sizes_decide_the_order_and_names_break_ties() -> None:
    index = ordered({"b": 2, "a": 2, "c": 1}, {"d": 1, "f": 3, "e": 3}, (4,))
    assert index.names == ("c", "a", "b", "e", "f", "d")
    assert index.sizes == (1, 2, 2, 3, 3, 1)
    assert index.training == 3


def refused(root: Path, place: Path, complaint: str) -> None:
    """The data are refused in one line that names the place, and no cache remains."""
    with pytest.raises(InputError) as refusal:
        femnist(root).load()
    message = str(refusal.value)
    assert str(place) in message
    assert complaint in message
    assert "\n" not in message
    cache = root / "femnist/.fedrun-cache"
    assert not cache.exists() or list(cache.iterdir()) == []
