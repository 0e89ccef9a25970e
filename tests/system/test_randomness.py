import hashlib
import itertools

import pytest
import torch

from fedrun.system.randomness import address, chosen_seed, generator, numpy_generator


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ((0, "batches"), b"0,batches"),
        ((0, "batches", 3, 17), b"0,batches,3,17"),
        ((-1, "partition"), b"-1,partition"),
        ((2**70, "selection", 0), b"1180591620717411303424,selection,0"),
    ],
)
def test_an_address_is_the_upper_63_bits_of_blake2b(where, text):
    digest = hashlib.blake2b(text, digest_size=8).hexdigest()
    assert address(*where) == int(digest, 16) // 2
    assert 0 <= address(*where) < 2**63


def test_a_seed_of_their_own_may_be_zero() -> None:
    assert (chosen_seed(None, 7), chosen_seed(0, 7), chosen_seed(3, 7)) == (7, 0, 3)


def test_addresses_never_change():
    # Every published result depends on these: computed with coreutils' `printf 0,partition | b2sum -l 64`, halved.
    assert address(0, "partition") == 742316861426006873
    assert address(0, "batches", 3, 17) == 5389178518158685714


def test_different_places_have_different_streams():
    places = [*itertools.product((0, 1), ("selection", "batches"), (0, 1), (0, 1))]
    assert len({address(*place) for place in places}) == len(places)
    assert len({address(0, "batches"), address(0, "batches", 0), address(0, "batches", 0, 0)}) == 3
    assert address(1, "batches", 11) != address(1, "batches", 1, 1) != address(11, "batches", 1)


@pytest.mark.parametrize("draw", [
    lambda *where: torch.randperm(50, generator=generator(*where)).tolist(),
    lambda *where: numpy_generator(*where).permutation(50).tolist(),
])  # fmt: skip
def test_generators_repeat_at_an_address_and_differ_between_addresses(draw):
    assert draw(0, "batches", 1, 2) == draw(0, "batches", 1, 2)
    assert sorted(draw(0, "batches", 1, 2)) == list(range(50))
    others = [draw(1, "batches", 1, 2), draw(0, "selection", 1, 2), draw(0, "batches", 2, 1), draw(0, "batches", 1)]
    assert draw(0, "batches", 1, 2) not in others


def test_torchs_global_generator_is_left_alone():
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    torch.rand(9, generator=generator(0, "batches"))
    assert torch.equal(torch.rand(4), expected)
