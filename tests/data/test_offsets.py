import numpy as np
import pytest

from fedrun.data.offsets import offsets_of


@pytest.mark.parametrize("sizes", [[2, 0, 3], np.array([2, 0, 3], dtype=np.int32)])
def test_groups_begin_where_the_one_before_ends(sizes):
    offsets = offsets_of(sizes)
    assert (offsets.tolist(), offsets.dtype) == ([0, 2, 2, 5], np.int64)


def test_no_group():
    offsets = offsets_of([])
    assert (offsets.tolist(), offsets.dtype) == ([0], np.int64)
