"""The Hugging Face hub: its cache alone where it does not answer, and advice for what cannot be loaded from it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from fedrun.system.errors import one_line

PATIENCE = 3.0
"""Seconds within which the hub has to answer, unless ``HF_HUB_ETAG_TIMEOUT`` says otherwise."""

OFFLINE = "HF_HUB_OFFLINE"


@contextmanager
def hub_or_cache() -> Iterator[None]:
    """If the hub does not answer, its libraries only read their cache in the block.

    Otherwise they would request every file several times, for most of a minute, and print a line each time. The hub's
    address, a proxy and offline mode are the user's (``HF_ENDPOINT``, ``HTTPS_PROXY``, ``HF_HUB_OFFLINE``).

    Raises:
        ConnectionError: instead of another OSError in the block, if the hub does not answer.
    """
    from huggingface_hub import constants

    silence = None if constants.HF_HUB_OFFLINE else hub_silence()
    if silence is None:
        yield
        return
    # Each library keeps its own copy of the setting, which it has read from the environment when it was imported.
    modules = [constants, *filter(None, [sys.modules.get("datasets.config")])]
    with ExitStack() as stack:
        for module in modules:
            stack.callback(setattr, module, OFFLINE, getattr(module, OFFLINE))
            setattr(module, OFFLINE, True)
        try:
            yield
        except OSError as error:
            raise ConnectionError(silence) from error


def hub_silence() -> str | None:
    """How the hub fails to answer, in one line; None if it answers, with whatever status."""
    from huggingface_hub import constants, get_session

    patience = float(constants.HF_HUB_ETAG_TIMEOUT) if "HF_HUB_ETAG_TIMEOUT" in os.environ else PATIENCE
    ends: list[str | None] = []

    def ask() -> None:
        try:
            get_session().head(constants.ENDPOINT, timeout=patience)
            ends.append(None)
        except Exception as error:  # its own kinds in each version of the library
            ends.append(one_line(str(error) or type(error).__name__, 120))

    # In a thread, because the timeout counts for each address of the hub, and not for finding them
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(patience)
    reason = ends[0] if ends else f"not within {patience:g} s"
    return None if reason is None else f"{constants.ENDPOINT} does not answer: {reason}"


def hub_advice(repository: str, error: Exception) -> str:
    """Why a repository of the hub cannot be loaded, with the command and the folder to get it, in one line."""
    from huggingface_hub.constants import HF_HUB_CACHE

    folder = f"{HF_HUB_CACHE}/models--{repository.replace('/', '--')}"
    reason = one_line(str(error).strip().partition("\n")[0], 160)
    return (
        f"{repository} cannot be loaded ({reason}); where the internet can be reached: hf download {repository} (after "
        f"hf auth login for a gated one), then copy {folder} here"
    )


def no_folder(key: str, name: str, error: Exception) -> str:
    """Why a name that is not a folder cannot be used: it is a path, or the hub does not have it."""
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        return f"{key}={name}: no such folder"
    return f"{key}={name}: no such folder, and on the hub {hub_advice(name, error)}"
