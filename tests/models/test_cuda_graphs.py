"""Recorded functions, recorded on the CPU."""

from __future__ import annotations

import random
from functools import partial

import numpy as np
import pytest
import torch

from fedrun.models import cuda_graphs
from fedrun.models.cuda_graphs import SHAPES, RecordedFunction

from ..helpers.graphs_on_cpu import GraphsOnCpu


@pytest.fixture
def graphs():
    return GraphsOnCpu()


def test_the_third_call_is_recorded_and_later_ones_use_its_memory(graphs):
    total = torch.zeros(3)
    function = RecordedFunction(graphs, lambda x: [total.add_(x)], "a sum")
    results = [function(torch.full((3,), float(k)))[0] for k in range(1, 6)]
    assert results[2] is results[3] is results[4]
    assert total[0] == results[4][0] == 15
    assert graphs.captures == 1


def test_each_shape_and_type_of_arguments_has_its_own_recording(graphs):
    function = RecordedFunction(graphs, lambda x: [x.sum()], "a sum")
    for size, dtype in ((2, torch.float32), (4, torch.float32), (2, torch.int64)):
        for k in range(4):
            assert function(torch.full((size,), k, dtype=dtype))[0] == size * k
    assert graphs.captures == 3


def test_more_shapes_than_are_kept_are_not_recorded(graphs):
    function = RecordedFunction(graphs, lambda x: [x.sum()], "a sum")
    for _ in range(4):
        for size in range(1, SHAPES + 2):
            assert function(torch.ones(size))[0] == size
    assert graphs.captures == 0


def test_a_function_that_cannot_be_recorded_runs_as_it_is(caplog):
    graphs = GraphsOnCpu("it waits for the GPU (model.py:7)")
    function = RecordedFunction(graphs, lambda x: [2 * x], "a step")
    with caplog.at_level("INFO"):
        assert [function(torch.tensor(float(k)))[0].item() for k in range(5)] == [0, 2, 4, 6, 8]
    assert graphs.captures == 0
    assert caplog.messages == ["a step is not recorded as a CUDA graph: it waits for the GPU (model.py:7)"]


def test_the_most_recently_used_objects_are_kept(graphs, monkeypatch):
    monkeypatch.setattr(cuda_graphs, "CACHED", 2)
    built = [graphs.cached(key, object) for key in "abab"]
    assert built[0] is built[2]
    assert built[1] is built[3]
    graphs.cached("c", object)  # instead of a, the one not used for the longest time
    assert graphs.cached("b", object) is built[1]
    assert graphs.cached("a", object) is not built[0]


def test_another_version_replaces_an_object(graphs):
    first = graphs.cached("steps", object, version=0.1)
    assert graphs.cached("steps", object, version=0.1) is first
    assert graphs.cached("steps", object, version=0.05) is not first
    assert list(graphs._cached) == ["steps"]


@pytest.mark.parametrize("draw", [partial(torch.rand, 1), random.random, np.random.rand])
def test_random_numbers_of_the_cpu_are_noticed(draw):
    """A recording would repeat the decision that the number led to."""
    before = cuda_graphs._drawn_on_cpu()
    assert cuda_graphs._drawn_on_cpu() == before
    draw()
    assert cuda_graphs._drawn_on_cpu() != before
