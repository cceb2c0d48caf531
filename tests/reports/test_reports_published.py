"""What is published under results/ is what the machines that are kept there do."""

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

from nsm.cli import main
from nsm.reports.document import to_markdown
from nsm.reports.paper.evidence import Evidence
from nsm.reports.paper.report import report
from nsm.training.evaluation import VALIDATION, evaluate
from nsm.training.run import RunDirectory

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "results" / "models"
NEEDS_DATA = ("fewshot", "babi", "babi-tasks")


def machines(*experiments):
    found = (path.parent.relative_to(KEPT) for path in KEPT.rglob("config.json"))
    return sorted(str(name) for name in found if name.parts[0] in experiments)


def evaluated(name):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main(["eval", str(KEPT / name), "--json"])
    return json.loads(out.getvalue())


def test_there_is_a_report_of_all_that_is_published():
    text = to_markdown(report(Evidence(None, KEPT.parent)), "images")
    assert "Figure 5: continual learning" in text


def test_no_machine_is_passed_over():
    every = {path.parent.relative_to(KEPT).parts[0] for path in KEPT.rglob("config.json")}
    assert every <= {"single", "ablation", "factorial", "sequencing", "continual", "complete", *NEEDS_DATA}


@pytest.mark.parametrize("name", machines("single", "ablation", "factorial", "sequencing", "complete"))
def test_a_kept_machine_makes_the_mistakes_that_were_published(name):
    published = RunDirectory(KEPT / name).outcome().best.figures
    found = evaluated(name)["figures"]
    assert found["sequences"] == published["sequences"]
    # Equal to the last bit where it was measured; another processor rounds otherwise.
    for measure in ("bit_errors", "l1_errors", "cross_entropy_bits"):
        assert found[measure] == pytest.approx(published[measure], rel=1e-2, abs=0.05), measure


@pytest.mark.parametrize("name", machines("continual"))
def test_a_machine_that_learned_one_task_after_another_still_knows_what_was_published(name):
    run = RunDirectory(KEPT / name)
    experiment, machine = run.experiment, run.machine("last")
    sequences = experiment.schedule.validation_sequences
    found = {
        task: evaluate(machine, part, sequences, experiment.seed, VALIDATION).averages()["bit_accuracy"]
        for task, part in experiment.task.parts.items()
    }
    assert found == pytest.approx(run.outcome().phases[-1], abs=0.01)


# --- what belongs in the repository -----------------------------------------------------------------------------------


def test_a_kept_machine_is_weights_and_their_description():
    """No optimiser: it is as large as the machine, twice, and nobody trains from here."""
    files = {"MANIFEST.json", "config.json", "model.safetensors", "result.json", "state.json"}
    assert {path.name for path in KEPT.rglob("*") if path.is_file()} == files


def test_the_figures_of_the_results_are_those_shown_as_png():
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"\]\((images/results/[^)]*)\)", text))
    kept = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs" / "images" / "results").iterdir()}
    assert kept == shown
    assert {Path(name).suffix for name in kept} == {".png"}


def test_generated_pages_stay_out_of_version_control():
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    assert {"docs/results.html", "/report.html", "runs/"} <= set(ignored)
