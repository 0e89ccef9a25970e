"""Label skew by client: every client has its own distribution over classes, and draws from it without replacement."""

from __future__ import annotations

import numpy as np

BLOCK = 1 << 16
"""Samples drawn at a time."""


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
    turns: np.ndarray, log_priors: np.ndarray, class_sizes: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Let clients take one sample after the other, each by its own prior over the classes that are not yet empty.

    Drawn in blocks, each of which counts up to the first draw that finds its class empty; from there on the priors are
    renormalised over the other classes. That is the law of one draw after the other; there are at most C such stops.

    Args:
        turns: the client that draws, for each draw, ``[m]``, m at most ``class_sizes.sum()``.
        log_priors: logarithms of the clients' unnormalised priors ``[N, C]``; finite for each class that has samples.
        class_sizes: samples of each class, int64 ``[C]``.
        rng: asked for uniform numbers.

    Returns:
        Samples of each class that each client has drawn, int64 ``[C, N]``.
    """
    clients, classes = log_priors.shape
    left = class_sizes.copy()
    drawn = np.empty(len(turns), dtype=np.min_scalar_type(classes))
    cumulative, done = _cumulative(log_priors, left > 0), 0
    while done < len(turns):
        block = turns[done : done + BLOCK]
        uniform = rng.random(len(block))
        # From the last class with a positive probability on the cumulative value is exactly 1, and no draw reaches it.
        reached, chosen = cumulative[block], np.zeros(len(block), dtype=drawn.dtype)
        for label in range(classes - 1):
            chosen += uniform >= reached[:, label]
        taken = np.bincount(chosen, minlength=classes)
        overdrawn = np.flatnonzero(taken > left)
        if len(overdrawn):
            stop = min(np.flatnonzero(chosen == label)[left[label]] for label in overdrawn)
            chosen = chosen[:stop]
            taken = np.bincount(chosen, minlength=classes)
        drawn[done : done + len(chosen)] = chosen
        done += len(chosen)
        left -= taken
        if len(overdrawn):
            cumulative = _cumulative(log_priors, left > 0)
    return np.stack([np.bincount(turns[drawn == label], minlength=clients) for label in range(classes)])


def _cumulative(log_priors: np.ndarray, available: np.ndarray) -> np.ndarray:
    """Cumulative probabilities of the available classes (bool ``[C]``), float64 ``[N, C]``, from the first class on."""
    masked = np.where(available, log_priors, -np.inf)
    masked -= masked.max(1, keepdims=True)
    cumulative = np.cumsum(np.exp(masked, out=masked), axis=1, out=masked)
    cumulative /= cumulative[:, -1:].copy()
    return cumulative
