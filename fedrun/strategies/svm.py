"""A multi-class SVM over class embeddings, in dual form, so that the same code serves every kernel.

Notation: M clients, C classes; sample (i, m) is client m's embedding of class i. libsvm (through scikit-learn) gets one
Gram matrix. All later computations on its hyperplanes are sums over dual coefficients and kernel values, so no
hyperplane is formed. The code loops over pairs of classes only for cohorts whose Gram matrix would be very large.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from sklearn.svm import SVC

BLOCK = 512
"""Rows of a large Gram matrix that are computed at a time."""

PAIRWISE = 256
"""Number of clients from which pairs of classes are fitted one by one. The kernel values of two classes then take
longer than a call of scikit-learn, and those of all classes take gigabytes.
"""

Solve: TypeAlias = "Callable[[torch.Tensor, np.ndarray], SVC]"
"""Fits an SVM to a Gram matrix ``[n, n]`` and labels ``[n]``."""

KernelName = Literal["linear", "poly", "rbf", "sigmoid"]
Multiclass = Literal["ovo", "ovr"]


@dataclass(frozen=True)
class Kernel:
    """k(u, v): linear u·v; poly (γ u·v + c₀)^degree; rbf exp(−γ ‖u − v‖²); sigmoid tanh(γ u·v + c₀)."""

    name: KernelName
    gamma: float
    coef0: float
    degree: int

    def __call__(self, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Kernel values ``[n, m]`` of the rows of ``u`` ``[n, d]`` and ``v`` ``[m, d]``; differentiable."""
        products = u @ v.T
        if self.name == "linear":
            return products
        if self.name == "poly":
            return (self.gamma * products + self.coef0) ** self.degree
        if self.name == "sigmoid":
            return torch.tanh(self.gamma * products + self.coef0)
        distances = (u * u).sum(1)[:, None] + (v * v).sum(1)[None, :] - 2 * products
        return torch.exp(-self.gamma * distances.clamp_min(0))


@dataclass(frozen=True)
class FittedSVM:
    """The dual solution.

    Attributes:
        multiclass: ``ovo``: one binary problem per pair of classes; ``ovr``: one per class against all others.
        samples: the embeddings, float64 ``[C, M, d]``.
        dual: signed dual coefficients y α, float64. ovo: ``[C, C, M]``, entry (i, j, m) is the coefficient of sample
            (i, m) in the problem of classes i and j. ovr: ``[C, C, M]``, entry (c, i, m) is the coefficient of sample
            (i, m) in the problem of class c against the rest.
        support: bool ``[C, M]``: sample (i, m) supports its own class i in at least one problem of class i.
        squared_norms: ‖h‖² of the normals: ovo ``[C, C]`` (symmetric, zero diagonal), ovr ``[C]``.
        early_stops: True if libsvm's iteration limit ended some problem early.
    """

    multiclass: Multiclass
    samples: torch.Tensor
    dual: torch.Tensor
    support: torch.Tensor
    squared_norms: torch.Tensor
    early_stops: bool


def fit(
    samples: torch.Tensor,
    kernel: Kernel,
    multiclass: Multiclass,
    penalty: float,
    tolerance: float,
    max_iterations: int,
) -> FittedSVM:
    """Fit a C-SVC to class embeddings.

    Args:
        samples: float64 ``[M, C, d]``: for each client, in the order of selection, its C class embeddings. libsvm's
            choice among equally good points depends on this order.
        kernel: see :class:`Kernel`.
        multiclass: ``ovo`` or ``ovr``.
        penalty: libsvm's C > 0.
        tolerance: libsvm's stopping tolerance.
        max_iterations: SMO iterations per binary problem; −1 for no limit.

    Raises:
        ValueError: kernel values or coefficients are not finite.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import SVC

    early_stops: list[bool] = []

    def solve(gram: torch.Tensor, labels: np.ndarray) -> SVC:
        # the extremes are not finite if any value is not; torch.isfinite would copy the matrix
        if not torch.stack(gram.aminmax()).isfinite().all():
            raise ValueError("kernel values are not finite")
        svm = SVC(kernel="precomputed", C=penalty, tol=tolerance, max_iter=max_iterations)
        svm.fit(gram.numpy(), labels)
        early_stops.append(svm.fit_status_ == 1)
        return svm

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if multiclass == "ovr":
            dual, norms = _against_the_rest(samples, kernel, solve)
            support = dual.diagonal(dim1=0, dim2=1).T != 0
        else:
            dual, norms = (_one_against_one if len(samples) < PAIRWISE else _pair_by_pair)(samples, kernel, solve)
            support = (dual != 0).any(dim=1)
    return FittedSVM(multiclass, samples.transpose(0, 1), dual, support, norms, any(early_stops))


def gram_matrix(kernel: Kernel, rows: torch.Tensor) -> torch.Tensor:
    """Kernel values ``[n, n]`` of all pairs of rows ``[n, d]``; only one of the two symmetric halves is computed."""
    if len(rows) <= BLOCK:
        return kernel(rows, rows)
    gram = rows.new_empty(len(rows), len(rows))
    for begin in range(0, len(rows), BLOCK):
        end = min(begin + BLOCK, len(rows))
        gram[begin:end, begin:] = values = kernel(rows[begin:end], rows[begin:])
        gram[end:, begin:end] = values[:, end - begin :].T
    return gram


def _one_against_one(samples: torch.Tensor, kernel: Kernel, solve: Solve) -> tuple[torch.Tensor, torch.Tensor]:
    """Coefficients ``[C, C, M]`` and squared norms ``[C, C]`` (see :class:`FittedSVM`) from one Gram matrix."""
    clients, classes, _ = samples.shape
    # Class by class, so that the kernel values of a pair lie side by side: libsvm reads them faster, and the order of a
    # class's samples, on which its result depends, stays that of the clients.
    labels = np.repeat(np.arange(classes), clients)
    gram = gram_matrix(kernel, samples.transpose(0, 1).flatten(0, 1))
    svm = solve(gram, labels)
    # scikit-learn packs, for a sample of class i, the problems with the other classes in ascending order: class j is in
    # row j below i and in row j − 1 above it.
    other = np.arange(classes)[:, None]
    own = labels[svm.support_][None, :]
    packed = np.take_along_axis(svm.dual_coef_, np.clip(other - (other > own), 0, classes - 2), axis=0)
    unpacked = np.zeros((classes, len(labels)))  # entry (j, s): of sample s in the problem of its own class and class j
    unpacked[:, svm.support_] = np.where(other == own, 0.0, packed)
    dual = torch.from_numpy(unpacked).view(classes, classes, clients).transpose(0, 1).contiguous()
    return dual, _ovo_squared_norms(dual, gram.view(classes, clients, classes, clients))


def _pair_by_pair(samples: torch.Tensor, kernel: Kernel, solve: Solve) -> tuple[torch.Tensor, torch.Tensor]:
    """The same result with the memory of C + 4 matrices of M² kernel values, one pair of classes at a time."""
    by_class = samples.transpose(0, 1)
    classes, clients, _ = by_class.shape
    dual, norms = samples.new_zeros(classes, classes, clients), samples.new_zeros(classes, classes)
    labels = np.repeat([0, 1], clients)
    within = [kernel(own, own) for own in by_class]
    gram = samples.new_empty(2 * clients, 2 * clients)
    for i, j in combinations(range(classes), 2):
        across = kernel(by_class[i], by_class[j])
        gram[:clients, :clients], gram[:clients, clients:] = within[i], across
        gram[clients:, :clients], gram[clients:, clients:] = across.T, within[j]
        signed = -_binary(solve(gram, labels), len(labels))  # the first class is the positive one
        dual[i, j], dual[j, i] = signed[:clients], signed[clients:]
        norms[i, j] = norms[j, i] = signed @ gram @ signed
    return dual, norms


def _against_the_rest(samples: torch.Tensor, kernel: Kernel, solve: Solve) -> tuple[torch.Tensor, torch.Tensor]:
    """Coefficients ``[C, C, M]`` and squared norms ``[C]`` (see :class:`FittedSVM`)."""
    clients, classes, _ = samples.shape
    labels = np.tile(np.arange(classes), clients)
    gram = gram_matrix(kernel, samples.flatten(0, 1))
    dual = torch.stack([_binary(solve(gram, labels == target), len(labels)) for target in range(classes)])
    norms = ((dual @ gram) * dual).sum(1)
    return dual.view(classes, clients, classes).transpose(1, 2), norms


def _binary(svm: SVC, samples: int) -> torch.Tensor:
    """A binary problem's coefficients, float64 ``[samples]``; those of the larger label are positive."""
    dual = torch.zeros(samples, dtype=torch.float64)
    dual[svm.support_] = torch.from_numpy(svm.dual_coef_[0])
    return dual


def _ovo_squared_norms(dual: torch.Tensor, gram: torch.Tensor) -> torch.Tensor:
    """‖h_ij‖² ``[C, C]`` from the coefficients ``[C, C, M]`` and the Gram matrix ``[C, M, C, M]``."""
    within = gram.diagonal(dim1=0, dim2=2).permute(2, 0, 1)  # [C, M, M]
    own = (torch.einsum("ijm,imn->ijn", dual, within) * dual).sum(-1)
    # Σ_mn a_ijm k((i, m), (j, n)) a_jin, class by class, because einsum would make a permuted copy of the Gram matrix
    cross = torch.stack([torch.einsum("jm,mjn,jn->j", ours, gram[i], dual[:, i]) for i, ours in enumerate(dual)])
    return own + own.T + 2 * cross


def spread_out_loss(svm: FittedSVM, kernel: Kernel, embeddings: torch.Tensor) -> torch.Tensor:
    """How close the classes' embeddings lie along the SVM's normals; differentiable in ``embeddings``.

    ovo: Σ_{i<j} exp(−(h_ij·u_i − h_ij·u_j)² / (2 ‖h_ij‖²));
    ovr: Σ_c Σ_{c'≠c} exp(−(h_c·u_c − h_c·u_c')² / (2 ‖h_c‖²)).

    Problems whose ‖h‖² is not positive (no support vectors, or an indefinite kernel) are skipped.

    Args:
        embeddings: u, float64 ``[C, d]``, one row per class of the SVM.
    """
    classes, clients, _ = svm.samples.shape
    values = kernel(svm.samples.flatten(0, 1), embeddings).view(classes, clients, classes)  # k((i, m), u_c)
    if svm.multiclass == "ovo":
        to_own = torch.einsum("ijm,im->ij", svm.dual, values.diagonal(dim1=0, dim2=2).T)  # Σ_m a_ijm k((i, m), u_i)
        to_other = torch.einsum("ijm,imj->ij", svm.dual, values)  # Σ_m a_ijm k((i, m), u_j)
        # h_ij·u_i takes class i's part from to_own and class j's part, seen from j, from to_other
        distance = (to_own + to_other.T) - (to_other + to_own.T)
        counted = torch.ones(classes, classes, dtype=torch.bool).triu(1) & (svm.squared_norms > 0)
        norms = svm.squared_norms
    else:
        projections = svm.dual.flatten(1) @ values.flatten(0, 1)  # h_c·u_c'
        distance = projections.diagonal()[:, None] - projections
        norms = svm.squared_norms[:, None].expand(classes, classes)
        counted = ~torch.eye(classes, dtype=torch.bool) & (norms > 0)
    return torch.exp(-(distance[counted] ** 2) / (2 * norms[counted])).sum()
