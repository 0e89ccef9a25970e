"""K-means over clients: worked clusters, the elbow, limited sizes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedrun.strategies.clustering.kmeans import clustered, elbow, limited
from fedrun.system.errors import InputError


def partition_of(membership: torch.Tensor) -> set[frozenset[int]]:
    """Who is together with whom, whatever the clusters' numbers."""
    return {frozenset(column.nonzero().flatten().tolist()) for column in membership.T}


def test_two_clusters_of_two():
    vectors = torch.tensor([(0.5, 0.5, 0, 0), (0.6, 0.4, 0, 0), (0, 0, 0.5, 0.5), (0, 0, 0.3, 0.7)])
    found = clustered(vectors, 2, 10, False, 0)
    assert partition_of(found) == {frozenset({0, 1}), frozenset({2, 3})}
    assert found.dtype == torch.float64
    assert found.sum(1).tolist() == [1, 1, 1, 1]


def test_the_elbow_lies_farthest_below_the_line():
    # the line: 100, 76.5, 53, 29.5, 6; below it by 0, 36.5, 43, 21.5, 0
    assert elbow([100.0, 40.0, 10.0, 8.0, 6.0]) == 3


@pytest.mark.parametrize("flat", [[0.0, 0.0, 0.0], [3.0], [3.0, 2.0, 1.0]])
def test_no_elbow(flat):
    assert elbow(flat) == 1


@pytest.mark.parametrize("groups", [2, 3, 5])
def test_the_elbow_finds_groups(groups):
    draw = torch.Generator().manual_seed(1)
    vectors = torch.eye(6)[torch.arange(30) % groups] + 0.01 * torch.rand(30, 6, generator=draw)
    for exact in (vectors, vectors.round()):  # with and without differences within groups
        found = clustered(exact, None, 10, False, 0)
        assert partition_of(found) == {frozenset(range(group, 30, groups)) for group in range(groups)}


def test_clusters_of_limited_size():
    # at most ⌊1.2 · 12 / 2⌋ = 7. From centres 4.5 and 20.5 the first cluster expels 0, 9, 1; its centre is then 5, the
    # other's 10.2; now it expels 0 alone, and its centre 4, the other's 11.6, stay
    points = np.array([[0.0], [1], [2], [3], [4], [5], [6], [7], [8], [9], [20], [21]])
    labels = limited(points, np.array([[4.5], [20.5]]), np.random.default_rng(0))
    assert labels.tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1]


def test_a_limit_leaves_room_for_all():
    # ⌊1.2 · 3 / 2⌋ = 1 would hold two of three
    labels = limited(np.array([[0.0], [1], [2]]), np.array([[0.5], [2.0]]), np.random.default_rng(0))
    assert sorted(np.bincount(labels).tolist()) == [1, 2]


def test_the_centre_of_an_empty_cluster_jumps():
    points = np.array([[0.0], [1], [10], [11], [20]])
    labels = limited(points, np.array([[0.5], [15.0], [99.0]]), np.random.default_rng(0))
    assert sorted(np.bincount(labels).tolist()) == [1, 2, 2]
    assert labels[0] == labels[1]


def test_equal_clients_are_one_cluster():
    assert clustered(torch.full((5, 2), 0.5), 3, 10, False, 0).shape == (5, 1)


def test_more_clusters_than_clients_are_refused():
    with pytest.raises(InputError, match=r"clusters=4: there are 3 clients; allowed: 1 to 3"):
        clustered(torch.rand(3, 2), 4, 10, False, 0)


def test_the_limit_is_rounded_down():
    # at most ⌊1.2 * 13 / 2⌋ = ⌊7.8⌋ = 7: of 0..7 the first cluster expels 0
    points = np.array([[0.0], [1], [2], [3], [4], [5], [6], [7], [20], [21], [22], [23], [24]])
    labels = limited(points, np.array([[3.5], [22.0]]), np.random.default_rng(0))
    assert labels.tolist() == [1] + [0] * 7 + [1] * 5


def test_expelled_clients_choose_in_their_own_order():
    # limit 2. The first cluster expels 1 and 2 (2 is the farther one); in their order 1 takes the room at 100, and 2
    # has to go to 1000
    points = np.array([[1.0], [2], [0], [0.1], [100], [1000]])
    labels = limited(points, np.array([[0.0], [100.0], [1000.0]]), np.random.default_rng(0))
    assert labels.tolist() == [1, 2, 0, 0, 1, 2]
