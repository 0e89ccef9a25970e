"""Checks that privacy, compression and secure sums are compatible with each other and with the strategy."""

from __future__ import annotations

from fedrun.config.option_name import chosen_where
from fedrun.data.tasks.base import Task
from fedrun.experiment.settings import Settings
from fedrun.experiment.strategy import Strategy
from fedrun.strategies.client import ClientStrategy, overrides
from fedrun.strategies.clustering.base import Clustering
from fedrun.strategies.fedamp import FedAMPClient
from fedrun.strategies.fedavg import FedAvg
from fedrun.strategies.fedsgd import FedSGD
from fedrun.strategies.flora import FLoRA
from fedrun.strategies.head_refinement import aggregating
from fedrun.strategies.server import ServerStrategy
from fedrun.strategies.vectors import MODEL
from fedrun.system.errors import InputError
from fedrun.uploads.attacks.colluding import Colluding
from fedrun.uploads.compression.base import Compressor
from fedrun.uploads.compression.sign import Sign
from fedrun.uploads.privacy.base import Privacy
from fedrun.uploads.privacy.sample_level import SampleLevel
from fedrun.uploads.privacy.user_level import UserLevel


def check_transforms(settings: Settings) -> None:
    """Reject transforms of uploads that contradict each other or the strategy.

    Raises:
        InputError: naming both keys and what is allowed.
    """
    strategy, privacy = settings.strategy, settings.privacy
    compression, secure_sum = settings.compression, settings.secure_sum
    used = chosen_where(
        ("privacy", privacy, privacy.protects),
        ("secure_sum", secure_sum, secure_sum.changes_uploads),
        ("compression", compression, compression.changes_uploads),
    )
    if compression.changes_downloads:
        used.append(f"compression.down={compression.down}")
    if used and not strategy.client.sends:
        raise InputError(f"{used[0]}: {strategy.named_client} sends nothing; choose none")
    if used and settings.population.pooled:
        raise InputError(f"{used[0]} with population.pooled=true: no client sends anything; choose none")
    attack = settings.attack
    changing = used + chosen_where(("attack", attack, attack.share > 0 and not attack.changes_data))
    if changing and overrides(strategy.client, "absent"):
        raise InputError(
            f"{changing[0]} with {strategy.named_client}: what clients do not have of the model would not arrive as "
            "zero; allowed: client strategies with the whole model, such as sgd"
        )
    _check_starts(settings)
    _check_compression(settings)
    if secure_sum.changes_uploads:
        _check_integers(settings)
    if privacy.protects:
        _check_privacy(settings)
        reason = _without_noise(privacy, strategy)
        if reason is not None:
            raise InputError(
                f"{used[0]} with {_sides(strategy)}: the server would see {reason}, without noise; {ALLOWED}"
            )
    if privacy.noises_steps:
        _check_noised_training(settings, privacy)
    if secure_sum.changes_uploads:
        reason = single_uploads(strategy.client, strategy.server, rows=True) or _sorted_by(strategy.clusters())
        if reason is not None:
            raise InputError(
                f"{settings.chosen('secure_sum')} with {_sides(strategy)}: the server would see {reason}; {ALLOWED}"
            )
    if isinstance(settings.attack, Colluding):
        _check_forged(settings)


def _sides(strategy: Strategy) -> str:
    """A strategy's sides as the command line chooses them."""
    sides = [strategy.named_client, strategy.named_server]
    return ", ".join([*sides, strategy.named_clustering] if strategy.clusters().several else sides)


def _check_forged(settings: Settings) -> None:
    """Reject attacks that replace received models if the server receives no single model."""
    attack, strategy = settings.chosen("attack"), settings.strategy
    clusters, sums_only = strategy.clusters(), settings.privacy.sees_sums_only
    if sums_only or settings.secure_sum.changes_uploads:
        raise InputError(
            f"{attack} forges uploads after they have arrived, and with "
            f"{settings.chosen('privacy' if sums_only else 'secure_sum')} only their sum arrives; choose another attack"
        )
    if clusters.compares_models:
        raise InputError(
            f"{attack} forges uploads after they have arrived, and {strategy.named_clustering} assigns clients by "
            "their uploads before; choose another attack"
        )
    if strategy.server.sends_own_models:
        raise InputError(
            f"{attack} forges steps from one model, and {strategy.named_server} sends each client another; choose "
            "another attack"
        )
    if MODEL not in strategy.client.sends:
        raise InputError(f"{attack} forges models, which {strategy.named_client} does not send; choose another attack")


def _check_integers(settings: Settings) -> None:
    """Reject uploads and weights that are not integers."""
    key, privacy = settings.chosen("secure_sum"), settings.privacy
    if settings.compression.changes_uploads:
        raise InputError(
            f"{key} with {settings.chosen('compression')}: sums of integers need uploads of all entries; allowed: "
            "compression=none"
        )
    if isinstance(privacy, UserLevel) and privacy.max_weight is not None and privacy.max_weight % 1:
        raise InputError(
            f"privacy.max_weight={privacy.max_weight:g} with {key}: clients' weights would not be integers; allowed: "
            "whole numbers, or null"
        )


def _check_starts(settings: Settings) -> None:
    """Reject transforms of steps from the received model if clients start at other models."""
    compression, attack, strategy = settings.compression, settings.attack, settings.strategy
    if not isinstance(strategy.client, FedAMPClient):
        return
    used = chosen_where(("attack", attack, attack.share > 0 and not attack.changes_data))
    if isinstance(compression, Compressor) and compression.memory == "client":
        used.append("compression.memory=client")
    if compression.changes_downloads:
        used.append(f"compression.down={compression.down}")
    if used:
        raise InputError(
            f"{used[0]} with {strategy.named_client}, whose clients start at their own models instead of the received "
            "ones, so that errors would add up; choose none"
        )


def _check_compression(settings: Settings) -> None:
    """Reject compression that contradicts its memory, the strategy or the attack."""
    compression, strategy = settings.compression, settings.strategy
    if compression.changes_downloads and strategy.clusters().several:
        raise InputError(
            f"compression.down={compression.down} with {strategy.named_clustering}, whose clients compare or mix "
            "several models, of which only one is rounded; allowed: none"
        )
    if isinstance(compression, Compressor) and compression.memory == "client":
        if compression.is_unbiased:
            raise InputError(
                f"compression.memory=client with {settings.chosen('compression')}, which is unbiased: its errors "
                "can be longer than the uploads, and would grow from round to round; allowed: none, or a biased "
                "compressor, such as topk, or randk with compression.scaled=false"
            )
        if isinstance(aggregating(strategy.server), FLoRA):
            raise InputError(
                f"compression.memory=client with {strategy.named_server}, whose A begins anew in every round: the "
                "error is of the products with the A before; allowed: compression.memory=none"
            )
    if isinstance(compression, Sign) and compression.votes:
        _check_vote(settings, compression)


def _check_vote(settings: Settings, compression: Sign) -> None:
    """Reject settings that are incompatible with a majority vote."""
    strategy = settings.strategy
    if compression.memory == "client":
        raise InputError(
            "compression.rule=vote with compression.memory=client: a vote has no magnitude, and so no error; allowed: "
            "compression.memory=none"
        )
    if compression.skip != "none":
        raise InputError(
            f"compression.rule=vote with compression.skip={compression.skip}: the server only counts votes; "
            "allowed: compression.skip=none"
        )
    reason = single_uploads(strategy.client, strategy.server, rows=True)
    if reason is None and len(strategy.client.sends) > 1:
        reason = f"{min(strategy.client.sends - {MODEL})!r}, whose size a vote does not keep"
    if reason is None and strategy.clusters().mixes:
        reason = "fractions of votes, because a client counts for several models"
    if reason is not None:
        raise InputError(
            f"compression.rule=vote with {_sides(strategy)}: the server uses {reason}; allowed: strategies whose "
            "server needs the mean model only, such as fedavg"
        )
    if not isinstance(strategy.server, FedAvg):
        raise InputError(
            f"compression.rule=vote with {strategy.named_server}: a vote is the server's "
            "whole step, of size compression.vote_step; allowed: strategy/server=fedavg"
        )
    if isinstance(settings.attack, Colluding):
        raise InputError(
            f"compression.rule=vote with {settings.chosen('attack')}, which forges uploads after they have arrived as "
            "votes; choose another attack"
        )


LABEL_COUNTS = "every single client's numbers of samples per class"

ALLOWED = "allowed: strategies whose server needs only a sum of vectors, such as fedavg, fedadam or scaffold"


def single_uploads(client: ClientStrategy, server: ServerStrategy, rows: bool) -> str | None:
    """The single uploads that a strategy's server sees besides the sum of bounded vectors, in words; None: none.

    The length of a vector is known, also for an empty cohort, if the server broadcasts a vector of the same name. Other
    uploads may be single numbers, which the server sees one by one, so they count as such.

    Args:
        client: the client strategy.
        server: the server strategy.
        rows: whether single clients' models, and what the server computes from them, count.
    """
    if "label_counts" in server.wants:
        return LABEL_COUNTS
    if rows and server.rows != "none":
        return "every single client's model"
    if rows and server.sends_own_models:
        return "which client has received which model"
    if rows and "squared_norms" in server.wants:
        return "how far every single client has moved the model"
    apart = sorted(client.sends - server.sends - {MODEL})
    if not apart:
        return None
    named = f"every single client's {apart[0]!r}"
    return f"{named} (it counts as a number, because the server broadcasts no vector of this name)"


def _sorted_by(clusters: Clustering) -> str | None:
    """The single uploads by which the server would assign clients to models, in words; None: it sees sums per model."""
    if clusters.compares_models:
        return "every single client's model"
    if clusters.reports_labels:
        return LABEL_COUNTS
    return "the part of every single client in each model" if clusters.mixes else None


def _without_noise(privacy: Privacy, strategy: Strategy) -> str | None:
    """What the server would see without noise, in words; None: nothing."""
    if privacy.noises_steps:
        reason = LABEL_COUNTS if "label_counts" in strategy.server.wants else None
    else:
        reason = single_uploads(strategy.client, strategy.server, rows=privacy.sees_sums_only)
    if reason is not None:
        return reason
    if strategy.clusters().several or strategy.has_second_phase:
        return "which model each client belongs to, or what it sends for a second model"
    if privacy.sees_sums_only and strategy.server.idle_training is not None:
        return "the training of clients that are not selected"
    return None


def _check_noised_training(settings: Settings, privacy: Privacy) -> None:
    """Reject tasks that weight samples, and strategies whose clients use samples otherwise than for one noised gradient
    per step.
    """
    strategy, task = settings.strategy, settings.dataset.spec.task
    if type(task).weights is not Task.weights and not task.per_symbol:
        raise InputError(
            f"{settings.chosen('privacy')} with the dataset's task, {task.name}, which weights samples: a step adds "
            "the clipped gradients of all samples with the same weight; allowed: a task without weights"
        )
    if isinstance(strategy.client, FedSGD) and isinstance(privacy, SampleLevel) and privacy.sample_share < 1:
        raise InputError(
            f"privacy.sample_share={privacy.sample_share:g} with strategy/client=fedsgd, which makes one step on all "
            "samples of a client; allowed: 1, or strategy=fedavg"
        )
    if (reason := _besides_gradients(strategy)) is not None:
        raise InputError(
            f"{settings.chosen('privacy')} with {_sides(strategy)}: clients would {reason}, without noise; allowed: "
            "strategies that use samples for one gradient per step only, such as fedavg, fedprox, fedadam or scaffold"
        )


def _besides_gradients(strategy: Strategy) -> str | None:
    """What clients of a strategy do with their samples besides computing one gradient per step, in words; None:
    nothing.
    """
    client, server = strategy.client, aggregating(strategy.server)
    if measured := sorted(client.wants - {"initial_model"}):
        return f"use {measured[0]}"
    if client.reference_models:
        return "compare with other models"
    if overrides(client, "batch_loss"):
        return "train on inputs of their own"
    if client.passes != (1,):
        return "process each batch several times"
    if server.idle_training is not None:
        return "train while they are idle"
    if type(server).steps is not ServerStrategy.steps:
        return "make as many steps as the server requests"
    return None


def _check_privacy(settings: Settings) -> None:
    """Reject compressors that are incompatible with clipping."""
    key, compression = settings.chosen("privacy"), settings.compression
    if not settings.privacy.sees_sums_only:
        return  # noised uploads may be compressed by any rule
    if isinstance(compression, Compressor) and compression.memory == "client":
        raise InputError(
            f"{key} with compression.memory=client: the clipped part would stay in the client state forever; "
            "allowed: compression.memory=none"
        )
    if isinstance(compression, Sign) and compression.votes:
        raise InputError(f"{key} with compression.rule=vote: the vote would remove the noise; allowed: scaled")
