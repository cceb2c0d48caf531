"""What is published under results/ is what the machines that are kept there do."""

import contextlib
import io
import json
from pathlib import Path

import pytest

from nsm.cli import main
from nsm.training.evaluation import VALIDATION, evaluate
from nsm.training.run import RunDirectory

KEPT = Path(__file__).parents[2] / "results" / "models"
NEEDS_DATA = ("fewshot", "babi", "babi-tasks")


def machines(*experiments):
    found = (path.parent.relative_to(KEPT) for path in KEPT.rglob("config.json"))
    return sorted(str(name) for name in found if name.parts[0] in experiments)


def evaluated(name):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main(["eval", str(KEPT / name), "--json"])
    return json.loads(out.getvalue())


def test_no_machine_is_passed_over():
    every = {path.parent.relative_to(KEPT).parts[0] for path in KEPT.rglob("config.json")}
    assert every <= {"single", "ablation", "factorial", "sequencing", "continual", *NEEDS_DATA}


@pytest.mark.parametrize("name", machines("single", "ablation", "factorial", "sequencing"))
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
