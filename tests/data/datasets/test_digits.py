from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits

from fedrun.data.datasets.digits import Digits, every_fifth_of_each_class


def test_every_fifth_sample_of_a_class_is_a_test_sample() -> None:
    labels = np.array([7, 7, 3, 7, 7, 3, 7, 7, 3, 3, 3, 3])  # the fifth 7 is at 6, the fifth 3 at 10
    assert np.flatnonzero(every_fifth_of_each_class(labels)).tolist() == [6, 10]


def test_the_digits_are_those_of_the_library() -> None:
    dataset = Digits().load()
    images, labels = load_digits(return_X_y=True)
    assert dataset.inputs.shape == (1797, 1, 8, 8)
    assert dataset.inputs.dtype == torch.uint8
    assert dataset.train_size == 1442  # 1797 less a fifth, rounded down, of 178 182 177 183 181 182 181 179 174 180
    assert torch.bincount(dataset.targets[1442:]).tolist() == [35, 36, 35, 36, 36, 36, 36, 35, 34, 36]
    ours = {
        (*image.flatten().tolist(), int(label)) for image, label in zip(dataset.inputs, dataset.targets, strict=True)
    }
    theirs = {(*map(int, image), int(label)) for image, label in zip(images, labels, strict=True)}
    assert ours == theirs
    assert dataset.encoding(dataset.inputs).max() == 1.0
    assert dataset.fingerprint == Digits().load().fingerprint
