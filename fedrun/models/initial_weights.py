"""The weights with which the models of a run begin."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fedrun.config.config_class import config_class
from fedrun.models.saved_tensors import MODEL_FILE, PARALLEL, models_in, saved_tensors
from fedrun.system.checksums import damaged_files
from fedrun.system.errors import InputError
from fedrun.system.user_path import user_path

if TYPE_CHECKING:
    import torch


@config_class
class InitialWeights:
    """Random weights, as the model's layers draw them; the base of the other options."""

    @property
    def is_whole(self) -> bool:
        """Whether no weight is random, so that all models of a run begin alike."""
        return False

    def fingerprint(self, seed: int) -> str:
        """A hash of the file that a run with this seed reads; empty without a file.

        Raises:
            InputError: the file cannot be read.
        """
        return ""

    def described(self, seed: int) -> str:
        """The origin of the weights in words; empty if they are random."""
        return ""

    def load(self, network: torch.nn.Module, seed: int) -> None:
        """Replace the random weights of a new network, in place.

        Args:
            network: an encoder and a head.
            seed: the run's seed.

        Raises:
            InputError: the file cannot be read, or its tensors do not fit the network.
        """


@config_class
class WeightsOfRun(InitialWeights):
    """The weights that a finished run ended with.

    Attributes:
        path: folder of the finished run, or the folder above it, which contains one run of each seed.
        part: part of the network that is taken; the rest is random. ``encoder``: all but the head.
    """

    path: str
    part: Literal["model", "encoder"]

    @property
    def is_whole(self) -> bool:
        return self.part == "model"

    def file(self, seed: int) -> Path:
        """The file with the weights: of the run in the folder, or of the one below it with this seed."""
        folder = user_path(self.path, "initial.path")
        for path in (folder / MODEL_FILE, folder / f"seed={seed}" / MODEL_FILE):
            if path.is_file():
                return path
        lacks = (
            f"has neither {MODEL_FILE} nor seed={seed}/{MODEL_FILE}" if folder.is_dir() else "there is no such folder"
        )
        raise InputError(
            f"initial.path={self.path}: {lacks}; allowed: the folder of a finished run, or the folder above it, which "
            "has one of each seed"
        )

    def fingerprint(self, seed: int) -> str:
        path = self.file(seed)
        try:
            if path in damaged_files(path.parent):
                raise InputError(
                    f"{path}: is damaged (its checksum differs); restore it, or choose another initial.path"
                )
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()[:16]
        except OSError as error:
            raise InputError(f"{error.filename or path}: cannot be read ({error.strerror or error})") from None

    def described(self, seed: int) -> str:
        return f"{'all weights' if self.is_whole else 'the encoder'} of {self.file(seed).parent}"

    def load(self, network: torch.nn.Module, seed: int) -> None:
        saved, own = saved_tensors(self.file(seed)), network.state_dict()
        if (count := models_in(saved)) > 1:
            raise InputError(f"initial.path={self.path}: has {count} models; allowed: a run with one")
        if any(PARALLEL.match(name) for name in saved.keys() - own.keys()):
            raise InputError(
                f"initial.path={self.path}: ended with concatenated encoders; allowed: a run without a second phase"
            )
        if not self.is_whole:
            saved, own = ({name: tensors[name] for name in tensors if not _in_head(name)} for tensors in (saved, own))
        # peft's layers keep the weight that they adapt under another name; the adapters themselves are new
        names = {name: name if name in saved else name.replace(".base_layer.", ".") for name in own}
        needed = {name for name, _ in network.named_parameters() if name in own and ".lora_" not in name}
        for name in sorted(needed):
            if names[name] not in saved:
                raise self._misfit(f"has no tensor {names[name]} of the model", name)
        for name in sorted(saved.keys() - names.values()):
            raise self._misfit(f"has a tensor {name}, and the model has none", name)
        values = {name: saved[source] for name, source in names.items() if source in saved}
        for name, value in values.items():
            if value.shape != own[name].shape:
                shapes = [f"[{', '.join(map(str, tensor.shape))}]" for tensor in (value, own[name])]
                raise self._misfit(f"its {names[name]} has the shape {shapes[0]}, the model's {shapes[1]}", name)
        network.load_state_dict(values, strict=False)

    def _misfit(self, reason: str, name: str) -> InputError:
        """The message that a tensor of the run does not fit the network."""
        remedy = ", or initial.part=encoder" if _in_head(name) else ""
        return InputError(f"initial.path={self.path}: {reason}; allowed: a run with the same model{remedy}")


def _in_head(name: str) -> bool:
    return name.startswith("head.")
