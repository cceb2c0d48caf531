"""The copy of a run in another place is a run at every moment: whatever has come through, one can go on from it."""

import errno
import os
import shutil
from contextlib import contextmanager

import pytest

from nsm.experiments.engines import mirror
from nsm.experiments.engines.mirror import Watch
from nsm.files import write_atomically
from nsm.training import checkpoints
from nsm.training.callbacks import Callback
from nsm.training.loop import train
from training.faults import WRITES, Faults
from training.small_runs import contents, overshooting, small, strays

EXPERIMENT = small(iterations=10, checkpoint_every=2, keep_checkpoints=1, persistent=True)


class Always(Callback):
    """Does something before the first step and after every one."""

    def __init__(self, act):
        self.act = act

    def on_start(self, run, progress):
        self.act()

    def on_step(self, progress, line):
        self.act()


def test_what_has_come_through_after_any_step_can_be_gone_on_from(tmp_path):
    train(EXPERIMENT, tmp_path / "straight", "fused")
    watch, copies = Watch(tmp_path / "run"), []

    def send():
        mirror.apply(tmp_path / "copy", watch.changes())
        copies.append(shutil.copytree(tmp_path / "copy", tmp_path / f"after-{len(copies)}"))

    train(EXPERIMENT, tmp_path / "run", "fused", callbacks=[Always(send)])
    mirror.apply(tmp_path / "copy", watch.changes())
    assert contents(tmp_path / "copy") == contents(tmp_path / "run") == contents(tmp_path / "straight")
    assert checkpoints.steps(tmp_path / "copy" / "checkpoints") == checkpoints.steps(tmp_path / "run" / "checkpoints")
    assert len(copies) == 11
    assert checkpoints.steps(copies[-1] / "checkpoints") != []
    for copy in copies:
        train(EXPERIMENT, copy, "fused")
        assert contents(copy) == contents(tmp_path / "straight")
        assert strays(copy) == []


def test_only_what_changed_is_sent_again(tmp_path):
    train(overshooting(), tmp_path, "fused")
    watch = Watch(tmp_path)
    first, second = watch.changes(), watch.changes()
    assert set(first.files) == {"config.json", "metrics.jsonl", "clock.json", "result.json"}
    assert list(first.checkpoints) == first.steps == checkpoints.steps(tmp_path / "checkpoints")
    assert second == ({}, {}, first.steps)
    (tmp_path / "clock.json").write_text("{}")
    assert watch.changes().files == {"clock.json": b"{}"}


def test_a_file_replaced_while_it_is_looked_at_is_sent_the_next_time(tmp_path, monkeypatch):
    """Its stamp is that of the file that was opened, not of the one that has its name by then."""
    clock = tmp_path / "clock.json"
    write_atomically(clock, b"old")
    watch, opened, newer = Watch(tmp_path), mirror.opened, [b"new"]

    @contextmanager
    def racing(path):
        with opened(path) as file:
            if newer:
                write_atomically(clock, newer.pop())
            yield file

    with monkeypatch.context() as patch:
        patch.setattr(mirror, "opened", racing)
        assert watch.changes().files == {"clock.json": b"old"}
    assert watch.changes().files == {"clock.json": b"new"}


def test_a_checkpoint_that_is_replaced_is_sent_again(tmp_path):
    train(EXPERIMENT, tmp_path, "fused")
    watch = Watch(tmp_path)
    watch.changes()
    newest = checkpoints.latest(tmp_path / "checkpoints")
    checkpoints.save(tmp_path / "checkpoints", newest)
    assert list(watch.changes().checkpoints) == [newest.step]


def test_a_copy_that_fails_half_way_is_a_run_too(tmp_path, monkeypatch):
    """From the k-th operation on nothing more is written, for all k: what is there can be gone on from."""
    train(EXPERIMENT, tmp_path / "straight", "fused")
    changes = []
    watch = Watch(tmp_path / "run")
    train(EXPERIMENT, tmp_path / "run", "fused", callbacks=[Always(lambda: changes.append(watch.changes()))])
    changes.append(watch.changes())

    def fail():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def copy(directory, at):
        with monkeypatch.context() as patch:
            faults = Faults(patch, at, fail, WRITES)
            for change in changes:
                mirror.apply(directory, change)
        return faults.count

    operations = copy(tmp_path / "copy", None)
    assert operations > 50
    for at in range(1, operations + 1, 3):
        directory = tmp_path / f"at-{at}"
        with pytest.raises(OSError, match="No space left"):
            copy(directory, at)
        train(EXPERIMENT, directory, "fused")
        assert contents(directory) == contents(tmp_path / "straight"), f"failed at operation {at}"
        shutil.rmtree(directory)
