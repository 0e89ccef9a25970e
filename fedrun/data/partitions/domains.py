"""Feature skew: every client has samples of one domain."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset
from fedrun.data.federation import ClientIndices, Federation
from fedrun.data.partitions.base import Partition
from fedrun.data.partitions.natural import indices_of_users
from fedrun.system.errors import InputError
from fedrun.system.randomness import chosen_seed, numpy_generator


@config_class
class Domains(Partition):
    """Each domain's training samples are divided at random among its clients (FedBN: Li et al., ICLR 2021).

    The domains are the dataset's training users. With one client per domain, the client has the domain's name; with
    several, ``<domain>/0`` and so on, and parts that are equal within one sample. The test samples of each domain are
    pooled.

    Attributes:
        clients_per_domain: number of clients of each domain; 1 in FedBN.
        seed: seed of all draws; None for the run's seed.
    """

    clients_per_domain: Annotated[int, Ge(1)]
    seed: Annotated[int, Ge(0)] | None

    def split(self, dataset: Dataset, seed: int) -> Federation:
        users = dataset.users
        if users is None or users.training == len(users.names):
            raise InputError(
                f"{self.choice} needs a dataset whose training and test samples have domains; "
                "allowed here: any other partition"
            )
        training = np.arange(len(users.names)) < users.training
        domains, test = indices_of_users(users, training), indices_of_users(users, ~training)
        if self.clients_per_domain == 1:
            return Federation(dataset, domains, test)
        if (smallest := int(domains.sizes.min())) < self.clients_per_domain:
            raise InputError(
                f"{self.choice}: clients_per_domain={self.clients_per_domain} needs as many samples in every "
                f"domain, and domain {domains.name(int(domains.sizes.argmin()))!r} has {smallest}"
            )
        rng = numpy_generator(chosen_seed(self.seed, seed), "partition")
        parts, names = [], []
        for domain in range(len(domains)):
            samples = rng.permutation(domains[domain].numpy())
            for number, part in enumerate(np.array_split(samples, self.clients_per_domain)):
                parts.append(part)
                names.append(f"{domains.name(domain)}/{number}")
        return Federation(dataset, ClientIndices.of(parts, tuple(names)), test)
