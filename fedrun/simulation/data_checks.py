"""Checks of the data and their partition, which may be a user's, and of settings that depend on the clients."""

from __future__ import annotations

import logging
from collections import Counter

import torch

from fedrun.config.allowed_values import shown
from fedrun.config.own_methods import is_fedruns
from fedrun.data.datasets.base import Dataset, Symbols, Users
from fedrun.data.datasets.in_memory import require_labels, require_symbols
from fedrun.data.federation import ClientIndices, Federation
from fedrun.data.tasks.symbols import TokenClassification
from fedrun.data.tasks.trial import check_task
from fedrun.experiment.experiment import Experiment
from fedrun.strategies.contract import kind
from fedrun.system.errors import InputError
from fedrun.uploads.attacks.colluding import Colluding

log = logging.getLogger(__name__)


def check_loaded(key: str, dataset: Dataset) -> None:
    """Reject data that contradict their specification.

    Args:
        key: the dataset's option.
        dataset: what the option, which may be a user's, has loaded.

    Raises:
        InputError: naming the dataset.
    """
    if not isinstance(dataset, Dataset):
        raise InputError(f"{key}: loads a {type(dataset).__name__}; allowed: a Dataset")
    spec, inputs, targets = dataset.spec, dataset.inputs, dataset.targets
    for name, stored in (("samples", inputs), ("targets", targets)):
        if not isinstance(stored, torch.Tensor):
            raise InputError(f"{key}: {name} are a {type(stored).__name__}; allowed: a tensor")
    if inputs.shape != (len(targets), *spec.input_shape):
        raise InputError(
            f"{key}: samples {list(inputs.shape)} with targets {list(targets.shape)}; allowed: as many, and samples "
            f"{['n', *spec.input_shape]} as specified".replace("'", "")
        )
    if inputs.is_floating_point() and inputs.numel() and not all(bound.isfinite() for bound in inputs.aminmax()):
        raise InputError(f"{key}: samples with NaN or infinity; allowed: finite numbers")
    if spec.vocabulary is not None and isinstance(dataset.encoding, Symbols):
        require_symbols(inputs.numpy(), spec.vocabulary, key)
    if spec.task.has_classes and len(targets):
        if targets.dtype != torch.int64 or targets.ndim != 1:
            raise InputError(f"{key}: targets are {kind(targets)}; allowed: int64 [n], a class for each sample")
        require_labels(targets.numpy(), range(spec.classes), key)
        names = dataset.class_names
        if len(names) != spec.classes or not all(isinstance(name, str) for name in names):
            raise InputError(f"{key}: class_names={names}; allowed: {spec.classes} strings")
    spec.task.check_targets(targets, spec.classes, key)
    # not of every task with outputs per symbol: another one's targets may have a length of their own
    if isinstance(spec.task, TokenClassification) and targets.shape != inputs.shape:
        raise InputError(
            f"{key}: samples {list(inputs.shape)} with targets {list(targets.shape)}; allowed: a class for every "
            f"symbol, {list(inputs.shape)}"
        )
    if dataset.users is not None:
        _check_users(key, dataset.users, len(targets))
    if not is_fedruns(type(spec.task)):
        check_task(spec.task, targets[:2], spec.output_shape, spec.classes)


def _check_users(key: str, users: Users, samples: int) -> None:
    """Reject users that do not have all samples, one user after the other, or whose names are not strings."""
    names, offsets = users.names, users.offsets
    right = isinstance(offsets, torch.Tensor) and offsets.dtype == torch.int64 and offsets.shape == (len(names) + 1,)
    if not right or offsets[0] != 0 or offsets[-1] != samples or bool((offsets.diff() < 0).any()):
        raise InputError(
            f"{key}: the offsets of {len(names)} users are {offsets}; allowed: a tensor, int64 [{len(names) + 1}], "
            f"ascending from 0 to {samples}"
        )
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise InputError(f"{key}: a user is named {wrong[0]!r}; allowed: strings")
    if not 0 <= users.training <= len(names):
        raise InputError(
            f"{key}: {users.training} of {len(names)} users are training users; allowed: 0 to {len(names)}"
        )


def check_partitioned(key: str, partitioned: Federation) -> None:
    """Reject clients without a training sample, samples that do not exist, training on samples of the tests, clients
    that share a sample or a name or whose tests are not theirs, and what settings of the run choose.

    Args:
        key: the partition's option.
        partitioned: what the partition, which may be a user's, has returned.

    Raises:
        InputError: naming the partition.
    """
    if not isinstance(partitioned, Federation):
        raise InputError(f"{key}: returns a {type(partitioned).__name__}; allowed: a Federation")
    chosen = {
        "population.unseen_clients": ("unseen clients", partitioned.unseen is not None),
        "population.flipped_share": ("flipped labels", partitioned.flipped is not None),
        "attack.share": ("attackers", bool(partitioned.attackers)),
    }
    for setting, (what, given) in chosen.items():
        if given:
            raise InputError(f"{key}: returns a federation with {what}; allowed: none, because {setting} chooses them")
    train = partitioned.train
    if not len(train) or not bool(train.sizes.all()):
        raise InputError(
            f"{key}: there are {len(train)} clients, {int((train.sizes == 0).sum())} of them without a training "
            "sample; allowed: at least one client, and one sample for each"
        )
    samples = len(partitioned.dataset.targets)
    tests = [part.samples for part in (partitioned.test, partitioned.client_test) if part is not None]
    for indices in (train.samples, *tests):
        if len(wrong := indices[(indices < 0) | (indices >= samples)]):
            raise InputError(f"{key}: a client or a test has sample {int(wrong[0])}; allowed: 0 to {samples - 1}")
    tested = torch.zeros(samples, dtype=torch.bool)
    tested[torch.cat(tests)] = True
    if len(leaked := train.samples[tested[train.samples]]):
        raise InputError(
            f"{key}: {len(leaked)} training samples are also test samples, such as sample {int(leaked[0])}; allowed: "
            "none"
        )
    _check_clients(key, train, partitioned.client_test)


def _check_clients(key: str, train: ClientIndices, client_test: ClientIndices | None) -> None:
    """Reject clients with a sample twice, two clients of one name, and tests that are not one for each client in order.

    Args:
        key: the partition's option.
        train: the clients' training samples.
        client_test: the clients' test samples, if they have any.
    """
    for use, clients in (("training", train), ("test", client_test)):
        if clients is None:
            continue
        if len(clients) != len(train):
            raise InputError(
                f"{key}: client_test has the samples of {len(clients)} clients, and {len(train)} clients train; "
                f"allowed: {len(train)}"
            )
        if clients.names is not None and len(clients.names) != len(clients):
            raise InputError(
                f"{key}: {len(clients.names)} names for the {use} samples of {len(clients)} clients; allowed: "
                f"{len(clients)}"
            )
        pairs = torch.stack([clients.owners, clients.samples], dim=1)
        pairs, occurrences = torch.unique(pairs, dim=0, return_counts=True)
        if len(repeated := pairs[occurrences > 1]):
            client, sample = repeated[0].tolist()
            raise InputError(
                f"{key}: client {clients.name(client)} has {use} sample {sample} more than once; allowed: once "
                "(several clients may have it)"
            )
    if client_test is not None and not len(client_test.samples):
        raise InputError(f"{key}: client_test has no sample; allowed: at least one, or client_test=None")
    names = [train.name(client) for client in range(len(train))]
    name, most = Counter(names).most_common(1)[0]
    if most > 1:
        raise InputError(f"{key}: {most} clients are named {name!r}; allowed: a different name for each client")
    for client, name in enumerate(names):
        if client_test is not None and client_test.name(client) != name:
            raise InputError(
                f"{key}: client {client} is named {name!r}, and in client_test {client_test.name(client)!r}; allowed: "
                "the same names in the same order"
            )


def check_divided(key: str, partitioned: Federation, experiment: Experiment) -> None:
    """Reject settings that the division among clients does not support. Warn of held-out samples that overlap others.

    Args:
        key: the partition's option.
        partitioned: what the partition, which may be a user's, has returned.
        experiment: experiment of the run.

    Raises:
        InputError: naming the setting and the partition.
    """
    _check_common(key, partitioned, experiment)
    population = experiment.population
    if (population.test_share or experiment.validation.share) and _divides_overlapping(partitioned):
        log.warning(
            "%s divides a text's windows among clients, and each shares input with %d windows before and after it: "
            "samples that are held out of a client overlap training samples of others; partition=natural keeps the "
            "windows of a user together",
            key,
            partitioned.dataset.overlap,
        )
    if population.test_share and partitioned.client_test is not None:
        raise InputError(
            f"population.test_share={population.test_share:g} with {key}, which gives clients test samples of their "
            "own; allowed: population.test_share=0"
        )


def _check_common(key: str, partitioned: Federation, experiment: Experiment) -> None:
    """Reject settings that hold out or change samples of single clients if several clients have the same ones."""
    population, validation, attack = experiment.population, experiment.validation, experiment.attack
    held_out, changed = "some would train on what others hold out", "a change of one client's would be all clients'"
    train = _has_common(partitioned.train)
    tests = partitioned.client_test is not None and _has_common(partitioned.client_test)
    settings = {
        f"population.test_share={population.test_share:g}": (population.test_share and train, held_out),
        f"validation.share={validation.share:g}": (validation.share and train, held_out),
        f"population.flipped_share={population.flipped_share:g}": (
            population.flipped_share and (train or tests),
            changed,
        ),
        experiment.chosen("attack"): (attack.changes_data and attack.share and train, changed),
    }
    for setting, (applies, reason) in settings.items():
        if applies:
            raise InputError(
                f"{setting} with {key}, where several clients have the same sample: {reason}; allowed: clients without "
                "common samples, or without this setting"
            )


def _has_common(clients: ClientIndices) -> bool:
    """Whether several clients have the same sample."""
    return len(torch.unique(clients.samples)) < len(clients.samples)


def _divides_overlapping(partitioned: Federation) -> bool:
    """Whether samples that may share input, those of one user, are divided among several clients."""
    dataset, train = partitioned.dataset, partitioned.train
    if not dataset.overlap:
        return False
    ends = torch.tensor([len(dataset.targets)]) if dataset.users is None else dataset.users.offsets[1:]
    users = torch.bucketize(train.samples, ends, right=True)
    return len(torch.unique(users * len(train) + train.owners)) > len(torch.unique(users))


def check_colluding(experiment: Experiment, federation: Federation, cohort: int) -> None:
    """Reject attackers that need honest uploads if no round has both kinds of clients.

    Args:
        experiment: experiment of the run.
        federation: its clients, with the attackers among them.
        cohort: M, the number of clients per round.

    Raises:
        InputError: naming the keys and what is allowed.
    """
    attack, attackers, clients = experiment.attack, len(federation.attackers), len(federation.train)
    if not (isinstance(attack, Colluding) and attackers):
        return
    forges = f"{experiment.chosen('attack')}, which computes its uploads from the honest ones of the same round"
    if attackers == clients:
        raise InputError(
            f"attack.share={attack.share:g} with {forges}: all {clients} clients would attack; allowed: at most "
            f"{(clients - 1) / clients:g}"
        )
    single = cohort == 1 or (experiment.participation.varies and cohort < clients)
    if single and not experiment.strategy.has_second_phase:
        raise InputError(
            f"clients_per_round={shown(experiment.clients_per_round)} with {forges}: a round may have one client; "
            "allowed: at least 2, with participation=everyone"
        )


def check_least_uploads(experiment: Experiment, clients: int, cohort: int) -> None:
    """Reject settings with which a round may have fewer uploads than the server strategy can aggregate.

    Args:
        experiment: experiment of the run.
        clients: N.
        cohort: M, the number of clients per round.

    Raises:
        InputError: naming the setting and what is allowed.
    """
    least, participation = experiment.strategy.server.least_uploads, experiment.participation
    participants = participation.fewest(cohort, clients, experiment.first_rounds)
    for setting, fewest, allowed in (
        (f"clients_per_round={shown(experiment.clients_per_round)}", cohort, f"{least} or more clients"),
        (experiment.chosen("participation"), participants, "participation=everyone"),
        (experiment.chosen("aggregation"), experiment.aggregation.fewest(cohort), "aggregation=synchronous"),
    ):
        if fewest < least:
            raise InputError(
                f"{setting} with {experiment.strategy.named_server}, which needs at least {least} uploads: a round may "
                f"have only {fewest}; allowed: {allowed}"
            )
