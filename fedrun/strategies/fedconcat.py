"""FedConcat's second phase: all clients train one classifier on the concatenated, frozen encoders of the clusters.

Diao, Li, He, AAAI 2024, arXiv 2312.06290.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Le, Lt

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset, Encoding, Scaled, Spec
from fedrun.data.samples import Samples
from fedrun.models.base import ModelConfig, encoder_and_head
from fedrun.models.flat_network import FlatNetwork, Layout
from fedrun.models.frozen_encoders import FrozenEncoders
from fedrun.models.initial_weights import InitialWeights
from fedrun.strategies.clustering.base import Clustering
from fedrun.strategies.fedavg import FedAvg
from fedrun.strategies.local_training import LocalTraining
from fedrun.strategies.phase import Phase, build_network, cohort_size
from fedrun.strategies.post_training import ComputeFeatures, PostTraining
from fedrun.strategies.server import Round, ServerState
from fedrun.strategies.sgd import SGD
from fedrun.strategies.vectors import Vectors
from fedrun.system.errors import InputError


@config_class
class Classifier(PostTraining):
    """Trains one classifier Φ ``[C, K d]`` on the features of K frozen encoders side by side, in the last rounds.

    Attributes:
        rounds: T_c, of the run's T_e + T_c ``rounds``: an int is their number, a float below 1.0 their share.
        clients_per_round: as the run's; None: the same.
        steps: SGD steps of a participant, each on a batch of one fresh shuffle; fewer if it has fewer batches.
        initial: ``random``: torch's initialisation; ``clusters``: the clusters' classifiers side by side and the sum of
            their biases, so that the logits are the sums of theirs.
        features: ``cached``: the features of all samples in use are computed once; ``recomputed``: in every batch, from
            samples augmented again; ``auto``: recomputed if the dataset augments, or if ``encoder_mode`` is ``train``.
        encoder_mode: ``eval``: the frozen encoders are in evaluation mode. ``train``: while the classifier is trained
            they are in training mode, as in FedConcat's code: BatchNorm uses a batch's statistics and dropout is
            active; tests are made in evaluation mode. In that code the running statistics of the shared encoders change
            from client to client. Here they stay fixed, so that results do not depend on the clients' order.
        lr: η of this phase; None: ``local.lr``. ``local.lr_decay`` goes on counting from the first round.
        weight_decay: λ of this phase; None: ``local.weight_decay``.
    """

    rounds: Annotated[int, Ge(1)] | Annotated[float, Gt(0), Lt(1)]
    clients_per_round: Annotated[int, Ge(1)] | Annotated[float, Gt(0), Le(1)] | None
    steps: Annotated[int, Ge(1)]
    initial: Literal["random", "clusters"]
    features: Literal["auto", "cached", "recomputed"]
    encoder_mode: Literal["eval", "train"]
    lr: Annotated[float, Gt(0)] | None
    weight_decay: Annotated[float, Ge(0)] | None

    needs_classes: ClassVar[bool] = True

    def last_rounds(self, rounds: int) -> int:
        if isinstance(self.rounds, int):
            return self.rounds
        if rounds == 1:
            return 1  # which is rejected, as none is left before it
        return min(max(1, round(self.rounds * rounds)), rounds - 1)

    def check(self) -> None:
        if self.encoder_mode == "train" and self.features == "cached":
            raise InputError(
                "strategy.post_training.features=cached: with strategy.post_training.encoder_mode=train a sample's "
                "features change from batch to batch; allowed: recomputed, auto"
            )

    def check_clients(self, clients: int) -> None:
        if self.clients_per_round is not None:
            cohort_size(self.clients_per_round, clients, "strategy.post_training.clients_per_round")

    def next_phase(self, phase: Phase, models: Sequence[torch.Tensor], compute_features: ComputeFeatures) -> Phase:
        dataset, layout, count = phase.federation.dataset, phase.network.layout, len(models)
        encoders = FrozenEncoders(phase.network, {str(number): model for number, model in enumerate(models)})
        width, clients = count * layout.embedding, phase.federation.train
        spec = Spec((width,), dataset.spec.classes, task=dataset.spec.task)
        encoding = ConcatenatedFeatures(phase.samples.encoding, dataset.inputs.ndim - 1, encoders)
        cached, embed, samples = self._caches_features(dataset), None, phase.samples
        if cached:
            inputs = compute_features(samples, phase.federation.used_samples, encoding, width)
            dataset = replace(dataset, spec=spec, encoding=Scaled(1.0), inputs=inputs, augmentation=None)
            samples = Samples.of(dataset, samples.device)
        elif self.encoder_mode == "train":
            embed = partial(concatenated_embeddings, encoders)
        else:
            dataset = replace(dataset, spec=spec, encoding=encoding)
            samples = replace(samples, encoding=encoding)
        model = WideHead(
            width, layout.has_head_bias, joined_heads(models, layout) if self.initial == "clusters" else None, embed
        )
        server, initial = FewSteps(weighting="uniform", most=self.steps), InitialWeights()
        per_round = self.clients_per_round
        return replace(
            phase,
            end=phase.run_rounds,
            federation=replace(phase.federation, dataset=dataset),
            samples=samples,
            model=model,
            initial=initial,
            network=build_network(model, initial, dataset.spec, phase.seed, samples.device, server),
            client=SGD(),
            server=server,
            clustering=Clustering(),
            local=self._local(phase.local),
            cohort_size=phase.cohort_size if per_round is None else cohort_size(per_round, len(clients)),
            params_down=len(clients) * count * (layout.size - layout.head_size),  # all encoders; the frozen is there
            forward_samples=count * int(clients.sizes.sum()) if cached else 0,
            frozen_encoders=0 if cached else count,
            frozen_tensors=encoder_tensors(models, phase.network),
        )

    def _local(self, encoders: LocalTraining) -> LocalTraining:
        """How clients train the classifier, given how they trained the encoders."""
        lr = encoders.lr if self.lr is None else self.lr
        weight_decay = encoders.weight_decay if self.weight_decay is None else self.weight_decay
        return replace(encoders, lr=lr, weight_decay=weight_decay, epochs=1, steps=None)

    def _caches_features(self, dataset: Dataset) -> bool:
        """Whether every sample passes the frozen encoders once instead of in every batch."""
        # An augmented sample has other features in every epoch.
        constant = self.encoder_mode == "eval" and dataset.augmentation is None
        return self.features == "cached" or (self.features == "auto" and constant)


@config_class
class FewSteps(FedAvg):
    """The mean of models that were trained for the first few batches of an epoch.

    Attributes:
        most: steps of a client that has this many batches.
    """

    most: Annotated[int, Ge(1)]

    def steps(self, state: ServerState, cohort: torch.Tensor, usual: torch.Tensor, round: Round) -> torch.Tensor:
        return usual.clamp_max(self.most)


Embed = Callable[["torch.Tensor", bool], "torch.Tensor"]
"""Encoded inputs ``[B, ...]``, and whether encoders are in training mode, to embeddings ``[B, d]``."""


@dataclass(frozen=True)
class WideHead(ModelConfig):
    """A head on features: on the inputs themselves, or on the outputs of fixed encoders.

    Attributes:
        width: K d, the number of features.
        bias: whether it has a bias.
        initial: weight ``[C, K d]`` and bias ``[C]`` (empty for none) to start from; None: torch's initialisation.
        embed: the fixed encoders; None: the inputs are the features.
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


def concatenated_embeddings(encoders: FrozenEncoders, inputs: torch.Tensor, training: bool = False) -> torch.Tensor:
    """The features float32 ``[B, K d]`` of encoded inputs ``[B, ...]`` under K encoders side by side."""
    return torch.cat(list(encoders(inputs, training).values()), dim=1)


@dataclass(frozen=True)
class ConcatenatedFeatures:
    """An encoding: from stored samples to their features under several frozen encoders, in evaluation mode.

    Attributes:
        encoding: maps stored samples to the encoders' inputs.
        dimensions: number of dimensions of a stored sample.
        encoders: the models' encoders.
    """

    encoding: Encoding
    dimensions: int
    encoders: FrozenEncoders

    def __call__(self, stored: torch.Tensor) -> torch.Tensor:
        """Samples ``[..., *shape]`` to features float32 ``[..., K d]``."""
        leading = stored.ndim - self.dimensions
        flat = self.encoding(stored).flatten(0, leading - 1)
        return concatenated_embeddings(self.encoders, flat).view(*stored.shape[:leading], -1)


def joined_heads(models: Sequence[torch.Tensor], layout: Layout) -> tuple[torch.Tensor, torch.Tensor]:
    """The heads of models as one: weight ``[C, K d]``, side by side, and bias ``[C]``, their sum (empty for none)."""
    heads = [model[layout.head] for model in models]
    weight = torch.cat([layout.head_rows(head, with_bias=False) for head in heads], dim=1)
    return weight, torch.stack([layout.head_bias(head) for head in heads]).sum(0)


def encoder_tensors(models: Sequence[torch.Tensor], network: FlatNetwork) -> Vectors:
    """The encoders' tensors of several models under the names that they have in the concatenated network.

    Args:
        models: ``[P]`` each.
        network: network of one of them.

    Returns:
        Views ``encoder.encoders.M.*`` for each model M.
    """
    return {
        name.replace("encoder.", f"encoder.encoders.{number}.", 1): tensor
        for number, model in enumerate(models)
        for name, tensor in network.tensors(model).items()
        if not name.startswith("head.")
    }
