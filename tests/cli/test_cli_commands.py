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

from cli.conftest import TINY
from data import glyphs
from nsm import commands
from nsm.commands import demo
from nsm.pretrained import to_json
from nsm.training import tensorboard
from nsm.training.checkpoints import steps
from nsm.training.evaluation import evaluate
from nsm.training.loop import task_pair
from nsm.training.run import RunDirectory

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
    assert run.config().machine.programs.count == 2
    assert run.result()["steps"] == 20
    # Plain lines away from a terminal: no codes that move a cursor or paint.
    assert "\x1b" not in done.stdout + done.stderr
    assert re.search(
        r"^copy nutm: 20/20 iterations, loss 0\.\d+, bit errors \d+\.\d+, [\d.,]+/s, 0:00:00 left$", done.stderr, re.M
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
    assert err.splitlines()[-1] == "nsm: stopped; what was done is saved, and the same command goes on from there"
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
    result = json.loads(said.out)
    assert result == RunDirectory(tmp_path / "run").result()
    assert (result["task"], result["model"], result["steps"], result["backend"]) == ("copy", "nutm", 2, "fused")
    assert said.err == ""


def test_a_finished_run_is_told_again_not_trained_again(trained, nsm):
    config = RunDirectory(trained).config()
    before = {path: path.stat().st_mtime_ns for path in trained.rglob("*")}
    options = ["--iterations", config.iterations, "--evaluate-every", 2, "--log-every", 2]
    said = nsm("train", "copy", *TINY, *options, "--out", trained)
    assert said.code == 0
    assert "copy, nutm: 4 iterations" in said.out
    assert {path: path.stat().st_mtime_ns for path in trained.rglob("*")} == before


def test_a_run_without_a_directory_lands_under_runs(nsm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert nsm("train", "copy", "--model", "ntm", *TINY, "--iterations", 1, "--seed", 5).code == 0
    assert RunDirectory("runs/copy-ntm-5").result() is not None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--attention", "direct", "--programs", "3"], {"machine.programs.attention": "direct"}),
        (["--attention", "uniform"], {"machine.programs.attention": "uniform"}),
        (["--attention", "gumbel", "--temperature", "0.5"], {"machine.programs.temperature": 0.5}),
        (["--programs", "1"], {"machine.programs.count": 1}),
        (["--controller", "feed-forward"], {"machine.controller.kind": "feed-forward", "cell_noise": 0.0}),
        (["--controller", "gru"], {"machine.controller.kind": "gru", "cell_noise": 0.0}),
        (["--heads", "2", "--shift-range", "2", "--order", "write-first"], {"machine.memory.read_heads": 2}),
        (
            ["--optimiser", "adam", "--learning-rate", "1e-3"],
            {"optimiser.kind": "adam", "optimiser.learning_rate": 1e-3},
        ),
        (["--preset", "authors", "--key-size", "4"], {"machine.programs.strength_scale": 0.25, "protocol": "authors"}),
        (["--preset", "authors", "--programs", "5"], {"machine.programs.strength_scale": 0.2}),
        (["--preset", "paper"], {"batch_size": 1, "ragged": False, "machine.memory.initial_memory": "constant"}),
        (["--preset", "authors"], {"protocol": "authors", "machine.memory.initial_memory": "random"}),
        (["--ragged", "False", "--random-slots", "False"], {"ragged": False, "random_slots": False}),
        (["--backend", "reference"], {}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_option_reaches_the_configuration_and_the_run_trains(tmp_path, nsm, options, expected):
    said = nsm("train", "copy", *TINY, "--iterations", 1, *options, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    document = to_json(RunDirectory(tmp_path / "run").config())
    for name, value in expected.items():
        found = document
        for part in name.split("."):
            found = found[part]
        assert found == value, name


def test_every_field_of_a_run_can_be_set(nsm):
    """All of RunConfig and OptimiserConfig, and what decides the machine."""
    from dataclasses import fields

    from nsm.training.config import OptimiserConfig, RunConfig

    known = {field.name for field in fields(commands.Train)}
    wanted = {field.name for field in (*fields(RunConfig), *fields(OptimiserConfig))}
    assert wanted - {"machine", "kind", "world_size"} <= known, "the world size is what torchrun says"


@pytest.mark.parametrize("task", ["repeat-copy", "ngrams", "priority-sort", "copy+associative-recall", "continual"])
def test_every_kind_of_task_trains_and_is_evaluated(tmp_path, nsm, task):
    options = ["--size", "8", "--slots", "16", "--width", "4", "--evaluate-sequences", "2", "--test-sequences", "2"]
    said = nsm("train", task, *options, "--iterations", 4, "--batch-size", 2, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    said = nsm("eval", tmp_path / "run", "--sequences", 3, "--json")
    assert said.code == 0, said.err
    rows = json.loads(said.out)
    rows = rows if isinstance(rows, list) else [rows]
    assert len(rows) == (4 if task == "continual" else 1)
    assert all(row["sequences"] == 3 for row in rows)
    said = nsm("eval", tmp_path / "run", "--sequences", 3)
    assert "wrong bits per sequence" in said.out
    assert ("the best possible" in said.out) == (task == "ngrams")


def test_omniglot_trains_and_is_evaluated(tmp_path, nsm):
    options = ["--size", "8", "--slots", "16", "--width", "4", "--evaluate-sequences", "4", "--test-sequences", "4"]
    said = nsm("train", "omniglot-5", "--model", "mann", *options, "--iterations", 2, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    assert "of answers wrong; right by presentation 1: " in said.out
    said = nsm("eval", tmp_path / "run", "--sequences", 6, "--length", 20, "--json")
    assert said.code == 0, said.err
    row = json.loads(said.out)
    assert {"loss", "error", "accuracy/1", "accuracy/1 ±", "accuracy/5"} <= row.keys()
    assert (row["sequences"], row["settings"]["persistent"], row["settings"]["ranges"]) == (6, False, {"length": 20})
    said = nsm("eval", tmp_path / "run", "--sequences", 6, "--length", 20, "--persistent", "True", "--json")
    kept = json.loads(said.out)
    assert kept["settings"]["persistent"]
    assert kept["loss"] != row["loss"]
    assert "right by presentation" in nsm("eval", tmp_path / "run", "--sequences", 3).out


def test_other_programs_come_with_their_controller(tmp_path, nsm):
    for programs, size in ((2, 180), (3, 150), (5, 150)):
        config = commands.Train("omniglot-5", programs=programs).config()
        assert (config.machine.programs.count, config.machine.controller.size) == (programs, size)
    assert commands.Train("omniglot-5", programs=3, size=99).config().machine.controller.size == 99


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
    assert {"bit_errors", "l1_errors", "perfect", "sequences", "settings"} <= set(row)
    fixed = {"task": "copy", "which": "best", "like": "test", "seed": 0, "slots": 32, "persistent": False}
    assert row["settings"] == {**fixed, "ranges": {"length": [3, 7]}}
    assert row["sequences"] == 20
    assert 0 <= row["bit_errors"] <= 8 * 7
    assert 0 <= row["perfect"] <= 1


@pytest.mark.parametrize("length", ["1", "45", "2-3"])
def test_eval_at_any_length(trained, nsm, length):
    row = json.loads(nsm("eval", trained, "--length", length, "--sequences", 4, "--json").out)
    low, high = row["settings"]["ranges"]["length"]
    assert f"{low}-{high}" == length or f"{low}" == f"{high}" == length
    assert 8 * low * (1 - row["bit_accuracy"]) <= row["bit_errors"] + 1e-9


def test_eval_is_the_same_every_time_and_follows_its_seed(trained, nsm):
    arguments = ("eval", trained, "--length", "5", "--sequences", 10, "--json")
    assert nsm(*arguments).out == nsm(*arguments).out
    other = json.loads(nsm(*arguments, "--seed", 9).out)
    assert other["settings"]["seed"] == 9
    assert other["l1_errors"] != json.loads(nsm(*arguments).out)["l1_errors"]


def test_eval_on_a_tape_of_another_size(trained, nsm):
    arguments = ("eval", trained, "--length", "5", "--sequences", 5, "--json")
    default, same, other = (json.loads(nsm(*arguments, *slots).out) for slots in ((), ("--slots", 16), ("--slots", 3)))
    assert default == same
    assert other["l1_errors"] != default["l1_errors"]


def test_eval_gives_what_the_run_found(trained, nsm):
    result = RunDirectory(trained).result()
    for which in ("best", "last"):
        row = json.loads(nsm("eval", trained, "--which", which, "--sequences", 4, "--json").out)
        assert row["bit_errors"] == result[which]["bit_errors"]
        assert row["loss"] == result[which]["loss"]


def test_eval_of_both_back_ends_agrees(trained, nsm):
    arguments = ("eval", trained, "--length", "5", "--sequences", 5, "--json", "--backend")
    fused, reference = (json.loads(nsm(*arguments, backend).out) for backend in ("fused", "reference"))
    assert fused["loss"] == pytest.approx(reference["loss"], rel=1e-5)


def test_eval_of_a_sequence_of_tasks_names_the_ranges_of_each(tmp_path, nsm):
    said = nsm("train", "copy+repeat-copy", *TINY, "--iterations", 1, "--batch-size", 1, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    row = json.loads(nsm("eval", tmp_path / "run", "--sequences", 2, "--repeats", "2", "--json").out)
    assert row["settings"]["ranges"] == {
        "copy.length": [10, 20],
        "repeat-copy.length": [10, 20],
        "repeat-copy.repeats": [2, 2],
    }
    assert {"bit_errors/copy", "bit_errors/repeat-copy"} <= set(row)
    row = json.loads(nsm("eval", tmp_path / "run", "--sequences", 2, "--like", "training", "--json").out)
    trained_on = {"copy.length": [1, 10], "repeat-copy.length": [1, 10], "repeat-copy.repeats": [1, 10]}
    assert row["settings"]["ranges"] == trained_on


def test_eval_on_sequences_like_those_of_training(trained, nsm):
    """The ranges of training, drawn anew, and for every sequence even where training drew them once a batch."""
    arguments = ("eval", trained, "--like", "training", "--sequences", 30, "--json")
    row = json.loads(nsm(*arguments).out)
    assert (row["settings"]["like"], row["settings"]["ranges"]) == ("training", {"length": [1, 20]})
    config = RunDirectory(trained).config()
    assert not config.ragged
    task = task_pair(config).train.held_out()
    expected = evaluate(RunDirectory(trained).machine("best"), task, 30, config.seed).averages()
    assert row["bit_errors"] == expected["bit_errors"]
    assert row["l1_errors"] == expected["l1_errors"]
    assert json.loads(nsm(*arguments, "--length", 4).out)["settings"]["ranges"] == {"length": [4, 4]}


# --- demo, TensorBoard ------------------------------------------------------------------------------------------------


def test_the_demo_says_in_words_what_was_learned_and_where_the_run_is(tmp_path, nsm, monkeypatch):
    """Cut to a few iterations: here it learns nothing, but it says so in the same words."""
    monkeypatch.setattr(demo, "ITERATIONS", 3)
    said = nsm("demo", "--out", tmp_path / "demo")
    assert said.code == 0, said.err
    assert "A controller of 80 units, a tape of 128 slots, 2 stored programs for each head." in said.out
    for length, bits in ((20, 160), (120, 960)):
        assert re.search(rf"Length +{length}: [\d.]+ of {bits} bits wrong on average, [\d.]+% of sequences", said.out)
    assert "While it writes, its head moves by" in said.out
    assert f"The run is in {tmp_path / 'demo'}" in said.out
    for words, page in (("What it learned", "report.html"), ("Watch it work", "view.html")):
        assert f"{words}: {tmp_path / 'demo' / page}\n" in said.out
        assert "<title>copy, NUTM" in (tmp_path / "demo" / page).read_text()
    assert nsm("demo", "--out", tmp_path / "demo").out == said.out, "a demo that was made is told again"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_events_on_request(tmp_path, nsm):
    pytest.importorskip("tensorboard", reason="needs the extra nsm[tensorboard]")
    said = nsm("train", "copy", *TINY, "--iterations", 1, "--tensorboard", "--out", tmp_path / "run")
    assert said.code == 0, said.err
    assert len(list((tmp_path / "run" / "tensorboard").iterdir())) == 1


def test_tensorboard_that_is_missing_is_said_before_training_not_after(tmp_path, nsm, monkeypatch):
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    said = nsm("train", "copy", *TINY, "--iterations", 1, "--tensorboard", "--out", tmp_path / "run")
    assert (said.code, said.err) == (2, "nsm: TensorBoard is not installed: pip install 'nsm[tensorboard]'\n")
    assert not (tmp_path / "run").exists()


def test_a_run_may_begin_with_the_machine_of_another(trained, nsm, tmp_path):
    """Its shape comes with it, for another task of the same width as well."""
    options = ["--iterations", 2, "--learning-rate", 1e-30, "--evaluate-sequences", 4, "--test-sequences", 4]
    said = nsm("train", "long-copy", "--start", trained, *options, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    ours, theirs = (RunDirectory(place) for place in (tmp_path / "run", trained))
    assert ours.config().machine == theirs.config().machine
    best = theirs.checkpoint("best").model
    assert all(torch.equal(weights, best[name]) for name, weights in ours.checkpoint("last").model.items())
    again = nsm("train", "long-copy", "--start", trained, *options, "--out", tmp_path / "run")
    assert again.code == 0, again.err


@pytest.mark.parametrize(("options", "weight"), [([], 0.0), (["--key-loss", 0.2], 0.2)])
def test_keys_of_a_machine_that_is_trained_further_are_not_pushed_apart_unless_asked_for(
    trained, nsm, tmp_path, options, weight
):
    short = ["--iterations", 1, "--evaluate-sequences", 1, "--test-sequences", 1]
    said = nsm("train", "copy", "--start", trained, *options, *short, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    assert RunDirectory(tmp_path / "run").config().key_loss == weight
    assert RunDirectory(trained).config().key_loss == 0.1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["copy", "--model", "ntm"], "--model must be nutm like the machine of {}, was ntm"),
        (["copy", "--size", 9], "the machine of {} has another shape than this run's"),
        (["copy", "--width", 5], "the machine of {} has another shape than this run's"),
        (["repeat-copy"], "repeat-copy has 10 inputs and 9 outputs, the machine 10 and 8"),
    ],
)
def test_a_machine_that_does_not_fit_is_no_start(trained, nsm, tmp_path, options, sentence):
    said = nsm("train", *options, "--start", trained, "--out", tmp_path / "run")
    assert said.code == 2
    assert sentence.format(trained) in said.err
    assert not (tmp_path / "run").exists()
