"""NIID-Bench's two Dirichlet partitions: draws are repeated until every client has enough samples."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Gt

from fedrun.config.config_class import config_class
from fedrun.data.partitions.train_split import TrainSplitPartition
from fedrun.system.errors import InputError


@config_class
class DirichletProportions(TrainSplitPartition):
    """Base class of NIID-Bench's two partitions with p ~ Dir(β 1_N) (Li, Diao, Chen, He, ICDE 2022).

    Attributes:
        clients: see :class:`TrainSplitPartition`.
        seed: see :class:`TrainSplitPartition`; taken modulo 2³².
        beta: β > 0, the concentration; NIID-Bench usually takes 0.5.
        min_samples: smallest number of training samples of a client; 10 in NIID-Bench.
    """

    beta: Annotated[float, Gt(0)]
    min_samples: Annotated[int, Ge(1)]

    def draws_exhausted(self, draws: int) -> InputError:
        """The error after this many draws, none of which gave every client enough samples."""
        return InputError(
            f"{self.choice}: in each of {draws} draws some client had fewer than "
            f"min_samples={self.min_samples} samples; use a larger beta than {self.beta:g}, fewer clients than "
            f"{self.clients} or a smaller min_samples"
        )
