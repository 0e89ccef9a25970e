"""pFedFDA: a shared encoder under Gaussian class-conditional heads (McLaughlin, Su, NeurIPS 2024, arXiv 2411.00329)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.client import Measurement
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.fedavg import FedAvg
from fedrun.strategies.fedper import FedPer
from fedrun.strategies.server import CohortUpdate, Round, ServerState
from fedrun.strategies.vectors import MODEL, Vectors
from fedrun.system.errors import InputError

MEANS = "feature_means"
"""m_c of every class: broadcast and sent up, ``[classes · d]``."""

COVARIANCE = "feature_covariance"
"""S, shared by all classes: broadcast and sent up, ``[d · d]``."""

SHRINKAGE = 1e-4
"""ε: the share of tr(S)/d · I in the covariance that a head is computed from."""

SMOOTHING = 1e-4
"""Samples added to each class of a client, so that π_k is positive."""

REGULARISATION = 1e-4
"""Added to a client's own covariance, on the diagonal (``small``) or to every entry (``released``)."""

START, ITERATIONS, TOLERANCE = 0.5, 10, 1e-3
"""Of the search for β."""


@dataclass(frozen=True)
class FeatureStatistics:
    """Gaussian class-conditional embeddings with one covariance.

    Attributes:
        means: m_c, float64 ``[classes, d]``.
        covariance: S, symmetric and positive semi-definite, float64 ``[d, d]``.
    """

    means: torch.Tensor
    covariance: torch.Tensor

    def mixed(self, other: FeatureStatistics, beta: torch.Tensor) -> FeatureStatistics:
        """β · other + (1 − β) · self, with β_1 for the means and β_2 for the covariance, ``[2]``."""
        return FeatureStatistics(
            torch.lerp(self.means, other.means, beta[0]), torch.lerp(self.covariance, other.covariance, beta[1])
        )

    def head(self, log_prior: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The linear discriminant, whose logits are log posteriors: weight ``[classes, d]`` and bias ``[classes]``."""
        scale = self.covariance.diagonal().mean()
        identity = torch.eye(len(self.covariance), dtype=scale.dtype, device=scale.device)
        # S' = (1 − ε) S + ε tr(S)/d I;  W_c = S'⁻¹ m_c;  b_c = ln π_c − m_cᵀ W_c / 2
        shrunk = (1 - SHRINKAGE) * self.covariance + SHRINKAGE * scale * identity
        weight = torch.linalg.solve(shrunk, self.means.T).T
        return weight, log_prior - (self.means * weight).sum(-1) / 2


@config_class
class PFedFDA(FedPer):
    """SGD of the encoder under a head that is computed, not trained, and never sent.

    The head of local training follows from the global statistics and the client's shares of the classes. After it the
    client measures the statistics of its own embeddings, under the trained encoder and in evaluation mode, and sends
    their mixture with the global ones along with the encoder. β ∈ [0, 1]² of the mixture has the least cross-entropy
    in a two-fold cross-validation of the head. With fewer than four samples β is 0.

    A client is evaluated by the global encoder with a head of its own, which is computed in the same way from the
    embeddings of its training samples under that encoder.

    The gradients of the encoder grow as the embeddings of a class contract, since the head follows from their inverse
    covariance. With ``small`` the learning rate must be lower than for other strategies.

    Attributes:
        covariance: the term that keeps a client's own covariance positive definite: ``small``: 1e-4 I; ``released``:
            the identity matrix and 1e-4 in every entry, as in the published code.
    """

    covariance: Literal["small", "released"]

    needs: ClassVar[frozenset[str]] = frozenset({MEANS, COVARIANCE})
    sends: ClassVar[frozenset[str]] = frozenset({MODEL, MEANS, COVARIANCE})
    wants: ClassVar[frozenset[Measurement]] = frozenset({"label_counts", "training_embeddings"})
    evaluates_newcomers: ClassVar[bool] = True

    def frozen(self, layout: Layout, epoch: int) -> torch.Tensor:
        return self.head(layout)

    def start(self, received: Vectors, client_state: Vectors, constants: Vectors, client: ClientInfo) -> torch.Tensor:
        assert client.label_counts is not None
        shared = global_statistics(received, client.layout)
        return with_head(received[MODEL], shared, smoothed_log_prior(client.label_counts), client.layout)

    def finish(
        self, model: torch.Tensor, received: Vectors, client_state: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        assert client.training_embeddings is not None
        assert client.label_counts is not None
        shared = global_statistics(received, client.layout)
        own = self.adapted(shared, client.training_embeddings(model), smoothed_log_prior(client.label_counts))
        means, covariance = own.means.flatten().to(model), own.covariance.flatten().to(model)
        return {MODEL: model, MEANS: means, COVARIANCE: covariance}, {}

    def own_model(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> torch.Tensor:
        assert client.training_embeddings is not None
        assert client.label_counts is not None
        layout, prior = client.layout, smoothed_log_prior(client.label_counts)
        adapted = self.adapted(global_statistics(received, layout), client.training_embeddings(received[MODEL]), prior)
        return with_head(received[MODEL], adapted, prior, layout)

    def adapted(
        self, shared: FeatureStatistics, samples: tuple[torch.Tensor, torch.Tensor], log_prior: torch.Tensor
    ) -> FeatureStatistics:
        """The mixture of the global statistics with those of a client's embeddings ``[n, d]`` and labels ``[n]``."""
        embeddings, labels = samples[0].double(), samples[1]
        beta = self.beta(shared, embeddings, labels, log_prior)
        return shared.mixed(self.statistics(shared, embeddings, labels), beta)

    def statistics(
        self, shared: FeatureStatistics, embeddings: torch.Tensor, labels: torch.Tensor
    ) -> FeatureStatistics:
        """The class means and the pooled covariance within classes; the global mean of a class that is missing."""
        # μ_c = the mean of the z_i of class c,  Σ = Σ_i (z_i − μ_{y_i}) (z_i − μ_{y_i})ᵀ / (n − 1) + the added term
        counts = torch.bincount(labels, minlength=len(shared.means))[:, None]
        sums = torch.zeros_like(shared.means).index_add_(0, labels, embeddings)
        means = torch.where(counts > 0, sums / counts.clamp_min(1), shared.means)
        centred = embeddings - means[labels]
        covariance = centred.T @ centred / max(len(labels) - 1, 1)
        if self.covariance == "released":
            covariance = covariance + REGULARISATION
        added = 1.0 if self.covariance == "released" else REGULARISATION
        covariance.diagonal().add_(added)
        return FeatureStatistics(means, covariance)

    def beta(
        self, shared: FeatureStatistics, embeddings: torch.Tensor, labels: torch.Tensor, log_prior: torch.Tensor
    ) -> torch.Tensor:
        """β of the means and of the covariance with the least cross-entropy on the other half of the samples, ``[2]``.

        Samples of each class alternate between the halves.
        """
        if len(labels) < 4:
            return embeddings.new_zeros(2)
        from scipy.optimize import minimize

        half = torch.empty_like(labels)
        half[labels.argsort(stable=True)] = torch.arange(len(labels), device=labels.device) % 2
        folds = [
            (self.statistics(shared, embeddings[half != fold], labels[half != fold]), half == fold) for fold in (0, 1)
        ]

        def cross_entropy(values: object) -> tuple[float, object]:
            beta = torch.tensor(values, dtype=embeddings.dtype, device=embeddings.device, requires_grad=True)
            loss = embeddings.new_zeros(())
            for local, held_out in folds:
                weight, bias = shared.mixed(local, beta).head(log_prior)
                logits = embeddings[held_out] @ weight.T + bias
                loss = loss + torch.nn.functional.cross_entropy(logits, labels[held_out], reduction="sum")
            loss = loss / len(labels)
            (slope,) = torch.autograd.grad(loss, beta)
            return loss.item(), slope.cpu().numpy()

        with torch.enable_grad():
            best = minimize(
                cross_entropy,
                (START, START),
                jac=True,
                method="L-BFGS-B",
                bounds=((0, 1), (0, 1)),
                tol=TOLERANCE,
                options={"maxiter": ITERATIONS},
            )
        return torch.tensor(best.x, dtype=embeddings.dtype, device=embeddings.device)


@config_class
class PFedFDAServer(FedAvg):
    """The weighted means of the encoders, the class means and the covariances.

    The class means begin as the rows of the initial model's head, which are uniform random numbers; the covariance
    begins as the identity matrix.
    """

    needs: ClassVar[frozenset[str]] = frozenset({MODEL, MEANS, COVARIANCE})
    sends: ClassVar[frozenset[str]] = frozenset({MODEL, MEANS, COVARIANCE})

    def init(self, model: torch.Tensor, layout: Layout, clients: int) -> ServerState:
        if not layout.has_head_bias:
            raise InputError(
                "strategy=pfedfda: the model's head has no bias; allowed: a model whose last layer has one"
            )
        means = layout.head_rows(model[layout.head], with_bias=False).flatten().clone()
        return ServerState(model, {MEANS: means, COVARIANCE: torch.eye(layout.embedding).flatten().to(model)})

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        # φ ← Σ_k p_k φ_k;  m_c ← Σ_k p_k m_kc;  S ← Σ_k p_k S_k
        return ServerState(update.mean[MODEL], {name: update.mean[name] for name in (MEANS, COVARIANCE)}), {}


def smoothed_log_prior(counts: torch.Tensor) -> torch.Tensor:
    """ln π_c of a client's samples per class, float64 ``[classes]``."""
    smoothed = counts.double() + SMOOTHING
    return (smoothed / smoothed.sum()).log()


def global_statistics(received: Vectors, layout: Layout) -> FeatureStatistics:
    """The broadcast statistics; a covariance that noise has made indefinite is projected to the semi-definite ones."""
    means = received[MEANS].double().view(layout.classes, layout.embedding)
    covariance = received[COVARIANCE].double().view(layout.embedding, layout.embedding)
    values, vectors = torch.linalg.eigh((covariance + covariance.T) / 2)
    if values[0] < 0:
        covariance = vectors * values.clamp_min(0) @ vectors.T
    return FeatureStatistics(means, covariance)


def with_head(
    model: torch.Tensor, statistics: FeatureStatistics, log_prior: torch.Tensor, layout: Layout
) -> torch.Tensor:
    """A model ``[P]`` whose head is the linear discriminant of these statistics."""
    weight, bias = statistics.head(log_prior)
    changed = model.clone()
    changed[layout.head] = layout.head_entries(weight, bias).to(changed)
    return changed
