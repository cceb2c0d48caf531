"""Progress: the pace of this process, and the time that is left for a run and for a campaign."""

import contextlib
import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from nsm import bar, screen
from nsm.bar import ProgressBar, figures
from nsm.commands.tables import Display, expected
from nsm.experiments import cost, recipes
from nsm.experiments.engines import Job, Status
from nsm.experiments.paper import cells
from nsm.screen import Pace, about
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
    first, evaluated = reported(run, False, clock).splitlines()
    assert first == "copy, nutm: 51 iterations to go, about 5 s", "said once, after the first seconds"
    words = "loss 0.5000, validation: 2.00 wrong bits per sequence"
    assert evaluated == f"copy, nutm: 150/200 iterations, {words}, 10/s, 0:00:05 left"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 s"), (90, "90 s"), (130, "2 minutes"), (25 * 60, "25 minutes"), (3 * 3600, "3 hours"), (1e6, "12 days")],
)
def test_durations_in_words(seconds, words):
    assert about(seconds) == f"about {words}"


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
    first, second = said.getvalue().splitlines()
    assert re.fullmatch(rf"single: 1/{count} runs, about \d+ s left; {chosen[0].name} seed 0 done", first)
    assert second.startswith(f"single: 2/{count} runs")
    assert second.endswith(f"; {chosen[1].name} seed 0 failed: no space")


def test_the_time_left_for_a_campaign_goes_by_the_cost_of_its_runs(tmp_path, clock):
    """One run was finished before, one is at half its iterations, one has not begun."""
    chosen = cells("single", only="copy/ntm,copy/nutm,long-copy/ntm", budget=40)
    planned = [Job(cell, 0, tmp_path / cell.name) for cell in chosen]
    costs = [cost.seconds(job.experiment) for job in planned]
    with contextlib.redirect_stderr(Stream(False)), Display("single", planned) as tick:
        clock.now += 10
        tick({planned[0]: Status("done")})
        planned[1].directory.mkdir(parents=True)
        (planned[1].directory / "metrics.jsonl").write_text('{"step": 20, "loss": 0.75}\n')
        spent = costs[0] + costs[1] / 2
        left = 10 * (sum(costs) - spent) / spent
        assert tick._left({planned[0]: Status("done"), planned[1]: None}) == f", {about(left)} left"


def test_what_a_campaign_will_take_counts_shared_runs_once(tmp_path):
    chosen = cells("single", only="copy/ntm,copy/nutm", budget=40)
    planned = [Job(cell, 0, tmp_path / cell.name) for cell in chosen]
    total = sum(cost.seconds(job.experiment) for job in planned)
    words = f"2 runs, {about(total)} to go (rough estimate)"
    assert expected(planned, 1) == words
    twins = [job._replace(directory=tmp_path / "twin" / job.cell.name) for job in planned]
    assert expected([*planned, *twins], 1) == words.replace("2 runs", "4 runs")


def test_an_estimate_grows_with_the_work(monkeypatch):
    nutm, longer = recipes.copy(), recipes.find("long-copy")()
    assert cost.seconds(nutm) == cost.seconds(replace(nutm, seed=3)) < cost.seconds(longer)
    more = replace(nutm, schedule=replace(nutm.schedule, iterations=2 * nutm.schedule.iterations))
    assert cost.seconds(more) == pytest.approx(2 * cost.seconds(nutm))
    assert 5 < cost.seconds(nutm) < 100, "seconds, as measured: about 20"


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
    assert f"single: {len(planned)} runs, 1 done, about " in table
    assert "40 of 50" in table
    assert "loss 0.5000" in table
    assert re.search(r"5\.0 +0:00:02", table)
    assert chosen[1].name not in table, "only what is under way is listed"
