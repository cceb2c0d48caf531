"""Files and directories that are whole whoever writes them at once, and temporary names that are nobody else's."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from nsm import files
from nsm.checks import UserError
from training.faults import ended, forked


def test_files_that_are_written_at_once_are_one_of_them(tmp_path):
    contents = [bytes([number]) * 10_000 for number in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda content: files.write_atomically(tmp_path / "file", content), contents * 20))
    assert (tmp_path / "file").read_bytes() in contents
    assert os.listdir(tmp_path) == ["file"]


def test_directories_that_are_written_at_once_are_one_of_them(tmp_path):
    contents = [{"a": bytes([number]), "b": bytes([number])} for number in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda one: files.write_directory_atomically(tmp_path / "there", one), contents * 20))
    assert {path.name: path.read_bytes() for path in (tmp_path / "there").iterdir()} in contents
    assert os.listdir(tmp_path) == ["there"]


def test_a_directory_in_the_way_stays_where_it_is_not_to_be_replaced(tmp_path):
    files.write_directory_atomically(tmp_path / "there", {"a": b"first"})
    with pytest.raises(OSError, match="there"):
        files.copy_directory_atomically(tmp_path / "there", tmp_path / "there", leave="lock")
    assert (tmp_path / "there" / "a").read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["there"]


def test_what_a_killed_process_left_is_swept_and_nothing_else(tmp_path):
    def die_writing():
        with files.directory_atomically(tmp_path / "there") as temporary:
            (temporary / "half").write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)

    assert ended(forked(die_writing)) == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert files.is_temporary(left)
    mine = {".thesis.2024", ".git.1", ".there.1", f".nsm-{'0' * 16}.tmp", f".nsm-{'0' * 16}-{os.getpid()}.tmp"}
    for name in mine:
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("years of work")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_text("years of work")
    (tmp_path / f".nsm-{'1' * 16}-999999999.tmp").symlink_to(tmp_path / "elsewhere")
    files.sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == mine | {"elsewhere"}
    assert all((path / "file").read_text() == "years of work" for path in tmp_path.iterdir())


def test_a_lock_is_held_once_and_says_by_whom(tmp_path):
    with files.locked(tmp_path / "lock"):
        assert (tmp_path / "lock").read_text() == str(os.getpid())
        with (
            pytest.raises(UserError, match=f"is in use by another process, {os.getpid()}$"),
            files.locked(tmp_path / "lock"),
        ):
            pass
    with files.locked(tmp_path / "lock"):
        pass


@pytest.mark.parametrize("kind", ["pipe", "directory", "link to a device"])
def test_only_regular_files_are_read(tmp_path, kind):
    path = tmp_path / "file"
    {"pipe": os.mkfifo, "directory": os.mkdir, "link to a device": lambda link: link.symlink_to("/dev/zero")}[kind](
        path
    )
    with pytest.raises(UserError, match=r"file is a [a-z]+, not a file"):
        files.read(path, 100)
