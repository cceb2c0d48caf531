"""Curves, bars and states show the numbers they were given."""

from dataclasses import replace

import numpy as np
import pytest

from nsm.plots import style
from nsm.reports import figures
from nsm.reports.figures.states import principal_components, processing_states, silhouette
from reports.made_up import curve

# --- learning curves --------------------------------------------------------------------------------------------------


def test_every_seed_is_a_line_and_their_median_a_thick_one():
    """Of three seeds one does not learn: nobody sees a mean that no seed has."""
    seeds = [curve(0.6, 0.4, 0.2), curve(0.4, 0.2, 0.0), curve(0.6, 0.6, 0.6)]
    (ax,) = figures.learning_curves({"copy": {"nutm": seeds}}).axes
    *lines, median = ax.lines
    for line, losses in zip(lines, ([0.6, 0.4, 0.2], [0.4, 0.2, 0.0], [0.6, 0.6, 0.6]), strict=True):
        assert line.get_xdata() == pytest.approx([0.1, 0.2, 0.3]), "thousands of iterations"
        assert line.get_ydata() == pytest.approx(losses)
        assert line.get_linewidth() < median.get_linewidth()
    assert median.get_ydata() == pytest.approx([0.6, 0.4, 0.2])
    assert median.get_label() == "NUTM, 3 seeds, median"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["NUTM, 3 seeds, median"]
    assert not ax.collections, "no band"


def test_two_seeds_have_no_median():
    (ax,) = figures.learning_curves({"copy": {"nutm": [curve(0.6, 0.4), curve(0.4, 0.2)]}}).axes
    assert len(ax.lines) == 2
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["NUTM, 2 seeds"]


def test_a_seed_counts_as_far_as_it_was_trained():
    seeds = [curve(0.6, 0.4), curve(0.4, 0.2, 0.1, 0.05), curve(0.5, 0.3, 0.2)]
    assert figures.learning_curves({"copy": {"ntm": seeds}}).axes[0].lines[-1].get_ydata() == pytest.approx(
        [0.5, 0.3, 0.1, 0.05]
    )


def test_an_axis_may_count_epochs():
    (ax,) = figures.learning_curves({"babi": {"dnc": [curve(0.6, 0.4)]}}, across=(50.0, "epochs")).axes
    assert ax.lines[0].get_xdata() == pytest.approx([2, 4])
    assert ax.get_xlabel() == "epochs"


def test_every_task_has_a_panel_and_every_model_a_line():
    panels = {task: {"ntm": [curve(0.5)], "nutm": [curve(0.4)]} for task in ("copy", "ngrams", "sort", "recall")}
    figure = figures.learning_curves(panels)
    assert [ax.get_title(loc="left") for ax in figure.axes] == list(panels)
    for ax in figure.axes:
        assert [line.get_label() for line in ax.lines] == ["NTM, 1 seed", "NUTM, 1 seed"]
        assert ax.get_ylim() == (0, 0.75), "one scale for all"
        assert ax.get_xlabel() == "iterations (thousands)"
    assert figure.axes[0].get_ylabel() == "training loss (nats per bit)"


def test_a_curve_beyond_guessing_is_not_cut_off():
    figure = figures.learning_curves({"copy": {"ntm": [curve(0.6, 1.8)]}, "recall": {"ntm": [curve(0.6, 0.2)]}})
    assert [ax.get_ylim()[1] for ax in figure.axes] == pytest.approx([1.05 * 1.8, 0.75])


def test_a_model_looks_the_same_everywhere_and_others_differ():
    models = ["nutm", "direct", "key-value", "uniform", "ntm", "ntm-2-heads"]
    figure = figures.learning_curves({"recall": {model: [curve(0.5, 0.4)] for model in models}})
    looks = [(line.get_color(), str(line.get_linestyle()), line._dash_pattern) for line in figure.axes[0].lines]
    assert len({str(look) for look in looks}) == len(models)
    apart = figures.learning_curves({model: {model: [curve(0.5, 0.4)]} for model in models})
    assert [ax.lines[0].get_color() for ax in apart.axes] == [look[0] for look in looks], "in panels of their own, too"
    assert looks[0][0] == style.MODELS["nutm"][0]
    assert looks[4][0] == style.MODELS["ntm"][0]


def test_a_figure_of_an_evaluation_can_be_followed():
    lines = [{"step": 100, "test": {"accuracy/2": 0.5}}, {"step": 200}, {"step": 300, "test": {"accuracy/2": 0.9}}]
    figure = figures.learning_curves({"omniglot-5": {"mann": [lines]}}, "test/accuracy/2", "accuracy", top=1.0)
    (line,) = figure.axes[0].lines
    assert line.get_xydata().tolist() == [[0.1, 0.5], [0.3, 0.9]]
    assert figure.axes[0].get_ylabel() == "accuracy"


def test_a_model_without_a_line_of_metrics_is_left_out():
    figure = figures.learning_curves({"copy": {"ntm": [[]], "nutm": [curve(0.4)]}})
    assert [line.get_label() for line in figure.axes[0].lines] == ["NUTM, 1 seed"]


# --- bars -------------------------------------------------------------------------------------------------------------


def heights(ax):
    return [[bar.get_height() for bar in group] for group in ax.containers if hasattr(group, "patches")]


def test_continual_learning_has_a_panel_after_each_task_and_an_average():
    seeds = [
        [{"copy": 1.0, "repeat-copy": 0.5}, {"copy": 0.8, "repeat-copy": 1.0}],
        [{"copy": 0.9, "repeat-copy": 0.5}, {"copy": 0.6, "repeat-copy": 1.0}],
    ]
    figure = figures.continual({"ntm": seeds, "nutm": seeds[:1]})
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert titles == ["after copy", "after repeat-copy", "mean of all tasks"]
    assert heights(figure.axes[0]) == [pytest.approx([0.95, 0.5]), pytest.approx([1.0, 0.5])]
    assert heights(figure.axes[1]) == [pytest.approx([0.7, 1.0]), pytest.approx([0.8, 1.0])]
    assert heights(figure.axes[2]) == [pytest.approx([0.725, 0.85]), pytest.approx([0.75, 0.9])]
    error = next(group for group in figure.axes[0].containers if group.get_label().startswith("_"))
    (segments,) = error.lines[2]
    first = segments.get_segments()[0]
    assert first[1, 1] - first[0, 1] == pytest.approx(2 * np.std([1.0, 0.9], ddof=1))
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["C", "RC"]


def test_question_answering_has_bars_of_ours_and_marks_of_the_paper():
    figure = figures.errors_by_task(
        ["one", "two"], {"nutm-4": [[1.0, 20.0], [3.0, 40.0]]}, {"paper, mean": [0.5, 18.4]}
    )
    (ax,) = figure.axes
    assert heights(ax) == [pytest.approx([2.0, 30.0])]
    marks = next(line for line in ax.lines if line.get_label() == "paper, mean")
    assert marks.get_ydata().tolist() == [0.5, 18.4]
    assert figures.errors_by_task(["one"], {}, {"paper": [1.0]}).axes[0].lines, "without runs the paper's remain"


# --- states -----------------------------------------------------------------------------------------------------------


def test_principal_components_are_the_eigenvectors_of_the_covariance():
    random = np.random.default_rng(0)
    states = random.normal(size=(200, 4)) @ np.diag([5, 3, 1, 0.1]) @ np.linalg.qr(random.normal(size=(4, 4)))[0]
    places, shares = principal_components(states)
    values, vectors = np.linalg.eigh(np.cov(states.T))
    for k in range(2):
        expected = (states - states.mean(axis=0)) @ vectors[:, -1 - k]
        assert np.allclose(np.abs(places[:, k]), np.abs(expected))
    assert shares == pytest.approx(values[::-1][:2] / values.sum())
    assert np.array_equal(principal_components(states)[0], places)


def test_the_silhouette_is_that_of_its_definition():
    random = np.random.default_rng(1)
    points = np.concatenate([random.normal(centre, 1, (12, 3)) for centre in (0, 2, 5)])
    labels = ["a"] * 12 + ["b"] * 12 + ["c"] * 11 + ["alone"]
    scores = []
    for i, point in enumerate(points):
        distances = {
            name: [np.linalg.norm(point - other) for j, other in enumerate(points) if labels[j] == name and j != i]
            for name in set(labels)
        }
        own = distances.pop(labels[i])
        if not own:
            scores.append(0.0)
            continue
        inside, outside = np.mean(own), min(np.mean(others) for others in distances.values())
        scores.append((outside - inside) / max(inside, outside))
    assert silhouette(points, labels) == pytest.approx(np.mean(scores))


def test_the_silhouette_tells_clusters_from_none():
    random = np.random.default_rng(2)
    apart = np.concatenate([random.normal(0, 0.1, (50, 2)), random.normal(9, 0.1, (50, 2))])
    labels = ["a"] * 50 + ["b"] * 50
    assert silhouette(apart, labels) > 0.95
    assert abs(silhouette(random.normal(size=(100, 2)), labels)) < 0.1
    assert silhouette(apart, ["a", "b"] * 50) < 0.05
    assert silhouette(apart, ["a"] * 100) == 0.0
    assert silhouette(np.zeros((4, 2)), ["a", "a", "b", "b"]) == 0.0


def test_every_seed_is_inside_its_panel():
    figure = figures.seeds({"short": {("ntm", "paper"): [0.0, 3.0]}, "long": {("ntm", "paper"): [800.0, 1.0]}})
    for ax in figure.axes:
        low, high = ax.get_ylim()
        assert low == 0
        assert high > 800


def test_states_carry_what_was_done_and_when(known):
    points, labels, times = processing_states([known])
    assert np.array_equal(points, known.controller)
    assert labels == [
        "copy, reading the input",
        *["repeat-copy, reading the input"] * 2,
        "copy, answering",
        *["repeat-copy, answering"] * 2,
    ]
    assert times == pytest.approx(np.arange(6) / 5)
    single = replace(known, subtasks=(), subtask=np.full(6, -1))
    assert processing_states([single])[1] == ["reading the input"] * 3 + ["answering"] * 3


def test_the_panel_says_its_score_and_earlier_states_are_paler(known):
    random = np.random.default_rng(0)
    run = replace(known, controller=random.normal(size=(6, 3)))
    figure = figures.states({"NTM": [run], "NUTM": [run, run]})
    points, labels, _ = processing_states([run])
    assert figure.axes[0].get_title(loc="left") == f"NTM: silhouette {silhouette(points, labels):.2f}"
    places, _ = principal_components(points)
    drawn = {group.get_label(): group for group in figure.axes[0].collections}
    assert set(drawn) == set(labels)
    offsets = drawn["repeat-copy, reading the input"].get_offsets()
    assert np.allclose(offsets, places[[1, 2]])
    early, late = drawn["repeat-copy, reading the input"].get_facecolor()[:, :3].sum(axis=1)
    assert early > late
