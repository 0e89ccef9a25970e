"""FedConcat's last stage: the clusters' encoders side by side, frozen, and one classifier on top trained by everybody.

Diao, Li, He, AAAI 2024, arXiv 2312.06290.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from annotated_types import Ge, Gt, Le, Lt

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset, Encoding, Scaled, Spec
from fedrun.data.datasets.in_memory import InMemory
from fedrun.data.federation import Federation
from fedrun.data.samples import Samples
from fedrun.execution.ranks import SINGLE_PROCESS, Ranks
from fedrun.models.base import ModelConfig, encoder_and_head
from fedrun.models.flat_network import FlatNetwork, Layout
from fedrun.models.frozen_encoders import FrozenEncoders
from fedrun.strategies.fedavg import FedAvg
from fedrun.strategies.server import ServerState
from fedrun.strategies.sgd import SGD
from fedrun.strategies.vectors import Vectors
from fedrun.system.errors import InputError

if TYPE_CHECKING:
    from fedrun.experiment.experiment import Experiment


@config_class
class PostTraining:
    """There is no further stage; the option that has one extends this class."""

    def last_rounds(self, rounds: int) -> int:
        """How many of a run's rounds are the further stage's; 0: there is none."""
        return 0

    def check_keys(self) -> None:
        """Refuse keys that contradict each other.

        Raises:
            InputError: naming them and what is allowed.
        """

    def check(self, clients: int) -> None:
        """Refuse settings that cannot work with this many clients.

        Raises:
            InputError: naming the key and what is allowed.
        """

    def embeds_once(self, dataset: Dataset) -> bool:
        """Whether every training sample goes through the frozen encoders once, and not in every batch."""
        raise NotImplementedError

    def derived(
        self,
        experiment: Experiment,
        federation: Federation,
        network: FlatNetwork,
        samples: Samples,
        models: Sequence[torch.Tensor],
        ranks: Ranks = SINGLE_PROCESS,
    ) -> tuple[Experiment, Federation]:
        """The stage as an experiment of its own, and its federation.

        Args:
            experiment: of the stage before it.
            federation: likewise.
            network: scratch space.
            samples: of that stage.
            models: that it ended with, ``[P]`` each.
            ranks: who all call this, and share out what there is to compute.
        """
        raise NotImplementedError


@config_class
class Classifier(PostTraining):
    """Trains one classifier Φ ``[C, K d]`` on the features of K frozen encoders side by side, in the last rounds.

    Attributes:
        rounds: T_c, of the run's T_e + T_c ``rounds``: an int is their number, a float below 1.0 their share.
        clients_per_round: as the run's; None: the same.
        steps: SGD steps of a participant, each on a batch of one fresh shuffle; fewer if it has fewer batches.
        initial: ``random``: torch's initialisation; ``clusters``: the clusters' classifiers side by side and the sum of
            their biases, so that the logits are the sums of theirs.
        features: ``cached``: every sample's features are computed once; ``recomputed``: in every batch, from samples
            augmented anew; ``auto``: recomputed where the dataset augments, or where ``encoder_mode`` asks for it.
        encoder_mode: ``eval``: the frozen encoders are in evaluation mode. ``train``: while the classifier is trained
            they are in training mode, as in FedConcat's code: BatchNorm uses a batch's statistics and dropout is
            active; tests are made in evaluation mode. The running statistics, which in that code move on in the shared
            encoders from client to client, stay as they are, so that results do not depend on the clients' order.
        lr: η of this stage; None: ``local.lr``. ``local.lr_decay`` goes on counting from the first round.
        weight_decay: of this stage; None: ``local.weight_decay``.
    """

    rounds: Annotated[int, Ge(1)] | Annotated[float, Gt(0), Lt(1)]
    clients_per_round: Annotated[int, Ge(1)] | Annotated[float, Gt(0), Le(1)] | None
    steps: Annotated[int, Ge(1)]
    initial: Literal["random", "clusters"]
    features: Literal["auto", "cached", "recomputed"]
    encoder_mode: Literal["eval", "train"]
    lr: Annotated[float, Gt(0)] | None
    weight_decay: Annotated[float, Ge(0)] | None

    def last_rounds(self, rounds: int) -> int:
        if isinstance(self.rounds, int):
            return self.rounds
        if rounds == 1:
            return 1  # which is refused, as none is left before it
        return min(max(1, round(self.rounds * rounds)), rounds - 1)

    def check_keys(self) -> None:
        if self.encoder_mode == "train" and self.features == "cached":
            raise InputError(
                "strategy.post_training.features=cached: with strategy.post_training.encoder_mode=train a sample's "
                "features change from batch to batch; allowed: recomputed, auto"
            )

    def check(self, clients: int) -> None:
        if isinstance(self.clients_per_round, int) and self.clients_per_round > clients:
            raise InputError(
                f"strategy.post_training.clients_per_round={self.clients_per_round}: the federation has {clients} "
                f"clients; allowed: 1 to {clients}, a share such as 0.1, or null"
            )

    def embeds_once(self, dataset: Dataset) -> bool:
        # augmented samples have other features in every epoch
        plain = self.features == "auto" and self.encoder_mode == "eval" and dataset.augmentation is None
        return self.features == "cached" or plain

    def derived(
        self,
        experiment: Experiment,
        federation: Federation,
        network: FlatNetwork,
        samples: Samples,
        models: Sequence[torch.Tensor],
        ranks: Ranks = SINGLE_PROCESS,
    ) -> tuple[Experiment, Federation]:
        from fedrun.experiment.strategy import Strategy

        given, dataset, layout = experiment.local, federation.dataset, network.layout
        encoders = FrozenEncoders(network, {str(number): model for number, model in enumerate(models)})
        width = len(models) * layout.embedding
        within: Embed | None = None
        if self.encoder_mode == "train":
            kept, within = dataset, partial(joined_embeddings, encoders)
        else:
            encoding = SideBySide(samples.encoding, dataset.inputs.ndim - 1, encoders)
            spec = Spec((width,), dataset.spec.classes)
            if self.embeds_once(dataset):
                inputs = features(samples, encoding, width, experiment.evaluation.batch_size, ranks)
                kept = replace(dataset, spec=spec, encoding=Scaled(1.0), inputs=inputs, augmentation=None)
            else:
                kept = replace(dataset, spec=spec, encoding=encoding)
        head = joined_heads(models, layout) if self.initial == "clusters" else None
        local = replace(
            given,
            lr=given.lr if self.lr is None else self.lr,
            weight_decay=given.weight_decay if self.weight_decay is None else self.weight_decay,
            epochs=1,
            steps=None,
        )
        stage = replace(
            experiment,
            dataset=InMemory(kept),
            model=WideHead(width, has_bias(layout), head, within),
            strategy=Strategy(client=SGD(), server=FewSteps(weighting="uniform", most=self.steps)),
            local=local,
            clients_per_round=self.clients_per_round or experiment.clients_per_round,
        )
        return stage, replace(federation, dataset=kept)


@config_class
class FewSteps(FedAvg):
    """The mean of models that were trained for the first few batches of an epoch.

    Attributes:
        most: steps of a client that has this many batches.
    """

    most: Annotated[int, Ge(1)]

    def steps(self, state: ServerState, cohort: torch.Tensor, usual: torch.Tensor) -> torch.Tensor:
        return usual.clamp_max(self.most)


Embed = Callable[["torch.Tensor", bool], "torch.Tensor"]
"""Encoded inputs ``[B, ...]``, and whether encoders are in training mode, to embeddings ``[B, d]``."""


@dataclass(frozen=True)
class WideHead(ModelConfig):
    """A head on features: on the inputs themselves, or on what fixed encoders make of them.

    Attributes:
        width: K d, the number of features.
        bias: whether it has a bias.
        initial: weight ``[C, K d]`` and bias ``[C]`` (empty for none) to start from; None: torch's initialisation.
        embed: the fixed encoders; None: there are none.
    """

    width: int
    bias: bool
    initial: tuple[torch.Tensor, torch.Tensor] | None
    embed: Embed | None

    def check(self, spec: Spec) -> None:
        pass

    def build(self, spec: Spec) -> torch.nn.Sequential:
        from fedrun.models.parallel_encoders import OutsideEncoder

        head = torch.nn.Linear(self.width, spec.classes, bias=self.bias)
        if self.initial is not None:
            with torch.no_grad():
                head.weight.copy_(self.initial[0])
                if self.bias:
                    head.bias.copy_(self.initial[1])
        return encoder_and_head(torch.nn.Identity() if self.embed is None else OutsideEncoder(self.embed), head)


def joined_embeddings(encoders: FrozenEncoders, inputs: torch.Tensor, training: bool = False) -> torch.Tensor:
    """The features float32 ``[B, K d]`` of encoded inputs ``[B, ...]`` under K encoders side by side."""
    return torch.cat(list(encoders(inputs, training).values()), dim=1)


@dataclass(frozen=True)
class SideBySide:
    """Stored samples to their features under several frozen encoders, in evaluation mode: an encoding.

    Attributes:
        encoding: stored samples to what the encoders read.
        dimensions: of one stored sample.
        encoders: of the models.
    """

    encoding: Encoding
    dimensions: int
    encoders: FrozenEncoders

    def __call__(self, stored: torch.Tensor) -> torch.Tensor:
        """Samples ``[..., *shape]`` to features float32 ``[..., K d]``."""
        leading = stored.ndim - self.dimensions
        flat = self.encoding(stored).flatten(0, leading - 1)
        return joined_embeddings(self.encoders, flat).view(*stored.shape[:leading], -1)


def features(
    samples: Samples, encoding: SideBySide, width: int, batch_size: int, ranks: Ranks = SINGLE_PROCESS
) -> torch.Tensor:
    """The features of all samples of a dataset, float32 ``[n, width]`` on the CPU.

    Every rank computes those of its part of the batches, and has all in the end.
    """
    found = torch.zeros(len(samples.targets), width)
    batches = torch.split(torch.arange(len(found)), batch_size)
    for batch in batches[ranks.part(len(batches))]:
        found[batch] = encoding(samples.gather(batch)[0]).cpu()
    ranks.all_reduce(found)
    return found


def has_bias(layout: Layout) -> bool:
    """Whether the head has a bias."""
    return layout.head_size > layout.classes * layout.embedding


def joined_heads(models: Sequence[torch.Tensor], layout: Layout) -> tuple[torch.Tensor, torch.Tensor]:
    """The heads of models as one: weight ``[C, K d]``, side by side, and bias ``[C]``, their sum (empty for none)."""
    heads = [model[layout.head] for model in models]
    weight = torch.cat([layout.head_rows(head, with_bias=False) for head in heads], dim=1)
    return weight, torch.stack([head[layout.classes * layout.embedding :] for head in heads]).sum(0)


def concatenated(models: Sequence[torch.Tensor], layout: Layout, head: Vectors) -> Vectors:
    """The tensors of the concatenated network by name: ``encoder.encoders.M.*`` and the wide head's.

    Args:
        models: the clusters' models, ``[P]`` each.
        layout: of one of them.
        head: the wide head's tensors, ``head.*``.
    """
    found = {}
    for number, model in enumerate(models):
        for name, tensor in layout.views(model).items():
            if not name.startswith("head."):
                found[name.replace("encoder.", f"encoder.encoders.{number}.", 1)] = tensor
    return {**found, **head}
