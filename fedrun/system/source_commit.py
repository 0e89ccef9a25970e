"""Which commit of fedrun's own source computed a result."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


@cache
def loaded_commit() -> str | None:
    """The commit of the code that this process runs: the one that was checked out when it, or the process that it was
    forked from, first asked, which is before its first run. Whatever is checked out later is not what computes.
    """
    return commit()


def commit(checkout: Path = CHECKOUT) -> str | None:
    """The commit that is checked out, with ``+changes`` where ``fedrun/`` or ``conf/`` differ from it.

    None where fedrun was installed from elsewhere than a git checkout, or there is no git.
    """
    if not (checkout / ".git").exists():  # an installed package may lie in somebody else's repository
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
