import math

import pytest

from fedrun.runs.metrics_file import MetricsFile, Written, evaluated_rounds, read_rows, series
from fedrun.system.errors import InputError


def test_rows_are_read_with_nan_and_null(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"round": 0, "test/loss": NaN, "a": null}\n{"round": 2, "test/loss": -Infinity}\n')
    first, second = read_rows(path)
    assert (first["round"], first["a"], second["test/loss"]) == (0, None, -math.inf)
    assert math.isnan(first["test/loss"])


@pytest.mark.parametrize("cut", [b'{"round": 1, "test', b'{"round": 1, "\xc3', b'{"round"', b"{"])
def test_an_unfinished_last_line_is_left_out(tmp_path, cut):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"round": 0}\n' + cut)
    assert read_rows(path) == [{"round": 0}]


def test_a_whole_last_line_counts_without_its_line_end(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"round": 0}\n{"round": 1}')
    assert read_rows(path) == [{"round": 0}, {"round": 1}]
    path.write_text("")
    assert read_rows(path) == []


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        ('{"round": 1, "te\n{"round": 2}\n', "not a JSON object"),
        ('{"round": 1, "te\n', "not a JSON object"),
        ("[1]\n", "a list where a JSON object is expected"),
        ('{"a": 1}\n', "round is None; a whole number is expected"),
        ('{"round": 1.5}\n', "round is 1.5; a whole number is expected"),
        ('{"round": true}\n', "round is True; a whole number is expected"),
        ('{"round": 1, "test/loss": "x"}\n', "test/loss is 'x'; a number or null is expected"),
        ('{"round": 0}\n', "round 0 follows round 0; rounds must ascend"),
    ],
)
def test_a_damaged_line_is_named(tmp_path, second, problem):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"round": 0}\n' + second)
    with pytest.raises(InputError) as caught:
        read_rows(path)
    assert str(caught.value).startswith(f"{path}, line 2: {problem}")
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"metrics\.jsonl: is missing; restore it"):
        read_rows(tmp_path / "metrics.jsonl")


def test_rows_that_are_written_again_take_the_place_of_the_lost_ones(tmp_path):
    """Infinities are null in the file and in what is returned; the third row belongs to no checkpoint."""
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path, Written())
    assert file.append({"round": 0, "test/loss": math.inf}) == {"round": 0, "test/loss": None}
    file.append({"round": 1, "test/loss": 0.5})
    kept = file.written
    file.append({"round": 2, "test/loss": 0.4})
    file.close()
    file = MetricsFile(path, kept)
    file.append({"round": 3, "test/loss": 0.3})
    file.close()
    rows = read_rows(path)
    assert evaluated_rounds(rows) == [0, 1, 3]
    first, *others = series(rows, "test/loss")
    assert math.isnan(first)
    assert others == [0.5, 0.3]
    with pytest.raises(InputError, match=r"has \d+ bytes; the checkpoint expects 1000; restore the file"):
        MetricsFile(path, Written(1000, 0))
    content = path.read_bytes()
    for changed in (b" " + content[1:], content[:1] + b"\0" * 8 + content[9:], content[:-2] + b"3\n"):
        path.write_bytes(changed)
        with pytest.raises(InputError, match=r"metrics\.jsonl: is damaged \(its checksum differs\); restore"):
            MetricsFile(path, file.written)
        assert path.read_bytes() == changed
