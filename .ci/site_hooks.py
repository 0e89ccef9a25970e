"""Hooks of mkdocs for the site of docs/."""

from __future__ import annotations

import re

ROLE = re.compile(r":(?:class|meth|func|data|mod|attr|exc):(?=<code>)")
"""The name of a reference in a docstring, which Markdown would show before the reference itself."""


def on_page_content(html: str, **_: object) -> str:
    """A page without the names of references."""
    return ROLE.sub("", html)
