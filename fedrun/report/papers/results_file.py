"""RESULTS.md: the report's sections. One call may replace some of them and keep the others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from fedrun.report.papers.agreement import overview, table_of
from fedrun.report.papers.results import Section
from fedrun.report.papers.table_reading import by_number
from fedrun.report.ranking import RANKS
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

SEEDS = re.compile(r"\bSeeds: ([\d, ]+)\.")
"""The seeds of a section's runs, in its line on their data and code."""

ONLY_SEEDS = re.compile(r"^Only seeds ([\d, ]+):", re.MULTILINE)
"""The note on a setting with fewer seeds (:mod:`fedrun.report.papers.results`)."""

FEWER_SEEDS = re.compile(r"^Not run yet with all of the seeds [\d, ]+: (\d+) of", re.MULTILINE)
"""The note on a table's cells with fewer seeds."""


def document(sections: Sequence[Section], kept: Sequence[tuple[str, str]] = ()) -> str:
    """The file's text: the overview, then the papers' tables by their numbers, then the other experiments.

    Args:
        sections: new ones.
        kept: names and texts of older sections, as :func:`read` returns them. A new section replaces the older one of
            its name unless :func:`not_replaced` names it: its runs may be a few that another table shares.
    """
    older = not_replaced(sections, kept)
    texts = dict(kept) | {section.name: _text(section) for section in sections if section.name not in older}

    def order(name: str) -> tuple[bool, list[str | int]]:
        return table_of(name) is None, by_number(name)

    ordered = {name: texts[name] for name in sorted(texts, key=order)}
    begin = [HEADING] if (table := overview(ordered)) is None else [HEADING, markdown(table)]
    return "\n\n".join([*begin, *(f"<!-- {name} -->\n\n{text}" for name, text in ordered.items())])


def not_replaced(sections: Sequence[Section], kept: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The older sections that report more than the new ones of their names, and a line that says so, by name."""
    older = dict(kept)
    fewer = {
        section.name: what
        for section in sections
        if section.name in older and (what := _fewer(_text(section), older[section.name]))
    }
    return {
        name: f"{name}: the older section is kept, because the new one has {what}; to replace it, delete it in the file"
        for name, what in fewer.items()
    }


def _text(section: Section) -> str:
    return "\n\n".join(map(markdown, section.tables))


def _fewer(text: str, older: str) -> str:
    """What makes a section less than an older one, in words; empty if nothing does.

    Seeds that only some cells or settings lack count if both sections are of equal size: as a table grows, its new
    cells may have fewer seeds than the others.
    """
    if _missing(text) > _missing(older):
        return "more cells that were not run"
    if (rows := _rows(text)) < (before := _rows(older)):
        return f"fewer rows ({rows} instead of {before})"
    if (seeds := _seeds(text)) < (before := _seeds(older)):
        return f"fewer seeds ({seeds} instead of {before})"
    same_size = (_missing(text), rows, seeds) == (_missing(older), _rows(older), before)
    return "more cells or settings without all seeds" if same_size and _lacking(text) > _lacking(older) else ""


def _missing(text: str) -> int:
    """How many cells of a section were not run."""
    return sum(map(int, MISSING.findall(text)))


def _rows(text: str) -> int:
    """How many rows of results a section's tables have."""
    tables = [part.splitlines() for part in re.split("^## ", text, flags=re.MULTILINE) if not part.startswith(RANKS)]
    return sum(max(0, sum(line.startswith("|") for line in lines) - 2) for lines in tables)  # two are the header


def _seeds(text: str) -> int:
    """How many seeds a section's runs have."""
    return len({seed for seeds in SEEDS.findall(text) for seed in seeds.split(", ")})


def _lacking(text: str) -> int:
    """How many runs a section's settings lack, or how many of its cells lack some, compared with all of its seeds."""
    settings = sum(_seeds(text) - len(seeds.split(", ")) for seeds in ONLY_SEEDS.findall(text))
    return settings + sum(map(int, FEWER_SEEDS.findall(text)))


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
