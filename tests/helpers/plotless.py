"""Imported by the process that forks commands (tests/forked.py): their plots, most of the time, are empty."""

from __future__ import annotations

from fedrun.runs import session

session.plot_labels = lambda _, path: path.write_bytes(b"")
session.plot_curves = lambda _, path, __: path.write_bytes(b"")
