import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedrun.data.partitions.index_groups import even_sizes, ranges, sort_by_class, split_groups


@given(total=st.integers(0, 50), parts=st.integers(1, 20))
def test_even_sizes_are_those_of_array_split(total, parts):
    assert even_sizes(total, parts).tolist() == [len(part) for part in np.array_split(np.arange(total), parts)]


def test_positions_of_ranges():
    assert ranges(np.array([5, 0, 9]), np.array([2, 3, 0])).tolist() == [5, 6, 0, 1, 2]


def test_samples_by_class_with_an_empty_class():
    samples, sizes = sort_by_class(np.array([2, 0, 2, 3, 0]), 4)
    assert samples.tolist() == [1, 4, 0, 2, 3]
    assert sizes.tolist() == [2, 0, 2, 1]


def test_two_groups_are_split_over_three_clients():
    # pile 0 is [7 8 9], of which the clients get 1, 0, 2; pile 1 is [4 5], of which they get 0, 1, 1
    clients = split_groups(np.array([7, 8, 9, 4, 5]), np.array([[1, 0, 2], [0, 1, 1]]))
    assert [clients[client].tolist() for client in range(3)] == [[7], [4], [8, 9, 5]]
