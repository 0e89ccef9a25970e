"""Uploads that are not finite."""

from __future__ import annotations

import logging

import torch

from fedrun.experiment.state import State
from fedrun.simulation.round_runner import RoundResult
from fedrun.system.errors import RunError
from fedrun.uploads.privacy.base import Privacy

log = logging.getLogger(__name__)


def require_finite(state: State, cohort: torch.Tensor, result: RoundResult, privacy: Privacy) -> None:
    """Warn of uploads that are not finite.

    With user-level privacy they count as the zero vector, and a round without others is one of noise alone.

    Raises:
        RunError: no client's upload was finite; with user-level privacy: because the global model had overflowed.
    """
    as_zero, noised = privacy.sees_sums_only, privacy.protects
    cure = "a smaller local.lr or less noise" if noised else "a smaller local.lr"
    if result.excluded:
        log.warning(
            "round %d: uploads of clients %s are not finite and %s; %s usually helps",
            state.round + 1,
            result.excluded,
            "count as the zero vector" if as_zero else "are left out",
            cure,
        )
    if result.accepted:
        return
    if _has_overflowed(result, as_zero):
        reason = (
            "the global model was not finite before this round; try smaller learning rates: local.lr, and "
            "strategy.server.lr if the strategy has it"
        )
        if noised:
            reason = (
                "the global model had overflowed before, by the noise (privacy) or the server's steps (strategy.server)"
            )
    elif as_zero:
        return
    else:
        reason = f"local training diverged; {cure} usually helps"
    raise RunError(f"round {state.round + 1}: no client's upload was finite (clients {cohort.tolist()}): {reason}")


def _has_overflowed(result: RoundResult, clipped: bool) -> bool:
    """Whether a sent model was not finite or, where uploads are clipped, its norm; then no upload can be finite."""
    measure = torch.linalg.vector_norm if clipped else torch.sum
    return not all(measure(server.model).isfinite() for server in result.models)
