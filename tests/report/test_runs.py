import json
import os

import pytest
from omegaconf import OmegaConf

from fedrun.report.runs import find, lacking

from ..helpers.run_folders import rows


def test_complete_and_unfinished_runs_are_found(folders):
    whole = folders.write(0, rows(0.1, 0.5, 0.8), strategy="turbosvm", dataset="mnist")
    partial = folders.write(1, rows(0.1, 0.5), strategy="turbosvm", dataset="mnist", complete=False)
    found = folders.found
    assert [(run.folder, run.seed, run.complete, run.dataset, run.strategy) for run in found.runs] == [
        (whole, 0, True, "mnist", "turbosvm"),
        (partial, 1, False, "mnist", "turbosvm"),
    ]
    assert found.problems == (f"{partial}: unfinished (round 1 of 2); it counts in curves only",)
    assert found.runs[0].max_rounds == 2
    assert found.runs[1].rows[1]["test/accuracy"] == 0.5


def test_patterns_and_repeated_places_find_every_run_once(folders):
    first, second = (folders.write(seed, rows(0.1)) for seed in (0, 1))
    everywhere = find([f"{folders.top}/runs/*/*/*", str(folders.top), str(first)])
    assert [run.folder for run in everywhere.runs] == [first, second]
    assert [run.folder for run in find([f"{folders.top}/**/seed=1"]).runs] == [second]
    (link := folders.top / "link").symlink_to(folders.top / "runs")
    assert [run.folder for run in find([str(folders.top / "runs"), str(link)]).runs] == [first, second]


def test_a_folder_whose_name_looks_like_a_pattern(folders):
    """``runs[1]`` as a pattern is ``runs1``."""
    for name in ("runs[1]", "runs1"):
        folders.write(0, rows(0.1))
        (folders.top / "runs").rename(folders.top / name)
    (run,) = find([str(folders.top / "runs[1]")]).runs
    assert run.folder.is_relative_to(folders.top / "runs[1]")


def refuse_to_list(monkeypatch, locked):
    """The tests may run as root, who can list every folder."""
    scandir = os.scandir

    def refusing(path):
        if str(path) == str(locked):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)


def test_folders_that_cannot_be_listed_are_named(folders, monkeypatch):
    """Their seeds would otherwise be missing without a word."""
    read, locked = (folders.write(seed, rows(0.1, 0.2, 0.3)) for seed in (0, 1))
    refuse_to_list(monkeypatch, locked)
    problem = f"{locked}: cannot be read (Permission denied); runs in and below it are left out"
    found = folders.found
    assert ([run.folder for run in found.runs], found.problems) == ([read], (problem,))
    assert find([str(locked)]).problems == (problem,)


def test_a_run_whose_configuration_cannot_be_listed_is_named_once(folders, monkeypatch):
    run = folders.write(0, rows(0.1, 0.2, 0.3))
    (run / ".hydra" / "config.yaml").unlink()
    (run / ".hydra" / "config.yaml").mkdir()  # cannot be read, for root neither
    refuse_to_list(monkeypatch, run / ".hydra")
    (problem,) = folders.found.problems
    assert problem.startswith(f"{run}/.hydra/config.yaml: cannot be read (")


def test_a_folder_with_nothing_but_a_configuration_that_cannot_be_listed_holds_no_run(folders, monkeypatch):
    (folders.top / ".hydra").mkdir(parents=True)
    refuse_to_list(monkeypatch, folders.top / ".hydra")
    (problem,) = folders.found.problems
    assert problem == f"{folders.top}: holds no run (no metrics.jsonl and no summary.json)"


def test_whatever_is_missing_or_damaged_is_said_in_one_line(folders, tmp_path):
    names = (
        "no config",
        "bad config",
        "other config",
        "no metrics",
        "no rows",
        "bad metrics",
        "bad summary",
        "other summary",
    )
    runs = {name: folders.write(seed, rows(0.1, 0.2, 0.3)) for seed, name in enumerate(names)}
    (runs["no config"] / ".hydra/config.yaml").unlink()
    (runs["bad config"] / ".hydra/config.yaml").write_text("a: [1")
    (runs["other config"] / ".hydra/config.yaml").write_text("seed: 0\n")
    (runs["no metrics"] / "metrics.jsonl").unlink()
    (runs["no rows"] / "metrics.jsonl").write_text("")
    (runs["bad metrics"] / "metrics.jsonl").write_text("{}\n{}\n")
    (runs["bad summary"] / "summary.json").write_text("{")
    (runs["other summary"] / "summary.json").write_text('{"status": "complete"}')
    empty = tmp_path / "empty"
    empty.mkdir()
    assert find([str(folders.top / "runs")], {"another"}).runs == ()
    found = find([str(empty), str(tmp_path / "absent"), str(folders.top / "runs")])
    assert found.runs == () and found.damaged
    left_out = "; the run is left out"
    restore = "restore it, or start over with overwrite=true"
    again = f"(the same command then writes the results again), or start over with overwrite=true{left_out}"
    bad, other = (runs[name] / "summary.json" for name in ("bad summary", "other summary"))
    assert list(found.problems) == [
        f"{empty}: holds no run (no metrics.jsonl and no summary.json)",
        f"{tmp_path / 'absent'}: no such folder",
        f"{runs['no config']}/.hydra/config.yaml: is missing; {restore}{left_out}",
        f"{runs['bad config']}/.hydra/config.yaml: is not a YAML file of a configuration{left_out}",
        f"{runs['other config']}/.hydra/config.yaml: is not a run's configuration (needs seed, rounds, name){left_out}",
        f"{runs['no metrics']}/metrics.jsonl: is missing; {restore}{left_out}",
        f"{runs['no rows']}/metrics.jsonl: is damaged (it holds no evaluated round); {restore}{left_out}",
        f"{runs['bad metrics']}/metrics.jsonl, line 1: round is None; a whole number is expected{left_out}",
        f"{bad}: is damaged (Expecting property name enclosed in double quotes: line 1 column 2 (char 1)); delete "
        f"{bad} {again}",
        f"{other}: is damaged (title is missing or of another type); delete {other} {again}",
    ]


@pytest.mark.parametrize("file", [".hydra/config.yaml", "metrics.jsonl"])
def test_a_complete_run_without_a_file_is_damaged(folders, file):
    """The report would otherwise lack a seed with exit status 0."""
    run = folders.write(0, rows(0.1, 0.2, 0.3))
    (run / file).unlink()
    assert folders.found.damaged.startswith(f"{run}/{file}: is missing; ")


@pytest.mark.parametrize(
    ("evaluated", "rounds_made", "every", "flaw"),
    [
        ([0, 1, 2], 2, 1, ""),
        ([0, 2, 4, 5], 5, 2, ""),
        ([0, 1], 2, 1, "its last round is 1, but the run has made 2"),
        ([0, 2, 5], 5, 2, "it lacks round 4"),
        ([0, 5], 5, None, ""),
        ([], 5, 1, "it holds no evaluated round"),
    ],
)
def test_rows_that_a_complete_run_lacks(evaluated, rounds_made, every, flaw):
    assert lacking(evaluated, rounds_made, every) == flaw


def test_metrics_that_were_cut_do_not_pass_for_a_result(folders):
    """The summary is whole, but the last rows are gone: the mean over seeds would be of another round."""
    cut = folders.write(0, rows(0.1, 0.2, 0.9))
    lines = (cut / "metrics.jsonl").read_text().splitlines(keepends=True)
    (cut / "metrics.jsonl").write_text("".join(lines[:2]) + lines[2][:20])
    found = folders.found
    assert (found.runs, found.damaged) == ((), *found.problems)
    assert found.problems == (
        f"{cut}/metrics.jsonl: is damaged (its last round is 1, but the run has made 2); restore it, or start over "
        "with overwrite=true; the run is left out",
    )


@pytest.mark.parametrize(
    ("file", "content", "complete", "problem"),
    [
        (
            "metrics.jsonl",
            '{"rou\0d": 0}\n',
            False,
            ", line 1: not a JSON object (Invalid control character at: line",
        ),
        ("metrics.jsonl", '{"round": 1}\n{"round": 0}\n', False, ", line 2: round 0 follows round 1; rounds must asce"),
        (".hydra/config.yaml", "seed: [", True, ": is not a YAML file of a configuration"),
        (".hydra/config.yaml", "seed: 0", False, ": is not a run's configuration (needs seed, rounds, name)"),
    ],
)
def test_content_that_fedrun_did_not_write_is_damage(folders, file, content, complete, problem):
    """Also in runs without checksums, as these are; a run without rows yet is not damaged."""
    folder = folders.write(0, rows(0.1, 0.2, 0.9), complete=complete)
    (folder / file).write_text(content)
    found = folders.found
    assert (found.runs, found.damaged) == ((), *found.problems)
    assert found.damaged.startswith(f"{folder / file}{problem}")
    begun = folders.write(1, rows(), complete=False)
    (begun / ".hydra" / "config.yaml").unlink()
    assert find([str(begun)]).problems == (f"{begun}/metrics.jsonl: holds no evaluated round yet; the run is left out",)
    assert not find([str(begun)]).damaged


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"evaluation": None}, ""),
        (
            {"targets": ["abc"]},
            "is not a run's configuration (targets: 'abc'; allowed: a test accuracy "
            "above 0, at most 1, or METRIC:VALUE, such as test/perplexity:40)",
        ),
        (
            {"targets": [2]},
            "is not a run's configuration (targets: 2; allowed: a test accuracy "
            "above 0, at most 1, or METRIC:VALUE, such as test/perplexity:40)",
        ),
        ({"evaluation": 3}, "is not a run's configuration (evaluation has no keys)"),
        ({"evaluation": {"every": 1}}, ""),
        (
            {"evaluation": {"every": "often"}},
            "is not a run's configuration (evaluation.every is not a number of rounds)",
        ),
        ({"evaluation": {"every": -1}}, "is not a run's configuration (evaluation.every is not a number of rounds)"),
    ],
)
def test_a_configuration_of_any_content_is_read_or_refused(folders, config, problem):
    folder = folders.write(0, rows(0.1, 0.2, 0.3))
    path = folder / ".hydra" / "config.yaml"
    whole = OmegaConf.to_container(OmegaConf.load(path))
    path.write_text(json.dumps({**whole, **config}))
    found = folders.found
    assert found.problems == ((f"{path}: {problem}; the run is left out",) if problem else ())


@pytest.mark.parametrize(
    "changes",
    [
        {"seconds": "abc"},
        {"rounds": None},
        {"best": 3},
        {"best": {"test/accuracy": 0.3}},
        {"best": {"test/accuracy": {"value": 0.3}}},
        {"final": {"test/accuracy": "0.3"}},
        {"rounds_to": {"0.70": [2]}},
        {"virtual_seconds_to": {"0.70": "2"}},
        {"reported": ["test/accuracy"]},
        {"decisions": "the global model"},
        {"decisions": {"tested": ["the global model"]}},
        {"machine": {"processes": 1}},
    ],
)
def test_a_summary_of_other_types_is_damaged(folders, changes):
    path = folders.write(0, rows(0.1, 0.2, 0.3)) / "summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    found = folders.found
    (problem,) = found.problems
    assert problem == found.damaged
    assert problem.startswith(
        f"{path}: is damaged ({next(iter(changes))} is missing or of another type); delete {path} "
    )


def test_an_unfinished_run_that_was_moved_is_named_by_its_classes(folders, tmp_path):
    folder = folders.write(0, rows(0.1), complete=False, strategy="turbosvm")
    moved = folder.rename(tmp_path / "run")
    (run,) = find([str(moved)]).runs
    assert (run.dataset, run.strategy) == ("?", "FedAvg")


def test_an_unfinished_run_below_a_folder_named_like_a_hash_is_named_by_its_classes(folders, tmp_path):
    folder = folders.write(0, rows(0.1), complete=False, strategy="turbosvm")
    date = tmp_path / "moved" / "20261128"
    date.mkdir(parents=True)
    (run,) = find([str(folder.rename(date / "first"))]).runs
    assert (run.dataset, run.strategy, run.hash) == ("?", "FedAvg", None)
