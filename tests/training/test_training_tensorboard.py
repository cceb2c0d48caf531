"""TensorBoard events are a view of the metrics."""

import pytest

from nsm.checks import UserError
from nsm.training import tensorboard
from nsm.training.loop import train
from nsm.training.run import RunDirectory
from training.small_runs import overshooting


def test_without_the_package_one_sentence_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    for call in (tensorboard.require, lambda: tensorboard.write_events(tmp_path)):
        with pytest.raises(UserError, match=r"TensorBoard is not installed: pip install 'nsm\[tensorboard\]'"):
            call()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_events_are_those_of_the_metrics(tmp_path):
    pytest.importorskip("tensorboard", reason="needs the extra nsm[tensorboard]")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(overshooting(rewind=1e-6), tmp_path, "fused")
    for _ in range(2):  # a second time in place of the first, not beside it
        directory = tensorboard.write_events(tmp_path)
    events = EventAccumulator(str(directory))
    events.Reload()
    lines = RunDirectory(tmp_path).metrics()
    losses = [(event.step, event.value) for event in events.Scalars("loss")]
    assert losses == [(line["step"], pytest.approx(line["loss"])) for line in lines]
    errors = [(event.step, event.value) for event in events.Scalars("held_out/bit_errors")]
    looks = [line for line in lines if "held_out" in line]
    assert errors == [(line["step"], pytest.approx(line["held_out"]["bit_errors"])) for line in looks]
    rewinds = [(event.step, event.value) for event in events.Scalars("rewinds")]
    assert rewinds == [(line["step"], line["rewinds"]) for line in lines if "rewinds" in line] != []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_events_that_can_not_be_made_anew_stay_as_they_were(tmp_path):
    pytest.importorskip("tensorboard", reason="needs the extra nsm[tensorboard]")
    train(overshooting(rewind=1e-6), tmp_path, "fused")
    directory = tensorboard.write_events(tmp_path)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    (tmp_path / "metrics.jsonl").write_text("no metrics\n")
    with pytest.raises(UserError):
        tensorboard.write_events(tmp_path)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


def test_what_is_no_run_is_left_alone(tmp_path):
    pytest.importorskip("tensorboard", reason="needs the extra nsm[tensorboard]")
    with pytest.raises(UserError, match="is not a run"):
        tensorboard.write_events(tmp_path)
    assert list(tmp_path.iterdir()) == []
