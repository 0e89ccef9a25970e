"""Datasets of users from Parquet files, in the columns of the hub's flwrlabs/femnist, shakespeare and celeba."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image

from fedrun.data.datasets.celeba import Celeba
from fedrun.data.datasets.femnist import CLASS_NAMES, Femnist
from fedrun.data.datasets.shakespeare import Shakespeare

from ...helpers.refused_datasets import refused

Columns = dict[str, list[Any]]


def png(pixels: np.ndarray) -> dict[str, Any]:
    content = BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    return {"bytes": content.getvalue(), "path": "a.png"}


def grey(level: int, side: int = 28) -> dict[str, Any]:
    return png(np.full((side, side), level, np.uint8))


def write(path: Path, columns: Columns, features: dict[str, Any] | None = None, row_group: int = 2) -> Path:
    """A Parquet file of several row groups; ``features`` as Hugging Face's library writes them into the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns)
    if features is not None:
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pa.parquet.write_table(table, path, row_group_size=row_group)
    return path


def femnist(root: Path) -> Femnist:
    return Femnist(data_dir=str(root), cache_dir=None, min_samples=1, min_samples_after_split=1)


def shakespeare(root: Path) -> Shakespeare:
    return Shakespeare(
        data_dir=str(root),
        cache_dir=None,
        min_samples=1,
        min_samples_after_split=1,
        unknown="refuse",
        window=80,
        predict="last",
    )


def celeba(root: Path) -> Celeba:
    return Celeba(data_dir=str(root), cache_dir=None, min_samples=1, min_samples_after_split=1)


WRITERS = {
    "image": [grey(level) for level in (1, 2, 3, 4, 5)],
    "writer_id": ["f1", "f2", "f1", "f2", "f1"],
    "hsf_id": [0] * 5,
    "character": [0, 10, 36, 61, 9],
}


def test_a_users_rows_may_lie_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedrun.data.datasets.user_tables.ROWS", 2)
    write(tmp_path / "femnist/train/0000.parquet", WRITERS)
    write(tmp_path / "femnist/train/0001.parquet", {name: values[:1] for name, values in WRITERS.items()})
    dataset = femnist(tmp_path).load()
    assert dataset.users is not None
    assert dataset.users.names == ("f2", "f1")
    assert dataset.users.offsets.tolist() == [0, 2, 6]
    assert dataset.users.training == 2  # the hub makes no split
    assert dataset.inputs[:, 0, 14, 3].tolist() == [2, 4, 1, 3, 5, 1]
    assert dataset.targets.tolist() == [10, 61, 0, 36, 9, 0]


def test_the_same_samples_as_json_and_as_parquet_have_the_same_fingerprint(
    tmp_path: Path, write_leaf: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedrun.data.datasets.user_tables.ROWS", 2)
    write(tmp_path / "one/femnist/train/0000.parquet", WRITERS)
    users = {
        "f1": ([[level / 255] * 784 for level in (1, 3, 5)], [0, 36, 9]),
        "f2": ([[level / 255] * 784 for level in (2, 4)], [10, 61]),
    }
    write_leaf("two/femnist/all_data/a.json", users)  # where LEAF's scripts leave what they have not split
    assert femnist(tmp_path / "one").load().fingerprint == femnist(tmp_path / "two").load().fingerprint


def test_the_hubs_class_numbers_are_translated(tmp_path: Path) -> None:
    features = {"character": {"_type": "ClassLabel", "names": sorted(CLASS_NAMES, key=str.lower)}}  # 0-9 A a B b ..
    write(tmp_path / "femnist/train/0000.parquet", WRITERS | {"character": [0, 10, 11, 12, 61]}, features)
    # Samples 2 and 4 are of f2: A and B; samples 1, 3, 5 are of f1: 0, a and z.
    assert femnist(tmp_path).load().targets.tolist() == [10, 11, 0, 36, 61]


def test_shakespeare(tmp_path: Path) -> None:
    columns = {"character_id": ["R", "J"], "x": ["a" * 80, " " * 80], "y": ["!", "}"]}
    write(tmp_path / "shakespeare/train/0000.parquet", columns)
    dataset = shakespeare(tmp_path).load()
    assert dataset.users is not None
    assert dataset.users.names == ("J", "R")
    assert dataset.targets.tolist() == [79, 1]
    assert dataset.inputs[:, 0].tolist() == [0, 52]  # 10 marks, 10 digits, 4 marks, 26 capitals, [ and ] come before a


def test_celeba(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (218, 178, 3), np.uint8)
    images = [png(np.full((218, 178, 3), (7, 8, 9), np.uint8)), png(noise)]
    columns = {"image": images, "celeb_id": [12, 3], "Smiling": [True, False]}
    write(tmp_path / "celeba/train/0000.parquet", columns)
    dataset = celeba(tmp_path).load()
    assert dataset.users is not None
    assert dataset.users.names == ("12", "3")
    assert dataset.targets.tolist() == [1, 0]
    assert dataset.inputs[0, :, 83, 0].tolist() == [7, 8, 9]
    resized = np.asarray(Image.fromarray(noise).resize((84, 84), Image.Resampling.BICUBIC))
    assert np.array_equal(dataset.inputs[1].numpy(), resized.transpose(2, 0, 1))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"image": [grey(1, side=32)] * 5}, "image a.png has 32x32 pixels instead of 28x28"),
        ({"image": [{"bytes": b"GIF89a", "path": None}] * 5}, "image without a name cannot be decoded"),
        ({"image": [{"bytes": None, "path": "a.png"}] * 5}, "is not an image with bytes"),
        ({"image": ["a.png"] * 5}, "'a.png' is not an image with bytes"),
        ({"character": [62] * 5}, "sample 0 has label 62; labels are integers from 0 to 61"),
        ({"character": ["A"] * 5}, "sample 0 has label 'A'"),
        ({"character": [None] * 5}, "sample 0 has label None"),
        ({"writer_id": ["f1", None, "f1", "f1", "f1"]}, "column writer_id has None; users are strings or integers"),
    ],
)
def test_samples_that_cannot_be_used_are_refused(tmp_path: Path, change: Columns, complaint: str) -> None:
    refused(femnist(tmp_path), write(tmp_path / "femnist/train/0000.parquet", WRITERS | change), complaint)


def test_unknown_classes_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "femnist/train/0.parquet", WRITERS, {"character": {"names": ["0", "é"]}})
    refused(femnist(tmp_path), path, "column character has a class 'é'")


def test_other_columns_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "femnist/train/0.parquet", {"image": [grey(1)], "label": [3]})
    refused(femnist(tmp_path), path, "has no column writer_id; it has image, label")


@pytest.mark.parametrize("repeated", ["writer_id", "image", "character"])
def test_a_column_twice_is_refused(tmp_path: Path, repeated: str) -> None:
    path = tmp_path / "femnist/train/0.parquet"
    path.parent.mkdir(parents=True)
    table = pa.table(WRITERS)
    pa.parquet.write_table(table.append_column(repeated, table.column(repeated)), path)
    refused(femnist(tmp_path), path, f"has 2 columns {repeated}; it has image, ")


def test_a_table_without_labels_is_refused(tmp_path: Path) -> None:
    columns = {name: values for name, values in WRITERS.items() if name != "character"}
    path = write(tmp_path / "femnist/train/0.parquet", columns)
    refused(femnist(tmp_path), path, "has no column character; it has ")


def test_a_table_without_rows_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "femnist/train/0.parquet", {name: values[:0] for name, values in WRITERS.items()})
    refused(femnist(tmp_path), path.parent, "have no users")


@pytest.mark.parametrize("keep", [0, 3, 100, -10])
def test_a_cut_file_is_refused(tmp_path: Path, keep: int) -> None:
    path = write(tmp_path / "femnist/train/0.parquet", WRITERS)
    path.write_bytes(path.read_bytes()[:keep])
    refused(femnist(tmp_path), path, "is not a Parquet file that can be read")


def test_a_mixture_of_formats_is_refused(tmp_path: Path, write_leaf: Callable[..., Path]) -> None:
    write(tmp_path / "femnist/train/0.parquet", WRITERS)
    write_leaf("femnist/train/a.json", {"ann": ([[0.5] * 784], [1])})
    refused(femnist(tmp_path), tmp_path / "femnist", "has .json and .parquet files; allowed: files of one format")
