"""Compressors: worked numbers, unbiasedness, contraction, bytes."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedrun.system.errors import InputError
from fedrun.uploads.compression.quantize import Quantize, scaled_levels, uniform_levels
from fedrun.uploads.compression.randk import RandK
from fedrun.uploads.compression.sign import Sign
from fedrun.uploads.compression.topk import TopK
from fedrun.uploads.transform import Sender, Shape

V = torch.tensor([4.0, -3.0, 2.0, -1.0, 0.5])
U = torch.tensor([0.1, 0.9, 0.5, 0.2, 0.99])
BASE = {"memory": "none", "memory_decay": 1.0, "skip": "none", "down": "none"}
MILLION = 1_000_000


def topk(fraction, indices="auto"):
    return TopK(**BASE, fraction=fraction, indices=indices)


def randk(fraction, scaled=True):
    return RandK(**BASE, fraction=fraction, scaled=scaled, shared_positions=False)


def quantize(rule, bits, bucket=None, rounding="stochastic", scope="vector"):
    return Quantize(**BASE, rule=rule, bits=bits, bucket=bucket, rounding=rounding, scope=scope)


def sign(rule="scaled", scope="vector"):
    return Sign(**BASE, rule=rule, vote_step=0.001, scope=scope)


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("case", ["normal", "ties", "misleading sample", "zeros"])
def test_topk_of_many_entries_equals_a_stable_sort(case):
    entries = 2**18
    vector = torch.randn(entries, generator=torch.Generator().manual_seed(1))
    if case == "ties":
        vector = vector.round()
    elif case == "misleading sample":  # every fourth entry is larger than all others
        vector[::4] += 10.0
    elif case == "zeros":
        vector.zero_()
    for k in (1, 700, entries // 3, entries - 1):
        kept = np.argsort(-vector.abs().numpy(), kind="stable")[:k].copy()
        expected = torch.zeros(entries)
        expected[kept] = vector[kept]
        assert torch.equal(topk(k / entries).compress(vector, draw()), expected), k


def test_topk_by_hand():
    assert topk(0.4).compress(V, draw()).tolist() == [4, -3, 0, 0, 0]
    ties = torch.tensor([1.0, -2.0, 2.0, 2.0, -2.0])
    assert topk(0.4).compress(ties, draw()).tolist() == [0, -2, 2, 0, 0]
    assert topk(0.8).compress(ties, draw()).tolist() == [0, -2, 2, 2, -2]
    assert topk(1e-9).compress(V, draw()).tolist() == [4, 0, 0, 0, 0]
    assert topk(1.0).compress(V, draw()).tolist() == V.tolist()
    assert topk(0.4).compress(torch.zeros(5), draw()).tolist() == [0] * 5


def test_randk_over_many_draws():
    """Every pair of positions comes; the mean over the ten pairs is v, the mean squared error (d/k − 1) ‖v‖²."""
    sent = {tuple(randk(0.4).compress(V, draw(seed)).tolist()) for seed in range(200)}
    pairs = {
        tuple(2.5 * V[i].item() if i in pair else 0.0 for i in range(5)) for pair in itertools.combinations(range(5), 2)
    }
    assert sent == pairs
    every = torch.tensor(sorted(sent))
    assert every.mean(0).tolist() == pytest.approx(V.tolist())
    assert (every - V).square().sum(1).mean().item() == pytest.approx(45.375)
    assert randk(0.4, scaled=False).compress(V, draw()).abs().sum() < V.abs().sum()


def test_quantisers_by_hand():
    norm = torch.linalg.vector_norm(V).view(1, 1)
    assert scaled_levels(V[None], U[None], norm, 4).flatten().tolist() == pytest.approx(
        [4.125, -2.75, 1.375, -1.375, 0]
    )
    uniform = uniform_levels(V[None], U[None], 2).flatten().tolist()
    assert uniform == pytest.approx([4, -3, 1.6666667, -0.6666667, -0.6666667], rel=1e-6)
    small = uniform_levels(1e-3 * V[None], U[None], 2).flatten().tolist()
    assert small == pytest.approx([1e-3 * entry for entry in uniform], rel=1e-5)
    level = torch.full((1, 3), 0.25)
    assert uniform_levels(level, torch.zeros(1, 3), 4).tolist() == level.tolist()
    assert scaled_levels(torch.zeros(1, 3), torch.zeros(1, 3), torch.zeros(1, 1), 4).tolist() == [[0, 0, 0]]


def test_no_level_is_above_the_last():
    """16 bits: the largest entry has level 65 535, also where (max − min) / step is rounded to more than that."""
    vectors = torch.randn(10_000, 2, generator=draw())
    least, most = vectors.double().amin(1, keepdim=True), vectors.double().amax(1, keepdim=True)
    levels = (uniform_levels(vectors, torch.zeros_like(vectors), 16).double() - least) / (most - least) * 65_535
    assert levels.round().amax(1).unique().tolist() == [65_535]


def test_a_bucket_of_denormal_numbers_stays_finite():
    tiny = torch.full((1, 5), 1e-42)
    levels = scaled_levels(tiny, torch.full((1, 5), 0.5), torch.linalg.vector_norm(tiny, dim=-1, keepdim=True), 7)
    assert levels.isfinite().all()


@pytest.mark.parametrize(
    ("compressor", "variance"),
    [
        (quantize("uniform", 2), 2.6944444),
        (quantize("ternary", 1), 11.75),
        (quantize("qsgd", 4), None),
        (quantize("qsgd", 3, bucket=2), None),
        (randk(0.4), 45.375),
    ],
)
def test_unbiased_compressors(compressor, variance):
    """Mean and variance over 4 000 draws, within 5 standard errors; the variance within 10 %."""
    assert compressor.is_unbiased
    sent = torch.stack([compressor.compress(V, draw(seed)) for seed in range(4000)]).double()
    errors = sent.std(0) / 4000**0.5
    assert bool(((sent.mean(0) - V.double()).abs() <= 5 * errors + 1e-6).all())
    if variance is not None:
        assert (sent - V).square().sum(1).mean().item() == pytest.approx(variance, rel=0.1)


def test_rounding_to_the_nearest_draws_nothing():
    nearest = quantize("uniform", 2, rounding="nearest")
    assert not nearest.is_unbiased
    assert torch.equal(nearest.compress(V, draw(0)), nearest.compress(V, draw(1)))
    # step 7/3: levels (3, 0, 2.14, 0.857, 1.5) to (3, 0, 2, 1, 1)
    assert nearest.compress(V, draw()).tolist() == pytest.approx([4, -3, 1.6666667, -0.6666667, -0.6666667])


def test_signs_by_hand():
    assert sign().compress(V, draw()).tolist() == pytest.approx([2.1, -2.1, 2.1, -2.1, 2.1])
    assert sign("vote").compress(torch.tensor([0.0, -2.0]), draw()).tolist() == [1, -1]


@pytest.mark.parametrize(
    ("compressor", "contraction"), [(topk(0.4), 0.4), (sign(), 0.7289256), (randk(0.4, False), 0.0)]
)
def test_contraction(compressor, contraction):
    assert not compressor.is_unbiased
    error = (compressor.compress(V, draw()) - V).square().sum().item()
    assert error <= (1 - contraction) * 30.25 + 1e-5


def feedback(compressor, displacements):
    memory, sent = torch.zeros(len(displacements[0])), []
    for displacement in displacements:
        v = torch.tensor(displacement) + memory
        sent.append(compressor.compress(v, draw()))
        memory = v - sent[-1]
    return [m.tolist() for m in sent], memory.tolist()


def test_error_feedback_by_hand():
    first, second, third = [4.0, -3, 2, -1, 0.5], [0.0, -1, 2, -1, 0.5], [1.0, 0, 0, -1, 0.5]
    sent, memory = feedback(topk(0.4), [first, second, third])
    assert sent == [[4, -3, 0, 0, 0], [0, 0, 4, -2, 0], [1, 0, 0, 0, 1.5]]
    assert memory == [0, -1, 0, -1, 0]
    sent, memory = feedback(sign(), [[1.0, -2, 0.5]] * 2)
    assert sent[1] == pytest.approx([1.2777778, -1.2777778, -1.2777778])
    assert memory == pytest.approx([-0.4444444, -1.5555556, 1.1111111])


@pytest.mark.parametrize(
    ("compressor", "size"),
    [
        (topk(0.1), 525_000),
        (topk(0.1, "int32"), 800_000),
        (topk(0.05), 325_000),
        (topk(0.01), 80_000),
        (topk(0.01, "bitmask"), 165_000),
        (topk(0.001), 8_000),
        (randk(0.01), 40_008),
        (quantize("qsgd", 2), 250_004),
        (quantize("qsgd", 4), 500_004),
        (quantize("qsgd", 8), 1_000_004),
        (quantize("qsgd", 2, bucket=512), 257_816),
        (quantize("qsgd", 4, bucket=512), 507_816),
        (quantize("qsgd", 8, bucket=512), 1_007_816),
        (quantize("uniform", 4), 500_008),
        (quantize("ternary", 1), 250_004),
        (sign("vote"), 125_000),
        (sign(), 125_004),
    ],
)
def test_bytes_of_a_million_entries(compressor, size):
    assert compressor.size(MILLION) == size


def test_the_ratio_of_bytes():
    """5 float32 in 2 values and a mask of one byte; with a head of 2 entries in full, 1 value, a mask and 2 float32."""
    for skip, ratio in (("none", 20 / 9), ("head", 20 / 13)):
        sender = Sender(0, 0, 0, {}, {}, {"model": Shape((5,), 2)})
        sent = replace(topk(0.4), skip=skip).send({"model": V.clone()}, sender)
        assert sent.measures["compress/ratio"] == pytest.approx(ratio)


@pytest.mark.parametrize("compressor", [topk(0.4), randk(0.4), quantize("qsgd", 4), quantize("uniform", 4, 2), sign()])
def test_a_model_that_is_its_head_travels_in_full(compressor):
    whole = replace(compressor, skip="head")
    sent = whole.send({"model": V.clone()}, Sender(0, 0, 0, {}, {}, {"model": Shape((5,), 5)}))
    assert sent.vectors["model"].tolist() == V.tolist()
    assert sent.measures == {"compress/error": 0.0, "compress/ratio": 1.0}
    assert whole.upload_bytes(Shape((5,), 5)) == 4 * 5


@pytest.mark.parametrize(
    ("compressor", "scope", "skip", "expected", "size"),
    [
        # magnitudes 10.5/5, or 9/3 and 1.5/2; 1 byte of signs and 4 of a magnitude
        (sign(), "vector", "none", [2.1, -2.1, 2.1, -2.1, 2.1], 1 + 4),
        (sign(), "tensor", "none", [3, -3, 3, -0.75, 0.75], (1 + 4) + (1 + 4)),
        (sign(), "tensor", "head", [3, -3, 3, -1, 0.5], (1 + 4) + 2 * 4),
        (sign("vote"), "tensor", "none", [1, -1, 1, -1, 1], 1),  # no scale, so no parts
        # the nearest of -1, 0, 1 times 4, or times 4 and 1, where a half is rounded down; 2 bits per entry
        (quantize("ternary", 1, rounding="nearest"), "vector", "none", [4, -4, 0, 0, 0], 2 + 4),
        (quantize("ternary", 1, rounding="nearest"), "tensor", "none", [4, -4, 0, -1, 0], (1 + 4) + (1 + 4)),
        # buckets (4, -3), (2, -1), (0.5,) with a scale each; 2 bits per entry, whatever `bits` is
        (quantize("ternary", 4, 2, "nearest"), "vector", "none", [4, -4, 2, 0, 0.5], 2 + 3 * 4),
        # the norm 5.5 has 7 levels: 4, -3, 2, -1, 0.5 are 5.09, -3.82, 2.55, -1.27, 0.64 of them; 4 bits per entry
        (quantize("qsgd", 4, rounding="nearest"), "vector", "none", [5.5 / 7 * n for n in (5, -4, 3, -1, 1)], 3 + 4),
        # one level of the norms 5, √5 and 0.5 of buckets; 2 bits per entry
        (quantize("qsgd", 2, 2, "nearest"), "vector", "none", [5, -5, 5**0.5, 0, 0.5], 2 + 3 * 4),
        # the nearest of 4 and -3, or of 4 and -3 and of 0.5 and -1; 1 bit per entry, 2 extremes
        (quantize("uniform", 1, rounding="nearest"), "vector", "none", [4, -3, 4, -3, -3], 1 + 8),
        (quantize("uniform", 1, rounding="nearest"), "tensor", "none", [4, -3, 4, -1, 0.5], (1 + 8) + (1 + 8)),
        # buckets of 2 begin anew in every tensor: (4, -3), (2,), (-1, 0.5) instead of (4, -3), (2, -1), (0.5,)
        (quantize("uniform", 1, 2, "nearest"), "vector", "none", [4, -3, 2, -1, 0.5], 1 + 3 * 8),
        (quantize("uniform", 1, 2, "nearest"), "tensor", "none", [4, -3, 2, -1, 0.5], (1 + 2 * 8) + (1 + 8)),
    ],
)
def test_tensors_of_3_and_2_entries(compressor, scope, skip, expected, size):
    """V = (4, -3, 2), (-1, 0.5); the second tensor is the head."""
    scoped, shape = replace(compressor, scope=scope, skip=skip), Shape((3, 2), 2)
    sent = scoped.send({"model": V.clone()}, Sender(0, 0, 0, {}, {}, {"model": shape}))
    assert sent.vectors["model"].tolist() == pytest.approx(expected)
    assert scoped.upload_bytes(shape) == size
    assert sent.measures["compress/ratio"] == pytest.approx(20 / size)


def test_stochastic_levels_are_those_of_each_tensor():
    """QSGD with one level, whose values are 0 or the norm: 5 of (3, 4), 0.2 of (0, 0, 0.2)."""
    scoped, shape = quantize("qsgd", 1, scope="tensor"), Shape((2, 3), 0)
    vector, seen = torch.tensor([3.0, 4.0, 0.0, 0.0, 0.2]), torch.zeros(5)
    for round in range(2000):
        sent = scoped.send({"model": vector.clone()}, Sender(0, round, 0, {}, {}, {"model": shape})).vectors["model"]
        assert set(sent[:2].tolist()) <= {0.0, 5.0}
        assert sent[2:].tolist() == pytest.approx([0, 0, 0.2])
        seen += sent
    assert (seen[:2] / 2000).tolist() == pytest.approx([3, 4], abs=4 * 2.5 / 2000**0.5)


@pytest.mark.parametrize("memory", ["none", "client"])
def test_a_rule_that_returns_its_argument(memory):
    class Identity(TopK):
        def compress(self, vector, draw):
            return vector

    whole = Identity(fraction=1.0, indices="auto", memory=memory, memory_decay=1.0, skip="none", down="none")
    state = {"compression error of model": torch.zeros(5)}
    sent = whole.send({"model": V.clone()}, Sender(0, 0, 0, {}, state, {"model": Shape((5,), 0)}))
    assert sent.vectors["model"].tolist() == V.tolist()


@pytest.mark.parametrize(
    ("rule", "mistake"),
    [
        (lambda vector: vector.mul_(0.5), "has changed its argument in place"),  # error feedback would see no error
        (lambda vector: vector[1:], "returned float32 [4]"),
        (lambda vector: vector[None], "returned float32 [1, 5]"),
        (lambda vector: vector.half(), "returned float16 [5]"),
        (lambda vector: (vector, 3), "returned tuple"),
        (lambda vector: None, "returned NoneType"),
    ],
)
def test_a_rule_that_returns_no_compressed_vector(rule, mistake):
    class Own(TopK):
        def compress(self, vector, draw):
            return rule(vector)

    own = Own(fraction=1.0, indices="auto", memory="client", memory_decay=1.0, skip="none", down="none")
    sender = Sender(0, 0, 0, {}, {"compression error of model": torch.zeros(5)}, {"model": Shape((5,), 0)})
    with pytest.raises(InputError) as refusal:
        own.send({"model": V.clone()}, sender)
    assert str(refusal.value).endswith(f".Own.compress: {mistake}; allowed: a new tensor, float32 [5]")


@pytest.mark.parametrize(("size", "returned"), [(-1, "-1"), (2.5, "2.5"), ("4 kB", "'4 kB'"), (None, "None")])
def test_a_size_that_is_no_number_of_bytes(size, returned):
    class Own(TopK):
        def size(self, entries):
            return size

    own = Own(fraction=1.0, indices="auto", memory="client", memory_decay=1.0, skip="none", down="none")
    with pytest.raises(InputError) as refusal:
        own.upload_bytes(Shape((5,), 0))
    assert str(refusal.value).endswith(
        f".Own.size: returned {returned}; allowed: a number of bytes, an integer, at least 0"
    )


@pytest.mark.parametrize("shared", [True, False])
def test_clients_of_a_round_send_the_same_positions_on_request(shared):
    how = replace(randk(0.1), shared_positions=shared)

    def positions(client, round):
        sender = Sender(client, round, 0, {}, {}, {"model": Shape((100,), 0)})
        return how.send({"model": torch.ones(100)}, sender).vectors["model"].nonzero().flatten().tolist()

    assert (positions(0, 3) == positions(1, 3)) is shared
    assert positions(0, 3) != positions(0, 4)
