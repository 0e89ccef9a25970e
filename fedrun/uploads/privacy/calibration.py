"""Calibrated noise multipliers in files: resumed runs and other runs of a sweep reuse them."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from fedrun.system.atomic_file import atomic_write
from fedrun.uploads.privacy.accountant import SMALLEST, AccountantName, Release, calibrated

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Calibration:
    """Finds noise multipliers, or reads earlier results.

    Attributes:
        folder: has a file for each multiplier; None: no files.
    """

    folder: Path | None = None

    def release(
        self, release: Release, rounds: int, epsilon: float, delta: float, accountant: AccountantName
    ) -> Release:
        """See :func:`fedrun.uploads.privacy.accountant.calibrated`. The noise is logged."""
        calibrated_release = self._found(release, rounds, epsilon, delta, accountant)
        log.info("privacy.epsilon=%g: noise multiplier %.6g", epsilon, calibrated_release.noise_multiplier)
        if calibrated_release.noise_multiplier == SMALLEST:
            log.warning(
                "privacy.epsilon=%g: the least noise multiplier that is searched, %g, already reaches it; "
                "privacy.noise_multiplier sets a smaller one",
                epsilon,
                SMALLEST,
            )
        return calibrated_release

    def _found(
        self, release: Release, rounds: int, epsilon: float, delta: float, accountant: AccountantName
    ) -> Release:
        """The calibrated release, from a file if there is one."""
        if self.folder is None:
            return calibrated(release, rounds, epsilon, delta, accountant)
        of = asdict(replace(release, noise_multiplier=0.0))
        target = {**of, "rounds": rounds, "epsilon": epsilon, "delta": delta, "accountant": accountant}
        path = self.folder / f"{hashlib.sha256(json.dumps(target).encode()).hexdigest()[:16]}.json"
        known = _read(path, target)
        if known is not None:
            return replace(release, noise_multiplier=known)
        calibrated_release = calibrated(release, rounds, epsilon, delta, accountant)
        content = json.dumps({**target, "noise_multiplier": calibrated_release.noise_multiplier}, indent=1)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path, shared=True) as file:
                file.write(content.encode())
        except OSError as error:  # the run needs the number in memory only
            log.warning("%s: cannot be written (%s); the noise will be calibrated again", path, error.strerror)
        return calibrated_release


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
