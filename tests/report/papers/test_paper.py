import pytest

from fedrun.config.options import conf_dir
from fedrun.report.papers.paper import Cell, cells, numbers_file, read
from fedrun.system.errors import InputError

FOLDER = conf_dir() / "experiment"

# Rows of each paper's file, and a few numbers, from the papers themselves.
ROWS = {"turbosvm": 603, "fedavg": 140, "fedconcat": 636, "fedumf": 632, "maxfl": 184, "suite": 162}


def test_all_papers_are_there():
    assert sorted(path.stem for path in FOLDER.glob("*.csv")) == sorted(ROWS)
    assert numbers_file("turbosvm/table2") == FOLDER / "turbosvm.csv"


@pytest.mark.parametrize("paper", ROWS)
def test_every_cell_is_whole(paper):
    found = read(FOLDER / f"{paper}.csv")
    assert len(found) == ROWS[paper]
    assert {cell.paper for cell in found} == {paper}
    assert {cell.unit for cell in found} <= {
        *("%", "rounds", "x", "fraction", "count", "samples", "nats", "mse", "percentage points", "")
    }
    for cell in found:
        # What is printed is a number, a bound, a range or nothing.
        assert cell.number is not None or cell.printed == "" or cell.printed[0] in "<>" or "-" in cell.printed
        if cell.unit == "%" and cell.number is not None:
            assert 0 <= cell.number <= 100
        if cell.metric.startswith("rounds_to_"):
            assert 0 < float(cell.metric.removeprefix("rounds_to_")) < 1


def only(paper, table, **coordinates):
    (cell,) = [
        cell
        for cell in cells(FOLDER / f"{paper}.csv", table)
        if all(cell.coordinates.get(key) == value for key, value in coordinates.items())
    ]
    return cell


def test_known_numbers():
    cell = only("turbosvm", "T2", dataset="femnist", strategy="turbosvm")
    assert (cell.number, cell.std, cell.unit, str(cell)) == (54.6, 1.6, "rounds", "54.6 ± 1.6")
    assert cell.setting == {"C": "8", "E": "1"}
    censored = only("turbosvm", "T2", dataset="celeba", strategy="fedadam")
    assert (censored.number, str(censored)) == (None, ">200")
    shards = only("fedavg", "T1", model="2nn", partition="noniid", B="10", C="0.1", metric="rounds_to_0.97")
    assert (shards.number, shards.std, str(shards)) == (664.0, None, "664")
    dash = only("fedavg", "T1", model="2nn", partition="iid", B="inf", C="0.5", metric="rounds_to_0.97")
    assert (dash.number, str(dash)) == (None, "-")


def test_an_equals_sign_in_a_settings_value():
    assert cells(FOLDER / "fedconcat.csv", "T1")[0].setting["partition"] == "#C=2"


def test_a_std_is_written_with_the_values_decimals():
    assert str(only("turbosvm", "T3", dataset="femnist", strategy="moon", metric="accuracy")) == "58.2 ± 3.0"


def test_ours_next_to_a_lost_number_has_two_decimals_as_a_fraction_and_one_otherwise():
    places = {"clients": "seen", "dataset": "fmnist", "strategy": "maxfl"}
    assert only("maxfl", "T1", metric="gm_appeal", **places).decimals == 2
    assert only("maxfl", "T1", metric="clients/accuracy_mean", **places).decimals == 1


def test_what_is_not_there_is_refused():
    with pytest.raises(InputError, match=r"/fedavg.csv: table 'T9': no such table; allowed: T1, T2$"):
        cells(FOLDER / "fedavg.csv", "T9")


HEADER = "paper,table,dataset,setting,strategy,metric,value,std,unit\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a,b\n", "line 1: columns a, b ('a' is not one of them); allowed: paper, table, dataset"),
        (HEADER.replace("value", "number"), "line 1: columns paper, table, dataset, setting, strategy, metric, number"),
        ("", "line 1: columns ; allowed: paper, table, "),
        (HEADER + "p,T1,d,,s,m,1\n", "line 2: 7 values; expected 9"),
        (HEADER + "p,T1,d,,s,,1,,%\n", "line 2: paper, table and metric must not be empty"),
        (HEADER + "p,T1,d,C=1;E,s,m,1,,%\n", "line 2: setting 'E'; expected key=value;key=value"),
        (HEADER + "p,T1,d,,s,m,>5,1,%\n", "line 2: value '>5' ± '1'; expected two numbers"),
        (HEADER + "p,T1,d,,s,m,5,-1,%\n", "line 2: value '5' ± '-1'; expected two numbers, the second at least 0"),
        (HEADER + "p,T1,d,,s,m,1,,%\np,T1,d,,t,m,2,,\n", "line 3: unit ''; expected '%', as earlier of m in the table"),
        (HEADER + "p,T1,d,,s,m,1,,%\np,T1,d,,s,m,2,,%\n", "line 3: the same cell is in an earlier line"),
    ],
)
def test_a_damaged_row_is_named(tmp_path, text, problem):
    path = tmp_path / "p.csv"
    path.write_text(text)
    with pytest.raises(InputError) as refusal:
        read(path)
    assert str(refusal.value).startswith(f"{path}, {problem}")
    assert "\n" not in str(refusal.value)


def test_a_cell_is_read_as_written(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("\ufeff" + HEADER + "p,T1,d,C=1,s,m,2.50,0.5,%\n\n")  # as a spreadsheet writes it
    assert read(path) == [Cell("p", "T1", "d", {"C": "1"}, "s", "m", "2.50", 0.5, "%")]
