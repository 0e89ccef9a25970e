"""RESULTS.md: the report's sections. One call may replace some of them and keep the others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from fedrun.report.papers.agreement import overview, table_of
from fedrun.report.papers.results import Section
from fedrun.report.papers.table_reading import by_number
from fedrun.report.table import markdown
from fedrun.system.errors import InputError

HEADING = (
    "# Results\n\n"
    "The papers' tables with our numbers next to theirs, then experiments that are not tables of a paper. Written by "
    "`fedrun-report --results`, never by hand. With `--keep`, sections whose runs are not given are kept unchanged; "
    "each names the commits of its runs."
)

MARK = re.compile(r"^<!-- (\S+/\S+) -->$", re.MULTILINE)
"""The line above each section; it is invisible on the rendered page."""


MISSING = re.compile(r"^Not run yet: (\d+) of", re.MULTILINE)
"""The note on a table's cells that were not run (:mod:`fedrun.report.papers.paper_table`)."""


def document(sections: Sequence[Section], kept: Sequence[tuple[str, str]] = ()) -> str:
    """The file's text: the overview, then the papers' tables by their numbers, then the other experiments.

    Args:
        sections: new ones.
        kept: names and texts of older sections, as :func:`read` returns them. A new section replaces the older one of
            its name unless it has more cells that were not run: its runs may be a few that another table shares.
    """
    texts = dict(kept)
    for section in sections:
        text = "\n\n".join(map(markdown, section.tables))
        if _missing(text) <= _missing(texts.get(section.name, text)):
            texts[section.name] = text

    def order(name: str) -> tuple[bool, list[str | int]]:
        return table_of(name) is None, by_number(name)

    ordered = {name: texts[name] for name in sorted(texts, key=order)}
    begin = [HEADING] if (table := overview(ordered)) is None else [HEADING, markdown(table)]
    return "\n\n".join([*begin, *(f"<!-- {name} -->\n\n{text}" for name, text in ordered.items())])


def _missing(text: str) -> int:
    """How many cells of a section were not run."""
    return sum(map(int, MISSING.findall(text)))


def read(path: Path) -> list[tuple[str, str]]:
    """Names and texts of the sections of a file that :func:`document` wrote; none if there is no file.

    Raises:
        InputError: it cannot be read, or has no sections.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    _, *parts = MARK.split(text)
    if not parts:
        raise InputError(f"{path}: no sections to keep; allowed: a file that fedrun-report --results has written")
    return [(name, section.strip()) for name, section in zip(parts[::2], parts[1::2], strict=True)]
