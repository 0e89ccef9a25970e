"""The page: what is in it, its script's arithmetic (Node), and what a browser makes of it (Chromium)."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from html import unescape
from html.parser import HTMLParser

import pytest

from fedrun.report.comparison import report
from fedrun.report.html_page import FOLDER, POINTS, curve_data, embedded, page
from fedrun.report.settings import settings

from ..helpers.run_folders import rows

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PICTURE = b"\x89PNG picture"
NODE = shutil.which("node")
in_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium found")


@pytest.fixture
def found(folders):
    """Two settings; one ends at 40 and 60 %, the other at 80 %, and its name would end a script element."""
    folders.write(0, rows(0.1, 0.2, 0.4))
    first = folders.write(1, rows(0.1, 0.2, 0.6))
    (first / "federation.png").write_bytes(PICTURE)
    folders.write(0, rows(0.1, 0.7, 0.8, **{"unseen/accuracy": 0.5}), changes={"local.kind": "</script>"})
    found, _ = settings(folders.found.runs)
    return found


def made(found):
    return page("Report & more", report(found, ["test/accuracy"]), found)


class Elements(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


def test_nothing_is_asked_of_the_network(found):
    elements = Elements(made(found)).found
    links = [value for _, attributes in elements for key, value in attributes.items() if key in ("src", "href")]
    assert links and all(link.startswith("data:") for link in links)
    assert "@import" not in made(found) and set(re.findall(r"url\(.", made(found))) == {"url(#"}
    (policy,) = [attributes["content"] for _, attributes in elements if "http-equiv" in attributes]
    assert policy.startswith("default-src 'none'")


def test_tables_and_the_federation_are_in_it(found):
    text = made(found)
    assert "<h1>Report &amp; more</h1>" in text
    for title in ("Settings", "After the last round", "Costs", "Curves", "Who held which samples"):
        assert f"<h2>{title}</h2>" in text
    assert f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}" in text
    assert "</script>" not in re.sub(r"</script>\s*(<script>|</body>)", "", text)


@pytest.mark.parametrize(
    ("changes", "pictures"),
    [({"local.lr": 0.5}, 1), ({"population.unseen_clients": 3}, 2), ({"validation.share": 0.2}, 2)],
)
def test_a_picture_for_each_federation(folders, changes, pictures):
    for number, own in enumerate(({}, changes)):
        folder = folders.write(0, rows(0.1, 0.2), changes=own)
        (folder / "federation.png").write_bytes(PICTURE + bytes([number]))
    text = made(settings(folders.found.runs)[0])
    assert text.count("<figure><img") == pictures


def content(text):
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])


def test_the_data_of_the_curves(found):
    data = content(made(found))
    assert [metric["key"] for metric in data["metrics"]] == ["test/accuracy", "test/loss", "unseen/accuracy"]
    assert data["metrics"][0] == {
        "key": "test/accuracy",
        "name": "test accuracy",
        "share": True,
        "loss": False,
        "targets": [{"share": 0.7, "name": "70 %"}],
    }
    assert list(data["axes"]) == ["rounds", "params", "samples", "seconds"]  # no run counts bytes
    assert data["keys"] == ["setting", "local.kind", "seed"]
    first, second, other = data["runs"]
    assert first["values"] == {"setting": "local.kind=-", "local.kind": "-", "seed": "0"}
    assert (second["values"]["seed"], other["values"]["local.kind"]) == ("1", "</script>")
    assert second["rounds"] == [0, 1, 2]
    assert second["metrics"]["test/accuracy"] == {"y": [0.1, 0.2, 0.6], "last": 0.6, "best": 0.6}
    assert second["metrics"]["test/loss"]["best"] == 0.4  # of a loss the lowest
    # 10 numbers up and 20 down per round, 100 samples, half a second.
    assert second["x"] == {"params": [0, 30, 60], "samples": [0, 100, 200], "seconds": [0, 0.5, 1]}
    assert "unseen/accuracy" not in first["metrics"] and "unseen/accuracy" in other["metrics"]


def test_a_class_is_grouped_and_sought_under_the_key_of_its_group(folders):
    folders.write(0, rows(0.1, 0.2))
    folders.write(0, rows(0.1, 0.2), changes={"partition._target_": "fedrun.data.partitions.natural.Natural"})
    data = curve_data(settings(folders.found.runs)[0], ["test/accuracy"])
    assert data["keys"] == ["setting", "partition"]
    assert [run["values"]["partition"] for run in data["runs"]] == ["iid", "natural"]


def test_bytes_and_virtual_time_are_axes(folders):
    content = rows(0.1, 0.2)
    for row in content:
        row |= {"cost/bytes_up": 4 * row["round"], "cost/bytes_down": 8 * row["round"]}
        row |= {"time/virtual_s": 2.5 * row["round"]}
    folders.write(0, content)
    data = curve_data(settings(folders.found.runs)[0], ["test/accuracy"])
    assert list(data["axes"]) == ["rounds", "params", "bytes", "upload", "samples", "seconds", "virtual"]
    assert data["runs"][0]["x"]["bytes"] == [0, 12]
    assert data["runs"][0]["x"]["virtual"] == [0, 2.5]
    assert data["runs"][0]["x"]["upload"] == [0, 4]


def test_long_runs_are_thinned_to_the_same_rounds(folders):
    folders.write(0, rows(*[0.5] * 1001))
    folders.write(1, rows(*[0.5] * 701))
    first, second = curve_data(settings(folders.found.runs)[0], ["test/accuracy"])["runs"]
    assert first["rounds"] == [*range(0, 1000, 3), 1000]  # 1001 rounds in steps of 3 are fewer than 400
    assert second["rounds"] == [*range(0, 700, 3), 700]
    assert len(first["metrics"]["test/accuracy"]["y"]) == len(first["x"]["seconds"]) == 335 < POINTS


def test_long_runs_that_are_rarely_evaluated_keep_most_of_their_points(folders):
    content = rows(*[0.5] * 502)
    for number, row in enumerate(content):
        row["round"] = min(10 * number, 5003)  # evaluated in every tenth round and after the last
    folders.write(0, content)
    (run,) = curve_data(settings(folders.found.runs)[0], ["test/accuracy"])["runs"]
    assert run["rounds"] == [*range(0, 5001, 20), 5003]


def test_a_metric_of_few_rounds_has_no_gaps_between_them(folders):
    """Adaptive evaluations record F1 in some rounds only: these are its points, none of which is thinned away."""
    content = rows(*[0.5] * 1001)
    for row in content[::50]:
        row["test/f1"] = 0.4
    folders.write(0, content)
    (data,) = curve_data(settings(folders.found.runs)[0], ["test/accuracy", "test/f1"])["runs"]
    sparse = data["metrics"]["test/f1"]
    assert [data["rounds"][at] for at in sparse["at"]] == list(range(0, 1001, 50))
    assert sparse["y"] == [0.4] * 21


def test_a_seed_that_is_not_complete_does_not_cut_the_curve(folders):
    for seed in (0, 1):
        folders.write(seed, rows(0.1, 0.2, 0.6))
    folders.write(2, rows(0.1), complete=False)
    runs = curve_data(settings(folders.found.runs)[0], ["test/accuracy"])["runs"]
    assert [run["values"]["seed"] for run in runs] == ["0", "1"]


def test_a_gap_is_null(folders):
    folders.write(0, rows(0.5, None, 0.7))
    (data,) = curve_data(settings(folders.found.runs)[0], ["test/accuracy"])["runs"]
    assert data["metrics"]["test/accuracy"]["y"] == [0.5, None, 0.7]


def test_embedded_json_cannot_end_its_element():
    assert embedded({"a": "</script>"}) == '{"a":"\\u003c/script>"}'


@pytest.mark.skipif(NODE is None, reason="no Node.js found")
@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("ticks(0, 1, 5)", [0, 0.2, 0.4, 0.6, 0.8, 1]),
        ("ticks(3, 17, 3)", [5, 10, 15]),
        ("ticks(2, 2, 5)", [2]),
        ("ticks(0.1, 0.1 + 1.4e-17, 6)", [0.1]),
        ("ticks(10, 10.000000000000004, 6)", [10]),  # one step would be lost in rounding, and the loop not end
        ("logTicks(0.02, 30)", [0.1, 1, 10]),
        ("logTicks(0.3, 40)", [0.5, 1, 2, 5, 10, 20]),
        (
            "[0.12345, 71.234, 9999, 24050, 999999, 1.2e6, 3e9, -5e12].map(short)",
            ["0.1235", "71.23", "9999", "24.1k", "1M", "1.2M", "3G", "-5T"],
        ),
        ("scale(0, 10, 100, 200, false)(5)", 150),
        ("scale(1, 100, 0, 100, true)(10)", 50),
        ("scale(1, 100, 0, 100, true).value(50)", 10),
        ("pieces([null, 1, 2, null, null, 3, null])", [[1, 2], [3]]),
        ("spread([1, 3])", {"mean": 2, "std": 1}),
        ("spread([1, null])", None),
        (
            "[null, '', 'lr', 'seed,absent,lr', 'absent'].map((text) => chosenKeys(text, ['setting', 'lr', 'seed']))",
            [["setting"], [], ["lr"], ["seed", "lr"], ["setting"]],
        ),
        ("grouped(RUNS, ['lr']).map(({name, runs}) => [name, runs.length])", [["lr=0.1", 2], ["lr=0.2", 1]]),
        ("grouped(RUNS, []).map(({name, runs}) => [name, runs.length])", [["all runs", 3]]),
        (
            "['LR=0.1', 'lr=0.1 -seed=1', 'fedavg', '', 'lr=0', '-lr=0', 'lr=', '0.2']"
            ".map((words) => RUNS.filter((run) => matches(run, words)).length)",
            [2, 1, 0, 3, 0, 3, 3, 1],  # after an equals sign stands a whole value, or none yet
        ),
        # two runs: the rounds that both have, their means, and a gap where one is not finite
        ("curve(RUNS.slice(0, 2), 'a', 'rounds', 100)", [{"x": 0, "mean": 20, "std": 10, "round": 0}, None]),
        ("curve(RUNS.slice(0, 1), 'a', 'seconds', 1).map(({x, mean}) => [x, mean])", [[0, 0.1], [7, 0.5]]),
        ("curve(RUNS.slice(2), 'a', 'rounds', 1)", [{"x": 4, "mean": 1, "std": 0, "round": 4}]),
        # weights 1 and 1/2: (0 / 2 + 3) / (3 / 2) = 2
        (
            "smoothed([{mean: 0, std: 0}, null, {mean: 3, std: 0}], 0.5)",
            [{"mean": 0, "std": 0}, None, {"mean": 2, "std": 0}],
        ),
        (
            "positive([{x: 0, mean: 1}, {x: 1, mean: 0}, {x: 1, mean: 1}], true, true)",
            [None, None, {"x": 1, "mean": 1}],
        ),
        (
            "extent([{points: [{x: 1, mean: 5, std: 2}, {x: 3, mean: 4, std: 0}]}], [9], false)",
            {"x": [1, 3], "y": [3, 9]},
        ),
        ("[1000, 100].map((high) => wantsLog([{points: [{mean: 1}, {mean: high}]}]))", [True, False]),
        ("moved([0, 10], 0.5, 1, false)", [5, 15]),
        ("moved([0, 10], 0, 0.5, false, 0)", [0, 5]),
        ("moved([1, 100], 0.5, 1, true)", [10, 1000]),
        ("moved([1e-200, 1e200], 0, 2, true)", [1e-200, 1e200]),  # to 1e-400, which is 0, would have endless marks
        ("moved([-1e300, 1e300], 0, 1e10, false)", [-1e300, 1e300]),
        ("nearest([{x: 1}, null, {x: 5}], 39, (x) => 10 * x)", {"x": 5}),
        (
            "['9', '71.2 ± 3', '>200', '1,234', '-', '200', 'b', 'a'].sort(compared)",
            ["9", "71.2 ± 3", "200", ">200", "1,234", "-", "a", "b"],
        ),
        ("['>3 rounds', '4.6', '120.5 ± 2.0'].sort(compared)", ["4.6", "120.5 ± 2.0", ">3 rounds"]),
        (
            "draw([{colour: 'c', dash: '', points: [{x: 0, mean: 0, std: 0}, {x: 4, mean: 10, std: 0}]}],"
            "{width: 860, height: 420, x: [0, 4], y: [0, 10], logX: false, logY: false, xLabel: '', yLabel: '',"
            """targets: [{value: 5, name: '<'}]}).svg.match(/points="([^"]*)"|>&#60;</g)""",
            ['points="56.0,376.0 844.0,16.0"', ">&#60;<"],  # 860 x 420 less margins of 56, 16, 16 and 44
        ),
        (
            "draw([], {width: 860, height: 420, x: [0, 4], y: [0, 10], logX: false, logY: false, xLabel: '',"
            "yLabel: '', targets: [7, 5.25, 5].map((value) => ({value, name: `${value}`}))})"
            """.svg.match(/class="named"[^<]*/g)""",
            ['class="named" x="60" y="183">5, 5.25', 'class="named" x="60" y="120">7'],  # 36 pixels for each unit
        ),
    ],
)
def test_the_scripts_arithmetic(expression, value):
    """Of three runs the last one recorded ``a`` in round 4 only."""
    runs = [
        {
            "values": {"lr": "0.1", "seed": "0"},
            "rounds": [0, 1],
            "x": {"seconds": [0, 7]},
            "metrics": {"a": {"y": [0.1, 0.5]}},
        },
        {"values": {"lr": "0.1", "seed": "1"}, "rounds": [0, 1, 2], "x": {}, "metrics": {"a": {"y": [0.3, None, 0.5]}}},
        {"values": {"lr": "0.2", "seed": "0"}, "rounds": [0, 4], "x": {}, "metrics": {"a": {"at": [1], "y": [1]}}},
    ]
    code = (
        f"Object.assign(globalThis, require({json.dumps(str(FOLDER / 'plot.js'))}));"
        f"const RUNS = {json.dumps(runs)}; console.log(JSON.stringify({expression}))"
    )
    ended = subprocess.run([NODE, "-e", code], capture_output=True, text=True, check=True, timeout=30)
    assert json.loads(ended.stdout) == value


def browse(path, fragment="", width=1280):
    """What a page sends to its parent after its scripts have run in Chromium; no script may complain.

    The page is in a frame, because Chromium's windows are at least 500 pixels wide.
    """
    frame = path.with_name("frame.html")
    content = f'<iframe src="{path.as_uri()}{fragment}" style="border: 0; width: {width}px; height: 900px"></iframe>'
    frame.write_text(f"{content}<script>onmessage = (event) => {{ document.title = event.data; }};</script>")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", "--dump-dom"]
    options = ["--window-size=1400,1000", "--enable-logging=stderr", f"--user-data-dir={path.parent / 'profile'}"]
    ended = subprocess.run(
        [*command, *options, frame.as_uri()], capture_output=True, text=True, check=True, timeout=120
    )
    assert "CONSOLE" not in ended.stderr
    return unescape(re.search(r"<title>(.*?)</title>", ended.stdout)[1])


ACTIONS = """
<script>
const report = {};
const all = (selector) => [...document.querySelectorAll(selector)];
const find = (id) => document.getElementById(id);
const plot = find("plot"), box = plot.getBoundingClientRect();
const count = () => all("#plot polyline.line").length;
const address = () => new URLSearchParams(location.hash.slice(1));
const axis = () => all("#plot text.axis").map((text) => text.textContent);
const names = () => all("#legend tbody tr").map((row) => row.dataset.name);
const set = (id, value, kind) => { find(id).value = value; find(id).dispatchEvent(new Event(kind ?? "change")); };
const point = (kind, x, y, more) => plot.dispatchEvent(
  new PointerEvent(kind, {clientX: box.left + x, clientY: box.top + y, button: 0, bubbles: true, ...more}));
const low = () => Number(all("#plot text[text-anchor=middle]")[0].textContent);

report.first = [count(), all("#plot polygon").length, all("#plot .named").map((text) => text.textContent), axis()];
report.width = innerWidth;
report.fits = document.documentElement.scrollWidth <= innerWidth && box.width > 0.85 * innerWidth;
report.letters = all("#plot text")[0].getBoundingClientRect().height;
point("pointermove", box.width - 20, 20);
report.tip = find("tip").textContent;
report.cursor = all("#plot .cursor").length;
report.target = document.elementFromPoint(box.right - 20, box.top + 20).id;
report.near = all("#legend tr.near").map((row) => row.dataset.name);
plot.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowLeft"}));
report.step = Number(all("#plot .cursor")[0].getAttribute("x1")) < box.width - 20;

point("pointerdown", box.width / 2, 100);
point("pointermove", box.width - 30, 102);
report.box = all("#plot .box").length;
point("pointerup", box.width - 30, 102);
report.zoomed = [low() > 0, all("#plot .box").length];
point("pointerdown", 200, 100, {shiftKey: true});
point("pointermove", box.width + 2000, 100, {shiftKey: true});
point("pointerup", box.width + 2000, 100, {shiftKey: true});
report.panned = low() < 0;
find("reset").click();
report.reset = low();

all("#legend tbody input")[1].click();
report.hidden = [count(), find("every").indeterminate];
find("every").click();
report.every = count();
all("#legend thead button")[2].click();
report.ascending = names();
all("#legend thead button")[2].click();
report.descending = names();
all("#keys input").forEach((input) => { if (input.value !== "seed") { input.checked = input.value === "seed"; } });
all("#keys input").find((input) => input.value === "seed").click();
report.grouped = [names(), find("grouped").textContent];

const table = all("section:not(#curves) table")[1];
const cells = () => [...table.tBodies[0].rows].map((row) => row.cells[1].textContent);
const left = () => [...table.tBodies[0].rows].filter((row) => !row.hidden).map((row) => row.cells[0].textContent);
const heading = table.tHead.rows[0].cells[1];
heading.querySelector("button").click();
report.sorted = [cells(), heading.getAttribute("aria-sort")];
set("filter", "kind=-", "input");
report.filtered = [names(), left()];
set("filter", "", "input");
set("metric", "test/loss");
set("against", "seconds");
set("smooth", "0.5", "input");
report.behind = all("#plot .behind").length;
find("logY").click();
report.changed = [axis(), ["metric", "against", "logY", "smooth", "keys"].map((key) => address().get(key))];
parent.postMessage(JSON.stringify(report), "*");
</script>
"""


@in_chromium
@pytest.mark.parametrize("width", [390, 1280])
def test_in_a_browser(found, tmp_path, width):
    path = tmp_path / "page.html"
    path.write_text(made(found).replace("</body>", f"{ACTIONS}</body>"), encoding="utf-8")
    report = json.loads(browse(path, "#metric=test/accuracy&against=params", width))
    assert report["width"] == width
    assert report["first"] == [2, 1, ["70 %"], ["parameters sent, up and down", "test accuracy (%)"]]
    assert report["fits"] and 10 < report["letters"] < 20
    mine, other = "local.kind=-", "local.kind=</script>"
    assert report["tip"] == f"80  {other}, round 250 ± 10  {mine}, round 2"
    assert (report["cursor"], report["near"], report["step"]) == (1, [other], True)
    assert report["target"] == "plot"  # of a click on the cursor's line, which each movement draws again
    assert (report["box"], report["zoomed"], report["panned"], report["reset"]) == (1, [True, 0], True, 0)
    assert (report["hidden"], report["every"]) == ([1, True], 2)
    assert (report["ascending"], report["descending"]) == ([mine, other], [other, mine])
    assert report["grouped"] == [["seed=0", "seed=1"], "seed"]
    assert report["sorted"] == [["50.00 ± 10.00", "80.00"], "ascending"]
    assert report["filtered"] == [["seed=1", "seed=0"], [mine]]
    assert report["behind"] == 2
    assert report["changed"] == [
        ["seconds of training", "test loss, smoothed"],
        ["test/loss", "seconds", "1", "0.5", "seed"],
    ]


@in_chromium
def test_in_a_browser_without_any_metric(folders, tmp_path):
    """Runs that recorded costs only."""
    folders.write(0, [{"round": 0, "cost/params_up": 0}, {"round": 1, "cost/params_up": 5}])
    found, _ = settings(folders.found.runs)
    text = page("None", report(found, []), found)
    path = tmp_path / "page.html"
    told = "<script>parent.postMessage('whole', '*');</script>"
    path.write_text(text.replace("</body>", f"{told}</body>"), encoding="utf-8")
    assert browse(path) == "whole"


SETTINGS_AS_COLUMNS = """
<script>
const table = [...document.querySelectorAll("section table")].at(-1), filter = document.getElementById("filter");
const left = (words) => {
  filter.value = words;
  filter.dispatchEvent(new Event("input"));
  const shown = (row) => [...row.cells].filter((cell) => cell.offsetWidth);
  return [...table.rows].map((row) => shown(row).map((cell) => cell.textContent));
};
parent.postMessage(JSON.stringify([left("rate=0.2"), left("")]), "*");
</script>
"""


@in_chromium
def test_settings_that_are_columns_are_filtered_too(folders, tmp_path):
    """Three keys differ between two settings, so the keys are rows."""
    for rate in (0.1, 0.2):
        changes = {"local.rate": rate, "local.size": 10 * rate, "local.step": -rate}
        folders.write(0, rows(0.1), changes=changes)
    found, _ = settings(folders.found.runs)
    path = tmp_path / "page.html"
    path.write_text(made(found).replace("</body>", f"{SETTINGS_AS_COLUMNS}</body>"), encoding="utf-8")
    whole = [
        ["", "local.rate=0.1 local.size=1.0 local.step=-0.1", "local.rate=0.2 local.size=2.0 local.step=-0.2"],
        ["local.rate", "0.1", "0.2"],
        ["local.size", "1.0", "2.0"],
        ["local.step", "-0.1", "-0.2"],
    ]
    assert json.loads(browse(path)) == [[[row[0], row[2]] for row in whole], whole]


BESIDE_THE_POINTER = """
<script>
const plot = document.getElementById("plot"), tip = document.getElementById("tip"), box = plot.getBoundingClientRect();
const places = [0.25, 0.45, 0.55, 0.8, 0.95].map((share) => {
  plot.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + share * box.width, clientY: box.top + 50}));
  const {left, right, width} = tip.getBoundingClientRect();
  return [left >= 0 && right <= innerWidth, width > 0.5 * box.width];
});
parent.postMessage(JSON.stringify(places), "*");
</script>
"""


@in_chromium
def test_values_of_long_names_are_not_cut_off_on_a_narrow_screen(folders, tmp_path):
    for kind in ("one", "other"):
        folders.write(0, rows(*[0.1] * 30), changes={"local.kind": f"{kind} with a name far wider than the screen is"})
    found, _ = settings(folders.found.runs)
    path = tmp_path / "page.html"
    path.write_text(made(found).replace("</body>", f"{BESIDE_THE_POINTER}</body>"), encoding="utf-8")
    assert json.loads(browse(path, width=390)) == [[True, True]] * 5


POINT = """
<script>
const points = [...document.querySelectorAll("#plot circle.line")];
parent.postMessage(JSON.stringify(points.map((point) => getComputedStyle(point).fill)), "*");
</script>
"""


@in_chromium
def test_a_curve_of_one_point_has_its_own_colour(folders, tmp_path):
    """Adaptive evaluations may record F1 in the last round only. The colours are #0072B2 and #D55E00."""
    for rate in (0.1, 0.2):
        content = rows(0.1, 0.2)
        content[-1]["test/f1"] = rate
        folders.write(0, content, changes={"local.rate": rate})
    found, _ = settings(folders.found.runs)
    path = tmp_path / "page.html"
    path.write_text(made(found).replace("</body>", f"{POINT}</body>"), encoding="utf-8")
    assert json.loads(browse(path, "#metric=test/f1")) == ["rgb(0, 114, 178)", "rgb(213, 94, 0)"]
