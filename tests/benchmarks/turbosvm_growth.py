"""TurboSVM-FL's server step as cohorts and classes grow: seconds of its parts and most memory, each shape in a process.

Shapes are K classes x d dimensions x C clients, linear, one against one, 50 iterations per pair of classes as in print,
once with only a tenth of the classes in the SVM. "kernel" computes kernel values, "libsvm" is the solver on them,
"other" is the rest of the step. For up to ``--largest`` embeddings there is also scikit-learn's SVC on the embeddings
themselves, which computes kernel values as it needs them: the SVM as one would ask for it. Seconds are the processor's.

    python tests/benchmarks/turbosvm_growth.py [--shapes 62,2048,8 1000,512,16,0.1 ...] [--threads 1]
        [--largest 8000] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import torch
from head_only import head_only
from peak_memory import peak
from sklearn.svm import SVC

from fedrun.config.composed import compose
from fedrun.experiment.experiment import build_experiment
from fedrun.strategies import svm

P, T = ParamSpec("P"), TypeVar("T")

SHAPES = ("62,2048,8", "62,2048,64", "62,2048,255", "62,2048,512", "1000,512,16", "1000,512,16,0.1")


def measure(shape: str, largest: int) -> dict[str, float]:
    """A server step of one shape; in a fresh process, lest another's memory counts."""
    classes, dimensions, clients = map(int, shape.split(",")[:3])
    share = shape.split(",")[3:] or ["1.0"]
    chosen = ["strategy=turbosvm", "rounds=200", f"strategy.server.classes_per_round={share[0]}"]
    server = build_experiment(compose(chosen).config).strategy.server
    spent = {"kernel": 0.0, "libsvm": 0.0}

    def timed(name: str, function: Callable[P, T]) -> Callable[P, T]:
        def call(*arguments: P.args, **named: P.kwargs) -> T:
            began = time.process_time()
            result = function(*arguments, **named)
            spent[name] += time.process_time() - began
            return result

        return call

    svm.Kernel.__call__ = timed("kernel", svm.Kernel.__call__)  # type: ignore[method-assign]
    SVC.fit = timed("libsvm", SVC.fit)
    small = head_only(3, 4, 2)
    server.aggregate(server.init(small.start, small.round.layout, 2), small.update, small.round)  # loads libraries
    spent |= dict.fromkeys(spent, 0.0)
    case = head_only(classes, dimensions, clients)
    state = server.init(case.start, case.round.layout, clients)
    assert case.update.rows is not None
    before, began = peak(), time.process_time()
    server.aggregate(state, case.update, case.round)
    total = time.process_time() - began
    parts = {**spent, "other": total - sum(spent.values()), "peak_bytes": peak() - before}
    rows = case.round.layout.head_rows(case.update.rows, with_bias=True).double()
    if share == ["1.0"] and classes * clients <= largest:
        labels = torch.arange(classes).repeat(clients)
        began = time.process_time()
        SVC(kernel="linear", C=1.0, tol=1e-3, max_iter=50).fit(rows.flatten(0, 1).numpy(), labels.numpy())
        parts["SVC on embeddings"] = time.process_time() - began
    return parts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=SHAPES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--largest", type=int, default=8000, help="embeddings; more take scikit-learn's SVC minutes")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.measure:
        print(json.dumps(measure(arguments.measure, arguments.largest)))
        return
    found = {}
    for shape in arguments.shapes:
        settings = ["--threads", str(arguments.threads), "--largest", str(arguments.largest)]
        command = [sys.executable, __file__, "--measure", shape, *settings]
        answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        found[shape] = parts = json.loads(answer.splitlines()[-1])
        seconds = ", ".join(f"{name} {value:.2f} s" for name, value in parts.items() if name != "peak_bytes")
        print(f"{shape:16s} {seconds}; {parts['peak_bytes'] / 1e9:.2f} GB", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({"turbosvm_growth": found}))


if __name__ == "__main__":
    main()
