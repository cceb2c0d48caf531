"""The paper by command: every experiment yields its table, goes on where it stopped, and loses no run to another."""

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace

import pytest
from rich.console import Console

from nsm import documents
from nsm.commands import tables
from nsm.experiments import campaign, params, recipes
from nsm.experiments.engines import Job, Status, local
from nsm.experiments.engines.local import Local
from nsm.experiments.paper import COMPLETE, EXPERIMENTS, SEQUENCING, SINGLE, Cell, cells
from nsm.experiments.results import collect
from nsm.experiments.summary import summarise
from nsm.machine import Machine
from nsm.programs import Programs
from nsm.training.result import Outcome, Score
from nsm.training.run import RunDirectory
from nsm.tree import to_json

EXPECTED = {
    "single": [f"{task}/{model}" for task in SINGLE for model in ("ntm", "nutm")],
    "ablation": [
        f"associative-recall/{name}" for name in ("nutm", "direct", "key-value", "uniform", "ntm", "ntm-2-heads")
    ],
    "sequencing": [f"{task}/{model}" for task in SEQUENCING for model in ("ntm", "nutm")],
    "continual": [
        f"{row}/{model}"
        for model, others in (("ntm", ("growing", "labels", "ewc")), ("nutm", ("noisy",)))
        for row in ("continual", "continual-lstm", *(f"continual-{other}" for other in others))
    ],
    "factorial": [
        f"{task}/{model}-{scale}"
        for task in ("associative-recall", "repeat-copy", "copy+repeat-copy")
        for model in ("ntm", "nutm")
        for scale in ("large", "small")
    ],
    "complete": [
        f"{task}/{model}"
        for task in ("associative-recall", SEQUENCING[1], SEQUENCING[3])
        for model in ("nutm", "nutm-complete")
    ],
    "fewshot": [
        f"omniglot-{classes}{memory}/{model}"
        for memory in ("", "-persistent")
        for classes in (5, 10)
        for model in ("mann", "nutm")
    ],
    "babi": ["babi/dnc", "babi/nutm-2", "babi/nutm-4"],
    "babi-tasks": [f"babi-{number}/nutm-4" for number in range(1, 21)],
}


# --- the paper as data ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["paper", "authors", "default"])
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_cell_is_a_run_of_its_task(experiment, preset):
    found = cells(experiment, preset)
    assert [cell.name for cell in found] == EXPECTED[experiment]
    for cell in found:
        cell.experiment.check()
        assert (cell.experiment.machine.programs is None) == cell.model.startswith(("ntm", "mann", "dnc"))


@pytest.mark.parametrize("task", COMPLETE)
def test_complete_machines_store_everything_in_as_many_weights(task):
    nutm, complete = (cell.experiment for cell in cells("complete", only=task))
    assert nutm.machine.programs.parts == ("interface",)
    assert complete.machine.programs.parts == ("interface", "state", "output")
    ours, theirs = (Machine.from_config(run.machine).parameter_count for run in (complete, nutm))
    assert ours == pytest.approx(theirs, rel=0.01)
    assert (complete.task, complete.schedule, complete.optimiser) == (nutm.task, nutm.schedule, nutm.optimiser)


def test_the_variants_of_the_ablation():
    found = {cell.model: cell.experiment for cell in cells("ablation")}
    schedule = found["nutm"].schedule
    assert schedule.key_loss == 0.1
    assert found["key-value"] == replace(found["nutm"], schedule=replace(schedule, key_loss=0.0))
    assert found["direct"].machine.programs == Programs(2, attention="direct")
    assert found["uniform"].machine.programs == Programs(2, attention="uniform")
    assert found["ntm-2-heads"].machine.memory.read_heads == found["ntm-2-heads"].machine.memory.write_heads == 2


def test_the_programs_of_sequencing_and_of_continual_learning():
    counts = [cell.experiment.machine.programs.count for cell in cells("sequencing") if cell.model == "nutm"]
    assert counts == [3, 3, 3, 4]
    machines = {cell.name: cell.experiment.machine for cell in cells("continual")}
    ntm, nutm = machines["continual/ntm"], machines["continual/nutm"]
    assert ntm.controller.kind == nutm.controller.kind == "feed-forward"
    assert nutm.programs == Programs(6, attention="gumbel")
    assert machines["continual-lstm/nutm"].controller.kind == "lstm"
    noisy = machines["continual-noisy/nutm"]
    assert noisy.programs == Programs(6, attention="gumbel-probabilities", temperature=10.0)
    published = cells("continual", "authors", only="continual/nutm")[0].experiment.machine
    assert published.programs.attention == "gumbel-probabilities"


def test_the_factorial_comparison_gives_both_models_both_initial_scales():
    found = {cell.model: cell.experiment for cell in cells("factorial", only="associative-recall")}
    single = {cell.model: cell.experiment for cell in cells("single", only="associative-recall")}
    assert found["ntm-large"] == single["ntm"], "as published"
    assert found["nutm-small"] == single["nutm"], "as published"
    for model, (as_published, other) in {"ntm": ("head", "memory"), "nutm": ("memory", "head")}.items():
        changed = found["ntm-small" if model == "ntm" else "nutm-large"]
        interface = single[model].machine.interface
        assert (interface.fan, changed.machine.interface.fan) == (as_published, other)
        assert replace(changed, machine=replace(changed.machine, interface=interface)) == single[model]


def test_the_factorial_comparison_trains_sequences_of_tasks_as_it_does_single_ones():
    rows = ("repeat-copy", "copy+repeat-copy")
    alone, sequence = ({cell.model: cell.experiment for cell in cells("factorial", only=row)} for row in rows)
    for model, experiment in sequence.items():
        assert experiment.schedule == alone[model].schedule
        assert experiment.optimiser == alone[model].optimiser
        assert experiment.machine.interface == alone[model].machine.interface


def test_the_settings_of_the_paper():
    single = recipes.repeat_copy("nutm", "paper").schedule
    assert (single.iterations, single.batch_size) == (100_000, 1)
    assert recipes.long_copy("ntm", "paper").schedule.iterations == 50_000
    sequence = recipes.find("copy+repeat-copy")("ntm", "paper").schedule
    assert (sequence.iterations, sequence.batch_size) == (50_000, 16)
    optimiser = recipes.repeat_copy("nutm", "paper").optimiser
    assert (optimiser.kind, optimiser.learning_rate, optimiser.alpha, optimiser.momentum, optimiser.clip) == (
        "rmsprop",
        1e-4,
        0.95,
        0.9,
        10.0,
    )
    assert (single.key_loss, single.key_loss_decay) == (0.1, 0.9)


def test_only_takes_parts_of_names_and_a_whole_name_or_row_for_itself():
    def names(only, experiment="single"):
        return [cell.name for cell in cells(experiment, only=only)]

    assert names("copy/nutm") == ["copy/nutm"]
    assert names("opy/nutm") == ["copy/nutm", "repeat-copy/nutm", "long-copy/nutm"]
    assert names("long,copy/ntm") == ["copy/ntm", "long-copy/ntm", "long-copy/nutm"]
    assert names("copy") == ["copy/ntm", "copy/nutm"]
    assert names("copy+repeat-copy", "sequencing") == ["copy+repeat-copy/ntm", "copy+repeat-copy/nutm"]
    assert {name.split("/")[0] for name in names("repeat-copy", "factorial")} == {"repeat-copy"}


def test_only_keeps_cells_by_name_and_a_budget_cuts_their_runs():
    found = cells("single", only="recall/nutm", budget=7)
    assert [cell.name for cell in found] == ["associative-recall/nutm"]
    cut = found[0].experiment.schedule
    assert (cut.iterations, cut.evaluate_every, cut.log_every, cut.checkpoint_every) == (7, 1, 1, 7)
    assert (cut.validation_sequences, cut.test_sequences) == (7, 7)
    assert cells("single", budget=10**9) == cells("single"), "a budget never makes a run longer"


# --- parameters -------------------------------------------------------------------------------------------------------


def test_all_25_published_parameter_counts_are_exact(nsm):
    said = nsm("reproduce", "params", "--json")
    assert said.code == 0
    rows = json.loads(said.out)
    assert len(rows) == 25
    assert [row for row in rows if row["published"] != row["ours"]] == []
    assert {row["row"] for row in rows} == {*SINGLE, *SEQUENCING, "continual", "babi"}
    assert {row["published"] for row in rows if row["row"] == "copy"} == {63_260, 52_206}
    said = nsm("reproduce", "params")
    assert said.out.count("exact") == 25
    assert "differs" not in said.out
    assert sum(params.PUBLISHED_BABI.values()) == 891_136 + 934_787 + 794_773


# --- from seeds to a line of a table ----------------------------------------------------------------------------------


def seed(cell, directory, best=None, **outcome):
    """A finished run of a cell, made up: `best` are the figures of its best machine."""
    run = RunDirectory(directory)
    score = None if best is None else Score(100, {"loss": 0.1, **best})
    ended = {"steps": 100, "seconds": 10.0, "solved_step": None, "solved_seconds": None, "validation_loss": 0.1}
    ended |= {"best_step": 100, "parameters": 10_000, "backend": "fused", "best": score, "last": score}
    with run.opened(cell.experiment):
        run.finish(Outcome(**{**ended, **outcome}))
    return directory


def failed(cell, directory, reason, diverged=False):
    """A run of a cell that failed, made up."""
    run = RunDirectory(directory)
    with run.opened(cell.experiment):
        run.fail(reason, 3, diverged)
    return directory


def test_the_seeds_of_a_cell_are_summed_up(tmp_path):
    cell = cells("single", only="repeat-copy/nutm")[0]
    errors = [(4.0, 40, 8.0), (1.0, 20, 2.0), (7.0, None, None)]
    directories = [
        seed(
            cell,
            tmp_path / str(i),
            best={"bit_errors": bits, "l1_errors": bits / 2},
            solved_step=step,
            solved_seconds=seconds,
        )
        for i, (bits, step, seconds) in enumerate(errors)
    ]
    directories.append(failed(cell, tmp_path / "failed", "for a reason"))
    found = summarise(cell, [*directories, tmp_path / "not begun"])
    assert (found.cell, cell.published) == (cell, 366.69)
    assert (found.seeds, found.failed) == (3, 1)
    assert (found.best, found.mean, found.sd, found.median) == (1.0, 4.0, 3.0, 4.0)
    assert (found.solved, found.solved_steps, found.solved_seconds) == (pytest.approx(2 / 3), 30, 5.0)
    assert {m.name: min(values) for m, values in found.beside.items()} == {"l1_errors": 0.5}


def test_a_seed_whose_clock_was_lost_is_solved_all_the_same(tmp_path):
    cell = cells("single", only="repeat-copy/nutm")[0]
    found = [
        seed(cell, tmp_path / str(i), best={"bit_errors": 0.0}, solved_step=20, solved_seconds=seconds)
        for i, seconds in enumerate((8.0, None, 2.0))
    ]
    assert summarise(cell, found).solved_seconds == 5.0
    assert summarise(cell, found[1:2]).solved_seconds is None
    assert summarise(cell, found[1:2]).solved == 1.0


def test_a_seed_that_diverged_did_not_solve_its_task_and_one_whose_process_died_tells_nothing(tmp_path):
    cell = cells("single", only="repeat-copy/nutm")[0]
    places = [seed(cell, tmp_path / "solved", best={"bit_errors": 0.0}, solved_step=20, solved_seconds=2.0)]
    for name, diverged in (("nan", True), ("inf", True), ("killed", False)):
        places.append(failed(cell, tmp_path / name, name, diverged))
    found = summarise(cell, places)
    assert (found.seeds, found.failed, found.solved) == (1, 3, pytest.approx(1 / 3))


@pytest.mark.parametrize(
    ("only", "result"),
    [
        ("ngrams/ntm", {"best": {"cross_entropy_bits": 130.0, "optimum_bits": 128.0}}),
        ("continual/ntm", {"phases": ({"copy": 1.0},)}),
    ],
)
def test_what_can_not_be_solved_has_no_share_of_seeds_that_do(tmp_path, only, result):
    (cell,) = cells(only.split("/")[0] if "continual" in only else "single", only=only)
    assert summarise(cell, [seed(cell, tmp_path / "run", **result)]).solved is None


def test_the_optimum_beside_the_bits_of_several_seeds_is_the_mean_of_their_tests(tmp_path):
    cell = cells("single", only="ngrams/nutm")[0]
    tests = [
        {"cross_entropy_bits": bits, "optimum_bits": optimum} for bits, optimum in ((140.0, 126.0), (150.0, 130.0))
    ]
    found = summarise(cell, [seed(cell, tmp_path / str(i), best=best) for i, best in enumerate(tests)])
    assert found.best == 140.0
    assert found.document()["beside"]["optimum_bits"]["mean"] == 128.0


def test_accuracies_are_best_when_high_and_averaged_phase_by_phase(tmp_path):
    cell = cells("continual", only="/ntm")[0]
    one = ({"copy": 1.0, "sort": 0.5}, {"copy": 0.75, "sort": 1.0})
    two = ({"copy": 0.5, "sort": 0.5}, {"copy": 0.25, "sort": 0.5})
    found = summarise(cell, [seed(cell, tmp_path / str(i), phases=phases) for i, phases in enumerate((one, two))])
    assert (found.best, found.mean) == (0.875, 0.625)
    assert found.phases == [{"copy": 0.75, "sort": 0.5}, {"copy": 0.5, "sort": 0.75}]


def test_accuracies_by_presentation_have_their_interval_and_the_papers_beside_them(tmp_path):
    cell = cells("fewshot", only="omniglot-5/nutm")[0]
    tests = [{"accuracy/2": 0.8, "accuracy/2 ±": 0.03, "accuracy/4": 0.9, "accuracy/4 ±": 0.0, "error": 0.2}]
    tests.append({"accuracy/2": 0.9, "accuracy/2 ±": 0.04, "accuracy/4": 1.0, "accuracy/4 ±": 0.0, "error": 0.1})
    found = summarise(cell, [seed(cell, tmp_path / str(i), best=best) for i, best in enumerate(tests)])
    assert (found.best, found.mean, cell.published) == (0.9, pytest.approx(0.85), 0.857)
    assert [*found.breakdown] == ["2", "4"]
    second, fourth = found.breakdown.values()
    assert (second.best, second.mean, second.interval) == (0.9, pytest.approx(0.85), pytest.approx(0.025))
    assert (fourth.mean, fourth.interval) == (pytest.approx(0.95), 0.0)


def test_the_settings_of_few_shot_learning():
    found = {cell.name: cell for cell in cells("fewshot")}
    sizes = {"omniglot-5/mann": (None, 200), "omniglot-5/nutm": (2, 180), "omniglot-10/nutm": (3, 150)}
    for name, (programs, size) in sizes.items():
        machine = found[name].experiment.machine
        assert machine.controller.size == size
        assert (machine.programs and machine.programs.count) == programs
        assert (machine.memory.read_heads, machine.memory.write_heads) == (4, 1)
        assert (machine.memory.slots, machine.memory.width) == (128, 40)
    for name, cell in found.items():
        schedule, optimiser = cell.experiment.schedule, cell.experiment.optimiser
        assert schedule.persistent == ("persistent" in name)
        assert (schedule.iterations, schedule.batch_size, cell.experiment.task.easy_steps) == (100_000, 16, 0)
        assert (optimiser.kind, optimiser.learning_rate) == ("rmsprop", 1e-4)
        assert schedule.test_sequences >= 1_000
    beside = dict(found["omniglot-10-persistent/nutm"].beside)
    assert beside == pytest.approx({"accuracy/3": 0.779, "accuracy/5": 0.827})


def test_a_cell_without_a_result_has_no_figures(tmp_path):
    found = summarise(cells("ablation")[0], [tmp_path / "nothing"])
    assert (found.seeds, found.failed, found.best, found.mean, found.sd, found.solved) == (0, 0, None, None, None, None)


# --- campaigns --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """All experiments, two iterations a run: what was printed, and where the runs lie."""
    root = tmp_path_factory.mktemp("all")
    command = [sys.executable, "-m", "nsm", "reproduce", "all", "--seeds", "1", "--budget", "2", "--out", str(root)]
    command += ["--jobs", "1"]
    return root, subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)


def test_every_experiment_yields_its_table(everything):
    _, done = everything
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert list(document) == ["params", *EXPERIMENTS]
    for experiment, names in EXPECTED.items():
        rows = document[experiment]
        assert [f"{row['row']}/{row['model']}" for row in rows] == names
        for row in rows:
            assert (row["seeds"], row["failed"]) == (1, 0)
            assert row["best"] == row["mean"] == row["median"]
            assert row["sd"] is None
            assert row["solved"] == (None if row["row"].startswith(("ngrams", "continual")) else 0.0)
        lines = re.findall(rf"^{experiment}: (\d+)/{len(names)} runs.*; .* done$", done.stderr, re.M)
        assert lines == [str(number) for number in range(1, len(names) + 1)]
    first = done.stderr.splitlines()[0]
    assert re.match(r"all: \d+ runs, about \d+ (s|minutes) to go \(rough estimate\)", first)
    single = {(row["row"], row["model"]): row for row in document["single"]}
    assert single["repeat-copy", "nutm"]["published"] == 366.69
    assert single["ngrams", "ntm"]["measure"] == "cross_entropy_bits"
    assert single["ngrams", "ntm"]["beside"]["optimum_bits"]["mean"] < single["ngrams", "ntm"]["best"]
    assert all(0 <= a <= 1 for row in document["continual"] for phase in row["phases"] for a in phase.values())


def test_again_it_is_the_same_table_without_training(everything, nsm):
    root, done = everything
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    said = nsm("reproduce", "all", "--seeds", 1, "--budget", 2, "--out", root, "--json")
    assert (said.code, json.loads(said.out)) == (0, json.loads(done.stdout))
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def test_the_table_stands_beside_the_papers(everything, nsm):
    root, _ = everything
    said = nsm("reproduce", "single", "--seeds", 1, "--budget", 2, "--out", root)
    assert said.code == 0
    assert "single, paper settings: wrong bits per sequence" in said.out
    assert re.search(r"repeat-copy +nutm +366\.69 +[\d.,]+ ", said.out)
    assert "optimum" in said.out
    said = nsm("reproduce", "continual", "--seeds", 1, "--budget", 2, "--out", root)
    assert "accuracy on every task after each" in said.out
    assert re.search(r"nutm +repeat-copy +0\.\d{3} +0\.\d{3} +0\.\d{3} +0\.\d{3}", said.out)


def test_few_shot_learning_has_a_table_by_presentation(everything, nsm):
    root, _ = everything
    said = nsm("reproduce", "fewshot", "--seeds", 1, "--budget", 2, "--out", root)
    assert said.code == 0, said.err
    titles = [f"omniglot-{classes}{memory}" for memory in ("", "-persistent") for classes in (5, 10)]
    tables = re.split(r"^(\S+): accuracy by presentation *$", said.out, flags=re.M)[1:]
    assert tables[::2] == titles
    figure = r"\d+\.\d%( ± \d+\.\d%)?"
    for table in tables[1::2]:
        assert re.search(r"^ *mann +nutm *$", table, re.M)
        for presentation in range(1, 11):
            paper = r", paper \d\d\.\d%" if presentation in (2, 3, 5) else ""
            assert re.search(rf"^ *{presentation}( +{figure}{paper}){{2}} *$", table, re.M)
    for presentation, percent in ((2, 85.7), (3, 91.3), (5, 95.5)):
        assert re.search(rf"^ *{presentation} .* paper {percent}% *$", tables[1], re.M)
    run = RunDirectory(root / "fewshot" / "paper-2" / "omniglot-5-persistent" / "mann" / "seed-0")
    assert {"validation", "test"} <= run.lines()[-1].keys()
    assert {f"accuracy/{k}" for k in range(1, 8)} <= run.lines()[-1]["test"].keys()


def test_what_another_experiment_has_run_is_copied_not_run_again(everything):
    root, done = everything
    assert "ablation: 2 runs copied from other experiments" in done.stderr
    assert "factorial: 4 runs copied from other experiments" in done.stderr
    for row, model, twin in (("associative-recall", "ntm", "ntm-large"), ("repeat-copy", "nutm", "nutm-small")):
        run = root / "single" / "paper-2" / row / model / "seed-0"
        copied = root / "factorial" / "paper-2" / row / twin / "seed-0"
        for file in ("config.json", "metrics.jsonl", "result.json"):
            assert (copied / file).read_bytes() == (run / file).read_bytes()
        assert not (copied / "lock").exists()


def test_only_equal_finished_runs_are_adopted(tmp_path):
    cell, other = Cell("copy", "one", tiny()), Cell("copy", "other", tiny(batch_size=3))
    source = tmp_path / "single" / "default" / "copy" / "one"
    with Local(2) as engine:
        campaign.run([Job(cell, 0, source / "seed-0"), Job(cell, 1, source / "seed-1")], engine)
    (source / "seed-1" / "result.json").unlink()
    (tmp_path / "old" / "default" / "copy" / "x" / "seed-0").mkdir(parents=True)
    (tmp_path / "old" / "default" / "copy" / "x" / "seed-0" / "config.json").write_text("{}")
    there = tmp_path / "factorial" / "default" / "copy"
    same = Cell("copy", "same", tiny())
    wanted = [Job(c, seed, there / c.model / f"seed-{seed}") for c in (same, other) for seed in (0, 1)]
    assert campaign.adopt(wanted, tmp_path, "reference") == 0, "these were trained by the kernels"
    there.parent.mkdir(parents=True)
    there.touch()  # where no directory can be made
    assert campaign.adopt(wanted, tmp_path) == 0
    there.unlink()
    assert campaign.adopt(wanted, tmp_path) == 1
    assert [job.directory.exists() for job in wanted] == [True, False, False, False]
    assert campaign.adopt(wanted, tmp_path) == 0


def test_results_that_were_kept_are_not_run_again(everything, nsm, tmp_path):
    """On a machine that has the results alone: the same table at once, and of what is asked beyond it just the rest."""
    root, done = everything
    results, runs = tmp_path / "results", tmp_path / "runs"
    assert nsm("collect", "--runs", root, "--out", results).code == 0
    options = ["--budget", 2, "--jobs", 1, "--out", runs, "--results", results]
    said = nsm("reproduce", "all", "--seeds", 1, *options, "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out) == json.loads(done.stdout)
    assert "single: results of 12 runs found in " in said.err
    assert not list(runs.rglob("seed-*"))

    said = nsm("reproduce", "factorial", "--seeds", 2, *options, "--only", "associative-recall", "--json")
    assert said.code == 0, said.err
    assert [row["seeds"] for row in json.loads(said.out)] == [2] * 4
    assert sorted({run.name for run in runs.rglob("seed-*")}) == ["seed-1"]
    assert re.search(r"4/4 runs.*; associative-recall/nutm-small seed 1 done", said.err)

    said = nsm("reproduce", "factorial", "--seeds", 3, *options, "--only", "associative-recall/ntm-large")
    assert said.code == 0, said.err
    first, then = said.out.split("factorial, paper settings")[1:]
    seeds = [re.findall(r"ntm-large .* (\d) *$", table, re.MULTILINE) for table in (first, then)]
    assert seeds == [["2"], ["3"]], "what there is stands in a table before the rest is run"


def test_only_results_of_equal_finished_runs_are_kept_from_running(tmp_path):
    cell, other = Cell("copy", "one", tiny()), Cell("copy", "other", tiny(batch_size=3))
    runs, results = tmp_path / "runs", tmp_path / "results"
    source = runs / "single" / "default" / "copy" / "one"
    with Local(2) as engine:
        campaign.run([Job(cell, seed, source / f"seed-{seed}") for seed in (0, 1)], engine)
    (source / "seed-1" / "result.json").unlink()
    assert len(list(collect(runs, results))) == 3  # two seeds, one machine
    there = tmp_path / "new"
    wanted = [Job(c, seed, there / c.model / f"seed-{seed}") for c in (cell, other) for seed in (0, 1)]
    place = results / "single" / "default" / "copy" / "one" / "seed-0.json"
    assert campaign.published(wanted, results) == {wanted[0]: place}
    assert campaign.published(wanted, results, "reference") == {}, "these were trained by the kernels"
    wanted[0].directory.mkdir(parents=True)
    assert campaign.published(wanted, results) == {}, "a run that was begun goes on"
    wanted[0].directory.rmdir()
    document = documents.read_sealed(place)
    documents.write(place, {**document, "experiment": {**document["experiment"], "unknown": 1}})
    assert campaign.published(wanted, results) == {}, "what can't be read is trained"


def test_all_with_only_takes_the_experiments_that_have_such_cells(everything, nsm):
    root, _ = everything
    said = nsm("reproduce", "all", "--seeds", 1, "--budget", 2, "--out", root, "--only", "uniform", "--json")
    assert said.code == 0, said.err
    assert list(json.loads(said.out)) == ["params", "ablation"]


def test_a_run_of_another_configuration_stops_the_campaign_before_it_starts(everything, nsm):
    root, _ = everything
    config = root / "single" / "paper-2" / "copy" / "nutm" / "seed-0" / "config.json"
    document = documents.read_sealed(config)
    try:
        schedule = {**document["experiment"]["schedule"], "batch_size": 3}
        documents.write(config, {**document, "experiment": {**document["experiment"], "schedule": schedule}})
        said = nsm("reproduce", "single", "--seeds", 2, "--budget", 2, "--out", root)
    finally:
        documents.write(config, document)
    assert said.code == 2
    assert "holds a run of another configuration: schedule.batch_size was 3, is 1" in said.err
    assert not (root / "single" / "paper-2" / "copy" / "ntm" / "seed-1").exists()


def tiny(**changes):
    """A run of ten iterations; `changes` are of its schedule."""
    experiment = recipes.copy()
    machine = experiment.machine
    small = replace(
        machine,
        controller=replace(machine.controller, size=8),
        memory=replace(machine.memory, slots=16, width=4),
    )
    short = {"iterations": 10, "validation_sequences": 4, "test_sequences": 4, "log_every": 5, "evaluate_every": 50}
    return replace(experiment, machine=small, schedule=replace(experiment.schedule, **{**short, **changes}))


def test_a_run_that_diverges_or_dies_takes_no_other_with_it(monkeypatch, tmp_path):
    """Four runs on two processes: one goes well, one diverges, one's process is killed, and one comes after those."""
    monkeypatch.setattr(campaign, "TICK", 0.01)  # in a second the run that is to die might be over
    bad = replace(tiny(), optimiser=replace(tiny().optimiser, learning_rate=1e30))
    runs = {"diverges": bad, "dies": tiny(iterations=1500), "well": tiny(), "after": tiny()}
    planned = [Job(Cell("row", name, experiment), 0, tmp_path / name) for name, experiment in runs.items()]
    dies = planned[1]
    killed = []

    def tick(known):
        if not killed and known.get(dies, Status("done")) is None and campaign.progress(dies)[0] > 100:
            killed.append(int((dies.directory / "lock").read_text()))
            os.kill(killed[0], signal.SIGKILL)

    with Local(2, "fused") as engine:
        ended = {job.cell.model: status for job, status in campaign.run(planned, engine, tick).items()}
    assert ended["well"] == ended["after"] == Status("done")
    assert ended["diverges"].word == "failed"
    assert re.match("(the loss|a gradient|a weight) .*; the first bad tensor is ", ended["diverges"].reason)
    assert ended["dies"] == Status("failed", "its process died with exit code -9")
    failures = {job.cell.model: RunDirectory(job.directory).failure() for job in planned}
    assert failures["dies"].reason == "its process died with exit code -9"
    assert "the first bad tensor is" in failures["diverges"].reason
    assert failures["well"] is failures["after"] is None
    table = {job.cell.model: summarise(job.cell, [job.directory]) for job in planned}
    assert [(table[name].seeds, table[name].failed) for name in runs] == [(0, 1), (0, 1), (1, 0), (1, 0)]
    # Once more: what died goes on from its checkpoint and ends; what is done stays.
    with Local(1, "fused") as engine:
        assert campaign.run([dies, planned[2]], engine) == {dies: Status("done"), planned[2]: Status("done")}
    assert RunDirectory(dies.directory).failure() is None


def test_a_bug_in_a_run_is_told_with_its_kind(monkeypatch, tmp_path):
    from nsm.training import loop

    def broken(*_, **__):
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(loop, "train", broken)
    status = local._train(json.dumps(to_json(tiny())), str(tmp_path), "fused")
    assert status == Status("failed", "ZeroDivisionError: by zero")


def test_a_failed_run_shows_in_the_table_and_in_the_exit_code(nsm, monkeypatch, tmp_path):
    """What happens after a campaign with a failure, without running one."""

    def run(planned, engine, tick):
        failed(planned[0].cell, planned[0].directory, "no space left")
        return {job: Status("done") for job in planned} | {planned[0]: Status("failed", "no space left")}

    monkeypatch.setattr(campaign, "run", run)
    arguments = ("reproduce", "single", "--seeds", 1, "--only", "copy/ntm", "--out", tmp_path, "--budget")
    said = nsm(*arguments, 2)
    assert said.code == 1
    assert "0 (1 failed)" in said.out
    assert "copy/ntm seed 0 failed: no space left" in said.err
    said = nsm(*arguments, 3, "--json")
    assert said.code == 1
    assert json.loads(said.out)[0]["failed"] == 1


CAMPAIGN = ["reproduce", "single", "--only", "ngrams/", "--seeds", "1", "--budget", "1000000", "--preset", "default"]


def under_way(root, ended):
    """Wait until both runs of CAMPAIGN have metrics."""
    runs = [root / "single" / "default-1000000" / "ngrams" / model / "seed-0" for model in ("ntm", "nutm")]
    while not all((run / "metrics.jsonl").exists() and (run / "metrics.jsonl").stat().st_size for run in runs):
        ended()
        time.sleep(0.05)
    return runs


def assert_saved(runs):
    for run in map(RunDirectory, runs):
        saved = run.checkpoint("last").step
        assert saved >= run.lines()[-1]["step"], "the step under way was finished and saved"
        assert run.failure() is None


def test_a_stopped_campaign_saves_its_runs_and_goes_on(tmp_path):
    """Ctrl-C goes to all processes of a terminal; each run is stopped once, by the campaign, and saves."""
    command = [sys.executable, "-m", "nsm", *CAMPAIGN, "--out", str(tmp_path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, **pipes, start_new_session=True)

    def ended():
        assert process.poll() is None, process.communicate()[1]

    runs = under_way(tmp_path, ended)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 75, err
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("nsm: stopped and saved")
    assert_saved(runs)


def test_a_campaign_whose_terminal_is_closed_saves_its_runs(tmp_path):
    process, terminal = pty.fork()
    if not process:
        os.execv(sys.executable, [sys.executable, "-m", "nsm", *CAMPAIGN, "--out", str(tmp_path)])
    os.set_blocking(terminal, False)

    def ended():
        assert os.waitpid(process, os.WNOHANG) == (0, 0)
        with suppress(BlockingIOError):
            os.read(terminal, 1 << 16)

    runs = under_way(tmp_path, ended)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 75
    assert_saved(runs)


@pytest.mark.parametrize("width", [200, 80, 60])
def test_a_narrow_terminal_has_fewer_columns_and_the_table_says_which(tmp_path, monkeypatch, width):
    cell = cells("single", only="copy/nutm")[0]
    best = {"bit_errors": 123.25, "l1_errors": 125.5}
    found = summarise(cell, [seed(cell, tmp_path / "run", best=best, solved_step=9, solved_seconds=1.0)])
    console = Console(width=width, file=io.StringIO())
    monkeypatch.setattr(tables, "console", lambda: console)
    (table,) = tables.results("single", "paper", [found])
    headers = {column.header for column in table.columns}
    left_out = [column for column in tables.DISPENSABLE if column not in headers | {"optimum"}]
    assert {"paper", "best", "solved", "seeds"} <= headers
    assert bool(left_out) == (width < 100)
    assert left_out == [column for column in tables.DISPENSABLE if column != "optimum"][: len(left_out)]
    assert (f"not shown on this narrow terminal: {', '.join(left_out)}" in str(table.caption)) == bool(left_out)
    console.print(table)
    assert "…" not in console.file.getvalue(), "nothing is cut off"
