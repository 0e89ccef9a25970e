"""Batches of padded texts are cut to their longest text, which changes no result."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedrun.config.build import option
from fedrun.data.datasets.base import Dataset, Spec, Symbols
from fedrun.data.tasks.base import Task
from fedrun.data.tasks.classification import CLASSIFICATION
from fedrun.data.tasks.symbols import IGNORED, LanguageModelling
from fedrun.models.leaf_shakespeare_lstm import LeafShakespeareLSTM
from fedrun.simulation.simulation import Simulation

from ..conftest import SIZES, MakeExperiment, small_images

LENGTH, PADDING = 7, 5
CUT = Symbols(PADDING)


def test_a_batch_is_cut_to_its_longest_text() -> None:
    texts = torch.tensor([[1, 5, 2, 5, 5], [3, 5, 5, 5, 5]], dtype=torch.uint8)  # a 5 inside a text is a symbol
    assert CUT(texts).tolist() == [[1, 5, 2], [3, 5, 5]]
    assert CUT(texts.view(2, 1, 5)).tolist() == [[[1, 5, 2]], [[3, 5, 5]]]
    assert CUT(torch.full((2, 3), 5)).tolist() == [[5], [5]]
    assert Symbols()(texts).tolist() == texts.tolist()


def padded_texts(task: Task) -> Dataset:
    """Texts of 1 to 4 symbols, and one of 6."""
    draw, count = torch.Generator().manual_seed(3), sum(SIZES) + 30
    symbols = torch.randint(0, PADDING, (count, LENGTH + 1), generator=draw)
    lengths = torch.randint(2, 6, (count, 1), generator=draw)
    lengths[0] = 7
    symbols[torch.arange(LENGTH + 1) >= lengths] = PADDING
    following = torch.where(symbols[:, 1:] == PADDING, IGNORED, symbols[:, 1:])
    targets = following if task.per_symbol else symbols[:, 0] % 3
    spec = Spec((LENGTH,), PADDING + 1 if task.per_symbol else 3, PADDING + 1, task, PADDING)
    inputs = symbols[:, :LENGTH].to(torch.uint8)
    return replace(small_images(sum(SIZES), 30), spec=spec, encoding=Symbols(), inputs=inputs, targets=targets)


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
@pytest.mark.parametrize("task", [CLASSIFICATION, LanguageModelling()], ids=["classification", "language"])
def test_whole_texts_give_the_same_results(
    make_experiment: MakeExperiment, monkeypatch: pytest.MonkeyPatch, task: Task, executor: str
) -> None:
    model = option("model", "leaf_shakespeare_lstm", symbol_dim=3, embedding_dim=6, layers=1)
    results = []
    for cut in (True, False):
        monkeypatch.setattr(LeafShakespeareLSTM, "reads_any_length", cut)
        simulation = Simulation(
            make_experiment(dataset=padded_texts(task), model=model, hardware={"executor": executor}, targets=())
        )
        state = simulation.initial()
        assert (simulation.phase(state).samples.encoding == CUT) is cut
        for _ in range(2):
            state, metrics = simulation.advance(state)
        results.append((state.server.model, metrics["train/loss"], simulation.test(state)))
    (model_cut, loss_cut, tested_cut), (model_whole, loss_whole, tested_whole) = results
    torch.testing.assert_close(model_cut, model_whole, rtol=1e-4, atol=1e-6)
    assert loss_cut == pytest.approx(loss_whole, rel=1e-5)
    assert tested_cut == pytest.approx(tested_whole, rel=1e-5)
