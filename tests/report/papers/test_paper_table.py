import pytest

from fedrun.report.papers.layout import difference
from fedrun.report.papers.matching import match
from fedrun.report.papers.measurement import Measurement, rounds_needed
from fedrun.report.papers.paper import Cell
from fedrun.report.papers.paper_table import paper_table
from fedrun.report.papers.provenance import cost_in_hours, data_and_code, seeds_and_cost
from fedrun.report.papers.readings import RoundsTo
from fedrun.report.settings import leaves, unrecorded
from fedrun.system.errors import InputError

from ...helpers.job_configs import job_config
from ...helpers.run_folders import CONFIG, rows

SMOKE = ["experiment=turbosvm/table2", "scale=smoke", "dataset=digits", "clients_per_round=8", "local.epochs=1"]
SMALL = ["experiment=turbosvm/table2", "scale=small", "dataset=femnist"]


def by_strategy(table):
    return {row[0]: row[1:] for row in table.rows}


def test_rounds_next_to_the_papers(folders):
    """At scale small, whose data are the paper's."""
    for strategy, curves in {
        "fedavg": ([0.1, 0.5, 0.7], [0.1, 0.2, 0.3, 0.75]),  # rounds 2 and 3
        "turbosvm": ([0.1, 0.9], [0.1] + [0.2] * 100),  # round 1, and never
    }.items():
        config = job_config([*SMALL, f"strategy={strategy}"])
        for seed, accuracies in enumerate(curves):
            folders.write(seed, rows(*accuracies), strategy=strategy, dataset="femnist", config=config)
    result = paper_table("turbosvm/table2", None, folders.found.runs)
    assert [(cell.strategy, ours.number, ours.std) for cell, ours in result.compared] == [("fedavg", 2.5, 0.5)]
    (table,) = result.tables
    assert table.header == ("strategy", "paper", "ours", "difference")
    lines = by_strategy(table)
    assert lines["fedavg"] == ("144.4 ± 4.6", "2.5 ± 0.5", "-141.9")
    assert lines["turbosvm"] == ("54.6 ± 1.6", ">100", "-")
    assert set(lines) == {"fedavg", "turbosvm"}  # a row without a run is left out
    assert table.above == (
        "Scale: small (fedrun experiment=turbosvm/table2 scale=small). Seeds: 0, 1. Mean ± std over seeds (ddof 0).",
        "Fewer rounds than at scale full: 100 of 200.",
    )
    assert table.notes[:2] == (
        "Left out at scale small: 14 of 21 cells.",
        "Not run yet: 5 of 7 cells.",
    )
    assert table.notes[-1] == "Data: femnist (01234567). Code: fedrun 0.1.0, torch 2.11.0, commit abc123."


def test_values_after_a_round_and_short_runs(folders):
    config = job_config([*SMALL, "strategy=fedavg"])
    folders.write(0, rows(*[0.5] * 100, 0.6, 0.9), dataset="femnist", config=config)  # 0.6 after round 100
    folders.write(1, rows(*[0.5] * 100, 0.7, 0.9), dataset="femnist", config=config)
    config = job_config([*SMALL, "strategy=fedprox"])
    folders.write(0, rows(0.1, 0.2), dataset="femnist", strategy="fedprox", config=config)
    result = paper_table("turbosvm/table3", "small", folders.found.runs)
    deviations = [(cell.strategy, ours.std) for cell, ours in result.compared]
    assert deviations == [("fedavg", pytest.approx(5.0)), ("fedprox", None)]
    tables = result.tables
    assert [table.part for table in tables] == ["metric f1", "metric accuracy", "metric mcc"]
    lines = by_strategy(tables[1])
    assert lines["fedavg"] == ("59.3 ± 1.8", "65.0 ± 5.0", "+5.7")
    assert lines["fedprox"] == ("59.2 ± 1.8", "20.0", "-39.2")
    assert by_strategy(tables[0])["fedavg"] == ("33.1 ± 1.3", "-", "-")  # these runs have no F1
    assert "Runs that end before the paper's round are read at their last round: 1." in tables[-1].notes


def test_stand_ins_have_no_difference(folders):
    config = job_config([*SMOKE, "strategy=fedavg"])
    folders.write(0, rows(0.1, 0.8), config=config)
    (table,) = paper_table("turbosvm/table2", None, folders.found.runs).tables
    assert by_strategy(table)["fedavg"] == ("144.4 ± 4.6", "1.0", "-")
    assert table.above[1:] == (
        "Fewer rounds than at scale full: 20 of 200.",
        "In place of dataset femnist, ours ran with dataset=digits, so no differences are given.",
    )


def test_fewer_rounds_are_reported_and_stand_in_for_nothing(folders):
    """The paper has 84.4 % for FedConcat on Fashion-MNIST with two labels per client."""
    asked = [
        "experiment=fedconcat/table1",
        "scale=small",
        "dataset=fmnist",
        "hparams=fedconcat_c2",
        "strategy=fedconcat",
    ]
    config = job_config([*asked, "rounds=46"])
    folders.write(0, rows(0.1, 0.7), dataset="fmnist", strategy="fedconcat", config=config)
    (table,) = paper_table("fedconcat/table1", "small", folders.found.runs).tables
    assert by_strategy(table)["fedconcat"][1:] == ("70.0", "-14.4")
    assert table.above[1:] == ("Fewer rounds than at scale full: 46 of 231.",)


def test_runs_that_deviate_count_and_are_reported(folders):
    config = job_config([*SMOKE, "strategy=fedavg"])
    for seed, more in ((0, {}), (1, {"local.momentum": 0.5})):
        changes = {"local.lr": 0.3, "dataset.data_dir": "elsewhere", **more}
        folders.write(seed, rows(0.1, 0.8), config=config, changes=changes)
    config = job_config([*SMOKE, "strategy=krum"])
    folders.write(0, rows(0.1, 0.8), strategy="krum", config=config)
    (table,) = paper_table("turbosvm/table2", "smoke", folders.found.runs).tables
    assert by_strategy(table)["fedavg"][1] == "1.0 ± 0.0"
    assert "Different from the experiment: local.lr=0.3 where the experiment has 0.1 (2 runs)." in table.above
    assert "Different from the experiment: local.momentum=0.5 where the experiment has 0.0 (1 run)." in table.above
    assert table.above[-1].startswith(
        "Left out because they belong to no cell of this table: 1 run of this sweep, such as "
    )


def test_runs_of_a_table_that_shares_the_sweep_are_no_strays(folders):
    """MaxFL's table 5 has no row for SCAFFOLD, its table 3 has one, and both are read off the same runs."""
    for strategy in ("maxfl", "scaffold", "krum"):
        overrides = ["experiment=maxfl/table3", "scale=small", f"strategy={strategy}", "hparams=maxfl_fmnist_clusters"]
        content = rows(0.1, 0.2, **{"clients/tuned_preferred_accuracy": 0.5})
        folders.write(0, content, dataset="fmnist", strategy=strategy, config=job_config(overrides))
    (table,) = paper_table("maxfl/table5", "small", folders.found.runs).tables
    assert "scaffold" not in by_strategy(table)
    (line,) = [line for line in table.above if line.startswith("Left out")]
    assert line.startswith("Left out because they belong to no cell of this table: 1 run of this sweep, such as ")
    assert "/krum/" in line


def test_another_strategys_run_is_not_taken_where_the_cells_differ_in_other_keys(folders):
    folders.write(0, rows(0.1), changes={"strategy.client": {"_target_": "fedprox", "mu": 1}})
    folders.write(0, rows(0.1), changes={"strategy.server": {"_target_": "krum"}})
    sgd = {**leaves(CONFIG), "strategy.client._target_": "sgd"}
    matched = match({0: sgd, 1: {**sgd, "rounds": 3}}, folders.found.runs)
    assert matched.runs == {0: (), 1: ()}
    assert len(matched.left_out["belong to no cell of this table"]) == 2


def test_of_two_runs_of_a_cell_and_seed_the_one_nearer_to_the_job_counts(folders):
    config = job_config([*SMOKE, "strategy=fedavg"])
    folders.write(0, rows(0.1, 0.1, 0.8), config=config, changes={"local.lr": 0.3})
    folders.write(0, rows(0.1, 0.8), config=config)
    (table,) = paper_table("turbosvm/table2", "smoke", folders.found.runs).tables
    assert by_strategy(table)["fedavg"][1] == "1.0"
    assert not any(line.startswith("Different from the experiment") for line in table.above)
    assert table.above[-1].startswith("Left out because they repeat the cell and seed of others ")


TABLE_1 = ["experiment=fedavg/table1", "scale=small", "hparams=mcmahan_2nn", "local.batch_size=10"]


def test_speed_ups_and_interpolated_rounds(folders):
    # One client: 0.99 after round 10, 0.95 before: 97 % after 9.5 rounds, rounded up to 10. A tenth of them: the same
    # between rounds 3 and 4, so 4. Speed-up 10 / 4 = 2.5; the paper's is 3.6. Of shards only one client is run.
    for partition, share, late in (("iid", "1", 10), ("iid", "0.1", 4), ("shards", "1", 20)):
        config = job_config([*TABLE_1, f"partition={partition}", f"clients_per_round={share}"])
        folders.write(0, rows(*[0.95] * late, 0.99), dataset="mnist", config=config)
    rounds, speed = paper_table("fedavg/table1", None, folders.found.runs).tables
    assert rounds.header[:4] == ("C", "iid: paper", "iid: ours", "iid: difference")
    assert by_strategy(rounds) == {
        "0.0": ("316", "10.0", "-306.0", "3275", "20.0", "-3255.0"),
        "0.1": ("87", "4.0", "-83.0", "664", "not run", "-"),
    }
    assert by_strategy(speed)["0.1"] == ("3.6", "2.5", "-1.1", "4.9", "not run", "-")


def test_a_crossing_in_a_round_is_not_rounded_up_to_the_next(folders):
    """From 96.82 % after round 100 to 98.62 % after round 110: 97 % after 100 + 10 * 18 / 180 = 101 rounds."""
    curve = {**dict.fromkeys(range(0, 100, 10), 0.1), 100: 0.9682, 110: 0.9862}
    content = [{"round": round, "test/accuracy": value} for round, value in curve.items()]
    config = job_config([*TABLE_1, "partition=iid", "clients_per_round=1"])
    folders.write(0, content, dataset="mnist", config=config, changes={"evaluation.every": 10, "rounds": 110})
    (run,) = folders.found.runs
    assert rounds_needed(run, RoundsTo(target=0.97, interpolated=True)) == 101


def test_a_small_difference_has_no_minus_before_zero():
    cell = Cell("fedavg", "T1", "mnist", {}, "fedavg", "accuracy", "85.1", None, "%")
    assert difference(cell, Measurement("85.08", 85.08)) == "+0.0"


def test_a_seed_that_was_given_up_early_says_no_more_than_its_rounds(folders):
    config = job_config([*SMALL, "strategy=fedavg"])
    folders.write(0, rows(*[0.1] * 51), dataset="femnist", config=config, changes={"rounds": 50})
    folders.write(1, rows(0.1, 0.9), dataset="femnist", config=config)
    (table,) = paper_table("turbosvm/table2", None, folders.found.runs).tables
    assert by_strategy(table)["fedavg"] == ("144.4 ± 4.6", ">50", "-")


def test_one_client_is_not_mistaken_for_all(folders):
    folders.write(0, rows(0.1), changes={"clients_per_round": 1.0})
    (run,) = folders.found.runs
    one, every = ({**leaves(CONFIG), "clients_per_round": share} for share in (1, 1.0))
    assert match({0: one, 1: every}, [run]).runs == {0: (), 1: (run,)}


def without(config, *keys):
    """The configuration as a version of fedrun wrote it that did not have these keys."""
    for key in keys:
        *above, last = key.split(".")
        node = config
        for part in above:
            node = node[part]
        del node[last]
    return config


def test_runs_of_another_version_are_matched_and_what_was_not_compared_is_reported(folders):
    config = without(job_config([*SMOKE, "strategy=fedavg"]), "evaluation.precision", "appeal")
    folders.write(0, rows(0.1, 0.8), config=config, changes={"local.gone": 1})
    (table,) = paper_table("turbosvm/table2", "smoke", folders.found.runs).tables
    assert by_strategy(table)["fedavg"][1] == "1.0"
    assert not any(line.startswith("Different from the experiment") for line in table.above)
    told = next(note for note in table.notes if note.startswith("Not compared, "))
    assert told.endswith("made some runs: evaluation.precision, local.gone.")  # appeal=none is a run without appeal


def test_a_run_that_lacks_the_key_in_which_cells_differ(folders):
    cells = {
        number: {"strategy._target_": kind, "strategy.mu": mu, "rounds": 2}
        for number, (kind, mu) in enumerate([("a", 1), ("a", 2), ("b", 3)])
    }
    for seed, kind in enumerate(("a", "b", "c")):
        folders.write(seed, rows(0.1), changes={"strategy": {"_target_": kind}})
    one_of_two, only, none = folders.found.runs
    matched = match(cells, [one_of_two, only, none])
    assert matched.runs == {0: (), 1: (), 2: (only,)}
    assert matched.left_out["may belong to several cells"] == [one_of_two]
    assert matched.left_out["belong to no cell of this table"] == [none]


def test_another_class_or_null_is_a_difference_not_an_unknown_key(folders):
    kernel = {"strategy._target_": "a", "strategy.kernel._target_": "k", "strategy.kernel.degree": 2}
    plain = {"strategy._target_": "a", "strategy.kernel": None}
    other = {"strategy._target_": "b", "strategy.degree": 2}
    assert unrecorded(kernel, plain) == unrecorded(plain, other) == unrecorded(kernel, other) == set()
    assert unrecorded(kernel, {"strategy._target_": "a", "rounds": 1}) == {
        "strategy.kernel._target_",
        "strategy.kernel.degree",
        "rounds",
    }


def test_a_run_belongs_to_its_cell_after_its_classes_module_has_moved(folders):
    cells = [{"model._target_": f"fedrun.models.mlp.{name}", "model.new": 1} for name in ("MLP", "Mnist2NN")]
    folders.write(0, rows(0.1), changes={"model": {"_target_": "fedrun.models.earlier.Mnist2NN"}})
    (run,) = folders.found.runs
    configs = {number: {**leaves(run.config), **cell} for number, cell in enumerate(cells)}
    matched = match(configs, [run])
    assert (matched.runs[1], matched.deviations, matched.not_compared) == ((run,), (), ("model.new",))


def test_a_partial_table_says_what_is_missing(folders):
    config = job_config([*SMOKE, "strategy=fedavg"])
    for seed in (0, 2):
        folders.write(seed, rows(0.1, 0.8), config=config)
    config = job_config([*SMOKE, "strategy=fedaws"])
    folders.write(0, rows(0.1, 0.8), config=config)
    folders.write(2, rows(0.1, 0.8), config=config, complete=False)
    (table,) = paper_table("turbosvm/table2", "smoke", folders.found.runs).tables
    assert table.notes[1:4] == (
        "Not run yet: 5 of 7 cells.",
        "Not run yet with all of the seeds 0, 2: 1 of 7 cells.",
        "Left out because they are unfinished: 1 run.",
    )
    with pytest.raises(InputError, match=r"no finished runs \(available at scale smoke\); start "):
        paper_table("turbosvm/table2", "full", folders.found.runs)


def test_columns_without_a_run_are_not_shown_and_rows_have_the_papers_numbers(folders):
    """The rows for Shakespeare are out of reach."""
    cell = ["partition=iid", "local.epochs=5", "local.batch_size=10"]
    config = job_config(["experiment=fedavg/table2", *cell])
    folders.write(0, rows(*[0.98] * 20, 0.99), dataset="mnist", config=config)  # 0.99 after round 20; the paper's is 20
    rounds, speed = paper_table("fedavg/table2", None, folders.found.runs).tables
    assert [table.part for table in (rounds, speed)] == [
        f"metric {metric}, dataset mnist, model cnn, partition iid"
        for metric in ("rounds_to_0.99", "speedup_vs_fedsgd")
    ]
    assert rounds.header == ("strategy", "E", "B", "u", "paper", "ours", "difference")
    lines = {row[:4]: row[4:] for row in rounds.rows}
    assert lines.pop(("fedavg", "5", "10", "300")) == ("20", "20.0", "+0.0")
    assert lines["fedsgd", "1", "inf", "1"] == ("626", "not run", "-")
    assert {ours for _, ours, _ in lines.values()} == {"not run"}
    assert speed.notes[0].startswith("Out of reach, 24 of 60 cells: ")
    assert speed.notes[1] == "Not run yet: 34 of 36 cells."


def test_a_metric_of_seen_and_one_of_unseen_clients(folders):
    """The paper's numbers of the one are lost, so that ours stand alone."""
    config = job_config(["experiment=maxfl/table3", "scale=small", "strategy=maxfl", "hparams=maxfl_fmnist_clusters"])
    measured = [
        row | {"clients/tuned_gm_appeal": 0.25, "unseen/tuned_gm_appeal": 0.5, "unseen/gm_appeal": 0.75}
        for row in rows(0.1, 0.2)
    ]
    folders.write(0, measured, dataset="fmnist", strategy="maxfl", config=config)
    (table,) = paper_table("maxfl/table3", None, folders.found.runs).tables
    assert table.header == ("strategy", "seen: ours", "unseen: paper", "unseen: ours", "unseen: difference")
    assert by_strategy(table)["maxfl"] == ("0.25", "0.56", "0.50", "-0.06")


def test_nothing_to_compare_is_refused(folders):
    folders.write(0, rows(0.1))
    folders.write(0, rows(0.1), config=job_config([*SMOKE, "strategy=fedavg"]), complete=False)
    with pytest.raises(InputError, match=r"^table turbosvm/table2: no finished runs; start them with: "):
        paper_table("turbosvm/table2", None, folders.found.runs)
    with pytest.raises(InputError, match=r"experiment=turbosvm/table2 scale=smoke$"):
        paper_table("turbosvm/table2", "smoke", folders.found.runs)
    folders.write(0, rows(0.1), config=job_config([*SMOKE, "strategy=krum"]))
    with pytest.raises(InputError, match=r"^table turbosvm/table2: its finished runs belong to no cell of this table$"):
        paper_table("turbosvm/table2", "smoke", folders.found.runs)


def test_seeds_of_different_lengths_are_each_read_in_their_own_round(folders):
    config = job_config([*SMALL, "strategy=fedavg"])
    folders.write(0, rows(*[0.5] * 100, 0.6, 0.9), dataset="femnist", config=config)  # 0.6 after round 100
    folders.write(1, rows(0.1, 0.2), dataset="femnist", config=config)
    tables = paper_table("turbosvm/table3", "small", folders.found.runs).tables
    assert by_strategy(tables[1])["fedavg"] == ("59.3 ± 1.8", "40.0 ± 20.0", "-19.3")
    assert "Runs that end before the paper's round are read at their last round: 1." in tables[-1].notes


def test_of_two_seeds_given_up_the_earlier_one_limits_what_is_known(folders):
    config = job_config([*SMALL, "strategy=fedavg"])
    for seed, cap in enumerate((50, 80)):
        folders.write(seed, rows(*[0.1] * (cap + 1)), dataset="femnist", config=config, changes={"rounds": cap})
    (table,) = paper_table("turbosvm/table2", None, folders.found.runs).tables
    assert by_strategy(table)["fedavg"][1] == ">50"


def test_seeds_on_other_data_are_left_out_of_a_cell(folders):
    config = job_config([*SMOKE, "strategy=fedavg"])
    for seed, data in enumerate(("0123", "0123", "4567")):
        folders.write(seed, rows(0.1, 0.8), config=config, data=data)
    matched = match({0: leaves(config)}, folders.found.runs)
    assert [run.seed for run in matched.runs[0]] == [0, 1]
    assert [run.seed for run in matched.left_out["are on other data than others of their cell"]] == [2]


def test_speed_ups_are_of_means_of_rounds_that_are_rounded_up(folders):
    # 0.96 until round n - 1, then 1: 97 % a quarter of a round later, rounded up to n. (10 + 13) / (4 + 5) = 2.56
    for share, ends in (("1", (10, 13)), ("0.1", (4, 5))):
        config = job_config([*TABLE_1, "partition=iid", f"clients_per_round={share}"])
        for seed, last in enumerate(ends):
            folders.write(seed, rows(*[0.96] * last, 1.0), dataset="mnist", config=config)
    rounds, speed = paper_table("fedavg/table1", None, folders.found.runs).tables
    assert [by_strategy(rounds)[c][1] for c in ("0.0", "0.1")] == ["11.5 ± 1.5", "4.5 ± 0.5"]
    assert by_strategy(speed)["0.1"][1] == "2.6"


def test_commits_are_listed_by_versions(folders):
    older, newer = {"fedrun": "0.1.0", "torch": "2.11.0"}, {"fedrun": "0.2.0", "torch": "2.11.0"}
    for seed, (versions, commit) in enumerate([(newer, "a"), (older, "b"), (newer, "c"), (newer, "a")]):
        folders.write(seed, rows(0.1), summary={"versions": {**versions, "commit": commit}})
    folders.write(4, rows(0.1), summary={"versions": older})  # not in a checkout
    assert data_and_code(folders.found.runs).endswith(
        "Code: fedrun 0.2.0, torch 2.11.0, commits a, c; fedrun 0.1.0, torch 2.11.0, commits b, not recorded."
    )


@pytest.mark.parametrize(
    ("seconds", "hours"),
    [(4.464e6, "1,240"), (360_000.0, "100"), (176_400.0, "49"), (29_160.0, "8.1"), (284.4, "0.079")],
)
def test_hours_are_written_without_an_exponent(folders, seconds, hours):
    machine = {"processes": 1, "threads": 1}
    folders.write(3, rows(0.1), summary={"seconds": seconds, "machine": machine})
    assert seeds_and_cost(folders.found.runs) == f"Seeds: 3. Cost: {hours} core hours."


def test_the_cost_of_runs():
    """Half an hour in two processes, and a quarter of one with four threads: two hours of a core."""
    summaries = [
        {"seconds": 1800.0, "machine": {"processes": 2, "threads": 1}},
        {"seconds": 900.0, "machine": {"processes": 1, "threads": 4}},
    ]
    assert cost_in_hours(summaries) == {"core hours": 2.0}
    on_gpu = {"seconds": 360.0, "machine": {"processes": 2, "threads": 8, "gpu": "NVIDIA H200"}}
    assert cost_in_hours([*summaries, on_gpu]) == {"core hours": 2.0, "hours of NVIDIA H200": 0.2}
    assert cost_in_hours([*summaries, {"seconds": 1.0}]) == {}  # of a version that did not record it
