from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from fedrun.data.datasets.base import Dataset, Scaled, Spec, Users

MakeDataset = Callable[..., Dataset]


@pytest.fixture(scope="session")
def make_dataset() -> MakeDataset:
    """Datasets of one-pixel samples whose labels are given."""

    def make(
        labels: Sequence[int] | np.ndarray,
        train_size: int,
        user_sizes: Sequence[int] | None = None,
        training_users: int | None = None,
    ) -> Dataset:
        targets = torch.tensor(np.asarray(labels), dtype=torch.int64)
        classes = int(targets.max()) + 1
        users = None
        if user_sizes is not None:
            names = tuple(f"user{number}" for number in range(len(user_sizes)))
            offsets = torch.tensor([0, *np.cumsum(user_sizes)])
            users = Users(names, offsets, len(names) if training_users is None else training_users)
        return Dataset(
            spec=Spec((1,), classes),
            encoding=Scaled(255.0),
            inputs=torch.zeros(len(targets), 1, dtype=torch.uint8),
            targets=targets,
            train_size=train_size,
            users=users,
            class_names=tuple(map(str, range(classes))),
            fingerprint="test",
        )

    return make
