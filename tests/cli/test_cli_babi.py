"""bAbI by command, on a small archive: train, eval, reproduce, and questions to what was trained."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from cli.conftest import call
from nsm.commands import Train
from nsm.data import babi, source
from nsm.experiments.machines import question_answering
from nsm.experiments.paper import PUBLISHED_BABI_MEAN, PUBLISHED_BABI_TASKS, cells
from nsm.experiments.recipes import recipe
from nsm.training.run import RunDirectory

TINY = ["--size", "8", "--slots", "8", "--width", "4", "--heads", "2"]
SHORT = ["--iterations", "6", "--evaluate-every", "3", "--log-every", "3", "--checkpoint-every", "3"]
NOTE = "the training file of task 1 is not the released one"


@pytest.fixture(scope="session")
def trained(made_up_data, tmp_path_factory):
    """A finished run of a tiny machine on tasks 1 and 19. Not to be changed."""
    directory = tmp_path_factory.mktemp("trained") / "run"
    said = call("train", "babi", "--tasks", "1,19", *TINY, *SHORT, "--out", directory)
    assert said.code == 0, said.err
    return directory, said


@pytest.fixture
def story(tmp_path):
    path = tmp_path / "story.txt"
    path.write_text("1 Mary moved to the bathroom.\n2 Where is Mary?\tbathroom\t1\n\nJohn went to the hallway\n")
    return path


def test_a_run_has_errors_by_task_in_its_metrics_and_its_result(trained):
    directory, said = trained
    run = RunDirectory(directory)
    names = {f"{kind}_error/qa{task}" for kind in ("word", "question") for task in (1, 19)}
    names |= {"error", "question_error", "failed_tasks", "loss", "sequences"}
    for line in run.metrics():
        assert set(line["held_out"]) == names
    result = run.result()
    assert set(result["best"]) == names | {"step"}
    assert result["best"]["sequences"] == 20
    assert result["model"] == "nutm"
    assert NOTE in result["notes"]
    assert f"Note: {NOTE}." in said.out
    assert "of answers wrong on average over tasks" in said.out


def test_eval_takes_all_test_stories(nsm, trained):
    directory, _ = trained
    said = nsm("eval", directory, "--json")
    figures = json.loads(said.out)
    assert figures["sequences"] == 20
    assert NOTE in figures["notes"]
    best = RunDirectory(directory).result()["best"]
    assert figures["word_error/qa19"] == best["word_error/qa19"]
    assert figures["loss"] == pytest.approx(best["loss"])
    assert f"Note: {NOTE}." in nsm("eval", directory).out


def test_a_question_is_answered_with_its_probability_and_runners_up(nsm, trained, story):
    directory, _ = trained
    said = nsm("ask", directory, story, "Where is Mary?", "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    (word,) = found["words"]
    assert found["answer"] == [word["word"]]
    assert len(word["runners_up"]) == 3
    probabilities = [word["probability"], *(share for _, share in word["runners_up"])]
    assert probabilities == sorted(probabilities, reverse=True)
    assert 0 < sum(probabilities) < 1
    plain = nsm("ask", directory, story, "where is mary")
    assert plain.out.startswith(f"{word['word']} (")
    assert f"then: {word['runners_up'][0][0]}" in plain.out


def test_a_way_has_two_words_and_a_list_as_many_as_are_asked_for(nsm, trained, story):
    directory, _ = trained
    way = json.loads(nsm("ask", directory, story, "How do you go from the office to the garden?", "--json").out)
    assert len(way["answer"]) == 2
    assert way["probability"] == pytest.approx(way["words"][0]["probability"] * way["words"][1]["probability"])
    several = json.loads(nsm("ask", directory, story, "What is Mary carrying?", "--words", "3", "--json").out)
    assert len(several["answer"]) == 3


@pytest.mark.parametrize(
    ("line", "question", "sentence"),
    [
        ("", "Where is Paul?", "the question can't be asked: the word 'paul' is not one of the 159"),
        ("", "?", "the question is empty"),
        ("Mary went to Rome.", "Where is Mary?", "story.txt, line 5: the word 'rome' is not one of the 159"),
        ("Where is Mary?", "Where is Mary?", "story.txt, line 5: a question without an answer"),
    ],
)
def test_an_unknown_word_is_named_not_guessed(nsm, trained, story, line, question, sentence):
    story.write_text(story.read_text() + line)
    said = nsm("ask", trained[0], story, question)
    assert said.code == 2
    assert sentence in said.err
    assert said.out == ""


def test_a_story_is_a_file_of_text(nsm, story, tmp_path):
    story.write_bytes(b"Mary went to the \xff.\n")
    assert "story.txt can't be read: it is no text" in nsm("ask", tmp_path, story, "Where is Mary?").err
    os.truncate(story, 1 << 40)
    assert "story.txt has 1,099,511,627,776 bytes" in nsm("ask", tmp_path, story, "Where is Mary?").err
    story.unlink()
    os.mkfifo(story)
    assert "story.txt is a pipe, not a file" in nsm("ask", tmp_path, story, "Where is Mary?").err


def test_mistakes_of_asking(nsm, trained, story, tmp_path):
    assert "can't be read" in nsm("ask", trained[0], tmp_path / "none.txt", "Where is Mary?").err
    assert nsm("ask", trained[0], story, "Where is Mary?", "--words", "0").code == 2
    said = nsm("ask", trained[0], story, "Where is Mary?", "--words", 10**12)
    assert (said.code, "an answer of 1,000,000,000,000 words would take" in said.err) == (2, True)
    endless = nsm("ask", trained[0], "/dev/zero", "Where is Mary?")
    assert (endless.code, "/dev/zero is a device, not a file" in endless.err) == (2, True)
    assert "is not a run" in nsm("ask", tmp_path, story, "Where is Mary?").err
    copying = tmp_path / "copying"
    small = ["--size", "8", "--slots", "8", "--iterations", "1", "--test-sequences", "1", "--evaluate-sequences", "1"]
    nsm("train", "copy", *small, "--out", copying)
    said = nsm("ask", copying, story, "Where is Mary?")
    assert (said.code, "was trained on copy: only a run on babi answers questions" in said.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["babi", "--tasks", "0"], "bAbI has no task 0: they are numbered from 1 to 20"),
        (["babi", "--tasks", "one"], "tasks of bAbI are given by their numbers"),
        (["copy", "--tasks", "1"], "--tasks chooses from those of babi, the task was 'copy'"),
        (["babi", "--model", "ntm"], "model must be one of 'dnc', 'nutm', was 'ntm'"),
        (["babi", "--model", "dnc", "--programs", "2"], "--programs needs --model nutm"),
        (["babi", "--programs", "3"], "programs must be one of '1', '2', '4', was '3'"),
        (["babi", "--shift-range", "2"], "--shift-range does not apply to babi, whose memory is a DNC"),
    ],
)
def test_mistakes_of_training(nsm, arguments, sentence):
    said = nsm("train", *arguments)
    assert (said.code, sentence in said.err) == (2, True), said.err


def test_missing_data_is_one_sentence(nsm, tmp_path, monkeypatch):
    monkeypatch.setenv(source.VARIABLE, str(tmp_path))
    for command in (["train", "babi"], ["reproduce", "babi"], ["data", "check", "babi"]):
        said = nsm(*command)
        assert said.code == 2
        assert "bAbI is not in" in said.err
        assert "nsm data fetch babi" in said.err


def test_check_says_what_differs(nsm):
    said = nsm("data", "check", "babi")
    assert said.code == 2
    assert "en-10k: 0 of 40 files are the released ones" in said.out
    assert "train: 400 stories" in said.out
    assert "qa1_single-supporting-fact_train.txt is not the released file" in said.err


def test_the_settings_of_the_paper():
    found = {cell.model: cell for cell in cells("babi")}
    assert list(found) == ["dnc", "nutm-2", "nutm-4"]
    assert [cell.published for cell in found.values()] == pytest.approx([0.097, 0.075, 0.056])
    for cell, size in zip(found.values(), (256, 240, 172), strict=True):
        config = cell.config
        assert config.machine.controller.size == size
        assert (config.batch_size, config.optimiser.kind, config.optimiser.learning_rate) == (32, "rmsprop", 1e-4)
        assert config.optimiser.momentum == 0.9
        assert config.iterations == 50 * config.evaluate_every == 50 * 1_763
    assert found["dnc"].config.machine.programs is None
    assert recipe("babi-1", "dnc", "authors").protocol == "authors"
    means = [sum(column) / 20 for column in list(zip(*PUBLISHED_BABI_TASKS, strict=True))[1:]]
    assert means == pytest.approx(PUBLISHED_BABI_MEAN, abs=0.1)
    assert sum(best > 5 for _, best, _ in PUBLISHED_BABI_TASKS) == 1


def test_the_default_start_is_a_matter_of_ordinary_options():
    paper, default = recipe("babi", "nutm", "paper"), recipe("babi", "nutm")
    assert (default.machine.interface.keys, default.machine.interface.sharpness) == ("written", 10.0)
    assert (paper.machine.interface.keys, paper.machine.interface.sharpness) == ("own", 0.0)
    assert (default.batch_size, recipe("babi-1", "nutm").batch_size) == (32, 8)
    said = Train("babi", input_gain=1.0, forget_bias=0.0, interface_keys="own", sharpness=0.0).config()
    assert said.machine == question_answering(4)


def test_only_takes_several_parts():
    assert [cell.model for cell in cells("babi", only="dnc,nutm-4")] == ["dnc", "nutm-4"]


REPRODUCE = ["reproduce", "babi", "--only", "dnc", "--seeds", "2", "--budget", "2", "--jobs", "2", "--out"]


def test_reproduce_prints_the_twenty_tasks_beside_the_papers(nsm, tmp_path):
    said = nsm(*REPRODUCE, tmp_path)
    assert said.code == 0, said.err
    rows = [line.split() for line in said.out.splitlines()]
    for task, (title, best, mean) in enumerate(PUBLISHED_BABI_TASKS, start=1):
        (row,) = [row for row in rows if row and row[0] == f"{task}:"]
        assert row[1 : 1 + len(title.split())] == title.split()
        assert row[1 + len(title.split()) :][:2] == [f"{best:.1f}", f"{mean:.1f}"]
    assert "failed (above 5 %)" in said.out
    assert "0.097" in said.out
    assert f"Note: {NOTE}." in said.out
    (row,) = json.loads(nsm(*REPRODUCE, tmp_path, "--json").out)
    assert (row["seeds"], row["metric"]) == (2, "error")
    assert set(row["by_task"]) <= {f"qa{task}" for task in babi.TASKS}
    assert len(row["failed_tasks"]) == 2
    assert NOTE in row["notes"]


def test_a_run_that_is_stopped_goes_on_and_ends_the_same(nsm, tmp_path):
    """The position in an epoch is nothing but the step."""
    long = ["--iterations", "60", "--evaluate-every", "20", "--log-every", "10", "--checkpoint-every", "7"]
    command = ["train", "babi", "--tasks", "1,8", *TINY, *long, "--batch-size", "8", "--out"]
    assert nsm(*command, tmp_path / "whole").code == 0
    process = subprocess.Popen(
        [sys.executable, "-m", "nsm", *command, str(tmp_path / "pieces")],
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + 120
    while not (tmp_path / "pieces" / "checkpoints").exists() and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert RunDirectory(tmp_path / "pieces").result() is None
    assert nsm(*command, tmp_path / "pieces").code == 0
    whole, pieces = (RunDirectory(tmp_path / name) for name in ("whole", "pieces"))
    assert whole.metrics_path.read_bytes() == pieces.metrics_path.read_bytes()
    assert whole.result()["best"] == pieces.result()["best"]
