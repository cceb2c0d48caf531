"""Examples run as a reader would run them, learn what they say they learn, and leave nothing but runs behind."""

import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"


def numbers(pattern, printed):
    """What the groups of a pattern match in the output, line by line."""
    found = [[float(number) for number in match.groups()] for match in re.finditer(pattern, printed)]
    assert found, f"no line like {pattern} in {printed}"
    return found


def wrong_and_perfect(printed):
    """What a test found: wrong bits per sequence, and per cent of sequences without any."""
    (found,) = numbers(r"([\d.]+) wrong bits per sequence .*, ([\d.]+)% of sequences without any", printed)
    return found


def complete_machine(printed):
    wrong, perfect = wrong_and_perfect(printed)
    assert wrong < 0.1
    assert perfect > 95
    steps = numbers(r"step +\d+, \w+: state programs +(\d+)% +(\d+)%, output programs +(\d+)% +(\d+)%", printed)
    assert len(steps) == 14
    assert all(abs(a + b - 100) <= 1 and abs(c + d - 100) <= 1 for a, b, c, d in steps)
    for number in (0, 2):  # each network's choice depends on the step
        assert max(step[number] for step in steps) - min(step[number] for step in steps) > 20
    alone = numbers(r"state program \d alone: ([\d.]+)% of the bits wrong", printed)
    assert len(alone) == 2
    assert min(wrong for (wrong,) in alone) > 5


def custom_memory(printed):
    wrong, perfect = wrong_and_perfect(printed)
    assert wrong < 0.1
    assert perfect > 95


def continual_learning(printed):
    """Chance is one bit of two; the other task's answers are the wrong ones."""
    found = numbers(r"after \w+: copy ([\d.]+)%, invert ([\d.]+)%", printed)
    (forgetting, single), (remembering, other) = found[1], found[3]
    assert forgetting < 70 < 90 < single
    assert min(remembering, other) > 90
    assert remembering == found[2][0]
    assert numbers(r"programs claimed: (\d)", printed) == [[2]]


def dataset_task(printed):
    wrong, perfect = wrong_and_perfect(printed)
    assert wrong < 0.05
    assert perfect > 95


def own_task(printed):
    wrong, perfect = wrong_and_perfect(printed)
    assert wrong < 0.1
    assert perfect > 95
    assert "Watch it work: runs/reverse/view.html" in printed


def step_by_step(printed):
    assert "step loop equals one call: True" in printed
    assert len(numbers(r"step (\d): wrote mostly to slot (\d)", printed)) == 5


def stored_transformer(printed):
    """Chance is one symbol of 16."""
    plain, stored, large = numbers(r"([\d,]+) parameters: ([\d.]+)% of symbols right", printed.replace(",", ""))
    assert plain[0] < 0.3 * stored[0]
    assert abs(large[0] - stored[0]) < 0.01 * stored[0]
    assert plain[1] > 40
    assert min(stored[1], large[1]) > plain[1] + 10


def stored_cnn(printed):
    """Chance is one class of ten."""
    plain, stored, large = numbers(r"([\d,]+) parameters: ([\d.]+)% of images right", printed.replace(",", ""))
    assert plain[0] < 0.3 * stored[0]
    assert abs(large[0] - stored[0]) < 0.03 * stored[0]
    assert min(plain[1], stored[1], large[1]) > 30


def stored_program_mlp(printed):
    ((plain,), (stored,)) = numbers(r"mean squared error ([\d.]+)", printed)
    assert stored < 0.1 < 0.4 < plain
    ((on, off),) = numbers(r"share of (\d+)% where the switch is well on, of (\d+)%", printed)
    assert abs(on - off) > 30


def truncated_backpropagation(printed):
    (before,), (after,), (lost,) = numbers(r": +([\d.]+)% right", printed)
    assert before < 35
    assert after > 99
    assert lost < 35


def lightning_module(printed):
    (before,), (after,) = numbers(r": ([\d.]+)% of letters right", printed)
    assert before < 20
    assert after > 95


def what_a_program_is_for(printed):
    """The table of docs/howto/interventions.md."""
    ((copy, recall),) = numbers(r"undisturbed: +([\d.]+)% +([\d.]+)%", printed)
    assert copy < 1 < recall < 10
    found = numbers(r"(\d+)% reading the input, +(\d+)% answering; forbidden: +([\d.]+)% +([\d.]+)%", printed)
    assert len(found) == 6
    (_, _, *first), (reading, _, *second), (_, answering, *third) = found[:3]
    assert reading > 75
    assert answering > 85
    assert min(*first, *second, *third) > 10
    document = (EXAMPLES.parent / "docs/howto/interventions.md").read_text()
    rows = re.findall(r"\| (\d+)% \| (\d+)% \| ([\d.]+)% \| ([\d.]+)% \|", document)
    assert [[float(number) for number in row] for row in rows] == [pytest.approx(row, abs=1.01) for row in found]


CHECKS = [
    *(complete_machine, continual_learning, custom_memory, dataset_task, lightning_module, own_task),
    *(step_by_step, stored_cnn, stored_program_mlp, stored_transformer, truncated_backpropagation),
    what_a_program_is_for,
]
RUNS = {"complete_machine": "complete", "custom_memory": "stack", "dataset_task": "parity", "own_task": "reverse"}
"""What they leave in runs/."""


def test_every_example_is_checked():
    assert [check.__name__ for check in CHECKS] == sorted(path.stem for path in EXAMPLES.glob("*.py"))
    assert [path.stem for path in EXAMPLES.glob("*.ipynb")] == ["notebook"]


def run(script, directory):
    """In a process of its own, where warnings of other packages are not errors."""
    ran = subprocess.run([sys.executable, script], cwd=directory, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_an_example_does_what_it_says(check, tmp_path):
    name = check.__name__
    check(run(EXAMPLES / f"{name}.py", tmp_path).stdout)
    left = [path.relative_to(tmp_path).as_posix() for path in [*tmp_path.glob("*"), *tmp_path.glob("runs/*")]]
    assert left == (["runs", f"runs/{RUNS[name]}"] if name in RUNS else [])


def test_a_task_of_ones_own_is_opened_again_by_its_script_and_by_the_command_line(tmp_path):
    """With few iterations: the second time nothing is trained."""
    text = (EXAMPLES / "own_task.py").read_text()
    script = tmp_path / "short_task.py"
    script.write_text(text.replace("nsm.Schedule(3_000,", "nsm.Schedule(20, test_sequences=30, evaluate_every=10,"))
    assert script.read_text() != text
    first = run(script, tmp_path)
    assert "20/20 iterations" in first.stderr
    metrics = (tmp_path / "runs/reverse/metrics.jsonl").read_bytes()
    second = run(script, tmp_path)
    assert second.stdout == first.stdout
    assert "iterations" not in second.stderr
    assert (tmp_path / "runs/reverse/metrics.jsonl").read_bytes() == metrics
    config = json.loads((tmp_path / "runs/reverse/config.json").read_text())
    assert config["experiment"]["task"]["kind"] == "short_task:Reverse"

    def command(*arguments):
        options = {"cwd": tmp_path, "capture_output": True, "text": True, "check": False}
        return subprocess.run([sys.executable, "-m", "nsm", *arguments], **options)

    asked = command("eval", "runs/reverse", "--import", "short_task", "--sequences", "10")
    assert asked.returncode == 0, asked.stderr
    assert "10 sequences" in asked.stdout
    unknown = command("eval", "runs/reverse")
    assert unknown.returncode == 2
    assert "import short_task first (--import short_task)" in unknown.stderr


# --- the notebook -----------------------------------------------------------------------------------------------------


def notebook():
    return nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)


def executed(cells, directory):
    """A notebook of such cells, executed as a reader would: in a process and a directory of its own."""
    made = notebook()
    made.cells = cells
    NotebookClient(made, timeout=600, resources={"metadata": {"path": str(directory)}}).execute()
    return made


def shown(made, kind):
    """What the cells show of a kind of data."""
    outputs = [output for cell in made.cells for output in cell.get("outputs", [])]
    return [output.data[kind] for output in outputs if kind in output.get("data", {})]


def said(made):
    return "".join(
        output.text
        for cell in made.cells
        for output in cell.get("outputs", [])
        if output.output_type == "stream" and output.name == "stdout"
    )


def test_the_notebook_is_kept_without_what_it_showed():
    made = notebook()
    nbformat.validate(made)
    code = [cell for cell in made.cells if cell.cell_type == "code"]
    assert len(code) < len(made.cells)
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)


def test_the_notebook_trains_tests_draws_and_shows(tmp_path):
    made = executed(notebook().cells, tmp_path)
    assert "all bits right: True" in said(made)
    assert len(shown(made, "image/png")) == 1
    pages = [page for page in shown(made, "text/html") if "<iframe" in page]
    assert len(pages) == 2
    assert all("sandbox" in page for page in pages)
    (table,) = (page for page in shown(made, "text/html") if "<table>" in page)
    assert "wrong bits per sequence" in table
    assert [path.relative_to(tmp_path).as_posix() for path in (tmp_path / "runs").iterdir()] == ["runs/reverse"]
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_a_class_of_a_notebook_is_found_again_in_it(tmp_path):
    """It lies in __main__: the run is opened and resumed where the class is defined, and nowhere else."""
    define, train = (cell for cell in notebook().cells if cell.cell_type == "code" and "Reverse" in cell.source)
    train.source = train.source.replace("nsm.Schedule(2_000,", "nsm.Schedule(20, test_sequences=30,")
    opened = nbformat.v4.new_code_cell(
        "run = nsm.open('runs/reverse')\nprint(type(run.experiment.task) is Reverse, len(run.metrics['step']))\nrun"
    )
    twice = [nbformat.from_dict(cell) for cell in (define, train)]
    made = executed([define, train, opened, *twice], tmp_path)
    assert said(made).startswith("True ")
    assert any("finished" in text for text in shown(made, "text/plain"))
    config = json.loads((tmp_path / "runs/reverse/config.json").read_text())
    assert config["experiment"]["task"]["kind"] == "__main__:Reverse"
    again = executed([define, opened], tmp_path)
    assert said(again).startswith("True ")
    command = [sys.executable, "-m", "nsm", "eval", "runs/reverse"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "define it again, or train with a class in a module" in ran.stderr
