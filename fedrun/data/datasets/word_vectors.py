"""Word vectors in GloVe's text format: each line has a word and its numbers, separated by single blanks."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedrun.system.errors import InputError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WordVectors:
    """A vocabulary.

    Attributes:
        numbers: row of each word in ``vectors``.
        vectors: float32 ``[words, dimension]``.
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


def word_vectors(path: Path, dimension: int) -> WordVectors:
    """Read a file of word vectors; of equal words the first one is kept.

    Args:
        path: the text file, in UTF-8.
        dimension: numbers per word.

    Raises:
        InputError: the file is malformed; it names the line.
        OSError: the file cannot be read.
    """
    log.info("reading %s (once)", path)
    numbers: dict[str, int] = {}
    vectors = bytearray()
    with open(path, "rb") as lines, warnings.catch_warnings():
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
            if word not in numbers:
                numbers[word] = len(numbers)
                vectors += vector.data
    if not numbers:
        raise InputError(f"{path} has no words")
    return WordVectors(numbers, np.frombuffer(vectors, np.float32).reshape(-1, dimension))
