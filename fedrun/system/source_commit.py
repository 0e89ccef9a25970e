"""The commit of fedrun's source code that computed a result."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


@cache
def loaded_commit() -> str | None:
    """The commit of the code that this process runs: the one checked out at the first call (before the first run) in
    this process or in the one it was forked from. Later checkouts do not change the running code.
    """
    return commit()


def commit(checkout: Path = CHECKOUT) -> str | None:
    """The checked-out commit, with ``+changes`` if ``fedrun/`` or ``conf/`` differ from it.

    None if fedrun was not installed from a git checkout, or git is missing.
    """
    if not (checkout / ".git").exists():  # an installed package may be inside another repository
        return None

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=checkout, capture_output=True, text=True, check=True, timeout=10)
        return done.stdout.strip()

    try:
        head = git("rev-parse", "--short=12", "HEAD")
        changed = git("status", "--porcelain", "--", "fedrun", "conf")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{head}+changes" if changed else head
