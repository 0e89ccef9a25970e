import io

import pytest
from rich.console import Console

from fedrun.runs.display.result_table import result_table
from fedrun.system.checksums import write_checksums

SUMMARY = {
    "status": "complete",
    "title": "turbosvm · femnist · seed 0",
    "rounds": 100,
    "final": {"test/loss": 0.5, "test/accuracy": 0.71234, "train/loss": 0.25, "time/round_s": 0.1, "cost/params_up": 7},
    "best": {"test/accuracy": {"value": 0.72, "round": 95}, "test/loss": {"value": 0.45, "round": 60}},
    "rounds_to": {"0.70": 12, "0.925": None},
    "cap": 200,
    "seconds": 123.4,
    "folder": "outputs/runs/femnist/turbosvm/0f3a/seed=0",
}


def test_the_result_of_a_run():
    console = Console(width=80, file=io.StringIO())
    console.print(result_table(SUMMARY))
    assert [line.rstrip() for line in console.file.getvalue().splitlines()] == [
        "turbosvm · femnist · seed 0",
        "                   final (round 100)      best   in round",
        "─────────────────────────────────────────────────────────",
        "test accuracy                71.23 %   72.00 %         95",
        "test loss                     0.5000    0.4500         60",
        "train loss                    0.2500",
        "",
        "rounds to 70 %                    12",
        "rounds to 92.5 %                >200",
        "",
        "time    2:03 min in rounds and tests",
        "folder  outputs/runs/femnist/turbosvm/0f3a/seed=0",
        "curves  outputs/runs/femnist/turbosvm/0f3a/seed=0/curves.png",
    ]


@pytest.mark.parametrize("width", [20, 30, 48])
def test_a_terminal_too_narrow_for_the_table_has_lines_with_whole_numbers(width):
    """The table needs 8 columns for the longest word of its names, 17, 7 and 8 for the others and 3 x 3 between."""
    console = Console(width=width, file=io.StringIO())
    console.print(result_table(SUMMARY))
    words = " ".join(console.file.getvalue().split())
    assert words.startswith(
        "turbosvm · femnist · seed 0, after round 100 test accuracy: 71.23 %, best 72.00 % in round 95 "
        "test loss: 0.5000, best 0.4500 in round 60 train loss: 0.2500 rounds to 70 %: 12 rounds to 92.5 %: >200 time "
    )


def test_a_narrow_table_folds_its_names_only():
    console = Console(width=49, file=io.StringIO())
    console.print(result_table(SUMMARY))
    assert [line.rstrip() for line in console.file.getvalue().splitlines()][1:5] == [
        "           final (round 100)      best   in round",
        "─────────────────────────────────────────────────",
        "test                 71.23 %   72.00 %         95",
        "accuracy",
    ]


def test_a_long_path_and_brackets_are_shown_whole():
    folder = "/".join(["outputs", "runs", *["very-long-name"] * 8, "model.layers=[1,2]"])
    console = Console(width=80, file=io.StringIO())
    console.print(result_table(SUMMARY | {"folder": folder}))
    written = "".join(line.removeprefix("        ").rstrip() for line in console.file.getvalue().splitlines())
    assert f"folder  {folder}" in written


def test_deleted_files_are_named(tmp_path):
    for name in ("curves.png", "model.safetensors", "metrics.jsonl"):
        (tmp_path / name).touch()
    write_checksums(tmp_path, ["curves.png", "model.safetensors", "metrics.jsonl"])
    (tmp_path / "curves.png").unlink()
    (tmp_path / "model.safetensors").unlink()
    console = Console(width=200, file=io.StringIO())
    console.print(result_table(SUMMARY | {"folder": str(tmp_path)}))
    last = " ".join(console.file.getvalue().splitlines()[-1].split())
    assert last == "missing curves.png, model.safetensors (deleted since; overwrite=true starts over)"


def test_epsilon_stands_with_its_delta():
    console = Console(width=100, file=io.StringIO())
    final = SUMMARY["final"] | {"privacy/epsilon": 7.98, "privacy/delta": 0.0135}
    console.print(result_table(SUMMARY | {"final": final}))
    assert "privacy ε at δ = 0.0135" in console.file.getvalue()


def test_epsilon_without_a_delta():
    console = Console(width=100, file=io.StringIO())
    console.print(result_table(SUMMARY | {"final": SUMMARY["final"] | {"privacy/epsilon": 7.98}}))
    line = next(line for line in console.file.getvalue().splitlines() if "privacy ε" in line)
    assert line.split()[:3] == ["privacy", "ε", "7.9800"]
