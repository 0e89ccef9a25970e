"""Reject combinations of an experiment's parts that cannot work."""

from __future__ import annotations

import math
import re

from fedrun.config.allowed_values import shown
from fedrun.config.option_name import chosen_where
from fedrun.config.overrides import home_folder
from fedrun.data.evaluation_split import TARGETED, pooled_name
from fedrun.data.targets import Target
from fedrun.data.tasks.classification import Classification
from fedrun.experiment.settings import Settings
from fedrun.strategies.client import compares_embeddings, is_personal, trains_global_model
from fedrun.strategies.vectors import MODEL
from fedrun.system.errors import InputError
from fedrun.uploads.attacks.base import Attack
from fedrun.uploads.attacks.colluding import Colluding


def check_folder(settings: Settings) -> None:
    """Reject names that would not be those of a folder, or of another one than is meant."""
    name, output_dir = settings.name, settings.output_dir
    if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)*", name):
        raise InputError(f"name={shown(name)}: allowed: words of letters, digits, -, _ and ., joined by /")
    if not output_dir:
        raise InputError("output_dir='': allowed: a folder; output_dir=. is the current one")
    if output_dir.startswith("~"):
        raise InputError(home_folder("output_dir", output_dir))


def check_initial(settings: Settings) -> None:
    """Reject initial weights that are the same for all models where these must differ."""
    if settings.initial.is_whole and not settings.strategy.clusters().same_initialisation:
        raise InputError(
            f"{settings.chosen('initial')} with {settings.strategy.named_clustering}, whose models must differ at "
            "first: allowed: initial.part=encoder, initial=random"
        )


def check_stopping(settings: Settings) -> None:
    """Reject a run that is to stop at targets which it does not have or cannot measure."""
    if not settings.stop_at_targets:
        return
    if not settings.targets:
        raise InputError("stop_at_targets=true needs at least one target, such as targets=[0.9]")
    if settings.validation.evaluation_split != "test":
        raise InputError(
            f"stop_at_targets=true: targets are of test samples, and with validation.share={settings.validation.share} "
            "no test sample is used; allowed: false"
        )


def check_evaluated_models(settings: Settings) -> None:
    """Reject evaluations of models that the run does not have."""
    strategy, evaluation, client = settings.strategy, settings.evaluation, settings.strategy.client
    several = strategy.clusters().several or strategy.has_second_phase
    if evaluation.client_means and (MODEL not in client.sends or is_personal(client) or several):
        raise InputError(
            f"evaluation.client_means=true: allowed if clients send models ({strategy.named_client}) for one global "
            "model (no clusters, no models of their own)"
        )
    averages_others = chosen_where(
        ("attack", settings.attack, isinstance(settings.attack, Colluding)),
        ("compression", settings.compression, settings.compression.changes_means),
        ("privacy", settings.privacy, settings.privacy.sees_sums_only),
    )
    if evaluation.client_means and averages_others:
        raise InputError(
            f"evaluation.client_means=true with {averages_others[0]}: the server averages something else than the "
            "models that clients have sent; allowed: false"
        )
    if evaluation.tuned_by and not trains_global_model(client):
        raise InputError(
            f"{evaluation.tuned_by}: {strategy.named_client} has no global model that clients could tune; allowed: 0"
        )


def check_constant_rate(settings: Settings) -> None:
    """Reject a user's schedule with which clients that train alone would have another rate than the one that is set."""
    local, appeal = settings.local, settings.appeal
    alone = settings.evaluation.tuned_by or (settings.chosen("appeal") if appeal.trained else "")
    if alone and not math.isclose(rate := local.at_rate(local.lr).rate(0), local.lr):
        raise InputError(
            f"{alone}: clients would train at {rate:g} instead of {local.lr:g}, because "
            f"{type(local).__name__}.at_rate({local.lr:g}) returns settings with this rate; allowed: settings whose "
            f"rate is {local.lr:g} in every round"
        )


def check_appeal(settings: Settings) -> None:
    """Reject settings that need thresholds which the clients do not have."""
    strategy, appeal = settings.strategy, settings.appeal
    if "threshold" in strategy.client.wants and not appeal.known:
        raise InputError(f"{strategy.named_client} needs every client's threshold; choose appeal=warmup")
    if settings.participation.needs_thresholds and not appeal.known:
        raise InputError(f"{settings.chosen('participation')} needs every client's threshold; choose appeal=warmup")
    if appeal.known and settings.population.pooled:
        raise InputError("population.pooled=true: no client is left that could have a threshold; choose appeal=none")


def check_attack(settings: Settings) -> None:
    """Reject attackers that nothing makes attack, or that have nothing to change."""
    attack, strategy = settings.attack, settings.strategy
    if attack.share and type(attack) is Attack:
        raise InputError(
            f"attack.share={attack.share} with attack=none: allowed: 0, or another attack, such as attack=gaussian"
        )
    if attack.changes_data or not attack.share or (strategy.client.sends and not settings.population.pooled):
        return
    pooled = "with population.pooled=true no client sends anything"
    sender = pooled if settings.population.pooled else f"{strategy.named_client} sends nothing"
    raise InputError(
        f"attack.share={attack.share}: {sender} that attackers could change; choose attack=none or attack=label_flip"
    )


def check_participation(settings: Settings) -> None:
    """Reject a rule of participation that idle clients cannot follow, or that would disclose more than privacy or
    secure sums allow.
    """
    if settings.strategy.server.idle_training is not None and not settings.participation.known_in_advance:
        raise InputError(
            f"{settings.chosen('participation')} cannot be combined with idle clients (strategy=fedumf), which must "
            "know in one round who is selected in the next; choose participation=everyone or bernoulli"
        )
    if settings.privacy.protects and not settings.participation.is_uniform:
        raise InputError(
            f"{settings.chosen('privacy')} with {settings.chosen('participation')}: the privacy loss is that of its "
            "own draw of the participants; choose participation=everyone"
        )
    if settings.secure_sum.changes_uploads and not settings.participation.known_in_advance:
        raise InputError(
            f"{settings.chosen('secure_sum')} with {settings.chosen('participation')}, which may depend on single "
            "clients' losses: the server learns sums only; allowed: participation=everyone, bernoulli"
        )


def check_client_tests(settings: Settings, has_tests: bool | None) -> None:
    """Reject evaluations of clients that contradict others, or need test samples which the clients do not have.

    Args:
        settings: the run's.
        has_tests: whether clients have test samples of their own; None: that is known when a user's partition has run.
    """
    appeal, evaluation = settings.appeal, settings.evaluation
    if appeal.known and appeal.losses in ("test", "mixed") and has_tests is False:
        raise InputError(
            f"appeal.convention={appeal.losses} needs test samples of every client; set population.test_share, "
            "such as 0.4, or appeal.convention=train"
        )
    if evaluation.tuned_by and has_tests is False:
        raise InputError(
            f"{evaluation.tuned_by} needs test samples of every client; set population.test_share, such as 0.4"
        )
    if evaluation.adaptive and (has_tests or appeal.known or is_personal(settings.strategy.client)):
        raise InputError(
            "evaluation.adaptive=true is for one accuracy over all test samples, and this run evaluates every client "
            "by itself; allowed: false"
        )


def check_adaptive(settings: Settings) -> None:
    """Reject adaptive evaluation where it would find nothing."""
    evaluation, targets = settings.evaluation, settings.targets
    if not evaluation.adaptive:
        return
    if not targets:
        raise InputError(
            "evaluation.adaptive=true needs targets, and there are none; set some, such as targets=[0.9], or "
            "evaluation.adaptive=false"
        )
    if any(Target.of(target).metric != TARGETED for target in targets):
        raise InputError(
            "evaluation.adaptive=true looks for test accuracies, and targets has other metrics; allowed: false"
        )
    task = settings.dataset.spec.task
    if pooled_name("test", task.score) != TARGETED or type(task).scores is not Classification.scores:
        raise InputError(
            "evaluation.adaptive=true counts the samples that are predicted correctly, and the dataset's task, "
            f"{task.name}, scores samples in another way; allowed: false"
        )
    if evaluation.full_every is not None and evaluation.full_every % evaluation.every:
        raise InputError(
            f"evaluation.full_every={evaluation.full_every}: allowed: multiples of evaluation.every={evaluation.every}"
        )


def check_phases(settings: Settings) -> None:
    """Reject settings that need one model or one phase where there are several."""
    strategy, rounds, evaluation = settings.strategy, settings.rounds, settings.evaluation
    last = strategy.afterwards().last_rounds(rounds)
    several = strategy.clusters().several or last > 0
    if last and rounds == 1:
        raise InputError("rounds=1: a strategy with a second phase has rounds of both phases; allowed: at least 2")
    if last >= rounds:
        raise InputError(
            f"strategy.post_training.rounds={last}: these are the last of rounds={rounds}, of which at least one must "
            f"be left for the encoders; allowed: 1 to {rounds - 1}, or a share such as 0.8"
        )
    if several and settings.population.pooled:
        raise InputError("population.pooled=true leaves one client, and a strategy with clusters needs several")
    if several and settings.appeal.known:
        raise InputError(
            "with clusters there is no single global model that could appeal to all clients; choose appeal=none"
        )
    if several and evaluation.tuned_by:
        raise InputError(
            f"{evaluation.tuned_by} needs one global model, and a strategy with clusters has several; set it to 0"
        )


def check_task(settings: Settings) -> None:
    """Reject parts that need one class per sample, or one embedding per sample, if the task has none.

    Raises:
        InputError: naming the part and the task.
    """
    task, strategy, population = settings.dataset.spec.task, settings.strategy, settings.population
    clusters, afterwards = strategy.clusters(), strategy.afterwards()
    needing = chosen_where(
        ("partition", settings.partition, settings.partition.needs_classes),
        ("strategy/client", strategy.client, strategy.client.needs_classes),
        ("strategy/server", strategy.server, strategy.server.needs_classes),
        ("attack", settings.attack, settings.attack.needs_classes),
        ("appeal", settings.appeal, settings.appeal.needs_classes),
        ("strategy/clustering", clusters, clusters.needs_classes),
        ("strategy/post_training", afterwards, afterwards.needs_classes),
    )
    if population.flipped_share:
        needing.append(f"population.flipped_share={population.flipped_share:g}")
    if settings.evaluation.adaptive:
        needing.append("evaluation.adaptive=true")
    if needing and not task.has_classes:
        raise InputError(
            f"{needing[0]} needs one class per sample, and the dataset's task is {task.name}; allowed: with a "
            "classification"
        )
    if compares_embeddings(strategy.client) and task.per_symbol:
        raise InputError(
            f"{strategy.named_client} compares one embedding per sample, and the dataset's "
            f"task, {task.name}, has one per symbol; choose another client strategy, such as sgd"
        )
