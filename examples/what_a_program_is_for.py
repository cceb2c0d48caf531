"""What a program is for: forbid each program of a trained machine in turn, and count the wrong bits.

The machine was trained on the sequence of Copy and Associative Recall, with three programs per head. Any other machine
in results/models can be given, such as single/default/associative-recall/nutm.
"""

import sys
from pathlib import Path

import torch

import nsm

MODELS = Path(__file__).parents[1] / "results/models"
MODEL = sys.argv[1] if len(sys.argv) > 1 else "sequencing/default/copy+associative-recall/nutm"
SEQUENCES = 20

torch.set_num_threads(1)  # enough for such small tensors
run = nsm.open(MODELS / MODEL)
machine, task = run.machine(), run.experiment.task.tested
names = task.subtask_names or (task.name,)
batch = task.batch(0, 2, 0, SEQUENCES)  # seed 0, stream 2: the test
x, lengths = torch.from_numpy(batch.inputs), batch.lengths.tolist()
listens = torch.arange(len(x))[:, None] < torch.from_numpy(batch.decoding)  # (T, B)
running = torch.arange(len(x))[:, None] < torch.tensor(lengths)
counted = torch.from_numpy(batch.mask) > 0


@torch.no_grad()
def tried(*interventions):
    """The share of wrong bits of each task, in per cent, and the trace."""
    out, _, trace = machine.run(x, interventions, lengths=lengths)
    wrong = ((out > 0) != (torch.from_numpy(batch.targets) > 0.5)).double().mean(-1)
    parts = [counted & (torch.from_numpy(batch.subtask) == n) for n in range(len(names))]
    return [100 * float(wrong[part].mean()) for part in parts], trace


undisturbed, trace = tried()
print(f"wrong bits of {' and '.join(names)}, {SEQUENCES} sequences, undisturbed:", end="")
print("".join(f" {share:5.1f}%" for share in undisturbed), flush=True)
for head, control in (("read 1", 0), ("write 1", 1)):
    for program in range(run.experiment.machine.programs.count):
        weights = trace.programs[:, :, control, program]
        used = [100 * float(weights[phase & running].mean()) for phase in (listens, ~listens)]
        wrong, _ = tried(nsm.ForbidProgram(head, program))
        shares = f"{used[0]:2.0f}% reading the input, {used[1]:2.0f}% answering"
        print(f"{head}, program {program + 1}: weight {shares};", end="")
        print(" forbidden:" + "".join(f" {share:5.1f}%" for share in wrong), flush=True)
