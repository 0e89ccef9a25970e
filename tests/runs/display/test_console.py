import io
import logging
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from fedrun.runs.display.console import LiveDisplay, PlainLines, display, panel
from fedrun.runs.display.progress import Progress

FIRST = {
    "round": 0,
    "test/accuracy": 0.0974,
    "test/f1": 0.05,
    "test/mcc": -0.012,
    "test/loss": 2.30259,
    "cost/client_samples": 0,
}


def row(number, accuracy):
    return {
        "round": number,
        "test/accuracy": accuracy,
        "test/f1": 0.6,
        "test/mcc": 0.5,
        "test/loss": 0.93214,
        "train/loss": 0.8,
        "cost/client_samples": 1000 * number,
    }


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_plain_lines_are_exactly_these(run_info, clock, tmp_path):
    stream = io.StringIO()
    lines = PlainLines(stream, 10.0, clock)
    lines.on_start(run_info(rounds=4, targets=(0.7,)))
    lines.on_row(FIRST)
    for number, accuracy in ((1, 0.3), (2, 0.70128), (3, 0.6), (4, 0.71)):
        clock.seconds += 2.0
        lines.on_row(row(number, accuracy))
    lines.on_end({})
    lines.close()
    # Round 2 reaches the target; 1 and 3 follow a printed line by 2 s. Two rounds are left after round 2, at 2 s each.
    assert stream.getvalue().splitlines() == [
        "run       turbosvm · femnist · seed 3, 4 rounds",
        f"folder    {tmp_path}",
        "  round   accuracy        F1       MCC       loss  train loss     time left",
        "      0     9.74 %    5.00 %   -1.20 %     2.3026           -             -",
        "      2    70.13 %   60.00 %   50.00 %     0.9321      0.8000         4.0 s",
        "        reached 70 % in round 2",
        "      4    71.00 %   60.00 %   50.00 %     0.9321      0.8000         0.0 s",
        "complete after round 4 of 4, 8.0 s",
    ]


def test_the_decisions_are_shown(run_info, clock, tmp_path):
    stream, chosen = io.StringIO(), replace(run_info(), decisions={"model": "cnn", "hparams": "femnist-turbosvm"})
    PlainLines(stream, 10.0, clock).on_start(chosen)
    lines = ["model     cnn", "hparams   femnist-turbosvm", f"folder    {tmp_path}"]
    assert stream.getvalue().splitlines()[1:] == lines
    shown = [line.strip("│ ").split() for line in rendered(Progress(chosen, clock))]
    assert shown[-3:-1] == [["model", "cnn"], ["hparams", "femnist-turbosvm"]]


def test_an_estimated_accuracy_is_marked(run_info, clock):
    stream = io.StringIO()
    lines = PlainLines(stream, 10.0, clock)
    lines.on_start(run_info(rounds=4, targets=(0.7,)))
    lines.on_row({"round": 0, "test/accuracy_estimate": 0.125, "test/evaluated": 256, "cost/client_samples": 0})
    line = stream.getvalue().splitlines()[-1]
    assert line == "      0  ~ 12.50 %         -         -          -           -             -"


def test_plain_lines_come_at_most_once_per_interval(run_info, clock):
    stream = io.StringIO()
    lines = PlainLines(stream, 10.0, clock)
    lines.on_start(run_info(rounds=1000, targets=()))
    for number in range(1001):
        lines.on_row(row(number, 0.3))
        clock.seconds += 0.05
    lines.on_end({})
    lines.close()
    # 50 seconds: the first row, those 10, 20, 30 and 40 seconds later, and the last.
    numbers = [int(line.split()[0]) for line in stream.getvalue().splitlines()[3:-1]]
    assert len(numbers) == 6
    assert (numbers[0], numbers[-1]) == (0, 1000)
    assert numbers[1:-1] == pytest.approx([200, 400, 600, 800], abs=5)


def test_plain_lines_of_an_interrupted_resumed_run(run_info, clock):
    stream = io.StringIO()
    lines = PlainLines(stream, 10.0, clock)
    lines.on_start(run_info(targets=(), history=(FIRST, row(1, 0.4))))
    lines.on_row(row(2, 0.5))
    clock.seconds = 1.0
    lines.on_row(row(3, 0.6))
    lines.on_stop(2)
    lines.close()
    told = stream.getvalue().splitlines()
    assert told[2] == "resumed after round 1 of 100"
    assert [line.split()[0] for line in told[4:6]] == ["2", "3"]
    assert told[6:] == ["stopped after round 2 of 100, 1.0 s"]  # round 3 is not in the checkpoint


def test_a_run_that_stops_between_two_evaluations_prints_no_line_twice(run_info, clock):
    stream = io.StringIO()
    lines = PlainLines(stream, 10.0, clock)
    lines.on_start(run_info(targets=()))
    for number in (0, 10):
        clock.seconds += 10.0
        lines.on_row(row(number, 0.5))
    lines.on_client(12, 10, 10)
    lines.on_stop(12)
    lines.close()
    told = [line.split() for line in stream.getvalue().splitlines()[3:]]
    assert [words[0] for words in told[:-1]] == ["0", "10"]
    assert " ".join(told[-1]) == "stopped after round 12 of 100, 20 s"


def test_plain_lines_fit_80_columns_and_hold_no_control_codes(run_info, clock):
    stream = io.StringIO()
    lines = PlainLines(stream, 10.0, clock)
    lines.on_start(run_info(rounds=100_000, targets=()))
    lines.on_row(row(0, 1.0))
    clock.seconds = 1e5
    lines.on_row(row(1, 1.0) | {"test/loss": 3.4e38, "train/loss": float("nan"), "test/mcc": -1.0})
    assert all(len(line) <= 80 for line in stream.getvalue().splitlines()[2:])
    assert "\x1b" not in stream.getvalue()


def rendered(progress, width=78):
    console = Console(width=width + 2, file=io.StringIO())
    console.print(panel(progress, width))
    return console.file.getvalue().splitlines()


def test_the_panel_at_80_columns(run_info, clock):
    progress = Progress(run_info(), clock)
    progress.take(FIRST)
    clock.seconds = 20.0
    progress.take(row(50, 0.6))
    progress.client(51, 7, 10)
    clock.seconds = 21.0
    lines = rendered(progress)
    assert {len(line) for line in lines} == {78}
    body = [
        " ".join(line.strip("│ ").replace("━", "").replace("╸", "").replace("╺", "").split()) for line in lines[1:-1]
    ]
    # 50 rounds in 20 s are 2.5 rounds/s and, with 1000 samples in each, 2,500 samples/s; 50 rounds left less 1 s.
    assert body == [
        "rounds 50/100 2.5 rounds/s 19 s left",
        "clients 7/10 2,500 samples/s 21 s so far",
        "",
        "test accuracy 60.00 % F1 60.00 % MCC 50.00 % loss 0.9321",
        "train loss 0.8000",
        "best 60.00 % in round 50",
        "targets 50 % in round 50 70 % not yet",
    ]
    assert "turbosvm · femnist · seed 3" in lines[0]


@pytest.mark.parametrize("width", [38, 50, 63, 64])
def test_a_narrow_panel_cuts_no_number(run_info, clock, width):
    progress = Progress(run_info(rounds=6000), clock)
    progress.take(FIRST)
    clock.seconds = 200.0
    progress.take(row(60, 0.6))
    progress.client(61, 7, 10)
    lines = rendered(progress, width)
    assert {len(line) for line in lines} == {width}
    # 5940 rounds left at 60 rounds in 200 s
    for line, words in zip(lines[1:3], (("rounds", "60/6000", "5:30:00 left"), ("clients", "7/10")), strict=True):
        assert all(word in line for word in words), line
    assert "…" not in "".join(lines)


def test_the_panel_before_anything_is_known(run_info, clock):
    lines = rendered(Progress(run_info(rounds=0, targets=()), clock))
    assert {len(line) for line in lines} == {78}


def test_the_panel_names_excluded_clients_and_the_round_of_resumption(run_info, clock):
    progress = Progress(run_info(history=(FIRST,)), clock)
    progress.take(row(1, 0.2) | {"clients/excluded": 2.0})
    text = "\n".join(rendered(progress))
    assert "2 clients whose update was not finite" in text
    assert "resumed after round 0" in text


def test_the_live_display_draws_and_leaves_nothing_behind_but_on_interruption(run_info, clock):
    for completed in (True, False):
        console = Console(force_terminal=True, file=io.StringIO(), width=80)
        live = LiveDisplay(console, clock)
        stdout = sys.stdout
        live.on_start(run_info())
        live.on_row(FIRST)
        live.on_client(1, 3, 10)
        live.on_row(row(1, 0.7))
        if completed:
            live.on_end({})
        live.close()
        written = console.file.getvalue()
        erased = written.endswith("\x1b[1A\x1b[2K")
        assert erased == completed
        assert "70.00 %" in written
        assert sys.stdout is stdout


def test_log_lines_go_above_the_panel_while_it_is_drawn(run_info, clock, monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    handler = logging.StreamHandler(stream)
    logging.getLogger().addHandler(handler)
    live = LiveDisplay(Console(file=stream, force_terminal=True, width=80), clock)
    try:
        live.on_start(run_info())
        assert handler.stream is sys.stderr is not stream
        live.close()
        assert handler.stream is sys.stderr is stream
    finally:
        logging.getLogger().removeHandler(handler)


def test_the_stream_decides_between_live_and_plain(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    assert isinstance(display(Terminal()), LiveDisplay)
    assert isinstance(display(io.StringIO()), PlainLines)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(display(Terminal()), PlainLines)
