"""How well FedConcat-ID and -IB find the clusters of the clients' true labels, on Fashion-MNIST with two labels each.

The paper's setting: 40 clients, #C = 2, NIID-Bench's CNN, K = 5; `--epochs` shortens the first round, after which
clients are clustered (the paper has 10). Both inferences look at the same local models. What they infer and the true
label distributions are clustered by shares and by labels (`strategy.clustering.by`), and the two results are compared
by the adjusted Rand index: 1 for the same clusters, 0 for clusters that agree by chance. What can be asked of an
inference by shares shows K-means on the true shares, compared with itself from ten other starts and after normal noise
of 0.001 (means of 10). By labels, it is also counted how many clients' labels are inferred exactly.

    python tests/benchmarks/cluster_agreement.py DATA_DIR [--cache-dir DIR] [--seeds 0 1 2 3 4] [--epochs 2]
                                                          [--hparams fedconcat_c2] [--inputs 10000] [--threads 1]
                                                          [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean

import torch
from sklearn.metrics import adjusted_rand_score

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.execution.context import CohortJob, ExecutionContext
from fedrun.execution.in_process import InProcess
from fedrun.experiment.experiment import build_experiment
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.client_state import ClientStates
from fedrun.strategies.vectors import MODEL

BY = ("shares", "labels")
NOISE, DRAWS = 0.001, 10


def first_round(chosen: list[str]) -> tuple[ExecutionContext, torch.Tensor, list[tuple[torch.Tensor, int]]]:
    """The first round of FedConcat: where clients train, the common model, every client's model and number of steps."""
    simulation = Simulation(build_experiment(compose(chosen).config))
    state = simulation.initial()
    work = ExecutionContext.of(simulation.phase(state))
    task = CohortJob(torch.arange(len(work.clients)), 0, {MODEL: state.server.model}, ClientStates())
    sent = [(result.model.clone(), result.trained.steps) for result in InProcess(work).client_results(task)]
    return work, state.server.model, sent


def agreement(one: torch.Tensor, other: torch.Tensor) -> float:
    """The adjusted Rand index of two memberships ``[N, M]``."""
    return float(adjusted_rand_score(one.argmax(1).numpy(), other.argmax(1).numpy()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_dir")
    parser.add_argument("--cache-dir", default="null")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--hparams", default="fedconcat_c2", help="another partition, such as fedconcat_dir01")
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found: dict[str, list[float]] = {}

    def record(seed: int, name: str, value: float) -> None:
        print(f"seed {seed}: {name}: {value:.3f}", flush=True)
        found.setdefault(name, []).append(value)

    for seed in arguments.seeds:
        work, initial, sent = first_round(
            [
                "dataset=fmnist",
                "model=niid_simple_cnn",
                "strategy=fedconcat_id",
                f"hparams={arguments.hparams}",
                f"local.epochs={arguments.epochs}",
                f"seed={seed}",
                f"data_dir={arguments.data_dir}",
                f"cache_dir={arguments.cache_dir}",
                f"hardware.threads={arguments.threads}",
                "tracking=none",
            ]
        )
        reports = option("strategy/clustering", "label_distributions")
        shares = reports.reported(work)
        truth = {by: option("strategy/clustering", "label_distributions", by=by).before(work) for by in BY}
        draw = torch.Generator().manual_seed(seed)
        noisy = [shares + NOISE * torch.randn(shares.shape, generator=draw, dtype=shares.dtype) for _ in range(DRAWS)]
        elsewhere = [reports.membership(shares, seed + 1000 + other) for other in range(DRAWS)]
        for what, others in {
            f"noise of {NOISE}": [reports.membership(each, seed) for each in noisy],
            "other starts": elsewhere,
        }.items():
            record(seed, f"true shares, {what}", mean(agreement(each, truth["shares"]) for each in others))
        for name, changes in {"random_inputs": {"inputs": arguments.inputs}, "bias_movement": {}}.items():
            for by in BY:
                clustering = option("strategy/clustering", name, by=by, **changes)
                estimates = torch.stack([clustering.estimate(work, initial, *each) for each in sent])
                record(seed, f"{name} by {by}", agreement(clustering.infer(work, estimates), truth[by]))
            exact = (clustering.labels(estimates) == reports.labels(shares)).all(1)
            record(seed, f"{name}, clients with exact labels", exact.double().mean().item())
    for name, values in found.items():
        print(f"{name}: mean {mean(values):.3f}, least {min(values):.3f} of {len(values)} seeds")
    if arguments.json:
        arguments.json.write_text(json.dumps({"cluster_agreement": found}))


if __name__ == "__main__":
    main()
