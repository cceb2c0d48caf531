"""A NUTM run one step at a time, like a computer driven by its clock: each step takes a state and returns the next."""

import torch

import nsm

torch.manual_seed(0)
machine = nsm.NUTM(
    input_size=4,
    output_size=3,
    programs=nsm.Programs(3, attention="gumbel"),  # one program at a time
    controller=nsm.Controller("lstm", size=32),
    memory=nsm.NTM(slots=8, width=6, read_heads=1, write_heads=1),
).eval()
print(machine.__class__.__name__, f"with {machine.parameter_count:,} parameters")

tape = torch.randn(5, 1, 4)  # five inputs for one machine
state = machine.initial_state(batch=1)
with torch.no_grad():
    for t, x in enumerate(tape):
        y, state = machine.step(x, state)
        slot = state.memory.write_addresses[0, 0].argmax()
        print(f"step {t}: wrote mostly to slot {slot}, output {[round(v, 3) for v in y[0].tolist()]}")

    # The same in one call, with a trace of every step.
    out, _, trace = machine(tape, trace=True)
print("step loop equals one call:", bool(torch.allclose(out[-1], y, atol=1e-6)))
print("read head ran programs ", trace.programs[:, 0, 0].argmax(-1).tolist())
print("write head ran programs", trace.programs[:, 0, 1].argmax(-1).tolist())
