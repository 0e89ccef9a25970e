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
        ("strategy=turbosvm", "strategy.server=TurboSVM"),
        ("strategy=feddisco", "strategy.server=FedDisco"),
        ("strategy=fedaws", "strategy.server=FedAwS"),
        ("strategy=fedrs", "strategy.client=FedRS"),
        ("strategy=fedlc", "strategy.client=FedLC"),
        ("strategy=fedntd", "strategy.client=FedNTD"),
        ("strategy=fedproto", "strategy.client=FedProtoClient"),
        ("strategy=pfedfda", "strategy.client=PFedFDA"),
        ("strategy=fedconcat", "strategy.clustering=LabelDistributions"),
        ("partition=dirichlet", "partition=Dirichlet"),
        ("partition=shards", "partition=Shards"),
        ("attack=label_flip", "attack=LabelFlip"),
        ("appeal=warmup", "appeal=WarmUp"),
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
