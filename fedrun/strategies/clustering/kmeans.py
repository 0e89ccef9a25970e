"""K-means over clients, with a choice of the number of clusters and a limit on their sizes."""

from __future__ import annotations

import logging
import warnings

import numpy as np
import torch

from fedrun.strategies.clustering.base import one_hot
from fedrun.system.errors import InputError
from fedrun.system.randomness import address, numpy_generator

log = logging.getLogger(__name__)

ITERATIONS = 100
"""Of the size-limited K-means, as in FedConcat's code."""

SLACK = 1.2
"""Largest ratio of a cluster's size to the mean size there."""


def clustered(
    vectors: torch.Tensor, clusters: int | None, max_clusters: int, balanced: bool, seed: int
) -> torch.Tensor:
    """Cluster clients by vectors.

    Args:
        vectors: v_k, float64 ``[N, C]``.
        clusters: K; None: by :func:`elbow`, at most ``max_clusters``.
        max_clusters: largest K considered by :func:`elbow`.
        balanced: limit the clusters' sizes, see :func:`limited`.
        seed: seed of K-means++ and of the points to which centres of empty clusters move.

    Returns:
        The membership, float64 ``[N, M]`` with M ≤ K non-empty clusters.

    Raises:
        InputError: there are more clusters than clients.
    """
    points = vectors.double().numpy()
    check_number(clusters, len(points))
    different = len(np.unique(points, axis=0))
    if clusters is None:
        inertias = [_kmeans(points, count, seed)[2] for count in range(1, min(max_clusters, different) + 1)]
        clusters = elbow(inertias + [0.0] * (max_clusters - different))
        log.info("the elbow is at %d clusters", clusters)
    if clusters > different:
        log.warning(
            "%d clusters were requested, but only %d clients differ: using as many clusters", clusters, different
        )
    labels, centres, _ = _kmeans(points, min(clusters, different), seed)
    if balanced:
        labels = limited(points, centres, numpy_generator(seed, "clusters/jump"))
    used, labels = np.unique(labels, return_inverse=True)
    log.info("clients per cluster: %s", np.bincount(labels).tolist())
    return one_hot(torch.from_numpy(labels).to(torch.int64), len(used))


def check_number(clusters: int | None, clients: int) -> None:
    """Reject more clusters than clients.

    Raises:
        InputError: naming the key and what is allowed.
    """
    if clusters is not None and clusters > clients:
        raise InputError(
            f"strategy.clustering.clusters={clusters}: there are {clients} clients; allowed: 1 to {clients}, or null to"
            " choose by the elbow"
        )


def _kmeans(points: np.ndarray, clusters: int, seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    """The best of ten restarts: labels ``[N]``, centres ``[K, C]``, sum of squared distances."""
    from sklearn.cluster import KMeans

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = KMeans(clusters, n_init=10, random_state=address(seed, "clusters") % 2**32).fit(points)
    return fitted.labels_, fitted.cluster_centers_, float(fitted.inertia_)


def elbow(inertias: list[float]) -> int:
    """The number of clusters where the curve of K-means inertias bends most.

    That is the K whose point lies farthest below the straight line from the first point (K = 1) to the last; 1 where
    the curve has no bend.

    Args:
        inertias: the inertia of K = 1, 2, ...
    """
    curve = np.asarray(inertias)
    return int(np.argmax(np.linspace(curve[0], curve[-1], len(curve)) - curve)) + 1


def limited(points: np.ndarray, centres: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """K-means whose clusters have at most ⌊1.2 N / K⌋ members (FedConcat's code, kmeanslimited.py), labels ``[N]``.

    A cluster that is too large expels its farthest members; they go, in their order, to the nearest cluster with room.
    The limit is ⌈N / K⌉ where that is more, as otherwise there would not be room for all.

    Args:
        points: ``[N, C]``.
        centres: ``[K, C]`` to start from.
        draw: chooses the points that the centres of empty clusters jump to.
    """
    count, clusters = len(points), len(centres)
    limit = max(int(SLACK * count / clusters), -(-count // clusters))
    centres = centres.copy()
    labels = np.zeros(count, dtype=np.int64)
    for _ in range(ITERATIONS):
        distances = ((points[:, None] - centres) ** 2).sum(2)  # [N, K]
        labels = distances.argmin(1)
        for empty in np.flatnonzero(np.bincount(labels, minlength=clusters) == 0):
            centres[empty] = points[draw.integers(count)]
            distances[:, empty] = ((points - centres[empty]) ** 2).sum(1)
        expelled = []
        for cluster in range(clusters):
            members = np.flatnonzero(labels == cluster)
            farthest = members[np.argsort(-distances[members, cluster], kind="stable")]
            expelled += farthest[: max(0, len(members) - limit)].tolist()
        sizes = np.bincount(np.delete(labels, expelled), minlength=clusters)
        for point in sorted(expelled):
            room = np.where(sizes < limit, distances[point], np.inf)
            labels[point] = room.argmin()
            sizes[labels[point]] += 1
        moved = np.stack(
            [points[labels == cluster].mean(0) if sizes[cluster] else centres[cluster] for cluster in range(clusters)]
        )
        if np.array_equal(moved, centres):
            break
        centres = moved
    return labels
