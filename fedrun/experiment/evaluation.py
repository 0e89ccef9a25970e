"""When and how models are evaluated."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from fedrun.config.config_class import config_class
from fedrun.config.identity import Neutral, RoundingOnly
from fedrun.config.marks import NoEffect
from fedrun.data.evaluation_split import pooled_names
from fedrun.data.tasks.metric_names import OF_GLOBAL, OF_TUNED
from fedrun.models.precision import Precision
from fedrun.strategies.client import Averaging, ClientStrategy, EvaluatedModel, is_personal, trains_global_model
from fedrun.strategies.local_training import LocalTraining
from fedrun.system.errors import InputError

OWN_TESTS = "population.test_share=0.3"
"""The setting that gives clients test samples of their own."""

WITHOUT_TUNING = (NoEffect("tuning_steps", (0,)), NoEffect("tuning_epochs", (0,)))


@config_class
class Evaluation:
    """When and how the global model is evaluated.

    Attributes:
        every: evaluate after every this many rounds (and before the first, and after the last).
        batch_size: samples per forward pass; it changes speed and memory, not results beyond rounding. With
            ``adaptive`` it is also the number of samples drawn at once, and so changes how many samples a
            test needs.
        precision: precision of global models' evaluation. ``bfloat16``: products of numbers with 8 significant bits,
            faster where the machine has instructions for it; losses then differ from the third digit on, and a few
            predictions with them. Models that clients have trained for themselves are always evaluated in float32.
        train_clients: at the end of a run, also evaluate the final model on every training client's own samples, for
            ``clients.parquet``. ``auto``: where the run has trained on three times as many samples or more, so that
            this takes no more than a ninth of that time.
        adaptive: test a model only until it is clear that it has not reached the lowest target that is still to be
            reached; the last round's is tested fully. Rounds to the targets are those of full evaluations. Other
            metrics are known where an evaluation was full; where it was not, there is ``test/accuracy_estimate``.
        full_every: with ``adaptive``, the model is tested fully after every this many rounds, too, a multiple of
            ``every``; None: do not.
        miss_probability: with ``adaptive``, the probability of overlooking the round that first reaches a target, for
            each target of a run; 0: never, at many times the cost.
        tuning_steps: also evaluate every client after it has adapted the model by this many SGD steps on its own
            training samples; 0: do not.
        tuning_epochs: the same with this many epochs in place of steps; 0: do not.
        tuning_part: what adapts: the whole ``model`` or its ``head``.
        tuning_lr: learning rate of adapting; None: the rate of the last round.
        model: the model whose accuracy the summary reports: the ``global`` one, clients' ``own``, or the global one
            after each client has ``tuned`` it; ``auto``: as the client strategy's paper.
        average: how it is averaged: over all clients' test ``samples``, or plainly over ``clients``; ``auto``: as the
            client strategy's paper. Both only choose among the metrics that a run records anyway.
        client_means: also test the mean of the models that the last round's participants have sent, weighted as the
            server strategy weights them, and the plain mean of the models that all clients sent last (the initial model
            for those that have not taken part). Server strategies such as FedDyn move the global model beyond them.
            One model is stored per client that has taken part.
    """

    every: Annotated[int, Ge(1)]
    batch_size: Annotated[int, Ge(1), RoundingOnly(unless="adaptive", counted=256)]
    precision: Precision
    train_clients: bool | Literal["auto"]
    adaptive: bool
    full_every: Annotated[Annotated[int, Ge(1)] | None, NoEffect("adaptive", (False,))]
    miss_probability: Annotated[float, Ge(0), Le(0.01), NoEffect("adaptive", (False,))]
    tuning_steps: Annotated[int, Ge(0)]
    tuning_epochs: Annotated[int, Ge(0)]
    tuning_part: Annotated[Literal["model", "head"], WITHOUT_TUNING]
    tuning_lr: Annotated[Annotated[float, Gt(0)] | None, WITHOUT_TUNING]
    client_means: bool
    model: Annotated[Literal["auto"] | EvaluatedModel, Neutral("auto")]
    average: Annotated[Literal["auto"] | Averaging, Neutral("auto")]

    def check(self) -> None:
        """Reject two lengths of tuning."""
        if self.tuning_steps and self.tuning_epochs:
            raise InputError(
                f"evaluation.tuning_steps={self.tuning_steps} and evaluation.tuning_epochs={self.tuning_epochs}: at "
                "most one of the two may be other than 0"
            )

    def reported(self, client: ClientStrategy, recorded: Collection[str]) -> str | None:
        """The metric that answers :attr:`model` and :attr:`average`.

        Where clients are not evaluated by themselves, or not after tuning, it is the next best that was recorded:
        accuracies of their own models, then that on all test samples; None where no accuracy was.

        Args:
            client: the client strategy.
            recorded: the names of the metrics.
        """
        model = self._reported_model(client)
        average = client.reported[1] if self.average == "auto" else self.average
        measure = "accuracy_weighted" if average == "samples" else "accuracy_mean"
        begin = {"global": OF_GLOBAL if is_personal(client) else "", "own": "", "tuned": OF_TUNED}[model]
        names = (f"clients/{begin}{measure}", f"clients/{measure}", *pooled_names("accuracy"))
        return next((name for name in names if name in recorded), None)

    def unrecorded(self, client: ClientStrategy, tests: bool) -> str:
        """The accuracies that :meth:`reported` should report and the run does not record, in words, with the keys that
        would record them; empty: all are recorded.

        Args:
            client: the client strategy.
            tests: whether clients have test samples of their own.
        """
        model = self._reported_model(client)
        if model == "own" and is_personal(client) and not tests:
            pooled = "own models are tested on the pooled samples of all clients"
            return f"{pooled}; {OWN_TESTS} tests them on the clients' own"
        if self.model == "own" and not is_personal(client):
            return "evaluation.model=own asks for the accuracy of clients' own models, and this strategy has none"
        if model == "own" or (model == "global" and not is_personal(client)) or not trains_global_model(client):
            if tests or self.average != "clients":
                return ""
            return f"evaluation.average=clients asks for a mean over clients; set {OWN_TESTS} to record it"
        keys = [] if tests else [OWN_TESTS]
        if model == "tuned" and not self.tuned_by:
            keys.append("evaluation.tuning_epochs=5")
        if not keys:
            return ""
        models = "the global model" if model == "global" else "models that clients have tuned"
        source = "the strategy's paper reports" if self.model == "auto" else f"evaluation.model={self.model} asks for"
        return f"{source} the accuracy of {models}; set {' '.join(keys)} to record it"

    def _reported_model(self, client: ClientStrategy) -> EvaluatedModel:
        """Of which models the accuracy is to be reported."""
        return client.reported[0] if self.model == "auto" else self.model

    @property
    def tuned_by(self) -> str:
        """The setting by which clients adapt the model before they are evaluated; empty where they do not."""
        if self.tuning_epochs:
            return f"evaluation.tuning_epochs={self.tuning_epochs}"
        return f"evaluation.tuning_steps={self.tuning_steps}" if self.tuning_steps else ""

    def tuning(self, local: LocalTraining, rate: float) -> LocalTraining | None:
        """How a client adapts the model before it is evaluated; None: it does not.

        Args:
            local: how clients train.
            rate: the learning rate of the last round that was made, or of the first one before it.
        """
        if not self.tuned_by:
            return None
        lr = rate if self.tuning_lr is None else self.tuning_lr
        epochs, steps = self.tuning_epochs or None, self.tuning_steps or None
        return replace(local.at_rate(lr), epochs=epochs, steps=steps)
