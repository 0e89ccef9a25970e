"""Calibrated noise multipliers in files: resumed runs and other runs of a sweep reuse them."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, replace
from pathlib import Path

from fedrun.system.atomic_file import atomic_write
from fedrun.uploads.privacy.accountant import SMALLEST, AccountantName, Release, calibrated

log = logging.getLogger(__name__)


def with_noise(
    release: Release, rounds: int, epsilon: float, delta: float, accountant: AccountantName, folder: Path | None = None
) -> Release:
    """:func:`fedrun.uploads.privacy.accountant.calibrated`; the noise is logged, and kept in the folder, if any."""
    noise_multiplier = _noise_multiplier(release, rounds, epsilon, delta, accountant, folder)
    log.info("privacy.epsilon=%g: noise multiplier %.6g", epsilon, noise_multiplier)
    if noise_multiplier == SMALLEST:
        log.warning(
            "privacy.epsilon=%g: the least noise multiplier that is searched, %g, already reaches it; "
            "privacy.noise_multiplier sets a smaller one",
            epsilon,
            SMALLEST,
        )
    return replace(release, noise_multiplier=noise_multiplier)


def _noise_multiplier(
    release: Release, rounds: int, epsilon: float, delta: float, accountant: AccountantName, folder: Path | None
) -> float:
    """The calibrated noise multiplier, from a file if there is one."""

    def calibrate() -> float:
        log.info("privacy.epsilon=%g: calibrating the noise", epsilon)  # it takes many seconds
        return calibrated(release, rounds, epsilon, delta, accountant).noise_multiplier

    if folder is None:
        return calibrate()
    of = asdict(replace(release, noise_multiplier=0.0))
    target = {**of, "rounds": rounds, "epsilon": epsilon, "delta": delta, "accountant": accountant}
    path = folder / f"{hashlib.sha256(json.dumps(target).encode()).hexdigest()[:16]}.json"
    known = _read(path, target)
    if known is not None:
        return known
    noise_multiplier = calibrate()
    content = json.dumps({**target, "noise_multiplier": noise_multiplier}, indent=1)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path, shared=True) as file:
            file.write(content.encode())
    except OSError as error:  # the run needs the number in memory only
        log.warning("%s: cannot be written (%s); the noise will be calibrated again", path, error.strerror)
    return noise_multiplier


def _read(path: Path, target: dict[str, object]) -> float | None:
    """The noise multiplier in a file for this target; None if there is no usable file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        noise_multiplier = float(content["noise_multiplier"])
        if content != {**target, "noise_multiplier": content["noise_multiplier"]} or not noise_multiplier > 0:
            raise ValueError("it has another target")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("%s: cannot be used (%s); the noise is calibrated again", path, error)
        return None
    return noise_multiplier
