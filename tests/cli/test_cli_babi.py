"""bAbI by command, on a small archive: train, eval, reproduce, and questions to what was trained."""

import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from cli.conftest import call
from nsm.commands.answers import read_from
from nsm.data import babi, source
from nsm.experiments import recipes
from nsm.experiments.paper import PUBLISHED_BABI_MEAN, PUBLISHED_BABI_TASKS, cells
from nsm.plots.heads import HeadTrace
from nsm.training.experiment import Experiment
from nsm.training.run import RunDirectory
from nsm.tree import from_json

TINY = ["--controller.size", "8", "--memory.slots", "8", "--memory.width", "4", "--memory.read-heads", "2"]
SHORT = ["--iterations", "6", "--evaluate-every", "3", "--log-every", "3", "--checkpoint-every", "3"]
NOTE = "the training file of task 1 is not the released one"


@pytest.fixture(scope="session")
def trained(made_up_data, tmp_path_factory):
    """A finished run of a tiny machine on tasks 1 and 19. Not to be changed."""
    directory = tmp_path_factory.mktemp("trained") / "run"
    said = call("train", "babi", "--tasks", "1", "19", *TINY, *SHORT, "--out", directory)
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
    for line in run.lines():
        assert set(line["validation"]) == names
    outcome = run.outcome()
    assert set(outcome.best.figures) == names
    assert outcome.best.figures["sequences"] == 20
    assert run.experiment.machine.model == "nutm"
    assert NOTE in outcome.notes
    assert f"Note: {NOTE}." in said.out
    assert "of answers wrong on average over tasks" in said.out


def test_eval_takes_all_test_stories(nsm, trained):
    directory, _ = trained
    said = nsm("eval", directory, "--json")
    row = json.loads(said.out)
    figures = row["figures"]
    assert figures["sequences"] == 20
    assert NOTE in row["notes"]
    best = RunDirectory(directory).outcome().best.figures
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
    assert f"next best: {word['runners_up'][0][0]}" in plain.out


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
        ("", "Where is Paul?", "the word 'paul' is not one of the 159"),
        ("", "?", "the question is empty"),
        ("Mary went to Rome.", "Where is Mary?", "story.txt, line 5: the word 'rome' is not one of the 159"),
        ("Where is Mary?", "Where is Mary?", "story.txt, line 5: it is a question without an answer"),
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
    assert "story.txt can't be read: it is not UTF-8" in nsm("ask", tmp_path, story, "Where is Mary?").err
    os.truncate(story, 1 << 40)
    assert "story.txt has 1,099,511,627,776 bytes" in nsm("ask", tmp_path, story, "Where is Mary?").err
    story.unlink()
    os.mkfifo(story)
    assert "story.txt is a pipe, not a file" in nsm("ask", tmp_path, story, "Where is Mary?").err


def test_a_conversation_takes_sentences_and_answers_questions(nsm, trained, monkeypatch):
    lines = [
        "Where is Mary?",
        "Mary moved to the bathroom. John went to the hallway",
        "Mary went to Rome.",
        "Where is Mary?",
        "story",
        "new",
        "Where is John?",
        "help",
        "words",
    ]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines)))
    said = nsm("ask", trained[0])
    assert said.code == 0, said.err
    early, mistake, answer, *_ = said.out.splitlines()
    assert "no story yet" in early
    assert "'rome' is not one of the 159" in mistake
    assert re.fullmatch(r"[a-z.?,]+ \(\d+\.\d%\)", answer)
    assert "Mary moved to the bathroom.\nJohn went to the hallway.\n" in said.out
    assert "A new story.\nThere is no story" in said.out
    assert "bathroom" in said.out.splitlines()[-1]


def test_a_conversation_on_a_terminal_prompts_and_completes(trained):
    """In a process of its own: a real terminal, with a real keyboard's Tab."""
    keyboard, screen = pty.openpty()
    command = [sys.executable, "-m", "nsm", "ask", str(trained[0])]
    with subprocess.Popen(command, stdin=screen, stdout=screen, stderr=screen) as process:
        os.close(screen)
        shown = _until(keyboard, "> ")
        os.write(keyboard, b"John went to the hallw\t.\n")
        assert "hallway" in _until(keyboard, "\n> ")
        os.write(keyboard, b"Where is John?\n")
        assert re.search(r"\(\d+\.\d%\)", _until(keyboard, "\n> "))
        os.write(keyboard, b"\x04")
        code = process.wait(timeout=30)
    os.close(keyboard)
    assert "Ctrl-D" in shown
    assert code == 0


def _until(keyboard, sign):
    """What a terminal shows until it shows a sign."""
    shown, until = "", time.monotonic() + 60
    while sign not in shown and time.monotonic() < until:
        if select.select([keyboard], [], [], 1)[0]:
            shown += os.read(keyboard, 1 << 16).decode().replace("\r", "")
    return shown


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["story.txt"], "a story needs a question"),
        (["--json"], "--json needs a story and a question"),
        (["--words", "0"], "words must be an integer of at least 1"),
    ],
)
def test_mistakes_of_conversing(nsm, trained, arguments, sentence):
    said = nsm("ask", trained[0], *arguments)
    assert (said.code, sentence in said.err) == (2, True), said.err


def test_an_answer_names_the_sentences_that_were_looked_at(nsm, trained, story):
    found = json.loads(nsm("ask", trained[0], story, "Where is Mary?", "--json").out)
    looked_at = found["looked_at"]
    assert {part["sentence"] for part in looked_at} <= {
        "mary moved to the bathroom .",
        "where is mary ? -",
        "john went to the hallway .",
    }
    shares = [part["share"] for part in looked_at]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1)


def test_what_is_read_was_written_when_its_slot_was_last_written():
    """Step 0 writes slot 1, step 1 half of it and slot 0; step 2 reads slot 1 by one head, slot 0 by another."""
    write = np.array([[0, 1], [1, 0.5], [0, 0]], np.float32)
    reads = [np.array([[0, 0], [0, 1], [0, 1]], np.float32), np.array([[0, 0], [0, 0], [1, 0]], np.float32)]
    heads = [*(HeadTrace(f"read {n}", "read", address, None) for n, address in enumerate(reads))]
    found = read_from([*heads, HeadTrace("write", "write", write, None)])
    np.testing.assert_allclose(found, [[0, 0, 0], [0.5, 0.5, 0], [0.5, 1.5, 0]])


def test_mistakes_of_asking(nsm, trained, story, tmp_path):
    assert "can't be read" in nsm("ask", trained[0], tmp_path / "none.txt", "Where is Mary?").err
    assert nsm("ask", trained[0], story, "Where is Mary?", "--words", "0").code == 2
    said = nsm("ask", trained[0], story, "Where is Mary?", "--words", 10**12)
    assert (said.code, "an answer of 1,000,000,000,000 words would need" in said.err) == (2, True)
    endless = nsm("ask", trained[0], "/dev/zero", "Where is Mary?")
    assert (endless.code, "/dev/zero is a device, not a file" in endless.err) == (2, True)
    assert "is not a run" in nsm("ask", tmp_path, story, "Where is Mary?").err
    copying = tmp_path / "copying"
    small = ["--controller.size", "8", "--iterations", "1", "--test-sequences", "1", "--validation-sequences", "1"]
    nsm("train", "copy", *small, "--out", copying)
    said = nsm("ask", copying, story, "Where is Mary?")
    assert (said.code, "was trained on copy: give a run trained on babi" in said.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["babi", "--tasks", "0"], "bAbI has no task 0: tasks are numbered from 1 to 20"),
        (["babi", "--tasks", "one"], "--tasks"),
        (["babi-21"], "bAbI has no task 21"),
        (["babi-one"], "did you mean 'babi'?"),
        (["copy", "--tasks", "1"], "nsm train copy has no option --tasks"),
        (["babi", "--model", "dnc", "--programs", "2"], "model 'dnc' is a memory and no programs"),
        (["babi", "--memory.shift-range", "2"], "nsm train babi has no option --memory.shift-range"),
        (["babi", "--task.protocol", "author"], "did you mean 'authors'?"),
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
        schedule, optimiser = cell.experiment.schedule, cell.experiment.optimiser
        assert cell.experiment.machine.controller.size == size
        assert (schedule.batch_size, optimiser.kind, optimiser.learning_rate) == (32, "rmsprop", 1e-4)
        assert optimiser.momentum == 0.9
        assert schedule.iterations == 50 * schedule.evaluate_every == 50 * 1_763
    assert found["dnc"].experiment.machine.programs is None
    assert recipes.find("babi-1")("dnc", "authors").task.protocol == "authors"
    means = [sum(column) / 20 for column in list(zip(*PUBLISHED_BABI_TASKS, strict=True))[1:]]
    assert means == pytest.approx(PUBLISHED_BABI_MEAN, abs=0.1)
    assert sum(best > 5 for _, best, _ in PUBLISHED_BABI_TASKS) == 1


def test_the_default_start_is_a_matter_of_ordinary_options(nsm):
    paper, default = recipes.babi(preset="paper"), recipes.babi()
    assert (default.machine.interface.keys, default.machine.interface.sharpness) == ("written", 10.0)
    assert (paper.machine.interface.keys, paper.machine.interface.sharpness) == ("own", 0.0)
    assert (default.schedule.batch_size, recipes.babi(preset="paper").schedule.batch_size) == (8, 32)
    start = ["--controller.input-gain", "1", "--controller.forget-bias", "0"]
    start += ["--interface.keys", "own", "--interface.sharpness", "0"]
    said = nsm("train", "babi", *start, "--dry-run")
    assert from_json(Experiment, json.loads(said.out)).machine == paper.machine


@pytest.mark.parametrize("asked", [["babi", "--tasks", "4", "1"], ["babi-1,4"], ["babi-4,1"]])
def test_tasks_are_named_either_way(nsm, asked):
    said = nsm("train", *asked, "--dry-run")
    assert from_json(Experiment, json.loads(said.out)) == recipes.babi(tasks=(1, 4))


def test_only_takes_several_parts():
    assert [cell.model for cell in cells("babi", only="dnc,nutm-4")] == ["dnc", "nutm-4"]


REPRODUCE = ["reproduce", "babi", "--only", "nutm-4", "--seeds", "2", "--budget", "2", "--jobs", "2", "--out"]


def test_reproduce_prints_the_tasks_beside_the_papers(nsm, tmp_path):
    said = nsm(*REPRODUCE, tmp_path)
    assert said.code == 0, said.err
    (row,) = json.loads(nsm(*REPRODUCE, tmp_path, "--json").out)
    assert (row["seeds"], row["measure"], row["published"]) == (2, "error", pytest.approx(0.056))
    assert row["breakdown"]
    assert set(row["breakdown"]) <= {f"qa{task}" for task in babi.TASKS} | {"mean without qa3"}
    for part in row["breakdown"].keys() - {"mean without qa3"}:
        _, _, mean = PUBLISHED_BABI_TASKS[int(part.removeprefix("qa")) - 1]
        assert re.search(rf"^ *{part} .*, paper {mean:.1f}%", said.out, re.MULTILINE)
    assert re.search(r"babi +nutm-4 +5\.6%", said.out)
    failed = row["beside"]["failed_tasks"]
    assert "tasks above 5 %" in said.out
    assert f"{failed['best']:.2f}; mean {failed['mean']:.2f}, paper 3.00" in said.out
    assert f"Note: {NOTE}." in said.out
    assert NOTE in row["notes"]


def test_a_run_that_is_stopped_goes_on_and_ends_the_same(nsm, tmp_path):
    """The position in an epoch is nothing but the step."""
    long = ["--iterations", "60", "--evaluate-every", "20", "--log-every", "10", "--checkpoint-every", "7"]
    command = ["train", "babi", "--tasks", "1", "8", *TINY, *long, "--batch-size", "8", "--out"]
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
    assert RunDirectory(tmp_path / "pieces").outcome() is None
    assert nsm(*command, tmp_path / "pieces").code == 0
    whole, pieces = (RunDirectory(tmp_path / name) for name in ("whole", "pieces"))
    assert whole.metrics_path.read_bytes() == pieces.metrics_path.read_bytes()
    assert whole.outcome().best == pieces.outcome().best
