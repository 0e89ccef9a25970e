"""What a kind of privacy is, and the kind that protects nobody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from fedrun.config.config_class import config_class
from fedrun.uploads.privacy.accountant import Sampling
from fedrun.uploads.privacy.calibration import Calibration
from fedrun.uploads.transform import UploadTransform


@dataclass(frozen=True)
class Cohorts:
    """Who takes part in a run.

    Attributes:
        samples: n_k of the N clients, int64 ``[N]``.
        size: M, the (expected) clients per round.
        rounds: T.
        lengthening: by how much the norm of an upload can grow after it was clipped.
        calibration: finds the noise for a target ε.
    """

    samples: torch.Tensor
    size: int
    rounds: int
    lengthening: float = 0.0
    calibration: Calibration = field(default_factory=Calibration)

    @property
    def clients(self) -> int:
        """N."""
        return len(self.samples)


class Mechanism(UploadTransform):
    """A kind of privacy with the noise that a run needs; the base protects nobody."""

    @property
    def answers_empty_cohorts(self) -> bool:
        """Whether the server makes a step also where nobody takes part, since that is private."""
        return False

    @property
    def precedes_compression(self) -> bool:
        """Whether uploads are private before they are compressed. Otherwise what is compressed is clipped, so that the
        server's noise fits the norm that arrives.
        """
        return False

    def report(self, rounds: int, participations: Callable[[], int]) -> dict[str, float]:
        """Metrics ``privacy/*`` of so many rounds.

        Args:
            rounds: made so far.
            participations: in how many of them the client took part that did so most often.
        """
        return {}


@config_class
class Privacy:
    """Uploads are averaged as they are."""

    @property
    def cohort_sampling(self) -> Sampling | None:
        """How cohorts are drawn; None: as without privacy."""
        return None

    @property
    def sees_sums_only(self) -> bool:
        """Whether the server may use nothing but the noised sum of the uploads."""
        return False

    def check(self) -> None:
        """Reject settings that contradict each other.

        Raises:
            InputError: naming the keys and what is allowed.
        """

    def mechanism(self, cohorts: Cohorts) -> Mechanism:
        """The transform of uploads, its noise calibrated to the run.

        Raises:
            InputError: no noise reaches what is wanted, or the library for it is missing.
        """
        return Mechanism()
