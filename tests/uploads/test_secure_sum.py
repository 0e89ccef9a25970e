"""Fixed-point sums by hand."""

from __future__ import annotations

import pytest
import torch

from fedrun.config.build import option
from fedrun.system.errors import InputError
from fedrun.uploads.secure_sum import FixedPoint
from fedrun.uploads.transform import Sender, Shape

from ..helpers.small_networks import mlp
from ..helpers.upload_rounds import displacements, rounds

V = torch.tensor([[0.3, -1.25], [2.0, 0.5], [-0.7001, 7.9999]], dtype=torch.float64)


def test_by_hand():
    fixed = FixedPoint(bits=32, levels=2**22, clip=8.0, overhead_bytes=0)
    assert fixed.step == 3.814697265625e-6
    levels = fixed.encode(V)
    assert levels.tolist() == [[2175795, 1769472], [2621440, 2228224], [1913625, 4194278]]
    masks = torch.tensor([[5, 2**31], [2**32 - 9, 7], [4, 2**31 - 7]])  # they sum to 0 modulo 2^32
    for sent in (levels, (levels + masks) % 2**32):
        total = sent.sum(0) % 2**32
        assert total.tolist() == [6710860, 8191974]
        assert fixed.decode(total, 3).tolist() == pytest.approx([1.59989929, 7.24990082], rel=1e-8)
    each = torch.stack([fixed.rounded(vector) for vector in V])
    assert each.sum(0).tolist() == pytest.approx([1.59989929, 7.24990082], rel=1e-8)
    assert (each - V).abs().max() <= fixed.step / 2


def test_the_range_is_cut():
    fixed = FixedPoint(bits=16, levels=100, clip=1.0, overhead_bytes=0)
    assert fixed.rounded(torch.tensor([3.0, -3.0, 0.011])).tolist() == pytest.approx([1.0, -1.0, 0.02])


def test_weights_beyond_the_modulus():
    """No number of levels would fit: 300 > 2^8."""
    with pytest.raises(InputError, match=r"^secure_sum.bits=8 .*2\^8; allowed: more bits, "):
        FixedPoint(bits=8, levels=1, clip=1.0, overhead_bytes=0).check_headroom(300)


def test_bytes():
    """Two vectors of 29 bits an entry, and beside them the weight and the protocol's overhead."""
    fixed = FixedPoint(bits=29, levels=2**22, clip=8.0, overhead_bytes=100)
    assert fixed.upload_bytes(Shape((1001,), 0)) == 3629  # ⌈29 029 / 8⌉
    assert fixed.extra_bytes() == 104


def test_a_modulus_that_a_round_exceeds():
    fixed = FixedPoint(bits=16, levels=2**14, clip=1.0, overhead_bytes=0)
    fixed.check_headroom(3)
    FixedPoint(bits=32, levels=2**22, clip=8.0, overhead_bytes=0).check_headroom(1023)
    with pytest.raises(InputError, match=r"^secure_sum\.bits=16 with .*, up to 4, .*allowed: at most 16383 levels$"):
        fixed.check_headroom(4)


def test_the_share_of_entries_that_are_cut():
    """Of 4 + 2 entries -3 and 1.5 lie outside [-1, 1]; 1 itself does not."""
    fixed = FixedPoint(bits=32, levels=100, clip=1.0, overhead_bytes=0)
    uploads = {"model": torch.tensor([1.0, -3.0, 0.5, 0.0]), "control": torch.tensor([1.5, -1.0])}
    sent = fixed.send(uploads, Sender(0, 0, 0, {}, {}, {}))
    assert sent.measures == {"secure_sum/clipped_share": 2 / 6}
    assert sent.vectors["model"].tolist() == pytest.approx([1.0, -1.0, 0.5, 0.0])


def test_the_share_is_a_mean_over_clients(make_experiment):
    moved, _ = displacements(make_experiment)
    bound = float(moved.abs().median())
    fixed = option("secure_sum", "fixed_point", clip=bound)
    _, _, metrics = rounds(make_experiment(network=mlp, clients_per_round=6, secure_sum=fixed))
    assert metrics["secure_sum/clipped_share"] == pytest.approx(float((moved.abs() > bound).float().mean()))
