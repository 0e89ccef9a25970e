"""When the server aggregates: which uploads it has received when it makes its next step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from fedrun.config.config_class import config_class
from fedrun.experiment.aggregation.in_training import InTraining


@dataclass(frozen=True)
class NextStep:
    """What the choice of the uploads of the next step may depend on.

    Attributes:
        seed: the run's seed.
        round: t, the number of server steps made.
        time: virtual seconds since the start of the run.
        size: M, the number of clients per round, at most N.
        draw: draws the participants of the round: int64 ``[C]``, and metrics, given M or another number up to N.
        seconds: returns T_k, the time from a client's start to the arrival of its upload, float64 ``[N]``. Only for
            rules that need the clients' devices.
        training: the clients that train while the server makes its steps.
    """

    seed: int
    round: int
    time: float
    size: int
    draw: Callable[[int], tuple[torch.Tensor, dict[str, float]]]
    seconds: Callable[[], torch.Tensor]
    training: InTraining


@dataclass(frozen=True)
class Uploads:
    """The uploads that the server aggregates in its next step.

    Attributes:
        clients: the clients that send them, int64 ``[C]``.
        metrics: to record, such as ``clients/late``.
        late: clients that have received the model, but whose uploads are not used, int64 ``[L]``.
        time: virtual seconds at which the server has them; None: when the slowest of the clients has sent its own.
        training: the clients that train on.
        started: the server step from whose model each of the clients started, by client; empty: from the newest.
    """

    clients: torch.Tensor
    metrics: dict[str, float]
    late: torch.Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    time: float | None = None
    training: InTraining = field(default_factory=InTraining)
    started: Mapping[int, int] = field(default_factory=dict)


@config_class
class Aggregation:
    """The server waits for the uploads of all participants (synchronous); the base of other rules."""

    @property
    def needs_devices(self) -> bool:
        """Whether the rule depends on the clients' devices, which the group ``clock`` chooses."""
        return type(self) is not Aggregation

    def fewest(self, size: int) -> int:
        """The least number of uploads with which a step is made, given M."""
        return size

    def described(self, cohort: str) -> str:
        """Which clients train when, as a short text; ``cohort`` is the number of clients per round as text."""
        return f"{cohort} per round"

    def check_clients(self, clients: int) -> None:
        """Reject settings that need more than these N clients.

        Raises:
            InputError: naming the key and what is allowed.
        """

    def uploads(self, step: NextStep) -> Uploads:
        """The uploads of the next step, a pure function of the argument."""
        return Uploads(*step.draw(step.size))

    def arrived(
        self, upload: torch.Tensor, sent: torch.Tensor, current: torch.Tensor, staleness: int, trainable: int
    ) -> torch.Tensor:
        """The model that the server aggregates in place of the upload of a client that started from an earlier step's
        model, ``[P]``.

        Args:
            upload: y_k, the client's model.
            sent: x_{t−τ}, the model that the client received.
            current: x_t, the model that the server sends now.
            staleness: τ.
            trainable: T; the entries after it are float buffers.
        """
        return upload
