"""A complete machine: the state network and the output layer store programs, like the interface networks.

It learns to copy short lists of bits. For one list, the weights of its state and output programs are then printed at
every step. Finally the state network is restricted to each of its programs: neither suffices alone.

Run it with: python examples/complete_machine.py        (a few seconds)
"""

import torch

import nsm
from nsm.tasks import Copy


def shares(programs):
    """The program weights of one step, in per cent."""
    return " ".join(f"{100 * share:3.0f}%" for share in programs)


if __name__ == "__main__":
    torch.set_num_threads(1)  # small tensors: a second thread does not help
    task, programs = Copy(width=4, length=(1, 6)), nsm.Programs(2, parts=("interface", "state", "output"))
    shape = {"controller": nsm.Controller(size=32), "memory": nsm.NTM(slots=16, width=8)}
    run = nsm.train(
        task,
        nsm.NUTM(task.input_size, task.output_size, programs, **shape),
        optimiser=nsm.Optimiser("adam", learning_rate=0.01),
        schedule=nsm.Schedule(1_500, batch_size=16, evaluate_every=500),
        out="runs/complete",
        callbacks=[nsm.ProgressBar()],
    )
    print(run.test())

    machine, batch = run.machine(), task.batch(0, 2, 0, 100)  # seed 0, stream 2: the test
    x, lengths = torch.from_numpy(batch.inputs), batch.lengths.tolist()
    counted, target = torch.from_numpy(batch.mask) > 0, torch.from_numpy(batch.targets) > 0.5
    longest = int(batch.lengths.argmax())
    with torch.no_grad():
        _, _, trace = machine(x, lengths=lengths, trace=True)
        for t in range(lengths[longest]):
            doing = "answers" if counted[t, longest] else "listens"
            state, output = shares(trace.state_programs[t, longest]), shares(trace.output_programs[t, longest])
            print(f"step {t + 1:2}, {doing}: state programs {state}, output programs {output}")
        for program in range(2):
            out, _, _ = machine.run(x, [nsm.ForceProgram("state", program)], lengths=lengths)
            wrong = ((out > 0) != target)[counted].double().mean()
            print(f"state program {program + 1} alone: {100 * wrong:.1f}% of the bits wrong")
