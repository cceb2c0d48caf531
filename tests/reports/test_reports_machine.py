"""The machine in a page, in a real browser: its numbers are Python's, also when something is done to it."""

import base64
import json
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.utils import parametrize

import nsm
from nsm import DNC, LRUA, MANN, NTM, NUTM, Controller, Interface, Programs
from nsm.machine import Machine
from nsm.reports.viewer.bundle import bundle
from nsm.reports.viewer.page import embedded
from nsm.reports.viewer.weights import portable
from nsm.training.evaluation import TEST

STEPS = 200
MODELS = Path(__file__).parents[2] / "results/models"
SCRIPT = """
const machines = {};
const numbers = (values) => Float32Array.from(values);
function packed(vectors) {
  const all = new Float32Array(vectors.reduce((size, vector) => size + vector.length, 0));
  vectors.reduce((at, vector) => (all.set(vector, at), at + vector.length), 0);
  let letters = "";
  for (const byte of new Uint8Array(all.buffer)) letters += String.fromCharCode(byte);
  return btoa(letters);
}
function ran({ x, cell, programs, ...options }) {
  const noise = x.map((_, t) => ({ cell: cell?.[t], programs: programs?.[t] }));
  const done = machines.last.run(x.map(numbers), { ...options, noise });
  const heads = done.heads.map((h) => [h.name, h.kind, packed(h.addresses), h.programs && packed(h.programs)]);
  const parts = done.parts.map((part) => [part.name, packed(part.programs)]);
  return { outputs: packed(done.outputs), heads, parts, memory: packed(done.memory) };
}
"""


@pytest.fixture(scope="module")
def script(browser):
    """A page with the machine's modules as one script, and nothing else."""
    page = browser.new_page()
    complaints = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.add_script_tag(content=bundle(files("nsm.reports.viewer"), "machine/weights.js") + SCRIPT)
    yield page
    assert complaints == []
    page.close()


@pytest.fixture
def run(script):
    """Run a machine in the page: outputs (T, O), heads with addresses and programs, programs of state network and
    output layer, tape (T, N·M), as arrays."""

    def ran(machine, x, **options):
        script.evaluate("async (packed) => { machines.last = await unpackMachine(packed); }", portable(machine))
        return happened(script, x, **options)

    return ran


def happened(script, x, **options):
    done = script.evaluate("ran", {"x": x.tolist(), **options})
    steps = len(x)

    def array(text):
        return np.frombuffer(base64.b64decode(text), "<f4").reshape(steps, -1)

    heads = {name: (kind, array(a), None if p is None else array(p)) for name, kind, a, p in done["heads"]}
    parts = {name: array(programs) for name, programs in done["parts"]}
    return array(done["outputs"]), heads, parts, array(done["memory"])


def difference(found, expected):
    """The largest of all numbers: outputs, addresses, programs, tape; `expected` is what `Machine.run` gave."""
    outputs, heads, parts, memory = found
    out, _, trace = expected
    traces = trace.head_traces()
    assert [(name, kind) for name, (kind, _, _) in heads.items()] == [(head.name, head.kind) for head in traces]
    pairs = [(outputs, out.detach().numpy()), (memory, trace.memory.detach().flatten(1).numpy())]
    shown = dict(trace.part_programs())
    assert parts.keys() == shown.keys()
    pairs += [(parts[name], programs) for name, programs in shown.items()]
    for head in traces:
        _, addresses, programs = heads[head.name]
        assert (programs is None) == (head.programs is None)
        pairs += [(addresses, head.address), *([] if programs is None else [(programs, head.programs)])]
    return max(float(np.abs(ours - theirs).max()) for ours, theirs in pairs)


def answers_apart(found, expected):
    """Of probabilities."""
    ours, theirs = torch.from_numpy(found[0].copy()), expected[0].detach().float()
    return float((ours.sigmoid() - theirs.sigmoid()).abs().max())


def in_python(machine, x, slots=None, interventions=(), noise=None, single=False):
    """The same in Python: the reference in double precision, the specification, or as it is run every day."""
    machine.backend, x = ("auto", x.float()) if single else ("reference", x.double())
    machine = machine.float() if single else machine.double()
    try:
        with torch.no_grad():
            if interventions or noise is not None:
                drawn = None if noise is None else nsm.Noise(*(None if n is None else n.to(x) for n in noise))
                return machine.run(x, interventions, machine.initial_state(slots=slots), None, "memory", drawn)
            return machine(x, machine.initial_state(slots=slots), trace="memory")
    finally:
        machine.float()


def make(seed=0, programs=3, memory=None, **options):
    kind = MANN if programs is None else NUTM
    stored = () if programs is None else (programs,)
    shape = {"controller": Controller(size=12, gain=2.0), "memory": memory or NTM(16, 4), **options}
    generator = torch.Generator().manual_seed(seed)
    return kind(5, 3, *stored, **shape, generator=generator).eval()


def inputs(seed=1, steps=STEPS):
    return torch.randn(steps, 5, generator=torch.Generator().manual_seed(seed))


# --- every part -------------------------------------------------------------------------------------------------------

HEADS = {"read_heads": 2, "write_heads": 3}
COMPLETE = "interface", "state", "output"
MACHINES = {
    "ntm": {},
    "ntm, write first": {"memory": NTM(16, 4, **HEADS, order="write-first", shift_range=2, initial_address="uniform")},
    "ntm, nowhere": {"memory": NTM(16, 4, **HEADS, initial_memory="random", initial_address="zeros")},
    "ntm, no shift": {"memory": NTM(16, 4, shift_range=0)},
    "lrua": {"memory": LRUA(16, 4), "seed": 1},
    "lrua, read first": {
        "memory": LRUA(16, 4, write_heads=2, order="read-first", strength=3.0, least_used=1, decay=0.9)
    },
    "dnc": {"memory": DNC(16, 4)},
    "dnc, links": {"memory": DNC(16, 4, read_heads=2, links=True)},
    "dnc, masked": {"memory": DNC(16, 4, read_heads=2, masked=True)},
    "dnc, all": {"memory": DNC(16, 4, read_heads=2, links=True, masked=True, erase_freed=True)},
    "gru": {"controller": Controller("gru", size=12, biases=1)},
    "rnn": {"controller": Controller("rnn", size=12, learned_start=False)},
    "feed-forward": {"controller": Controller("feed-forward", size=12)},
    "layer norm": {"controller": Controller(size=12, layer_norm=True, forget_bias=1.0), "memory": DNC(16, 4)},
    "interface norm": {"interface": Interface(norm=True, sharpness=3.0, keys="written"), "memory": DNC(16, 4)},
    "direct": {"programs": Programs(3, attention="direct", strength_scale=0.3)},
    "uniform": {"programs": Programs(3, attention="uniform")},
    "gumbel": {"programs": Programs(3, attention="gumbel")},
    "gumbel-probabilities": {"programs": Programs(3, attention="gumbel-probabilities", temperature=2.0)},
    "key-value": {"programs": Programs(4, key_size=2, bounded_keys=True, query_bias=False, strength_scale=3.0)},
    "complete": {"programs": Programs(3, parts=COMPLETE)},
    "complete, gru": {"programs": Programs(3, parts=COMPLETE), "controller": Controller("gru", size=12)},
    "complete, rnn": {"programs": Programs(3, parts=COMPLETE), "controller": Controller("rnn", size=12, biases=1)},
    "complete, feed-forward": {
        "programs": Programs(3, parts=COMPLETE),
        "controller": Controller("feed-forward", size=12),
    },
    "complete, layer norm": {
        "programs": Programs(2, parts=COMPLETE),
        "controller": Controller(size=12, layer_norm=True),
        "memory": DNC(16, 4),
    },
    "complete, direct": {"programs": Programs(3, attention="direct", parts=COMPLETE), "memory": LRUA(16, 4), "seed": 1},
    "complete, uniform": {"programs": Programs(3, attention="uniform", parts=COMPLETE)},
    "state": {"programs": Programs(3, parts=("interface", "state"))},
    "output": {"programs": Programs(3, parts=("interface", "output"))},
    "mann": {"programs": None},
    "mann over lrua": {"programs": None, "memory": LRUA(16, 4, write_heads=2), "seed": 1},
    "mann over dnc": {"programs": None, "memory": DNC(16, 4)},
}


def untrained(machine, seed=2):
    """Norms start at 1 and 0, which would hide that their weights are used."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in machine.named_parameters():
            if "norm" in name:
                parameter.add_(torch.empty_like(parameter).uniform_(-0.5, 0.5, generator=generator))
    return machine


@pytest.mark.parametrize("name", MACHINES)
def test_every_part_of_a_machine_does_what_pythons_does(run, name):
    machine, x = untrained(make(**MACHINES[name])), inputs()
    found = run(machine, x)
    assert difference(found, in_python(machine, x)) < 1e-6
    assert difference(found, in_python(machine, x, single=True)) < 1e-4


@pytest.mark.parametrize("slots", [7, 40])
@pytest.mark.parametrize("initial", ["constant", "random"])
@pytest.mark.parametrize("kind", [NTM, LRUA, DNC])
def test_a_tape_of_another_size(run, kind, initial, slots):
    machine, x = make(memory=kind(16, 4, initial_memory=initial)), inputs(steps=12)
    assert difference(run(machine, x, slots=slots), in_python(machine, x, slots)) < 1e-6


@pytest.mark.parametrize("parts", [("interface",), ("interface", "output"), COMPLETE], ids="+".join)
def test_noise_that_is_handed_in(run, parts):
    machine, x = make(programs=Programs(3, attention="gumbel", parts=parts)), inputs(steps=30)
    noise = machine.draw_noise(30, generator=torch.Generator().manual_seed(5), cell=0.3)
    silent = nsm.SilenceNoise(start=10, stop=20)
    options = {"cell": noise.cell.tolist(), "programs": noise.programs.tolist()}
    loud = run(machine, x, **options)
    assert difference(loud, in_python(machine, x, noise=noise)) < 1e-6
    found = run(machine, x, **options, interventions=[as_data(silent)])
    assert difference(found, in_python(machine, x, interventions=[silent], noise=noise)) < 1e-6
    assert np.abs(found[0] - loud[0]).max() > 1e-3


# --- every task -------------------------------------------------------------------------------------------------------

SHIPPED = [
    *(
        f"single/default/{task}/nutm"
        for task in ("copy", "repeat-copy", "associative-recall", "ngrams", "priority-sort")
    ),
    *("single/default/copy/ntm", "single/default/long-copy/nutm"),
    "sequencing/default/copy+priority-sort/nutm",
    "sequencing/default/copy+repeat-copy+associative-recall+priority-sort/nutm",
    "continual/paper/continual/nutm",
]


@pytest.mark.parametrize("name", SHIPPED)
def test_a_trained_machine_answers_in_the_page_as_in_python(run, script, name):
    """On sequences of its task's test, from the beginning each, until it has made 200 steps.

    A machine that sorts makes any difference larger at every step: Python's own back ends, both in float32, come to
    differ by 4e-4 in what they put out. So the page, which computes in double precision, is held to the specification
    in double precision, and in its answers to Python as it is run every day.
    """
    machine, experiment = nsm.load(MODELS / name), nsm.open(MODELS / name).experiment
    part = next(iter(experiment.task.tested.parts.values()))
    steps = index = 0
    while steps < STEPS:
        batch = part.batch(7, TEST, index, 1)
        x = torch.from_numpy(batch.inputs[: min(batch.lengths[0], STEPS - steps), 0])
        found = happened(script, x) if index else run(machine, x)
        assert difference(found, in_python(machine, x)) < 1e-5
        assert answers_apart(found, in_python(machine, x, single=True)) < 1e-4
        steps, index = steps + len(x), index + 1


def words(machine, steps, seed=3):
    """A story: one word a step, one-hot."""
    random = np.random.default_rng(seed)
    return torch.eye(machine.config.input_size)[random.integers(0, machine.config.input_size, steps)]


def drawings(machine, steps, seed=3):
    """Ink here and there, and a label."""
    random = np.random.default_rng(seed)
    labels = machine.config.output_size
    ink = (random.random((steps, machine.config.input_size - labels)) < 0.2).astype(np.float32)
    return torch.from_numpy(np.hstack([ink, np.eye(labels, dtype=np.float32)[random.integers(0, labels, steps)]]))


@pytest.mark.parametrize("name", ["omniglot-5/nutm", "omniglot-10/mann"])
def test_a_machine_that_names_drawings(run, name):
    machine = nsm.load(MODELS / "fewshot/default" / name)
    x = drawings(machine, 50)
    found = run(machine, x)
    assert difference(found, in_python(machine, x)) < 1e-5
    assert answers_apart(found, in_python(machine, x, single=True)) < 1e-4


def processor_time(script, x, runs=5):
    """How many seconds of its processor the page takes for a run: time itself tells what else goes on, too."""
    session = script.context.new_cdp_session(script)
    session.send("Performance.enable")

    def taken():
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(metric["value"] for metric in metrics if metric["name"] == "ThreadTime")

    repeated = "([x, runs]) => { for (let n = 0; n < runs; n++) machines.last.run(x.map(numbers)); }"
    script.evaluate(repeated, [x.tolist(), 2])  # compiled by then
    before = taken()
    script.evaluate(repeated, [x.tolist(), runs])
    return (taken() - before) / runs


def test_a_machine_that_answers_questions_in_time(run, script):
    machine = Machine.from_config(nsm.recipes.babi("nutm").machine, generator=torch.Generator().manual_seed(0)).eval()
    assert machine.parameter_count > 790_000
    x = words(machine, 100)
    found = run(machine, x)
    assert difference(found, in_python(machine, x)) < 1e-5
    assert answers_apart(found, in_python(machine, x, single=True)) < 1e-4
    took = processor_time(script, x)
    print(f"{machine.parameter_count:,} parameters, 100 words: {1e3 * took:.0f} ms")
    assert took < 0.6


def test_a_copy_in_time(run, script):
    machine, x = nsm.load(MODELS / "single/default/copy/nutm"), (torch.rand(62, 10) < 0.5).float()
    run(machine, x)
    took = processor_time(script, x)
    print(f"62 steps of Copy: {1e3 * took:.0f} ms")
    assert took < 0.06


# --- step by step -----------------------------------------------------------------------------------------------------


def test_step_by_step_is_one_run_and_a_state_stays_as_it_is(run, script):
    machine, x = make(memory=DNC(16, 4, links=True)), inputs(steps=10)
    run(machine, x)
    same = script.evaluate(
        """(x) => {
            const inputs = x.map(numbers), whole = machines.last.run(inputs).outputs;
            let state = machines.last.initialState();
            return inputs.every((step, t) => {
                const before = JSON.stringify(state);
                const { output, state: after } = machines.last.step(step, state);
                const again = machines.last.step(step, state).output;
                const kept = JSON.stringify(state) === before;
                state = after;
                return kept && [output, again].every((found) => String(found) === String(whole[t]));
            });
        }""",
        x.tolist(),
    )
    assert same


# --- interventions ----------------------------------------------------------------------------------------------------


def as_data(intervention):
    """As the page has it."""
    return {"kind": type(intervention).__name__, **asdict(intervention)}


ACTS = {
    "force": [nsm.ForceProgram("read 2", 1, start=5, stop=9), nsm.ForceProgram("write 1", 0, start=12)],
    "forbid": [
        nsm.ForbidProgram("read 1", 2),
        nsm.ForbidProgram("read 1", 0, start=6),
        nsm.ForbidProgram("write 1", 1),
    ],
    "erase": [nsm.EraseSlot(0, step=4), nsm.EraseSlot(3, step=9)],
    "swap": [nsm.SwapSlots(0, 2, step=6), nsm.SwapSlots(1, 1, step=7)],
    "move": [nsm.MoveHead("read 2", 3, step=5), nsm.MoveHead("write 1", -17, step=8)],
    "place": [nsm.PlaceHead("read 1", 15, step=5), nsm.PlaceHead("write 1", 2, step=8)],
    "all at once": [
        *(nsm.EraseSlot(1, step=5), nsm.SwapSlots(0, 1, step=5), nsm.PlaceHead("read 1", 3, step=5)),
        *(nsm.MoveHead("read 1", 1, step=5), nsm.ForceProgram("read 1", 2, start=3), nsm.SilenceNoise()),
    ],
}
TAPES = {
    "ntm": NTM(16, 4, read_heads=2, initial_memory="random"),
    "lrua": LRUA(16, 4, read_heads=2),
    "dnc": DNC(16, 4, read_heads=2, links=True),
}


@pytest.mark.parametrize("acts", ACTS)
@pytest.mark.parametrize("tape", TAPES)
def test_interventions_are_those_of_python(run, script, tape, acts):
    machine, x = make(memory=TAPES[tape]), inputs(steps=20)
    usual = run(machine, x)
    found = happened(script, x, interventions=[as_data(act) for act in ACTS[acts]])
    assert difference(found, in_python(machine, x, interventions=ACTS[acts])) < 1e-6
    assert np.abs(found[0] - usual[0]).max() > 1e-6, "it makes a difference"


@pytest.mark.parametrize("attention", ["direct", "uniform", "gumbel", "gumbel-probabilities"])
def test_programs_are_forced_and_forbidden_under_every_attention(run, attention):
    machine, x = make(programs=Programs(3, attention=attention)), inputs(steps=20)
    acts = [nsm.ForceProgram("read 1", 1, start=4), nsm.ForbidProgram("write 1", 0, stop=15)]
    found = run(machine, x, interventions=[as_data(act) for act in acts])
    assert difference(found, in_python(machine, x, interventions=acts)) < 1e-6


PART_ACTS = [nsm.ForceProgram("state", 1, start=4), nsm.ForbidProgram("output", 0, stop=15)]


@pytest.mark.parametrize("attention", ["key-value", "direct", "uniform", "gumbel", "gumbel-probabilities"])
def test_programs_of_state_network_and_output_layer_are_forced_and_forbidden(run, script, attention):
    machine, x = make(programs=Programs(3, attention=attention, parts=COMPLETE)), inputs(steps=20)
    usual = run(machine, x)
    for acts in (PART_ACTS, PART_ACTS[:1], PART_ACTS[1:]):
        found = happened(script, x, interventions=[as_data(act) for act in acts])
        assert difference(found, in_python(machine, x, interventions=acts)) < 1e-6
        assert np.abs(found[0] - usual[0]).max() > 1e-6, "it makes a difference"


@pytest.mark.parametrize(
    ("act", "said"),
    [
        ({"kind": "Dance"}, 'there is no intervention of kind "Dance"'),
        ({"kind": "constructor"}, 'there is no intervention of kind "constructor"'),
        ({"kind": "ForceProgram", "head": "read 9", "program": 0}, 'ForceProgram.head can\'t be "read 9" here'),
        ({"kind": "ForceProgram", "head": "state", "program": 0}, 'ForceProgram.head can\'t be "state" here'),
        ({"kind": "MoveHead", "head": "output", "by": 1, "step": 0}, 'MoveHead.head can\'t be "output" here'),
        ({"kind": "ForceProgram", "head": "read 1", "program": 3}, "ForceProgram.program can't be 3 here"),
        (
            {"kind": "ForbidProgram", "head": "read 1", "program": 0, "start": -1},
            "ForbidProgram.start can't be -1 here",
        ),
        ({"kind": "EraseSlot", "slot": 16, "step": 0}, "EraseSlot.slot can't be 16 here"),
        ({"kind": "SwapSlots", "first": 0, "second": 0.5, "step": 0}, "SwapSlots.second can't be 0.5 here"),
        ({"kind": "MoveHead", "head": "read 1", "by": "1", "step": 0}, 'MoveHead.by can\'t be "1" here'),
        ({"kind": "PlaceHead", "head": "read 1", "slot": 0}, "PlaceHead.step can't be undefined here"),
    ],
)
def test_what_a_link_may_ask_for_is_checked(run, script, act, said):
    run(make(), inputs(steps=2))
    caught = "([x, act]) => { try { ran({ x, interventions: [act] }); } catch (error) { return error.message; } }"
    assert script.evaluate(caught, [inputs(steps=2).tolist(), act]) == said


def test_a_head_is_not_left_without_a_program(run, script):
    run(make(), inputs(steps=2))
    acts = [as_data(nsm.ForbidProgram("read 1", program)) for program in range(3)]
    caught = "([x, acts]) => { try { ran({ x, interventions: acts }); } catch (error) { return error.message; } }"
    assert script.evaluate(caught, [inputs(steps=2).tolist(), acts]) == "read 1 has no program left to run"


# --- in a page --------------------------------------------------------------------------------------------------------


def test_weights_come_out_of_a_page_bit_by_bit(run, script):
    machine = make()
    with torch.no_grad():
        machine.output.bias.copy_(torch.tensor([1e-42, -0.0, 3.4e38]))
    run(machine, inputs(steps=1))
    for name, tensor in (("output.parts[0]", machine.output.weight), ("output.parts[1]", machine.output.bias)):
        found = np.frombuffer(base64.b64decode(script.evaluate(f"packed([machines.last.{name}.data])")), "<f4")
        assert found.tobytes() == tensor.detach().numpy().tobytes()


def test_a_copy_machine_takes_a_quarter_of_a_megabyte():
    document = portable(nsm.load(MODELS / "single/default/copy/nutm"))
    assert len(json.dumps(document)) < 250_000
    assert len(bundle(files("nsm.reports.viewer"), "machine/weights.js")) < 40_000
    assert "<" not in embedded(document)


class Own(nsm.NUTM):
    pass


def test_a_machine_that_the_page_does_not_have_is_not_packed():
    hooked, normed, changed = make(), make(), make()
    hooked.interfaces[0].register_forward_hook(lambda *_: None)
    parametrize.register_parametrization(normed.output, "weight", torch.nn.Identity())
    changed.output = torch.nn.Sequential(changed.output)
    own = Own(5, 3, controller=Controller(size=4), memory=NTM(8, 3))
    for machine in (hooked, normed, changed, own, make().double()):
        assert portable(machine) is None
    assert portable(make()) is not None
