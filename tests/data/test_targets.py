"""Targets and their names."""

import pytest

from fedrun.data.targets import Target
from fedrun.system.errors import InputError


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        (0.7, "0.70"),
        (0.975, "0.975"),
        ("test/perplexity:40", "test/perplexity:40"),
        ("test/mae:1e-05", "test/mae:1e-05"),
        ("test/mae:1234567", "test/mae:1234567.0"),  # six digits are not enough
        ("test/loss:0.12345678", "test/loss:0.12345678"),
    ],
)
def test_a_name_says_which_target_it_is(entry, name):
    target = Target.of(entry)
    assert (target.name, Target.named(target.name)) == (name, target)


@pytest.mark.parametrize(
    "entry",
    [
        0,
        1.5,
        float("inf"),
        float("nan"),
        pytest.param(10**400, id="huge"),
        "test/accuracy:2",
        "test/loss:inf",
        "loss:1",
    ],
)
def test_a_target_is_a_possible_value(entry):
    with pytest.raises(InputError, match=r"^targets: .*; allowed: a test accuracy above 0, at most 1, or METRIC:VALUE"):
        Target.of(entry)
