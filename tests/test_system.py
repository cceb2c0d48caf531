"""What Linux, macOS and Windows do differently: Windows is `nsm.system` where it finds no more than Windows has.

The lock of Windows, on a range of bytes of an open file, is stood in for by Linux's own of that kind. `mypy --platform`
looks for all else that a system lacks (see `check`).
"""

import importlib.util
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from nsm import files, system
from nsm.checks import UserError, free_memory
from training.faults import ended, forked

LACKS = ("fcntl", "resource", "select", "readline", "pwd", "termios")
WITHOUT = {os: ("getuid", "sysconf", "register_at_fork", "pwrite"), signal: ("SIGHUP", "pthread_sigmask")}


def msvcrt():
    """`locking` locks so many bytes from where the file stands, for who opened it, until it is closed."""
    import fcntl

    def locking(handle, mode, count):
        where = os.lseek(handle, 0, os.SEEK_CUR)
        asked = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, where, count, 0)
        fcntl.fcntl(handle, fcntl.F_OFD_SETLKW if mode == "wait" else fcntl.F_OFD_SETLK, asked)

    module = ModuleType("msvcrt")
    module.locking, module.LK_LOCK, module.LK_NBLCK = locking, "wait", "now"
    return module


def windows():
    """`nsm.system` as Windows has it; the rest of the process stays what it was."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "msvcrt", msvcrt())
        patch.setattr(os, "O_BINARY", 0, raising=False)
        patch.setattr(sys, "platform", "win32")
        for name in LACKS:
            patch.setitem(sys.modules, name, None)
        spec = importlib.util.spec_from_file_location("nsm.system", system.__file__)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


@pytest.fixture(params=[pytest.param(lambda: system, id="here"), windows])
def place(request, monkeypatch):
    """`nsm.files` on either system."""
    monkeypatch.setattr(files, "system", request.param())


def test_a_lock_is_refused_to_a_second_and_free_again(place, tmp_path):
    for _ in range(2):
        with files.locked(tmp_path / "lock"):
            assert (tmp_path / "lock").read_text() == str(os.getpid())
            with (
                pytest.raises(UserError, match=f"is in use by another process, {os.getpid()}"),
                files.locked(tmp_path / "lock"),
            ):
                pass


def test_a_lock_dies_with_its_process(place, tmp_path):
    def die_holding():
        with files.locked(tmp_path / "lock"):
            os.kill(os.getpid(), signal.SIGKILL)

    assert ended(forked(die_holding)) == -signal.SIGKILL
    with files.locked(tmp_path / "lock"):
        assert (tmp_path / "lock").read_text() == str(os.getpid())


def test_who_waits_for_a_lock_gets_it(place, tmp_path):
    handles = [os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2)]
    files.system.lock(handles[0], wait=False)
    with pytest.raises(BlockingIOError):
        files.system.lock(handles[1], wait=False)
    os.close(handles[0])
    files.system.lock(handles[1], wait=True)
    os.close(handles[1])


def test_files_and_directories_are_written_read_and_replaced(place, tmp_path):
    for content in (b"first", b"second"):
        files.write_atomically(tmp_path / "file", content)
        files.write_directory_atomically(tmp_path / "directory", {"file": content})
        with files.alone(tmp_path):
            assert files.read(tmp_path / "file", 10) == files.read(tmp_path / "directory" / "file", 10) == content
    files.sweep(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["directory", "file"]


def test_a_cache_is_had(place, tmp_path, monkeypatch):
    monkeypatch.setenv("NSM_CACHE", str(tmp_path / "cache"))
    assert files.cache_directory("kernels") == tmp_path / "cache" / "kernels"
    assert files.keep(tmp_path / "cache" / "kernels" / "file", b"content", "it")


def test_memory_that_a_system_does_not_tell_of_is_no_limit(monkeypatch):
    monkeypatch.setattr("nsm.checks.system", windows())
    monkeypatch.setattr("nsm.checks.Path", lambda place: Path("/proc/none"))
    assert free_memory() == sys.maxsize


def test_a_run_is_trained_resumed_and_tested_with_what_windows_has(tmp_path):
    """In a process where all that Windows lacks is gone before nsm is imported; the kernels are compiled as ever."""
    script = f"""
import sys, torch, numba
sys.path.insert(0, {str(Path(__file__).parent)!r})
import test_system
sys.modules["nsm.system"] = sys.modules["nsm"].system = test_system.windows()
for name in [name for name in sys.modules if name.startswith("nsm.") and name != "nsm.system"]:
    del sys.modules[name]
for module, names in test_system.WITHOUT.items():
    for name in names:
        delattr(module, name)
from nsm.cli import main
from nsm.training.signals import SIGNALS
assert len(SIGNALS) == 2
main(sys.argv[1:])
"""
    small = "--controller.size 4 --memory.slots 8 --memory.width 3 --validation-sequences 2 --test-sequences 2"
    run = str(tmp_path / "run")
    for arguments in (
        ["train", "copy", *small.split(), "--iterations", "4", "--out", run],
        ["train", "copy", *small.split(), "--iterations", "4", "--out", run],
        ["eval", run, "--length", "3", "--sequences", "2"],
    ):
        done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("copy, length 3, 8 slots, 2 sequences:")
