"""MaxFL's toy problem: clients that estimate means (Cho et al., TMLR 2024, arXiv 2205.14840).

``python docs/examples/maxfl_mean_estimation.py`` prints a table and writes ``mean_estimation.csv`` and
``mean_estimation.png`` into the current folder. Two clients are the paper's setting; for three it is not known.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch.nn.functional import softplus

CLIENTS = (2, 3)
SPREADS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0)
"""γ/ν, the heterogeneity: half the distance of the true means in units of an estimate's standard deviation."""

Row = tuple[int, float, float, float]
"""Number of clients, γ/ν, and the GM-Appeal of FedAvg and of MaxFL."""


@dataclass(frozen=True)
class MeanEstimation:
    """How often one global estimate appeals to clients whose true means differ.

    Client k has the true mean θ_k and knows its empirical one, θ̂_k ~ N(θ_k, ν²). Its training loss is F_k(w) =
    (w − θ̂_k)², its true loss f_k(w) = (w − θ_k)²; alone it would use θ̂_k, so that F_k is compared with F_k(θ̂_k) = 0 in
    training, and a global estimate w appeals to it if f_k(w) < f_k(θ̂_k). Half of the clients, rounded up,
    have θ_k = −γ, the others γ.
    FedAvg's estimate is the mean of the θ̂_k; MaxFL's follows from its server steps from the initial estimate 0.

    Attributes:
        deviation: ν > 0, the standard deviation of a client's own estimate.
        draws: how often the θ̂_k are drawn for each point of a curve.
        steps: number of steps of MaxFL's server.
        lr: learning rate > 0 of a client's single local step.
        seed: seed of the draws.
    """

    deviation: float = 1.0
    draws: int = 2000
    steps: int = 300
    lr: float = 0.1
    seed: int = 0

    def appeal(self, clients: int, spread: float) -> tuple[float, float]:
        """GM-Appeal of FedAvg's and of MaxFL's estimate, each the mean over all draws."""
        side = torch.where(torch.arange(clients) < -(-clients // 2), -1.0, 1.0).double()
        true = side * spread * self.deviation
        generator = torch.Generator().manual_seed(self.seed)
        noise = torch.randn(self.draws, clients, generator=generator, dtype=torch.float64)
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


def plot(rows: list[Row], path: Path) -> None:
    """GM-Appeal against heterogeneity, one panel for each number of clients."""
    counts = sorted({row[0] for row in rows})
    figure = Figure(figsize=(4.2 * len(counts), 3.4), layout="constrained")
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
    figure.savefig(path, dpi=150)


def main(folder: Path = Path()) -> None:
    """Compute the curves, print them and write them into a folder."""
    problem = MeanEstimation()
    rows: list[Row] = [(count, spread, *problem.appeal(count, spread)) for count in CLIENTS for spread in SPREADS]
    print("GM-Appeal", "clients  spread  fedavg   maxfl", sep="\n")
    for count, spread, fedavg, maxfl in rows:
        print(f"{count:7d}  {spread:6.2f}  {fedavg:6.3f}  {maxfl:6.3f}")
    with (folder / "mean_estimation.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("clients", "spread", "fedavg", "maxfl"), *rows])
    plot(rows, folder / "mean_estimation.png")


if __name__ == "__main__":
    main()
