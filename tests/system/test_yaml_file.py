"""Reading YAML as OmegaConf does."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from fedrun.config.options import conf_dir
from fedrun.system.yaml_file import read_yaml, yaml_text

VALUES = """
numbers: [1, -2, 1_000, 0x10, 0.5, .5, 5., 1e3, 1e-6, -2.5E+4, +1e0, 1_0e2, 0.1e2, 1.e3, .5e-1, .inf, -.inf]
texts: [1.2.3, e5, 1e, 2026-11-24, 12e3x, "1e3", 'on', -, ...x]
others: [null, ~, true, off, Yes]
base: &base {a: 1, b: {c: 2}}
merged: {<<: *base, a: 3}
again: *base
"""


def test_values_are_those_of_omegaconf(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(VALUES)
    values = read_yaml(file)
    assert values == OmegaConf.to_container(OmegaConf.load(file))
    assert {type(number) for number in values["numbers"]} == {int, float}
    assert {type(text) for text in values["texts"]} == {str}


def test_every_option_is_read_alike() -> None:
    for file in conf_dir().rglob("*.yaml"):
        assert (read_yaml(file) or {}) == OmegaConf.to_container(OmegaConf.load(file)), file


def test_what_is_written_is_read_alike(tmp_path: Path) -> None:
    texts = [
        "1e-6",
        "1_0e2",
        ".5e-1",
        "1",
        "0.5",
        "null",
        "~",
        "on",
        "2026-11-24",
        "",
        " a ",
        "a: b",
        "# a",
        "é",
        "x" * 200,
    ]
    shared = {"rate": 1e-6, "none": None, "yes": True, "count": -3, "all": math.inf}
    content = {"texts": texts, **dict.fromkeys(texts, 0), "first": shared, "second": [shared, [], {}]}
    file = tmp_path / "values.yaml"
    file.write_text(yaml_text(content), encoding="utf-8")
    assert read_yaml(file) == content
    assert OmegaConf.to_container(OmegaConf.load(file)) == content
    assert list(read_yaml(file)) == list(content)
    assert yaml_text({"first": shared, "second": shared}).count("rate: ") == 2  # no anchors
    assert yaml.safe_load(file.read_text(encoding="utf-8"))["texts"] == texts


@pytest.mark.parametrize("text", ["a: 1\nb: 2\na: 3\n", "a: {b: 1, b: 1}\n", "a: [1\n", "a: b: c\n", "\x00"])
def test_what_is_no_yaml(text: str, tmp_path: Path) -> None:
    file = tmp_path / "damaged.yaml"
    file.write_text(text)
    with pytest.raises(yaml.YAMLError):
        read_yaml(file)
    with pytest.raises(yaml.YAMLError):
        OmegaConf.load(file)
