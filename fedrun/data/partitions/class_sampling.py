"""Sampling without replacement where every client has its own distribution over classes."""

from __future__ import annotations

import numpy as np

BLOCK = 1 << 16
"""Draws that are repeated at once."""


def log_dirichlet(concentrations: np.ndarray, clients: int, rng: np.random.Generator) -> np.ndarray:
    """Draws from Dir(concentrations), one per client, as unnormalised logarithms: float64 ``[N, C]``.

    Logarithms, because the gamma variates of small concentrations underflow: Gamma(a) is Gamma(a + 1) U^{1/a}, U
    uniform. A concentration of 0 gives a class of probability 0.
    """
    shape = (clients, len(concentrations))
    with np.errstate(divide="ignore"):
        powers = rng.standard_exponential(shape) / concentrations
    logarithms: np.ndarray = np.log(rng.standard_gamma(concentrations + 1, shape)) - powers
    return logarithms


def draw_counts(
    sizes: np.ndarray,
    begins: np.ndarray,
    durations: np.ndarray,
    log_priors: np.ndarray,
    class_sizes: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Clients draw one sample after another, each by its own prior over the classes that are not yet empty.

    Client k draws ``sizes[k]`` times, at times that are uniform between ``begins[k]`` and ``begins[k] + durations[k]``.
    All draws are made at once, as if classes were unlimited. Then, for each class in the order in which they run empty,
    the draws that come too late are repeated at their times by the prior over the classes that still have samples. The
    result has the law of successive draws: to draw by the prior, and again while the class is empty, is to draw by the
    renormalised prior, and before the first class is empty the order of the draws has no effect.

    Args:
        sizes: int64 ``[N]``; their sum is at most that of the classes.
        begins: float64 ``[N]``.
        durations: float64 ``[N]``.
        log_priors: logarithms of the clients' unnormalised priors ``[N, C]``; finite for each class that has samples.
        class_sizes: samples of each class, int64 ``[C]``.
        rng: source of all draws.

    Returns:
        Number of samples of each class that each client has drawn, int64 ``[C, N]``.
    """
    left, numbers = class_sizes.copy(), np.arange(len(sizes), dtype=np.int32)
    drawn = rng.multinomial(sizes, _probabilities(log_priors, left > 0)).T
    # By class, the client and the time of each draw that is not yet known to be in time.
    clients = [np.repeat(numbers, row) for row in drawn]
    times = [rng.random(len(client)) * durations[client] + begins[client] for client in clients]
    counts = np.zeros_like(drawn)
    while True:
        # The time of each class's first draw beyond its last sample.
        ends = [_ranked(class_times, remaining) for class_times, remaining in zip(times, left.tolist(), strict=True)]
        emptied, end = int(np.argmin(ends)), min(ends)
        for label, (client, time) in enumerate(zip(clients, times, strict=True)):
            in_time = time < end
            if label == emptied:  # its last sample may be drawn at exactly that time
                in_time[np.flatnonzero(time == end)[: left[label] - np.count_nonzero(in_time)]] = True
            counts[label] += np.bincount(client[in_time], minlength=len(sizes))
            left[label] -= np.count_nonzero(in_time)
            clients[label], times[label] = client[~in_time], time[~in_time]
        if end == np.inf:
            return counts
        client, time = clients[emptied], times[emptied]
        redrawn = _draw_classes(log_priors, client, left > 0, rng)
        clients[emptied], times[emptied] = client[:0], time[:0]
        for label in np.flatnonzero(left).tolist():
            clients[label] = np.concatenate([clients[label], client[redrawn == label]])
            times[label] = np.concatenate([times[label], time[redrawn == label]])


def _ranked(values: np.ndarray, rank: int) -> float:
    """The value at position ``rank`` of the sorted values; infinity beyond the last."""
    return float(np.partition(values, rank)[rank]) if rank < len(values) else np.inf


def _draw_classes(
    log_priors: np.ndarray, clients: np.ndarray, available: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """A class for each draw ``[m]`` of these clients, by their priors over the available classes (bool ``[C]``)."""
    classes = np.empty(len(clients), dtype=np.min_scalar_type(len(available)))
    for start in range(0, len(clients), BLOCK):
        block = slice(start, start + BLOCK)
        # From the last class of positive probability on, the cumulative probability is exactly 1: above every draw.
        cumulative = np.cumsum(_probabilities(log_priors[clients[block]], available), axis=1)
        cumulative /= cumulative[:, -1:].copy()
        classes[block] = (rng.random(len(cumulative))[:, None] >= cumulative).sum(1)
    return classes


def _probabilities(log_priors: np.ndarray, available: np.ndarray) -> np.ndarray:
    """Priors ``[N, C]`` over the available classes (bool ``[C]``)."""
    masked = np.where(available, log_priors, -np.inf)
    masked -= masked.max(1, keepdims=True)
    np.exp(masked, out=masked)
    masked /= masked.sum(1, keepdims=True)
    return masked
