"""A limit on how deeply JSON may be nested, checked while a file is read: a parser's memory grows with the depth."""

from __future__ import annotations

from typing import IO

import numpy as np

DEEPEST = 100
"""Levels of lists and objects. LEAF's files have at most five."""


class NestingError(Exception):
    """JSON is nested too deeply."""


class BoundedNesting:
    """Reads a binary file of JSON whose lists and objects are nested at most :data:`DEEPEST` levels deep.

    Only brackets outside strings count. Whether the text is valid JSON is left to the parser.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._depth = 0
        self._in_string = False
        self._ends_in_backslash = False

    def read(self, size: int = -1) -> bytes:
        """Up to ``size`` bytes, as :meth:`io.BufferedReader.read`.

        Raises:
            NestingError: more lists and objects are open.
        """
        content = self._file.read(size)
        opening = content.count(b"[") + content.count(b"{")
        if b'"' not in content and not self._in_string and self._depth + opening <= DEEPEST:
            self._depth += opening - content.count(b"]") - content.count(b"}")
        else:
            self._count_outside_strings(content)
        return content

    def _count_outside_strings(self, content: bytes) -> None:
        text = b"\\" * self._ends_in_backslash + content
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
        self._ends_in_backslash = text.endswith(b"\\")
        characters = np.frombuffer(text.removesuffix(b"\\"), dtype=np.uint8)
        quotes = np.cumsum(characters == ord('"')) + self._in_string
        outside = quotes % 2 == 0
        opening = outside & ((characters == ord("[")) | (characters == ord("{")))
        closing = outside & ((characters == ord("]")) | (characters == ord("}")))
        depths = self._depth + np.cumsum(opening.astype(np.int64) - closing)
        if not len(characters):
            return
        if depths.max() > DEEPEST:
            raise NestingError(f"lists and objects are nested more than {DEEPEST} levels deep")
        self._depth, self._in_string = int(depths[-1]), bool(quotes[-1] % 2)
