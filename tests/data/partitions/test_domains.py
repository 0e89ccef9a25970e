"""What the partition by domains rejects; with images it is tried in test_domain_folders.py."""

from __future__ import annotations

from typing import Any

import pytest

from fedrun.data.partitions.domains import Domains
from fedrun.system.errors import InputError


def test_a_dataset_without_domains_is_rejected(make_dataset: Any) -> None:
    for dataset in (make_dataset([0, 1, 0], 2), make_dataset([0, 1, 0], 3, user_sizes=[1, 2])):
        with pytest.raises(InputError, match="partition=domains needs a dataset whose training and test samples"):
            Domains(clients_per_domain=1, seed=None).split(dataset, 0)
