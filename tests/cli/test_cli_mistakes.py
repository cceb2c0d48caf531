"""A user's mistake is one sentence on standard error and exit code 2; nothing is written, nothing written over."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rich.table import Table

from cli.conftest import TINY
from nsm import documents
from nsm.checks import UserError
from nsm.commands.tables import Display
from nsm.experiments import recipes
from nsm.experiments.engines import Job, Status
from nsm.experiments.paper import Cell
from nsm.screen import console
from nsm.training import learner
from nsm.training.run import RunDirectory

RUN = ["--iterations", "4", "--evaluate-every", "2", "--log-every", "2"]


def snapshot(directory):
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(directory.rglob("*"))}


def is_one_sentence(said):
    assert said.code == 2, said
    assert said.out == "" or said.out.startswith("A controller of"), "the demo introduces itself first"
    assert said.err.startswith("nsm: ")
    assert said.err.count("\n") == 1, said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("trian copy", "did you mean 'train'?"),
        ("train cpoy", "task must be one of 'copy', 'long-copy'"),
        ("train cpoy", "was 'cpoy'; did you mean 'copy'?"),
        ("train omniglott", "did you mean 'omniglot'?"),
        ("train copy+copyy", "was 'copyy'; did you mean 'copy'?"),
        ("train copy+sort", "subtask must be one of 'copy', 'repeat-copy', 'associative-recall', 'priority-sort', was"),
        ("train copy+", "subtask must be one of"),
        ("train copy+ngrams", "ngrams can't be part of a sequence"),
        ("train copy+copy", "names a subtask twice"),
        ("train --seed 1 copy", "the task comes first: nsm train TASK …"),
        ("train copy long-copy", "nsm train copy got an unexpected argument 'long-copy'"),
        ("train copy --modle nutm", "nsm train copy has no option --modle: did you mean --model?"),
        ("train copy --lr 3", "nsm train copy has no option --lr: did you mean --optimiser.learning-rate?"),
        ("train copy --learning-rate=3", "has no option --learning-rate: did you mean --optimiser.learning-rate?"),
        ("train copy --slots 3", "nsm train copy has no option --slots: did you mean --memory.slots?"),
        ("train copy --memory.slot 3", "has no option --memory.slot: did you mean --memory.slots?"),
        ("train copy --task.lenght 3 4", "has no option --task.lenght: did you mean --task.length?"),
        ("train copy --batchsize 3", "has no option --batchsize: did you mean --batch-size?"),
        ("train copy --xyzzy", "nsm train copy has no option --xyzzy: see nsm train copy --help"),
        ("train copy --iterations 3 --xyzzy -5", "has no option --xyzzy"),
        ("train copy --model ntm --programs.count 2", "has no option --programs.count"),
        ("train omniglot-5 --memory.shift-range 2", "has no option --memory.shift-range"),
        ("train copy --memory.decay 0.9", "nsm train copy has no option --memory.decay"),
        ("train copy --task.easy-steps 5", "nsm train copy has no option --task.easy-steps"),
        ("eval runs/x --lenght 3", "nsm eval has no option --lenght: did you mean --length?"),
        ("view runs/x --figur a.svg", "nsm view has no option --figur: did you mean --figure?"),
        ("reproduce single --seed 3", "nsm reproduce has no option --seed: did you mean --seeds?"),
        ("bench --pears none", "nsm bench has no option --pears: did you mean --peers?"),
        ("data check babi --datadir x", "nsm data has no option --datadir: did you mean --data-dir?"),
        ("demo 3", "nsm demo got an unexpected argument '3'"),
        ("train copy --controller.forget-bias=inf", "forget_bias must be a finite number"),
        ("train omniglot-5 --task.easy-steps -5", "Omniglot.easy_steps is -5: it must be a whole number of at least 0"),
        ("train omniglot-5 --data-dir nowhere", "the data directory nowhere does not exist"),
        ("data chek omniglot", "action must be one of 'fetch', 'check', was 'chek'; did you mean 'check'?"),
        ("data check omniglott", "did you mean 'omniglot'?"),
        (
            "data check omniglot --data-dir nowhere",
            "images_background.zip is missing; `nsm data fetch",
        ),
        ("train copy --start nowhere", "nowhere is not a run: it does not exist"),
        ("train copy --backend fussed", "did you mean 'fused'?"),
        ("train copy --optimiser.kind rmspop", "did you mean 'rmsprop'?"),
        ("train copy --controller.kind lstn", "did you mean 'lstm'?"),
        ("train copy --programs.attention key", "did you mean 'key-value'?"),
        ("train babi --task.protocol author", "did you mean 'authors'?"),
        ("train copy --optimiser.kind adam --optimiser.momentum 1", "momentum must be below 1 with adam"),
        ("train copy --optimiser.kind adam --optimiser.beta2 1", "beta2 must be below 1 with adam"),
        ("train copy --device meta", "the machine can't be built on device 'meta': it has no memory"),
        ("train copy --iterations -5", "iterations must be an integer of at least 1, was -5"),
        ("train copy --iterations 5000000000", "iterations must be below 4,294,967,296"),
        ("train copy --batch-size 0", "batch_size must be an integer of at least 1, was 0"),
        ("train copy --seed -1", "seed must be an integer of at least 0, was -1"),
        ("train copy --memory.read-heads 1025", "read_heads must be at most 1,024, was 1,025"),
        ("train copy --memory.read-heads 0", "read_heads must be an integer of at least 1, was 0"),
        ("train copy --memory.slots 0", "slots must be an integer of at least 1, was 0"),
        (
            "train copy --memory.slots 1000000000000",
            "training this machine with batches of 4 would need at least 432,000.0 GB",
        ),
        ("train copy --memory.slots 1000000000000000000", "can't be built: its size exceeds 64-bit integers"),
        ("train copy --memory.slots 1" + "0" * 30, "can't be built: its size exceeds 64-bit integers"),
        ("train copy --controller.size 100000000", "GB of memory, but only"),
        ("train copy --memory.width 1000000000000", "GB of memory, but only"),
        ("train copy --programs 1000000", "GB of memory, but only"),
        ("train copy --batch-size 1000000000000", "GB of memory, but only"),
        ("train copy --task.length 1 100000000000", "GB of memory, but only"),
        ("train copy --memory.shift-range 1000000", "shift_range must be at most 1,024, was 1,000,000"),
        ("train copy --controller.size 0", "size must be"),
        ("train copy --programs -1", "programs must be an integer of at least 0, was -1"),
        ("train copy --programs.count 0", "programs must be an integer of at least 1, was 0"),
        ("train copy --optimiser.learning-rate 0", "learning_rate must be a finite number above 0, was 0.0"),
        ("train copy --optimiser.learning-rate nan", "learning_rate must be a finite number above 0, was nan"),
        ("train copy --optimiser.final-rate 2", "final_rate must be between 0 and 1, was 2.0"),
        ("train copy --threads 0", "threads must be an integer of at least 1, was 0"),
        ("train copy --device nowhere", "can't be built on device 'nowhere'"),
        ("train copy --model ntm --programs 2", "model 'ntm' is a memory and no programs"),
        ("train copy --model dnc --memory ntm", "model 'dnc' is a memory and no programs"),
        (
            "train copy --programs.attention direct --programs.key-size 5",
            "key_size must equal the number of programs",
        ),
        ("train copy --controller.kind gru --cell-noise 0.1", "cell_noise needs an lstm controller, was 'gru'"),
        ("train continual --stop-when-solved 1", "stop_when_solved must be 0 for continual learning"),
        ("train copy --task.length 5 1", "Copy.length is (5, 1): it must be two whole numbers"),
        ("train copy --task.width 3", "the test of copy has 10 inputs and 8 outputs, the machine 5 and 3"),
        ("train copy --task.width 3 --dry-run", "the test of copy has 10 inputs and 8 outputs"),
        ("train omniglot --classes 0", "classes"),
        ("train copy --import my_tasks", "there is no module 'my_tasks'"),
        ("train copy --import my.tasks", "there is no module 'my.tasks'"),
        ("train copy --import my_tasks.py", "there is no module 'my_tasks.py'"),
        ("train copy --import ../tasks", "there is no module '../tasks'"),
        ("train my_tasks:Reverse", "there is no module 'my_tasks'"),
        ("train :Reverse", "there is no module ''"),
        ("train os:path", "os has no such Task"),
        ("reproduce singel", "did you mean 'single'?"),
        ("reproduce single --preset deflaut", "did you mean 'default'?"),
        ("reproduce single --backend fusde", "did you mean 'fused'?"),
        ("reproduce single --seeds 0", "seeds must be an integer of at least 1, was 0"),
        ("reproduce single --jobs 0", "jobs must be an integer of at least 1, was 0"),
        ("reproduce single --budget -5", "budget must be an integer of at least 1, was -5"),
        ("reproduce single --results nowhere", "results must be a directory, was 'nowhere'"),
        ("reproduce single --only nothing", "no cell of single has 'nothing' in its name; the cells are copy/ntm, "),
        ("reproduce all --only nothing", "no cell of "),
        ("demo --seed -1", "seed must be an integer of at least 0, was -1"),
        ("eval nowhere", "nowhere is not a run: it does not exist"),
        ("view nowhere", "nowhere is not a run: it does not exist"),
        ("view nowhere --samples 0", "samples must be an integer of at least 1, was 0"),
        ("view nowhere --samples 99", "samples must be at most 50, was 99"),
        ("view nowhere --which bets", "did you mean 'best'?"),
        ("view nowhere --figure picture.jpg", "figure must end with .svg, .pdf, .png, was 'picture.jpg'"),
        ("view nowhere --port -1", "port must be an integer of at least 0, was -1"),
    ],
)
def test_a_mistake_without_a_run(nsm, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    said = nsm(*arguments.split())
    is_one_sentence(said)
    assert words in said.err
    assert list(tmp_path.iterdir()) == [], "nothing should have been written"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--length 20-10", "Copy.length is (20, 10): it must be two whole numbers"),
        ("--length 0", "Copy.length is (0, 0)"),
        (f"--length {'9' * 5000}", "length must be a number, or two joined by a dash, like 120 or 10-20, was '9999"),
        ("--length ten", "length must be a number, or two joined by a dash, like 120 or 10-20, was 'ten'"),
        ("--length=-5", "length must be a number, or two joined by a dash"),
        ("--length 1-2-3", "length must be a number, or two joined by a dash"),
        ("--length 5-", "length must be a number, or two joined by a dash"),
        ("--repeats 3", "has no range 'repeats': it has length."),
        ("--which bets", "did you mean 'best'?"),
        ("--like traning", "did you mean 'training'?"),
        ("--sequences 0", "sequences must be an integer of at least 1, was 0"),
        ("--slots 0", "slots must be an integer of at least 1, was 0"),
        ("--slots 1000000000000", "4 sequences of 242 steps at a time would need at least 96,000.0 GB"),
        ("--slots 1000000000000000000000", "its size exceeds 64-bit integers"),
        ("--length 100000000000", "4 sequences of 200,000,000,002 steps at a time would need"),
        ("--seed -1", "seed must be an integer of at least 0, was -1"),
        ("--seed 5000000000", "seed is 5000000000"),
        ("--backend cpu", "backend must be one of"),
        ("--threads 0", "threads must be"),
        ("--threads 100000", "threads must be at most 1,024, was 100,000"),
    ],
)
def test_a_mistake_with_a_run(nsm, trained, options, words):
    before = snapshot(trained)
    said = nsm("eval", trained, *options.split())
    is_one_sentence(said)
    assert words in said.err
    assert snapshot(trained) == before


def test_a_page_of_more_than_memory_holds(nsm, trained):
    for options in (["--length", 10**8], ["--slots", 10**12]):
        said = nsm("view", trained, *options)
        is_one_sentence(said)
        assert "50 sequences of " in said.err
        assert "GB of memory, but only " in said.err
    assert not (trained / "view.html").exists()


# --- directories ------------------------------------------------------------------------------------------------------


def test_a_directory_of_another_configuration_lists_the_differences(nsm, trained):
    before = snapshot(trained)
    said = nsm("train", "copy", *TINY, *RUN, "--seed", 7, "--programs", 3, "--out", trained)
    is_one_sentence(said)
    assert f"{trained} holds a run of another configuration: " in said.err
    assert "machine.programs.count was 2, is 3; seed was 0, is 7" in said.err
    assert snapshot(trained) == before


def test_a_directory_of_another_model_lists_that(nsm, trained):
    said = nsm("train", "copy", "--model", "ntm", *TINY, *RUN, "--out", trained)
    is_one_sentence(said)
    assert "machine.programs was {" in said.err
    assert "is None" in said.err


@pytest.mark.parametrize("command", ["train", "demo"])
def test_a_directory_of_something_else_is_left_alone(nsm, tmp_path, command):
    (tmp_path / "thesis.tex").write_text("years of work")
    before = snapshot(tmp_path)
    arguments = ["train", "copy", *TINY, *RUN] if command == "train" else ["demo"]
    said = nsm(*arguments, "--out", tmp_path)
    is_one_sentence(said)
    assert "is not empty and holds no run; choose another directory" in said.err
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("name", [".thesis.2024", ".git.1/config", ".nsm-notes-1.tmp"])
def test_a_hidden_file_of_the_users_is_left_alone(nsm, trained, tmp_path, name):
    run = tmp_path / "run"
    (run / name).parent.mkdir(parents=True)
    (run / name).write_text("years of work")
    said = nsm("train", "copy", *TINY, *RUN, "--out", run)
    is_one_sentence(said)
    assert "is not empty and holds no run; choose another directory" in said.err
    assert [path.read_text() for path in run.rglob("*") if path.is_file()] == ["years of work"]
    shutil.copytree(trained, run, dirs_exist_ok=True)
    (run / "result.json").unlink()
    said = nsm("train", "copy", *TINY, *RUN, "--out", run)
    assert said.code == 0, said.err
    assert (run / name).read_text() == "years of work"


@pytest.mark.parametrize("kind", ["symbolic link", "hard link", "file", "pipe"])
def test_only_a_lock_is_written_over(nsm, tmp_path, kind):
    thesis, lock = tmp_path / "thesis.tex", tmp_path / "run" / "lock"
    thesis.write_text("years of work")
    lock.parent.mkdir()
    make = {"symbolic link": lock.symlink_to, "hard link": lock.hardlink_to, "file": lambda _: lock.write_text("mine")}
    os.mkfifo(lock) if kind == "pipe" else make[kind](thesis)
    said = nsm("train", "copy", *TINY, *RUN, "--out", lock.parent)
    is_one_sentence(said)
    assert "is a symbolic link" in said.err or "is not a lock file of nsm, and would be overwritten" in said.err
    assert thesis.read_text() == "years of work"
    assert [path.name for path in lock.parent.iterdir()] == ["lock"]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_not_said_to_be_in_use(nsm, tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refuse)
    said = nsm("train", "copy", *TINY, *RUN, "--out", tmp_path / "run")
    is_one_sentence(said)
    assert f"run can't be locked: its file system has no file locks ({os.strerror(number)}); choose" in said.err


@pytest.mark.parametrize("place", ["file", "file/below"])
@pytest.mark.parametrize("command", ["train", "reproduce", "demo"])
def test_a_file_in_the_way_is_left_alone(nsm, tmp_path, command, place):
    (tmp_path / "file").write_text("mine")
    arguments = {
        "train": ["train", "copy", *TINY, *RUN],
        "reproduce": ["reproduce", "single", "--budget", "1", "--seeds", "1", "--only", "copy/ntm"],
        "demo": ["demo"],
    }[command]
    said = nsm(*arguments, "--out", tmp_path / place)
    is_one_sentence(said)
    assert "can't be written: " in said.err
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("command", ["train", "reproduce"])
def test_a_directory_that_cannot_be_written(nsm, tmp_path, command, monkeypatch):
    """Refused by the system where permissions count; the superuser, for whom they don't, is refused by a stand-in."""
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed").chmod(0o500)
    if os.geteuid() == 0:

        def refuse(path, *_, **__):
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr(os, "mkdir", refuse)
    arguments = {
        "train": ["train", "copy", *TINY, *RUN],
        "reproduce": ["reproduce", "single", "--budget", "1", "--seeds", "1", "--only", "copy/ntm"],
    }[command]
    said = nsm(*arguments, "--out", tmp_path / "closed" / "run")
    monkeypatch.undo()
    is_one_sentence(said)
    assert "can't be written: Permission denied" in said.err
    assert list((tmp_path / "closed").iterdir()) == []


def test_a_place_where_nobody_can_write_from_a_shell():
    arguments = ["train", "copy", *TINY, *RUN, "--out", "/proc/nsm/run"]
    done = subprocess.run([sys.executable, "-m", "nsm", *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("nsm: /proc/nsm/run can't be written: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["train", "eval"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("not json", "config.json is damaged: not JSON"),
        ("[]", "config.json does not describe an nsm run"),
        ('{"format": "nsm-run", "version": 99}', "has version 99; this nsm reads version 2"),
        (
            '{"format": "nsm-run", "version": 2, "experiment": {"task": {"kind": "Copy"}}}',
            "config.json is damaged: its sha256 is not",
        ),
        (
            documents.text({"format": "nsm-run", "version": 2, "experiment": {"task": {"kind": "Copy"}}}).decode(),
            "config.json is not one of this nsm's: experiment.machine is missing",
        ),
        ("[" * 5000, "config.json is damaged: nested more than 32 deep"),
        ('{"format": "nsm-run", "version": NaN}', "config.json is damaged: NaN is not a number"),
        ('{"format": "nsm-run", "version": %s}' % ("1" * 5000), "config.json is damaged: a number of 5,000 digits"),
    ],
)
def test_a_run_that_cannot_be_read(nsm, tmp_path, command, content, words):
    (tmp_path / "config.json").write_text(content)
    arguments = ["train", "copy", *TINY, *RUN, "--out", tmp_path] if command == "train" else ["eval", tmp_path]
    said = nsm(*arguments)
    is_one_sentence(said)
    assert words in said.err
    assert (tmp_path / "config.json").read_text() == content


@pytest.mark.parametrize("command", ["eval", "view", "report"])
@pytest.mark.parametrize("slots", [17, 300_000_000, 10**18])
def test_a_size_that_is_not_the_machines_is_found_before_it_is_allocated(nsm, trained, tmp_path, command, slots):
    run = shutil.copytree(trained, tmp_path / "run")
    document = documents.read_sealed(run / "config.json")
    document["experiment"]["machine"]["memory"]["slots"] = slots
    documents.write(run / "config.json", document)
    said = nsm(command, run)
    is_one_sentence(said)
    assert "model.safetensors: memory.initial_memory must have shape (" in said.err or "can't be loaded: " in said.err


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[" * 5000, b"1" * 400, b'{"reason": "x"}'])
@pytest.mark.parametrize("name", ["result.json", "metrics.jsonl"])
def test_any_file_of_a_run_may_hold_anything(nsm, trained, tmp_path, name, content):
    run = shutil.copytree(trained, tmp_path / "run")
    (run / "result.json").unlink()
    (run / name).write_bytes(content + b"\n")
    said = nsm("report", run)
    is_one_sentence(said)
    assert f"{name} is damaged: " in said.err


def test_a_result_of_another_run_is_not_taken_for_its_own(nsm, trained, tmp_path):
    run, other = (shutil.copytree(trained, tmp_path / name) for name in ("run", "other"))
    document = documents.read_sealed(other / "config.json")
    document["experiment"]["schedule"]["iterations"] += 1
    documents.write(other / "config.json", document)
    documents.write(other / "result.json", documents.read_sealed(run / "result.json"))
    said = nsm("report", other)
    is_one_sentence(said)
    assert "result.json is damaged: it belongs to a run of another configuration" in said.err
    assert nsm("report", run).code == 0


@pytest.mark.parametrize("kind", ["pipe", "directory", "link to nowhere", "link to a device"])
def test_a_result_that_is_no_file_is_not_taken_for_one_that_is_missing(nsm, tmp_path, kind):
    path = tmp_path / "results" / "single" / "paper" / "copy" / "nutm" / "seed-0.json"
    path.parent.mkdir(parents=True)
    {
        "pipe": lambda: os.mkfifo(path),
        "directory": path.mkdir,
        "link to nowhere": lambda: path.symlink_to("nowhere"),
        "link to a device": lambda: path.symlink_to("/dev/zero"),
    }[kind]()
    said = nsm("report", "--results", tmp_path / "results", "--out", tmp_path / "report.html")
    *working, sentence = said.err.splitlines()
    assert all(line.endswith(" …") for line in working), "what it was at when it found out"
    is_one_sentence(said._replace(err=f"{sentence}\n"))
    assert f"{path} " in sentence
    assert not (tmp_path / "report.html").exists()


def test_tensors_longer_than_their_header_says_are_not_read(nsm, trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    for place in run.rglob("*.safetensors"):
        os.truncate(place, 1 << 40)
    said = nsm("eval", run)
    is_one_sentence(said)
    assert "no valid checkpoint is left" in said.err


def test_a_run_that_was_never_saved_cannot_be_evaluated(nsm, trained, tmp_path):
    shutil.copy(trained / "config.json", tmp_path / "config.json")
    said = nsm("eval", tmp_path)
    is_one_sentence(said)
    assert "has no checkpoint yet: train it first" in said.err


@pytest.mark.parametrize("command", ["train", "eval"])
def test_a_run_without_a_valid_checkpoint_is_never_begun_anew(nsm, trained, tmp_path, caplog, command):
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    for model in (tmp_path / "run").rglob("model.safetensors"):
        model.write_bytes(b"")
    before = snapshot(tmp_path)
    arguments = ["train", "copy", *TINY, *RUN, "--out"] if command == "train" else ["eval"]
    said = nsm(*arguments, tmp_path / "run")
    is_one_sentence(said)
    assert "no valid checkpoint is left" in said.err
    assert "model.safetensors is damaged" in caplog.text, "the damaged file should be named"
    assert snapshot(tmp_path) == before


def test_a_checkpoint_of_a_newer_version_is_refused(nsm, trained, tmp_path, monkeypatch):
    from nsm.training import checkpoints

    shutil.copytree(trained, tmp_path / "run")
    newest = RunDirectory(trained).checkpoint("last")
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "VERSION", 3)
        checkpoints.save(tmp_path / "run" / "checkpoints", newest)
    said = nsm("eval", tmp_path / "run")
    is_one_sentence(said)
    assert "has checkpoint version 3; this nsm reads version 2" in said.err


def test_a_damaged_result_is_named(nsm, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / "result.json").write_text("{")
    said = nsm("train", "copy", *TINY, *RUN, "--out", tmp_path / "run")
    is_one_sentence(said)
    assert "result.json is damaged: not JSON" in said.err


# --- failures that are no mistakes ------------------------------------------------------------------------------------


def test_a_run_that_diverges_ends_with_code_1_and_the_reason_in_its_directory(nsm, tmp_path):
    said = nsm("train", "copy", *TINY, *RUN, "--optimiser.learning-rate", "1e30", "--out", tmp_path / "run")
    assert said.code == 1
    assert said.out == ""
    sentence = said.err.splitlines()[-1]
    assert sentence.startswith("nsm: ")
    assert "iteration" in sentence
    assert "the first bad tensor is" in sentence
    failure = json.loads((tmp_path / "run" / "failure.json").read_text())
    assert f"nsm: {failure['reason']}" == sentence


def test_ctrl_c_elsewhere_is_no_traceback(nsm, trained, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("nsm.run.evaluate", interrupt)
    said = nsm("eval", trained)
    assert (said.code, said.err) == (130, "nsm: stopped\n")


def test_a_terminal_without_the_characters_gets_others(trained):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "nsm", "eval", trained]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "?" in done.stdout


def test_a_bug_is_not_passed_off_as_a_mistake(nsm, tmp_path, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(learner.FusedLearner, "_gradients", broken)
    with pytest.raises(ZeroDivisionError):
        nsm("train", "copy", *TINY, *RUN, "--out", tmp_path / "run")
    assert json.loads((tmp_path / "run" / "failure.json").read_text())["reason"] == "a bug"


@pytest.mark.parametrize(
    "arguments",
    [
        *("", "train", "eval", "reproduce", "ask run", "-x", "--verison"),
        *("train copy --iterations many", "train copy --seed x", "train copy --programs x", "train copy --out"),
        *("train copy --task.length 5", "train copy --random-slots perhaps", "train babi --tasks 1 x"),
        *("eval run --slots many", "eval run --persistent maybe", "bench --seconds long", "view run --port x"),
    ],
)
def test_what_cannot_be_parsed_ends_with_code_2(nsm, arguments):
    said = nsm(*arguments.split())
    assert (said.code, said.out) == (2, "")
    assert "Traceback" not in said.err
    assert "NoneType" not in said.err, "of what may be left out it is said what it is, not what else it could be"
    option = next((word for word in arguments.split() if word.startswith("--") and word != "--verison"), "")
    assert option in said.err
    assert said.err


@pytest.mark.parametrize(
    ("option", "value", "known"),
    [("model", "nutn", "'nutm', 'ntm', 'mann', 'dnc'"), ("preset", "papr", "'default', 'paper', 'authors'")],
)
def test_a_name_that_is_none_is_answered_with_those_there_are(nsm, option, value, known):
    said = nsm("train", "copy", f"--{option}", value)
    assert (said.code, said.out) == (2, "")
    assert f"'{value}'" in said.err
    assert known in " ".join(said.err.split())


# --- text from files --------------------------------------------------------------------------------------------------

NAME = "copy\x1b]0;title\x07\x9b2J\u202e"
SHOWN = r"copy\x1b]0;title\x07\x9b2J\u202e"
"""A name with commands to a terminal, and how it is shown: as text."""


def test_a_sentence_about_a_run_holds_no_commands_to_the_terminal(nsm, trained, tmp_path):
    run, story = tmp_path / "run", tmp_path / "story"
    shutil.copytree(trained, run)
    document = documents.read_sealed(run / "config.json")
    document["experiment"]["task"]["kind"] = f"somewhere:{NAME}"
    documents.write(run / "config.json", document)
    story.write_text("Mary went to the kitchen.\n")
    said = nsm("ask", run, story, "Where is Mary?")
    is_one_sentence(said)
    assert f"experiment.task is a somewhere:{SHOWN}, which is not part of nsm: import somewhere first" in said.err
    assert not set(NAME) & set(said.err) - set(SHOWN)


def test_a_warning_that_quotes_a_mistake_holds_no_commands_to_the_terminal():
    assert str(UserError(f"{NAME} is Σ\n\té")) == f"{SHOWN} is Σ\n\té"


def test_a_table_holds_no_commands_to_the_terminal(capsys):
    table = Table(NAME, title=NAME, caption=NAME)
    table.add_row(NAME)
    screen = console()
    screen.print(table)
    screen.print(NAME)
    out = capsys.readouterr().out
    assert out.count(SHOWN) == 5
    assert not set(NAME) & set(out) - set(SHOWN)


def test_a_run_that_failed_is_told_of_without_commands_to_the_terminal(capsys):
    job = Job(Cell("row", "model", recipes.copy()), 0, Path("run"))
    with Display("single", [job]) as tick:
        tick({job: Status("failed", NAME)})
    assert capsys.readouterr().err.endswith(f"{job.name} failed: {SHOWN}\n")
