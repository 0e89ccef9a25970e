"""The tensors in a run's ``model.safetensors``, by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fedrun.system.errors import InputError

if TYPE_CHECKING:
    import torch

MODEL_FILE = "model.safetensors"

SEVERAL = re.compile(r"models\.(\d+)\.(.+)")
"""The name of a tensor in a file with several models: the model's number and the tensor's own name."""


PARALLEL = re.compile(r"encoder\.encoders\.(\d+)\.")
"""The prefix of the names of concatenated encoders' tensors."""


def saved_tensors(path: Path) -> dict[str, torch.Tensor]:
    """All tensors in a file.

    Raises:
        InputError: the file cannot be read.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: cannot be read ({error}); expected the model of a finished run") from None


def models_in(tensors: Iterable[str]) -> int:
    """The number of models (clusters) whose tensors have these names."""
    matches = [SEVERAL.fullmatch(name) for name in tensors]
    return 1 + max((int(match[1]) for match in matches if match), default=0)


def tensors_of(tensors: Mapping[str, torch.Tensor], number: int) -> dict[str, torch.Tensor]:
    """The tensors of one of several models, under their names in the network; frozen ones are shared by all."""
    matches = {name: SEVERAL.fullmatch(name) for name in tensors}
    shared = {name: tensors[name] for name, match in matches.items() if match is None}
    return shared | {match[2]: tensors[name] for name, match in matches.items() if match and int(match[1]) == number}
