"""README and docs: links, anchors and paths exist, commands are accepted, and tables of options are complete."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser

from fedrun.cli.report_options import parse
from fedrun.config.composed import compose
from fedrun.config.key_reference import explain_key
from fedrun.config.options import conf_dir, groups, options
from fedrun.data.datasets.digits import Digits
from fedrun.data.download.catalogue import catalogue
from fedrun.experiment.experiment import Experiment, build_experiment
from fedrun.simulation.simulation import Simulation
from fedrun.system.errors import InputError
from fedrun.uploads.privacy.target import DifferentialPrivacy

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
GENERATED = {"RESULTS.md"}
"""Pages that a command writes from runs."""
OWN_OPTIONS = "--config-dir"
"""Commands with options of the reader's own, which tests of their pages run."""
PLACEHOLDERS = re.compile(r"\b(PAPER|TABLE|FIGURE|NAME|GROUP|OPTION|KEY|VALUE|HOST|FOLDER|DATASET|STRATEGY|SETTING)\b")
PATHS = re.compile(r"`((?:conf|fedrun|tests|docs|outputs)/[\w./-]*\w)[` ]")


def written(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def without_fenced(page: str) -> str:
    """A page without its fenced blocks of code."""
    return re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE)


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", without_fenced(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def snippets(page: str) -> Iterator[str]:
    """Lines of indented blocks, in which a backslash continues a line, and code within a line."""
    indented = re.sub(r" *\\\n *", " ", page)
    yield from (line[4:] for line in indented.splitlines() if line.startswith("    "))
    yield from (" ".join(code.split()) for code in re.findall(r"`([^`]+)`", without_fenced(page)))


def commands(program: str) -> list[str]:
    """The command lines of a program in all pages, without what is a comment or a placeholder."""
    pages = [page for page in PAGES if page.name not in GENERATED]
    lines = {line.split("  #")[0].strip().removeprefix("$ ") for page in pages for line in snippets(written(page))}
    started = re.compile(rf"(?:torchrun .*-m )?{program} (?!\.\.\.|-).*|{program} -m .*|{program} --[we].*")
    return sorted(line for line in lines if started.fullmatch(line) and not PLACEHOLDERS.search(line))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", written(page)):
        if link.startswith("https://") or link.startswith("http://"):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(written(target))):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables_have_a_rule_and_equally_many_cells(page: Path) -> None:
    lines = [line.strip() for line in without_fenced(written(page)).splitlines()]
    for is_row, block in groupby(lines, key=lambda line: line.startswith("|")):
        rows = list(block)
        if is_row:
            assert len(rows) > 2 and re.fullmatch(r"(\| *:?-+:? *)+\|", rows[1]), rows[0]
            assert {cells(row) for row in rows} == {cells(rows[0])}, rows[0]
        else:
            assert not [line for line in rows if "| ---" in line], rows


def cells(row: str) -> int:
    """The number of cells of a table's row; an escaped bar or one within code does not separate cells."""
    return len(re.findall(r"(?<!\\)\|", re.sub(r"`[^`]*`", "", row)))


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in GENERATED], ids=lambda page: page.name)
def test_named_files_exist(page: Path) -> None:
    named = {path for path in PATHS.findall(written(page)) if not PLACEHOLDERS.search(path)}
    of_the_reader = {
        "extending.md": "conf/",
        "uploads.md": "conf/",
        "outputs.md": "outputs/",
        "tables.md": "conf/experiment/mine",
    }
    own = of_the_reader.get(page.name)
    missing = {path for path in named if not (ROOT / path).exists() and not path.startswith("outputs/")}
    assert {path for path in missing if own is None or not path.startswith(own)} == set()


def first_job(command: str) -> tuple[str, ...]:
    """The overrides of a command, of a sweep those of its first job; every option that it sweeps over must exist."""
    line = command.rpartition("fedrun ")[2].partition(" --cfg ")[0].partition(" --why ")[0]
    given = [word for word in shlex.split(line) if word != "-m" and not word.startswith("data_dir=")]
    job = []
    for override in OverridesParser.create().parse_overrides(given):
        key, _, value = str(override.input_line).partition("=")
        choices = list(override.sweep_string_iterator()) if override.is_choice_sweep() else [value]
        if len(choices) > 1 and key in groups([conf_dir()]):
            assert set(choices) <= set(options(key)), command
        job.append(key if override.is_delete() else f"{key}={choices[0]}")
    return tuple(job)


def test_commands_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("measurements.csv").write_text("client,a,b,label\nx,1,2,cat\ny,2,3,dog\n")
    Path("patients.csv").write_text("name,ward,age,sodium,outcome\nx,1,2,3,benign\ny,2,3,4,malignant\n")
    lines = [command for command in commands("fedrun") if OWN_OPTIONS not in command]
    assert len(lines) > 30
    jobs: dict[tuple[str, ...], str] = {}
    for command in lines:
        if command.startswith("fedrun --explain "):
            assert explain_key(command.split()[2], Experiment)
        elif "hydra/sweeper=optuna" not in command:  # needs an extra
            jobs[first_job(command)] = command
    for overrides, command in jobs.items():
        try:
            composed = compose(overrides)
            if not any(
                override.startswith(("experiment=", "dataset=huggingface", "dataset=custom")) for override in overrides
            ):
                experiment = build_experiment(composed)
                if isinstance(experiment.dataset, Digits):  # the others need files
                    experiment = replace(experiment, hardware=replace(experiment.hardware, threads=1))
                    if isinstance(experiment.privacy, DifferentialPrivacy):  # calibration takes seconds
                        given = replace(experiment.privacy, epsilon=None, noise_multiplier=1.0)
                        experiment = replace(experiment, privacy=given)
                    Simulation(experiment)
        except InputError as error:
            if f"fedrun: {error}" not in written(ROOT / "docs" / "compose.md"):  # the example of a mistake
                pytest.fail(f"{command}: {error}")


def test_reports_parse() -> None:
    lines = commands("fedrun-report")
    assert len(lines) > 5
    for command in lines:
        parse(shlex.split(command)[1:])


def test_data_commands_name_datasets() -> None:
    lines = [shlex.split(command) for command in commands("fedrun-data")]
    assert len(lines) > 10
    for _, what, *settings in lines:
        if what == "show":
            build_experiment(compose(settings))
        else:
            assert what == "list" or what in catalogue()


def test_make_has_the_targets_of_the_pages() -> None:
    makefile = written(ROOT / "Makefile")
    named = {line.split()[1] for page in PAGES for line in snippets(written(page)) if re.match(r"make [\w-]+", line)}
    assert len(named) > 5
    for target in sorted(name for name in named if not PLACEHOLDERS.search(name)):
        paper, _, item = target.partition("-")
        if item.startswith("figure"):
            found = any(
                f"      {item}:" in written(path) for path in (conf_dir() / "experiment" / paper).glob("*.yaml")
            )
        elif item.startswith("table"):
            found = f"{paper}/{item}" in options("experiment")
        else:
            found = re.search(rf"^{target}:", makefile, re.MULTILINE) is not None
        assert found, target


def test_the_site_has_every_page() -> None:
    """A page that the navigation lacks can only be found by a link."""
    navigation = yaml.safe_load(written(ROOT / ".ci" / "mkdocs.yml"))["nav"]

    def pages(node: object) -> Iterator[str]:
        if isinstance(node, str):
            yield node
        for below in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            yield from pages(below)

    listed = list(pages(navigation))
    docs = ROOT / "docs"
    assert sorted(listed) == sorted(
        path.relative_to(docs).as_posix() for path in [*docs.glob("*.md"), *docs.glob("notebooks/*.ipynb")]
    )


def test_table_of_groups() -> None:
    section = written(ROOT / "docs" / "compose.md").partition("## Groups\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `([\w/]+)` \| ([^|]*) \|", section, re.MULTILINE))
    for group in groups([conf_dir()]):
        if group in {"experiment", "hparams"}:
            continue
        assert group in rows, f"docs/compose.md has no row for {group}"
        if not rows[group].startswith("["):
            assert rows[group].split(", ") == options(group), group
    assert set(rows) <= set(groups([conf_dir()]))
