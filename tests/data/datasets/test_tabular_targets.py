"""Tables with numbers to predict, and with several labels."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedrun.config.composed import compose
from fedrun.data.tasks.multi_label import MultiLabel
from fedrun.data.tasks.regression import Regression
from fedrun.experiment.experiment import build_experiment
from fedrun.system.errors import InputError

TABLE = "part,a,price,size\ntest,1,0.5,1\ntrain,3,2,1\ntrain,5,6,0\n"


def load(tmp_path: Path, option: str, *overrides: str, table: str = TABLE):
    path = tmp_path / "table.csv"
    path.write_text(table, encoding="utf-8")
    settings = [
        f"dataset={option}",
        f"dataset.file={path}",
        "dataset.client=null",
        "dataset.split=part",
        "partition=iid",
    ]
    return build_experiment(compose([*settings, "model=mlp", *overrides])).dataset.load()


def test_numbers_are_scaled_by_the_training_rows(tmp_path: Path) -> None:
    dataset = load(tmp_path, "tabular_regression", "dataset.labels=[price,size]")
    assert dataset.targets.tolist() == [[2, 1], [6, 0], [0.5, 1]]
    assert dataset.targets.dtype == torch.float32
    assert dataset.spec.task == Regression(mean=(4.0, 0.5), std=(2.0, 0.5))
    assert (dataset.spec.classes, dataset.spec.input_shape, dataset.class_names) == (2, (1,), ("price", "size"))


def test_numbers_as_they_are(tmp_path: Path) -> None:
    settings = ("dataset.labels=[price]", "dataset.standardise=false")
    assert load(tmp_path, "tabular_regression", *settings).spec.task == Regression()


def test_numbers_that_float32_cannot_tell_apart(tmp_path: Path) -> None:
    lines = "".join(f"train,{row},{1_700_000_000 + row}\n" for row in range(20))
    with pytest.raises(InputError, match="price varies too little for numbers of its size"):
        load(tmp_path, "tabular_regression", "dataset.labels=[price]", table=f"part,a,price\ntest,1,5\n{lines}")


def test_numbers_that_do_not_vary_keep_their_unit(tmp_path: Path) -> None:
    table = "part,a,price\ntest,1,5\n" + "train,1,0.1\n" * 3  # whose standard deviation is 1.4e-17
    task = load(tmp_path, "tabular_regression", "dataset.labels=[price]", table=table).spec.task
    assert isinstance(task, Regression)
    assert task.std == (1.0,)


def test_several_labels(tmp_path: Path) -> None:
    dataset = load(tmp_path, "tabular_multi_label", "dataset.labels=[size]")
    assert dataset.targets.tolist() == [[1], [0], [1]]
    assert dataset.spec.task == MultiLabel()


@pytest.mark.parametrize(
    ("option", "labels", "message"),
    [
        ("tabular_multi_label", "[size,price]", "row 1 has price 0.5; allowed: 0 or 1"),
        (
            "tabular_regression",
            "[cost]",
            "dataset.labels: there is no column 'cost'. Its columns: part, a, price, size",
        ),
        ("tabular_regression", "[price,size,price]", "dataset.labels: names price twice"),
        ("tabular_regression", "[]", "dataset.labels: which column is predicted"),
        ("tabular_regression", "[part]", "dataset.labels: targets that are not numbers: part"),
    ],
)
def test_wrong_columns(tmp_path: Path, option: str, labels: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(tmp_path, option, f"dataset.labels={labels}")


def test_texts_cannot_be_predicted_as_numbers(tmp_path: Path) -> None:
    message = (
        r"dataset.labels: which column is predicted\? .*; inputs that are not numbers: price; allowed: "
        r"dataset.drop=\[price\]"
    )
    with pytest.raises(InputError, match=message):
        load(tmp_path, "tabular_regression", table="part,a,price\ntrain,1,low\ntest,2,high\n")
    with pytest.raises(InputError, match=r"dataset.labels: targets that are not numbers: y"):
        load(tmp_path, "tabular_regression", table="part,a,y\ntrain,1,low\ntest,2,high\n")


@pytest.mark.filterwarnings("error")
def test_numbers_beyond_float32(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"table.csv: row 3 has price 1e\+300; allowed: up to 3.4e38 \(float32\)$"):
        load(tmp_path, "tabular_regression", "dataset.labels=[price]", table=TABLE.replace("6,0", "1e300,0"))
