"""Uploads and models that are not finite."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from fedrun.simulation.round_runner import RoundResult
from fedrun.strategies.server import ServerState
from fedrun.system.errors import RunError
from fedrun.uploads.privacy.base import Privacy

log = logging.getLogger(__name__)


def check_uploads(round: int, cohort: torch.Tensor, result: RoundResult, privacy: Privacy) -> None:
    """Warn of uploads that are not finite.

    With user-level privacy they count as the zero vector, and a round without others is one of noise alone.

    Raises:
        RunError: no client's upload was finite; with user-level privacy: because the global model had overflowed.
    """
    as_zero = privacy.sees_sums_only
    remedy = "a smaller local.lr or less noise" if privacy.protects else "a smaller local.lr"
    if result.excluded:
        log.warning(
            "round %d: uploads of clients %s are not finite and %s; %s usually helps",
            round + 1,
            result.excluded,
            "count as the zero vector" if as_zero else "are left out",
            remedy,
        )
    if result.accepted:
        return
    if _has_overflowed(result.models, as_zero):
        reason = f"the global model had overflowed before, by {_cause(privacy)}"
    elif as_zero:
        return
    else:
        reason = f"local training diverged; {remedy} usually helps"
    raise RunError(f"round {round + 1}: no client's upload was finite (clients {cohort.tolist()}): {reason}")


def check_models(round: int, models: Sequence[ServerState], privacy: Privacy) -> None:
    """Check that the server's step 0, 1, .. has left the models finite that it has made.

    Raises:
        RunError: one is not.
    """
    if _has_overflowed(models):
        raise RunError(f"round {round + 1}: the global model is not finite any more, by {_cause(privacy)}")


def _cause(privacy: Privacy) -> str:
    """What makes a model of finite uploads infinite."""
    noise = "the noise (privacy) or " if privacy.protects else ""
    return f"{noise}the server's step (strategy.server); a smaller strategy.server.lr may help if there is one"


def _has_overflowed(models: Sequence[ServerState], clipped: bool = False) -> bool:
    """Whether a model is not finite or, where uploads are clipped, its norm; then no client's upload can be finite."""
    measure = torch.linalg.vector_norm if clipped else torch.sum
    return not all(measure(server.model).isfinite() for server in models)
