import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedrun.data.partitions.dealing import deal, even_sizes, piles_of_classes, positions_in


@given(total=st.integers(0, 50), parts=st.integers(1, 20))
def test_even_sizes_are_those_of_array_split(total, parts):
    assert even_sizes(total, parts).tolist() == [len(part) for part in np.array_split(np.arange(total), parts)]


def test_positions_of_ranges():
    assert positions_in(np.array([5, 0, 9]), np.array([2, 3, 0])).tolist() == [5, 6, 0, 1, 2]


def test_samples_by_class_with_an_empty_class():
    samples, sizes = piles_of_classes(np.array([2, 0, 2, 3, 0]), 4)
    assert samples.tolist() == [1, 4, 0, 2, 3]
    assert sizes.tolist() == [2, 0, 2, 1]


def test_dealing_two_piles_to_three_clients():
    # pile 0 is [7 8 9], of which the clients get 1, 0, 2; pile 1 is [4 5], of which they get 0, 1, 1
    shares = deal(np.array([7, 8, 9, 4, 5]), np.array([[1, 0, 2], [0, 1, 1]]))
    assert [shares[client].tolist() for client in range(3)] == [[7], [4], [8, 9, 5]]
