"""Parts that need classes are rejected with other tasks, by a property of theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedrun.config.composed import compose
from fedrun.experiment.experiment import build_experiment
from fedrun.system.errors import InputError

TABLE = ["dataset=tabular_regression", "dataset.file=table.csv", "model=mlp"]


@pytest.fixture(autouse=True)
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("table.csv").write_text("client,a,b,y\nx,1,2,3.5\ny,2,3,4.5\n")


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("strategy=turbosvm", "strategy/server=turbosvm"),
        ("strategy=feddisco", "strategy/server=feddisco"),
        ("strategy=fedaws", "strategy/server=fedaws"),
        ("strategy=fedrs", "strategy/client=fedrs"),
        ("strategy=fedlc", "strategy/client=fedlc"),
        ("strategy=fedntd", "strategy/client=fedntd"),
        ("strategy=fedproto", "strategy/client=fedproto"),
        ("strategy=pfedfda", "strategy/client=pfedfda"),
        ("strategy=fedconcat", "strategy/clustering=label_distributions"),
        ("partition=dirichlet", "partition=dirichlet"),
        ("partition=shards", "partition=shards"),
        ("attack=label_flip", "attack=label_flip"),
        ("appeal=warmup", "appeal=warmup"),
        ("population.flipped_share=0.2", "population.flipped_share=0.2"),
        ("evaluation.adaptive=true", "evaluation.adaptive=true"),
    ],
)
def test_parts_that_need_classes(override: str, part: str) -> None:
    with pytest.raises(InputError) as error:
        build_experiment(compose([*TABLE, override]))
    assert str(error.value) == (
        f"{part} needs one class per sample, and the dataset's task is Regression; allowed: with a classification"
    )


@pytest.mark.parametrize(
    "override", ["strategy=fedprox", "strategy=scaffold", "strategy=moon", "strategy=ifca", "partition=iid"]
)
def test_parts_that_need_none(override: str) -> None:
    build_experiment(compose([*TABLE, override]))
