"""One signal stops a run at the end of its step; two end it at once. One process at a time holds a run."""

import logging
import os
import signal
import sys
import time

import pytest

from nsm.checks import UserError
from nsm.fused.cache import compiled
from nsm.training import checkpoints
from nsm.training.learner import GradientLearner
from nsm.training.loop import Stop, train
from nsm.training.run import RunDirectory
from nsm.training.signals import SIGNALS, Interrupted, asked_by_signal
from training.faults import ended, forked
from training.small_runs import At, commanded, contents, in_another_process, small


@pytest.fixture(autouse=True)
def heeded():
    """However the suite was started: a shell's background ignores SIGINT, nohup SIGHUP, and so would a run."""
    usual = {signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, usual.get(number, signal.SIG_DFL)) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def sending(number, step, times=1):
    return [At(step, lambda: [os.kill(os.getpid(), number) for _ in range(times)])]


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_signal_ends_the_run_after_its_step_with_a_checkpoint(tmp_path, number):
    with pytest.raises(Interrupted):
        commanded(small(checkpoint_every=100, evaluate_every=100), tmp_path, "fused", callbacks=sending(number, 5))
    assert checkpoints.steps(tmp_path / "checkpoints") == [5]
    assert RunDirectory(tmp_path).failure() is None


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_second_signal_ends_the_process_at_once(tmp_path, number):
    experiment = small(checkpoint_every=3, evaluate_every=100)
    child = forked(lambda: commanded(experiment, tmp_path, "fused", callbacks=sending(number, 5, times=2)))
    assert ended(child) == 128 + number
    assert checkpoints.steps(tmp_path / "checkpoints") == [3]
    train(experiment, tmp_path, "fused")


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_second_signal_ends_it_in_the_compiler_as_well(number, capfd):
    """Which frees objects: Python prints what is raised while it does, and goes on."""
    from llvmlite import binding

    def interrupt(frame, event, _):
        if event == "call" and frame.f_code.co_name == "__del__":
            os.kill(os.getpid(), number)

    def work():
        module = binding.parse_assembly("")
        with asked_by_signal(lambda: None):
            os.kill(os.getpid(), number)
            sys.setprofile(interrupt)
            del module

    assert ended(forked(work)) == 128 + number
    assert capfd.readouterr() == ("", "")


def test_a_signal_while_a_kernel_is_loaded_waits_for_the_first_step(tmp_path, capfd):
    """It is not taken for a damaged kernel, which is what an error there means."""

    def interrupt(frame, event, _):
        if event == "call" and frame.f_code.co_name == "_load_index":
            sys.setprofile(None)
            os.kill(os.getpid(), signal.SIGTERM)

    def one():
        return 1

    def prepare(self, task):
        sys.setprofile(interrupt)
        compiled(one)()

    def work():
        GradientLearner.prepare = prepare
        logging.getLogger("nsm").addHandler(logging.StreamHandler())
        with pytest.raises(Interrupted):
            commanded(small(checkpoint_every=100, evaluate_every=100), tmp_path, "fused")

    assert ended(forked(work)) == 0
    assert checkpoints.steps(tmp_path / "checkpoints") == [1]
    assert capfd.readouterr() == ("", "")


def test_a_signal_before_the_first_step_or_after_the_last_loses_nothing(tmp_path, monkeypatch):
    experiment = small()
    train(experiment, tmp_path / "straight", "fused")
    with pytest.raises(Interrupted):
        commanded(experiment, tmp_path / "before", "fused", callbacks=sending(signal.SIGTERM, 0))
    from nsm.training import loop

    def interrupted(*_):
        os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "conclude", interrupted)
        with pytest.raises(Interrupted):
            commanded(experiment, tmp_path / "after", "fused")
    with pytest.raises(Interrupted):
        commanded(
            experiment, tmp_path / "in-last", "fused", callbacks=sending(signal.SIGTERM, experiment.schedule.iterations)
        )
    for name in ("before", "after", "in-last"):
        assert RunDirectory(tmp_path / name).outcome() is None
        train(experiment, tmp_path / name, "fused")
        assert contents(tmp_path / name) == contents(tmp_path / "straight")


def test_the_handlers_of_before_are_back_afterwards(tmp_path):
    before = [signal.getsignal(number) for number in SIGNALS]
    commanded(small(), tmp_path, "fused")
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_called_from_python_a_run_leaves_signals_and_threads_to_the_caller(tmp_path):
    import torch

    def mine(number, frame):
        heard.append(number)

    heard, before = [], signal.signal(signal.SIGTERM, mine)
    try:
        kept = [signal.getsignal(number) for number in SIGNALS], torch.get_num_threads()

        def look():
            seen.append(([signal.getsignal(number) for number in SIGNALS], torch.get_num_threads()))

        seen = []
        watching = [At(step, look) for step in (0, 1, 12)]
        train(small(), tmp_path, "fused", callbacks=[*watching, *sending(signal.SIGTERM, 5)])
        look()
        assert seen == [kept] * 4
        assert heard == [signal.SIGTERM], "it is the caller's to heed"
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(("backend", "inside"), [("fused", 1), ("reference", 2)])
def test_threads_that_are_asked_for_are_torchs_while_it_trains_and_no_longer(tmp_path, backend, inside):
    """Of torch's none but one beside the kernels' own. In another process: those it starts would stay in this one."""
    code = """
import torch
torch.set_num_threads(3)
watching = [At(1, lambda: print(torch.get_num_threads()))]
train(small(iterations=2), *sys.argv[1:], callbacks=watching, threads=2)
print(torch.get_num_threads())
"""
    done = in_another_process(code, str(tmp_path / "run"), backend)
    assert done.stdout.split() == [str(inside), "3"], done.stderr


def test_a_run_may_be_asked_to_stop_from_python(tmp_path):
    stop = Stop()
    with pytest.raises(Interrupted):
        train(small(checkpoint_every=100, evaluate_every=100), tmp_path, callbacks=[At(5, stop)], stop=stop)
    assert checkpoints.steps(tmp_path / "checkpoints") == [5]
    assert RunDirectory(tmp_path).failure() is None


def test_a_signal_that_is_ignored_stays_so(tmp_path):
    """`nohup nsm train` goes on without its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        commanded(small(), tmp_path, "fused", callbacks=sending(signal.SIGHUP, 5))
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_outside_the_main_thread_signals_are_left_alone():
    from threading import Thread

    def work():
        with asked_by_signal(lambda: None):
            pass

    before = [signal.getsignal(number) for number in SIGNALS]
    thread = Thread(target=work)
    thread.start()
    thread.join()
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_of_several_processes_on_one_directory_exactly_one_proceeds(tmp_path):
    experiment, go = small(), tmp_path / "go"

    def work():
        def wait():
            while not go.exists() and os.getppid() == parent:
                time.sleep(0.01)

        try:
            train(experiment, tmp_path / "run", "fused", callbacks=[At(1, wait)])
        except UserError as error:
            raise SystemExit(2 if "is in use by another process, " in str(error) else 3) from None

    parent, deadline = os.getpid(), time.monotonic() + 60
    waiting, codes = [forked(work) for _ in range(4)], []
    # Three are refused; the fourth holds the run until it may go on.
    while len(waiting) > 1 and time.monotonic() < deadline:
        for child in waiting:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                codes.append(os.waitstatus_to_exitcode(status))
                waiting.remove(child)
                break
        time.sleep(0.01)
    go.touch()
    assert codes == [2, 2, 2]
    assert ended(waiting[0]) == 0
    train(experiment, tmp_path / "straight", "fused")
    assert contents(tmp_path / "run") == contents(tmp_path / "straight")


def test_processes_with_different_configurations_cannot_mix_on_a_fresh_directory(tmp_path):
    children = [forked(lambda seed=seed: train(small(seed=seed), tmp_path, "fused")) for seed in range(4)]
    codes = [ended(child) for child in children]
    assert codes.count(0) == 1
    run = RunDirectory(tmp_path)
    assert run.outcome() is not None
    assert run.experiment.seed == codes.index(0)


def test_a_lock_dies_with_its_process(tmp_path):
    experiment = small()

    def die_holding():
        with RunDirectory(tmp_path).opened(experiment):
            os.kill(os.getpid(), signal.SIGKILL)

    assert ended(forked(die_holding)) == -signal.SIGKILL
    train(experiment, tmp_path, "fused")
