import json

from fedrun.report.settings import comparable_text, differing, leaves, settings, written

from ..helpers.run_folders import CONFIG, rows


def test_runs_that_differ_in_what_changes_no_number_are_one_setting(folders):
    elsewhere = {"data_dir": "elsewhere", "output_dir": "there", "name": "other", "evaluation.train_clients": True}
    folders.write(1, rows(0.1))
    folders.write(0, rows(0.1), changes=elsewhere)
    (setting,), problems = settings(folders.found.runs)
    assert [run.seed for run in setting.runs] == [0, 1]
    assert (setting.name, problems) == ("digits fedavg", [])
    assert differing([setting]) == []


def test_a_class_that_is_no_text_is_shown_as_it_is(folders):
    """As in a damaged configuration of an unfinished run, which has no checksum."""
    folders.write(0, rows(0.1))
    folders.write(0, rows(0.1), changes={"partition._target_": 3})
    assert [setting.name for setting in settings(folders.found.runs)[0]] == ["partition=3", "partition=iid"]


def test_a_folder_of_which_a_later_version_recorded_a_key_more_is_one_setting(folders):
    """The hash leaves neutral values out, so runs of both versions lie below it."""
    older = folders.write(0, rows(0.1))
    newer = folders.write(1, rows(0.1), changes={"strategy.client.variant": "paper"})
    folders.write(2, rows(0.1), changes={"strategy.client.variant": "paper", "data_dir": "elsewhere"})
    folders.write(3, rows(0.1), changes={"strategy.client.variant": "other"})
    newer.rename(older.parent / newer.name)
    first, second = settings(folders.found.runs)[0]
    assert [[run.seed for run in setting.runs] for setting in (first, second)] == [[0, 1, 2], [3]]


def test_a_part_that_a_later_version_recorded_is_neutral_in_earlier_runs(folders):
    """The folders have different hashes: only the configurations show that the runs are of one setting."""
    part, classes = "initial._target_", "fedrun.models.initial_weights"
    folders.write(0, rows(0.1))
    folders.write(1, rows(0.1), changes={part: f"{classes}.InitialWeights"})
    folders.write(2, rows(0.1), changes={part: f"{classes}.WeightsOfRun", "initial.path": "a", "initial.part": "model"})
    first, second = settings(folders.found.runs)[0]
    assert [(setting.name, [run.seed for run in setting.runs]) for setting in (first, second)] == [
        ("initial=random", [0, 1]),
        ("initial=run", [2]),
    ]


def test_a_folder_named_like_a_hash_joins_no_settings(folders):
    """Copies below a date, eight hex digits: FedAvg and FedProx stay two settings, by their summaries and without."""
    prox = {"strategy.client": {"_target_": "fedrun.strategies.fedprox.FedProx", "mu": 0.1}}
    date = folders.top / "runs" / "fedavg" / "20261128"
    date.mkdir(parents=True)
    for seed, changes in enumerate(({}, {}, prox, prox)):
        strategy = "fedprox" if changes else "fedavg"
        folders.write(seed, rows(0.1), strategy=strategy, changes=changes).rename(date / f"copy{seed}")
        folders.write(seed + 4, rows(0.1), strategy=strategy, changes=changes).rename(date / f"seed={seed + 4}")
    found = [[run.seed for run in setting.runs] for setting in settings(folders.found.runs)[0]]
    assert found == [[0, 1, 4, 5], [2, 3, 6, 7]]


def test_runs_that_were_moved_are_joined_by_the_hash_of_their_summaries(folders):
    """A later version recorded a key more; both summaries have the same hash, and the folders are called anything."""
    for seed, changes in enumerate(({}, {"strategy.client.variant": "paper"})):
        folder = folders.write(seed, rows(0.1), changes=changes)
        summary = json.loads((folder / "summary.json").read_text())
        (folder / "summary.json").write_text(json.dumps(summary | {"config_hash": "0123abcd"}))
        folder.rename(folders.top / f"copy{seed}")
    (setting,), _ = settings(folders.found.runs)
    assert [run.seed for run in setting.runs] == [0, 1]


def test_a_class_of_fedrun_whose_module_has_moved_is_one_setting(folders):
    """But not one of another package."""
    for seed, path in enumerate(("fedrun.models.mlp.MLP", "fedrun.earlier.MLP", "mine.MLP")):
        folders.write(seed, rows(0.1), changes={"model": {"_target_": path}})
    own, fedruns = settings(folders.found.runs)[0]
    assert [[run.seed for run in setting.runs] for setting in (own, fedruns)] == [[2], [0, 1]]


def test_word_vectors_may_lie_elsewhere(folders):
    """Their path follows from data_dir."""
    for seed, path in enumerate(("data/glove/200d.txt", "/datasets/glove/200d.txt")):
        folders.write(seed, rows(0.1), changes={"dataset.vectors": path})
    (setting,), _ = settings(folders.found.runs)
    assert [run.seed for run in setting.runs] == [0, 1]


def test_runs_on_other_data_are_no_seeds_of_a_setting(folders):
    first = folders.write(0, rows(0.1), data="a tenth")
    other = folders.write(1, rows(0.1), data="the whole")
    folders.write(2, rows(0.1), complete=False)  # of which it is not known
    folders.write(3, rows(0.1), data="a tenth")
    (setting,), problems = settings(folders.found.runs)
    assert [run.seed for run in setting.runs] == [0, 2, 3]
    assert problems == [f"{other}: the same setting as {first}, but on other data; left out"]


def test_settings_are_named_by_what_differs(folders):
    turbosvm = {"strategy.server._target_": "fedrun.strategies.turbosvm.TurboSVM", "strategy.server.lr": 0.01}
    folders.write(0, rows(0.1))
    folders.write(0, rows(0.1), changes={"local.lr": 0.2})
    folders.write(0, rows(0.1), strategy="turbosvm", changes=turbosvm)
    found, _ = settings(folders.found.runs)
    assert [setting.name for setting in found] == ["fedavg local.lr=0.1", "fedavg local.lr=0.2", "turbosvm"]
    keys = differing(found)
    assert keys == ["local.lr", "strategy.server._target_", "strategy.server.lr"]
    assert [written(found[2].leaves, key) for key in keys] == ["0.1", "turbosvm", "0.01"]
    assert written(found[0].leaves, "strategy.server.lr") == "-"


def test_an_option_placed_below_another_one_has_its_name(folders):
    for base in ("fedavg.FedAvg", "fedopt.FedAdam"):
        folders.write(0, rows(0.1), changes={"strategy.server.base": {"_target_": f"fedrun.strategies.{base}"}})
    assert [setting.name for setting in settings(folders.found.runs)[0]] == [
        "strategy.server.base=fedadam",
        "strategy.server.base=fedavg",
    ]


def test_keys_that_follow_from_a_choice_are_named_only_where_they_must_be(folders):
    labels = {"partition._target_": "fedrun.data.partitions.labels.Labels", "partition.labels_per_client": 2}
    folders.write(0, rows(0.1))
    folders.write(0, rows(0.1), changes=labels)
    assert [setting.name for setting in settings(folders.found.runs)[0]] == ["partition=iid", "partition=labels"]
    folders.write(0, rows(0.1), changes=labels | {"partition.labels_per_client": 3})
    assert [setting.name for setting in settings(folders.found.runs)[0]] == [
        "partition=iid",
        "partition=labels partition.labels_per_client=2",
        "partition=labels partition.labels_per_client=3",
    ]


def test_one_client_is_not_all_clients(folders):
    folders.write(0, rows(0.1), changes={"clients_per_round": 1})
    folders.write(0, rows(0.1), changes={"clients_per_round": 1.0})
    found, _ = settings(folders.found.runs)
    assert [setting.name for setting in found] == ["clients_per_round=1", "clients_per_round=1.0"]
    key = "clients_per_round"
    assert comparable_text({key: 1}) != comparable_text({key: 1.0}) != comparable_text({key: "1.0"})


def test_numbers_are_the_same_however_they_are_written(folders):
    """Momentum 0 and 0.0: two settings of two learning rates, and one key that differs."""
    folders.write(0, rows(0.1), changes={"local.momentum": 0, "local.lr": 0.1})
    folders.write(1, rows(0.1), changes={"local.momentum": 0.0, "local.lr": 0.1})
    folders.write(0, rows(0.1), changes={"local.momentum": 0.0, "local.lr": 1})
    found, _ = settings(folders.found.runs)
    assert [(setting.name, len(setting.runs)) for setting in found] == [("local.lr=0.1", 2), ("local.lr=1", 1)]
    assert differing(found) == ["local.lr"]


def test_of_two_runs_with_one_seed_the_complete_one_counts(folders):
    first = folders.write(0, rows(0.1), complete=False)
    second = folders.write(0, rows(0.2))
    third = folders.write(0, rows(0.3))
    (setting,), problems = settings(folders.found.runs)
    assert [run.folder for run in setting.runs] == [second]
    assert {problem.partition(":")[0] for problem in problems} == {str(first), str(third)}
    assert all(f"the same setting and seed as {second}" in problem for problem in problems)


def test_leaves():
    dataset = {"name": "digits", "download": True}
    more = {"dataset": dataset, "hardware": {"threads": 2}, "a": {"download": 1e6, "b": [1, 2]}}
    found = leaves({**CONFIG, **more})
    assert found.keys().isdisjoint({"hardware.threads", "seed", "dataset.download"})
    assert found["a.download"] == 1e6  # a bandwidth
    assert (found["a.b"], found["local.lr"], found["rounds"]) == ([1, 2], 0.1, 2)
    assert written(found, "a.b") == "[1,2]"


def test_numbers_in_names_are_sorted_by_size(folders):
    for lr in (0.5, 10.0, -0.5, 0.05, 1e-3, -2.0, 2.0):
        folders.write(0, rows(0.1), changes={"local.lr": lr})
    found, _ = settings(folders.found.runs)
    assert [setting.name for setting in found] == [f"local.lr={lr}" for lr in (-2.0, -0.5, 0.001, 0.05, 0.5, 2.0, 10.0)]


def test_a_key_of_earlier_versions_is_not_a_users():
    """``study`` was a key at the top, null in every run; a dataset may have one of this name."""
    assert leaves({"study": None, "dataset": {"study": "cohort A"}}) == {"dataset.study": "cohort A"}


def test_a_batch_of_an_evaluation_counts_where_it_may_be_the_last_one():
    """Adaptive evaluations end after a batch; others have the same result for any size."""
    adaptive = {"evaluation.batch_size": 64, "evaluation.adaptive": True}
    assert leaves({"evaluation": {"batch_size": 64, "adaptive": True}}) == adaptive
    assert leaves({"evaluation": {"batch_size": 64, "adaptive": False}}) == {"evaluation.adaptive": False}


def test_the_share_of_missed_targets_counts_in_adaptive_evaluations():
    kept, left_out = ({"miss_probability": 0.01, "adaptive": adaptive} for adaptive in (True, False))
    assert leaves({"evaluation": kept})["evaluation.miss_probability"] == 0.01
    assert leaves({"evaluation": left_out}) == {"evaluation.adaptive": False}


def test_targets_count_where_they_decide_what_a_run_does():
    kept = {"targets": [0.9], "stop_at_targets": True}, {"targets": [0.9], "evaluation": {"adaptive": True}}
    assert [leaves(config)["targets"] for config in kept] == [[0.9], [0.9]]
    assert leaves({"targets": [0.9], "stop_at_targets": False}) == {"stop_at_targets": False}


def test_keys_of_own_classes_count_whatever_their_names_are():
    """``train_clients`` and ``download`` change no number only where fedrun's own classes have them."""
    own = {"_target_": "mine.Own", "train_clients": 5, "miss_probability": 0.5, "download": "2024"}
    found = leaves({"dataset": own, "evaluation": {"train_clients": True}})
    assert {key for key in found if not key.endswith("_target_")} == {
        f"dataset.{key}" for key in own if key != "_target_"
    }
    fedruns = {"_target_": "fedrun.data.datasets.mnist.MNIST", "data_dir": "x", "download": True}
    assert not {key for key in leaves({"dataset": fedruns}) if not key.endswith("_target_")}
