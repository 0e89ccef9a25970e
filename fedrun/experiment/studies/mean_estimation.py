"""MaxFL's toy problem: clients that estimate means (Cho et al., TMLR 2024, arXiv 2205.14840)."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated

import torch
from annotated_types import Ge, Gt, MinLen
from torch.nn.functional import softplus

from fedrun.config.config_class import config_class
from fedrun.experiment.studies.base import Study
from fedrun.system.atomic_file import atomic_write
from fedrun.system.randomness import generator


@config_class
class MeanEstimation(Study):
    """How often one global estimate appeals to clients whose true means differ.

    Client k has the true mean θ_k and knows its empirical one, θ̂_k ~ N(θ_k, ν²). Its training loss is F_k(w) =
    (w − θ̂_k)², its true loss f_k(w) = (w − θ_k)²; alone it would use θ̂_k, so that F_k is compared with F_k(θ̂_k) = 0 in
    training, and a global estimate w appeals to it if f_k(w) < f_k(θ̂_k). Half of the clients, rounded up,
    have θ_k = −γ, the others γ (for two clients the paper's setting; for three it is not known).
    FedAvg's estimate is the mean of the θ̂_k; MaxFL's follows from its server steps from the initial estimate 0.

    Attributes:
        clients: numbers of clients, at least 2 each; 2 and 3 in the paper.
        spreads: γ/ν, the heterogeneity in units of the estimates' standard deviation, at least 0 each.
        deviation: ν > 0, standard deviation of a client's estimate.
        draws: how often the θ̂_k are drawn for each point of a curve.
        steps: number of steps of MaxFL's server.
        lr: learning rate > 0 of a client's single local step.
    """

    clients: Annotated[tuple[Annotated[int, Ge(2)], ...], MinLen(1)]
    spreads: Annotated[tuple[Annotated[float, Ge(0)], ...], MinLen(1)]
    deviation: Annotated[float, Gt(0)]
    draws: Annotated[int, Ge(1)]
    steps: Annotated[int, Ge(1)]
    lr: Annotated[float, Gt(0)]

    def run(self, folder: Path, seed: int) -> str:
        rows = [(count, spread, *self.appeal(count, spread, seed)) for count in self.clients for spread in self.spreads]
        with (folder / "mean_estimation.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["clients", "spread", "fedavg", "maxfl"])
            writer.writerows(rows)
        figure = folder / "mean_estimation.png"
        plot(rows, figure)
        lines = [f"{count:7d}  {spread:6.2f}  {fedavg:6.3f}  {maxfl:6.3f}" for count, spread, fedavg, maxfl in rows]
        return "\n".join(["GM-Appeal", "clients  spread  fedavg   maxfl", *lines, f"figure  {figure}"])

    def appeal(self, clients: int, spread: float, seed: int) -> tuple[float, float]:
        """GM-Appeal of FedAvg's and of MaxFL's estimate, each the mean over all draws."""
        side = torch.where(torch.arange(clients) < -(-clients // 2), -1.0, 1.0).double()
        true = side * spread * self.deviation
        draw = generator(seed, "means", clients)
        noise = torch.randn(self.draws, clients, generator=draw, dtype=torch.float64)
        known = true + self.deviation * noise  # θ̂, [draws, clients]
        average = known.mean(1, keepdim=True)
        estimate = torch.zeros_like(average)  # at FedAvg's estimate the gradients of two clients cancel exactly
        for _ in range(self.steps):
            estimate = self.server_step(estimate, known)

        def appeals(estimate: torch.Tensor) -> float:
            # f_k(w) < f_k(θ̂_k)
            return ((estimate - true) ** 2 < (known - true) ** 2).double().mean().item()

        return appeals(average), appeals(estimate)

    def server_step(self, estimate: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
        """One round of MaxFL with a single local step: estimates ``[draws, 1]``, clients' own ``[draws, clients]``."""
        moved = -self.lr * 2 * (estimate - known)
        # w ← w + Σ q_k Δ_k / Σ q_k, with q_k = σ(x)(1 − σ(x)) at x = F_k(w) − ρ_k = (w − θ̂_k)²; of its logarithm, as
        # far from all clients every q_k underflows to 0
        gap = (estimate - known) ** 2
        shares = torch.softmax(-softplus(gap) - softplus(-gap), 1)
        return estimate + (shares * moved).sum(1, keepdim=True)


def plot(rows: list[tuple[int, float, float, float]], path: Path) -> None:
    """GM-Appeal against heterogeneity, one panel for each number of clients."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    counts = sorted({row[0] for row in rows})
    figure = Figure(figsize=(4.2 * len(counts), 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, count in zip(figure.subplots(1, len(counts), squeeze=False, sharey=True)[0], counts, strict=True):
        selected = [row for row in rows if row[0] == count]
        for column, (name, style) in enumerate([("FedAvg", "o--"), ("MaxFL", "s-")], start=2):
            axes.plot([row[1] for row in selected], [row[column] for row in selected], style, label=name, markersize=4)
        axes.set_title(f"{count} clients")
        axes.set_xlabel("heterogeneity γ/ν")
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylim(bottom=0)  # of all panels, after the last one: it ends autoscaling
    figure.axes[0].set_ylabel("GM-Appeal")
    figure.axes[0].legend(frameon=False)
    with atomic_write(path) as file:
        figure.savefig(file, format="png", dpi=150)
