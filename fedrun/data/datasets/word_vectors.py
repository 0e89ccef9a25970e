"""Word vectors in GloVe's text format: each line has a word and its numbers, separated by single blanks."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedrun.data.datasets.cache import cache_key, create, require_intact
from fedrun.system.errors import InputError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WordVectors:
    """A vocabulary.

    Attributes:
        numbers: row of each word in ``vectors``.
        vectors: float32 ``[words, dimension]``, mapped from a file.
    """

    numbers: Mapping[str, int]
    vectors: np.ndarray

    def mean(self, tokens: list[str]) -> tuple[np.ndarray, int]:
        """The mean vector, float32 ``[dimension]``, of the tokens in the vocabulary, and their number.

        Without any such token the vector is zero.
        """
        rows = [self.numbers[token] for token in tokens if token in self.numbers]
        if not rows:
            return np.zeros(self.vectors.shape[1], np.float32), 0
        return self.vectors[rows].mean(0, dtype=np.float32), len(rows)


def word_vectors(path: Path, dimension: int, place: Path) -> WordVectors:
    """Read a file of word vectors: the first time from text, later from its compact copy.

    Args:
        path: the text file, in UTF-8.
        dimension: numbers per word.
        place: folder of the compact copy; the copy is made again when the text file changes.

    Raises:
        InputError: the file is missing or malformed; it names the line.
    """
    key = cache_key(f"words {dimension}", [path])
    create(place / key, lambda folder: _copy(path, dimension, folder))
    require_intact(place / key)
    try:
        words = (place / key / "words.txt").read_bytes().decode().split("\n")
        vectors = np.memmap(place / key / "vectors.bin", np.float32, "r").reshape(len(words), dimension)
    except (OSError, ValueError) as error:
        raise InputError(f"{place / key} is damaged: delete the folder and run again") from error
    return WordVectors({word: number for number, word in enumerate(words)}, vectors)


def _copy(path: Path, dimension: int, folder: Path) -> None:
    """Write words and vectors to a folder, one line in memory at a time; of equal words the first one is kept."""
    log.info("reading %s (once)", path)
    words: dict[str, None] = {}
    with open(path, "rb") as lines, open(folder / "vectors.bin", "wb") as vectors, warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # NumPy's warning for a text that is not all numbers
        for number, line in enumerate(lines, start=1):
            text, _, rest = line.rstrip(b"\r\n").partition(b" ")
            try:
                word = text.decode()
                vector = np.fromstring(rest.decode("ascii"), dtype=np.float32, sep=" ")
            except (UnicodeDecodeError, ValueError, DeprecationWarning):
                raise InputError(f"{path}: line {number} is not a word and {dimension} numbers in UTF-8") from None
            if len(vector) != dimension or not word or not np.isfinite(vector).all():
                raise InputError(f"{path}: line {number} is not a word and {dimension} finite numbers")
            if word not in words:
                words[word] = None
                vectors.write(vector.data)
    if not words:
        raise InputError(f"{path} has no words")
    (folder / "words.txt").write_bytes("\n".join(words).encode())
