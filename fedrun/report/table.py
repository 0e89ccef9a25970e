"""A table of strings, and its Markdown, LaTeX and HTML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby


@dataclass(frozen=True)
class Table:
    """A table before it is drawn.

    Attributes:
        title: one line; tables in succession with the same title are the parts of one section.
        header: heading of each column.
        rows: each as long as ``header``.
        above: paragraphs between the title and the table.
        notes: paragraphs below the table.
        labels: how many columns on the left name the row; the others hold values and are set flush right.
        remarks: whether the last column holds sentences instead, set flush left.
        part: what distinguishes this table from the others of its section; may be empty.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    above: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    labels: int = 1
    remarks: bool = False
    part: str = ""

    @property
    def full_title(self) -> str:
        """The title with the part, where the table stands alone."""
        return ", ".join(filter(None, (self.title, self.part)))

    def is_text(self, column: int) -> bool:
        """Whether a column is set flush left."""
        return column < self.labels or (self.remarks and column == len(self.header) - 1)


def markdown(table: Table) -> str:
    """A table in GitHub's dialect with columns lined up, below its part's heading, and the texts around it."""
    body = [[" ".join(cell.replace("|", "\\|").splitlines()) for cell in row] for row in (table.header, *table.rows)]
    widths = [max(3, *map(len, column)) for column in zip(*body, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if table.is_text(number) else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    rules = ["-" * width if table.is_text(number) else "-" * (width - 1) + ":" for number, width in enumerate(widths)]
    lines = [line(body[0]), line(rules), *map(line, body[1:])]
    heading = [f"### {table.part}"] if table.part else []
    return "\n\n".join([*table.above, *heading, "\n".join(lines), *table.notes])


def latex(table: Table) -> str:
    """A ``table`` environment with booktabs' rules; the texts around it are in the caption."""
    columns = "".join("l" if table.is_text(number) else "r" for number in range(len(table.header)))
    if table.remarks:
        columns = columns[:-1] + r"p{.4\linewidth}"
    caption = " ".join(f"{sentence.rstrip('.')}." for sentence in (table.full_title, *table.above, *table.notes))
    return "\n".join(
        [
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{_tex(caption)}}}",
            rf"  \begin{{tabular}}{{{columns}}}",
            r"    \toprule",
            _tex_row(table.header),
            r"    \midrule",
            *map(_tex_row, table.rows),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
        ]
    )


LATEX_PREAMBLE = r"% needs \usepackage{booktabs}"

# All are replaced in one pass: several passes would replace backslashes and braces of earlier replacements.
_TEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "|": r"\textbar{}",
    "--": "-{}-",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "<": r"$<$",
    ">": r"$>$",
    "−": r"$-$",
    "≥": r"$\geq$",
    "β": r"$\beta$",
    "ε": r"$\epsilon$",
    "δ": r"$\delta$",
    "²": r"$^2$",
    "µ": r"$\mu$",
    "·": r"$\cdot$",
    "Δ": r"$\Delta$",
}


MINUS = re.compile(r"^-(?=\d)")
"""A cell's sign, which would be a hyphen in print."""


def _tex(text: str) -> str:
    return re.sub("|".join(map(re.escape, _TEX)), lambda match: _TEX[match[0]], text)


def _tex_row(cells: Iterable[str]) -> str:
    line = " & ".join(MINUS.sub("$-$", _tex(cell)) for cell in cells)
    apart = "{}" if line.startswith(("[", "*")) else ""  # an argument of the line break before it otherwise
    return f"    {apart}{line} \\\\"


def html(table: Table) -> str:
    """A section with a heading, the table and the notes."""
    head = "".join(
        f'<th scope="col"{" class=label" if number < table.labels else ""}>{escape(cell)}</th>'
        for number, cell in enumerate(table.header)
    )
    rows = "".join(
        "<tr>"
        + "".join(
            f'<th scope="row">{escape(cell)}</th>' if number < table.labels else f"<td>{escape(cell)}</td>"
            for number, cell in enumerate(row)
        )
        + "</tr>\n"
        for row in table.rows
    )
    above, notes = (
        "".join(f'<p class="note">{escape(note)}</p>\n' for note in texts) for texts in (table.above, table.notes)
    )
    return (
        f'<section>\n<h2>{escape(table.full_title)}</h2>\n{above}<div class="wide"><table>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n{notes}</section>"
    )


def render(tables: Sequence[Table], format: str) -> str:
    """Several tables as one text.

    Args:
        tables: the tables to write.
        format: ``markdown`` or ``latex``.
    """
    if format == "latex":
        return "\n\n".join([LATEX_PREAMBLE, *map(latex, tables)])
    sections = groupby(tables, key=lambda table: table.title)
    return "\n\n".join("\n\n".join([f"## {title}", *map(markdown, parts)]) for title, parts in sections)
