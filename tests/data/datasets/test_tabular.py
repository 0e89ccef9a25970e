"""Tables of one's own."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet
import pytest
import torch

from fedrun.data.datasets.sample_table import read_table
from fedrun.data.datasets.tabular import Tabular
from fedrun.data.partitions.natural import Natural
from fedrun.system.errors import InputError

from ...helpers.refused_datasets import refused

TABLE = "client,a,label,b,part\nx,1,0,10,train\ny,3,2,10,test\nx,5,1,10,train\ny,7,1,10,train\nx,9,0,11,test\n"


def tabular(
    path: Path,
    *,
    client: str | None = "client",
    split: str | None = "part",
    test_share: float | None = None,
    standardise: bool = False,
) -> Tabular:
    return Tabular(
        file=str(path),
        label="label",
        classes=3,
        client=client,
        split=split,
        test_share=test_share,
        drop=(),
        standardise=standardise,
    )


def write(tmp_path: Path, text: str = TABLE) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_rows_are_grouped_by_split_and_client(tmp_path: Path) -> None:
    dataset = tabular(write(tmp_path)).load()
    users = dataset.users
    assert users is not None
    assert (users.names, users.training, dataset.train_size) == (("x", "y", "x", "y"), 2, 3)
    assert users.offsets.tolist() == [0, 2, 3, 4, 5]
    assert dataset.inputs.tolist() == [[1, 10], [5, 10], [7, 10], [9, 11], [3, 10]]
    assert dataset.inputs.dtype == torch.float32
    assert dataset.targets.tolist() == [0, 1, 1, 0, 2]
    federation = Natural(sample_fraction=1.0, train_fraction=0.5, min_samples=1, seed=0).split(dataset, seed=0)
    assert federation.train.names == federation.test.names == ("x", "y")


def test_features_are_standardised_over_the_training_rows(tmp_path: Path) -> None:
    dataset = tabular(write(tmp_path), standardise=True).load()
    # a is 1, 5, 7 in training: mean 13/3, variance 56/9; b does not vary there
    expected = (torch.tensor([1.0, 5.0, 7.0, 9.0, 3.0]) - 13 / 3) / (56 / 9) ** 0.5
    inputs = dataset.encoding(dataset.inputs)
    assert torch.allclose(inputs[:, 0], expected)
    assert inputs[:, 1].tolist() == [0] * 5
    assert dataset.inputs[:, 0].tolist() == [1, 5, 7, 9, 3]  # the samples stay as they are in the table


def test_clients_that_a_partition_holds_out_are_among_the_standardised_rows(tmp_path: Path) -> None:
    """The mean of 1, 3, 5 and 7 is 4, their variance 5, whichever client is held out."""
    dataset = inferred(write(tmp_path, "client,a,y\nx,1,0\nx,3,1\ny,5,0\ny,7,1\n"), standardise=True).load()
    expected = torch.tensor([-3.0, -1.0, 1.0, 3.0]) / 5**0.5
    torch.testing.assert_close(dataset.encoding(dataset.inputs).flatten(), expected)
    federation = Natural(sample_fraction=1.0, train_fraction=0.5, min_samples=1, seed=0).split(dataset, seed=0)
    assert len(federation.train) == len(federation.test) == 1


def test_standardisation_is_computed_in_float64(tmp_path: Path) -> None:
    """Times in seconds that differ by one: float32 has steps of 128 there."""
    path = tmp_path / "table.csv"
    path.write_text("y,time\n0,1700000000\n1,1700000002\n")
    dataset = inferred(path, standardise=True, test_share=None).load()
    assert dataset.encoding(dataset.inputs).flatten().tolist() == [-1, 1]


def test_parquet_gives_the_same(tmp_path: Path) -> None:
    path = write(tmp_path)
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(path), tmp_path / "table.parquet")
    assert tabular(tmp_path / "table.parquet").load().fingerprint == tabular(path).load().fingerprint


def test_numbered_clients_are_in_the_order_of_numbers(tmp_path: Path) -> None:
    path = write(tmp_path, "client,a,b,label\n10,1,1,0\n9,2,2,1\n")
    users = tabular(path, split=None).load().users
    assert users is not None
    assert (users.names, users.training) == (("9", "10"), 2)


def test_rows_may_belong_to_nobody(tmp_path: Path) -> None:
    path = write(tmp_path, "a,b,label,part\n1,2,0,train\n3,4,1,test\n")
    dataset = tabular(path, client=None).load()
    assert dataset.users is None
    assert (dataset.train_size, dataset.targets.tolist()) == (1, [0, 1])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "cannot be read"),
        ("client,a,b,label,part\n", "has no rows"),
        (
            TABLE.replace("label", "class"),
            "dataset.label: there is no column 'label'. Its columns: client, a, class, b, part",
        ),
        (TABLE.replace(",b,", ",label,"), "several columns are named label; allowed: one each"),
        (TABLE.replace("x,5,1", "x,5,3"), "row 3 has label 3; labels are integers from 0 to 2"),
        (TABLE.replace("x,5,1", "x,5,-1"), "row 3 has label -1"),
        (TABLE.replace("x,5,1", "x,5,0.5"), "row 3 has label 0.5"),
        (TABLE.replace("x,5,1", "x,5,cat"), "row 1 has label '0'; labels are integers from 0 to 2"),
        (
            TABLE.replace("x,5,1", "x,,1").replace("y,7", "y,"),
            "inputs without a finite number in some rows: a (row 3 and 1 more); allowed: dataset.drop=[a] (not used)",
        ),
        (TABLE.replace("x,5,1", "x,inf,1"), "inputs without a finite number in some rows: a (row 3); allowed: "),
        (
            TABLE.replace("x,5,1", "x,,1").replace("10,", "ten,"),
            "inputs that are not numbers: b; inputs without a finite number in some rows: a (row 3); "
            "allowed: dataset.drop=[b,a] (not used), or numbers",
        ),
        (
            TABLE.replace("x,5,1", "x,five,1"),
            "inputs that are not numbers: a (row 3: 'five'); allowed: dataset.drop=[a] (not used)",
        ),
        (
            TABLE.replace("x,5,1", "x,?,1").replace("y,7", "y,?"),
            "inputs that are not numbers: a (row 3: '?', and 1 more); allowed: ",
        ),
        (TABLE.replace("y,7", ",7").replace("x", "1").replace("y", "2"), "row 4 has client ''"),
        (TABLE.replace("10,test", "10,valid"), "row 2 has part 'valid'; allowed: train, test"),
        (TABLE.replace("train", "test"), "has no row 'train'"),
        (TABLE.replace(",b,", ",a,"), "several columns are named a; allowed: one each"),
        (TABLE[:-12], "cannot be read"),
    ],
)
def test_tables_that_cannot_be_used_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    refused(tabular(write(tmp_path, text)), tmp_path, complaint)


def test_numbers_beyond_float32_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, TABLE.replace("x,5,1", "x,1e39,1"))
    refused(tabular(path, standardise=False), tmp_path, "column a has numbers beyond float32; set dataset.standardise=")
    assert tabular(path, standardise=True).load().train_size == 3
    path.write_text("a,label,split\n0,0,train\n1,1,train\n1e300,0,test\n")
    complaint = (
        "column a has a number more than 3.4e38 (float32) standard deviations of the training rows from their mean"
    )
    with pytest.raises(InputError, match=re.escape(complaint)):
        inferred(path, standardise=True).load()


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    missing = f"dataset.file={tmp_path / 'table.csv'} cannot be read: no such file; allowed: the path of your table, "
    refused(tabular(tmp_path / "table.csv"), tmp_path, missing)
    refused(tabular(tmp_path / "table.xls"), tmp_path, "allowed: a file whose name ends in .csv, .tsv or .parquet")
    (tmp_path / "cut.parquet").write_bytes(b"PAR1....")
    refused(tabular(tmp_path / "cut.parquet"), tmp_path, "cut.parquet cannot be read")
    (tmp_path / "latin.csv").write_bytes("client,a,b,label,part\né,1,2,0,train\n".encode("latin-1"))
    refused(
        tabular(tmp_path / "latin.csv"),
        tmp_path,
        "latin.csv cannot be read: column client is not UTF-8",
    )


def test_features_that_do_not_vary_or_are_huge(tmp_path: Path) -> None:
    """The mean of a hundred times 0.1 is not 0.1, nor is the square of 1e200 a number."""
    rows = [f"{index % 2},0.1,{(-1) ** index * 1e200},train" for index in range(100)]
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["y,constant,huge,split", *rows, "1,0.2,2e200,test", ""]))
    config = Tabular(
        file=str(path), label="y", classes=2, client=None, split="split", test_share=None, drop=(), standardise=True
    )
    dataset = config.load()
    inputs = dataset.encoding(dataset.inputs)
    assert inputs[:, 0].tolist() == [0] * 101
    torch.testing.assert_close(inputs[:, 1], torch.tensor([1.0, -1.0] * 50 + [2.0]))


def test_clients_are_named_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("who,y,a\n7,0,1\n007,1,2\n10,0,3\n")
    config = Tabular(
        file=str(path), label="y", classes=2, client="who", split=None, test_share=None, drop=(), standardise=False
    )
    users = config.load().users
    assert users is not None
    assert users.names == ("007", "10", "7")  # as texts, since one of them is no number
    path.write_text("who,y,a\n7,0,1\n,1,2\n")
    with pytest.raises(InputError, match=r"row 2 has who ''; clients are strings or integers"):
        config.load()
    path.write_text("who,y\n7,0\n")
    with pytest.raises(InputError, match=r"no column is left as an input"):
        config.load()


def test_dates_name_clients_and_classes(tmp_path: Path) -> None:
    """As they are written, in the order of texts."""
    path = write(tmp_path, "client,a,y\n2024-01-02,1,0\n2023-12-31,2,1\n2024-01-02,3,1\n")
    users = inferred(path).load().users
    assert users is not None
    assert (users.names, users.offsets.tolist()) == (("2023-12-31", "2024-01-02"), [0, 1, 3])
    path = write(tmp_path, "client,a,y\n08:30:00,1,2024-01-02 10:00:00\n17:00:00,2,2024-01-01 09:00:00\n")
    dataset = inferred(path).load()
    assert dataset.users is not None and dataset.users.names == ("08:30:00", "17:00:00")
    assert dataset.class_names == ("2024-01-01 09:00:00", "2024-01-02 10:00:00")
    assert dataset.targets.tolist() == [1, 0]


def inferred(path: Path, **keys: object) -> Tabular:
    settings = {
        "label": None,
        "classes": None,
        "client": "auto",
        "split": "auto",
        "test_share": "auto",
        "drop": (),
        "standardise": False,
    }
    return Tabular(file=str(path), **{**settings, **keys})


def test_columns_are_found_by_their_names(tmp_path: Path) -> None:
    path = write(tmp_path, "User_ID,a,Class,b,split\nx,1,dog,10,train\ny,3,cat,10,test\nx,5,ant,10,train\n")
    dataset = inferred(path).load()
    assert dataset.users is not None and dataset.users.names == ("x", "y")
    assert (dataset.class_names, dataset.targets.tolist()) == (("ant", "cat", "dog"), [2, 0, 1])
    assert (dataset.train_size, dataset.inputs.tolist()) == (2, [[1, 10], [5, 10], [3, 10]])
    assert dataset.spec == inferred(path).spec
    assert dataset.note == "predicts Class (ant=0, cat=1, dog=2) from 2 columns (a, b); clients: User_ID; split: split"


def test_classes_are_the_integers_in_the_table(tmp_path: Path) -> None:
    path = write(tmp_path, "a,y,name\n1,8,x\n2,3,x\n3,8,x\n4,-1,x\n")
    dataset = inferred(path, drop=("name",), test_share=None).load()
    assert dataset.users is None
    assert (dataset.class_names, dataset.targets.tolist()) == (("-1", "3", "8"), [2, 1, 2, 0])


def test_classes_with_leading_zeros_are_texts(tmp_path: Path) -> None:
    path = write(tmp_path, "a,y\n1,02\n2,2\n3,10\n4,02\n")
    dataset = inferred(path, test_share=None).load()
    assert (dataset.class_names, dataset.targets.tolist()) == (("02", "10", "2"), [0, 2, 1, 0])
    assert dataset.spec.classes == inferred(path).spec.classes == 3
    numbered = inferred(path, test_share=None, classes=11).load()  # declared as integers
    assert numbered.targets.tolist() == [2, 2, 10, 2]
    path = write(tmp_path, "a,y\n1,0\n2,2\n3,10\n")  # 0 has no leading zero
    assert inferred(path, test_share=None).load().class_names == ("0", "2", "10")


def test_classes_beyond_integers_of_64_bits_are_texts(tmp_path: Path) -> None:
    """As floating-point numbers the first two would be the same."""
    first, second = "123456789012345678901", "123456789012345678902"
    path = write(tmp_path, f"a,y\n1,{second}\n2,{first}\n3,7\n")
    dataset = inferred(path, test_share=None).load()
    assert (dataset.class_names, dataset.targets.tolist()) == ((first, second, "7"), [1, 0, 2])
    path = write(tmp_path, f"a,y\n1,{second}\n2,\n3,7\n")
    with pytest.raises(InputError, match="row 2 has y None; labels are integers or strings"):
        inferred(path).load()


def test_a_changed_table_is_read_again(tmp_path: Path) -> None:
    path = write(tmp_path, "a,y\n1,0\n2,1\n")
    assert inferred(path).spec.classes == 2
    path.write_text("a,b,y\n1,1,0\n2,2,1\n3,3,2\n")
    assert (inferred(path).spec.classes, inferred(path).spec.input_shape) == (3, (2,))


def test_one_message_lists_all_that_cannot_be_decided(tmp_path: Path) -> None:
    path = write(tmp_path, "age,city,outcome,ward\n1,Rome,0,a\n2,Oslo,1,b\n")
    with pytest.raises(InputError) as refusal:
        _ = inferred(path, split="part").spec
    assert str(refusal.value) == (
        f"{path}: dataset.split: there is no column 'part'; "
        "dataset.label: which column is predicted, perhaps city or ward? No single one is named label or target or "
        "class or y; inputs that are not numbers: city, ward; allowed: dataset.client=city or ward "
        "(its values are the clients), dataset.drop=[city,ward] (not used), or numbers. "
        "Its columns: age, city, outcome, ward"
    )
    spec = inferred(path, label="outcome", client="ward", drop=("city",)).spec
    assert (spec.input_shape, spec.classes) == ((1,), 2)
    with pytest.raises(InputError, match=r"row 1 has age 0.5; labels are integers or strings"):
        _ = inferred(write(tmp_path, "age,a\n0.5,1\n2,2\n"), label="age").spec
    with pytest.raises(InputError, match=r"column y has the value 1 alone; allowed: at least 2"):
        _ = inferred(write(tmp_path, "y,b\n1,1\n1,2\n")).spec


def test_the_only_column_of_texts_may_be_predicted(tmp_path: Path) -> None:
    path = write(tmp_path, "age,since,outcome\n1,2020-01-01,yes\n2,2020-01-02,no\n")
    with pytest.raises(InputError) as refusal:
        _ = inferred(path).spec
    assert str(refusal.value) == (
        f"{path}: dataset.label: which column is predicted, perhaps outcome? No single one is named label or target or "
        "class or y; inputs that are not numbers: since; allowed: dataset.drop=[since] (not used), "
        "or numbers. Its columns: age, since, outcome"
    )
    dataset = inferred(path, label="outcome", drop=("since",), test_share=None).load()
    assert dataset.note == "predicts outcome (no=0, yes=1) from 1 column (age); clients: none; split: none"


@pytest.mark.parametrize(("name", "meant"), [("outcome", "."), ("label", "; did you mean label?")])
def test_a_misspelt_target_is_no_reason_to_drop_the_right_one(tmp_path: Path, name: str, meant: str) -> None:
    path = write(tmp_path, f"age,{name}\n1,yes\n2,no\n")
    refused(
        inferred(path, label="lable"),
        tmp_path,
        f"table.csv: dataset.label: there is no column 'lable'{meant} Its columns: age, {name}",
    )


def test_a_column_of_texts_may_name_the_clients(tmp_path: Path) -> None:
    path = write(tmp_path, "a,hospital,label\n1,x,0\n2,y,1\n")
    complaint = (
        "table.csv: inputs that are not numbers: hospital; allowed: dataset.client=hospital (its values "
        "are the clients), dataset.drop=[hospital] (not used), or numbers. Its columns: a, "
    )
    refused(inferred(path), tmp_path, complaint)
    assert inferred(path, client="hospital").load().users is not None
    refused(
        inferred(path, client=None),
        tmp_path,
        "inputs that are not numbers: hospital; allowed: dataset.drop=[hospital] (not",
    )


def test_several_columns_for_one_role_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "client,user,y,label,a\n1,1,0,0,1\n2,2,1,1,2\n")
    refused(
        inferred(path),
        tmp_path,
        "table.csv: dataset.label: which column is predicted, perhaps y or label? No single one is named label or "
        "target or class or y; dataset.client: which of client and user? allowed: one of them, or null. Its columns: ",
    )


@pytest.mark.parametrize("rows", ["0.5,1.5,0\n2.5,3,1\n", "5.1,1.4,setosa\n4.9,1.3,setosa\n"])
def test_a_table_without_a_row_of_names_is_refused(tmp_path: Path, rows: str) -> None:
    first = ", ".join(rows.splitlines()[0].split(","))
    path = write(tmp_path, rows)
    complaint = (
        f"the first row has numbers instead of column names: {first}; allowed: a row of names above it, or "
        "dataset.label with one of these"
    )
    refused(inferred(path), tmp_path, complaint)
    refused(inferred(path, label="species"), tmp_path, complaint)


def test_columns_may_be_named_by_numbers(tmp_path: Path) -> None:
    path = write(tmp_path, "0,1,2\n0.5,1.5,0\n2.5,3,1\n")
    assert inferred(path, label="2", test_share=None).load().inputs.tolist() == [[0.5, 1.5], [2.5, 3]]


def test_delimiters_in_quoted_names_and_empty_lines_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "quoted.csv"
    path.write_text('\n"temp; C","p; h; q",label\n' + "".join(f"{n},{n % 7},{n % 2}\n" for n in range(40)))
    spec = inferred(path).load().spec
    assert (spec.input_shape, spec.classes) == ((2,), 2)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_name_of_several_lines(tmp_path: Path, end: str) -> None:
    """The delimiter is that of the whole row of names, not of its first line, where a comma is part of a name."""
    path = tmp_path / "lines.csv"
    rows = "".join(f"{n};{n % 7};{n % 2}{end}" for n in range(40))
    path.write_bytes(f'"temp, C{end}(mean)";"p{end}q";label{end}{rows}'.encode())
    dataset = inferred(path).load()
    assert dataset.spec.input_shape == (2,)
    assert f"temp, C{end}(mean)" in inferred(path).keys.columns(path, read_table(path)).features


def test_quoted_line_breaks_in_a_large_table(tmp_path: Path) -> None:
    rows = "".join(f'x,{row},{row % 3},"{"." * 80}\nmore, {row}",train\n' for row in range(20_000))
    path = write(tmp_path, f"client,a,label,note,part\n{rows}")
    assert replace(tabular(path), drop=("note",)).load().inputs.flatten().tolist() == list(range(20_000))


@pytest.mark.parametrize("rest", ['"cat', '"cat\n', '"cat\n3,dog\n', '"a ""cat""\n4,dog\n'])
def test_a_quoted_text_without_an_end_is_refused(tmp_path: Path, rest: str) -> None:
    path = write(tmp_path, "a,label\n1,dog\n2,cat\n3," + rest)
    refused(replace(tabular(path), classes=None), path, "the last quoted text does not end")


@pytest.mark.parametrize("last", ["cat", '"cat"', '"a ""cat"""', '""""', 'a "cat', '"cat\n"'])
def test_quotes_in_the_last_text(tmp_path: Path, last: str) -> None:
    for end in ("", "\n"):
        table = replace(
            tabular(write(tmp_path, f"a,label\n1,dog\n2,{last}{end}")), client=None, split=None, classes=None
        )
        assert table.load().class_names == tuple(sorted(("dog", next(csv.reader([last]))[0])))


@pytest.mark.parametrize(("delimiter", "suffix"), [(";", ".csv"), ("\t", ".csv"), ("\t", ".tsv")])
def test_columns_may_be_separated_by_other_characters(tmp_path: Path, delimiter: str, suffix: str) -> None:
    path = (tmp_path / "table").with_suffix(suffix)
    path.write_text(TABLE.replace(",", delimiter))
    assert tabular(path).load().fingerprint == tabular(write(tmp_path)).load().fingerprint


def test_rows_without_splits_and_clients_are_divided_at_random(tmp_path: Path) -> None:
    path = write(tmp_path, "\n".join(["y,a", *(f"{row % 2},{row}" for row in range(20))]))
    dataset = inferred(path).load()
    test = dataset.inputs[dataset.train_size :].flatten().tolist()
    assert (dataset.train_size, len(test)) == (16, 4)
    assert test not in ([0, 1, 2, 3], [16, 17, 18, 19]) and sorted(dataset.inputs.flatten().tolist()) == list(range(20))
    assert "4 random rows for the test" in dataset.note
    assert dataset.fingerprint == inferred(path).load().fingerprint
    assert inferred(path, test_share=0.5).load().train_size == 10
    assert inferred(path, test_share=None).load().train_size == 20
    refused(inferred(path, test_share=0.01), tmp_path, "dataset.test_share=0.01 of 20 rows are 0 test samples")


def test_rows_of_clients_are_divided_only_by_an_explicit_share(tmp_path: Path) -> None:
    path = write(tmp_path, "\n".join(["client,y,a", *(f"{row % 3},{row % 2},{row}" for row in range(20))]))
    assert inferred(path).load().train_size == 20
    assert inferred(path, test_share=0.5).load().train_size == 10
    path = write(tmp_path)
    complaint = (
        f"dataset.test_share=0.5, but column part of {path} has splits; "
        "allowed: auto or null; or dataset.split=null dataset.drop=[part]"
    )
    refused(tabular(path, test_share=0.5), tmp_path, complaint)


@pytest.mark.parametrize("index", ["", "Unnamed: 0", "__index_level_0__"])
def test_row_numbers_of_pandas_are_no_feature(tmp_path: Path, index: str) -> None:
    path = write(tmp_path, f"{index},y,a\n0,0,5\n1,1,6\n")
    assert inferred(path, test_share=None).load().inputs.tolist() == [[5], [6]]


@pytest.mark.parametrize("name", ["id", "Index"])
def test_consecutive_integers_are_row_numbers(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, f"{name},y,a\n3,0,5\n1,1,6\n2,1,7\n")
    dataset = inferred(path, test_share=None).load()
    assert dataset.inputs.tolist() == [[5], [6], [7]]
    assert dataset.note.endswith(f"from 1 column (a); clients: none; split: none; row numbers, left out: {name}")
    for values in ("143", "133", "1 3", "abc"):  # a gap, a repetition: inputs; a missing number, texts: refused
        first, second, third = values
        path.write_text(f"{name},y,a\n{first},0,5\n{second},1,6\n{third},1,7\n".replace(" ", ""))
        if values.isalpha():
            refused(inferred(path), tmp_path, f"inputs that are not numbers: {name}")
        elif " " in values:
            refused(inferred(path), tmp_path, f"inputs without a finite number in some rows: {name} (row 2)")
        else:
            assert inferred(path).spec.input_shape == (2,)
    assert inferred(write(tmp_path, f"{name},a\n0,5\n1,6\n"), label=name, test_share=None).spec.classes == 2


def test_a_column_has_one_role(tmp_path: Path) -> None:
    path = write(tmp_path, "client,y,a\n0,0,5\n1,1,6\n")
    refused(inferred(path, label="y", drop=("y",)), tmp_path, "dataset.label and dataset.drop name the same column y")
    refused(
        inferred(path, label="client", client="client"),
        tmp_path,
        "dataset.label and dataset.client name the same column client",
    )
    predicted = inferred(path, label="client", test_share=None).load()  # so it is not the column of clients
    assert predicted.users is None and predicted.inputs.tolist() == [[0, 5], [1, 6]]
    assert inferred(path, drop=("client",), test_share=None).load().users is None


def test_whole_numbers_name_clients(tmp_path: Path) -> None:
    """A column of integers with a missing value is read as floats by pandas."""
    frame = pyarrow.table({"client": [2.0, 10.0, 2.0], "y": [0, 1, 0], "a": [1, 2, 3]})
    path = tmp_path / "table.parquet"
    pyarrow.parquet.write_table(frame, path)
    users = inferred(path).load().users
    assert users is not None and users.names == ("2", "10")
