"""TurboSVM-FL's server as in the paper's Algorithms 1 to 3: lists, loops, scikit-learn, autograd, torch's Adam."""

from __future__ import annotations

import math
import warnings

import numpy as np
import torch
from sklearn.svm import SVC

Kernels = dict[str, float | int | str]


def stacked(clients: torch.Tensor, classes: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """SVM samples and labels of class embeddings ``[M, C, d]``: client by client, classes ascending within each."""
    rows, labels = [], []
    for client in range(clients.shape[0]):
        for label in classes:
            rows.append(clients[client, label].double().numpy())
            labels.append(label)
    return np.stack(rows), np.array(labels)


def fitted(rows: np.ndarray, labels: np.ndarray, penalty: float, max_iterations: int, **kernel: float | str) -> SVC:
    """The published code's C-SVC."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SVC(**{"kernel": "linear", **kernel}, C=penalty, tol=1e-3, max_iter=max_iterations).fit(rows, labels)


def selected(svm: SVC, labels: np.ndarray) -> dict[int, list[int]]:
    """For each class, the positions of its support vectors among the samples."""
    return {
        int(label): [int(index) for index in svm.support_ if labels[index] == label] for label in svm.classes_.tolist()
    }


def aggregate(rows: np.ndarray, positions: list[int], weights: list[float]) -> np.ndarray:
    """Σ n e / Σ n over some of the samples."""
    total, vector = 0.0, np.zeros(rows.shape[1])
    for position in positions:
        vector = vector + weights[position] * rows[position]
        total += weights[position]
    return vector / total


def linear_loss(svm: SVC, embeddings: torch.Tensor, classes: list[int]) -> torch.Tensor:
    """Algorithm 2's double loop over pairs; row after row of ``coef_``, embeddings ``[C, d]``."""
    loss, pair = torch.zeros((), dtype=torch.float64), 0
    normals = torch.from_numpy(svm.coef_.copy())  # a property that is computed anew whenever it is read
    for i in range(len(classes)):
        for j in range(i + 1, len(classes)):
            normal = normals[pair]
            pair += 1
            length = float(normal.norm())
            if length > 0:
                distance = (normal @ embeddings[classes[i]] - normal @ embeddings[classes[j]]) / length
                loss = loss + torch.exp(-(distance**2) / 2)
    return loss


def one_against_rest_loss(
    rows: np.ndarray, labels: np.ndarray, penalty: float, max_iterations: int, embeddings: torch.Tensor
) -> tuple[torch.Tensor, dict[int, list[int]]]:
    """A binary SVM per class: the loss, and the support vectors of each class in its own problem."""
    loss, support = torch.zeros((), dtype=torch.float64), {}
    classes = sorted(set(labels.tolist()))
    for own in classes:
        svm = fitted(rows, np.where(labels == own, 1, -1), penalty, max_iterations)
        normal = torch.from_numpy(svm.coef_[0].copy())
        support[own] = [int(index) for index in svm.support_ if labels[index] == own]
        for other in classes:
            if other != own:
                distance = normal @ embeddings[own] - normal @ embeddings[other]
                loss = loss + torch.exp(-(distance**2) / (2 * (normal @ normal)))
    return loss, support


def kernel_value(settings: Kernels, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    if settings["kernel"] == "rbf":
        return torch.exp(-settings["gamma"] * ((u - v) ** 2).sum())
    inner = settings["gamma"] * (u @ v) + settings["coef0"]
    return inner ** settings["degree"] if settings["kernel"] == "poly" else torch.tanh(inner)


def kernel_loss(
    svm: SVC, rows: np.ndarray, labels: np.ndarray, settings: Kernels, embeddings: torch.Tensor
) -> torch.Tensor:
    """h·φ(u) and ‖h‖² as sums over a pair's dual coefficients, found in libsvm's packed rows.

    For the pair i < j, row j − 1 holds the coefficients of class i's support vectors, row i those of class j's.
    """
    loss = torch.zeros((), dtype=torch.float64)
    classes = len(svm.classes_)
    points = [torch.from_numpy(rows[index].copy()) for index in svm.support_]
    for i in range(classes):
        for j in range(i + 1, classes):
            terms = []
            for column, index in enumerate(svm.support_):
                if labels[index] == i:
                    terms.append((svm.dual_coef_[j - 1, column], points[column]))
                elif labels[index] == j:
                    terms.append((svm.dual_coef_[i, column], points[column]))
            squared = sum(a * b * float(kernel_value(settings, s, t)) for a, s in terms for b, t in terms)
            if not squared > 0:
                continue
            at_i = sum(a * kernel_value(settings, s, embeddings[i]) for a, s in terms)
            at_j = sum(a * kernel_value(settings, s, embeddings[j]) for a, s in terms)
            loss = loss + torch.exp(-((at_i - at_j) ** 2) / (2 * squared))
    return loss


class NaiveTurboSVM:
    """Class embeddings ``[C, d + 1]`` (weight row and bias) and one Adam over all rounds; linear, one against one."""

    def __init__(self, embeddings: torch.Tensor, lr: float, eps: float = 1e-5, max_iterations: int = 50) -> None:
        self.embeddings = torch.nn.Parameter(embeddings.double().clone())
        self.adam = torch.optim.Adam([self.embeddings], lr=lr, eps=eps)
        self.max_iterations = max_iterations
        self.selective = self.spread_out = True

    def round(
        self, clients: torch.Tensor, samples: list[int], penalty: float, base: torch.Tensor, classes: list[int]
    ) -> dict[int, list[int]]:
        """One server update.

        Args:
            clients: uploaded class embeddings ``[M, C, d + 1]``.
            samples: n_k.
            penalty: C_t.
            base: ``[C, d + 1]``, what the base aggregation made of them.
            classes: those that enter the SVM, ascending.

        Returns:
            For each of those classes, which clients' embeddings are support vectors.
        """
        rows, labels = stacked(clients, classes)
        weights = [float(samples[position // len(classes)]) for position in range(len(labels))]
        svm = fitted(rows, labels, penalty, self.max_iterations)
        support = selected(svm, labels)
        with torch.no_grad():
            self.embeddings.copy_(base)
            if self.selective:
                for label in classes:
                    if support[label]:
                        self.embeddings[label] = torch.from_numpy(aggregate(rows, support[label], weights))
        if self.spread_out:
            self.adam.zero_grad()
            linear_loss(svm, self.embeddings, classes).backward()
            self.adam.step()
        return {label: [position // len(classes) for position in support[label]] for label in classes}


def mean_rows(clients: torch.Tensor, samples: list[int]) -> torch.Tensor:
    """FedAvg's weighted mean."""
    total = torch.zeros_like(clients[0], dtype=torch.float64)
    for own, count in zip(clients, samples, strict=True):
        total = total + count * own.double()
    return total / math.fsum(samples)
