"""Compiled code on the disk, and doing without it: where others could have put it there, and where it can't be kept."""

import os
import pickle
import signal
import subprocess
import sys

import pytest

DOUBLED = """
import numpy as np
from nsm.fused.cache import compiled

@compiled
def doubled(a):
    for i in range(a.size):
        a[i] *= 2

a = np.ones(3, np.float32)
doubled(a)
print(a.sum())
"""


@pytest.fixture
def run(tmp_path):
    """Runs a script in a process with a cache of the test's own: what it printed, and what it said."""

    def call(program, umask=-1):
        script = tmp_path / "script.py"
        script.write_text(program)
        environment = {**os.environ, "NSM_CACHE": str(tmp_path / "cache")}
        done = subprocess.run(
            [sys.executable, script], env=environment, capture_output=True, text=True, check=False, umask=umask
        )
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr

    return call


@pytest.mark.parametrize("harm", ["emptied", "halved", "flipped"])
@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_a_damaged_kernel_is_compiled_again(tmp_path, run, harm, kind):
    assert run(DOUBLED) == ("6.0\n", "")
    (file,) = (tmp_path / "cache").rglob(f"*.{kind}")
    content = file.read_bytes()
    half = len(content) // 2
    flipped = content[:half] + bytes(byte ^ 0xFF for byte in content[half : half + 64]) + content[half + 64 :]
    file.write_bytes({"emptied": b"", "halved": content[:half], "flipped": flipped}[harm])
    out, said = run(DOUBLED)
    assert out == "6.0\n"
    assert "is damaged" in said
    assert run(DOUBLED) == ("6.0\n", "")


# --- what somebody else could have put there --------------------------------------------------------------------------


class Planted:
    """Makes a file where it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize(
    ("kind", "how"), [("nbi", "all can write the directory"), ("nbc", "all can write it"), ("nbi", "it is somebody's")]
)
def test_planted_code_is_not_run(tmp_path, run, kind, how):
    assert run(DOUBLED) == ("6.0\n", "")
    (file,) = (tmp_path / "cache").rglob(f"*.{kind}")
    file.write_bytes(pickle.dumps(Planted(tmp_path / "planted")))
    if how == "all can write the directory":
        (tmp_path / "cache").chmod(0o777)
    elif how == "all can write it":
        file.chmod(0o666)
    elif os.getuid() == 0:
        os.chown(file, 65534, 65534)
    else:
        pytest.skip("only root can give a file away")
    out, said = run(DOUBLED)
    assert out == "6.0\n"
    assert said.count("\n") == said.count("no cache") == 1
    assert not (tmp_path / "planted").exists()


def test_nobody_else_can_write_what_is_kept_whatever_the_umask(tmp_path, run):
    """And so it is used the next time."""
    assert run(ONCE, umask=0) == ("used\n", BEGUN.format(", once", 15))
    assert run(ONCE, umask=0) == ("", "")
    kept = [tmp_path / "cache", *(tmp_path / "cache").rglob("*")]
    assert {path.suffix for path in kept} == {"", ".compiled", ".lock", ".nbi", ".nbc"}
    assert {path.stat().st_mode & 0o777 for path in kept} == {0o700, 0o600}


# --- without ----------------------------------------------------------------------------------------------------------

ONCE = """
from nsm.fused import cache

@cache.compiled
def one():
    return 1

def use():
    one()
    print("used")

cache.once("NTM", use)
"""
BEGUN = "nsm: compiling the fused kernels for NTM{}; this takes about {} s …\n"


def test_without_a_cache_every_process_compiles(tmp_path, run):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    for _ in range(2):
        out, said = run(ONCE)
        assert out == "used\n"
        assert said.startswith("nsm: no cache")
        assert said.splitlines(keepends=True)[1:] == [BEGUN.format("", 30)]
    assert list((tmp_path / "cache").iterdir()) == []


FULL = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
"""
"""After this every longer file fails to be written, as on a full disk."""


def test_a_full_disk_is_said_once_and_nothing_passes_for_compiled(tmp_path, run):
    out, said = run(FULL + ONCE + "\n@cache.compiled\ndef two():\n    return 2\n\ntwo()\n")
    assert out == "used\n"
    assert said.count("compiled kernels can't be cached in") == 1
    assert "File too large" in said
    assert not list((tmp_path / "cache").rglob("*.compiled"))
    assert run(ONCE) == ("used\n", BEGUN.format(", once", 15))


def test_a_cache_where_nothing_can_be_locked_is_done_without(tmp_path, run):
    assert run(DOUBLED) == ("6.0\n", "")
    (directory,) = (tmp_path / "cache" / "kernels").iterdir()
    (directory / "NTM.lock").mkdir(0o700)
    out, said = run(ONCE)
    assert out == "used\n"
    assert said.splitlines(keepends=True) == [
        f"nsm: compiled kernels can't be cached in {directory}: Is a directory\n",
        BEGUN.format("", 30),
    ]


# --- the process that helps to compile --------------------------------------------------------------------------------

HELPED = """
import os
import sys
from nsm.fused import compiling

program = '''
try:
    import planted
except ImportError:
    planted = None
with open({fifo!r}, "w") as file:
    print("planted" if planted else "ready", file=file, flush=True)
    import time
    time.sleep(600)
'''
with compiling.helper(program.format(fifo=sys.argv[1])) as other:
    {then}
"""


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="there is none on one core")
@pytest.mark.parametrize("then", ["raise SystemExit(3)", "os.kill(os.getpid(), 9)"])
def test_it_ends_with_the_one_it_helps_and_takes_no_modules_from_where_that_is(tmp_path, then):
    script, fifo, here = tmp_path / "script" / "script.py", tmp_path / "fifo", tmp_path / "here"
    script.parent.mkdir()
    here.mkdir()
    (here / "planted.py").touch()
    script.write_text(HELPED.replace("{then}", f"sys.stdin.read()\n    {then}"))
    os.mkfifo(fifo)
    environment = {**os.environ, "NSM_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, script, fifo]
    with (
        subprocess.Popen(command, cwd=here, env=environment, stdin=subprocess.PIPE) as process,
        fifo.open() as helper,
    ):
        assert helper.readline() == "ready\n"
        process.stdin.close()
        assert helper.read() == ""  # the end: nobody has it open for writing
    assert process.returncode == (3 if "3" in then else -signal.SIGKILL)


def test_there_is_none_without_a_cache(tmp_path, run):
    """It would have nowhere to leave what it compiles."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    assert (
        run("from nsm.fused import compiling\nwith compiling.helper('') as other:\n    print(other)\n")[0] == "None\n"
    )
