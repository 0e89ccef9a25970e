import pytest

from fedrun.report.papers.cell_jobs import cell_configs
from fedrun.report.papers.paper_table import paper_table
from fedrun.report.papers.results import results
from fedrun.system.errors import InputError

from ...helpers.job_configs import job_config
from ...helpers.run_folders import CONFIG, rows


def tables(folders):
    return results(folders.found.runs)


def test_every_table_that_has_runs(folders):
    config = job_config(["experiment=turbosvm/table2", "scale=small", "dataset=femnist", "strategy=fedavg"])
    folders.write(0, rows(0.1, 0.7), dataset="femnist", config=config)
    overview, *papers = tables(folders)
    assert [row[:2] for row in overview.rows] == [("turbosvm/table2", "small"), ("turbosvm/table3", "small")]
    titles = [table.title.partition(".")[0] for table in papers]
    assert titles[0] == "TurboSVM-FL, table 2"
    assert set(titles) == {"TurboSVM-FL, table 2", "TurboSVM-FL, table 3"}  # table 3 is read off the same runs


def test_only_the_table_whose_runs_these_are_ranks_them(folders):
    """Tables 2 and 3 are read off the same runs, those of table 2."""
    for strategy, final in {"fedavg": 0.5, "turbosvm": 0.6, "median": 0.7}.items():
        for seed in (0, 1):
            chosen = ("dataset=femnist", f"strategy={strategy}", f"seed={seed}")
            config = job_config(["experiment=turbosvm/table2", "scale=small", *chosen])
            folders.write(seed, rows(0.1, final + seed / 100), strategy=strategy, dataset="femnist", config=config)
    ranks = [table for table in tables(folders) if table.part.startswith("Ranks by ")]
    assert [table.title.partition(".")[0] for table in ranks] == ["TurboSVM-FL, table 2"]


def test_the_papers_tables_are_in_their_order_before_the_other_experiments(folders):
    """Of a table the full scale comes before the small one; table 10 after table 9."""
    for name in ("turbosvm/table9", "turbosvm/table10", "fedumf/table1 scale=small", "fedumf/table1"):
        chosen = job_config([f"experiment={word}" if "/" in word else word for word in name.split()])
        folders.write(0, rows(0.1, 0.5), config=chosen, strategy=name)
    for name in ("suite/b10", "suite/b9", "suite/b9²"):
        folders.write(0, rows(0.1, 0.5), config=CONFIG | {"name": name}, strategy=name)
    overview, *others = tables(folders)
    assert [row[:2] for row in overview.rows] == [
        ("fedumf/table1", "full"),
        ("fedumf/table1", "small"),
        ("turbosvm/table9", "full"),
        ("turbosvm/table10", "full"),
    ]
    experiments = [table.title for table in others if table.part == "After the last round"]
    assert experiments == [f"name={name}" for name in ("suite/b9", "suite/b9²", "suite/b10")]
    assert others[-1].title == "name=suite/b10"


def test_tables_that_share_runs_but_have_none_of_their_own_are_left_out(folders):
    """FedConcat's tables 4, 5, 10 and 14 look for theirs among those of table 1; a search is no result."""
    overrides = ["experiment=fedconcat/table1", "dataset=fmnist", "hparams=fedconcat_c3", "strategy=fedprox"]
    folders.write(0, rows(0.1, 0.7), strategy="fedprox", dataset="fmnist", config=job_config(overrides))
    searched = job_config(["experiment=fedumf/tune", "scale=smoke", "dataset=digits", "model=mlp"])
    folders.write(0, rows(0.1, 0.7), strategy="fedumf", config=searched)
    titles = [table.title.partition(".")[0] for table in tables(folders)]
    assert titles == ["Overview", "FedConcat, table 1"]
    with pytest.raises(
        InputError, match=r"^table fedconcat/table5: its finished runs belong to no cell of this table$"
    ):
        paper_table("fedconcat/table5", None, folders.found.runs)


def test_runs_that_only_show_that_a_table_can_be_made_are_left_out(folders):
    (config, *_) = cell_configs("turbosvm/table2", "smoke").values()
    folders.write(0, rows(0.1, 0.8), config=config)
    folders.write(0, rows(0.1, 0.8), config=CONFIG | {"name": "turbosvm/shakespeare/smoke"})
    with pytest.raises(InputError, match="no finished run of any paper's table"):
        tables(folders)


def test_experiments_that_are_no_table(folders):
    """Means of 0.6, 0.8 and 0.5, 0.5; 0.7 is reached in rounds (never), 1 and (never) twice."""
    for strategy, finals in {"fedavg": (0.6, 0.8), "turbosvm": (0.5, 0.5)}.items():
        config = CONFIG | {"name": "turbosvm/shakespeare/small", "strategy": strategy}
        for seed, final in enumerate(finals):
            folders.write(seed, rows(0.1, final, final), strategy=strategy, config=config)
    folders.write(0, rows(0.1, 0.9))  # by itself: of no experiment
    end, needed = tables(folders)
    assert end.title == needed.title == "experiment=turbosvm/shakespeare scale=small"
    assert (end.part, needed.part) == ("After the last round", "Rounds to a target")
    assert end.above == ("Seeds: 0, 1.",)
    assert needed.notes[-1] == "Data: digits (01234567). Code: fedrun 0.1.0, torch 2.11.0, commit abc123."
    column = end.header.index("test accuracy")
    assert {row[0]: row[column] for row in end.rows} == {"fedavg": "70.00 ± 10.00", "turbosvm": "50.00 ± 0.00"}
    assert needed.rows == (("fedavg", ">2"), ("turbosvm", ">2"))


def test_the_price_stands_beside_the_accuracy(folders):
    """Bytes where they differ between settings, and privacy where it was measured."""
    for strategy, price in {
        "fedavg": {"cost/bytes_up": 4000.0},
        "turbosvm": {"cost/bytes_up": 1000.0, "privacy/epsilon": 2.0},
    }.items():
        config = CONFIG | {"name": "uploads/compression", "strategy": strategy}
        for seed in (0, 1):
            folders.write(seed, rows(0.1, 0.5, **price), strategy=strategy, config=config)
    (end, *_) = tables(folders)
    assert end.header[-2:] == ("privacy ε", "bytes up")
    assert {row[0]: row[-2:] for row in end.rows} == {
        "fedavg": ("-", "4,000"),
        "turbosvm": ("2.0000 ± 0.0000", "1,000"),
    }


def test_nothing_to_compare_is_refused(folders):
    folders.write(0, rows(0.1, 0.9))
    with pytest.raises(
        InputError,
        match="table at scale full or small; start one with: fedrun experiment=",
    ):
        tables(folders)


def test_settings_with_fewer_seeds_are_named(folders):
    for strategy, seeds in {"fedavg": (0, 1), "turbosvm": (1,)}.items():
        for seed in seeds:
            config = CONFIG | {"name": "turbosvm/shakespeare", "strategy": strategy}
            folders.write(seed, rows(0.1, 0.5), strategy=strategy, config=config)
    assert tables(folders)[0].above[1:] == ("Only seeds 1: turbosvm.",)


def test_values_that_settings_named_by_their_strategy_also_differ_in(folders):
    for strategy, lr in {"fedavg": 0.1, "turbosvm": 0.5, "median": 0.1}.items():
        config = CONFIG | {"name": "suite/optimisers", "strategy": strategy}
        folders.write(0, rows(0.1, 0.5), strategy=strategy, config=config, changes={"local.lr": lr})
    assert tables(folders)[0].above[1:] == ("local.lr: 0.1 for fedavg, median; 0.5 for turbosvm.",)


def test_runs_that_are_left_out_are_notes_and_not_counted(folders):
    """Seed 2 was run on other data: it is not among the seeds, and neither are its data."""
    config = CONFIG | {"name": "suite/optimisers"}
    folder = [
        folders.write(seed, rows(0.1, 0.5), config=config, data=data)
        for seed, data in enumerate(("0123456789", "0123456789", "fedcba9876"))
    ]
    first, *_, last = tables(folders)
    assert first.above == ("Seeds: 0, 1.",)
    assert last.notes[-2:] == (
        f"{folder[2]}: the same setting as {folder[0]}, but on other data; left out",
        "Data: digits (01234567). Code: fedrun 0.1.0, torch 2.11.0, commit abc123.",
    )
