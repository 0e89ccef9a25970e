"""What holds for every partition, whatever the sizes."""

import re

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from fedrun.config.options import options
from fedrun.data.partitions.clusters import Clusters
from fedrun.data.partitions.dirichlet import Dirichlet
from fedrun.data.partitions.dirichlet_feddc import DirichletFedDC
from fedrun.data.partitions.dirichlet_hsu import DirichletHsu
from fedrun.data.partitions.domains import Domains
from fedrun.data.partitions.iid import IID
from fedrun.data.partitions.iid_class_exact import IIDClassExact
from fedrun.data.partitions.iid_niid_bench import IIDNiidBench
from fedrun.data.partitions.labels import Labels
from fedrun.data.partitions.natural import Natural
from fedrun.data.partitions.quantity_dirichlet import QuantityDirichlet
from fedrun.data.partitions.quantity_lognormal import QuantityLognormal
from fedrun.data.partitions.shards import Shards
from fedrun.data.partitions.users_or_iid import UsersOrIID
from fedrun.system.errors import InputError

small = st.integers(1, 12)
concentration = st.sampled_from([1e-6, 0.01, 0.5, 100.0])
sigma = st.sampled_from([0.0, 0.3, 2.0, 1000.0])
SCHEMES = {
    "natural": st.builds(
        Natural, sample_fraction=st.just(1.0), train_fraction=st.just(0.7), min_samples=st.just(1), seed=st.none()
    ),
    "domains": st.builds(Domains, clients_per_domain=st.integers(1, 3), seed=st.none()),
    "iid": st.builds(IID, clients=small, seed=st.none()),
    "iid_niid_bench": st.builds(IIDNiidBench, clients=small, seed=st.none()),
    "iid_class_exact": st.builds(IIDClassExact, clients=st.integers(1, 3), seed=st.none()),
    "shards": st.builds(Shards, clients=small, shards_per_client=st.integers(1, 4), seed=st.none()),
    "labels": st.builds(Labels, clients=small, labels_per_client=st.integers(1, 4), seed=st.none()),
    "dirichlet": st.builds(
        Dirichlet, clients=st.integers(1, 6), beta=st.sampled_from([1.0, 100.0]), min_samples=st.just(1), seed=st.none()
    ),
    "dirichlet_hsu": st.builds(DirichletHsu, clients=small, alpha=concentration, seed=st.none()),
    "dirichlet_feddc": st.builds(DirichletFedDC, clients=small, alpha=concentration, sigma=sigma, seed=st.none()),
    "quantity_dirichlet": st.builds(
        QuantityDirichlet,
        clients=st.integers(1, 6),
        beta=st.sampled_from([1.0, 100.0]),
        min_samples=st.just(1),
        seed=st.none(),
    ),
    "quantity_lognormal": st.builds(QuantityLognormal, clients=small, sigma=sigma, seed=st.none()),
    "clusters": st.builds(
        Clusters, clients=small, clusters=st.integers(1, 3), labels_per_cluster=st.integers(1, 2), seed=st.none()
    ),
    "users_or_iid": st.builds(
        UsersOrIID,
        sample_fraction=st.just(1.0),
        train_fraction=st.just(0.7),
        min_samples=st.just(1),
        clients=small,
        seed=st.none(),
    ),
}


def test_every_option_is_tested_here():
    assert set(SCHEMES) == set(options("partition"))


@pytest.mark.parametrize("scheme", SCHEMES)
@settings(deadline=None, max_examples=60)
@given(data=st.data(), labels=st.lists(st.integers(0, 4), min_size=20, max_size=90), seed=st.integers(0, 2**40))
def test_samples_are_used_once_and_the_seed_decides(make_dataset, scheme, data, labels, seed):
    partition = data.draw(SCHEMES[scheme])
    if scheme == "natural":
        dataset = make_dataset([*labels, 4], len(labels) + 1, user_sizes=[len(labels) - 10, 7, 1, 3])
    elif scheme == "domains":
        users = {"user_sizes": [len(labels) - 2, 2, 1], "training_users": 2}
        dataset = make_dataset([*labels, 4], len(labels), **users)
    else:
        dataset = make_dataset([*labels, 4], len(labels))
    if scheme == "iid_class_exact":
        dataset = make_dataset([*np.repeat(labels, 6), 4], 6 * len(labels))
    try:
        federation = partition.split(dataset, seed)
    except InputError as error:
        event("refused")
        refusal = str(error)
    else:
        refusal = None
    if refusal is not None:
        divided_as = "iid" if scheme == "users_or_iid" else scheme  # samples have no users
        assert re.match(rf"partition(={divided_as}: |\.)\S", refusal) and "\n" not in refusal
        return
    event("split")

    clients = federation.train
    used = clients.samples.tolist()
    assert len(used) == len(set(used))
    expected = set(range(dataset.train_size))
    if scheme == "natural":
        expected -= set(federation.test.samples.tolist())
    if scheme == "clusters":
        kept = partition.clusters * partition.labels_per_cluster
        expected = {sample for sample in expected if dataset.targets[sample] < kept}
    assert set(used) == expected

    if scheme == "domains":
        assert len(clients) == 2 * partition.clients_per_domain
    else:
        assert len(clients) == (2 if scheme == "natural" else partition.clients)
    assert clients.sizes.min() >= 1 and clients.sizes.sum() == len(used)
    assert str(clients.samples.dtype) == str(clients.offsets.dtype) == "torch.int64"

    again = partition.split(dataset, seed).train
    assert again.samples.equal(clients.samples) and again.offsets.equal(clients.offsets)


@pytest.mark.parametrize("scheme", sorted(set(SCHEMES) - {"natural", "domains"}))
def test_another_seed_is_another_partition_and_the_partitions_own_outranks_it(make_dataset, scheme):
    dataset = make_dataset([*np.arange(1200) % 6, 0], 1200)
    keys = {
        "shards": {"shards_per_client": 2},
        "labels": {"labels_per_client": 2},
        "dirichlet": {"beta": 1.0, "min_samples": 1},
        "dirichlet_hsu": {"alpha": 0.5},
        "dirichlet_feddc": {"alpha": 0.5, "sigma": 0.3},
        "quantity_dirichlet": {"beta": 1.0, "min_samples": 1},
        "quantity_lognormal": {"sigma": 0.3},
        "clusters": {"clusters": 3, "labels_per_cluster": 2},
        "users_or_iid": {"sample_fraction": 1.0, "train_fraction": 0.9, "min_samples": 1},
    }.get(scheme, {})
    config_class = {
        "iid": IID,
        "iid_niid_bench": IIDNiidBench,
        "iid_class_exact": IIDClassExact,
        "shards": Shards,
        "labels": Labels,
        "dirichlet": Dirichlet,
        "dirichlet_hsu": DirichletHsu,
        "dirichlet_feddc": DirichletFedDC,
        "quantity_dirichlet": QuantityDirichlet,
        "quantity_lognormal": QuantityLognormal,
        "clusters": Clusters,
        "users_or_iid": UsersOrIID,
    }[scheme]

    def held(own, run):
        clients = config_class(clients=10, seed=own, **keys).split(dataset, run).train
        return [clients[client].tolist() for client in range(10)]

    assert config_class(clients=10, seed=0, **keys).choice == f"partition={scheme}"
    assert held(None, 0) == held(0, 1) == held(0, 2)
    assert held(None, 0) != held(None, 1)
