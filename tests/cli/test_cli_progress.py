"""What is said on the way: about this process, not about what others did before it."""

import contextlib
import io
import re

import pytest
from rich.console import Console

from nsm.commands import terminal
from nsm.commands.tables import Display
from nsm.commands.terminal import Pace, figures, progress_of
from nsm.experiments.engines.engine import Job, Outcome
from nsm.experiments.paper import cells
from nsm.training.loop import Progress


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 1000.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(terminal, "time", clock)
    return clock


def test_pace_is_that_of_this_process(clock):
    pace = Pace(1000)
    assert pace.at(600) == ("–", "–"), "a resumed run starts with no pace, not with 600 iterations in no time"
    clock.now += 2
    assert pace.at(700) == ("50", "0:00:06")
    clock.now += 6
    assert pace.at(1000) == ("50", "0:00:00")


def test_a_slow_pace_keeps_a_digit(clock):
    pace = Pace(10)
    pace.begin(0)
    clock.now += 10
    assert pace.at(5) == ("0.5", "0:00:10")


def test_figures_in_words():
    line = {"step": 4, "loss": 0.12345, "held_out": {"bit_errors": 3.456}, "accuracies": {"copy": 0.5}}
    assert figures(line) == "loss 0.1235, bit errors 3.46, copy 50%"
    assert figures({"step": 4}) == ""
    assert figures({"step": 4, "loss": 0.5, "rewinds": 2}) == "loss 0.5000, taken back to the best 2 ×"


class Stream(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


LINE = {"step": 150, "loss": 0.5, "held_out": {"bit_errors": 2.0}}


def reported(terminal, clock, quiet=False):
    """What is printed of a run that goes on from iteration 100 and has looked at held-out sequences at 150."""
    with contextlib.redirect_stderr(Stream(terminal)) as said, progress_of("copy nutm", 200, quiet) as report:
        report(Progress(100), {})
        clock.now += 5
        report(Progress(149), {})
        report(Progress(150), LINE)
        clock.now += 5
        report(Progress(200), {"step": 200, "loss": 0.25})
    return said.getvalue()


def test_plain_lines_away_from_a_terminal(clock):
    line = "copy nutm: 150/200 iterations, loss 0.5000, bit errors 2.00, 10/s, 0:00:05 left\n"
    assert reported(False, clock) == line


def test_a_bar_on_a_terminal(clock, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    said = reported(True, clock)
    assert "200/200 loss 0.2500, bit errors 2.00 at 150 10/s 0:00:00 left" in said
    assert "\x1b[?25l" in said, "the cursor is hidden meanwhile"
    assert "\x1b[?25h" in said, "and shown again"


def test_nothing_when_json_is_wanted(clock):
    assert reported(False, clock, quiet=True) == reported(True, clock, quiet=True) == ""


def test_a_campaign_has_a_line_per_finished_run_away_from_a_terminal(tmp_path):
    chosen = cells("single", only="copy/", budget=5)
    planned = [Job(cell, 0, tmp_path / cell.name) for cell in chosen]
    with contextlib.redirect_stderr(Stream(False)) as said, Display("single", planned) as tick:
        tick({planned[0]: None})
        tick({planned[0]: Outcome("done"), planned[1]: None})
        tick({planned[0]: Outcome("done"), planned[1]: Outcome("failed", "no space")})
    count = len(planned)
    assert said.getvalue() == (
        f"single: 1/{count} runs, {chosen[0].name} seed 0 done\n"
        f"single: 2/{count} runs, {chosen[1].name} seed 0 failed no space\n"
    )


def test_a_campaign_has_one_live_table_on_a_terminal(tmp_path, monkeypatch, clock):
    monkeypatch.setenv("TERM", "xterm")
    chosen = cells("single", only="copy/", budget=50)
    planned = [Job(cell, 0, tmp_path / cell.name) for cell in chosen]
    planned[0].directory.mkdir(parents=True)
    metrics = planned[0].directory / "metrics.jsonl"
    with contextlib.redirect_stderr(Stream(True)), Display("single", planned) as tick:
        metrics.write_text('{"step": 20, "loss": 0.75}\n')
        tick({planned[0]: None})
        clock.now += 4
        metrics.write_text('{"step": 20, "loss": 0.75}\n{"step": 40, "loss": 0.5}\n{"step": 4')
        known = {planned[0]: None, planned[1]: Outcome("done")}
        tick(known)
        console = Console(width=100, file=io.StringIO())
        console.print(tick._table(known))
    table = console.file.getvalue()
    assert f"single: {len(planned)} runs, 1 done" in table
    assert "40 of 50" in table
    assert "loss 0.5000" in table
    assert re.search(r"5\.0 +0:00:02", table)
    assert chosen[1].name not in table, "only what is under way is listed"
