"""What is said on the way: about this process, not about what others did before it."""

import contextlib
import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from nsm import bar, screen
from nsm.bar import ProgressBar, figures
from nsm.commands.tables import Display
from nsm.experiments import recipes
from nsm.experiments.engines.engine import Job, Status
from nsm.experiments.paper import cells
from nsm.screen import Pace
from nsm.tasks import Babi, Copy
from nsm.training.progress import Progress
from nsm.training.run import RunDirectory


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 1000.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(screen, "time", clock)
    monkeypatch.setattr(bar, "time", clock)
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
    line = {"step": 4, "loss": 0.12345, "validation": {"bit_errors": 3.456}, "accuracies": {"copy": 0.5}}
    assert figures(Copy(), line) == "loss 0.1235, validation: 3.46 wrong bits per sequence, copy 50%"
    assert figures(Copy(), {"step": 4}) == figures(Copy(), None) == ""
    assert figures(Copy(), {"step": 4, "loss": 0.5, "rewinds": 2}) == "loss 0.5000, rewound 2 ×"
    line = {"step": 4, "validation": {"loss": 1.0, "error": 0.25, "word_error/qa1": 0.25}}
    assert figures(Babi((1,)), line).startswith("validation: 25.0% wrong answer")


class Stream(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


LINE = {"step": 150, "loss": 0.5, "validation": {"bit_errors": 2.0}}


@pytest.fixture
def run(tmp_path):
    """A run of 200 iterations that was begun."""
    run, experiment = RunDirectory(tmp_path / "run"), recipes.copy()
    experiment = replace(experiment, schedule=replace(experiment.schedule, iterations=200))
    with run.opened(experiment):
        return run


def reported(run, terminal, clock):
    """What is printed of a run that goes on from iteration 100 and has looked at validation sequences at 150."""
    with contextlib.redirect_stderr(Stream(terminal)) as said:
        watching = ProgressBar()
        watching.on_start(run, Progress(100))
        clock.now += 5
        watching.on_step(Progress(149), None)
        watching.on_step(Progress(150), LINE)
        watching.on_evaluation(Progress(150), LINE)
        clock.now += 5
        watching.on_step(Progress(200), {"step": 200, "loss": 0.25})
        watching.on_stop()
    return said.getvalue()


def test_plain_lines_away_from_a_terminal(run, clock):
    words = "loss 0.5000, validation: 2.00 wrong bits per sequence"
    assert reported(run, False, clock) == f"copy, nutm: 150/200 iterations, {words}, 10/s, 0:00:05 left\n"


def test_a_bar_on_a_terminal(run, clock, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "130")
    said = reported(run, True, clock)
    assert "200/200 loss 0.2500, validation: 2.00 wrong bits per sequence at 150 10/s 0:00:00 left" in said
    assert "\x1b[?25l" in said, "the cursor is hidden meanwhile"
    assert "\x1b[?25h" in said, "and shown again"


def test_one_bar_serves_several_runs(run, clock):
    with contextlib.redirect_stderr(Stream(True)):
        watching = ProgressBar()
        for _ in range(2):
            watching.on_start(run, Progress(100))
            watching.on_stop()
            watching.on_stop()  # however a run ends


def test_a_campaign_has_a_line_per_finished_run_away_from_a_terminal(tmp_path):
    chosen = cells("single", only="copy/", budget=5)
    planned = [Job(cell, 0, tmp_path / cell.name) for cell in chosen]
    with contextlib.redirect_stderr(Stream(False)) as said, Display("single", planned) as tick:
        tick({planned[0]: None})
        tick({planned[0]: Status("done"), planned[1]: None})
        tick({planned[0]: Status("done"), planned[1]: Status("failed", "no space")})
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
        known = {planned[0]: None, planned[1]: Status("done")}
        tick(known)
        console = Console(width=100, file=io.StringIO())
        console.print(tick._table(known))
    table = console.file.getvalue()
    assert f"single: {len(planned)} runs, 1 done" in table
    assert "40 of 50" in table
    assert "loss 0.5000" in table
    assert re.search(r"5\.0 +0:00:02", table)
    assert chosen[1].name not in table, "only what is under way is listed"
