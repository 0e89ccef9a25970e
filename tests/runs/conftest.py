from collections.abc import Callable
from pathlib import Path

import pytest

from fedrun.data.targets import Target
from fedrun.experiment.observer import Row, RunInfo


class Clock:
    """A clock that a test moves by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def run_info(tmp_path: Path) -> Callable[..., RunInfo]:
    def build(
        rounds: int = 100,
        targets: tuple[float, ...] = (0.5, 0.7),
        history: tuple[Row, ...] = (),
        first_rounds: int | None = None,
        resumed_after: int | None = None,
    ) -> RunInfo:
        return RunInfo(
            folder=tmp_path,
            title="turbosvm · femnist · seed 3",
            decisions={},
            group="runs/femnist/turbosvm/0f3a",
            seed=3,
            rounds=rounds,
            first_rounds=rounds if first_rounds is None else first_rounds,
            targets=tuple(map(Target.of, targets)),
            config={"rounds": rounds, "targets": [0.5, 0.7], "strategy": {"server": {"lr": 1.0}}},
            history=history,
            resumed_after=int(history[-1]["round"] or 0) if history and resumed_after is None else resumed_after,
            choices={"strategy": "turbosvm", "dataset": "femnist", "partition": "natural"},
            overrides=("strategy=turbosvm", "dataset=femnist", "local.lr=0.2", "tracking.project=x", "seed=3"),
            sweep=None,
            commit="0123abc",
            tracking_id="abc123",
        )

    return build
