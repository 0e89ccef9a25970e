from __future__ import annotations

import numpy as np
import torch

from fedrun.system.fingerprint import fingerprint


def test_equal_content_has_an_equal_fingerprint_and_other_content_another() -> None:
    array = np.arange(6, dtype=np.uint8).reshape(2, 3)
    same = fingerprint(["a", 1, array])
    assert fingerprint(["a", 1, array.T.copy().T]) == same  # another layout in memory
    others = [
        fingerprint(["a", 2, array]),
        fingerprint(["a", 1, array.reshape(3, 2)]),
        fingerprint(["a", 1, array.astype(np.int8)]),
        fingerprint(["a", 1, array + 1]),
        fingerprint(["a1", array]),
        fingerprint(["", "a", 1, array]),
    ]
    assert len({same, *others}) == 7


def test_tensors() -> None:
    tensor = torch.arange(6).reshape(2, 3)
    same = fingerprint([tensor])
    assert fingerprint([tensor.T.clone().T]) == same  # another layout in memory
    others = [tensor + 1, tensor.reshape(3, 2), tensor.to(torch.int32), tensor.to(torch.bfloat16)]
    assert len({same, *(fingerprint([other]) for other in others)}) == 5
