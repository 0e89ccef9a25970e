import pytest

from fedrun.data.targets import Target
from fedrun.experiment.clock.base import VIRTUAL_SECONDS
from fedrun.report import quantities
from fedrun.report.comparison import report
from fedrun.report.quantities import Measured, Quantity, spread
from fedrun.report.settings import settings
from fedrun.system.errors import InputError

from ..helpers.run_folders import rows


def only_setting(folders):
    (setting,), _ = settings(folders.found.runs)
    return setting


def test_every_kind_of_quantity(folders):
    folders.write(0, rows(0.2, 0.8, 0.6))
    folders.write(1, rows(0.1, 0.6, 0.8))
    folders.write(2, rows(0.1, 0.9), complete=False)  # does not count
    setting = only_setting(folders)

    def text(kind, key):
        return str(Measured.of(Quantity(kind, key), setting))

    assert text("final", "test/accuracy") == "70.00 ± 10.00"
    assert text("best", "test/accuracy") == "80.00 ± 0.00"
    assert text("best", "test/loss") == "0.2000 ± 0.0000"
    assert text("rounds to", "0.7") == "1.5 ± 0.5"
    assert text("rounds to", "0.81") == ">2"
    assert text("cost", "cost/params_down") == "40"
    assert text("cost", "seconds") == "1.0 ± 0.0"
    assert text("final", "unseen/accuracy") == "-"


def test_virtual_time(folders):
    """Seed 0 reaches 0.7 in round 1, after 10 s; seed 1 in round 2, after 40 s."""
    for seed, accuracies, times in ((0, (0.2, 0.8, 0.6), (0, 10, 30)), (1, (0.1, 0.6, 0.8), (0, 20, 40))):
        content = [row | {VIRTUAL_SECONDS: time} for row, time in zip(rows(*accuracies), times, strict=True)]
        folders.write(seed, content)
    setting = only_setting(folders)
    assert str(Measured.of(Quantity("seconds to", "0.7"), setting)) == "25.0 ± 15.0"
    assert str(Measured.of(Quantity("seconds to", "0.81"), setting)) == ">2 rounds"
    assert quantities.to_targets(setting.runs) == [Quantity(kind, "0.70") for kind in ("rounds to", "seconds to")]
    assert str(Measured.of(Quantity("cost", VIRTUAL_SECONDS), setting)) == "35.0 ± 5.0"
    tables = {table.title: table for table in report([setting], ["test/accuracy"])}
    assert tables["Virtual seconds to a target"].header == ("setting", "seconds to 70 %")
    assert "virtual seconds" in tables["Costs"].header
    folders.write(2, rows(0.2, 0.8), changes={"local.lr": 0.2})  # without a clock
    timed, untimed = settings(folders.found.runs)[0]
    assert quantities.to_targets(untimed.runs) == [Quantity("rounds to", "0.70")]
    tables = {table.title: table for table in report([timed, untimed], ["test/accuracy"])}
    assert [row[1] for row in tables["Virtual seconds to a target"].rows] == ["25.0 ± 15.0", "-"]


def test_an_adaptive_run_tells_of_its_own_targets_only(folders):
    """It was fully evaluated in no round but that of its target: what it says of others would be wrong."""
    folders.write(0, rows(None, None, 0.8), changes={"evaluation": {"adaptive": True}})
    setting = only_setting(folders)
    assert str(Measured.of(Quantity("rounds to", "0.7"), setting)) == "2.0"
    unknown = Measured.of(Quantity("rounds to", "0.65"), setting)
    assert (unknown.values, unknown.known, str(unknown)) == ((), [], "-")
    with pytest.raises(InputError, match=r"adaptive=true, targets=\[0.7\], which does not show the rounds to 0.65;"):
        setting.runs[0].check_target(Target.of(0.65))
    with pytest.raises(InputError, match="does not show the interpolated rounds to 0.70;"):
        setting.runs[0].check_target(Target.of(0.7), interpolated=True)


@pytest.mark.parametrize("changes", [{}, {"evaluation": {"adaptive": True}, "targets": None}])
def test_why_a_run_does_not_tell_of_a_target(folders, changes):
    folders.write(0, rows(0.1, 0.8), changes=changes)
    (run,) = only_setting(folders).runs
    with pytest.raises(InputError, match=r"has no test/f1 in any round, as the rounds to test/f1:0.5 need$"):
        run.check_target(Target.of("test/f1:0.5"))
    assert run.shows_target(Target.of(0.7)) is not run.adaptive


def test_a_search_does_not_tell_of_targets(folders):
    """They are of test samples, at which it does not look: neither reached nor missed, whatever else it records."""
    searched = [{"round": 0}, {"round": 1, "validation/accuracy": 0.8, "clients/accuracy_mean": 0.8}]
    folders.write(0, searched, changes={"validation": {"share": 0.1}})
    setting = only_setting(folders)
    for target in ("0.7", "clients/accuracy_mean:0.7"):
        assert str(Measured.of(Quantity("rounds to", target), setting)) == "-"
    with pytest.raises(InputError, match=r"was evaluated on validation samples, and does not show the rounds to 0.70"):
        setting.runs[0].check_target(Target.of(0.7))


def test_the_best_of_a_mean_loss_is_the_least(folders):
    content = [
        {**row, "clients/loss_mean": loss} for row, loss in zip(rows(0.1, 0.2, 0.3), (2.3, 1.5, 2.0), strict=True)
    ]
    folders.write(0, content)
    assert Measured.of(Quantity("best", "clients/loss_mean"), only_setting(folders)).known == [1.5]


@pytest.mark.parametrize(
    ("values", "written"),
    [
        ((1.46836, 1.46824), "1.4683 ± 0.0001"),
        ((0.0002, 0.0004), "3.000e-04 ± 1.000e-04"),
        ((20_000.0, 20_002.0), "2.000e+04 ± 1.000e+00"),
        ((0.25, -0.25), "0.0000 ± 0.2500"),
    ],
)
def test_mean_and_deviation_have_the_same_form(values, written):
    assert spread("test/loss", values) == written


def test_counts_of_clients_have_no_best_round():
    """Neither fedrun's nor those that a rule of participation records: Oort's ``explored``, a user's ``available``."""
    counts = ("untested", "tuned_untested", "late", "staleness_max", "explored", "available")
    assert not any(quantities.has_best(f"clients/{name}") for name in counts)
    summaries = ("accuracy_mean", "tuned_accuracy_weighted", "dice_worst_tenth", "loss_mean", "gm_appeal")
    assert all(quantities.has_best(f"clients/{name}") for name in summaries)


def test_measures_of_uploads_have_no_best_round():
    """The largest error memory, or the smallest error of one round's compression, says nothing about the model."""
    keys = ("compress/error", "secure_sum/clipped_share", "privacy/epsilon", "clusters/models", "test/accuracy")
    assert not quantities.has_best("test/attack_success")  # what is best for the attack is worst for the server
    assert list(filter(quantities.has_best, keys)) == ["test/accuracy"]


def test_a_seed_without_a_finite_value_leaves_no_mean(folders):
    folders.write(0, rows(0.2, 0.8))
    folders.write(1, rows(0.2, None))
    found = Measured.of(Quantity("final", "test/accuracy"), only_setting(folders))
    assert (found.values, found.known, str(found)) == ((0.8, None), [], "-")


def test_any_metric_is_found_and_known_ones_come_first(folders):
    more = {
        "clients/gm_appeal": 0.3,
        "unseen/accuracy": 0.4,
        "own/thing": 2.5,
        "server/x": 1.0,
        "clients/excluded": 0.0,
    }
    folders.write(0, rows(0.5, **more))
    runs = folders.found.runs
    assert quantities.metrics(runs) == [
        *("test/accuracy", "test/loss", "clients/gm_appeal", "unseen/accuracy", "own/thing", "server/x")
    ]
    assert [quantity.key for quantity in quantities.costs(runs)] == ["seconds"]  # round 0 has cost nothing
    folders.write(1, rows(0.5, **{**more, "clients/excluded": 1.0}))
    assert "clients/excluded" in quantities.metrics(folders.found.runs)


def test_targets_are_the_runs_and_more(folders):
    folders.write(0, rows(0.5))
    assert [target.name for target in quantities.targets(folders.found.runs, [0.5])] == ["0.50", "0.70"]
    assert Quantity("rounds to", "0.7").heading == "to 70 %"


def test_spread():
    assert spread("test/f1", [0.70, 0.71, 0.75]) == "72.00 ± 2.16"  # sqrt((4 + 1 + 9) / 3) = 2.1602
    assert spread("own/thing", [1.0]) == "1.0000"
    assert spread("privacy/epsilon", [7.6, 7.6 + 1e-15]) == "7.6000 ± 0.0000"  # the rounding of two computations
    assert spread("cost/params_up", [1000.0, 3000.0]) == "2,000 ± 1,000"
    assert spread("cost/excluded", [1, 0, 0]) == "0.3 ± 0.5"  # 1/3 and sqrt(2)/3 = 0.47
    assert spread("cost/excluded", [2, 1, 1, 0]) == "1.0 ± 0.7"  # sqrt(1/2)
    assert spread("cost/excluded", [1, 1]) == "1"
    assert spread("clusters/models", [5.0, 5.0]) == "5"
    assert spread("cost/excluded", [4, 2]) == "3 ± 1"
    assert spread("cost/excluded", [201, 200]) == "200 ± 0"  # 200.5, where halves do not matter
    assert spread("test/perplexity", [1.7e308, 1.7e308]) == "1.700e+308 ± 0.000e+00"  # whose sum is no float
    assert spread("test/f1", []) == "-"
