"""Checks that the rule of aggregation is compatible with the other parts of an experiment."""

from __future__ import annotations

from fedrun.config.option_name import chosen
from fedrun.experiment.aggregation.asynchronous import Asynchronous
from fedrun.experiment.clock.base import Clock
from fedrun.experiment.settings import Settings
from fedrun.experiment.strategy import Strategy
from fedrun.strategies.client import overrides
from fedrun.strategies.head_refinement import aggregating
from fedrun.strategies.server import ServerStrategy
from fedrun.strategies.vectors import MODEL
from fedrun.system.errors import InputError
from fedrun.uploads.attacks.colluding import Colluding


def check_aggregation(settings: Settings) -> None:
    """Reject parts of an experiment that its rule of aggregation does not support. The synchronous rule supports all.

    Raises:
        InputError: naming both options and what is allowed.
    """
    aggregation, strategy = settings.aggregation, settings.strategy
    if not aggregation.needs_devices:
        return
    key = settings.chosen("aggregation")
    if type(settings.clock) is Clock:
        raise InputError(f"{key} needs the clients' devices; choose clock=lognormal or clock=tiers")
    if settings.population.pooled:
        raise InputError(f"{key} with population.pooled=true: no client sends anything; choose aggregation=synchronous")
    if settings.privacy.protects:
        raise InputError(
            f"{key} with {settings.chosen('privacy')}: which uploads arrive depends on the clients' devices and "
            "samples, which ε does not cover; choose privacy=none"
        )
    if settings.compression.changes_means:
        raise InputError(
            f"{key} with {settings.chosen('compression')}, whose server takes a vote of one round's clients; "
            "choose another compressor, or aggregation=synchronous"
        )
    reason = _without_times(strategy)
    if isinstance(aggregation, Asynchronous):
        reason = reason or _needs_rounds(strategy)
    if reason := reason or _of_unknown_size(strategy):
        raise InputError(f"{key} with {reason}; choose another strategy, or aggregation=synchronous")
    if isinstance(aggregation, Asynchronous):
        _check_asynchronous(settings)


def _check_asynchronous(settings: Settings) -> None:
    """Reject parts that need the clients of a round together, which asynchronous aggregation does not have."""
    key = settings.chosen("aggregation")
    if not settings.participation.is_uniform:
        raise InputError(
            f"{key} with {settings.chosen('participation')}: clients are drawn when others finish, not by "
            "rounds; choose participation=everyone"
        )
    if settings.secure_sum.changes_uploads:
        raise InputError(
            f"{key} with {settings.chosen('secure_sum')}: the server scales single uploads by their staleness; "
            "choose secure_sum=none"
        )
    if isinstance(settings.attack, Colluding):
        raise InputError(
            f"{key} with {settings.chosen('attack')}, which forges uploads by those of the same round; choose another "
            "attack"
        )
    if settings.evaluation.client_means:
        raise InputError(
            f"{key} with evaluation.client_means=true, which tests means of a round's models; allowed: false"
        )


def _without_times(strategy: Strategy) -> str | None:
    """A part of the strategy for which a client's time is not known before it trains, and why; None: there is none."""
    client, server = strategy.client, strategy.server
    if strategy.clusters().several:
        return f"{strategy.named_clustering}, which has several models"
    if strategy.has_second_phase:
        return f"{chosen('strategy/post_training', strategy.afterwards())}, which has a second phase"
    if not client.sends:
        return f"{strategy.named_client}, which sends nothing"
    if overrides(client, "absent"):
        return f"{strategy.named_client}, whose clients have different parts of the model"
    if "batch_gradient" in client.wants:
        return f"{strategy.named_client}, whose clients compute further gradients, of a number that is not known before"
    base = type(aggregating(server))
    if server.idle_training is not None:
        return f"{strategy.named_server}, in which idle clients train"
    if base.steps is not ServerStrategy.steps:
        return f"{strategy.named_server}, which changes the numbers of local steps"
    if base.unsent is not ServerStrategy.unsent:
        return f"{strategy.named_server}, whose broadcast has another size for each client"
    return None


def _of_unknown_size(strategy: Strategy) -> str | None:
    """A client whose upload's bytes, and so its time, are not known before it trains, and why; None: they are known."""
    others = sorted(strategy.client.sends - strategy.server.sends)
    if not others:
        return None
    return (
        f"{strategy.named_client}, which sends {others[0]!r}, whose size is not known before it trains, because the "
        "server broadcasts no vector of this name"
    )


def _needs_rounds(strategy: Strategy) -> str | None:
    """A part of the strategy that needs all uploads of a round to start from one model; None: there is none."""
    client, server = strategy.client, strategy.server
    if client.sends != {MODEL} or server.sends != {MODEL} or server.maintains:
        part = strategy.named_client if client.sends != {MODEL} else strategy.named_server
        return f"{part}, which exchanges more than the model"
    if server.sends_own_models:
        return f"{strategy.named_server}, which sends each client a model of its own"
    if server.rows != "none" or "squared_norms" in server.wants:
        return f"{strategy.named_server}, which compares the models of one round"
    return None
