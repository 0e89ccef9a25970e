"""Advice for models of the Hugging Face hub that cannot be loaded."""

from __future__ import annotations

from fedrun.system.errors import one_line


def hub_advice(repository: str, error: Exception) -> str:
    """Why a repository of the hub cannot be loaded, with the command and the folder to get it, in one line."""
    from huggingface_hub.constants import HF_HUB_CACHE

    folder = f"{HF_HUB_CACHE}/models--{repository.replace('/', '--')}"
    reason = one_line(str(error).strip().partition("\n")[0], 160)
    return (
        f"{repository} cannot be loaded ({reason}); where the internet can be reached: hf download {repository} (after "
        f"hf auth login for a gated one), then copy {folder} here"
    )
