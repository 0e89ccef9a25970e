"""The settings of an experiment: the keys of the configuration."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from fedrun.config.config_class import config_class
from fedrun.config.grids import Scale
from fedrun.config.identity import Neutral
from fedrun.config.option_name import chosen
from fedrun.data.datasets.base import DatasetConfig
from fedrun.data.partitions.base import Partition
from fedrun.data.population import Population
from fedrun.data.validation import Validation
from fedrun.execution.hardware import Hardware
from fedrun.experiment.aggregation.base import Aggregation
from fedrun.experiment.appeal.base import Appeal
from fedrun.experiment.clock.base import Clock
from fedrun.experiment.evaluation import Evaluation
from fedrun.experiment.participation.base import Participation
from fedrun.experiment.participation.poisson import Poisson
from fedrun.experiment.strategy import Strategy
from fedrun.experiment.tracking import Tracking
from fedrun.models.base import ModelConfig
from fedrun.models.initial_weights import InitialWeights
from fedrun.strategies.local_training import LocalTraining
from fedrun.uploads.attacks.base import Attack
from fedrun.uploads.compression.base import Compression
from fedrun.uploads.privacy.base import Privacy
from fedrun.uploads.secure_sum import SecureSum


@config_class
class Settings:
    """The settings of a run. Constructor arguments are the keys of the composed configuration.

    Attributes:
        dataset: the samples.
        partition: how its samples are distributed over clients.
        model: the network.
        initial: the weights with which its training begins.
        strategy: the client strategy and the server strategy.
        local: the settings of local training.
        population: which clients are unseen, test on their own samples, or have flipped labels.
        validation: the training data held out to choose settings; they replace all test data.
        attack: how some of the clients manipulate the training.
        privacy: the differential privacy of the clients.
        compression: how uploads are compressed.
        secure_sum: whether the server learns the sum of the uploads only.
        appeal: every client's threshold for the loss of the global model.
        participation: which clients take part in a round.
        clock: the clients' devices, by which virtual time is measured.
        aggregation: which uploads the server waits for.
        evaluation: when and how the global model is tested.
        hardware: the device and the executor.
        tracking: the service that records a copy of the metrics.
        seed: seed of every random choice; 0 is a seed.
        rounds: T, the number of server updates.
        clients_per_round: an int is the number M of clients per round, a float up to 1.0 their share of all clients.
        targets: test accuracies whose first round is reported, and values of other metrics, such as
            ``test/perplexity:40``.
        stop_at_targets: end the run as soon as every target has been reached.
        scale: the scale of an experiment's sweep.
        name: first part of the run's folder; experiments set it to their own name.
        data_dir: folder in which datasets lie.
        cache_dir: folder for the converted datasets; None: next to the source files.
        output_dir: folder of all runs.
        overwrite: run again even if the run is finished.
        checkpoint_seconds: least time between two checkpoints; 0: after every round.
        display: how progress is shown: ``auto`` (live in a terminal, otherwise plain lines), ``live``, ``plain``,
            ``none``.
    """

    dataset: DatasetConfig
    partition: Partition
    model: ModelConfig
    initial: Annotated[InitialWeights, Neutral(InitialWeights)]
    strategy: Strategy
    local: LocalTraining
    population: Population
    validation: Validation
    attack: Annotated[Attack, Neutral(Attack)]
    privacy: Annotated[Privacy, Neutral(Privacy)]
    compression: Annotated[Compression, Neutral(Compression)]
    secure_sum: Annotated[SecureSum, Neutral(SecureSum)]
    appeal: Annotated[Appeal, Neutral(Appeal)]
    participation: Annotated[Participation, Neutral(Participation)]
    clock: Annotated[Clock, Neutral(Clock)]
    aggregation: Annotated[Aggregation, Neutral(Aggregation)]
    evaluation: Evaluation
    hardware: Hardware
    tracking: Tracking
    seed: Annotated[int, Ge(0)]
    rounds: Annotated[int, Ge(1)]
    clients_per_round: Annotated[int, Ge(1)] | Annotated[float, Gt(0), Le(1)]
    targets: tuple[Annotated[float, Gt(0), Le(1)] | str, ...]
    stop_at_targets: bool
    scale: Scale
    name: str
    data_dir: str
    cache_dir: str | None
    output_dir: str
    overwrite: bool
    checkpoint_seconds: Annotated[float, Ge(0)]
    display: Literal["auto", "live", "plain", "none"]

    def chosen(self, group: str) -> str:
        """A part as the command line chooses it, such as ``privacy=local``, given its key."""
        return chosen(group, getattr(self, group))

    @property
    def participation_rule(self) -> Participation:
        """The rule of participation, which privacy may replace."""
        return Poisson() if self.privacy.cohort_sampling == "poisson" else self.participation

    @property
    def first_rounds(self) -> int:
        """The rounds of the first phase."""
        return self.rounds - self.strategy.afterwards().last_rounds(self.rounds)
