"""What is kept of runs: small, complete, the same from either source, and machines that can be used at once."""

import json
import os
import re
import shutil
import signal
from collections import Counter
from dataclasses import replace
from itertools import combinations
from statistics import NormalDist

import numpy as np
import pytest

from cli.conftest import call
from nsm import documents
from nsm.checks import UserError
from nsm.experiments import intervals, recipes, results
from nsm.experiments.paper import Cell, cells
from nsm.experiments.results import Key
from nsm.experiments.summary import summarise
from nsm.files import is_temporary
from nsm.reports.paper import synthetic
from nsm.reports.paper.evidence import Evidence
from nsm.training.run import RunDirectory
from nsm.tree import to_json
from reports.made_up import TINY, curve, keep
from training.faults import Faults, ended, forked

CELL = ("single", "default", "copy", "nutm")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two finished seeds of a cell, one that failed and one that is not over, as `nsm reproduce` lays runs out."""
    root = tmp_path_factory.mktemp("kept") / "runs"
    options = ["--iterations", "6", "--evaluate-every", "2", "--log-every", "1", "--backend", "reference"]
    for seed in range(4):
        said = call("train", "copy", *TINY, *options, "--seed", seed, "--out", root.joinpath(*CELL, f"seed-{seed}"))
        assert said.code == 0, said.err
    for seed in (2, 3):
        root.joinpath(*CELL, f"seed-{seed}", "result.json").unlink()
    RunDirectory(root.joinpath(*CELL, "seed-2")).fail("the loss became nan", 5)
    return root


@pytest.fixture
def kept(runs, tmp_path):
    said = list(results.collect(runs, tmp_path / "results"))
    assert any("seed-3.json, unfinished: 6 iterations" in line for line in said)
    return tmp_path / "results"


def test_of_a_run_that_is_not_over_its_curve_is_kept_and_a_newer_one_goes_before_it(runs, kept, tmp_path):
    place = kept.joinpath(*CELL, "seed-3.json")
    found = results.read(place)
    assert (found.outcome, found.failure) == (None, None)
    assert [line["step"] for line in found.evaluations] == [2, 4, 6]
    later = shutil.copytree(runs, tmp_path / "later")
    assert Evidence(later, kept).paths[Key(*CELL, 3)] == later.joinpath(*CELL, "seed-3")
    over = results.read(kept.joinpath(*CELL, "seed-0.json"))
    results.write(replace(over, experiment=replace(over.experiment, seed=3)), place)
    assert Evidence(later, kept).paths[Key(*CELL, 3)] == place, "what was kept is over, and the run is not"
    before = place.read_bytes()
    assert any("got further: kept" in line for line in results.collect(later, kept))
    assert place.read_bytes() == before, "a run that is not over takes nothing away"
    later.joinpath(*CELL, "seed-3", "metrics.jsonl").write_text("")
    said = list(results.collect(later, tmp_path / "again"))
    assert any("seed-3 has no evaluation yet: left out" in line for line in said)


def test_what_was_kept_of_a_run_that_ended_outlives_its_failure_when_it_is_run_again(runs, kept, tmp_path):
    again = shutil.copytree(runs, tmp_path / "again")
    again.joinpath(*CELL, "seed-0", "result.json").unlink()
    RunDirectory(again.joinpath(*CELL, "seed-0")).fail("its process died with exit code -9", None)
    place = kept.joinpath(*CELL, "seed-0.json")
    before = place.read_bytes()
    assert any("seed-0 failed, but" in line for line in results.collect(again, kept))
    assert place.read_bytes() == before
    assert Evidence(again, kept).paths[Key(*CELL, 0)] == place


def test_a_damaged_run_is_named_and_the_others_are_kept_and_a_damaged_file_is_written_anew(runs, kept, tmp_path):
    spoilt = shutil.copytree(runs, tmp_path / "spoilt")
    spoilt.joinpath(*CELL, "seed-0", "metrics.jsonl").write_text("nothing\n")
    said = list(results.collect(spoilt, tmp_path / "out"))
    assert any("metrics.jsonl is damaged" in line and "left out" in line for line in said)
    assert sorted(path.name for path in (tmp_path / "out").joinpath(*CELL).iterdir()) == [
        *("seed-1.json", "seed-2.json", "seed-3.json")
    ]
    place = kept.joinpath(*CELL, "seed-1.json")
    before = place.read_bytes()
    place.write_bytes(before[:100])
    list(results.collect(runs, kept))
    assert place.read_bytes() == before


def test_no_machine_is_kept_of_runs_cut_short(runs, kept, tmp_path):
    assert kept.joinpath("models", *CELL).is_dir()
    shutil.copytree(runs / "single" / "default", tmp_path / "short" / "single" / "default-6")
    list(results.collect(tmp_path / "short", tmp_path / "cut"))
    assert (tmp_path / "cut" / "single" / "default-6" / "copy" / "nutm" / "seed-0.json").is_file()
    assert not (tmp_path / "cut" / "models").exists()


# --- curves -----------------------------------------------------------------------------------------------------------


def test_a_thinned_curve_averages_losses_and_keeps_the_latest_evaluation():
    lines = [{"step": n + 1, "loss": float(n)} for n in range(10)]
    lines[2]["validation"] = {"loss": 7.0}
    lines[3]["validation"] = {"loss": 8.0}
    found = results.thinned(lines, 2)
    assert found == [{"step": 5, "loss": 2.0, "validation": {"loss": 8.0}}, {"step": 10, "loss": 7.0}]
    assert results.thinned(lines, 10) == lines
    assert results.thinned([], 10) == []


@pytest.mark.parametrize("lines", [1, 199, 201, 1_000, 12_345])
def test_a_curve_has_no_more_points_than_it_may_and_ends_where_it_ended(lines):
    found = results.thinned([{"step": n + 1, "loss": 1.0} for n in range(lines)], 200)
    assert len(found) <= 200
    assert found[-1]["step"] == lines
    assert all(line["loss"] == 1.0 for line in found)


def test_a_kept_result_is_small_however_long_the_run(tmp_path):
    many = {f"accuracy/{n}": 0.123456789 for n in range(20)}
    lines = [{"step": 100 * n, "loss": 0.123456789 * n, "validation": many} for n in range(1, 3_000)]
    place = keep(tmp_path, *CELL, 0, curve=lines)
    assert place.stat().st_size <= 20 << 10
    found = results.read(place).curve
    assert found[-1]["step"] == 299_900
    assert found[-1]["validation"]["accuracy/3"] == 0.12346


# --- reading ----------------------------------------------------------------------------------------------------------


def test_a_kept_result_says_what_the_run_says(runs, kept):
    for seed in (0, 1, 2):
        run = results.read(runs.joinpath(*CELL, f"seed-{seed}"))
        file = results.read(kept.joinpath(*CELL, f"seed-{seed}.json"))
        assert (file.experiment, file.made_with) == (run.experiment, run.made_with)
        assert file.experiment.seed == seed
        assert (file.outcome, file.failure) == (run.outcome, run.failure)
        assert [line["step"] for line in file.curve] == [line["step"] for line in run.curve]
        assert file.curve[3]["loss"] == pytest.approx(run.curve[3]["loss"], rel=1e-4)


def test_summaries_are_the_same_from_either_source(runs, kept):
    cell = Cell("copy", "nutm", RunDirectory(runs.joinpath(*CELL, "seed-0")).experiment)
    from_runs = summarise(cell, [runs.joinpath(*CELL, f"seed-{seed}") for seed in range(4)])
    from_files = summarise(cell, [kept.joinpath(*CELL, f"seed-{seed}.json") for seed in range(3)])
    assert from_runs.document() == from_files.document()
    assert (from_runs.seeds, from_runs.failed) == (2, 1)
    assert len(from_runs.figures) == 2


def test_runs_and_results_are_found_by_whose_they_are(runs, kept):
    assert set(results.find(runs)) == {Key(*CELL, seed) for seed in range(4)}
    assert set(results.find(kept)) == {Key(*CELL, seed) for seed in range(4)}, "kept machines are no results"
    assert results.find(runs / "nowhere") == {}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is damaged: not JSON"),
        ("[]", "is not an nsm result"),
        ('{"format": "nsm-result", "version": 99}', "has version 99; this nsm reads version 2"),
        ('{"format": "nsm-result", "version": 2}', "is damaged: its sha256 is not the one it was written with"),
        ('{"format": "nsm-result", "version": 1e999}', "is damaged: the number 1e999 is too large"),
        ("[" * 5000, "is damaged: nested more than 32 deep"),
    ],
)
def test_a_damaged_result_is_one_sentence(tmp_path, content, words):
    place = tmp_path / "seed-0.json"
    place.write_text(content)
    with pytest.raises(UserError, match=words):
        results.read(place)


def reseal(place, change):
    """Change a kept result, and seal it anew."""
    document = documents.read_sealed(place)
    change(document)
    documents.write(place, document)


FOREIGN = {
    "no curve": (lambda d: d.pop("curve"), "is damaged: curve must be a list"),
    "no outcome": (lambda d: d.pop("outcome"), "is damaged: it.outcome is missing"),
    "another field": (lambda d: d.update(curves=[]), "is damaged: a field of it must be .* was 'curves'"),
    "a list": (lambda d: d.update(outcome=[]), "is damaged: it.outcome must be an object, was \\[\\]"),
    "nothing in it": (lambda d: d["outcome"].clear(), "is damaged: it.outcome.steps is missing"),
    "no figures": (lambda d: d["outcome"].pop("best"), "is damaged: an outcome needs the figures of the best"),
    "no loss": (lambda d: d["outcome"]["best"]["figures"].pop("loss"), "is damaged: an outcome needs the figures"),
    "a text for a figure": (
        lambda d: d["outcome"]["best"]["figures"].update(loss="0"),
        "it.outcome.best.figures.loss must be float, was '0'",
    ),
    "an empty phase": (lambda d: d["outcome"].update(phases=[{}]), "is damaged: a phase has no figures"),
    "another experiment": (lambda d: d["experiment"]["task"].update(width=0), "is damaged: Copy.width is 0"),
    "a task of nobody's": (
        lambda d: d["experiment"]["task"].update(kind="Copi"),
        "is damaged: it.experiment.task.kind",
    ),
    "no step": (lambda d: d["curve"][0].pop("step"), "is damaged: curve.step is missing"),
    "a text for a curve": (lambda d: d["curve"][0].update(validation="0"), "curve.validation must be dict"),
    "another seed": (lambda d: d["experiment"].update(seed=7), "is not the result of seed 0: it is of seed 7"),
    "another model": (lambda d: d["of"].update(model="ntm"), "it was written for single/default/copy/ntm/0"),
    "nobody": (lambda d: d.pop("of"), "it was written for no cell"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_result_of_something_else_is_one_sentence(tmp_path, name):
    change, words = FOREIGN[name]
    place = keep(tmp_path, *CELL, 0)
    reseal(place, change)
    with pytest.raises(UserError, match=words):
        results.read(place)


def test_no_flipped_bit_of_a_kept_result_goes_unnoticed(tmp_path):
    place = keep(tmp_path, *CELL, 0)
    content, unharmed = place.read_bytes(), results.read(place)
    for at in range(len(content) - 1):
        changed = bytearray(content)
        changed[at] ^= 1 << at % 8
        place.write_bytes(changed)
        if re.fullmatch(rb"\de-\d", content[at - 1 : at + 3]) and changed[at : at + 1] == b"E":
            assert results.read(place) == unharmed, "1E-08 is the number that 1e-08 is"
            continue
        with pytest.raises(UserError):
            results.read(place)


def test_a_result_counts_where_it_was_kept_and_nowhere_else(tmp_path):
    place = keep(tmp_path, *CELL, 0)
    other = tmp_path.joinpath(*CELL[:3], "ntm", "seed-0.json")
    other.parent.mkdir()
    shutil.copyfile(place, other)
    with pytest.raises(UserError, match=r"ntm/seed-0\.json is not the result of seed 0 of single/default/copy/ntm"):
        synthetic.single(Evidence(None, tmp_path))


def test_a_result_of_another_task_in_a_cell_is_one_sentence(tmp_path):
    place = keep(tmp_path, *CELL, 0)
    (cell,) = [cell for cell in cells("single", "default") if (cell.row, cell.model) == ("copy", "nutm")]
    summarise(cell, [place])
    reseal(place, lambda document: document["outcome"]["best"]["figures"].pop("bit_errors"))
    with pytest.raises(UserError, match=r"seed-0\.json is damaged: a result has no bit_errors"):
        summarise(cell, [place])
    other = recipes.ngrams()
    reseal(place, lambda document: document.update(experiment=to_json(other)))
    with pytest.raises(UserError, match=r"seed-0\.json is a result of ngrams among results of copy"):
        summarise(cell, [place])


def test_a_kept_machine_of_another_cell_is_one_sentence(kept):
    model = kept / "models" / "/".join(CELL)
    assert results.published_outcome(model) == RunDirectory(model).outcome()
    assert RunDirectory(model).owner()["model"] == "nutm"
    other = shutil.copytree(model, model.parent / "ntm")
    with pytest.raises(
        UserError, match=r"models/single/default/copy/ntm is not the machine of single/default/copy/ntm"
    ):
        results.published_outcome(other)


def test_metrics_that_are_damaged_in_the_middle_are_one_sentence(runs, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(runs.joinpath(*CELL, "seed-0"), run)
    lines = (run / "metrics.jsonl").read_bytes().split(b"\n")
    (run / "metrics.jsonl").write_bytes(b"\n".join([lines[0], lines[1][:9], *lines[2:]]))
    with pytest.raises(UserError, match=r"metrics.jsonl is damaged: line 2 is not a line of metrics"):
        results.read(run)
    (run / "metrics.jsonl").write_bytes(b"\n".join(lines)[:-9])
    assert len(results.read(run).curve) == len(lines) - 2, "a last line that is being written is left out"


def test_a_run_that_does_not_say_what_it_was_is_one_sentence(runs, tmp_path):
    run = shutil.copytree(runs.joinpath(*CELL, "seed-0"), tmp_path / "run")
    reseal(run / "config.json", lambda document: document.pop("experiment"))
    with pytest.raises(UserError, match=r"result.json is damaged: it belongs to a run of another configuration"):
        results.read(run)
    (run / "result.json").unlink()
    with pytest.raises(UserError, match=r"config.json is not one of this nsm's: experiment must be an object"):
        results.read(run)


# --- machines ---------------------------------------------------------------------------------------------------------


def test_the_best_machine_of_a_cell_is_kept_as_a_small_run(runs, kept):
    losses = {seed: RunDirectory(runs.joinpath(*CELL, f"seed-{seed}")).outcome().badness for seed in (0, 1)}
    best = min(losses, key=losses.get)
    copy, run = RunDirectory(kept / "models" / "/".join(CELL)), RunDirectory(runs.joinpath(*CELL, f"seed-{best}"))
    assert copy.experiment == run.experiment
    assert copy.outcome() == run.outcome()
    assert (copy.owner(), run.owner()) == (Key(*CELL, best)._asdict(), {})
    assert copy.made_with == run.made_with
    mine, theirs = copy.machine().state_dict(), run.machine("best").state_dict()
    assert all(np.array_equal(mine[name], theirs[name]) for name in theirs)
    assert copy.checkpoint("last").step == copy.checkpoint("best").step
    assert not copy.checkpoint().optimiser, "half of a checkpoint is the optimiser's"


def test_commands_take_a_kept_machine_at_once(kept, tmp_path):
    model = kept / "models" / "/".join(CELL)
    said = call("eval", model, "--sequences", 4, "--json", "--backend", "reference")
    assert said.code == 0, said.err
    published = RunDirectory(model).outcome().best.figures
    assert json.loads(said.out)["figures"]["bit_errors"] == pytest.approx(published["bit_errors"])
    said = call("view", model, "--length", 3, "--out", tmp_path / "page.html")
    assert said.code == 0, said.err


def test_a_better_machine_that_is_kept_already_stays(runs, kept):
    model = kept / "models" / "/".join(CELL)
    reseal(model / "result.json", lambda document: document["best"]["figures"].update(loss=0.0))
    assert not any("the machine of" in line for line in results.collect(runs, kept))
    reseal(model / "result.json", lambda document: document["best"]["figures"].update(loss=99.0))
    assert any("the machine of" in line for line in results.collect(runs, kept))


def test_a_machine_that_is_too_large_is_left_where_it_is(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(results, "LARGEST_MODEL", 1_000)
    said = list(results.collect(runs, tmp_path))
    assert any("bytes, more than 1,000: left out" in line for line in said)
    assert not (tmp_path / "models").exists()


def test_of_continual_learning_the_one_that_remembers_most_is_best(tmp_path):
    good, bad = (
        keep(
            tmp_path, "continual", "paper", "continual", model, 0, phases=[{"a": 1.0, "b": 0.0}, {"a": share, "b": 1.0}]
        )
        for model, share in (("nutm", 0.9), ("ntm", 0.2))
    )
    assert results.read(good).outcome.badness < results.read(bad).outcome.badness
    assert results.read(good).outcome.figure(cells("continual")[0].measure) == pytest.approx(0.95)


def test_collecting_twice_gives_the_same_files(runs, kept):
    before = {path: path.read_bytes() for path in kept.rglob("*") if path.is_file()}
    list(results.collect(runs, kept))
    assert {path: path.read_bytes() for path in kept.rglob("*") if path.is_file()} == before


@pytest.mark.thorough
def test_collecting_may_be_killed_at_any_moment(runs, tmp_path, monkeypatch):
    """What was kept before is there, old or new, and the next time all is as if nothing had happened."""

    def machine_has_changed(kept):
        reseal(kept / "result.json", lambda document: document["best"]["figures"].update(loss=99.0))

    def files(root):
        return {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}

    whole = tmp_path / "whole"
    with monkeypatch.context() as patch:
        counted = Faults(patch, None, lambda: None)
        list(results.collect(runs, whole))
    for at in range(1, counted.count + 1):
        out = shutil.copytree(whole, tmp_path / f"killed-{at}")
        machine_has_changed(out / "models" / "/".join(CELL))

        def die_at(at=at, out=out):
            with monkeypatch.context() as patch:
                Faults(patch, at, lambda: os.kill(os.getpid(), signal.SIGKILL))
                list(results.collect(runs, out))

        ended(forked(die_at))
        for place in results.find(out).values():
            results.read(place)
        list(results.collect(runs, out))
        left = {path: content for path, content in files(out).items() if not any(map(is_temporary, path.parents))}
        assert {path: content for path, content in left.items() if not is_temporary(path)} == files(whole)


# --- the command ------------------------------------------------------------------------------------------------------


def test_collect_says_what_it_keeps(runs, tmp_path):
    said = call("collect", "--runs", runs, "--out", tmp_path / "out")
    assert said.code == 0, said.err
    assert said.out.count("wrote ") == 5
    assert (tmp_path / "out").joinpath(*CELL, "seed-1.json").is_file()


def test_nothing_to_collect_is_one_sentence(tmp_path):
    said = call("collect", "--runs", tmp_path, "--out", tmp_path / "out")
    assert said.code == 2
    assert f"{tmp_path} contains no runs of nsm reproduce" in said.err
    assert not (tmp_path / "out").exists()


def test_results_without_a_place_of_their_own_lie_among_the_runs(runs, tmp_path, monkeypatch):
    """What a checkout publishes under results/ is replaced only by name, and results are not taken for runs."""
    shutil.copytree(runs, tmp_path / "runs")
    (tmp_path / "results").mkdir()
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        said = call("collect")
        assert said.code == 0, said.err
        assert said.out.count("seed-1.json") == 1
    assert (tmp_path / "runs" / "results").joinpath(*CELL, "seed-1.json").is_file()
    assert list((tmp_path / "results").iterdir()) == []


# --- intervals --------------------------------------------------------------------------------------------------------


def test_an_interval_is_that_of_the_normal_law_where_seeds_are_many():
    random = np.random.default_rng(3)
    ours, theirs = random.normal(1.0, 2.0, 400), random.normal(0.0, 1.0, 300)
    value, (low, high) = intervals.of_means([(1, ours), (-1, theirs)])
    middle = ours.mean() - theirs.mean()
    assert value == pytest.approx(middle)
    error = np.sqrt(ours.var() / 400 + theirs.var() / 300)
    wide = NormalDist().inv_cdf(0.975) * error
    assert low == pytest.approx(middle - wide, abs=0.1 * wide)
    assert high == pytest.approx(middle + wide, abs=0.1 * wide)


def test_an_interval_is_the_same_every_time_and_needs_five_seeds_a_side():
    cells = [(1, [1, 2, 3, 4, 5, 6]), (-1, [0, 1, 2, 3, 4])]
    assert intervals.of_means(cells) == intervals.of_means(cells)
    few = intervals.of_means([(1, [1, 2, 3, 4, 5, 6]), (-1, [0, 1, 2, 3])])
    assert few == (2, None)
    assert few.above_zero is None
    assert few.texts() == ("+2.0", "needs 5 of each")

    def alike(value):
        return [value] * 5

    assert intervals.of_means([(1, alike(5)), (-1, alike(1))]) == (4, (4, 4))
    both = [(0.5, alike(5)), (-0.5, alike(1)), (0.5, alike(2)), (-0.5, alike(4))]
    assert intervals.of_means(both) == (1, (1, 1))
    _, (low, high) = intervals.of_means([(1, [1, 1, 1, 2, 2]), (-1, [2, 2, 1, 1, 1])])
    assert low == -high


def test_curves_can_be_made_up():
    assert curve(0.5, 0.25, every=10)[1] == {"step": 20, "loss": 0.25, "validation": {"loss": 0.25}}


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (81, 263, 0.2553, 0.3662)],
)
def test_the_interval_of_a_share_is_wilsons(successes, trials, low, high):
    """The last is the example of Newcombe (1998), by hand the others."""
    assert intervals.of_share(successes, trials) == pytest.approx((low, high), abs=1e-4)


def solved(successes, trials):
    return [seed < successes for seed in range(trials)]


@pytest.mark.parametrize(
    ("ours", "theirs", "low", "high"),
    [
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((5, 56), (0, 29), -0.0381, 0.1926),
        ((10, 10), (0, 10), 0.6075, 1.0),
    ],
)
def test_the_interval_of_two_shares_difference_is_newcombes(ours, theirs, low, high):
    """The examples of Newcombe (1998), Interval estimation for the difference between independent proportions."""
    found = intervals.of_shares([(1, solved(*ours)), (-1, solved(*theirs))])
    assert found.value == pytest.approx(ours[0] / ours[1] - theirs[0] / theirs[1])
    assert found.above_zero == (low > 0)
    assert found.interval == pytest.approx((low, high), abs=1e-4)


def test_shares_averaged_over_a_second_factor_are_surer_than_either():
    """By the normal law where seeds are many; and nothing is certain where all of a few succeed."""
    shares, trials = (0.7, 0.4, 0.6, 0.5), 4000
    weights = (0.5, -0.5, 0.5, -0.5)
    cells = [(w, solved(round(p * trials), trials)) for w, p in zip(weights, shares, strict=True)]
    half = NormalDist().inv_cdf(0.975) * np.sqrt(sum(0.25 * p * (1 - p) / trials for p in shares))
    assert intervals.of_shares(cells).interval == pytest.approx((0.2 - half, 0.2 + half), abs=1e-3)
    all_solve = [True] * 20
    _, (low, high) = intervals.of_shares([(1, all_solve), (-1, all_solve)])
    assert low == -high
    assert high == pytest.approx(1 - intervals.of_share(20, 20)[0])


@pytest.mark.parametrize(
    ("values", "count", "least"),
    [
        ([3.0, 1.0, 2.0], 2, [(1.0, 2 / 3), (2.0, 1 / 3), (3.0, 0.0)]),
        ([3.0, 1.0, 2.0], 5, [(1.0, 1.0), (2.0, 0.0), (3.0, 0.0)]),
        ([7.0], 5, [(7.0, 1.0)]),
    ],
)
def test_the_best_of_a_few_seeds_is_that_of_all_choices(values, count, least):
    assert intervals.best_of(values, count) == [(value, pytest.approx(p)) for value, p in least]


def test_the_best_of_five_of_ten_is_as_often_what_it_is_as_choices_are_counted():
    values = [4.0, 1.0, 9.0, 2.0, 6.0, 3.0, 8.0, 5.0, 7.0, 0.0]
    counted = Counter(min(chosen) for chosen in combinations(values, 5))
    found = dict(intervals.best_of(values, 5))
    assert found == {value: pytest.approx(counted[value] / counted.total()) for value in values}
