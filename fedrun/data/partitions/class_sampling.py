"""Label skew by client: every client has its own distribution over classes, and draws from it without replacement."""

from __future__ import annotations

import numpy as np

BLOCK = 1 << 16
"""Draws repeated at a time."""


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
    """Let clients take one sample after the other, each by its own prior over the classes that are not yet empty.

    Client k draws ``sizes[k]`` times, at times that are uniform between ``begins[k]`` and ``begins[k] + durations[k]``.
    All draws are made at once, as if classes had no end. Then, class after class in the order in which they run empty,
    those that come too late are repeated, each at its own time, by the prior over the classes that still have samples.
    That is the law of one draw after the other: to draw by the prior and again while the class is empty is to draw by
    the renormalised prior, and until the first class is empty the order of draws changes nothing.

    Args:
        sizes: int64 ``[N]``; their sum is at most that of the classes.
        begins: float64 ``[N]``.
        durations: float64 ``[N]``.
        log_priors: logarithms of the clients' unnormalised priors ``[N, C]``; finite for each class that has samples.
        class_sizes: samples of each class, int64 ``[C]``.
        rng: of all that is drawn.

    Returns:
        Samples of each class that each client has drawn, int64 ``[C, N]``.
    """
    left, everyone = class_sizes.copy(), np.arange(len(sizes), dtype=np.int32)
    wanted = rng.multinomial(sizes, _probabilities(log_priors, left > 0)).T
    # By class, the draws not known to be in time: who makes them, and when.
    clients = [np.repeat(everyone, row) for row in wanted]
    times = [rng.random(len(who)) * durations[who] + begins[who] for who in clients]
    counts = np.zeros_like(wanted)
    while True:
        # When the first class is asked for one sample more than it has.
        ends = [_ranked(when, stock) for when, stock in zip(times, left.tolist(), strict=True)]
        emptied, end = int(np.argmin(ends)), min(ends)
        for label, (who, when) in enumerate(zip(clients, times, strict=True)):
            in_time = when < end
            if label == emptied:  # its last sample may be taken at that very time
                in_time[np.flatnonzero(when == end)[: left[label] - np.count_nonzero(in_time)]] = True
            counts[label] += np.bincount(who[in_time], minlength=len(sizes))
            left[label] -= np.count_nonzero(in_time)
            clients[label], times[label] = who[~in_time], when[~in_time]
        if end == np.inf:
            return counts
        who, when = clients[emptied], times[emptied]
        chosen = _chosen(log_priors, who, left > 0, rng)
        clients[emptied], times[emptied] = who[:0], when[:0]
        for label in np.flatnonzero(left).tolist():
            clients[label] = np.concatenate([clients[label], who[chosen == label]])
            times[label] = np.concatenate([times[label], when[chosen == label]])


def _ranked(values: np.ndarray, rank: int) -> float:
    """The value that exactly ``rank`` others precede; infinity where there is none."""
    return float(np.partition(values, rank)[rank]) if rank < len(values) else np.inf


def _chosen(log_priors: np.ndarray, clients: np.ndarray, available: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A class for each draw ``[m]`` of these clients, by their priors over the available classes (bool ``[C]``)."""
    chosen = np.empty(len(clients), dtype=np.min_scalar_type(len(available)))
    for start in range(0, len(clients), BLOCK):
        block = slice(start, start + BLOCK)
        # From the last class with a positive probability on the value reached is exactly 1, and no draw reaches it.
        reached = np.cumsum(_probabilities(log_priors[clients[block]], available), axis=1)
        reached /= reached[:, -1:].copy()
        chosen[block] = (rng.random(len(reached))[:, None] >= reached).sum(1)
    return chosen


def _probabilities(log_priors: np.ndarray, available: np.ndarray) -> np.ndarray:
    """Priors ``[N, C]`` over the available classes (bool ``[C]``)."""
    masked = np.where(available, log_priors, -np.inf)
    masked -= masked.max(1, keepdims=True)
    np.exp(masked, out=masked)
    masked /= masked.sum(1, keepdims=True)
    return masked
