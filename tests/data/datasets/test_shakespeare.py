from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedrun.data.datasets.shakespeare import ALPHABET, Characters, Shakespeare
from fedrun.system.errors import InputError

LINE = "To be, or not to be: that is the question; Whether 'tis nobler in the mind (A-Z)"


def shakespeare(root: Path, unknown: Any = "refuse", window: int = 80) -> Shakespeare:
    return Shakespeare(
        data_dir=str(root),
        cache_dir=None,
        min_samples=1,
        min_samples_after_split=1,
        unknown=unknown,
        window=window,
        predict="last",
    )


def test_the_alphabet_has_the_80_characters_in_order() -> None:
    # Counted by hand: 10 marks, 10 digits, 4 marks, 26 capitals, 2 brackets, 26 small letters, 2 braces.
    assert len(ALPHABET) == len(set(ALPHABET)) == 80
    places = {" ": 0, "!": 1, '"': 2, ".": 9, "0": 10, "9": 19, ":": 20, "?": 23, "A": 24, "Z": 49, "[": 50, "]": 51}
    places |= {"a": 52, "z": 77, "{": 78, "}": 79}
    assert {character: ALPHABET.index(character) for character in places} == places


def test_text_becomes_numbers_and_numbers_text(tmp_path: Path, write_leaf: Callable[..., Path]) -> None:
    assert len(LINE) == 80
    write_leaf("shakespeare/train/a.json", {"HAMLET": ([LINE, LINE[::-1]], ["Z", " "])})
    dataset = shakespeare(tmp_path).load()
    assert dataset.inputs.dtype == torch.uint8
    assert dataset.inputs[0, :6].tolist() == [43, 66, 0, 53, 56, 7]  # T o _ b e ,
    assert "".join(dataset.class_names[number] for number in dataset.inputs[1]) == LINE[::-1]
    assert dataset.targets.tolist() == [49, 0]
    assert dataset.encoding(dataset.inputs).dtype == torch.int64
    assert dataset.spec.vocabulary == dataset.spec.classes == 80


def test_a_window_has_the_characters_nearest_to_the_label(tmp_path: Path, write_leaf: Callable[..., Path]) -> None:
    write_leaf("shakespeare/train/a.json", {"HAMLET": ([LINE, LINE[::-1]], ["Z", " "])})
    whole = shakespeare(tmp_path).load()
    assert not shakespeare(tmp_path, window=80).load().inputs.ne(whole.inputs).any()
    assert whole.overlap == 79
    short = shakespeare(tmp_path, window=5).load()  # from the cache that the whole windows have made
    assert short.overlap == 4
    assert short.spec.input_shape == (5,) == tuple(short.inputs.shape[1:])
    assert ["".join(short.class_names[number] for number in window) for window in short.inputs] == ["(A-Z)", "eb oT"]
    assert short.targets.tolist() == [49, 0]


def test_characters_outside_the_alphabet_are_mapped_and_counted(
    tmp_path: Path, write_leaf: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    write_leaf("shakespeare/train/a.json", {"HAMLET": (["é" + LINE[1:-1] + "\n", LINE], ["*", "a"])})
    with caplog.at_level(logging.WARNING):
        shakespeare(tmp_path, unknown="map").load()
        dataset = shakespeare(tmp_path, unknown="map").load()  # from the cache
    assert caplog.text.count("3 characters outside the alphabet were read as '}'") == 1
    assert dataset.inputs[0, [0, 1, 79]].tolist() == [79, 66, 79]
    assert dataset.targets.tolist() == [79, 52]
    with pytest.raises(InputError, match="dataset.unknown=map"):  # its cache is not taken for this setting's
        shakespeare(tmp_path).load()


@pytest.mark.parametrize(
    ("x", "y", "complaint"),
    [
        ([LINE, LINE[:-1]], ["a", "b"], "string 1 has 79 characters; a string is 80 characters"),
        ([LINE, LINE + "s"], ["a", "b"], "string 1 has 81 characters"),
        ([LINE, 5], ["a", "b"], "string 1 has 5; a string is 80 characters"),
        ([LINE, list(LINE)], ["a", "b"], "a string is 80 characters"),
        ([LINE, LINE[:-1] + "*"], ["a", "b"], "string 1 has '*' at position 79, which is not in the alphabet of 80"),
        ([LINE, "\n" + LINE[1:]], ["a", "b"], r"string 1 has '\n' at position 0"),
        ([LINE, LINE[:-1] + "é"], ["a", "b"], "string 1 has 'é' at position 79"),
        ([LINE, LINE[:-1] + "\x7f"], ["a", "b"], r"string 1 has '\x7f' at position 79"),
        ([LINE, LINE[:-1] + "\U0001f3ad"], ["a", "b"], "string 1 has '\U0001f3ad' at position 79"),
        ([LINE, LINE], ["a", "bc"], "label 1 has 2 characters; a label is 1 character"),
        ([LINE, LINE], ["a", ""], "label 1 has 0 characters"),
        ([LINE, LINE], ["a", 3], "label 1 has 3; a label is 1 character"),
        ([LINE, LINE], ["a", "*"], "label 1 has '*' at position 0"),
    ],
)
def test_samples_that_are_not_text_of_the_alphabet_are_refused(x: list[Any], y: list[Any], complaint: str) -> None:
    with pytest.raises(InputError) as refusal:
        Characters(substitute=False).decode(x, y)
    assert complaint in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_other_ways_of_treating_unknown_characters_are_refused() -> None:
    with pytest.raises(InputError, match="unknown"):
        shakespeare(Path(), unknown="drop")
