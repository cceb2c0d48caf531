"""`nsm bench`: what it counts, that nothing is timed before it was found equal, and that the others do equal us.

How fast anything is, is no test's business.
"""

import json
from dataclasses import replace

import matplotlib.image
import numpy as np
import pytest
import torch

from cli.conftest import call
from nsm import DNC, LRUA, NTM, Controller, Interface, Programs
from nsm.bench import drawing, measurement, peers
from nsm.bench.equality import Answer, Unequal, check, check_most, exact
from nsm.bench.timing import fastest
from nsm.bench.torch_peers import Torch
from nsm.bench.work import Shape, Work, operations, random_batch, shapes
from nsm.machine import MachineConfig
from nsm.training.losses import known

SECONDS = 1e-6
NORMED = Controller(size=6, biases=1, learned_start=False, layer_norm=True)
WRITE_FIRST = NTM(slots=8, width=4, read_heads=2, write_heads=2, order="write-first")
MACHINES = {
    "ntm": MachineConfig(3, 2, Controller(size=6), NTM(slots=8, width=4)),
    "nutm": MachineConfig(3, 2, Controller(size=6), NTM(slots=8, width=4, read_heads=2, write_heads=2), Programs(2)),
    "write-first": MachineConfig(3, 2, Controller(size=6), WRITE_FIRST, Programs(3, key_size=2)),
    "lrua": MachineConfig(3, 2, Controller(size=6), LRUA(slots=8, width=4, read_heads=2), Programs(3)),
    "dnc": MachineConfig(
        5, 5, NORMED, DNC(slots=8, width=4, read_heads=2), Programs(2, query_bias=False), Interface(norm=True)
    ),
}
TINY = Shape("priority-sort tiny", MACHINES["nutm"], 4, 2)
MIXED = Shape("babi dnc p=4 tiny", MACHINES["dnc"], 5, 3, (2, 5, 3), stories=True)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr("nsm.bench.shapes", lambda: [TINY, MIXED])
    monkeypatch.setattr("nsm.bench.timing.fastest", lambda action, seconds: fastest(action, SECONDS))


class Wrong(Torch):
    """Computes something else, by a little."""

    timed = 0

    def __init__(self, work, backend="reference"):
        super().__init__(work, backend)
        with torch.no_grad():
            self.machine.output.bias[0] += 0.1

    def iterate(self):
        Wrong.timed += 1


# --- what is measured -------------------------------------------------------------------------------------------------


def test_the_shapes_are_those_of_the_paper_and_one_with_stories_of_several_lengths():
    found = shapes()
    assert [(shape.name, shape.batch) for shape in found[-2:]] == [("babi dnc p=4", 32), ("babi dnc p=4 mixed", 32)]
    assert len({(shape.name, shape.batch) for shape in found}) == 11
    mixed = found[-1]
    assert mixed.steps == 492
    assert mixed.words == sum(mixed.lengths) == 2960
    assert found[0].words == 42


def test_only_words_that_are_there_count():
    work = Work(MIXED)
    assert MIXED.words == 10
    # As long as three sequences that share the words evenly.
    assert work.per_step(1.0) == pytest.approx(1e6 * 3 / 10)
    row = measurement.measure(MIXED, 1, SECONDS, ())
    seconds = MIXED.words / row["loop_words_per_second"]
    assert row["loop_us"] == pytest.approx(1e6 * seconds * 3 / 10)
    assert row["loop_gflops"] == pytest.approx(operations(MIXED.machine) * 10 / seconds / 1e9)
    assert row["share"] == pytest.approx(row["limit_us"] / row["loop_us"])


def test_stories_are_words_and_few_answers():
    batch = random_batch(shapes()[-1])
    there = np.arange(492)[:, None] < batch.lengths
    assert (batch.inputs.sum(-1) == there).all()
    assert (batch.targets.sum(-1) == batch.mask).all()
    assert (batch.mask <= there).all()
    assert batch.mask.sum(0).min() >= 1
    assert batch.mask.sum(0).max() == 5


@pytest.mark.parametrize("shape", [TINY, MIXED, replace(TINY, steps=5, batch=3, lengths=(2, 5, 3))])
def test_the_loss_in_torch_is_the_one_the_kernels_know(shape):
    work = Work(shape)
    assert known(work.task) is not None
    out = torch.randn(*work.batch.targets.shape, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(work.loss(out), work.task.loss(out, work.batch))


# --- equality ---------------------------------------------------------------------------------------------------------


def test_the_exact_answer_is_that_of_the_whole_batch(monkeypatch):
    work = Work(MIXED)
    whole = exact(work)
    monkeypatch.setattr("nsm.bench.equality.SAMPLES", 2)
    assert check(exact(work), whole) < 1e-12
    assert exact(work, learning=False).gradients == {}
    assert check(exact(work, learning=False), whole) < 1e-12


def test_what_is_not_equal_is_refused():
    right = Answer(np.ones((2, 3, 1)), {"a": np.ones(2), "b": np.ones(2)})
    assert check(right, right) == 0
    for wrong, said in [
        (right._replace(outputs=np.full((2, 3, 1), 1.1)), "outputs is off by 1.0e-01"),
        (right._replace(outputs=np.full((2, 3, 1), np.nan)), "outputs is off by inf"),
        (right._replace(outputs=np.ones((2, 2, 1))), "outputs is off by inf"),
        (right._replace(gradients={"a": np.ones(2), "b": np.array([1, 1.01])}), "gradient of b is off"),
        (right._replace(gradients={"a": np.ones(2), "b": np.array([1, np.nan])}), "gradient of b is off"),
        (right._replace(gradients={"a": np.ones(2)}), "gradient of b is missing"),
    ]:
        with pytest.raises(Unequal, match=said):
            check(wrong, right)


def test_where_rounding_decides_most_sequences_have_to_be_equal():
    right = np.ones((2, 3, 1))
    assert check_most(np.array([1, 1, 7] * 2).reshape(2, 3, 1), right) == 0
    for wrong in (np.array([1, 7, 7] * 2).reshape(2, 3, 1), np.full((2, 3, 1), np.nan), np.ones((2, 2, 1))):
        with pytest.raises(Unequal, match="typical sequence"):
            check_most(wrong, right)


def test_gradients_are_compared_before_rounding_decides():
    assert all(Work(shape).opening.shape == shape for shape in shapes()[:8])
    opening = Work(shapes()[-1]).opening
    assert opening.shape.steps == 32
    assert set(opening.shape.lengths) == {24, 32}
    assert (opening.batch.mask.sum(0) >= 1).all()


def test_a_peer_that_computes_something_else_is_not_timed(monkeypatch):
    monkeypatch.setattr(peers, "build", lambda name, work, threads: Wrong(work))
    row = measurement.measure(TINY, 1, SECONDS, ["eager"])
    assert row["failure"] is None
    (peer,) = row["peers"]
    assert "off by" in peer["failure"]
    assert peer["us"] is None
    assert Wrong.timed == 0


def test_ours_is_not_timed_either_if_it_is_wrong(monkeypatch):
    monkeypatch.setattr(measurement, "Torch", Wrong)
    monkeypatch.setattr(measurement, "_times", lambda *_: pytest.fail("timed"))
    row = measurement.measure(TINY, 1, SECONDS, ["eager"])
    assert "off by" in row["failure"]
    assert row["peers"] == []


def test_a_long_sequence_is_compared_in_all_as_well(monkeypatch):
    """Where the opening is equal and the rest is not, too, nothing is timed."""
    monkeypatch.setattr("nsm.bench.work.OPENING", 2)
    long = replace(TINY, machine=MACHINES["lrua"])
    assert Work(long).opening.shape.steps == 2

    def build(name, work, threads):
        return Torch(work, "reference") if work.shape.steps == 2 else Wrong(work)

    monkeypatch.setattr(peers, "build", build)
    (peer,) = measurement.measure(long, 1, SECONDS, ["eager"])["peers"]
    assert peer["error"] < 1e-4
    assert "typical sequence" in peer["failure"]
    assert Wrong.timed == 0


@pytest.mark.parametrize("machine", MACHINES)
def test_jax_equals_ours(machine):
    pytest.importorskip("jax")
    lengths = () if machine in ("ntm", "write-first") else (2, 5, 3)
    shape = Shape("tiny", MACHINES[machine], 5, 3, lengths, stories=machine == "dnc")
    work = Work(shape)
    ours, peer = Torch(work, "fused"), peers.build("jax", work, 1)
    assert check(peer.answer(), ours.answer()) < 1e-4
    # After two updates, too: the optimiser is the same.
    for _ in range(2):
        ours.iterate()
        peer.iterate()
    assert check(peer.answer(), ours.answer()) < 1e-4


def test_jax_says_what_it_does_not_cover():
    pytest.importorskip("jax")
    work = Work(replace(TINY, machine=replace(TINY.machine, controller=Controller("gru", 6))))
    with pytest.raises(peers.Absent, match="gru"):
        peers.build("jax", work, 1)


@pytest.mark.thorough
@pytest.mark.filterwarnings("default")  # inductor's own are not ours
def test_compiled_steps_equal_ours():
    try:
        peers.kind("compiled")
    except peers.Absent as reason:
        pytest.skip(str(reason))
    work = Work(Shape("tiny", replace(MACHINES["ntm"], programs=Programs(2)), 4, 2, (2, 4)))
    ours, peer = Torch(work, "fused"), peers.build("compiled", work, 1)
    assert check(peer.answer(), ours.answer()) < 1e-4
    ours.iterate()
    peer.iterate()
    assert check(peer.answer(), ours.answer()) < 1e-4


# --- the command ------------------------------------------------------------------------------------------------------


def test_json_has_the_machine_and_a_row_for_every_shape(tiny, tmp_path):
    picture = tmp_path / "speed.png"
    said = call("bench", "--json", "--no-growth", "--seconds", SECONDS, "--picture", picture)
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["machine"]["cpu"]
    assert found["machine"]["versions"]["torch"] == torch.__version__
    assert {"numba", "numpy", "python"} <= set(found["machine"]["versions"])
    assert [(row["shape"], row["batch"], row["words"]) for row in found["rows"]] == [
        ("priority-sort tiny", 2, 8),
        ("babi dnc p=4 tiny", 3, 10),
    ]
    for row in found["rows"]:
        times = ("loop_us", "public_us", "inference_us", "step_us", "limit_us", "gemm_gflops", "share", "buffers_mib")
        assert all(row[name] > 0 for name in times)
        assert row["public_to_loop"] == pytest.approx(row["public_us"] / row["loop_us"])
        assert row["loop_to_inference"] == pytest.approx(row["loop_us"] / row["inference_us"])
        assert row["error"] < row["tolerance"]
        (eager,) = row["peers"]
        assert eager["version"] == f"PyTorch {torch.__version__}, eager"
        assert eager["to_loop"] == pytest.approx(eager["us"] / row["loop_us"])
        assert eager["error"] < 1e-4
    assert matplotlib.image.imread(picture).shape[2] == 4


def test_the_tables_fit_and_say_who_is_not_there(tiny, monkeypatch):
    monkeypatch.setattr(peers, "jax_version", lambda: None)
    said = call("bench", "--no-growth", "--seconds", SECONDS, "--peers", "eager,jax")
    assert said.code == 0, said.err
    assert "jax is not installed: pip install 'stored-programs[bench]'" in said.out
    assert said.out.count("jax is not installed") == 1
    assert "Words per second" in said.out
    assert max(map(len, said.out.splitlines())) <= 100


def test_a_failure_is_told_and_is_the_exit_code(tiny, monkeypatch):
    monkeypatch.setattr(peers, "build", lambda name, work, threads: Wrong(work))
    said = call("bench", "--no-growth", "--only", "sort", "--seconds", SECONDS)
    assert said.code == 1
    assert "differs from ours and was not timed: " in said.out


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--only", "nothing"], "no shape matches"),
        (["--peers", "eager,jaks"], "did you mean 'jax'?"),
        (["--picture", "speed.gif"], "picture must end with .png or .svg"),
        (["--seconds", "0"], "seconds must be"),
    ],
)
def test_mistakes_are_told_before_anything_is_measured(tiny, options, expected):
    said = call("bench", *options)
    assert said.code == 2
    assert expected in said.err


def test_peers_are_chosen_by_name_and_the_reference_is_last():
    assert peers.chosen("eager,jax") == ["jax", "eager"]
    assert peers.chosen("none") == []


def test_the_picture_has_every_time_and_the_limit():
    row = measurement.measure(TINY, 1, SECONDS, ["eager"])
    figure = drawing.picture([row, {**row, "failure": "wrong"}])
    marks = {line.get_label(): line.get_xdata().tolist() for line in figure.axes[0].lines}
    assert marks == {
        "bound: operations at GEMM speed": [row["limit_us"]],
        "training loop": [row["loop_us"]],
        "public API": [row["public_us"]],
        "inference": [row["inference_us"]],
        "eager": [row["peers"][0]["us"]],
    }
    assert figure.axes[0].get_xscale() == "log"
