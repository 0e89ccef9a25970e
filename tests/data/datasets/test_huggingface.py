"""Folders in the formats of the library datasets, as a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.data.datasets.base import Spec
from fedrun.data.datasets.huggingface import ROW, HuggingFace, opened
from fedrun.data.datasets.text_symbols import tokenizer_of
from fedrun.data.tasks.symbols import IGNORED, LanguageModelling, TokenClassification
from fedrun.experiment.experiment import build_experiment
from fedrun.simulation.simulation import Simulation
from fedrun.system.errors import InputError

from ...helpers.hub import hub, users_from

datasets = pytest.importorskip("datasets")

PIXEL = Image.fromarray(np.zeros((1, 1, 3), np.uint8))
NO_FILE = {"bytes": None, "path": None}
"""An image of a Parquet file whose two columns are empty."""


@pytest.fixture(autouse=True)
def offline(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def saved(folder: Path, train: Mapping[str, Any], test: Mapping[str, Any], **features: Any) -> Path:
    """A folder of ``save_to_disk`` with two splits."""

    def split(columns: Mapping[str, Any]) -> Any:
        made = datasets.Dataset.from_dict(columns)
        for name, feature in features.items():
            made = made.cast_column(name, feature)
        return made

    datasets.DatasetDict({"train": split(train), "test": split(test)}).save_to_disk(str(folder))
    return folder


def texts(folder: Path, **keys: Any) -> HuggingFace:
    return option("dataset", "huggingface", **{"name": str(folder), "text": "text", "length": 4, **keys})


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    train = {"text": ["abc", "héé!", "b"], "label": [1, 0, 1], "who": ["y", "x", "y"]}
    return saved(tmp_path / "reviews", train, {"text": ["xyz"], "label": [0], "who": ["x"]})


def test_texts_are_bytes_without_a_tokenizer(reviews: Path) -> None:
    config = texts(reviews)
    dataset = config.load()
    assert config.spec == dataset.spec == Spec((4,), 2, vocabulary=257, padding=256)
    assert dataset.inputs.tolist() == [
        [97, 98, 99, 256],
        [104, 0xC3, 0xA9, 0xC3],  # é is two bytes; the fifth byte is cut off
        [98, 256, 256, 256],
        [120, 121, 122, 256],
    ]
    assert (dataset.targets.tolist(), dataset.train_size, dataset.users) == ([1, 0, 1, 0], 3, None)
    assert dataset.class_names == ("0", "1")


def test_clients_in_a_column(reviews: Path) -> None:
    dataset = texts(reviews, client="who").load()
    assert dataset.users is not None
    assert (dataset.users.names, dataset.users.training) == (("x", "y", "x"), 2)
    assert dataset.users.offsets.tolist() == [0, 1, 3, 4]
    assert dataset.inputs[:, 0].tolist() == [104, 97, 98, 120]
    assert dataset.targets.tolist() == [0, 1, 1, 0]


def test_clients_in_a_csv_file_are_as_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label,who\na,0,7\nb,1,007\nc,1,7\n")
    (tmp_path / "test.csv").write_text("text,label,who\nd,0,7\n")
    dataset = texts(tmp_path, client="who").load()
    assert dataset.users is not None
    assert dataset.users.names == ("007", "7", "7")
    assert dataset.users.offsets.tolist() == [0, 1, 3, 4]
    assert dataset.inputs[:, 0].tolist() == [98, 97, 99, 100]


def test_clients_in_a_csv_file_of_the_hub_are_as_they_are_written(tmp_path: Path) -> None:
    """Also from the library's cache, where the same file without clients is another copy, which is older here."""
    files = {"train.csv": b"text,label,who\na,0,7\nb,1,007\nc,1,7\n", "test.csv": b"text,label,who\nd,0,7\n"}
    with hub(files) as address:
        assert users_from(address, tmp_path, "", "who") == ["none", "007 7 7"]
    assert users_from(address, tmp_path, "who") == ["007 7 7"]


def test_a_split_without_rows_is_named(tmp_path: Path) -> None:
    folder = saved(tmp_path / "saved", {"text": ["a", "b"], "label": [0, 1]}, {"text": [], "label": []})
    with pytest.raises(InputError) as refusal:
        texts(folder).load()
    assert str(refusal.value) == (
        f"dataset.name={folder}: the split in {folder}/test has no rows; allowed: at least one"
    )
    (tmp_path / "train.csv").write_text("text,label\na,0\nb,1\n")
    (tmp_path / "test.csv").write_text("text,label\n")
    with pytest.raises(InputError, match=r"; allowed: .* files, and rows in every split$"):
        texts(tmp_path).load()


def test_the_next_symbol(reviews: Path) -> None:
    dataset = texts(reviews, label=None).load()
    assert dataset.spec == Spec((4,), 257, 257, LanguageModelling(), 256)
    assert dataset.inputs[:2].tolist() == [[97, 98, 99, 256], [104, 0xC3, 0xA9, 0xC3]]
    assert dataset.targets[:2].tolist() == [[98, 99, IGNORED, IGNORED], [0xC3, 0xA9, 0xC3, 0xA9]]


def test_named_classes_and_classes_that_are_texts(tmp_path: Path) -> None:
    named = datasets.ClassLabel(names=["bad", "good", "great"])
    folder = saved(tmp_path / "named", {"text": ["a"], "label": [1]}, {"text": ["b"], "label": [0]}, label=named)
    dataset = texts(folder).load()
    assert (dataset.spec.classes, dataset.class_names, dataset.targets.tolist()) == (
        3,
        ("bad", "good", "great"),
        [1, 0],
    )
    folder = saved(tmp_path / "words", {"text": ["a"], "label": ["no"]}, {"text": ["b"], "label": ["maybe"]})
    dataset = texts(folder).load()
    assert (dataset.class_names, dataset.targets.tolist()) == (("maybe", "no"), [1, 0])


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tokenizer of letters, which has ``##`` before every letter but a word's first."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("tokenizer")
    symbols = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##a", "##b"]
    (folder / "vocab.txt").write_text("\n".join(symbols))
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    return str(folder)


def test_a_tokenizer_and_a_class_for_every_word(tmp_path: Path, tokenizer: str) -> None:
    tags = datasets.List(datasets.ClassLabel(names=["O", "NAME"]))
    train = {"words": [["ab", "b"], ["a"]], "tags": [[1, 0], [0]]}
    folder = saved(tmp_path / "tags", train, {"words": [["b"]], "tags": [[1]]}, tags=tags)
    dataset = texts(folder, text="words", label="tags", tokenizer=tokenizer, length=6).load()
    assert dataset.spec == Spec((6,), 2, 9, TokenClassification(), 0)
    # [CLS] a ##b b [SEP] [PAD], and [CLS] a [SEP] ...
    assert dataset.inputs[:2].tolist() == [[2, 5, 8, 6, 3, 0], [2, 5, 3, 0, 0, 0]]
    none = IGNORED
    assert dataset.targets[:2].tolist() == [[none, 1, none, 0, none, none], [none, 0, none, none, none, none]]
    with pytest.raises(InputError, match=r"dataset.tokenizer=null: classes of words \(tags\) need a tokenizer"):
        _ = texts(folder, text="words", label="tags").spec


@pytest.mark.parametrize("tags", [[[1, 0, 1], [0]], [[1], [0]]])
def test_as_many_classes_as_words(tmp_path: Path, tokenizer: str, tags: list[list[int]]) -> None:
    """Also where the text is cut after its first word, so that its further classes are not used."""
    rows = {"words": [["ab", "b"], ["a"]], "tags": tags}
    folder = saved(tmp_path / "tags", rows, rows)
    message = rf"row 1 has {len(tags[0])} classes in tags and 2 words in words; allowed: one for each$"
    for length in (3, 6):
        with pytest.raises(InputError, match=message):
            texts(folder, text="words", label="tags", tokenizer=tokenizer, length=length).load()


def test_a_length_without_room_for_a_text(reviews: Path, tokenizer: str) -> None:
    """[CLS] and [SEP] are added. The next symbol of the two inputs [CLS] a is [SEP]."""
    message = "^dataset.length={}: the tokenizer adds 2 symbols to each text; allowed: at least {}$"
    for length in (1, 2):
        with pytest.raises(InputError, match=message.format(length, 3)):
            _ = texts(reviews, tokenizer=tokenizer, length=length).spec
    with pytest.raises(InputError, match=message.format(1, 2)):
        _ = texts(reviews, tokenizer=tokenizer, length=1, label=None).spec
    assert texts(reviews, tokenizer=tokenizer, length=2, label=None).load().targets.shape == (4, 2)


def test_a_tokenizer_that_changed_in_its_folder(tmp_path: Path, tokenizer: str) -> None:
    """The library caches symbols; they must not be those of the former tokenizer."""
    transformers = pytest.importorskip("transformers")
    folder = saved(tmp_path / "texts", {"text": ["a b"], "label": ["x"]}, {"text": ["a"], "label": ["y"]})
    own = tmp_path / "tokenizer"
    inputs = []
    for letters in (["a", "b"], ["b", "a"]):
        own.mkdir(exist_ok=True)
        (own / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]))
        transformers.BertTokenizerFast(str(own / "vocab.txt")).save_pretrained(own)
        tokenizer_of.cache_clear()  # as in a new process
        inputs.append(texts(folder, tokenizer=str(own), length=4).load().inputs[0].tolist())
    assert inputs == [[2, 5, 6, 3], [2, 6, 5, 3]]


def test_a_folder_with_a_model_and_no_tokenizer(reviews: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    transformers.AutoConfig.for_model("bert").save_pretrained(tmp_path / "bert")
    with pytest.raises(InputError, match=r"^dataset.tokenizer=.*bert: has no symbols; allowed: a folder with a tok"):
        _ = texts(reviews, tokenizer=str(tmp_path / "bert")).spec


def test_images_of_parquet_files(tmp_path: Path) -> None:
    pixels = np.zeros((2, 2, 3), np.uint8)
    pixels[0, 1] = (10, 20, 30)
    for split, count in (("train", 2), ("test", 1)):
        rows = {"picture": [Image.fromarray(pixels)] * count, "kind": [7, 3][:count] if count > 1 else [3]}
        features = datasets.Features({"picture": datasets.Image(), "kind": datasets.Value("int64")})
        datasets.Dataset.from_dict(rows, features=features).to_parquet(str(tmp_path / f"{split}.parquet"))
    config = option("dataset", "huggingface", name=str(tmp_path), image="picture", label="kind", size=2)
    dataset = config.load()
    assert (config.spec, dataset.train_size) == (Spec((3, 2, 2), 2), 2)
    assert dataset.inputs[0].tolist() == [[[0, 10], [0, 0]], [[0, 20], [0, 0]], [[0, 30], [0, 0]]]
    assert (dataset.class_names, dataset.targets.tolist()) == (("3", "7"), [1, 0, 0])
    larger = option("dataset", "huggingface", name=str(tmp_path), image="picture", label="kind", size=3).load()
    # the pixels between two are their means; bicubic resampling would go beyond 20 in the corner
    assert larger.inputs[0, 1].tolist() == [[0, 10, 20], [0, 5, 10], [0, 0, 0]]


def test_a_share_of_the_training_split(tmp_path: Path) -> None:
    rows = datasets.Dataset.from_dict({"text": list("abcdefghij"), "label": [0, 1] * 5})
    rows.save_to_disk(str(tmp_path / "one"))
    dataset = texts(tmp_path / "one", test=None, test_share=0.3).load()
    assert dataset.train_size == 7
    train, test = ("".join(map(chr, part.tolist())) for part in dataset.inputs[:, 0].split([7, 3]))
    assert sorted(train + test) == list("abcdefghij")
    assert (list(train), list(test)) == (sorted(train), sorted(test))  # in the order of the split
    assert test != "hij"


def test_a_share_that_leaves_nothing_to_train(tmp_path: Path) -> None:
    """Of 5 rows ceil(0.9 * 5) = 5 would be for the test."""
    rows = datasets.Dataset.from_dict({"text": list("abcde"), "label": [0, 1, 0, 1, 0]})
    rows.save_to_disk(str(tmp_path / "one"))
    with pytest.raises(InputError, match=r"^dataset.test_share=0.9: leaves none of the 5 rows of train to train, or "):
        _ = texts(tmp_path / "one", test=None, test_share=0.9).spec


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"label": "stars"}, "dataset.label=stars: no such column; .* has the columns text, label, who"),
        ({"image": "text"}, "exactly one of the two must name a column"),
        ({"text": None}, "exactly one of the two must name a column"),
        ({"text": None, "image": "text", "label": None}, "dataset.label=null: images need a column of classes"),
        ({"test": "validation"}, "dataset.test=validation: no such split; .* has train, test; or dataset.test=null"),
        ({"train": "all"}, "dataset.train=all: no such split"),
        ({"tokenizer": "/nowhere"}, "dataset.tokenizer=/nowhere: "),
        (
            {"name": "/nowhere/at/all"},
            "cannot be loaded .* there is no such folder; where the internet can be reached: hf",
        ),
    ],
)
def test_what_cannot_be_used(reviews: Path, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as refusal:
        _ = texts(reviews, **keys).spec
    assert "\n" not in str(refusal.value)


def test_a_test_split_whose_labels_are_not_published(tmp_path: Path) -> None:
    """Such splits, as GLUE's, have the class -1."""
    named = datasets.ClassLabel(names=["bad", "good"])
    rows = {"text": ["ab", "cd"], "label": [1, 0]}, {"text": ["ef", "gh"], "label": [0, -1]}
    folder = saved(tmp_path, *rows, text=datasets.Value("string"), label=named)
    with pytest.raises(InputError, match="row 2 has label -1; allowed: a class of bad, good$"):
        texts(folder).load()


@pytest.mark.parametrize(
    ("column", "values", "keys", "message"),
    [
        ("text", ["ab", None], {}, "^dataset.text=text: row 2 has None; allowed: a string$"),
        ("text", [3, 4], {}, "^dataset.text=text: row 1 has 3; allowed: a string$"),
        ("text", [["a", "b"], ["c"]], {}, r"^dataset.text=text: row 1 has \['a', 'b'\]; allowed: a string$"),
        ("label", [0.5, 1.5], {}, r"^dataset.label=label: row 1 has 0.5; allowed: integers or strings$"),
        ("label", ["x", None], {}, r"^dataset.label=label: row 2 has None; allowed: integers or strings$"),
        ("label", [{"a": 1}, {"a": 2}], {}, r"^dataset.label=label: has dict; allowed: integers or strings$"),
        ("text", [3, 4], {"text": None, "image": "text"}, r"^dataset.image=text: has int64; allowed: images$"),
        ("picture", [PIXEL, None], {"text": None, "image": "picture"}, "^dataset.image=picture: row 2 has none$"),
        ("picture", [NO_FILE, NO_FILE], {"text": None, "image": "picture"}, "^dataset.image=picture: row 1 has none$"),
        ("text", ["a", "b"], {"subset": "small"}, "^dataset.subset=small: .* has none; allowed: null$"),
    ],
)
def test_columns_of_other_values(tmp_path: Path, column: str, values: Any, keys: dict[str, Any], message: str) -> None:
    rows = {"text": ["ab", "cd"], "label": [1, 0], column: values}
    folder = saved(tmp_path, rows, rows)
    with pytest.raises(InputError, match=message):
        texts(folder, **keys).load()


@pytest.mark.parametrize("kind", [datasets.Value("string"), datasets.ClassLabel(names=["O", "NAME"])])
def test_a_row_without_a_list_of_classes(tmp_path: Path, tokenizer: str, kind: Any) -> None:
    tags: list[list[str] | None] = [["O", "NAME"], None]
    rows = {"words": [["a", "b"], ["a"]], "tags": tags}
    folder = saved(tmp_path / "tags", rows, rows, tags=datasets.List(kind))
    with pytest.raises(
        InputError, match=r"^dataset.label=tags: row 2 has None; allowed: a list, a class of each word$"
    ):
        texts(folder, text="words", label="tags", tokenizer=tokenizer, length=6).load()


NAMED = datasets.ClassLabel(names=["bad", "good"])
INTEGERS, TEXTS = datasets.Value("int64"), datasets.Value("string")


def saved_with_labels(folder: Path, *splits: tuple[list[Any], Any]) -> Path:
    """A folder with a training and a test split, each of these labels of this type."""

    def split(labels: list[Any], kind: Any) -> Any:
        return datasets.Dataset.from_dict({"text": ["ab", "cd"], "label": labels}).cast_column("label", kind)

    train, test = (split(*given) for given in splits)
    datasets.DatasetDict({"train": train, "test": test}).save_to_disk(str(folder))
    return folder


@pytest.mark.parametrize(
    ("train", "test"),
    [
        (([0, 1], NAMED), ([0, 1], datasets.ClassLabel(names=["good", "bad"]))),
        ((["0", "1"], TEXTS), ([0, 1], INTEGERS)),
        (([0, 1], NAMED), ([[0], [1]], datasets.List(INTEGERS))),
        (([[0], [1]], datasets.List(INTEGERS)), ([0, 1], INTEGERS)),
    ],
)
def test_splits_with_different_classes(
    tmp_path: Path, train: tuple[list[Any], Any], test: tuple[list[Any], Any]
) -> None:
    folder = saved_with_labels(tmp_path, train, test)
    with pytest.raises(InputError, match=r"^dataset.label=label: has .* in train and .* in test; allowed: the same"):
        texts(folder).load()


@pytest.mark.parametrize("kind", [INTEGERS, datasets.Value("int32"), NAMED])
def test_numbers_of_classes_may_have_several_types(tmp_path: Path, kind: Any) -> None:
    folder = saved_with_labels(tmp_path, ([0, 1], INTEGERS), ([1, 0], kind))
    assert texts(folder).load().targets.tolist() == [0, 1, 1, 0]


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="allowed: a folder of save_to_disk, or with Parquet, CSV or JSON files"):
        _ = texts(tmp_path).spec


def test_a_round_of_a_transformer_on_a_saved_folder(reviews: Path) -> None:
    pytest.importorskip("transformers")
    shape = "{model_type:bert,hidden_size:8,num_hidden_layers:1,num_attention_heads:1,intermediate_size:8}"
    setting = ["model=transformers", f"model.config={shape}", "tracking=none", "partition.clients=2", "rounds=1"]
    own = [f"dataset.name={reviews}", "dataset.text=text", "dataset.length=4", "hardware.threads=1"]
    simulation = Simulation(build_experiment(compose(["dataset=huggingface", *own, *setting])))
    state, metrics = simulation.advance(simulation.initial())
    assert metrics["train/loss"] > 0
    assert simulation.test(state)["test/accuracy"] in (0.0, 1.0)
    assert torch.isfinite(state.server.model).all()


@pytest.mark.parametrize(
    ("column", "wrong", "complaint"),
    [
        ("text", None, "^dataset.text=text: row 8 has None"),
        ("label", None, "^dataset.label=label: row 8 has None"),
        ("who", "", "row 8 has who ''"),
    ],
)
def test_a_row_is_named_by_its_number_in_the_split_it_is_drawn_from(
    tmp_path: Path, column: str, wrong: str | None, complaint: str
) -> None:
    rows: dict[str, list[Any]] = {"text": ["a"] * 20, "label": ["x", "y"] * 10, "who": ["me"] * 20}
    rows[column][7] = wrong
    folder = saved(tmp_path / "rows", rows, {"text": ["a"], "label": ["x"], "who": ["me"]})
    with pytest.raises(InputError, match=complaint):
        texts(folder, client="who", test=None, test_share=0.3).load()


def test_files_that_contradict_each_other_are_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label\na,0\nb,1\n")
    (tmp_path / "test.csv").write_text("text,label\na,good\n")
    with pytest.raises(InputError, match=r"cannot be loaded \(.*good"):
        texts(tmp_path).load()


def test_a_column_of_the_name_that_fedrun_adds(tmp_path: Path) -> None:
    rows = {"text": ["ab", "cd"], "label": [1, 0], ROW: [5, 6]}
    with pytest.raises(InputError, match=r"has a column fedrun_row, which fedrun adds; allowed: another name$"):
        opened(texts(saved(tmp_path, rows, rows)))
