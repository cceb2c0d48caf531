"""The whole way from Python: train, resume, test, watch; a task and a memory of one's own are like any other."""

import inspect
import json
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import nsm
from nsm.experiments.choice import Recipe
from nsm.tasks import Copy

SMALL = nsm.Schedule(12, 4, log_every=2, evaluate_every=4, validation_sequences=6, test_sequences=6, checkpoint_every=3)


@dataclass(frozen=True)
class Echo(nsm.Task):
    """Say what was shown one step ago."""

    width: int = 3

    def sample(self, random):
        bits = random.integers(0, 2, (random.integers(2, 6), self.width)).astype(float)
        return bits, np.roll(bits, 1, axis=0), np.arange(len(bits)) > 0


def machine(**options):
    return nsm.NUTM(3, 3, controller=nsm.Controller(size=8), memory=nsm.NTM(slots=8, width=4), **options)


@pytest.fixture
def run(tmp_path):
    return nsm.train(Echo(), machine(), schedule=SMALL, out=tmp_path / "echo")


def test_a_task_of_ones_own_is_trained_tested_and_opened_again(run):
    assert run.outcome().steps == 12
    assert run.experiment.task == Echo()
    assert json.loads((run.path / "config.json").read_text())["experiment"]["task"]["kind"] == f"{__name__}:Echo"
    result = run.test(sequences=5)
    assert result.figures["sequences"] == 5
    assert "wrong bits per sequence" in str(result)
    assert "<table>" in result._repr_html_()
    assert run.result["bit_errors"] == run.outcome().best.figures["bit_errors"]
    again = nsm.open(run.path)
    assert again.test(sequences=5).figures == result.figures
    assert str(run.path) in repr(again)


def test_a_finished_run_is_opened_and_another_experiment_refused(run):
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*") if path.is_file()}
    nsm.train(Echo(), machine(), schedule=SMALL, out=run.path)
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*") if path.is_file()} == before
    with pytest.raises(nsm.UserError, match="seed was 0, is 1"):
        nsm.train(Echo(), machine(), schedule=SMALL, out=run.path, seed=1)


def test_a_recipe_by_name_and_with_arguments(tmp_path):
    experiment = nsm.recipes.copy(model="ntm", preset="paper", seed=3)
    assert (experiment.seed, experiment.machine.programs, experiment.schedule.iterations) == (3, None, 100_000)
    shape = nsm.MANN(10, 8, controller=nsm.Controller(size=8), memory=nsm.NTM(slots=16, width=4))
    trained = nsm.train("copy", shape, schedule=SMALL, out=tmp_path)
    assert trained.experiment.task == nsm.recipes.copy().task
    assert trained.test(length=5, slots=9, sequences=3).settings["slots"] == 9


def test_metrics_are_columns(run, monkeypatch):
    columns = run.metrics
    steps = np.asarray(columns["step"])
    assert steps.tolist() == [2, 4, 6, 8, 10, 12]
    losses = np.asarray(columns["validation/loss"])
    assert np.isnan(losses).tolist() == [True, False, True, False, True, False]
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setattr("nsm.run.find_spec", lambda name: None)
    assert isinstance(run.metrics, dict)


def test_metrics_are_a_dataframe_where_pandas_is_installed(run):
    pandas = pytest.importorskip("pandas")
    assert isinstance(run.metrics, pandas.DataFrame)


def test_the_machine_of_a_run_is_a_module_in_evaluation_mode(run):
    trained = run.machine()
    assert isinstance(trained, nn.Module)
    assert not trained.training
    out, _, trace = trained(torch.zeros(5, 2, 3), trace=True)
    assert out.shape == (5, 2, 3)
    assert trace.plot()._repr_png_().startswith(b"\x89PNG")


def test_a_page_is_a_path_and_shows_itself_in_a_notebook(run):
    page = run.view(samples=1)
    assert Path(page) == run.path / "view.html"
    assert Path(page).read_text() == page.text
    shown = page._repr_html_()
    assert shown.startswith("<iframe sandbox=")
    assert "<script" not in shown  # all of the page is in an attribute, escaped


def test_any_machine_can_be_watched_on_any_input(tmp_path):
    out = tmp_path / "view.html"
    for x in (torch.rand(4, 3), torch.rand(4, 2, 3)):
        page = nsm.view(machine(), x, out=out, title="<b>mine</b>")
        assert Path(page) == out
        assert "<b>mine</b>" not in page.text
    batch_first = machine(batch_first=True)
    assert "sequence 2" in nsm.view(batch_first, torch.rand(2, 4, 3), out=out).text


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.machine = nn.Linear(7, 3), machine()

    def forward(self, x):
        return self.machine(self.embed(x))[0]


def test_a_machine_inside_a_larger_model_can_be_watched(tmp_path):
    model = Model().train()
    page = nsm.view(model, torch.rand(4, 2, 7), out=tmp_path / "view.html")
    assert "sequence 2" in page.text
    assert model.training
    assert not model.machine._forward_pre_hooks
    with pytest.raises(nsm.UserError, match="one machine"):
        nsm.view(nn.Linear(2, 2), torch.rand(1, 2))


@dataclass(frozen=True)
class CounterConfig(nsm.MemoryConfig):
    """A memory of one's own: it adds up what it is told."""

    @property
    def heads(self):
        return (nsm.Head("sum", "write", self.width),)

    @property
    def read_size(self):
        return self.width

    def build(self, generator=None):
        return Counter(self)


class CounterState(NamedTuple):
    memory: torch.Tensor


class Counter(nsm.Memory):
    def __init__(self, config):
        super().__init__()
        self.heads, self.read_size, self.slots, self.width = config.heads, config.width, config.slots, config.width

    def initial_state(self, batch, slots=None):
        return CounterState(torch.zeros(batch, 1, self.width))

    def forward(self, interfaces, state):
        total = state.memory + interfaces[0].unsqueeze(1)
        here = torch.ones(len(total), 1, 1)
        return total[:, 0], CounterState(total), nsm.Addresses(here, here)


def test_a_memory_of_ones_own_is_trained_resumed_tested_and_watched(tmp_path):
    mine = nsm.MANN(
        3, 3, controller=nsm.Controller(size=8), memory=CounterConfig(slots=1, width=4), backend="reference"
    )
    options = {"schedule": SMALL, "backend": "reference"}
    run = nsm.train(Echo(), mine, out=tmp_path / "whole", **options)
    assert run.experiment.machine.memory == CounterConfig(slots=1, width=4)
    assert run.test(sequences=4, backend="reference").figures["sequences"] == 4
    assert "write 1" in run.view(samples=1).text


def test_a_class_that_is_not_loaded_is_named_and_not_imported(run, tmp_path):
    config = json.loads((run.path / "config.json").read_text())
    config["experiment"]["task"]["kind"] = "somewhere.else:Echo"
    from nsm import documents

    documents.write(run.path / "config.json", {k: v for k, v in config.items() if k != "self"})
    with pytest.raises(nsm.UserError, match=r"somewhere\.else:Echo.*import somewhere\.else first"):
        nsm.open(run.path)


def test_training_from_python_leaves_signals_and_threads_alone(tmp_path):
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    threads = torch.get_num_threads()
    seen = []

    class Look(nsm.Callback):
        def on_step(self, progress, line):
            seen.append(([signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)], torch.get_num_threads()))

    nsm.train(Echo(), machine(), schedule=SMALL, out=tmp_path, callbacks=[Look()])
    assert seen == [(handlers, threads)] * 12


OWN = """
import sys, numpy as np, nsm
class Mine(nsm.Task):
    def sample(self, random):
        bits = random.integers(0, 2, (4, 2)).astype(float)
        return bits, bits
class Kill(nsm.Callback):
    def on_step(self, progress, line):
        if progress.step == int(sys.argv[2]): import os; os._exit(9)
few = {"log_every": 2, "evaluate_every": 4, "checkpoint_every": 3, "validation_sequences": 6, "test_sequences": 6}
schedule = nsm.Schedule(12, 4, **few)
shape = nsm.NUTM(2, 2, controller=nsm.Controller(size=8), memory=nsm.NTM(slots=8, width=4))
run = nsm.train(Mine(), shape, schedule=schedule, out=sys.argv[1], callbacks=[Kill()])
print(run.test(sequences=5)); print(run.view(samples=1))
"""


def test_a_task_of_ones_own_that_is_killed_resumes_to_the_same_bytes(tmp_path):
    """In a script, whose classes are of __main__."""
    script = tmp_path / "script.py"
    script.write_text(OWN)

    def call(out, kill):
        return subprocess.run(
            [sys.executable, script, out, str(kill)], cwd=tmp_path, capture_output=True, text=True, check=False
        )

    assert call("whole", 0).returncode == 0
    assert call("killed", 7).returncode == 9
    again = call("killed", 0)
    assert again.returncode == 0, again.stderr
    assert "wrong bits" in again.stdout
    for file in ("metrics.jsonl", "checkpoints/00000012/model.safetensors", "checkpoints/00000012/state.json"):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "killed" / file).read_bytes(), file


def test_what_train_is_given_is_checked():
    with pytest.raises(nsm.UserError, match="takes the name of a recipe, a Task or an Experiment"):
        nsm.train(3)
    with pytest.raises(nsm.UserError, match="did you mean 'copy'"):
        nsm.train("coppy")
    with pytest.raises(nsm.UserError, match="must be a Machine"):
        nsm.train(Copy(), nn.Linear(2, 2))
    with pytest.raises(nsm.UserError, match=r"nsm\.Callback"):
        nsm.train(Echo(), machine(), callbacks=[print])


FROZEN = Path(__file__).parent / "public.txt"


def public() -> str:
    """The names of the package with their signatures, and those of what each class adds to other public ones."""
    lines = []
    for name in sorted(set(nsm.__all__) - {"__version__"}):
        value = getattr(nsm, name)
        inside = sorted(members(value).items()) if inspect.ismodule(value) or inspect.isclass(value) else []
        if not inspect.ismodule(value):
            lines.append(f"{name}{signature(value)}")
        for inner, part in inside:
            ours = is_ours(part)
            part = part.__func__ if isinstance(part, classmethod | staticmethod) else part
            if not inner.startswith("_") and ((inspect.isroutine(part) and ours) or isinstance(part, Recipe)):
                lines.append(f"{name}.{inner}{'' if isinstance(part, Recipe) else signature(part)}")
    return "\n".join(lines) + "\n"


def members(value) -> dict:
    """What a module or a class has of its own, and what a class has from bases that have no public name."""
    if inspect.ismodule(value):
        return vars(value)
    bases = takewhile(lambda base: base is value or getattr(nsm, base.__name__, None) is not base, type.mro(value))
    return {name: part for base in reversed([*bases]) if is_ours(base) for name, part in vars(base).items()}


def is_ours(part) -> bool:
    return str(getattr(part, "__module__", "")).startswith("nsm")


def signature(value) -> str:
    """As a reader of the documentation would write it."""
    if inspect.isclass(value) and "__init__" not in vars(value) and issubclass(value, nn.Module | Exception):
        return ""  # that of nn.Module or of an exception, which take anything
    text = str(inspect.signature(value)).replace("'", "")
    return re.sub(r"numpy\.ndarray\[tuple\[typing\.Any, \.\.\.\], numpy\.dtype\[numpy\.(\w+)\]\]", r"ndarray[\1]", text)


def test_the_public_api_is_what_was_promised():
    assert public() == FROZEN.read_text(), (
        "the public API changed. If that is meant, write it anew with\n"
        f"    python tests/api/{Path(__file__).name}\nand say in the commit what changed."
    )


def test_no_public_signature_says_any():
    assert [line for line in public().splitlines() if "Any" in line] == []


if __name__ == "__main__":
    FROZEN.write_text(public())
