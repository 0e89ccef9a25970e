"""How deep the lists and objects of a JSON file are nested, counted while it is read."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrun.data.datasets.femnist import Femnist
from fedrun.data.datasets.json_nesting import DEEPEST, BoundedNesting, NestingError
from fedrun.system.errors import InputError

nested = st.recursive(st.text('[]{}"\\a', max_size=6) | st.integers(), lambda inner: st.lists(inner, max_size=3))


def nested_in(value: object, levels: int) -> object:
    for _ in range(levels):
        value = [value]
    return value


def depth(value: object) -> int:
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


def read_all(content: bytes, block: int) -> bytes:
    file = BoundedNesting(io.BytesIO(content))
    return b"".join(iter(lambda: file.read(block), b""))


@given(value=nested, levels=st.integers(DEEPEST - 8, DEEPEST + 2), block=st.integers(1, 300))
def test_brackets_outside_strings_are_counted(value: object, levels: int, block: int) -> None:
    deep = nested_in(value, levels)
    content = json.dumps(deep).encode()
    if depth(deep) > DEEPEST:
        with pytest.raises(NestingError):
            read_all(content, block)
    else:
        assert read_all(content, block) == content


@pytest.mark.parametrize("key", ["users", "user_data"])
def test_deeply_nested_files_are_rejected_as_such(tmp_path: Path, write_leaf: Callable[..., Path], key: str) -> None:
    path = write_leaf("femnist/train/a.json", {"ann": ([[0.5] * 784], [1])})
    deep = "[" * 20_000 + "]" * 20_000
    content = json.loads(path.read_text())
    content[key] = "DEEP" if key == "users" else {"ann": {"x": "DEEP", "y": [1]}}
    path.write_text(json.dumps(content).replace('"DEEP"', deep))
    dataset = Femnist(data_dir=str(tmp_path), cache_dir=None, min_samples=1, min_samples_after_split=1)
    with pytest.raises(InputError, match=r"a\.json: lists and objects are nested more than 100 levels deep$"):
        dataset.load()
