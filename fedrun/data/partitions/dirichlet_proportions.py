"""What partitions in Dirichlet proportions share: draws that are repeated until every client has enough samples."""

from __future__ import annotations

from typing import Annotated, ClassVar

from annotated_types import Ge, Gt

from fedrun.config.config_class import config_class
from fedrun.data.partitions.train_split import TrainSplitPartition
from fedrun.system.errors import InputError


@config_class
class DirichletProportions(TrainSplitPartition):
    """NIID-Bench's two partitions with p ~ Dir(β 1_N) (Li, Diao, Chen, He, ICDE 2022).

    Attributes:
        clients: see :class:`TrainSplitPartition`.
        seed: see :class:`TrainSplitPartition`; taken modulo 2³².
        beta: β > 0, the concentration; 0.5 is NIID-Bench's usual one.
        min_samples: smallest number of training samples that a client may have; 10 in NIID-Bench.
    """

    beta: Annotated[float, Gt(0)]
    min_samples: Annotated[int, Ge(1)]

    attempts: ClassVar[int] = 10_000
    """Draws made before a setting is given up as draws_exhausted."""

    def draws_exhausted(self) -> InputError:
        """The refusal after so many draws that left some client with too few samples."""
        return InputError(
            f"partition={self.name}: in {self.attempts} draws some client always had fewer than "
            f"min_samples={self.min_samples} samples; use a larger beta than {self.beta:g}, fewer clients than "
            f"{self.clients} or a smaller min_samples"
        )
