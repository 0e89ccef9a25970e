"""Imported by a process that runs a command: the plots of runs and sweeps, most of the time, are empty."""

from __future__ import annotations

from fedrun.runs import session
from fedrun.runs.display import panels

session.plot_labels = lambda _, path: path.write_bytes(b"")
session.plot_curves = panels.plot_curves = lambda _, path, __: path.write_bytes(b"")
