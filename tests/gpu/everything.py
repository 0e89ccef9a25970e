"""Checks and benchmarks of fedrun on a GPU, in a given number of minutes.

    python tests/gpu/everything.py [--minutes 8] [--device cuda] [--toy] [--wheels FOLDER] [--out gpu-results]
                                   [--only SECTION ...]

Needs Python 3.11 or later, torch with CUDA and a checkout; no network. It first names the Python packages that are
missing; ``--wheels`` names a folder from which they are installed into a temporary folder. The sections run in the
order of :data:`SECTIONS`; what does not fit into the time left is listed as not run. Every row is written at once:
``results.json`` and ``results.md`` below ``--out``. The exit status is 1 if a check failed.

With ``--toy --device cpu`` everything runs at toy size without a GPU.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

SECTIONS = (
    "agreement",
    "recurrent",
    "determinism",
    "resume",
    "distributed",
    "femnist",
    "convolutions",
    "tiny",
    "evaluation",
    "turbosvm",
    "lstm",
    "resnet",
)


def missing_packages() -> list[str]:
    """The requirements of fedrun that are not installed, by name."""
    import tomllib

    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [re.split(r"[<>=\[; ]", requirement)[0] for requirement in project["dependencies"]]
    installed = {distribution.name.lower().replace("_", "-") for distribution in importlib.metadata.distributions()}
    return [name for name in names if name not in installed]


def install(wheels: Path, folder: str) -> None:
    """Install all wheels of a folder into another folder and import from it."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", folder]
    subprocess.run([*pip, *map(str, sorted(wheels.glob("*.whl")))], check=True)
    sys.path.insert(0, folder)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))


def sections(device: str, toy: bool) -> dict[str, Callable[[], Iterable[dict[str, object]]]]:
    """The function of each section; each makes rows one by one, and a row with ``"ok": False`` is a failed check."""
    import benchmarks
    import checks

    return {
        "agreement": lambda: checks.agreement(device, toy),
        "recurrent": lambda: checks.recurrent(device, toy),
        "determinism": lambda: checks.determinism(device),
        "resume": lambda: checks.resume(device),
        "distributed": lambda: checks.distributed(device),
        "femnist": lambda: benchmarks.femnist(device, toy),
        "convolutions": lambda: benchmarks.convolutions(device, toy),
        "tiny": lambda: benchmarks.tiny(device, toy),
        "evaluation": lambda: benchmarks.evaluation(device, toy),
        "turbosvm": lambda: benchmarks.turbosvm(device, toy),
        "lstm": lambda: benchmarks.lstm(device, toy),
        "resnet": lambda: benchmarks.resnet(device, toy),
    }


def markdown(results: dict[str, list[dict[str, object]]]) -> str:
    """One Markdown table for each section."""

    def shown(value: object) -> str:
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    parts = []
    for name, rows in results.items():
        columns = list(dict.fromkeys(column for row in rows for column in row))
        lines = [f"## {name}", "", "| " + " | ".join(columns) + " |", "| " + " | ".join("---" for _ in columns) + " |"]
        lines += ["| " + " | ".join(shown(row.get(column, "")) for column in columns) + " |" for row in rows]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--toy", action="store_true", help="toy sizes, to test this script")
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--out", type=Path, default=Path("gpu-results"))
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    arguments = parser.parse_args()
    end = time.monotonic() + 60 * arguments.minutes

    with tempfile.TemporaryDirectory() as packages:
        if arguments.wheels is not None:
            install(arguments.wheels, packages)
        if missing := missing_packages():
            print(f"missing packages: {', '.join(missing)}; give a folder of wheels with --wheels", flush=True)
            return 2
        if arguments.device.startswith("cuda") and not _has_cuda():
            print("PyTorch sees no CUDA device; allowed without one: --device cpu --toy", flush=True)
            return 2
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        sys.path[:0] = [str(REPOSITORY), str(Path(__file__).parent), str(REPOSITORY / "tests" / "benchmarks")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
        arguments.out.mkdir(parents=True, exist_ok=True)
        results: dict[str, list[dict[str, object]]] = {}

        def write() -> None:
            (arguments.out / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            (arguments.out / "results.md").write_text(markdown(results), encoding="utf-8")

        for name, section in sections(arguments.device, arguments.toy).items():
            if name not in arguments.only:
                continue
            began = time.monotonic()
            rows = results[name] = []
            print(f"== {name}", flush=True)
            try:
                for row in section() if began < end else ():
                    rows.append(row)
                    write()
                    if time.monotonic() > end:
                        break
            except Exception as error:  # one section must not cost the results of the others
                traceback.print_exc()
                rows.append({"section": name, "ok": False, "error": f"{type(error).__name__}: {error}"})
            if time.monotonic() > end:
                rows.append({"section": name, "not run": "what is missing: no time left"})
            write()
            print(f"   {time.monotonic() - began:.1f} s", flush=True)
        print(markdown(results))
    failed = [name for name, rows in results.items() if any(row.get("ok") is False for row in rows)]
    if failed:
        print(f"failed: {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main())
