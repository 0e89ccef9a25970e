"""Sentiment140: is a tweet positive, by its author (Go et al., 2009; LEAF)."""

from __future__ import annotations

import csv
import html
import re
import reprlib
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Encoding, Scaled, Spec
from fedrun.data.datasets.cache import StoredType, cache_key
from fedrun.data.datasets.leaf import FileFormat, LeafDataset, LeafJson, integer_labels
from fedrun.data.datasets.regular_file import ends_in_quoted_text
from fedrun.data.datasets.user_tables import ROWS, grouped
from fedrun.data.datasets.word_vectors import WordVectors, word_vectors
from fedrun.data.download.catalogue import GLOVE
from fedrun.system.errors import InputError
from fedrun.system.user_path import user_path

COLUMNS = ("label", "id", "date", "query", "user", "text")
USER, TEXT = 3, 4
"""Positions in a sample, which is a row without its label."""
LABELS = {"0": 0, "4": 1}
TOKEN = re.compile(
    r"(?P<url>https?://\S+|www\.\S+)|(?P<user>@\w+)|#(?P<hashtag>\w+)|(?P<number>[+-]?\d[\d.,:]*)"
    r"|\w+(?:'\w+)*|[^\w\s]"
)


@config_class
class Sent140(LeafDataset):
    """A sample is the mean of a tweet's word vectors; the label says whether the tweet is positive.

    Tweets are split into words as the text for GloVe's Twitter vectors was: lower case; addresses, names, numbers and
    the sign of hashtags become ``<url>``, ``<user>``, ``<number>`` and ``<hashtag>``. Words without a vector are
    skipped; a tweet without any known word is a zero vector.

    Attributes (besides those of :class:`LeafDataset`):
        data_dir: the files in ``<data_dir>/sent140`` are LEAF's JSON, or the publisher's CSV (six columns, latin-1,
            labels 0 and 4).
        min_samples: 50 in MaxFL.
        min_samples_after_split: MaxFL has none.
        vectors: file of word vectors in GloVe's text format.
        dimension: numbers of one word's vector; 200 in MaxFL.
    """

    vectors: str
    dimension: Annotated[int, Ge(1)]

    name: ClassVar[str] = "sent140"
    class_names: ClassVar[tuple[str, ...]] = ("negative", "positive")
    stored_type: ClassVar[StoredType] = "float32"

    @property
    def spec(self) -> Spec:
        return Spec(input_shape=(self.dimension,), classes=len(self.class_names))

    @property
    def encoding(self) -> Encoding:
        return Scaled(divisor=1.0)

    def sources(self) -> tuple[FileFormat, ...]:
        decoder = MeanVectors(user_path(self.vectors, "dataset.vectors"), self.dimension)
        return (LeafJson(decoder), TweetTable(decoder))

    def _read(self, source: FileFormat, files: Mapping[str, list[Path]], key: str, folder: Path) -> None:
        assert isinstance(source.decoder, MeanVectors)
        source.decoder.read_vectors()  # before the first tweet: an error of decode is one in the tweets' file
        super()._read(source, files, key, folder)


class MeanVectors:
    """Decodes tweets, each a list ``[id, date, query, user, text, ...]``, to float32 ``[n, dimension]``."""

    def __init__(self, path: Path, dimension: int) -> None:
        if not path.is_file():
            raise InputError(
                f"dataset.vectors={path}: no such file; fedrun-data glove fetches GloVe's Twitter vectors, or unpack "
                f"{GLOVE} yourself"
            )
        self.cache_tag = cache_key(f"mean {dimension}", [path])
        self._path, self._dimension = path, dimension
        self._vocabulary: WordVectors
        self._samples = self._without_words = 0

    def read_vectors(self) -> None:
        """Read the vectors, which decoding needs but a cached dataset does not.

        Raises:
            InputError: the file is malformed.
        """
        self._vocabulary = word_vectors(self._path, self._dimension)

    def decode(self, x: list[Any], y: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        targets = integer_labels(y, 2)
        means = np.empty((len(x), self._dimension), np.float32)
        for sample, tweet in enumerate(x):
            if not isinstance(tweet, list) or len(tweet) <= TEXT or not isinstance(tweet[TEXT], str):
                raise InputError(f"sample {sample} is {reprlib.repr(tweet)}; a tweet is [id, date, query, user, text]")
            means[sample], words = self._vocabulary.mean(tokens(tweet[TEXT]))
            self._without_words += words == 0
        self._samples += len(x)
        return means, targets

    def remark(self) -> str:
        if not self._without_words:
            return ""
        number, file = self._without_words, self._path.name
        return f"{number} of {self._samples} tweets have no word in {file} and became zero vectors"


class TweetTable(FileFormat):
    """The publisher's CSV, streamed: six columns without a header, in latin-1."""

    suffix: ClassVar[str] = ".csv"

    def sizes(self, paths: list[Path]) -> dict[str, int]:
        return Counter(row[1 + USER] for path in paths for row in _rows(path))

    def pieces(self, path: Path) -> Iterator[tuple[str, list[Any], list[Any]]]:
        rows = _rows(path)
        while piece := list(islice(rows, ROWS)):
            users, labels = (row[1 + USER] for row in piece), [LABELS[row[0]] for row in piece]
            yield from grouped(users, [row[1:] for row in piece], labels)


def tokens(text: str) -> list[str]:
    """The words of a tweet, see :class:`Sent140`."""
    words: list[str] = []
    for match in TOKEN.finditer(html.unescape(text)):
        match match.lastgroup:
            case None:
                words.append(match[0].lower())
            case "hashtag":
                words += ["<hashtag>", match["hashtag"].lower()]
            case kind:
                words.append(f"<{kind}>")
    return words


def _rows(path: Path) -> Iterator[list[str]]:
    """The rows of a file, checked."""
    row = [""]
    try:
        with open(path, encoding="latin-1", newline="") as file:
            rows = csv.reader(file)
            for row in rows:
                if len(row) != len(COLUMNS):
                    raise InputError(
                        f"{path}: line {rows.line_num} has {len(row)} columns; the {len(COLUMNS)} columns are "
                        f"{', '.join(COLUMNS)}"
                    )
                if row[0] not in LABELS:
                    raise InputError(f"{path}: line {rows.line_num} has label {row[0]!r}; labels are 0 and 4")
                yield row
        if ends_in_quoted_text(path, row[-1], "latin-1"):
            raise InputError(f"{path} is cut short: it ends in the middle of a text")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except csv.Error as error:
        raise InputError(f"{path} is not CSV: {error}") from error
