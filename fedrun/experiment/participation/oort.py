"""Oort: clients with useful data and fast devices take part (Lai et al., OSDI 2021, arXiv 2010.06081, algorithm 1)."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge, Gt, Le

from fedrun.config.config_class import config_class
from fedrun.experiment.participation.base import Candidates, Participation, RoundOutcome
from fedrun.strategies.vectors import Vectors
from fedrun.system.randomness import numpy_generator

LARGEST = 1e300
"""The largest utility, of which a window has sums."""


@config_class
class Oort(Participation):
    """Of the M participants of round R = 1, 2, .., ⌈ε_R M⌉ are clients that have not taken part before, if there are
    enough; the others are drawn by the utility of their last round. A client has taken part if the server has used an
    upload of its.

    The paper's U(i) = n_i √(mean of the samples' squared losses) is computed here from the mean loss, as n_i · loss_i,
    because clients of fedrun report no squares. It is less than the paper's where the losses of the samples differ.

    Three points follow the authors' code, because the algorithm does not define them: utilities are scaled to [0, 1]
    (here after they are clipped), the preferred duration is a quantile (here of the clients that have taken part), and
    the pacer compares the mean utility of the clients that were drawn by utility. New clients are drawn uniformly, not
    by the speed of their devices. A client can take part in any number of rounds.

    Attributes:
        exploration: ε_1, the share of new clients at first.
        exploration_decay: the factor of ε from round to round.
        exploration_min: the least ε.
        clip: quantile of the utilities at which larger ones are clipped.
        cutoff: c; if m clients are drawn by utility, then from those with at least c times the m-th largest one.
        penalty: α; the utility of clients slower than the preferred duration T is multiplied by (T / D_i)^α.
        fast_share: share of the known clients with a duration D_i of at most T, until the pacer adds to it.
        fast_step: how much the pacer adds to this share when the utility falls.
        window: W, the rounds after which the pacer compares the utility with that of the W rounds before.
    """

    exploration: Annotated[float, Ge(0), Le(1)]
    exploration_decay: Annotated[float, Gt(0), Le(1)]
    exploration_min: Annotated[float, Ge(0), Le(1)]
    clip: Annotated[float, Gt(0), Le(1)]
    cutoff: Annotated[float, Ge(0), Le(1)]
    penalty: Annotated[float, Ge(0)]
    fast_share: Annotated[float, Gt(0), Le(1)]
    fast_step: Annotated[float, Ge(0), Le(1)]
    window: Annotated[int, Ge(1)]

    def initial_history(self, clients: int) -> Vectors:
        return {
            "utility": torch.zeros(clients, dtype=torch.float64),  # U(i)
            "seconds": torch.zeros(clients, dtype=torch.float64),  # D_i
            "round": torch.zeros(clients, dtype=torch.int64),  # L(i), the last round; 0: none
            "fast_share": torch.tensor([self.fast_share], dtype=torch.float64),
            "window": torch.zeros(2, dtype=torch.float64),  # utility of the last W rounds, and of the current ones
        }

    def participants(self, candidates: Candidates) -> tuple[torch.Tensor, dict[str, float]]:
        took_part = candidates.history["round"] > 0
        known, new = took_part.nonzero().flatten(), (~took_part).nonzero().flatten()
        # ε_R = max(ε_min, ε_1 decay^(R − 1)); the other group fills up one that is too small
        exploration = max(self.exploration_min, self.exploration * self.exploration_decay**candidates.round)
        exploiting = candidates.size - math.ceil(exploration * candidates.size - 1e-9)
        exploiting = min(len(known), max(exploiting, candidates.size - len(new)))
        random = numpy_generator(candidates.seed, "selection", candidates.round)
        explored = random.choice(new.numpy(), candidates.size - exploiting, replace=False)
        exploited = np.zeros(0, dtype=np.int64)
        if exploiting:
            scores = self._scores(candidates.history, known, candidates.round + 1).numpy()
            # from the clients with at least c times the utility of the last of the best, with p_i ∝ Util(i)
            admitted = scores >= self.cutoff * np.partition(scores, -exploiting)[-exploiting]
            shares = scores[admitted] / scores[admitted].sum()
            exploited = random.choice(known.numpy()[admitted], exploiting, replace=False, p=shares)
        chosen = torch.from_numpy(np.concatenate([exploited, explored]))
        return chosen, {"clients/explored": float(len(known))}

    def _scores(self, history: Vectors, known: torch.Tensor, round: int) -> torch.Tensor:
        """Util(i) of the clients that have taken part, float64 ``[n]``, in round R ≥ 2."""
        utility, seconds = history["utility"][known], history["seconds"][known]
        utility = utility.clamp(max=float(np.quantile(utility.numpy(), self.clip)))
        scaled = (utility - utility.min()) / (utility.max() - utility.min()).clamp(min=1e-12)
        # Util(i) = U(i) + √(0.1 ln R / L(i))
        scores = scaled + (0.1 * math.log(round) / history["round"][known]).sqrt()
        # Util(i) ← Util(i) (T / D_i)^α if T < D_i
        place = max(1, math.ceil(float(history["fast_share"]) * len(known) - 1e-9))
        preferred = seconds.kthvalue(place).values
        slow = seconds > preferred
        scores[slow] *= (preferred / seconds[slow]) ** self.penalty
        return scores.clamp(min=1e-300)  # a large α makes 0 of it, and clients with p_i = 0 cannot be drawn

    def next_history(self, history: Vectors, outcome: RoundOutcome) -> Vectors:
        clients, round = outcome.clients, outcome.round + 1
        # a loss that has overflowed is large, and one of no samples is 0
        utility = (outcome.samples * outcome.losses).nan_to_num(0.0, posinf=LARGEST, neginf=-LARGEST)
        exploited = utility[history["round"][clients] > 0]
        before, current = history["window"].tolist()
        current += float(exploited.mean()) if len(exploited) else 0.0
        share = history["fast_share"]
        if round % self.window == 0:
            # T ← T + Δ if Σ U(R − 2W : R − W) > Σ U(R − W : R)
            if round > self.window and before > current:
                share = (share + self.fast_step).clamp(max=1.0)
            before, current = current, 0.0
        return {
            "utility": history["utility"].index_put((clients,), utility),
            "seconds": history["seconds"].index_put((clients,), outcome.seconds),
            "round": history["round"].index_put((clients,), torch.tensor(round)),
            "fast_share": share,
            "window": torch.tensor([before, current], dtype=torch.float64),
        }
