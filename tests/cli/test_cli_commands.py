"""What the commands do when they are used as meant."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import torch

from cli.conftest import MACHINE, TINY
from data import glyphs
from nsm.commands import demo
from nsm.experiments import recipes
from nsm.training import callbacks
from nsm.training.checkpoints import steps
from nsm.training.evaluation import evaluate
from nsm.training.experiment import Experiment
from nsm.training.result import Outcome
from nsm.training.run import RunDirectory
from nsm.tree import from_json, to_json

NSM = [sys.executable, "-m", "nsm"]


def test_the_command_of_the_readme_from_a_shell(tmp_path):
    arguments = [
        "train",
        "copy",
        "--model",
        "nutm",
        "--programs",
        "2",
        "--iterations",
        "20",
        "--seed",
        "0",
        "--test-sequences",
        "20",
        "--out",
    ]
    done = subprocess.run([*NSM, *arguments, tmp_path / "run"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"copy, nutm: 20 iterations in \d+ s, not solved\.", done.stdout)
    assert f"The run is in {tmp_path / 'run'}." in done.stdout
    run = RunDirectory(tmp_path / "run")
    assert run.experiment.machine.programs.count == 2
    assert run.outcome().steps == 20
    # Plain lines away from a terminal: no codes that move a cursor or paint.
    assert "\x1b" not in done.stdout + done.stderr
    assert re.search(
        r"^copy, nutm: 20/20 iterations, loss 0\.\d+, validation: \d+\.\d+ wrong bits .*, [\d.,]+/s, 0:00:00 left$",
        done.stderr,
        re.M,
    )


def test_a_signal_from_a_shell_ends_with_code_75_and_the_same_command_goes_on(tmp_path):
    arguments = ["train", "copy", *TINY, "--iterations", "1000000", "--log-every", "5", "--out", str(tmp_path / "run")]
    process = subprocess.Popen([*NSM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    metrics = tmp_path / "run" / "metrics.jsonl"
    while not (metrics.exists() and metrics.stat().st_size):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate()
    assert process.returncode == 75, err
    assert err.splitlines()[-1].startswith("nsm: stopped and saved")
    assert out == ""
    assert "Traceback" not in err
    assert len(steps(tmp_path / "run" / "checkpoints")) == 1


@pytest.mark.parametrize("arguments", [["--help"], ["reproduce", "params"], ["train", "copy", "--no-such-option"]])
def test_output_that_nobody_reads_ends_a_command_without_a_word(arguments):
    """As after `| head`: the pipe has no reader left."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        unread = subprocess.run([*NSM, *arguments], stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writing)
    heard = subprocess.run([*NSM, *arguments], capture_output=True, text=True, check=False)
    assert unread.stderr == heard.stderr  # of the output itself there is nothing to say
    assert unread.returncode == (141 if heard.stdout else heard.returncode)


def test_train_prints_its_result_as_json(tmp_path, nsm):
    said = nsm("train", "copy", *TINY, "--iterations", 2, "--json", "--out", tmp_path / "run")
    assert said.code == 0
    outcome = json.loads(said.out)
    assert from_json(Outcome, outcome) == RunDirectory(tmp_path / "run").outcome()
    assert (outcome["steps"], outcome["backend"], outcome["best"]["figures"]["sequences"]) == (2, "fused", 4)
    assert said.err == ""


def test_a_finished_run_is_told_again_not_trained_again(trained, nsm):
    before = {path: path.stat().st_mtime_ns for path in trained.rglob("*")}
    options = ["--iterations", 4, "--evaluate-every", 2, "--log-every", 2]
    said = nsm("train", "copy", *TINY, *options, "--out", trained)
    assert said.code == 0
    assert "copy, nutm: 4 iterations" in said.out
    assert {path: path.stat().st_mtime_ns for path in trained.rglob("*")} == before


def test_a_run_without_a_directory_lands_under_runs(nsm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert nsm("train", "copy", "--model", "ntm", *TINY, "--iterations", 1, "--seed", 5).code == 0
    assert RunDirectory("runs/copy-ntm-5").outcome() is not None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--programs.attention", "direct", "--programs", "3"], {"machine.programs.attention": "direct"}),
        (["--programs.attention", "uniform"], {"machine.programs.attention": "uniform"}),
        (["--programs.attention", "gumbel", "--programs.temperature", "0.5"], {"machine.programs.temperature": 0.5}),
        (["--programs", "1"], {"machine.programs.count": 1}),
        (["--programs", "3"], {"machine.programs.count": 3}),
        (["--programs.count", "3"], {"machine.programs.count": 3}),
        (["--programs", "0"], {"machine.programs": None}),
        (["--memory", "lrua"], {"machine.memory.kind": "LRUA", "machine.programs.count": 2}),
        (["--model", "dnc"], {"machine.memory.kind": "DNC", "machine.programs": None}),
        (["--controller.kind", "feed-forward", "--cell-noise", "0"], {"machine.controller.kind": "feed-forward"}),
        (["--controller.kind", "gru", "--cell-noise", "0"], {"machine.controller.kind": "gru"}),
        (
            ["--memory.read-heads", "2", "--memory.write-heads", "3", "--memory.order", "write-first"],
            {"machine.memory.read_heads": 2, "machine.memory.write_heads": 3, "machine.memory.order": "write-first"},
        ),
        (["--memory.shift-range", "2"], {"machine.memory.shift_range": 2}),
        (
            ["--optimiser.kind", "adam", "--optimiser.learning-rate", "1e-3"],
            {"optimiser.kind": "adam", "optimiser.learning_rate": 1e-3},
        ),
        (["--preset", "authors", "--programs.key-size", "4"], {"machine.programs.key_size": 4}),
        (["--preset", "authors", "--programs", "5"], {"machine.programs.strength_scale": 0.2}),
        (
            ["--preset", "paper"],
            {"schedule.batch_size": 1, "task.ragged": False, "machine.memory.initial_memory": "constant"},
        ),
        (["--preset", "authors"], {"machine.memory.initial_memory": "random", "machine.programs.loss": "mean"}),
        (["--task.ragged", "True", "--random-slots", "False"], {"task.ragged": True, "schedule.random_slots": False}),
        (
            ["--task.length", "2", "4", "--task.test.length", "9", "9"],
            {"task.length": [2, 4], "task.test.length": [9, 9]},
        ),
        (
            ["--task.width", "3", "--task.test.width", "3", "--task.validation.width", "3"],
            {"task.width": 3, "machine.input_size": 5, "machine.output_size": 3},
        ),
        (["--backend", "reference"], {}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_option_reaches_the_configuration_and_the_run_trains(tmp_path, nsm, options, expected):
    said = nsm("train", "copy", *TINY, "--iterations", 1, *options, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    document = to_json(RunDirectory(tmp_path / "run").experiment)
    for name, value in expected.items():
        found = document
        for part in name.split("."):
            found = found[part]
        assert found == value, name


@pytest.mark.parametrize("task", ["repeat-copy", "ngrams", "priority-sort", "copy+associative-recall", "continual"])
def test_every_kind_of_task_trains_and_is_evaluated(tmp_path, nsm, task):
    options = [*MACHINE, "--validation-sequences", "2", "--test-sequences", "2"]
    said = nsm("train", task, *options, "--iterations", 4, "--batch-size", 2, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    said = nsm("eval", tmp_path / "run", "--sequences", 3, "--json")
    assert said.code == 0, said.err
    rows = json.loads(said.out)
    rows = rows if isinstance(rows, list) else [rows]
    assert len(rows) == (4 if task == "continual" else 1)
    assert all(row["figures"]["sequences"] == 3 for row in rows)
    said = nsm("eval", tmp_path / "run", "--sequences", 3)
    assert ("wrong bits per sequence" in said.out) == (task != "ngrams")
    assert ("bits of cross-entropy per sequence" in said.out) == (task == "ngrams")
    assert ("the best possible" in said.out) == (task == "ngrams")


def test_omniglot_trains_and_is_evaluated(tmp_path, nsm):
    said = nsm("train", "omniglot-5", "--model", "mann", *TINY, "--iterations", 2, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    assert "of answers wrong; accuracy by presentation 1: " in said.out
    said = nsm("eval", tmp_path / "run", "--sequences", 6, "--length", 20, "--json")
    assert said.code == 0, said.err
    row = json.loads(said.out)
    assert {"loss", "error", "accuracy/1", "accuracy/1 ±", "accuracy/5"} <= row["figures"].keys()
    assert (row["figures"]["sequences"], row["settings"]["persistent"], row["settings"]["ranges"]) == (
        6,
        False,
        {"length": 20},
    )
    said = nsm("eval", tmp_path / "run", "--sequences", 6, "--length", 20, "--persistent", "True", "--json")
    kept = json.loads(said.out)
    assert kept["settings"]["persistent"]
    assert kept["figures"]["loss"] != row["figures"]["loss"]
    assert "accuracy by presentation" in nsm("eval", tmp_path / "run", "--sequences", 3).out


def dry(nsm, *arguments):
    """The experiment that a command would train."""
    said = nsm("train", *arguments, "--dry-run")
    assert said.code == 0, said.err
    return from_json(Experiment, json.loads(said.out))


def test_other_programs_come_with_their_controller(nsm):
    for programs, size in ((2, 180), (3, 150), (5, 150)):
        machine = dry(nsm, "omniglot-5", "--programs", programs).machine
        assert (machine.programs.count, machine.controller.size) == (programs, size)
    assert dry(nsm, "omniglot-5", "--programs", 3, "--controller.size", 99).machine.controller.size == 99


@pytest.mark.parametrize(
    ("arguments", "name", "options"),
    [
        (["sequence", "--tasks", "copy", "priority-sort"], "sequence", {"tasks": ("copy", "priority-sort")}),
        (["copy+priority-sort"], "sequence", {"tasks": ("copy", "priority-sort")}),
        (["omniglot", "--classes", 10, "--wiped", "False"], "omniglot", {"classes": 10, "wiped": False}),
        (["omniglot-10"], "omniglot", {"classes": 10}),
        (["babi", "--stages", "False"], "babi", {"stages": False}),
    ],
)
def test_what_only_one_recipe_takes_is_an_option_or_in_its_name(nsm, arguments, name, options):
    assert dry(nsm, *arguments) == recipes.find(name)(**options)


@pytest.mark.parametrize("model", ["ntm", "mann", "dnc", "nutm"])
def test_a_model_means_the_same_for_every_task(nsm, model):
    memories = {"ntm": "NTM", "mann": "LRUA", "dnc": "DNC"}
    for task in ("copy", "omniglot", "babi"):
        machine = dry(nsm, task, "--model", model).machine
        assert (machine.programs is None) == (model != "nutm")
        assert type(machine.memory).__name__ == memories.get(
            model, {"omniglot": "LRUA", "babi": "DNC"}.get(task, "NTM")
        )


# --- a task of one's own ----------------------------------------------------------------------------------------------

MY_TASKS = """
from dataclasses import dataclass

import numpy as np

from nsm.tasks import Copy


@dataclass(frozen=True)
class Backwards(Copy):
    \"\"\"Say a sequence backwards.\"\"\"

    width: int = 3
    shouting: bool = False
    \"\"\"Whether it is said loudly.\"\"\"


@dataclass(frozen=True)
class Needy(Copy):
    def __init__(self, much):
        pass
"""
BACKWARDS = """
from my_tasks import Backwards

import nsm
from nsm.training.experiment import Schedule

task = Backwards(length=(1, 2), test=Backwards(length=(3, 3)))
machine = nsm.NUTM(task.input_size, task.output_size, controller=nsm.Controller(size=8), memory=nsm.NTM(8, 4))
nsm.train(task, machine, schedule=Schedule(2, validation_sequences=2, test_sequences=2), out="run")
"""


@pytest.fixture(scope="module")
def of_their_own(tmp_path_factory):
    """A directory with a module of the user's own, and a run that was trained on a task in it."""
    place = tmp_path_factory.mktemp("theirs")
    (place / "my_tasks.py").write_text(MY_TASKS)
    subprocess.run([sys.executable, "-c", BACKWARDS], cwd=place, check=True)
    return place


def in_a_shell(place, *arguments):
    """A command in a process of its own, in which nothing was imported before."""
    return subprocess.run([*NSM, *map(str, arguments)], cwd=place, capture_output=True, text=True, check=False)


def test_a_run_on_a_task_of_ones_own_is_tested_and_watched_once_its_module_is_imported(of_their_own):
    done = in_a_shell(of_their_own, "eval", "run", "--import", "my_tasks", "--length", "5", "--json")
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    assert (row["task"], row["settings"]["ranges"]) == ("backwards", {"length": [5, 5]})
    done = in_a_shell(of_their_own, "view", "run", "--import", "my_tasks", "--out", "page.html")
    assert done.returncode == 0, done.stderr
    assert "<title>backwards, NUTM" in (of_their_own / "page.html").read_text()
    done = in_a_shell(of_their_own, "report", "run", "--import", "my_tasks", "--out", "report.html")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["eval", "view", "report"])
def test_a_file_does_not_have_a_module_imported_but_says_which_it_takes(of_their_own, command):
    done = in_a_shell(of_their_own, command, "run")
    assert (done.returncode, done.stdout) == (2, "")
    assert "my_tasks:Backwards, which is not part of nsm" in done.stderr
    assert "--import my_tasks" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("module", "words"),
    [("nothing", "there is no module 'nothing'"), ("my_tasks.py", "there is no module 'my_tasks.py'")],
)
def test_a_module_that_is_not_there_is_one_sentence(of_their_own, module, words):
    done = in_a_shell(of_their_own, "eval", "run", "--import", module)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_task_of_ones_own_is_trained_by_command(of_their_own):
    options = ["--iterations", 2, *TINY, "--task.shouting", "True"]
    done = in_a_shell(of_their_own, "train", "my_tasks:Backwards", *options, "--out", "by-command")
    assert done.returncode == 0, done.stderr
    assert "backwards, nutm: 2 iterations" in done.stdout
    config = json.loads((of_their_own / "by-command" / "config.json").read_text())
    assert config["experiment"]["task"]["kind"] == "my_tasks:Backwards"
    assert config["experiment"]["task"]["shouting"] is True
    helped = in_a_shell(of_their_own, "train", "my_tasks:Backwards", "--help")
    assert "Whether it is said loudly." in helped.stdout


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("my_tasks:Forwards", "my_tasks has no such Task"),
        ("my_tasks:Needy", "give its fields defaults"),
        ("nothing:Backwards", "there is no module 'nothing'"),
    ],
)
def test_a_task_of_ones_own_that_is_not_there_is_one_sentence(of_their_own, task, words):
    done = in_a_shell(of_their_own, "train", task)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


# --- data -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def glyphs_at(tmp_path):
    glyphs.write(tmp_path / "data")
    return tmp_path / "data"


def test_data_check_says_what_is_there(nsm, glyphs_at):
    said = nsm("data", "check", "omniglot", "--data-dir", glyphs_at)
    assert said.code == 0, said.err
    assert "images_background.zip: 2 alphabets, 18 characters, 360 drawings" in said.out
    said = nsm("data", "check", "omniglot", "--data-dir", glyphs_at, "--json")
    document = json.loads(said.out)
    assert (document["name"], document["directory"]) == ("omniglot", str(glyphs_at / "omniglot"))
    assert len(document["found"]) == 3
    assert document["problems"] == []


def test_data_fetch_leaves_what_is_in_place(nsm, glyphs_at):
    before = {path: path.stat().st_mtime_ns for path in glyphs_at.rglob("*")}
    assert nsm("data", "fetch", "omniglot", "--data-dir", glyphs_at).code == 0
    assert {path: path.stat().st_mtime_ns for path in glyphs_at.rglob("*")} == before


def test_data_is_looked_for_where_a_command_says(nsm, glyphs_at, monkeypatch, tmp_path):
    monkeypatch.setenv("NSM_DATA", str(tmp_path / "nowhere"))
    arguments = ("train", "omniglot-5", *TINY, "--iterations", 1, "--out", tmp_path / "run")
    said = nsm(*arguments)
    assert said.code == 2
    assert "nsm data fetch omniglot" in said.err
    assert not (tmp_path / "run").exists(), "nothing is begun without its data"
    assert nsm(*arguments, "--data-dir", glyphs_at).code == 0
    monkeypatch.setenv("NSM_DATA", str(tmp_path / "nowhere"))
    assert nsm("eval", tmp_path / "run", "--sequences", 2).code == 2
    assert nsm("eval", tmp_path / "run", "--sequences", 2, "--data-dir", glyphs_at).code == 0


def test_runs_of_a_campaign_find_the_data_too(nsm, glyphs_at, monkeypatch, tmp_path):
    monkeypatch.setenv("NSM_DATA", str(tmp_path / "nowhere"))
    arguments = ("reproduce", "fewshot", "--seeds", 1, "--jobs", 1, "--budget", 1, "--only", "omniglot-5/mann")
    said = nsm(*arguments, "--out", tmp_path / "runs")
    assert said.code == 2
    assert not (tmp_path / "runs").exists()
    assert nsm(*arguments, "--out", tmp_path / "runs", "--data-dir", glyphs_at).code == 0


# --- eval -------------------------------------------------------------------------------------------------------------


def test_eval_as_json(trained, nsm):
    said = nsm("eval", trained, "--length", "3-7", "--sequences", 20, "--slots", 32, "--json")
    assert said.code == 0, said.err
    row = json.loads(said.out)
    figures = row["figures"]
    assert row.keys() == {"task", "settings", "figures", "notes"}
    assert {"bit_errors", "l1_errors", "perfect", "sequences"} <= figures.keys()
    best = RunDirectory(trained).checkpoint("best").step
    fixed = {"which": "best", "step": best, "like": "test", "seed": 0, "slots": 32, "persistent": False}
    assert (row["task"], row["settings"]) == ("copy", {**fixed, "ranges": {"length": [3, 7]}})
    assert figures["sequences"] == 20
    assert 0 <= figures["bit_errors"] <= 8 * 7
    assert 0 <= figures["perfect"] <= 1


@pytest.mark.parametrize("length", ["1", "45", "2-3"])
def test_eval_at_any_length(trained, nsm, length):
    row = json.loads(nsm("eval", trained, "--length", length, "--sequences", 4, "--json").out)
    low, high = row["settings"]["ranges"]["length"]
    assert f"{low}-{high}" == length or f"{low}" == f"{high}" == length
    assert 8 * low * (1 - row["figures"]["bit_accuracy"]) <= row["figures"]["bit_errors"] + 1e-9


def test_eval_is_the_same_every_time_and_follows_its_seed(trained, nsm):
    arguments = ("eval", trained, "--length", "5", "--sequences", 10, "--json")
    assert nsm(*arguments).out == nsm(*arguments).out
    other = json.loads(nsm(*arguments, "--seed", 9).out)
    assert other["settings"]["seed"] == 9
    assert other["figures"] != json.loads(nsm(*arguments).out)["figures"]


def test_eval_on_a_tape_of_another_size(trained, nsm):
    arguments = ("eval", trained, "--length", "5", "--sequences", 5, "--json")
    default, same, other = (json.loads(nsm(*arguments, *slots).out) for slots in ((), ("--slots", 16), ("--slots", 3)))
    assert default == same
    assert other["figures"]["l1_errors"] != default["figures"]["l1_errors"]


def test_eval_gives_what_the_run_found(trained, nsm):
    outcome = RunDirectory(trained).outcome()
    for which, score in (("best", outcome.best), ("last", outcome.last)):
        row = json.loads(nsm("eval", trained, "--which", which, "--sequences", 4, "--json").out)
        assert (row["settings"]["step"], row["figures"]) == (score.step, score.figures)


def test_eval_of_both_back_ends_agrees(trained, nsm):
    arguments = ("eval", trained, "--length", "5", "--sequences", 5, "--json", "--backend")
    fused, reference = (json.loads(nsm(*arguments, backend).out) for backend in ("fused", "reference"))
    assert fused["figures"]["loss"] == pytest.approx(reference["figures"]["loss"], rel=1e-5)


def test_eval_of_a_sequence_of_tasks_names_the_ranges_of_each(tmp_path, nsm):
    said = nsm("train", "copy+repeat-copy", *TINY, "--iterations", 1, "--batch-size", 1, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    row = json.loads(nsm("eval", tmp_path / "run", "--sequences", 2, "--repeats", "2", "--json").out)
    assert row["settings"]["ranges"] == {
        "copy.length": [10, 20],
        "repeat-copy.length": [10, 20],
        "repeat-copy.repeats": [2, 2],
    }
    assert {"bit_errors/copy", "bit_errors/repeat-copy"} <= set(row["figures"])
    row = json.loads(nsm("eval", tmp_path / "run", "--sequences", 2, "--like", "training", "--json").out)
    trained_on = {"copy.length": [1, 10], "repeat-copy.length": [1, 10], "repeat-copy.repeats": [1, 10]}
    assert row["settings"]["ranges"] == trained_on


def test_eval_on_sequences_like_those_of_training(trained, nsm):
    """The ranges of training, drawn anew, and for every sequence even where training drew them once a batch."""
    arguments = ("eval", trained, "--like", "training", "--sequences", 30, "--json")
    row = json.loads(nsm(*arguments).out)
    assert (row["settings"]["like"], row["settings"]["ranges"]) == ("training", {"length": [1, 20]})
    task = RunDirectory(trained).experiment.task
    assert not task.ragged
    expected = evaluate(RunDirectory(trained).machine("best"), task.like_training(), 30, 0).averages()
    assert row["figures"] == expected
    assert json.loads(nsm(*arguments, "--length", 4).out)["settings"]["ranges"] == {"length": [4, 4]}


# --- demo, TensorBoard ------------------------------------------------------------------------------------------------


def test_the_demo_says_in_words_what_was_learned_and_where_the_run_is(tmp_path, nsm, monkeypatch):
    """Cut to a few iterations: here it learns nothing, but it says so in the same words."""
    monkeypatch.setattr(demo, "ITERATIONS", 3)
    said = nsm("demo", "--out", tmp_path / "demo")
    assert said.code == 0, said.err
    assert "A controller of 80 units, a tape of 128 slots, 2 stored programs per head." in said.out
    for length, bits in ((20, 160), (120, 960)):
        assert re.search(rf"Length +{length}: [\d.]+ of {bits} bits wrong on average, [\d.]+% of sequences", said.out)
    assert "While it writes, its write head moves by" in said.out
    assert f"The run is in {tmp_path / 'demo'}" in said.out
    for words, page in (("What it learned", "report.html"), ("Watch it work", "view.html")):
        assert f"{words}: {tmp_path / 'demo' / page}\n" in said.out
        assert "<title>copy, NUTM" in (tmp_path / "demo" / page).read_text()
    assert nsm("demo", "--out", tmp_path / "demo").out == said.out, "a demo that was made is told again"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_events_on_request(tmp_path, nsm):
    pytest.importorskip("tensorboard", reason="needs the extra stored-programs[tensorboard]")
    said = nsm("train", "copy", *TINY, "--iterations", 1, "--tensorboard", "--out", tmp_path / "run")
    assert said.code == 0, said.err
    assert len(list((tmp_path / "run" / "tensorboard").iterdir())) == 1


def test_tensorboard_that_is_missing_is_said_before_training_not_after(tmp_path, nsm, monkeypatch):
    monkeypatch.setattr(callbacks, "find_spec", lambda name: None)
    said = nsm("train", "copy", *TINY, "--iterations", 1, "--tensorboard", "--out", tmp_path / "run")
    assert said.code == 2
    assert 'pip install "stored-programs[tensorboard]"' in said.err
    assert not (tmp_path / "run").exists()


def test_weights_and_biases_that_are_missing_are_said_before_training_not_after(tmp_path, nsm, monkeypatch):
    monkeypatch.setattr(callbacks, "find_spec", lambda name: None)
    said = nsm("train", "copy", *TINY, "--iterations", 1, "--wandb", "copying", "--out", tmp_path / "run")
    assert said.code == 2
    assert 'pip install "stored-programs[wandb]"' in said.err
    assert not (tmp_path / "run").exists()


def test_a_run_may_begin_with_the_machine_of_another(trained, nsm, tmp_path):
    """Its shape comes with it, for another task of the same width as well."""
    options = [
        "--iterations",
        2,
        "--optimiser.learning-rate",
        1e-30,
        "--validation-sequences",
        4,
        "--test-sequences",
        4,
    ]
    said = nsm("train", "long-copy", "--start", trained, *options, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    ours, theirs = (RunDirectory(place) for place in (tmp_path / "run", trained))
    assert ours.experiment.machine == theirs.experiment.machine
    best = theirs.checkpoint("best").model
    assert all(torch.equal(weights, best[name]) for name, weights in ours.checkpoint("last").model.items())
    again = nsm("train", "long-copy", "--start", trained, *options, "--out", tmp_path / "run")
    assert again.code == 0, again.err


@pytest.mark.parametrize(("options", "weight"), [([], 0.0), (["--key-loss", 0.2], 0.2)])
def test_keys_of_a_machine_that_is_trained_further_are_not_pushed_apart_unless_asked_for(
    trained, nsm, tmp_path, options, weight
):
    short = ["--iterations", 1, "--validation-sequences", 1, "--test-sequences", 1]
    said = nsm("train", "copy", "--start", trained, *options, *short, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    assert RunDirectory(tmp_path / "run").experiment.schedule.key_loss == weight
    assert RunDirectory(trained).experiment.schedule.key_loss == 0.1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["copy", "--model", "ntm"], "--model must be nutm, as in the machine of {}, was ntm"),
        (["copy", "--programs", 3], "--programs must be 2, as in the machine of {}, was 3"),
        (["copy", "--memory", "dnc"], "--memory must be ntm, as in the machine of {}, was dnc"),
        (["copy", "--controller.size", 9], "the machine of {} has another shape than this run's"),
        (["copy", "--memory.width", 5], "the machine of {} has another shape than this run's"),
        (["repeat-copy"], "repeat-copy has 10 inputs and 9 outputs, the machine 10 and 8"),
    ],
)
def test_a_machine_that_does_not_fit_is_no_start(trained, nsm, tmp_path, options, sentence):
    said = nsm("train", *options, "--start", trained, "--out", tmp_path / "run")
    assert said.code == 2
    assert sentence.format(trained) in said.err
    assert not (tmp_path / "run").exists()
