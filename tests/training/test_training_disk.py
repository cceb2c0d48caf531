"""A save that fails is loud, the checkpoint before it stays, and nothing half-written lies about."""

import errno
import os
import shutil
from pathlib import Path

import pytest

import nsm
from nsm.training import checkpoints
from nsm.training.loop import train
from nsm.training.run import RunDirectory
from training.faults import WRITES, Faults
from training.small_runs import contents, in_another_process, small, strays

EXPERIMENT = small(iterations=6, checkpoint_every=2, evaluate_every=3, keep_checkpoints=1, persistent=True)


def failing(number):
    def fail():
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize(("number", "every"), [(errno.ENOSPC, 1), (errno.EROFS, 10)], ids=["full", "read-only"])
def test_a_disk_that_fails_from_any_operation_on(tmp_path, monkeypatch, caplog, number, every):
    straight = tmp_path / "straight"
    with monkeypatch.context() as patch:
        counted = Faults(patch, None, failing(number), WRITES)
        train(EXPERIMENT, straight, "fused")
    expected = contents(straight)
    assert counted.count > 30
    for at in range(1, counted.count + 1, every):
        directory = tmp_path / f"at-{at}"
        with monkeypatch.context() as patch:
            Faults(patch, at, failing(number), WRITES)
            with pytest.raises((OSError, ValueError), match=os.strerror(number)) as raised:
                train(EXPERIMENT, directory, "fused")
        assert str(directory) in str(raised.value), "which disk?"
        assert ".tmp" not in str(raised.value)
        if directory.exists():
            assert strays(directory) == []
        saved = checkpoints.steps(directory / "checkpoints")
        for step in saved:
            checkpoints.load(checkpoints.path(directory / "checkpoints", step))
        # The disk has room again: the run goes on from there and ends as if nothing had happened.
        train(EXPERIMENT, directory, "fused")
        assert contents(directory) == expected, f"failed at operation {at}"
        shutil.rmtree(directory)
    assert "damaged" not in caplog.text


def test_one_failure_is_noted_in_the_run_and_forgotten_when_it_goes_on(tmp_path, monkeypatch):
    struck = []

    def fail_once():
        if not struck:
            struck.append(True)
            failing(errno.ENOSPC)()

    with monkeypatch.context() as patch:
        Faults(patch, 8, fail_once, ("write",))
        with pytest.raises(OSError, match="No space left"):
            train(EXPERIMENT, tmp_path, "fused")
    failure = RunDirectory(tmp_path).failure()
    assert failure is not None
    assert "No space left on device" in failure.reason
    train(EXPERIMENT, tmp_path, "fused")
    assert RunDirectory(tmp_path).failure() is None


def test_a_line_of_metrics_that_does_not_fit_is_named_too(tmp_path):
    """Not injected: the system refuses to write more than 1,000 bytes into any file, and every step has a line."""
    code = """
import resource, signal
from nsm.training.run import MetricsFile
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
metrics = MetricsFile(Path(sys.argv[1]))
try:
    for step in range(100):
        metrics.write({"step": step})
except OSError as error:
    print(error)
metrics.close()
"""
    done = in_another_process(code, str(tmp_path / "metrics.jsonl"))
    assert done.stdout == f"[Errno 27] File too large: '{tmp_path / 'metrics.jsonl'}'\n", done.stderr


def test_a_real_limit_on_file_sizes_is_one_sentence_and_code_1(tmp_path):
    """Not injected: the system refuses to write more than 3,000 bytes into any file."""
    code = """
import resource
from nsm import cli
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
machine = ["--controller.size", "8", "--memory.slots", "8", "--memory.width", "4"]
cli.main(["train", "copy", *machine, "--iterations", "3", "--out", sys.argv[1]])
"""
    done = in_another_process(code, str(tmp_path / "run"))
    assert done.returncode == 1, done.stderr
    sentence = done.stderr.splitlines()[-1]
    assert sentence == f"nsm: [Errno 27] File too large: '{tmp_path / 'run' / 'checkpoints' / '00000003'}'"
    assert "Traceback" not in done.stderr
    assert strays(tmp_path / "run") == []
    assert checkpoints.steps(tmp_path / "run" / "checkpoints") == []
    # git, which was asked for the commit under the same limit, must not have left a lock in the checkout.
    assert not Path(nsm.__file__).parents[2].joinpath(".git", "index.lock").exists()
