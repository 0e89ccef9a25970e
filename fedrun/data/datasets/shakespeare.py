"""Shakespeare: the next character of a speech, by role (LEAF)."""

from __future__ import annotations

import reprlib
import string
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from annotated_types import Ge, Le

from fedrun.config.config_class import config_class
from fedrun.config.identity import Neutral
from fedrun.data.datasets.base import Dataset, Encoding, Spec, Symbols
from fedrun.data.datasets.leaf import FileFormat, LeafDataset, LeafJson
from fedrun.data.datasets.user_tables import ParquetTable
from fedrun.data.offsets import offsets_of
from fedrun.data.tasks.classification import CLASSIFICATION
from fedrun.data.tasks.symbols import LanguageModelling
from fedrun.system.errors import InputError

LENGTH = 80
ALPHABET = (
    " !\"&'(),-." + string.digits + ":;>?" + string.ascii_uppercase + "[]" + string.ascii_lowercase + "{}"
)  # the order of the TurboSVM-FL code; LEAF's has a newline first and no "{"
SUBSTITUTE = len(ALPHABET) - 1
"""LEAF's one-hot code maps an unknown character to -1, the last symbol."""
UNKNOWN = 255


@config_class
class Shakespeare(LeafDataset):
    """LEAF's Shakespeare: 80 characters of a role's speeches and, as label, the character that follows them.

    Attributes (besides those of :class:`LeafDataset`):
        data_dir: the files are in ``<data_dir>/shakespeare``.
        unknown: treatment of a character outside the alphabet: ``refuse`` stops with an error; ``map`` replaces it by
            the alphabet's last symbol, as LEAF's code does, and logs the count.
        window: number of characters that the model sees: the last ones before the label. An LSTM's time grows with it.
        predict: ``last``: the character after the window; ``all``: the character after each character of the window,
            in windows that do not overlap (every ``window``-th of a role), so that each character is predicted once.
    """

    unknown: Literal["refuse", "map"]
    window: Annotated[int, Ge(1), Le(LENGTH)]
    predict: Annotated[Literal["last", "all"], Neutral("last")]

    name: ClassVar[str] = "shakespeare"
    class_names: ClassVar[tuple[str, ...]] = tuple(ALPHABET)

    @property
    def spec(self) -> Spec:
        task = CLASSIFICATION if self.predict == "last" else LanguageModelling()
        return Spec(input_shape=(self.window,), classes=len(ALPHABET), vocabulary=len(ALPHABET), task=task)

    @property
    def stored_shape(self) -> tuple[int, ...]:
        return (LENGTH,)

    @property
    def encoding(self) -> Encoding:
        return Symbols()

    def load(self) -> Dataset:
        dataset = super().load()
        dataset = replace(dataset, inputs=dataset.inputs[:, LENGTH - self.window :], overlap=self.window - 1)
        return dataset if self.predict == "last" else whole_windows(dataset)

    def sources(self) -> tuple[FileFormat, ...]:
        """LEAF's JSON, or Parquet files with the columns of the hub's flwrlabs/shakespeare."""
        decoder = Characters(substitute=self.unknown == "map")
        table = ParquetTable(decoder, user="character_id", x="x", y="y", class_names=self.class_names)
        return (LeafJson(decoder), table)


def whole_windows(dataset: Dataset) -> Dataset:
    """Every window-th sample of each user, with the next character of each of its characters as targets ``[n, w]``.

    Args:
        dataset: successive windows ``[n, w]`` of every user, each with the character that follows.
    """
    users, window = dataset.users, dataset.inputs.shape[1]
    assert users is not None
    starts, sizes = users.offsets[:-1], users.offsets.diff()
    chosen = torch.cat([torch.arange(first, first + size, window) for first, size in zip(starts, sizes, strict=True)])
    offsets = torch.from_numpy(offsets_of((-(-sizes // window)).numpy()))
    inputs = dataset.inputs[chosen]
    targets = torch.cat([inputs[:, 1:].to(torch.int64), dataset.targets[chosen, None].to(torch.int64)], dim=1)
    return replace(
        dataset,
        inputs=inputs,
        targets=targets,
        train_size=int(offsets[users.training]),
        users=replace(users, offsets=offsets),
        overlap=0,
    )


class Characters:
    """Decodes strings of 80 characters, and labels of one, to symbol numbers: uint8 ``[n, 80]``, ``[n]``."""

    def __init__(self, substitute: bool) -> None:
        self.cache_tag = "map" if substitute else "refuse"
        self._substitute = substitute
        self._substituted = 0

    def decode(self, x: list[Any], y: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        return self._numbers(x, LENGTH, "string"), self._numbers(y, 1, "label")[:, 0]

    def remark(self) -> str:
        if not self._substituted:
            return ""
        return f"{self._substituted} characters outside the alphabet were read as {ALPHABET[SUBSTITUTE]!r}"

    def _numbers(self, texts: list[Any], length: int, what: str) -> np.ndarray:
        """uint8 ``[n, length]``."""
        for sample, text in enumerate(texts):
            if not isinstance(text, str) or len(text) != length:
                content = f"{len(text)} characters" if isinstance(text, str) else reprlib.repr(text)
                raise InputError(f"{what} {sample} has {content}; a {what} is {length} character{'s' * (length > 1)}")
        codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype="<u4")
        numbers: np.ndarray = _NUMBERS[np.minimum(codes, len(_NUMBERS) - 1)].reshape(-1, length)
        unknown = numbers == UNKNOWN
        if unknown.any():
            if not self._substitute:
                sample, position = (int(place) for place in np.argwhere(unknown)[0])
                raise InputError(
                    f"{what} {sample} has {texts[sample][position]!r} at position {position}, which is not in the "
                    f"alphabet of 80; dataset.unknown=map reads such characters as {ALPHABET[SUBSTITUTE]!r}"
                )
            numbers[unknown] = SUBSTITUTE
            self._substituted += int(unknown.sum())
        return numbers


def _numbers_by_code() -> np.ndarray:
    """uint8 ``[128]``: the number of each ASCII character, or UNKNOWN; the last (DEL) is used for all others."""
    numbers = np.full(128, UNKNOWN, dtype=np.uint8)
    numbers[[ord(character) for character in ALPHABET]] = np.arange(len(ALPHABET))
    return numbers


_NUMBERS = _numbers_by_code()
