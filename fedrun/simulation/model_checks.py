"""Checks that the model is compatible with the other parts of an experiment."""

from __future__ import annotations

import torch

from fedrun.config.option_name import chosen_where
from fedrun.experiment.settings import Settings
from fedrun.models.flat_network import Layout
from fedrun.models.lora_layout import adapters_of
from fedrun.strategies.client import EMBEDDINGS, ClientStrategy, overrides
from fedrun.strategies.client_contract import checked_frozen
from fedrun.strategies.head_refinement import aggregating
from fedrun.strategies.lora import ResidualServer
from fedrun.strategies.vectors import MODEL
from fedrun.system.errors import InputError


def check_model(settings: Settings, layout: Layout) -> None:
    """Reject settings that cannot work with a model of this layout.

    Raises:
        InputError: naming the setting and what is allowed.
    """
    mask = settings.strategy.client.private(layout)
    private = torch.zeros(layout.size, dtype=torch.bool) if mask is None else mask
    _check_server(settings, layout, private)
    if not layout.head_size:
        _check_head(settings, private_head=mask is not None and not mask.any())
    _check_client(settings, layout, private)
    if private[: layout.trainable].all():
        _check_unsent(settings)


def _check_server(settings: Settings, layout: Layout, private: torch.Tensor) -> None:
    """Reject a server strategy that needs the heads or the adapters that clients keep, or that changes the weights
    below them.
    """
    strategy = settings.strategy
    if "head" in strategy.server.wants and private[layout.head].any():
        raise InputError(
            f"{strategy.named_client} keeps the head on the clients, and {strategy.named_server} changes the "
            "global one, which no client would use; choose another server strategy, such as fedavg"
        )
    if not isinstance(aggregating(strategy.server), ResidualServer):
        return
    matrices = [matrix for adapter in adapters_of(layout) for matrix in (adapter.a, adapter.b)]
    if any(private[matrix.start : matrix.stop].any() for matrix in matrices):
        raise InputError(
            f"{strategy.named_client} keeps matrices of the adapters on the clients, and {strategy.named_server} "
            "needs all products of both; choose another server strategy, such as fedavg"
        )
    carried = strategy.client.carried(layout)
    if any(max(carried.start, matrix.start) < min(carried.stop, matrix.stop) for matrix in matrices):
        raise InputError(
            f"{strategy.named_client} combines adapters of earlier rounds with later models, and "
            f"{strategy.named_server} changes the weights below them in every round; choose another server strategy, "
            "such as fedit"
        )
    clusters = strategy.clusters()
    keeping = chosen_where(("strategy/clustering", clusters, clusters.stores_last_upload))
    if settings.evaluation.client_means:
        keeping.append("evaluation.client_means=true")
    if keeping:
        raise InputError(
            f"{keeping[0]} uses models of different rounds, and {strategy.named_server} changes the weights below "
            "their adapters in every round; choose another server strategy, such as fedit"
        )


def _check_head(settings: Settings, *, private_head: bool) -> None:
    """Reject a strategy that uses the head or class embeddings: the model has no head.

    Args:
        settings: settings of the run.
        private_head: whether clients would keep the head and nothing else.
    """
    strategy, evaluation = settings.strategy, settings.evaluation
    client, server, clusters = strategy.client, strategy.server, strategy.clusters()
    measured = client.wants & (EMBEDDINGS | {"training_embeddings"})
    needing = chosen_where(
        ("strategy/client", client, measured or private_head),
        ("strategy/server", server, "head" in server.wants or server.rows == "head"),
        ("strategy/clustering", clusters, clusters.infers),
        ("strategy/post_training", strategy.afterwards(), strategy.has_second_phase),
    )
    if evaluation.tuned_by and evaluation.tuning_part == "head":
        needing.append("evaluation.tuning_part=head")
    if needing:
        raise InputError(
            f"{needing[0]} needs a head, and this model has none (no linear layer with its own weights "
            "computes the outputs); choose another strategy, such as fedavg, or another model"
        )


def _check_client(settings: Settings, layout: Layout, private: torch.Tensor) -> None:
    """Reject client strategies that send nothing of a model that they are to send, train nothing of it, or compare
    embeddings that do not change.
    """
    strategy, local = settings.strategy, settings.local
    client = strategy.client
    epochs = range(local.epochs or local.steps or 1)
    if MODEL in client.sends and private[: layout.uploaded].all():
        raise InputError(
            f"{strategy.named_client} keeps all trained parameters of this model on the clients, and nothing is left "
            "to send; choose strategy=solo, or a model that trains layers below its head"
        )
    if not EMBEDDINGS.isdisjoint(client.wants) and layout.head_size == layout.trainable:
        raise InputError(
            f"{strategy.named_client} compares embeddings, and no trained layer of this model lies below its head, so "
            "that they do not change; choose another strategy, or a model that trains layers below its head"
        )
    if overrides(client, "frozen") and all(_all_frozen(client, layout, epoch) for epoch in epochs):
        raise InputError(
            f"{strategy.named_client} trains no parameter of this model in any epoch; choose another strategy, or a "
            "model that trains layers below its head"
        )


def _all_frozen(client: ClientStrategy, layout: Layout, epoch: int) -> bool:
    """Whether no parameter moves in an epoch."""
    frozen = checked_frozen(client, layout, epoch)
    return frozen is not None and bool(frozen.all())


def _check_unsent(settings: Settings) -> None:
    """Reject compression and attacks: all parameters stay with the clients."""
    changing = []
    if settings.compression.changes_uploads:
        changing.append(settings.chosen("compression"))
    if settings.compression.changes_downloads:
        changing.append(f"compression.down={settings.compression.down}")
    if settings.attack.share and not settings.attack.changes_data:
        changing.append(settings.chosen("attack"))
    if changing:
        raise InputError(
            f"{changing[0]}: {settings.strategy.named_client} keeps all parameters on the clients, and only those "
            "would be changed; choose none"
        )
