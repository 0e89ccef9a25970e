"""TurboSVM-FL's server step at the paper's size against the naive implementation kept in the tests.

62 classes x 2048 dimensions x 8 clients, linear, one against one. The naive one reads ``SVC.coef_`` for every pair, as
the published code does; scikit-learn computes all hyperplanes anew on each access. Checks first that both select the
same support vectors and end at the same class embeddings.

    PYTHONPATH=tests/strategies python tests/benchmarks/turbosvm_server.py [--repeats 9] [--threads 2] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from naive_turbosvm import NaiveTurboSVM

from fedrun.config import build_experiment, compose
from fedrun.parameters import Layout
from fedrun.strategies.base import MODEL, CohortUpdate, Round

CLASSES, DIMENSIONS, CLIENTS = 62, 2048, 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)

    # A model that is nothing but its head: what the server step costs beyond averaging.
    size = CLASSES * (DIMENSIONS + 1)
    layout = Layout((), size, size, slice(0, size), CLASSES, DIMENSIONS)
    head = torch.nn.Linear(DIMENSIONS, CLASSES)
    start = torch.cat([head.weight.flatten(), head.bias]).detach()
    uploads = start + 0.02 * torch.randn(CLIENTS, size)
    samples = torch.randint(100, 350, (CLIENTS,))
    mean = (samples.float() / samples.sum()) @ uploads
    counts = torch.ones(CLIENTS, dtype=torch.int64)
    update = CohortUpdate(
        clients=torch.arange(CLIENTS),
        samples=samples,
        steps=counts,
        mean={MODEL: mean},
        total_weight=float(samples.sum()),
        rows=uploads,
        excluded=(),
        loss=0.0,
        accuracy=0.0,
        client_samples=0,
    )
    server = build_experiment(compose(["strategy=turbosvm", "rounds=200"]).config).strategy.server
    state = server.init(start, layout, 8)
    round = Round(0, 200, CLIENTS, layout, 0)

    times = []
    for _ in range(arguments.repeats + 1):
        began = time.perf_counter()
        after, metrics = server.aggregate(state, update, round)
        times.append(time.perf_counter() - began)
    ours = statistics.median(times[1:])

    naive = NaiveTurboSVM(layout.head_rows(start, with_bias=True), lr=0.01)
    began = time.perf_counter()
    support = naive.round(
        layout.head_rows(uploads, with_bias=True),
        samples.tolist(),
        1.0,
        layout.head_rows(mean, with_bias=True),
        list(range(CLASSES)),
    )
    theirs = time.perf_counter() - began
    assert [metrics[f"support_vectors/{c}"] for c in range(CLASSES)] == [len(support[c]) for c in range(CLASSES)]
    difference = (layout.head_rows(after.model, with_bias=True) - naive.embeddings.detach()).abs().max().item()
    assert difference < 1e-5, f"class embeddings differ by {difference}"
    print(
        f"TurboSVM-FL server step, {CLASSES} x {DIMENSIONS} x {CLIENTS}: {ours:.3f} s (median of {arguments.repeats})"
    )
    print(f"naive step: {theirs:.1f} s, {theirs / ours:.0f} x as long")
    print(f"same support vectors; class embeddings differ by at most {difference:.1e}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"turbosvm_server": {"seconds": ours, "naive_over_ours": theirs / ours}}))


if __name__ == "__main__":
    main()
