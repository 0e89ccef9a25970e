"""Lines of defaults lists, as Hydra reads them."""

from __future__ import annotations

from typing import Any

import pytest

from fedrun.config.defaults_entry import SELF, Entry, added, below, entry_of


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("_self_", SELF),
        ("fedavg", Entry("strategy", "fedavg", "", by_path=True)),
        ({"client": "sgd"}, Entry("strategy/client", "sgd", "client")),
        ({"/model/lora": None}, Entry("model/lora", None, "model.lora")),
        ({"/strategy/server@base": "fedavg"}, Entry("strategy/server", "fedavg", "strategy.server", "base")),
        ({"override /hparams": "mnist"}, Entry("hparams", "mnist", "hparams", override=True)),
        ({"optional data": "x"}, Entry("strategy/data", "x", "data", optional=True)),
        ({"client": ["a", "b"]}, None),
        ({"exclusive client": "a"}, None),
        ("fedavg@base", None),
    ],
)
def test_a_line(line: Any, expected: Entry | None) -> None:
    assert entry_of(line, "strategy") == expected


def test_what_an_option_adds() -> None:
    lines = ["_self_", {"override /model": "mlp"}, {"client": "sgd"}, {"server": ["a"]}]
    assert [entry.group for entry in added({"defaults": lines}, "strategy")] == ["strategy/client"]
    assert not list(added({"lr": 1}, "strategy"))


def test_places() -> None:
    assert below("strategy", "client") == "strategy.client"
    assert below("", "client") == "client"
    assert below("strategy", "_global_.local") == "local"
    assert below("strategy", "_global_") == ""
