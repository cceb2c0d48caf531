"""Before a command begins: what it need not import, and Ctrl-C while it imports or compiles what it needs."""

import os
import signal
import subprocess
import sys

import pytest

HEAVY = {"torch", "numba", "matplotlib"}
CALLED = """
import sys
from nsm.cli import main
try:
    main()
finally:
    print(*sys.modules)
"""
"""A command, and then the modules it has imported."""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("--help", 0),
        ("--version", 0),
        ("train --help", 0),
        ("bench --help", 0),
        ("report --help", 0),
        ("reproduce --help", 0),
        ("", 2),
        ("trian copy", 2),
        ("train", 2),
        ("train cpoy", 2),
        ("train copy+sort", 2),
        ("train copy --model ntn", 2),
        ("train copy --model ntm --programs 2", 2),
        ("train --out run copy", 2),
        ("train my_tasks:Reverse", 2),
        ("train copy --import my_tasks", 2),
        ("train copy --threads 0", 2),
        ("train copy --preset papr", 2),
        ("train copy --backend fussed", 2),
        ("eval run --like traning", 2),
        ("eval run --length ten", 2),
        ("eval run --lenght 10", 2),
        ("eval run --import my_tasks", 2),
        ("view run --figure picture.jpg", 2),
        ("report --runs nowhere", 2),
        ("reproduce singel", 2),
        ("reproduce single --engine lokal", 2),
        ("ask run story.txt what --which bets", 2),
        ("demo --seed -1", 2),
        ("data check omniglott", 2),
    ],
)
def test_help_and_mistakes_do_not_wait_for_what_does_the_work(arguments, code):
    """But for the options of a task, which are those of an experiment."""
    command = [sys.executable, "-c", CALLED, *arguments.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    imported = done.stdout.splitlines()[-1].split()
    assert "nsm.cli" in imported
    assert HEAVY.isdisjoint(imported)


SLOW = """
import time
print("importing", flush=True)
try:
    time.sleep(60)
except BaseException:
    pass  # as some libraries do
"""


@pytest.mark.parametrize("module", ["tyro", "numpy", "torch"])
def test_ctrl_c_while_something_is_imported_is_one_line(tmp_path, module):
    """A stand-in that takes long: for what parses, what knows the names, and what does the work."""
    (tmp_path / f"{module}.py").write_text(SLOW)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), *filter(None, sys.path)))}
    command = [sys.executable, "-m", "nsm", "train", "copy", "--out", str(tmp_path / "run")]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "nsm: stopped\n")
    assert not (tmp_path / "run").exists()


COMPILED = """
import os
import signal
import sys

from nsm import cli


def compile(arguments):
    from nsm.fused.cache import compiled

    @compiled
    def one():
        return 1

    sys.setprofile(interrupt)
    one()


def interrupt(frame, event, argument):
    if event == "call" and frame.f_globals["__name__"].startswith("llvmlite") and frame.f_code.co_name == sys.argv[1]:
        os.kill(os.getpid(), signal.SIGINT)


cli._run = compile
cli.main()
"""
"""A command that compiles a kernel, and Ctrl-C when the compiler calls a function of a name."""


@pytest.mark.parametrize("where", ["_raw_object_cache_notify", "__del__"])
def test_ctrl_c_while_something_is_compiled_is_one_line(tmp_path, where):
    """Where C calls back, and where an object is freed: Python prints what is raised there, and goes on."""
    script = tmp_path / "script.py"
    script.write_text(COMPILED)
    environment = os.environ | {"NSM_CACHE": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, script, where], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "nsm: stopped\n")


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN])
def test_ctrl_c_is_handled_as_before_after_a_command(nsm, handler):
    before = signal.signal(signal.SIGINT, handler)
    try:
        assert nsm("--help").code == 0
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)
