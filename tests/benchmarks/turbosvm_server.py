"""TurboSVM-FL's server step at the paper's size against the naive implementation kept in the tests.

62 classes x 2048 dimensions x 8 clients, linear, one against one. The naive one walks over the 1 891 pairs one by one.
It reads ``SVC.coef_`` once: scikit-learn computes all hyperplanes anew on each access, so a loop that reads it for each
pair takes far longer still. Checks first that both select the same support vectors and end at the same embeddings.

    PYTHONPATH=tests/helpers python tests/benchmarks/turbosvm_server.py [--repeats 9] [--threads 2] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from head_only import head_only
from naive_turbosvm import NaiveTurboSVM

from fedrun.config.composed import compose
from fedrun.experiment.experiment import build_experiment
from fedrun.strategies.vectors import MODEL

CLASSES, DIMENSIONS, CLIENTS = 62, 2048, 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    case = head_only(CLASSES, DIMENSIONS, CLIENTS)
    start, update, round, layout = case.start, case.update, case.round, case.round.layout
    assert update.rows is not None
    uploads, samples, mean = update.rows, update.samples, update.mean[MODEL]
    server = build_experiment(compose(["strategy=turbosvm", "rounds=200"]).config).strategy.server
    state = server.init(start, layout, CLIENTS)

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
