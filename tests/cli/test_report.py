from __future__ import annotations

import csv
import os
import subprocess
import sys

import pytest
from matplotlib.image import imread

from fedrun.cli import report
from fedrun.cli.entrypoint import exit_status
from fedrun.report.papers.cell_jobs import cell_configs
from fedrun.runs.outcome import Outcome

from ..helpers.run_folders import rows


def run(arguments):
    return exit_status(report.run, "fedrun-report", arguments)


@pytest.fixture
def runs(folders):
    for seed, value in enumerate((0.5, 0.6)):
        folders.write(seed, rows(0.1, 0.3, value))
        folders.write(seed, rows(0.1, 0.8, value + 0.1 * (seed + 1)), changes={"local.lr": 0.2})
    return str(folders.top)


def test_options_may_stand_between_folders(runs, capsys):
    assert run([f"{runs}/*", "--format", "csv", runs]) == 0
    assert capsys.readouterr().out.startswith("folder,name,dataset,")


def test_markdown_is_the_default(runs, capsys):
    assert run([runs, "--baseline", "local.lr=0.1", "--metric", "test/accuracy", "--target", "0.3"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("## Settings\n\n| setting      | dataset |")
    assert "| local.lr=0.2 | 70.00 ± 10.00 |" in out
    assert "## Difference from local.lr=0.1" in out
    assert "test loss" not in out
    assert err == ""


def test_own_options_are_named_as_on_the_command_line(folders, tmp_path, capsys):
    option = tmp_path / "own" / "participation" / "least_loss.yaml"
    option.parent.mkdir(parents=True)
    option.write_text("_target_: mine.rules.LeastLoss\n")
    for target, value in (("mine.rules.LeastLoss", 0.3), ("fedrun.experiment.participation.base.Participation", 0.6)):
        folders.write(0, rows(0.1, value, value), changes={"participation._target_": target})
    top = str(folders.top)
    assert run([top, "--format", "csv"]) == 0
    assert {row["participation"] for row in csv.DictReader(capsys.readouterr().out.splitlines())} == {
        "LeastLoss",  # the option's name is in the folder of options only
        "everyone",
    }
    assert run([top, "--config-dir", str(tmp_path / "own"), "--baseline", "participation=least_loss"]) == 0
    assert "| participation=everyone | +30.00 " in capsys.readouterr().out


def test_latex_csv_and_html_go_to_files(runs, tmp_path, capsys):
    starts = {
        "latex": "% needs \\usepackage{booktabs}\n",
        "csv": "folder,name,dataset,strategy,seed,complete,local.lr,round,",
        "html": "<!doctype",
    }
    for format, start in starts.items():
        path = tmp_path / f"report.{format}"
        assert run([runs, "--format", format, "--to", str(path)]) == 0
        assert path.read_text().startswith(start)
        assert capsys.readouterr().out == f"{path}\n"


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("report.TEX", "% needs \\usepackage{booktabs}\n"),
        ("runs.csv", "folder,name,dataset,"),
        ("report.html", "<!doctype"),
        ("report.md", "## Settings\n"),
        ("report", "## Settings\n"),
    ],
)
def test_the_end_of_a_files_name_chooses_the_format(runs, tmp_path, name, start):
    path = tmp_path / name
    assert run([runs, "--to", str(path)]) == 0
    assert path.read_text().startswith(start)


@pytest.mark.parametrize("against", ["rounds", "params", "samples", "seconds"])
def test_a_curve(runs, tmp_path, capsys, against):
    path = tmp_path / "curve.png"
    assert run([runs, "--curve", "test/accuracy", "--against", against, "--target", "0.7", "--to", str(path)]) == 0
    assert imread(path).shape[:2] == (736, 1152)  # 4.6 x 7.2 inches at 160 dots
    assert capsys.readouterr().out == f"{path}\n"


def test_a_curve_of_what_each_setting_reports(folders, tmp_path, capsys):
    """The one run of an earlier version reports nothing."""
    pooled, own = "the global model on 40 pooled test samples", "each client's own model on the client's own samples"
    for strategy, key, tested in (("fedavg", "test/accuracy", pooled), ("ditto", "clients/accuracy_mean", own)):
        for seed in (0, 1):
            content = [{**row, "clients/accuracy_mean": 0.9} for row in rows(0.1, 0.5)]
            changes = {"strategy.server._target_": f"fedrun.strategies.{strategy}.{strategy}"}
            summary = {"reported": key, "decisions": {"tested": tested}}
            folders.write(seed, content, strategy=strategy, changes=changes, summary=summary)
    folders.write(0, rows(0.1, 0.5), changes={"local.lr": 0.2})
    path = tmp_path / "curve.png"
    assert run([str(folders.top), "--curve", "reported", "--to", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{path}\n"
    assert err.splitlines() == [
        "fedrun-report: A curve is the mean over seeds, with a band of ± one standard deviation (ddof 0).",
        f"fedrun-report: Not tested alike: ditto: {own}; fedavg: {pooled}.",
        "fedrun-report: Reported: clients mean accuracy of ditto.",
        "fedrun-report: Reported: test accuracy of fedavg.",
    ]
    table = tmp_path / "runs.csv"
    assert run([str(folders.top), "--to", str(table)]) == 0
    with table.open(newline="") as file:
        written = [(row["strategy"], row["reported"], row["reported_metric"]) for row in csv.DictReader(file)]
    assert sorted(written) == [
        *([("ditto", "0.9", "clients/accuracy_mean")] * 2),
        ("fedavg", "", ""),
        *([("fedavg", "0.5", "test/accuracy")] * 2),
    ]


def test_settings_without_a_place_on_the_axis_are_left_out_and_named(folders, tmp_path, capsys, monkeypatch):
    """One run has no privacy, and one clips without noise: its ε is infinite, in the file null."""
    spent: dict[str, list[float | None]] = {"none": [], "noised": [0.0, 0.5, 0.7], "clipped": [0.0, None, None]}
    for name, losses in spent.items():
        content = rows(0.1, 0.3, 0.5)
        for row, epsilon in zip(content, losses, strict=False):
            row["privacy/epsilon"] = epsilon
        folders.write(0, content, changes={"privacy.own": name})
    drawn = []
    plot = "fedrun.runs.display.panels.plot_panels"
    monkeypatch.setattr(plot, lambda panels, *_, **__: drawn.extend(map(list, panels.values())))
    path = tmp_path / "curve.png"
    assert run([str(folders.top), "--curve", "test/accuracy", "--against", "epsilon", "--to", str(path)]) == 0
    assert drawn == [["privacy.own=noised"]]
    assert capsys.readouterr().err == (
        "fedrun-report: test/accuracy against epsilon: no round of all seeds has both; "
        "left out: privacy.own=clipped, privacy.own=none\n"
    )


def test_a_curve_of_a_run_that_was_only_estimated_so_far(folders, tmp_path, capsys):
    """Unfinished, with adaptive evaluation: no round was tested fully."""
    more = {"test/accuracy_estimate": 0.4, "test/evaluated": 256.0}
    tested = ("test/accuracy", "test/loss")
    content = [{key: value for key, value in row.items() if key not in tested} for row in rows(None, None, **more)]
    folders.write(0, content, changes={"evaluation": {"adaptive": True}}, complete=False)
    path = tmp_path / "curve.png"
    assert run([str(folders.top), "--curve", "test/accuracy", "--to", str(path)]) == 0
    assert imread(path).shape[:2] == (736, 1152)
    assert run([str(folders.top), "--curve", "test/f1", "--to", str(path)]) == 2
    assert "fedrun-report: test/f1: no run has this metric; allowed: " in capsys.readouterr().err


def test_a_path_behind_an_equals_sign_may_begin_with_the_home_folder(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run([runs, "--to=~/report.md"]) == 0
    assert (tmp_path / "report.md").is_file() and capsys.readouterr().out == f"{tmp_path}/report.md\n"


def test_the_curves_are_named_by_what_differs_among_their_runs(folders, monkeypatch):
    """The run without the metric differs in the batch size, too."""
    drawn = []
    monkeypatch.setattr("fedrun.cli.report.draw", lambda settings, *_: drawn.extend(one.name for one in settings))
    for lr in (0.3, 0.4):
        content = [{**row, "clients/accuracy_mean": lr} for row in rows(0.1, 0.3)]
        folders.write(0, content, changes={"local.lr": lr, "local.batch_size": 5})
    folders.write(0, rows(0.1, 0.3), changes={"local.lr": 0.4, "local.batch_size": 7})
    assert run([str(folders.top), "--curve", "clients/accuracy_mean"]) == 0
    assert drawn == ["local.lr=0.3", "local.lr=0.4"]


def test_a_sweeps_folder_leads_to_its_runs(folders, tmp_path, capsys):
    """Jobs without a run are named: failed ones, those whose run was deleted, and files that no sweep has written."""
    sweep = tmp_path / "sweep"
    for number in range(2):
        job = sweep / str(number)
        job.mkdir(parents=True)
        Outcome((), {"folder": str(folders.write(number, rows(0.1, 0.3)))}, None).save(job)
    (sweep / "2").mkdir()
    Outcome((), None, "diverged").save(sweep / "2")
    assert run([str(sweep)]) == 0
    output = capsys.readouterr()
    assert "| 0, 1  |" in output.out and output.err == f"fedrun-report: {sweep}/2: its job failed (diverged)\n"
    (sweep / "3").mkdir()
    for other in ("[]", '{"overrides": [], "summary": {"folder": ["a"]}, "error": null}', '{"overrides": 3}', "{"):
        (sweep / "3" / "outcome.json").write_text(other)
        assert run([str(sweep)]) == 2
        output = capsys.readouterr()
        assert "| 0, 1  |" in output.out and f"{sweep}/3/outcome.json: is not the outcome" in output.err
    deleted = tmp_path / "deleted"
    Outcome((), {"folder": str(deleted)}, None).save(sweep / "3")
    assert run([str(sweep)]) == 2
    assert f"{sweep}/3: no folder {deleted} of its run; " in capsys.readouterr().err


def test_a_picture_without_a_file_goes_to_a_folder_of_its_own_among_the_runs(runs, capsys):
    assert run([runs, "--curve", "test/accuracy"]) == 0
    assert capsys.readouterr().out == f"{runs}/pictures/test_accuracy.png\n"
    assert run([runs, "--curve", "test/accuracy"]) == 0  # the folder is no run, and may exist
    capsys.readouterr()
    assert run([runs, "--curve", "test/accuracy", "--against", "params"]) == 0
    assert capsys.readouterr().out == f"{runs}/pictures/test_accuracy_against_params.png\n"


def test_a_picture_of_a_pattern_goes_to_the_first_folder_that_it_matches(runs, folders, capsys):
    folders.write(0, rows(0.1, 0.3, 0.5), dataset="mnist")
    assert run([f"{runs}/absent", f"{runs}/*/*", "--curve", "test/accuracy"]) == 0
    assert capsys.readouterr().out == f"{runs}/runs/digits/pictures/test_accuracy.png\n"


def test_a_papers_table_and_all_of_them(folders, tmp_path, capsys):
    config = next(iter(cell_configs("turbosvm/table2", "small").values()))
    folders.write(0, rows(0.1, 0.8), config=config)
    assert run([str(folders.top), "--table", "turbosvm/table2", "--scale", "small"]) == 0
    table = capsys.readouterr().out
    assert table.startswith("## TurboSVM-FL, table 2.")
    path = tmp_path / "RESULTS.md"
    assert run([str(folders.top), "--results", "--to", str(path)]) == 0
    written = path.read_text()
    assert written.startswith("# Results\n\nThe papers' tables with our numbers next to theirs")
    assert table.strip() in written
    assert "## Overview" in written
    assert "## TurboSVM-FL, table 3." in written
    assert run([str(folders.top), "--results", "--format", "latex"]) == 0
    assert "% needs \\usepackage{booktabs}" in capsys.readouterr().out
    folders.write(0, rows(0.1), complete=False)
    folders.write(1, rows(0.1), complete=False, config=config)
    assert run([str(folders.top), "--table", "turbosvm/table2", "--scale", "small"]) == 0
    (problem,) = capsys.readouterr().err.splitlines()  # of the table's own runs
    assert "seed=1: unfinished (round 0 of 100); " in problem


@pytest.mark.parametrize("arguments", [("--to", "{}.md"), ("--curve", "test/loss", "--to", "{}.png")])
def test_what_another_process_writes_is_not_touched(runs, tmp_path, arguments):
    path = tmp_path / f"report{arguments[-1].removeprefix('{}')}"
    others = path.with_name(f"{path.name}.partial")
    others.write_text("begun")
    assert run([runs, *(argument.format(tmp_path / "report") for argument in arguments)]) == 0
    assert path.is_file() and others.read_text() == "begun"


def test_what_cannot_be_replaced_is_written_to(runs, capfd):
    assert run([runs, "--to", "/dev/stdout"]) == 0
    assert "to 70 %" in capfd.readouterr().out


def test_problems_are_printed_and_the_rest_is_reported(runs, folders, capsys):
    folders.write(2, rows(0.1), complete=False)
    again = folders.write(0, rows(0.1, 0.3, 0.5))
    assert run([runs]) == 0
    out, err = capsys.readouterr()
    assert "0, 1, (2)" in out
    first, second = err.splitlines()
    assert first.startswith("fedrun-report: ") and first.endswith("unfinished (round 0 of 2); it counts in curves only")
    assert second.startswith(f"fedrun-report: {again}: the same setting and seed as ")


def test_a_damaged_row_of_an_unfinished_run_ends_with_status_2(runs, folders, capsys):
    """The other runs are reported."""
    broken = folders.write(2, rows(0.1, 0.2), complete=False) / "metrics.jsonl"
    broken.write_text(broken.read_text().replace("round", "rou\0d", 1))
    assert run([runs]) == 2
    out, err = capsys.readouterr()
    assert "| local.lr=0.2 | digits " in out
    assert [line.startswith(f"fedrun-report: {broken}, line 1: ") for line in err.splitlines()] == [True]


@pytest.mark.parametrize("name", [".hydra/config.yaml", "metrics.jsonl", "summary.json"])
def test_a_file_that_cannot_be_read_ends_with_status_2(runs, folders, capsys, name):
    """The other runs are reported. A folder in the file's place cannot be read, for root neither."""
    unreadable = folders.write(2, rows(0.1, 0.2)) / name
    unreadable.unlink()
    unreadable.mkdir()
    assert run([runs]) == 2
    out, err = capsys.readouterr()
    assert "| local.lr=0.2 | digits " in out
    (problem,) = err.splitlines()
    assert problem.startswith(f"fedrun-report: {unreadable}: cannot be read (Is a directory)")
    assert problem.endswith("; the run is left out")


def test_a_folder_whose_name_is_not_utf_8_keeps_its_bytes_in_a_file(folders, tmp_path):
    folder = folders.write(0, rows(0.1, 0.2)).rename(tmp_path / os.fsdecode(b"r\xff"))
    path = tmp_path / "runs.csv"
    assert run([str(folder), "--format", "csv", "--to", str(path)]) == 0
    assert path.read_bytes().splitlines()[1].startswith(os.fsencode(tmp_path) + b"/r\xff,")


def test_a_value_that_is_no_text_is_named(folders, tmp_path, capsys):
    """A surrogate by itself, which JSON can write and UTF-8 cannot."""
    folders.write(0, rows(0.1, 0.2), dataset="digits")
    summary = next(folders.top.rglob("summary.json"))
    summary.write_text(summary.read_text().replace('"dataset": "digits"', r'"dataset": "\ud800"'))
    path = tmp_path / "runs.csv"
    assert run([str(folders.top), "--format", "csv", "--to", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    reason = r"a value of a run has '\ud800', which is not a character"
    assert line == f"fedrun-report: {path}: cannot be written ({reason})"


REFUSED = [
    ((), "outputs: no such folder"),
    (("{runs}", ""), "RUNS: is empty; leave it out, or name folders, or patterns of them"),
    (("{empty}",), "{empty}: holds no run (no metrics.jsonl and no summary.json)"),
    (("x" * 300,), f"{'x' * 300}: cannot be read (File name too long)"),
    (("{runs}", "--metric", "own/f1"), "own/f1: no run has this metric; allowed: test/accuracy, test/loss"),
    (
        ("{runs}", "--metric", "test/acuracy"),
        "test/acuracy: no run has this metric; allowed: test/accuracy, test/loss; did you mean test/accuracy?",
    ),
    (("{runs}", "--metric", "cost/params_up"), "cost/params_up: is a cost, not a metric; all tables have the costs"),
    (("{runs}", "--baseline", "krum"), "baseline krum: no such setting; allowed: local.lr=0.1, local.lr=0.2"),
    (("{runs}", "--curve", "x"), "x: no run has this metric; allowed: test/accuracy, test/loss"),
    (
        ("{runs}", "--curve", "cost/param_up"),
        "cost/param_up: no run has this metric; allowed: test/accuracy, test/loss, cost/client_samples, "
        "cost/params_down, cost/params_up, time/round_s; did you mean cost/params_up?",
    ),
    (("{runs}", "--metric", ""), "--metric: is empty; leave it out, or name one"),
    (("{runs}", "--curve", "test/loss", "--to", "/dev/null/c.png"), "/dev/null/c.png: cannot be written"),
    (("{runs}", "--curve", "test/loss", "--to", "{empty}/c.eps"), "--to {empty}/c.eps: allowed for a picture: a file "),
    (("{runs}", "--to", "{empty}"), "--to {empty}: is a folder; allowed: a file"),
    (("{runs}", "--to", "{empty}/new/"), "--to {empty}/new/: is a folder; allowed: a file"),
    (("{runs}", "--curve", "test/loss", "--to", "{empty}/c"), "--to {empty}/c: allowed for a picture: a file whose "),
    (("{runs}", "--curve", ""), "--curve: is empty; leave it out, or name one"),
    (
        ("{runs}", "--curve", "test/loss", "--target", "0.5"),
        "--target: allowed: without --curve, or with --curve test/",
    ),
    (("{runs}", "--curve", "test/loss", "--format", "latex"), "--format latex: allowed: without --curve"),
    (("{runs}", "--curve", "test/loss", "--format", "markdown"), "--format markdown: allowed: without --curve"),
    (("{runs}", "--table", "turbosvm/table2", "--metric", "nope"), "--metric: allowed: without --table"),
    (("{runs}", "--results", "--baseline", "nope"), "--baseline: allowed: without --results"),
    (("{runs}", "--baseline", "nope", "--format", "csv"), "--baseline: allowed: without --format csv"),
    (("{runs}", "--metric", "test/loss", "--format", "csv"), "--metric: allowed: without --format csv"),
    (("{runs}", "--target", "0.5", "--format", "csv"), "--target: allowed: without --format csv"),
    (("{runs}", "--target", "90%"), "--target 90%: allowed: an accuracy above 0, at most 1"),
    (("{runs}", "--metric", "test/loss", "--to", "r.csv"), "--metric: allowed: without --to r.csv"),
    (("{runs}", "--results", "--to", "r.html"), "--to r.html: allowed: without --results"),
    (("{runs}", "--to", "r.txt"), "--to r.txt: allowed without --format: a name that ends in .md, .tex, .csv, .html"),
    (
        ("{runs}", "--format", "latex", "--to", "r.html"),
        "--to r.html: is the name of a file in html; allowed: without --format latex",
    ),
    (("{runs}", "--test", "wilcoxon"), "--test: allowed: with --baseline"),
    (("{runs}", "--table", "mine/table1"), "table mine/table1: no such table; allowed: fedavg/table1, "),
    (("{runs}", "--table", "turbosvm/table2"), "table turbosvm/table2: no finished runs; start them "),
    (("{runs}", "--results"), "no finished run of any paper's table at scale full or small; start one with: "),
    (("{runs}", "--results", "--table", "turbosvm/table2"), "--table and --results: allowed: one of them"),
    (("{runs}", "--scale", "smoke"), "--scale: allowed: with --table"),
    (("{runs}", "--against", "params"), "--against: allowed: with --curve"),
    (("{runs}", "--results", "--format", "html"), "--format html: allowed: without --results"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_what_cannot_be_reported_ends_with_status_2(runs, tmp_path, monkeypatch, capsys, arguments, message):
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(tmp_path)
    assert run([argument.format(runs=runs, empty=empty) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0].startswith(f"fedrun-report: {message.format(runs=runs, empty=empty)}")
    assert all(line.startswith("fedrun-report: ") for line in err.splitlines())


def test_a_wrong_command_line_is_one_line():
    ended = subprocess.run(
        [sys.executable, "-m", "fedrun.cli.report", "--format", "pdf"], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert ended.stderr.startswith("fedrun-report: argument --format: invalid choice: 'pdf'")


def test_reading_runs_needs_no_torch(runs):
    code = """
import sys
from fedrun.system.lazy_import import LazyModule, lazy_import
lazy_import("torch")
from fedrun.cli.report import run
assert run(sys.argv[1:]) == 0
assert type(sys.modules["torch"]) is LazyModule, "torch was loaded"
"""
    subprocess.run([sys.executable, "-c", code, runs], check=True, capture_output=True)
