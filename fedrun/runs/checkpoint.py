"""``checkpoint.pt``: the newest complete state of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fedrun.execution.vector_store import VectorStore
from fedrun.experiment.aggregation.in_training import InTraining, Start
from fedrun.experiment.state import State, Totals
from fedrun.runs.folder import CLIENT_STATES
from fedrun.runs.metrics_file import Written
from fedrun.runs.saved_states import packed, unpacked
from fedrun.strategies.contract import kind
from fedrun.strategies.server import ServerState
from fedrun.strategies.vectors import Vectors, on_device
from fedrun.system.checksums import DamagedFileError, require_seal, write_sealed
from fedrun.system.errors import InputError

FORMAT = 8
"""Changes when checkpoints of an older format can no longer be read."""


@dataclass(frozen=True)
class Identity:
    """The run that a checkpoint belongs to.

    Attributes:
        config: the configuration's hash.
        seed: the run's seed.
        data: the dataset's fingerprint.
        appeal: the fingerprint of the thresholds, if they are read from a file.
        frozen: the fingerprint of the network's frozen parameters, which the checkpoint does not contain.
        initial: the fingerprint of the initial weights, if they are read from a file.
    """

    config: str
    seed: int
    data: str
    appeal: str = ""
    frozen: str = ""
    initial: str = ""


@dataclass(frozen=True)
class Checkpoint:
    """A state, and the content of the run's other files when it was reached.

    Attributes:
        state: the simulation's state.
        metrics: content of ``metrics.jsonl``.
        tracking_id: identifier of the run's curve at a tracking service.
        seconds: time of the rounds and tests so far, over all the run's sessions.
        processes: number of processes that computed the newest round.
    """

    state: State
    metrics: Written
    tracking_id: str
    seconds: float
    processes: int


def save(path: Path, checkpoint: Checkpoint, identity: Identity, store: VectorStore) -> None:
    """Replace the checkpoint atomically: at any moment the file is the complete old one or the complete new one.

    Client state in the store's file is named by its slot. The caller must reference ``checkpoint`` until there is a
    newer one; otherwise the store reuses the slots.

    Raises:
        OSError: the disk is full or read-only; the old checkpoint is untouched.
    """
    state = checkpoint.state
    content = {
        "format": FORMAT,
        "identity": asdict(identity),
        "round": state.round,
        "models": [
            {"model": server.model.cpu(), "slots": on_device(_tensors(server), "cpu")} for server in state.models
        ],
        "last_mean": None if state.last_mean is None else state.last_mean.cpu(),
        "membership": state.membership,
        "training": {
            "starts": [astuple(start) for start in state.training.starts],
            "drawn": state.training.drawn,
            "received": {version: on_device(vectors, "cpu") for version, vectors in state.training.received.items()},
        },
        "history": dict(state.history),
        "finished": [[model.cpu() for model in models] for models in state.finished],
        "memory": packed(state.client_states.held, store),
        "totals": asdict(state.totals),
        "metrics": asdict(checkpoint.metrics),
        "tracking_id": checkpoint.tracking_id,
        "seconds": checkpoint.seconds,
        "processes": checkpoint.processes,
    }
    try:
        store.flush()
        with write_sealed(path) as file:
            torch.save(content, file)
    except RuntimeError as error:  # torch.save raises its own error when a write fails, or a signal interrupts it
        if (cause := error.__context__) is None or not isinstance(cause, OSError | KeyboardInterrupt):
            cause = OSError(str(error))
        raise cause from error


def processes_of(path: Path) -> int | None:
    """The number of processes that wrote a checkpoint; None: there is no undamaged checkpoint.

    The vectors in it are not loaded.
    """
    try:
        with path.open("rb") as file:
            require_seal(file)  # a damaged number could start many processes before the damage is reported
        content = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
        return int(content["processes"])
    except Exception:  # :func:`load` reports the error
        return None


NOT_USED = "it was left in place and not used; delete it, or start over with overwrite=true"
"""What an interrupted run can do about a checkpoint that it cannot continue."""


def load(path: Path, identity: Identity, initial: State, store: VectorStore, advice: str = NOT_USED) -> Checkpoint:
    """Read a checkpoint.

    Args:
        path: the checkpoint file.
        identity: the identity of the run that resumes from it.
        initial: the run's initial state, whose shapes and device the checkpoint's must match.
        store: the store of the client states.
        advice: ends the message about a file that cannot be used.

    Raises:
        InputError: the file is damaged or belongs to another run. It is left in place.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}); {advice}") from None
    try:
        with file:
            require_seal(file)
            content = torch.load(file, map_location="cpu", weights_only=True)
        if problem := _mismatch(content, identity):
            raise InputError(f"{path}: {problem}; {advice}")
        state = _state(content, initial)
        first = state.finished[0] if state.finished else [server.model for server in state.models]
        names = _tensors(initial.server).keys()
        if any(model.shape != initial.server.model.shape for model in first) or (
            not state.finished and any(_tensors(server).keys() != names for server in state.models)
        ):
            raise InputError(f"{path}: holds another model; {advice}")
        if _kinds(state.history) != _kinds(initial.history):  # the code of a user's rule has changed
            raise InputError(f"{path}: holds other tensors than the rule of participation keeps; {advice}")
        try:
            held = unpacked(content["memory"], store)
        except (DamagedFileError, OSError) as error:
            problem = "is damaged" if isinstance(error, DamagedFileError) else "cannot be read"
            raise InputError(f"{path.with_name(CLIENT_STATES)}: {problem} ({error}); {advice}") from None
        return Checkpoint(
            replace(state, client_states=replace(initial.client_states, held=held)),
            Written(**content["metrics"]),
            content["tracking_id"],
            content["seconds"],
            int(content["processes"]),
        )
    except InputError:
        raise
    except DamagedFileError as error:
        raise InputError(f"{path}: is damaged ({error}); {advice}") from None
    except Exception as error:  # unpickling garbage can raise anything
        raise InputError(f"{path}: is damaged ({type(error).__name__}); {advice}") from None


def _mismatch(content: Mapping[str, Any], identity: Identity) -> str | None:
    """Why a run with this identity cannot continue from a checkpoint with this content; None if it can."""
    if content["format"] != FORMAT:
        return "written by another version of fedrun"
    written_for = Identity(**content["identity"])
    if (written_for.config, written_for.seed) != (identity.config, identity.seed):
        return (
            f"belongs to config {written_for.config}, seed {written_for.seed}, not to this run (config "
            f"{identity.config}, seed {identity.seed})"
        )
    for what, recorded, fingerprint in (
        ("data (the dataset's content has", written_for.data, identity.data),
        ("thresholds (appeal.path has", written_for.appeal, identity.appeal),
        ("initial weights (initial.path has", written_for.initial, identity.initial),
        ("frozen parameters (the pretrained weights have", written_for.frozen, identity.frozen),
    ):
        if recorded != fingerprint:
            return f"was made with other {what} changed since)"
    return None


def _state(content: Mapping[str, Any], initial: State) -> State:
    """The state in a checkpoint with this content, on the device of the initial state, and with its client states."""
    clients = content.get("training", {"starts": [], "drawn": 0, "received": {}})  # earlier versions had none
    starts = tuple(Start(*start) for start in clients["starts"])
    # earlier versions kept it with the other tensors
    last_mean = content["models"][0]["slots"].pop("mean of the last models", content.get("last_mean"))
    return State(
        round=int(content["round"]),
        models=tuple(_server(saved["model"], saved["slots"], initial.server) for saved in content["models"]),
        client_states=initial.client_states,
        totals=Totals(**content["totals"]),
        membership=content["membership"],
        finished=tuple(tuple(models) for models in content["finished"]),
        training=InTraining(starts, clients["drawn"], clients["received"]),
        last_mean=last_mean,
        history=content.get("history", {}),  # earlier versions had none
    ).to(initial.server.model.device)


def _tensors(server: ServerState) -> Vectors:
    """The tensors of a model besides its vector, by name."""
    return {**server.slots, **server.transforms}


def _kinds(tensors: Vectors) -> dict[str, str]:
    """The type and shape of each tensor."""
    return {name: kind(tensor) for name, tensor in tensors.items()}


def _server(model: torch.Tensor, tensors: Vectors, initial: ServerState) -> ServerState:
    """A model with these tensors; those of transforms are named as in the initial state."""
    transforms = {name: tensors[name] for name in tensors if name in initial.transforms}
    return ServerState(model, {name: tensors[name] for name in tensors if name not in transforms}, transforms)
