"""Datasets of the Hugging Face hub, or folders in its formats: images or texts with classes, or texts alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from annotated_types import Ge, Gt, Le, Lt

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset, DatasetConfig, Scaled, Spec, Symbols
from fedrun.data.datasets.image_decoding import decode_image
from fedrun.data.datasets.text_symbols import NO_WORD, split_texts, tokenizer_hash, vocabulary_of
from fedrun.data.datasets.user_order import by_user, numbered
from fedrun.data.tasks.base import Task
from fedrun.data.tasks.classification import CLASSIFICATION
from fedrun.data.tasks.symbols import IGNORED, LanguageModelling, TokenClassification
from fedrun.system.errors import InputError, one_line
from fedrun.system.extras import require_package
from fedrun.system.fingerprint import fingerprint
from fedrun.system.hub import hub_or_cache
from fedrun.system.user_path import user_path

if TYPE_CHECKING:
    import datasets


ROW = "fedrun_row"
"""A column that is added to the rows: the number of each, from 1, in the published split. Messages name it."""


@config_class
class HuggingFace(DatasetConfig):
    """A dataset that the library datasets reads. Images are decoded and texts are split into symbols once, into the
    library's cache.

    Without ``label`` the next symbol of a text is predicted. If ``label`` has a list for each sample, ``text`` has a
    list of as many words, and the first symbol of each word has the word's class.

    Attributes:
        name: on the hub, or a folder: of ``save_to_disk``, or with Parquet, CSV or JSON files.
        subset: one of the dataset's configurations, if it has several.
        train: the split with the training samples.
        test: the split with the test samples; None: ``test_share`` of the training split, drawn with seed 0.
        test_share: used if ``test`` is None.
        image: the column of images; None: samples are texts.
        text: the column of texts, or of lists of words.
        label: the column of classes, integers or strings; None: the next symbol is predicted.
        client: the column of clients, for ``partition=natural``; None: samples have no clients.
        size: images are resized to 3 x size x size pixels, whatever their proportions.
        tokenizer: name or folder of a tokenizer of transformers; None: symbols are the bytes of the text in UTF-8.
        length: symbols of a sample. Longer texts are cut, shorter ones are padded.
    """

    name: str
    subset: str | None
    train: str
    test: str | None
    test_share: Annotated[float, Gt(0), Lt(1)]
    image: str | None
    text: str | None
    label: str | None
    client: str | None
    size: Annotated[int, Ge(1), Le(1024)]
    tokenizer: str | None
    length: Annotated[int, Ge(1)]

    @property
    def spec(self) -> Spec:
        """Shape and classes, for which the dataset is opened, once per process."""
        return opened(self).spec

    def load(self) -> Dataset:
        """Read all samples: images as uint8 ``[n, 3, size, size]``, symbols as int32 ``[n, length]``.

        Raises:
            InputError: datasets is not installed, the dataset cannot be found, or a column cannot be used.
        """
        source = opened(self)
        parts = [self._samples(source, rows) for rows in source.parts]
        inputs, targets = (np.concatenate([part[place] for part in parts]) for place in (0, 1))
        test = np.repeat([False, True], [len(inputs) for inputs, _ in parts])
        users = None
        if self.client is not None:
            owner, names = numbered([name for rows in source.parts for name in self._clients(rows)])
            order, users = by_user(owner, names, test)
            inputs, targets = inputs[order], targets[order]
        owners: list[str | int | np.ndarray] = []
        if users is not None:
            owners = [users.training, *users.names, users.offsets.numpy()]
        return Dataset(
            spec=source.spec,
            encoding=Symbols() if self.image is None else Scaled(255.0),
            inputs=torch.from_numpy(inputs),
            targets=torch.from_numpy(targets),
            train_size=len(parts[0][0]),
            users=users,
            class_names=source.names,
            fingerprint=fingerprint([*owners, inputs, targets]),
        )

    def _samples(self, source: Source, split: datasets.Dataset) -> tuple[np.ndarray, np.ndarray]:
        """The inputs of a split ``[n, ...]``, and the targets, int64 ``[n]`` or ``[n, length]``."""
        if self.image is not None:
            return self._pixels(split), self._classes(source, split)
        language = self.label is None
        tagged = source.spec.task.per_symbol and not language
        symbols, words = self._symbols(split, self.length + language, tagged)
        if language:
            following = symbols[:, 1:].astype(np.int64)
            following[following == source.spec.padding] = IGNORED
            return np.ascontiguousarray(symbols[:, :-1]), following
        if not tagged:
            return symbols, self._classes(source, split)
        targets = np.full(symbols.shape, IGNORED, np.int64)
        first = (words != NO_WORD) & (np.diff(words, prepend=NO_WORD) != 0)
        for sample, ((row, values), text) in enumerate(zip(_lists(self.label, split), split[self.text], strict=True)):
            classes = self._numbers(source, values, [row] * len(values))
            if len(classes) != len(text):
                raise InputError(
                    f"{self.name}: row {row} has {len(classes)} classes in {self.label} and {len(text)} words in "
                    f"{self.text}; allowed: one for each"
                )
            targets[sample, first[sample]] = classes[words[sample, first[sample]]]
        return symbols, targets

    def _pixels(self, split: datasets.Dataset) -> np.ndarray:
        """The images of a split, uint8 ``[n, 3, size, size]``, decoded into the library's cache."""
        import datasets

        try:
            encoded = split.cast_column(self.image, datasets.Image(decode=False))
        except (TypeError, ValueError, NotImplementedError):  # pyarrow's errors are of these kinds
            raise InputError(
                f"dataset.image={self.image}: has {_kind(split.features[self.image])}; allowed: images"
            ) from None
        keys = {"column": self.image, "size": self.size}
        decoded = encoded.map(_decoded, fn_kwargs=keys, remove_columns=split.column_names)
        content = b"".join(decoded["pixels"])
        return np.frombuffer(content, np.uint8).reshape(-1, 3, self.size, self.size).copy()

    def _symbols(self, split: datasets.Dataset, length: int, words: bool) -> tuple[np.ndarray, np.ndarray]:
        """The symbols of a split's texts and the numbers of their words, int32 ``[n, length]`` each."""
        content = tokenizer_hash(self.tokenizer)
        keys = {"column": self.text, "tokenizer": self.tokenizer, "content": content, "length": length, "words": words}
        texts = split.map(_symbols, fn_kwargs=keys, batched=True, remove_columns=split.column_names)
        columns = texts.with_format("numpy")[:]
        return np.stack(columns["symbols"]).astype(np.int32), np.stack(columns["words"]).astype(np.int32)

    def _classes(self, source: Source, split: datasets.Dataset) -> np.ndarray:
        """The class of every sample, int64 ``[n]``."""
        return self._numbers(source, split[self.label], split[ROW])

    def _numbers(self, source: Source, values: Sequence[Any], rows: Sequence[int]) -> np.ndarray:
        """The classes of values of the label column, int64 ``[n]``; ``rows``: the row of each, for messages."""
        for value, row in zip(values, rows, strict=True):
            if value not in source.number:
                allowed = one_line(", ".join(source.names), 160)
                raise InputError(f"{self.name}: row {row} has {self.label} {value!r}; allowed: a class of {allowed}")
        return np.array([source.number[value] for value in values], np.int64)

    def _clients(self, split: datasets.Dataset) -> list[str | int]:
        """The client of every sample."""
        names = list(split[self.client])
        for row, name in zip(split[ROW], names, strict=True):
            if not isinstance(name, (str, int)) or name == "":
                raise InputError(f"{self.name}: row {row} has {self.client} {name!r}; clients are strings or integers")
        return names


@dataclass(frozen=True)
class Source:
    """An opened dataset, whose samples are not read yet.

    Attributes:
        parts: the training and the test rows, with the column :data:`ROW`.
        spec: shape and classes.
        names: names of the classes.
        number: the class of each value of the label column; empty without one.
    """

    parts: tuple[datasets.Dataset, datasets.Dataset]
    spec: Spec
    names: tuple[str, ...]
    number: Mapping[str | int, int]


@cache
def opened(config: HuggingFace) -> Source:
    """The splits of a dataset, with its classes and task.

    Raises:
        InputError: see :meth:`HuggingFace.load`.
    """
    parts = _parts(config)
    for rows in parts:
        columns = [name for name in rows.column_names if name != ROW]
        has = f"{config.name} has the columns {', '.join(columns)}"
        for key in ("image", "text", "label", "client"):
            if (column := getattr(config, key)) is not None and column not in columns:
                raise InputError(f"dataset.{key}={column}: no such column; {has}")
        if (config.image is None) == (config.text is None):
            raise InputError(f"dataset.image and dataset.text: exactly one of the two must name a column; {has}")
        if config.image is not None and config.label is None:
            raise InputError(f"dataset.label=null: images need a column of classes; {has}")
    listed, values, names = _label_values(config, parts)
    number = {value: number for number, value in enumerate(values)}
    if config.image is not None:
        return Source(parts, Spec((3, config.size, config.size), len(names)), names, number)
    vocabulary = vocabulary_of(config.tokenizer)
    task: Task = TokenClassification() if listed else CLASSIFICATION
    if config.label is None:
        task, names = LanguageModelling(), vocabulary.names
    if listed and config.tokenizer is None:
        raise InputError(f"dataset.tokenizer=null: classes of words ({config.label}) need a tokenizer")
    least = vocabulary.added + (config.label is not None)  # the next symbols are one more than the inputs
    if config.length < least:
        raise InputError(
            f"dataset.length={config.length}: the tokenizer adds {vocabulary.added} symbols to each text; allowed: at "
            f"least {least}"
        )
    spec = Spec((config.length,), len(names), len(vocabulary.names), task, vocabulary.padding)
    return Source(parts, spec, names, number)


def _label_values(
    config: HuggingFace, parts: Sequence[datasets.Dataset]
) -> tuple[bool, Sequence[str | int], tuple[str, ...]]:
    """Whether the label column has lists, its values in the order of the classes, and the classes' names."""
    import datasets

    if config.label is None:
        return False, (), ()
    features = [rows.features[config.label] for rows in parts]
    lists = [isinstance(feature, (datasets.List, datasets.LargeList)) for feature in features]
    kinds = [feature.feature if in_list else feature for feature, in_list in zip(features, lists, strict=True)]
    texts = [isinstance(kind, datasets.Value) and "string" in kind.dtype for kind in kinds]
    names = {tuple(kind.names) for kind in kinds if isinstance(kind, datasets.ClassLabel)}
    if len(set(lists)) > 1 or len(set(texts)) > 1 or len(names) > 1:  # a number would mean two classes
        has = " and ".join(
            f"{one_line(str(feature), 160)} in {split}"
            for feature, split in zip(features, (config.train, config.test), strict=True)
        )
        raise InputError(f"dataset.label={config.label}: has {has}; allowed: the same classes in both splits")
    listed, kind = lists[0], kinds[0]
    if isinstance(kind, datasets.ClassLabel):
        return listed, range(kind.num_classes), tuple(kind.names)
    if not isinstance(kind, datasets.Value):
        raise InputError(f"dataset.label={config.label}: has {_kind(kind)}; allowed: integers or strings")

    values = set[int | str]()
    for rows in parts:
        entries = ((row, [value]) for row, value in zip(rows[ROW], rows[config.label], strict=True))
        for row, entry in _lists(config.label, rows) if listed else entries:
            for value in entry:
                if not isinstance(value, (int, str)):
                    raise InputError(
                        f"dataset.label={config.label}: row {row} has {value!r}; allowed: integers or strings"
                    )
            values.update(entry)
    if len(values) < 2:
        raise InputError(f"dataset.label={config.label}: has {len(values)} different values; allowed: at least 2")
    ordered = sorted(values)
    return listed, ordered, tuple(map(str, ordered))


def _lists(label: str | None, rows: datasets.Dataset) -> Iterator[tuple[int, list[Any]]]:
    """The number of each row, and its entry of a label column that has lists.

    Raises:
        InputError: a row has none.
    """
    for row, entry in zip(rows[ROW], rows[label], strict=True):
        if entry is None:
            raise InputError(f"dataset.label={label}: row {row} has None; allowed: a list, a class of each word")
        yield row, entry


def _parts(config: HuggingFace) -> tuple[datasets.Dataset, datasets.Dataset]:
    """The training and the test rows, with the column :data:`ROW`."""
    require_package("datasets", "huggingface", "dataset=huggingface")
    import datasets

    datasets.disable_progress_bars()
    folder = user_path(config.name, "dataset.name")
    try:
        loaded = _loaded(config, folder)
    except InputError:
        raise
    except Exception as error:  # the library raises errors of many kinds
        unsaid = isinstance(error, datasets.exceptions.DatasetGenerationError)  # it says that an error occurred
        cause = error.__cause__ if unsaid and error.__cause__ else error
        reason = one_line(str(cause).strip().partition("\n")[0] or type(cause).__name__, 160)
        if folder.is_dir():
            instead = "allowed: a folder of save_to_disk, or with Parquet, CSV or JSON files, and rows in every split"
        else:
            instead = (
                f"there is no such folder; where the internet can be reached: hf download --repo-type dataset "
                f"{config.name} --local-dir FOLDER (after hf auth login for a gated one), then copy it here and set "
                "dataset.name=FOLDER"
            )
        raise InputError(f"dataset.name={config.name}: cannot be loaded ({reason}); {instead}") from None
    if isinstance(loaded, datasets.Dataset):
        loaded = {config.train: loaded}
    for key in ("train", "test"):
        if (split := getattr(config, key)) is not None and split not in loaded:
            alone = "; or dataset.test=null" if key == "test" else ""
            raise InputError(f"dataset.{key}={split}: no such split; {config.name} has {', '.join(loaded)}{alone}")
    train = _numbered(config, loaded[config.train])
    return _drawn(config, train) if config.test is None else (train, _numbered(config, loaded[config.test]))


def _loaded(config: HuggingFace, folder: Path) -> Any:
    """The splits by name, or a single one, from the folder or else from the hub."""
    import datasets

    if (folder / "dataset_dict.json").exists() or (folder / "state.json").exists():
        if config.subset is not None:
            raise InputError(f"dataset.subset={config.subset}: {config.name} has none; allowed: null")
        for state in sorted(folder.glob("**/state.json")):
            if not json.loads(state.read_bytes())["_data_files"]:  # which the library cannot load
                raise InputError(
                    f"dataset.name={config.name}: the split in {state.parent} has no rows; allowed: at least one"
                )
        return datasets.load_from_disk(str(folder))
    source = str(folder) if folder.is_dir() else config.name
    with nullcontext() if folder.is_dir() else hub_or_cache():
        texts = {}
        if config.client is not None:
            builder = datasets.load_dataset_builder(source, config.subset)
            if "csv" in (builder.name, builder.info.builder_name):  # the latter of a copy in the library's cache
                texts = {"converters": {config.client: str}}  # 007 is another client than 7
        return datasets.load_dataset(source, config.subset, **texts)


def _drawn(config: HuggingFace, rows: datasets.Dataset) -> tuple[datasets.Dataset, datasets.Dataset]:
    """The training and the test rows of a split, drawn with seed 0, each in the order of the split."""
    try:
        drawn = rows.select_columns([ROW]).train_test_split(test_size=config.test_share, seed=0)
    except ValueError:  # a part would be empty
        raise InputError(
            f"dataset.test_share={config.test_share}: leaves none of the {len(rows)} rows of {config.train} to train, "
            "or none to test; allowed: a share that leaves some of both"
        ) from None
    train, test = (rows.select(np.sort(drawn[part][ROW]) - 1) for part in ("train", "test"))
    return train, test


def _numbered(config: HuggingFace, split: datasets.Dataset) -> datasets.Dataset:
    """A published split with the column :data:`ROW`."""
    if ROW in split.column_names:
        raise InputError(f"dataset.name={config.name}: has a column {ROW}, which fedrun adds; allowed: another name")
    return split.add_column(ROW, np.arange(1, len(split) + 1))


def _decoded(sample: Mapping[str, Any], column: str, size: int) -> dict[str, bytes]:
    """The pixels of one sample's image, ``[3, size, size]``."""
    image, row = sample[column], sample[ROW]
    if image is None or (image["bytes"] is None and image["path"] is None):
        raise InputError(f"dataset.image={column}: row {row} has none")
    source = Path(image["path"]) if image["bytes"] is None else image["bytes"]
    try:
        return {"pixels": decode_image(source, "RGB", size, "bilinear").tobytes()}
    except InputError as error:
        raise InputError(f"dataset.image={column}: the image of row {row} {error}") from None


def _symbols(
    batch: Mapping[str, Any], column: str, tokenizer: str | None, content: str, length: int, words: bool
) -> dict[str, list[list[int]]]:
    """The symbols of a batch of texts, or of lists of words.

    The library caches them by the arguments; ``content`` stands for the tokenizer's files.
    """
    for row, text in zip(batch[ROW], batch[column], strict=True):
        if not (
            isinstance(text, list) and all(isinstance(word, str) for word in text) if words else isinstance(text, str)
        ):
            allowed = "a list of words, as the labels are lists" if words else "a string"
            raise InputError(f"dataset.text={column}: row {row} has {one_line(repr(text), 60)}; allowed: {allowed}")
    return split_texts(batch[column], tokenizer, length)


def _kind(feature: Any) -> str:
    """A column's type in messages."""
    return str(getattr(feature, "dtype", None) or type(feature).__name__)
