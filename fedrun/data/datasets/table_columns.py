"""The roles of the columns of a user's own table: targets, inputs, clients and splits.

Keys of the configuration name columns. A role without a key is inferred from the columns' names, and one message lists
everything that could not be inferred.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedrun.system.errors import InputError

if TYPE_CHECKING:
    import pyarrow

AUTO = "auto"

TARGET_NAMES = ("label", "target", "class", "y")
CLIENT_NAMES = ("client", "client_id", "user", "user_id")
SPLIT_NAMES = ("split",)
INDEX_NAMES = ("", "Unnamed: 0", "__index_level_0__")
"""Names of a data frame's row numbers in the files that pandas writes."""


@dataclass(frozen=True)
class Columns:
    """The columns of a table.

    Attributes:
        targets: what is predicted.
        features: the inputs, in the table's order; never row numbers (:data:`INDEX_NAMES`).
        client: its values name the clients; None: rows have no clients.
        split: with ``train`` and ``test``; None: all rows are training samples.
    """

    targets: tuple[str, ...]
    features: tuple[str, ...]
    client: str | None
    split: str | None

    def __str__(self) -> str:
        shown = ", ".join(self.features[:5]) + (", ..." if len(self.features) > 5 else "")
        return (
            f"predicts {', '.join(self.targets)} from {len(self.features)} columns ({shown}); "
            f"clients: {self.client or 'none'}; split: {self.split or 'none'}"
        )


@dataclass(frozen=True)
class ColumnKeys:
    """The configuration's keys for the columns.

    Attributes:
        key: the name of the key for the targets: ``label`` or ``labels``.
        targets: the columns of the targets; empty: the one that is named like a target.
        client: the column of clients; ``auto``: the one with such a name, if there is one; None: none.
        split: the column with ``train`` and ``test``, in the same way.
        drop: columns that are not used.
        texts: whether targets may be texts.
    """

    key: str
    targets: tuple[str, ...]
    client: str | None
    split: str | None
    drop: tuple[str, ...]
    texts: bool

    def columns(self, path: Path, table: pyarrow.Table) -> Columns:
        """The columns of a table.

        Raises:
            InputError: listing everything that is missing or cannot be decided.
        """
        names, problems = table.column_names, list[str]()
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            problems.append(f"several columns are named {', '.join(repeated)}; allowed: one each")
        one_each = {
            f"dataset.{self.key}": self.targets,
            "dataset.client": () if self.client in (AUTO, None) else (self.client,),
            "dataset.split": () if self.split in (AUTO, None) else (self.split,),
            "dataset.drop": self.drop,
        }
        for key, wanted in one_each.items():
            problems += _wrong_names(key, wanted, names)
        roles = [name for wanted in one_each.values() for name in dict.fromkeys(wanted)]
        if several := sorted({name for name in roles if roles.count(name) > 1}):
            keys = [key for key, wanted in one_each.items() if several[0] in wanted]
            problems.append(f"{' and '.join(keys)} name the same column {several[0]}; allowed: different ones")
        targets, client, split = self.targets, self.client, self.split
        free = [name for name in names if name not in roles]
        if not targets:
            target = named_like(TARGET_NAMES, free)
            targets = () if target is None else (target,)
            if target is None:
                problems.append(
                    f"dataset.{self.key}: which column is predicted? No single one is named {' or '.join(TARGET_NAMES)}"
                )
        if client == AUTO:
            client = named_like(CLIENT_NAMES, free)
            if client is None and problems:
                problems.append(
                    f"dataset.client: no single column is named {' or '.join(CLIENT_NAMES)}; name one, or choose "
                    "partition=iid or partition=dirichlet"
                )
        if split == AUTO:
            split = named_like(SPLIT_NAMES, free)
        special = {*targets, client, split, *self.drop, *INDEX_NAMES}
        features = tuple(name for name in names if name not in special)
        if texts := [name for name in features if name not in repeated and not numeric(table, name)]:
            problems.append(
                f"columns without numbers among the inputs: {', '.join(texts)}; leave them out with "
                f"dataset.drop=[{','.join([*self.drop, *texts])}], or write them as numbers"
            )
        if texts := [name for name in targets if name in names and not (self.texts or numeric(table, name))]:
            problems.append(f"dataset.{self.key}: column {', '.join(texts)} has texts; it must have numbers")
        if not features:
            problems.append("no column is left as an input")
        if problems:
            raise InputError(f"{path}: {'; '.join(problems)}. Its columns: {', '.join(names)}")
        return Columns(targets, features, client, split)


def _wrong_names(key: str, wanted: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    """What is wrong with the columns that a key names."""
    if missing := [name for name in wanted if name not in names]:
        yield f"{key}: there is no column {', '.join(map(repr, missing))}"
    if twice := sorted({name for name in wanted if wanted.count(name) > 1}):
        yield f"{key}: names {', '.join(twice)} twice"


def named_like(wanted: Sequence[str], names: Sequence[str]) -> str | None:
    """The only column with one of these names, in upper or lower case; None if there is none, or several."""
    matching = [name for name in names if name.lower() in wanted]
    return matching[0] if len(matching) == 1 else None


def numeric(table: pyarrow.Table, column: str) -> bool:
    """Whether a column has integers, floating-point numbers or booleans."""
    import pyarrow

    kind, kinds = table.column(column).type, pyarrow.types
    return bool(kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind))
