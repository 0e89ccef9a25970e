"""Datasets that are read into memory completely."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from fedrun.config.as_config import as_config
from fedrun.data.datasets.augmentation import Augmentation
from fedrun.data.datasets.base import Dataset, DatasetConfig, Encoding, Scaled, Spec, Symbols, Users
from fedrun.data.datasets.sample_table import SampleTable
from fedrun.data.datasets.user_order import by_user, numbered
from fedrun.data.tasks.base import Task
from fedrun.data.tasks.classification import CLASSIFICATION
from fedrun.system.errors import InputError, one_line
from fedrun.system.fingerprint import fingerprint

Arrays = tuple[np.ndarray, np.ndarray]
"""Samples uint8 or float32 ``[n, *input_shape]`` and targets ``[n, ...]``, such as classes of any integer type."""

Split: TypeAlias = "tuple[Any, Any] | Mapping[str, Any] | torch.utils.data.Dataset[Any]"
"""Samples and targets as a pair of arrays or tensors, as a mapping with the keys ``inputs`` and ``targets``, or as a
PyTorch dataset of pairs of one sample and its target."""

SYMBOLS = "int32"
"""The type of stored symbols of texts."""

DIVISORS = {"uint8": 255.0, "float32": 1.0}
"""Divisors of stored numbers by type, in :meth:`InMemory.of`."""


@dataclass(frozen=True)
class InMemory(DatasetConfig):
    """A loaded dataset, for an experiment on data that no option of the configuration reads.

    Attributes:
        dataset: the loaded dataset.
    """

    dataset: Dataset

    @classmethod
    def of(
        cls,
        train: Split,
        test: Split,
        classes: int,
        users: Iterable[object] | None = None,
        task: Task = CLASSIFICATION,
        vocabulary: int | None = None,
        padding: int | None = None,
    ) -> InMemory:
        """Samples in memory as a dataset.

        Args:
            train: training samples, uint8 (encoded as stored/255) or float32 (unchanged), and their targets. With a
                vocabulary texts: symbols of any integer type, ``[n, length]``.
            test: test samples and their targets.
            classes: C ≥ 2; classes are 0 to C − 1. For other tasks: the number of outputs, at least 1.
            users: the user of each training sample, ``[n]``, for ``partition=natural``; None: samples have no users.
            task: what is learned.
            vocabulary: number of different symbols of texts, which are 0 to ``vocabulary`` − 1; None: samples are
                numbers.
            padding: the symbol that fills up the end of shorter texts; None: texts have the same length.

        Raises:
            InputError: a type, a shape, a symbol or a target is not allowed.
        """
        if not isinstance(task, Task):
            raise InputError(f"task={task!r}: allowed: a task, such as fedrun.data.tasks.regression.Regression()")
        least = 2 if task.has_classes else 1
        if not isinstance(classes, Integral) or classes < least:
            raise InputError(f"classes={classes}: allowed: an integer, at least {least}")
        _check_symbols(vocabulary, padding)
        splits = {where: arrays(split, where) for where, split in {"train": train, "test": test}.items()}
        splits = {where: (_stored(inputs, vocabulary, where), each) for where, (inputs, each) in splits.items()}
        samples = splits["train"][0]
        if samples.ndim < 2 or 0 in samples.shape:
            raise InputError(
                f"train: samples {list(samples.shape)}; allowed: [n, ...], numbers for each of n > 0 samples"
            )
        for where, split in splits.items():
            _check_split(split, splits["train"], int(classes), task, where)
        spec = Spec(tuple(samples.shape[1:]), int(classes), vocabulary, task, padding)
        encoding = Scaled(DIVISORS[samples.dtype.name]) if vocabulary is None else Symbols()
        names = tuple(map(str, range(classes)))
        if users is None:
            dataset = in_memory(spec, encoding, names, splits["train"], splits["test"])
        else:
            if isinstance(users, torch.Tensor):
                users = users.tolist()
            if not isinstance(users, Iterable):
                raise InputError(f"users={users!r}: allowed: a list or an array of names, one for each training sample")
            owners = [str(user) for user in users]
            if len(owners) != len(samples):
                raise InputError(f"users: {len(owners)} for {len(samples)} training samples; allowed: one for each")
            order, training = by_user(*numbered(owners), np.zeros(len(owners), dtype=bool))
            ordered = (samples[order], splits["train"][1][order])
            dataset = in_memory(spec, encoding, names, ordered, splits["test"])
            offsets = torch.cat([training.offsets, torch.tensor([len(dataset.targets)])])
            dataset = replace(
                dataset,
                users=Users((*training.names, "test"), offsets, training.training, pooled_test=True),
                fingerprint=fingerprint([dataset.fingerprint, *owners]),
            )
        if not task.has_classes:
            task.check_targets(dataset.targets, int(classes), "targets")
        # the same arrays may be of several vocabularies, and be learned in several ways
        meaning = [] if vocabulary is None else [vocabulary, str(padding)]
        meaning += [] if task == CLASSIFICATION else [json.dumps(as_config(task, "task"))]
        if meaning:
            dataset = replace(dataset, fingerprint=fingerprint([dataset.fingerprint, *meaning]))
        return cls(_with_classes(dataset))

    @classmethod
    def of_table(cls, table: Any, columns: SampleTable) -> InMemory:
        """A data frame, or an Arrow table, as a dataset.

        Examples:
            >>> InMemory.of_table(frame, fedrun.option("dataset", "tabular", label="outcome", client="ward"))

        Args:
            table: a table of pandas or pyarrow.
            columns: the roles of the columns; its ``file`` is not read.

        Raises:
            InputError: the table lacks a column, or a value in it cannot be used.
        """
        import pyarrow

        if not isinstance(columns, SampleTable):
            raise InputError(
                f"columns: {type(columns).__name__}; allowed: a dataset option for tables, such as "
                "fedrun.option('dataset', 'tabular', label='outcome')"
            )
        if not isinstance(table, pyarrow.Table):
            try:
                table = pyarrow.Table.from_pandas(table, preserve_index=False)
            except AttributeError:
                raise InputError(f"table: {type(table).__name__}; allowed: a table of pandas or pyarrow") from None
            except (pyarrow.ArrowException, ValueError, TypeError) as error:  # mixed or sparse columns, two of one name
                reason = one_line("; ".join(map(str, error.args)), 200)
                raise InputError(f"the table cannot be read: {reason}") from None
        return cls(_with_classes(columns.dataset(table, Path("the table"))))

    @property
    def spec(self) -> Spec:
        return self.dataset.spec

    def as_config(self) -> dict[str, str]:
        """The data's fingerprint, because arrays are not configuration values."""
        return {"data": self.dataset.fingerprint}

    def load(self) -> Dataset:
        return self.dataset


def _with_classes(dataset: Dataset) -> Dataset:
    """The dataset, with the number of classes in its fingerprint if no sample is of the last class."""
    task, classes = dataset.spec.task, dataset.spec.classes
    if not (task.has_classes or task.per_symbol) or classes == int(dataset.targets.max()) + 1:
        return dataset
    return replace(dataset, fingerprint=fingerprint([dataset.fingerprint, classes]))


def _check_symbols(vocabulary: int | None, padding: int | None) -> None:
    """Reject a vocabulary that is no number of symbols, and padding that is none of them."""
    if vocabulary is not None and (not isinstance(vocabulary, Integral) or not 1 <= vocabulary <= 2**31):
        raise InputError(f"vocabulary={vocabulary}: allowed: the number of symbols, at least 1, or None")
    if padding is not None and vocabulary is None:
        raise InputError(f"padding={padding} without vocabulary; allowed: None, or a vocabulary")
    if padding is not None and (not isinstance(padding, Integral) or padding not in range(vocabulary or 0)):
        raise InputError(f"padding={padding}: allowed: a symbol from 0 to {vocabulary - 1}, or None")


def _stored(samples: np.ndarray, vocabulary: int | None, where: str) -> np.ndarray:
    """Samples in the type in which they are stored: numbers as they are, or the symbols of texts.

    Raises:
        InputError: they are of another type or, if texts, not ``[n, length]`` or not of the vocabulary.
    """
    if vocabulary is None:
        if samples.dtype.name not in DIVISORS:
            texts = ", or integers [n, length] with a vocabulary" if samples.dtype.kind in "iu" else ""
            raise InputError(
                f"{where}: samples are {samples.dtype}; allowed: uint8 or float32, the same in both splits{texts}"
            )
        return samples
    if samples.dtype.kind not in "iu" or samples.ndim != 2:
        raise InputError(
            f"{where}: samples {list(samples.shape)} are {samples.dtype}; allowed with vocabulary={vocabulary}: "
            "integers [n, length]"
        )
    require_symbols(samples, vocabulary, where)
    return samples.astype(SYMBOLS)


def _check_split(split: Arrays, train: Arrays, classes: int, task: Task, where: str) -> None:
    """Reject samples and targets that are not like those of the training split.

    Raises:
        InputError: naming the split, its shapes and types, and what is allowed.
    """
    inputs, targets = split
    shape = train[0].shape[1:]
    if inputs.dtype != train[0].dtype:
        raise InputError(f"{where}: samples are {inputs.dtype}; allowed: {train[0].dtype}, as in train")
    fits = targets.ndim == 1 and targets.dtype.kind in "iu" if task.has_classes else targets.dtype.kind in "biuf"
    if inputs.shape[1:] != shape or targets.shape[:1] != inputs.shape[:1] or not fits:
        kind = "text" if targets.dtype.kind in "SU" else targets.dtype
        raise InputError(
            f"{where}: samples {list(inputs.shape)} with targets {list(targets.shape)} of {kind}; "
            f"allowed: [n, {', '.join(map(str, shape))}] with "
            f"{'integers [n]' if task.has_classes else 'numbers [n, ...]'}"
        )
    if targets.shape[1:] != train[1].shape[1:]:
        raise InputError(f"{where}: targets {list(targets.shape)}; allowed: as in train, {list(train[1].shape)}")
    if task.has_classes:
        require_labels(targets, range(classes), where)
    if not np.isfinite(inputs).all():
        raise InputError(f"{where}: samples with NaN or infinity; allowed: finite numbers")


def in_memory(
    spec: Spec,
    encoding: Encoding,
    class_names: tuple[str, ...],
    train: Arrays,
    test: Arrays,
    augmentation: Augmentation | None = None,
) -> Dataset:
    """The dataset of a training and a test split without users."""
    inputs = np.concatenate([train[0], test[0]])
    stored = np.float32 if "f" in (train[1].dtype.kind, test[1].dtype.kind) else np.int64
    # with a dtype, because uint64 and int64 would become float64
    targets = np.concatenate([train[1], test[1]], dtype=stored, casting="unsafe")
    return Dataset(
        spec=spec,
        encoding=encoding,
        inputs=torch.from_numpy(inputs),
        targets=torch.from_numpy(targets),
        train_size=len(train[1]),
        users=None,
        class_names=class_names,
        fingerprint=fingerprint([len(train[1]), inputs, targets]),
        augmentation=augmentation,
    )


def arrays(split: Split, where: str) -> Arrays:
    """Samples and targets as arrays.

    Raises:
        InputError: they are of another kind, or samples differ in shape.
    """
    if isinstance(split, Mapping):
        if split.keys() != {"inputs", "targets"}:
            keys = ", ".join(map(str, split)) or "no keys"
            raise InputError(f"{where}: a mapping with {keys}; allowed: inputs, targets")
        split = (split["inputs"], split["targets"])
    elif isinstance(split, torch.utils.data.Dataset):
        if isinstance(split, torch.utils.data.IterableDataset) or not hasattr(split, "__len__"):
            raise InputError(f"{where}: {type(split).__name__} has no length; allowed: a PyTorch dataset with a length")
        pairs = [split[number] for number in range(len(split))]
        if not pairs:
            raise InputError(f"{where}: a PyTorch dataset without samples; allowed: at least one")
        for number, pair in enumerate(pairs):
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise InputError(
                    f"{where}: item {number} is a {type(pair).__name__}; allowed: pairs of sample and target"
                )
        try:
            samples, targets = (np.stack([_array(pair[part]) for pair in pairs]) for part in (0, 1))
            split = (samples, targets)
        except (ValueError, TypeError) as error:
            raise InputError(
                f"{where}: {one_line(str(error))}; allowed: a PyTorch dataset of pairs of one sample, always of the "
                "same shape, and its target"
            ) from None
    if not isinstance(split, (tuple, list)) or len(split) != 2:
        raise InputError(
            f"{where}: {type(split).__name__}; allowed: a pair of samples and targets, a mapping with inputs and "
            "targets, or a PyTorch dataset of pairs"
        )
    try:
        return _array(split[0]), _array(split[1])
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{where}: {one_line(str(error))}; allowed: arrays or tensors of numbers, all samples of one shape"
        ) from None


def _array(values: Any) -> np.ndarray:
    """An array, a tensor (with or without a gradient, on any device), or what NumPy makes of other values.

    Raises:
        ValueError: a tensor is of the device meta.
        TypeError: NumPy cannot read a tensor, such as a sparse one.
    """
    if not isinstance(values, torch.Tensor):
        return np.asarray(values)
    if values.is_meta:
        raise ValueError("a tensor of the device meta has no numbers")
    return np.asarray(values.detach().cpu())


def require_symbols(texts: np.ndarray, vocabulary: int, where: object) -> None:
    """Check that symbols, of any shape, are 0 to ``vocabulary`` − 1, for which an embedding has rows.

    Raises:
        InputError: a symbol is not allowed.
    """
    if texts.size and (texts.min() < 0 or texts.max() >= vocabulary):
        raise InputError(
            f"{where}: symbols from {texts.min()} to {texts.max()}; allowed: 0 to {vocabulary - 1}, because the "
            f"vocabulary has {vocabulary} symbols"
        )


def require_labels(labels: np.ndarray, allowed: range, where: object) -> None:
    """Check that labels ``[n]`` are in a range.

    Args:
        labels: the labels of the source.
        allowed: the range, not empty.
        where: the source's name, for the message.

    Raises:
        InputError: a label is not allowed; the first one is named.
    """
    wrong = (labels < allowed[0]) | (labels > allowed[-1])
    if wrong.any():
        first = int(np.argmax(wrong))
        raise InputError(f"{where}: sample {first} has label {labels[first]}; labels are {allowed[0]} to {allowed[-1]}")
