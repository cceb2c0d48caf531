"""The loop: what it writes down, when it looks, saves and stops, and what it says in the end."""

import json
import math
import subprocess
from dataclasses import replace

import pytest
import torch

from nsm.checks import UserError
from nsm.machine import Machine
from nsm.tasks import Copy
from nsm.training import loop
from nsm.training import run as run_module
from nsm.training.callbacks import Callback
from nsm.training.evaluation import VALIDATION, evaluate
from nsm.training.experiment import Optimiser
from nsm.training.learner import Diverged
from nsm.training.loop import build, train
from nsm.training.result import Failure, Score
from nsm.training.run import RunDirectory, commit
from training.small_runs import TASK, continual, overshooting, small


@pytest.fixture
def finished(tmp_path):
    outcome = train(overshooting(), tmp_path, "fused")
    return RunDirectory(tmp_path), outcome


def test_a_runs_directory(finished):
    run, outcome = finished
    names = {path.name for path in run.path.iterdir()}
    assert names == {"config.json", "metrics.jsonl", "checkpoints", "clock.json", "lock", "result.json"}
    assert run.experiment == overshooting()
    assert run.outcome() == outcome
    made_with = json.loads((run.path / "config.json").read_text())["made_with"]
    assert made_with["torch"] == torch.__version__
    assert set(made_with) >= {"nsm", "commit", "numpy", "numba", "python"}


def test_the_commit_of_a_checkout(tmp_path, monkeypatch):
    """By its own name, with a mark if a source was changed; an installed package, even inside one, has none."""
    source = tmp_path / "src" / "nsm" / "training"
    source.mkdir(parents=True)
    (source / "run.py").write_text("tracked")
    monkeypatch.setattr(run_module, "__file__", str(source / "run.py"))
    assert commit() is None
    git = ["git", "-c", "user.name=n", "-c", "user.email=e"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *command], cwd=tmp_path, check=True, capture_output=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert commit() == head[:12]
    (source / "run.py").write_text("changed")
    assert commit() == head[:12] + "+"
    installed = tmp_path / "venv" / "nsm" / "run.py"
    installed.parent.mkdir(parents=True)
    installed.write_text("not tracked")
    monkeypatch.setattr(run_module, "__file__", str(installed))
    assert commit() is None


def test_the_metrics_are_one_line_per_look(finished):
    run, _ = finished
    lines = run.lines()
    assert [line["step"] for line in lines] == [2, 4, 6, 8, 10, 12]
    assert [line["step"] for line in lines if "validation" in line] == [4, 8, 12]
    assert all(0 < line["loss"] < 5 for line in lines)


def test_a_logged_loss_is_the_mean_since_the_line_before(tmp_path):
    every, experiment = small(log_every=1), small(log_every=4, evaluate_every=100, checkpoint_every=3)
    train(every, tmp_path / "every", "fused")
    train(experiment, tmp_path / "means", "fused")
    losses = [line["loss"] for line in RunDirectory(tmp_path / "every").lines()]
    means = [line["loss"] for line in RunDirectory(tmp_path / "means").lines()]
    assert means == pytest.approx([sum(losses[i : i + 4]) / 4 for i in (0, 4, 8)])


def test_the_best_and_the_last_machine(finished):
    run, outcome = finished
    assert outcome.best_step == outcome.best.step == 4
    assert outcome.last.step == 12
    assert outcome.validation_loss == min(line["validation"]["loss"] for line in run.lines() if "validation" in line)
    experiment, schedule = run.experiment, run.experiment.schedule
    task = replace(experiment.task, ragged=True)
    for which, line in (("best", run.lines()[1]), ("last", run.lines()[-1])):
        figures = evaluate(
            run.machine(which, "fused"), task, schedule.validation_sequences, experiment.seed, VALIDATION
        )
        assert figures.averages() == line["validation"], which
    for which, score in (("best", outcome.best), ("last", outcome.last)):
        machine = run.machine(which, "fused")
        figures = evaluate(machine, experiment.task.tested, schedule.test_sequences, experiment.seed).averages()
        assert score.figures == figures


def test_validation_sequences_are_the_same_at_every_look_and_in_every_run(tmp_path, monkeypatch):
    seen = []

    def looking(machine, task, sequences, seed=0, stream=2, **options):
        seen.append((task, sequences, seed, stream))
        return evaluate(machine, task, sequences, seed, stream, **options)

    monkeypatch.setattr(loop, "evaluate", looking)
    train(small(), tmp_path, "fused")
    validation = [look for look in seen if look[3] == VALIDATION]
    assert len(validation) == 3
    assert len(set(validation)) == 1


def test_where_training_draws_the_tape_validation_sequences_see_the_smallest_and_the_test_all_of_it(tmp_path):
    experiment = small(random_slots=True)
    outcome = train(experiment, tmp_path, "fused")
    run, task = RunDirectory(tmp_path), replace(TASK, ragged=True)
    machine, line = run.machine("last", "fused"), run.lines()[-1]
    fits = task.min_slots(task.batch(experiment.seed, VALIDATION, 0, experiment.schedule.validation_sequences))
    assert fits < machine.memory.slots
    options = (experiment.schedule.validation_sequences, experiment.seed, VALIDATION)
    assert evaluate(machine, task, *options, slots=fits).averages() == line["validation"]
    assert evaluate(machine, task, *options).averages() != line["validation"]
    test = evaluate(machine, TASK.test, experiment.schedule.test_sequences, experiment.seed).averages()
    assert outcome.last == Score(12, test)


@pytest.mark.parametrize("random_slots", [False, True])
def test_progress_is_judged_by_what_is_validation(tmp_path, random_slots):
    longer = Copy(width=2, length=(4, 4))
    experiment = small(task=replace(TASK, validation=longer), random_slots=random_slots)
    outcome = train(experiment, tmp_path, "fused")
    run = RunDirectory(tmp_path)
    looks = {line["step"]: line["validation"] for line in run.lines() if "validation" in line}
    options = (experiment.schedule.validation_sequences, experiment.seed, VALIDATION)
    for which in ("best", "last"):
        machine, step = run.machine(which, "fused"), run.checkpoint(which).step
        slots = 6 if random_slots else None  # as many as a sequence needs: two flags, four vectors
        assert evaluate(machine, longer, *options, slots=slots).averages() == looks[step]
        assert evaluate(machine, TASK.like_training(), *options, slots=slots).averages() != looks[step]
    assert outcome.best_step == min(looks, key=lambda step: looks[step]["loss"])
    assert outcome.last is not None
    assert outcome.last.figures == evaluate(run.machine("last", "fused"), TASK.test, 6, experiment.seed).averages()


# --- solved -----------------------------------------------------------------------------------------------------------


def judged(losses, **changes):
    """What is known after these validation losses, four iterations apart."""
    experiment = small(solved_loss=0.1, **changes)
    run = loop._Loop(experiment, RunDirectory("nowhere"), build(experiment, "fused"), loop.Stop(), Callback())
    coming, improved = iter(losses), []
    run._validation = lambda task: {"loss": next(coming)}
    for look in range(1, len(losses) + 1):
        run.progress.step, run.clock.seconds = 4 * look, 10.0 * look
        improved.append(run._evaluate(experiment.task, {"step": 4 * look}))
    return run, improved


def test_solved_is_the_first_look_below_the_threshold():
    run, improved = judged([0.5, 0.1, 0.05, 0.3, 0.01])
    assert (run.progress.solved_step, run.clock.solved_seconds) == (12, 30.0)
    assert run.progress.solved_in_a_row == 1
    assert (run.progress.best_step, run.progress.best_loss) == (20, 0.01)
    assert improved == [True, True, True, False, True]


def test_never_solved():
    run, _ = judged([0.5, 0.1])
    assert run.progress.solved_step is run.clock.solved_seconds is None


@pytest.mark.parametrize(("wanted", "losses", "over"), [(2, [0.05, 0.2, 0.05], False), (2, [0.2, 0.05, 0.05], True)])
def test_stopping_takes_solved_looks_in_a_row(wanted, losses, over):
    run, _ = judged(losses, stop_when_solved=wanted, iterations=100)
    assert run._over() is over


def test_without_it_a_solved_run_goes_on():
    run, _ = judged([0.0] * 5, iterations=100)
    assert not run._over()


def test_a_run_stops_when_solved(tmp_path):
    outcome = train(small(solved_loss=10.0, stop_when_solved=2), tmp_path, "fused")
    assert (outcome.steps, outcome.solved_step) == (8, 4)
    assert 0 < outcome.solved_seconds <= outcome.seconds
    assert RunDirectory(tmp_path).checkpoint("last").step == 8


# --- continual learning -----------------------------------------------------------------------------------------------


def learned(experiment, directory):
    """The metrics of a run, and its last checkpoint."""
    train(experiment, directory, "fused")
    return RunDirectory(directory).lines(), RunDirectory(directory).checkpoint("last")


def test_a_machine_that_is_thrown_off_goes_on_from_the_best_one_with_the_batches_that_come(tmp_path):
    lines, ninth = learned(overshooting(rewind=1e-6, iterations=9), tmp_path / "rewinding")
    assert [line["step"] for line in lines if "rewinds" in line] == [8]
    _, fourth = learned(overshooting(iterations=4), tmp_path / "best")
    experiment = overshooting()
    learner = build(experiment, "fused")
    learner.resume(tmp_path, fourth)
    task = experiment.task
    learner.step(task, task.batch(experiment.seed, 0, 8, experiment.schedule.batch_size), 8)
    for name, weight in learner.machine.state_dict().items():
        assert torch.equal(weight, ninth.model[name]), name
    assert ninth.optimiser["updates"] == 5


def test_without_a_bound_or_within_it_nothing_is_taken_back(tmp_path):
    lines, last = learned(overshooting(), tmp_path / "never")
    others, same = learned(overshooting(rewind=1e6), tmp_path / "within")
    assert others == lines
    assert all(torch.equal(weight, same.model[name]) for name, weight in last.model.items())


@pytest.mark.parametrize(("iterations", "steps"), [(8, [2, 4, 6, 8]), (11, [2, 4, 6, 11]), (5, [1, 2, 3, 5])])
def test_continual_learning_is_looked_at_after_every_phase(tmp_path, iterations, steps):
    outcome = train(continual(iterations), tmp_path, "fused")
    lines = [line for line in RunDirectory(tmp_path).lines() if "accuracies" in line]
    assert [line["step"] for line in lines] == steps
    assert outcome.phases == tuple(line["accuracies"] for line in lines)
    tasks = ["copy", "repeat-copy", "associative-recall", "priority-sort"]
    assert all(list(phase) == tasks for phase in outcome.phases)
    assert all(0 <= accuracy <= 1 for phase in outcome.phases for accuracy in phase.values())


def test_fewer_iterations_than_phases_are_as_many_phases(tmp_path):
    assert len(train(continual(2), tmp_path, "fused").phases) == 2


def test_continual_learning_has_no_best_machine_because_losses_of_phases_do_not_compare(tmp_path):
    outcome = train(continual(8, solved_loss=10.0), tmp_path, "fused")
    assert outcome.best_step is outcome.solved_step is outcome.validation_loss is outcome.best is None
    assert RunDirectory(tmp_path).checkpoint("best").step == 8


# --- divergence -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["fused", "reference"])
def test_a_run_that_diverges_says_where_and_keeps_its_last_good_checkpoint(tmp_path, monkeypatch, backend):
    experiment = small(checkpoint_every=1, evaluate_every=100)
    true_step = loop.GradientLearner.step

    def poisoned(self, task, batch, step):
        if step == 5:
            self.machine.interfaces[1].memory.weight.data[0, 0, 0] = math.nan
        return true_step(self, task, batch, step)

    with monkeypatch.context() as patch:
        patch.setattr(loop.GradientLearner, "step", poisoned)
        # The kernels may make a finite loss of a weight that is no number; their gradient shows it.
        message = "(the loss became nan|a gradient is not finite) at iteration 6; .* is interfaces.1.memory.weight"
        with pytest.raises(Diverged, match=message) as caught:
            train(experiment, tmp_path, backend)
    run = RunDirectory(tmp_path)
    assert run.failure() == Failure(str(caught.value), 5, diverged=True)
    assert run.outcome() is None
    last = run.checkpoint("last")
    assert last.step == 5
    assert all(tensor.isfinite().all() for tensor in last.model.values())
    assert all(math.isfinite(line["loss"]) for line in run.lines())


@pytest.mark.parametrize("backend", ["fused", "reference"])
@pytest.mark.parametrize("kind", ["rmsprop", "adam"])
def test_a_learning_rate_beyond_all_reason(tmp_path, backend, kind):
    experiment = small(optimiser=Optimiser(kind, learning_rate=1e30), checkpoint_every=1)
    with pytest.raises(
        Diverged, match=r"at iteration \d+; the first bad tensor is |after iteration \d+; the first bad"
    ):
        train(experiment, tmp_path, backend)
    run = RunDirectory(tmp_path)
    assert run.failure() is not None
    for path in run.checkpoints.glob("*"):
        found = loop.checkpoints.load(path)
        assert all(tensor.isfinite().all() for tensor in (*found.model.values(), *found.optimiser.values()))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_bad_gradient_stops_the_update(monkeypatch, bad):
    learner = build(small(), "fused")
    before = learner.flat.clone()

    def gradients(task, batch, slots, noise):
        learner.machine.output.bias.grad[1] = bad
        return 0.5

    monkeypatch.setattr(learner, "_gradients", gradients)
    task = small().task
    with pytest.raises(Diverged, match=r"a gradient is not finite at iteration 8; .* is gradient of output\.bias"):
        learner.step(task, task.batch(0, 0, 0, 2), 7)
    assert torch.equal(learner.flat, before)


def test_a_bad_loss_stops_the_update_even_if_its_gradient_is_fine(monkeypatch):
    learner = build(small(), "fused")
    before = learner.flat.clone()
    monkeypatch.setattr(learner, "_gradients", lambda *_: math.inf)
    task = small().task
    with pytest.raises(Diverged, match="the loss became inf at iteration 8; the first bad tensor is the loss itself"):
        learner.step(task, task.batch(0, 0, 0, 2), 7)
    assert torch.equal(learner.flat, before)


def test_gradients_that_are_merely_huge_are_clipped_not_feared(monkeypatch):
    learner = build(small(), "fused")

    def gradients(task, batch, slots, noise):
        learner.gradient.fill_(1e30)
        return 0.5

    monkeypatch.setattr(learner, "_gradients", gradients)
    task = small().task
    learner.step(task, task.batch(0, 0, 0, 2), 1000)
    learner.check(1001)


def test_weights_that_overflow_are_not_saved(tmp_path, monkeypatch):
    true_step = loop.GradientLearner.step

    def overflowing(self, task, batch, step):
        loss = true_step(self, task, batch, step)
        if step == 5:
            self.machine.output.weight.data[0, 0] = math.inf
        return loss

    monkeypatch.setattr(loop.GradientLearner, "step", overflowing)
    with pytest.raises(Diverged, match=r"a weight is not finite after iteration 6; .* is output\.weight"):
        train(small(checkpoint_every=3, evaluate_every=100), tmp_path, "fused")
    assert loop.checkpoints.steps(tmp_path / "checkpoints") == [3]


def test_a_validation_loss_that_is_no_number_is_divergence_too(tmp_path, monkeypatch):
    from nsm.tasks import Metrics

    nothing = Metrics(sequences=1, bits=1, bit_errors=0, perfect=0, l1_errors=0.0, nats=math.nan)
    monkeypatch.setattr(loop, "evaluate", lambda *_, **__: nothing)
    with pytest.raises(Diverged, match="the validation loss became nan at iteration 4"):
        train(small(), tmp_path, "fused")
    assert all("validation" not in line for line in RunDirectory(tmp_path).lines())


def test_a_failed_run_fails_again_in_the_same_place(tmp_path):
    experiment = small(optimiser=Optimiser(learning_rate=1e30))
    said = []
    for _ in range(2):
        with pytest.raises(Diverged) as caught:
            train(experiment, tmp_path, "fused")
        said.append(str(caught.value))
    assert said[0] == said[1]


# --- building ---------------------------------------------------------------------------------------------------------


def test_preparing_changes_nothing(tmp_path):
    experiment = small(cell_noise=0.1, random_slots=True)
    one, two = build(experiment, "fused"), build(experiment, "fused")
    task = experiment.task
    two.prepare(task)
    batch = task.batch(0, 0, 0, 2)
    assert one.step(task, batch, 0) == two.step(task, batch, 0)
    assert torch.equal(one.flat, two.flat)
    assert one.optimiser.updates == two.optimiser.updates == 1


def test_the_seed_draws_the_same_weights_on_both_back_ends():
    fused, reference = build(small(seed=3), "fused"), build(small(seed=3), "reference")
    assert torch.equal(fused.flat, reference.flat)
    assert not torch.equal(fused.flat, build(small(seed=4), "fused").flat)


def test_auto_takes_the_kernels_where_it_can_and_says_where_it_cannot(caplog):
    assert build(small(), "auto").machine.backend == "fused"
    assert caplog.text == ""
    torch.set_default_dtype(torch.float64)
    try:
        assert build(small(), "auto").machine.backend == "reference"
        assert "the fused backend doesn't cover torch.float64 on cpu" in caplog.text
        with pytest.raises(UserError, match=r"backend 'fused' doesn't cover torch\.float64 on cpu; backend 'ref"):
            build(small(), "fused")
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("device", ["nowhere", "cuda:99"])
def test_a_device_that_is_not_there_is_a_mistake(tmp_path, device):
    if device.startswith("cuda") and torch.cuda.device_count() > 99:
        pytest.skip("it is there")
    with pytest.raises(UserError, match=f"can't be built on device '{device}': "):
        train(small(), tmp_path / "run", device=device)
    assert not (tmp_path / "run").exists()


def test_a_machine_of_other_channels_is_a_mistake(tmp_path):
    experiment = replace(small(), machine=replace(small().machine, input_size=5))
    with pytest.raises(UserError, match="copy has 4 inputs and 2 outputs, the machine 5 and 2"):
        train(experiment, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_trained_machine_is_an_ordinary_machine(finished, tmp_path):
    run, _ = finished
    machine = run.machine()
    assert isinstance(machine, Machine)
    machine.save_pretrained(tmp_path / "machine")
    assert Machine.from_pretrained(tmp_path / "machine").parameter_count == machine.parameter_count
