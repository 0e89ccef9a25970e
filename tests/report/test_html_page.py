"""The page: what is in it, its script's arithmetic (Node), and what a browser makes of it (Chromium)."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from fedrun.report.comparison import report
from fedrun.report.html_page import FOLDER, POINTS, embedded, page, setting_data
from fedrun.report.runs import find
from fedrun.report.settings import settings

from ..helpers.run_folders import rows

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PICTURE = b"\x89PNG picture"
NODE = shutil.which("node")


@pytest.fixture
def found(folders):
    """Two settings; one ends at 40 and 60 %, the other at 80 %, and its name would end a script element."""
    folders.write(0, rows(0.1, 0.2, 0.4))
    first = folders.write(1, rows(0.1, 0.2, 0.6))
    (first / "federation.png").write_bytes(PICTURE)
    folders.write(0, rows(0.1, 0.7, 0.8, **{"unseen/accuracy": 0.5}), changes={"local.kind": "</script>"})
    found, _ = settings(find([str(folders.top)]).runs)
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
    assert "@import" not in made(found) and "url(" not in made(found)
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
    text = made(settings(find([str(folders.top)]).runs)[0])
    assert text.count("<figure><img") == pictures


def test_the_data_of_the_curves(found):
    data = json.loads(re.search(r'id="data">(.*?)</script>', made(found), re.S)[1])
    assert [metric["key"] for metric in data["metrics"]] == ["test/accuracy", "test/loss", "unseen/accuracy"]
    assert data["metrics"][0] == {
        "key": "test/accuracy",
        "name": "test accuracy",
        "share": True,
        "loss": False,
        "targets": [0.7],
    }
    first, other = data["settings"]
    assert (first["name"], first["seeds"], first["rounds"]) == ("local.kind=-", [0, 1], [0, 1, 2])
    assert first["metrics"]["test/accuracy"] == {"at": [0, 1, 2], "mean": [0.1, 0.2, 0.5], "std": [0.0, 0.0, 0.1]}
    # 10 numbers up and 20 down per round, 100 samples, half a second.
    assert first["x"] == {"rounds": [0, 1, 2], "params": [0, 30, 60], "samples": [0, 100, 200], "seconds": [0, 0.5, 1]}
    assert "unseen/accuracy" not in first["metrics"] and "unseen/accuracy" in other["metrics"]


def test_a_long_run_is_thinned(folders):
    folders.write(0, rows(*[0.5] * 1001))
    (setting,), _ = settings(find([str(folders.top)]).runs)
    data = setting_data(setting, ["test/accuracy"])
    assert len(data["rounds"]) == POINTS == len(data["metrics"]["test/accuracy"]["mean"]) == len(data["x"]["seconds"])
    assert (data["rounds"][0], data["rounds"][-1]) == (0, 1000)


def test_a_metric_of_few_rounds_has_no_gaps_between_them(folders):
    """Adaptive evaluations record F1 in some rounds only: these are its points, none of which is thinned away."""
    content = rows(*[0.5] * 1001)
    for row in content[::50]:
        row["test/f1"] = 0.4
    folders.write(0, content)
    (setting,), _ = settings(find([str(folders.top)]).runs)
    data = setting_data(setting, ["test/accuracy", "test/f1"])
    sparse = data["metrics"]["test/f1"]
    assert [data["rounds"][at] for at in sparse["at"]] == list(range(0, 1001, 50))
    assert sparse["mean"] == [0.4] * 21
    assert len(data["metrics"]["test/accuracy"]["mean"]) == POINTS


def test_a_seed_that_is_not_complete_does_not_cut_the_curve(folders):
    for seed in (0, 1):
        folders.write(seed, rows(0.1, 0.2, 0.6))
    folders.write(2, rows(0.1), complete=False)
    (setting,), _ = settings(find([str(folders.top)]).runs)
    data = setting_data(setting, ["test/accuracy"])
    assert (data["seeds"], data["rounds"]) == ([0, 1], [0, 1, 2])


def test_a_gap_is_null(folders):
    folders.write(0, rows(0.5, None, 0.7))
    (setting,), _ = settings(find([str(folders.top)]).runs)
    assert setting_data(setting, ["test/accuracy"])["metrics"]["test/accuracy"]["mean"] == [0.5, None, 0.7]


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
        ("pieces([null, 1, 2, null, null, 3, null])", [[1, 2], [3]]),
        (
            "points({rounds: [0, 1, 2], x: {rounds: [0, 1, 2]}, metrics: {a: {at: [0, 2], mean: [0.5, null],"
            "std: [0.1, null]}}}, 'a', 'rounds', 100)",
            [{"x": 0, "mean": 50, "std": 10, "round": 0}, None],
        ),
        ("nearest([{x: 1}, null, {x: 5}], 39, (x) => 10 * x)", {"x": 5}),
        ("draw([], '', '', [], false).x", None),
        (
            "draw([{name: 'a', colour: 'c', dash: '', curve: [{x: 0, mean: 0, std: 0}, {x: 4, mean: 10, std: 0}]}],"
            """'', '', [], false).svg.match(/points="([^"]*)"/)[1]""",
            "64.0,374.0 848.0,14.0",  # from corner to corner: 860 x 420 less margins of 64, 12, 14 and 46
        ),
    ],
)
def test_the_scripts_arithmetic(expression, value):
    names = "{ticks, logTicks, short, scale, pieces, points, nearest, draw}"
    code = f"const {names} = require({json.dumps(str(FOLDER / 'page.js'))});console.log(JSON.stringify({expression}))"
    ended = subprocess.run([NODE, "-e", code], capture_output=True, text=True, check=True, timeout=30)
    assert json.loads(ended.stdout) == value


def browse(path, fragment=""):
    """The page's document after its scripts have run, as Chromium sees it."""
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", "--dump-dom"]
    profile = f"--user-data-dir={path.parent / 'profile'}"
    ended = subprocess.run(
        [*command, profile, f"{path.as_uri()}{fragment}"], capture_output=True, text=True, check=True, timeout=120
    )
    return ended.stdout


ACTIONS = """
<script>
const report = {};
const all = (selector) => document.querySelectorAll(selector);
const plot = document.getElementById("plot"), box = plot.getBoundingClientRect();
const count = () => all("#plot polyline").length;
const address = () => new URLSearchParams(location.hash.slice(1));
const axis = () => [...all("#plot text")].slice(-2).map((text) => text.textContent);
report.first = [count(), all("#plot polygon").length, all("#plot .target").length, axis()];
all("#legend input")[1].click();
report.hidden = count();
plot.dispatchEvent(new PointerEvent("pointermove", {clientX: box.right - 5, clientY: box.top + 5}));
report.values = document.getElementById("values").textContent;
report.cursor = all("#plot .cursor").length;
plot.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowLeft"}));
report.step = Number(all("#plot .cursor")[0].getAttribute("x1"));
report.swatches = [...all("#legend line")].map((line) => line.getAttribute("stroke-dasharray"));
report.label = plot.getAttribute("aria-label");
const metric = document.getElementById("metric"), against = document.getElementById("against");
metric.value = "test/loss";
metric.dispatchEvent(new Event("change"));
against.value = "seconds";
against.dispatchEvent(new Event("change"));
report.changed = [axis(), address().get("metric"), address().get("against")];
document.title = JSON.stringify(report);
</script>
"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium found")
def test_in_a_browser(found, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(made(found).replace("</body>", f"{ACTIONS}</body>"), encoding="utf-8")
    report = json.loads(re.search(r"<title>(.*?)</title>", browse(path, "#metric=test/accuracy&against=params"))[1])
    assert report["first"] == [2, 1, 1, ["parameters sent, up and down", "test accuracy (%)"]]
    assert report["hidden"] == 1
    assert report["values"] == "local.kind=-: 50 ± 10 in round 2"
    assert report["cursor"] == 1
    assert report["step"] < 848
    assert report["swatches"] == ["", "7 3"]
    assert report["label"].startswith("test accuracy (%) against parameters sent, up and down, 1 curves")
    assert report["changed"] == [["seconds of training", "test loss"], "test/loss", "seconds"]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium found")
def test_in_a_browser_without_any_metric(folders, tmp_path):
    """Runs that recorded costs only."""
    folders.write(0, [{"round": 0, "cost/params_up": 0}, {"round": 1, "cost/params_up": 5}])
    found, _ = settings(find([str(folders.top)]).runs)
    text = page("None", report(found, []), found)
    path = tmp_path / "page.html"
    told = "<script>document.title = 'whole';</script>"
    listen = "<script>window.onerror = (text) => { document.body.dataset.error = text; };</script>"
    path.write_text(text.replace("<body>", f"<body>{listen}").replace("</body>", f"{told}</body>"), encoding="utf-8")
    seen = browse(path)
    assert "<title>whole</title>" in seen and "data-error" not in seen
