"""What each rank of the distribution tests does; started by torchrun with a directory to write to."""

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from nsm.programs import Programs
from nsm.training import checkpoints
from nsm.training.callbacks import Callback
from nsm.training.distribution import joined
from nsm.training.experiment import Optimiser
from nsm.training.learner import FusedLearner, GradientLearner
from nsm.training.run import RunDirectory
from training.small_runs import commanded, small

STEPS = {"iterations": 50, "log_every": 5, "evaluate_every": 20, "checkpoint_every": 15}
RMSPROP, ADAM = (Optimiser(kind, learning_rate=3e-4) for kind in ("rmsprop", "adam"))
STEP, GRADIENTS = GradientLearner.step, FusedLearner._gradients
DRAWS = {"random_slots": True, "cell_noise": 0.3}


def gumbel(experiment):
    return replace(experiment, machine=replace(experiment.machine, programs=Programs(3, attention="gumbel")))


RUNS = {
    "fused": ("fused", small(**STEPS, **DRAWS, batch_size=5, optimiser=RMSPROP)),
    "reference": ("reference", small(**STEPS, **DRAWS, batch_size=5, optimiser=RMSPROP)),
    "fused-adam": ("fused", small(**STEPS, batch_size=12, optimiser=ADAM)),
    "fused-gumbel": ("fused", gumbel(small(**STEPS, batch_size=3, optimiser=RMSPROP))),
    "solved": ("fused", small(**STEPS, batch_size=2, solved_loss=10.0, stop_when_solved=2)),
}


def on_two(experiment):
    return replace(experiment, processes=2)


class Watching(Callback):
    """Counts what it is told."""

    def __init__(self) -> None:
        self.calls = 0

    def on_step(self, progress, line) -> None:
        self.calls += 1


def told(work) -> str:
    try:
        work()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "done"


def signalled(ranks, who, step):
    """One rank gets a signal in that step."""

    def learn(self, task, batch, number):
        loss = STEP(self, task, batch, number)
        if ranks.rank == who and number + 1 == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return loss

    return learn


def poisoned(ranks, who, step):
    """One rank's own gradient is not a number at that step."""

    def gradients(self, task, batch, slots, noise):
        loss = GRADIENTS(self, task, batch, slots, noise)
        if ranks.rank == who and self.optimiser.updates == step:
            self.machine.output.bias.grad[1] = float("nan")
        return loss

    return gradients


def main(root: Path) -> None:
    said = {}
    with joined("cpu") as ranks:

        def trained(experiment, name, backend, *options):
            return told(lambda: commanded(experiment, root / name, backend, *options, ranks=ranks))

        said["rank"] = [ranks.rank, ranks.size]
        for name, (backend, experiment) in RUNS.items():
            said[name] = trained(on_two(experiment), name, backend)
        for backend in ("fused", "reference"):
            experiment = on_two(RUNS[backend][1])
            for who in (0, 1):
                name = f"{backend}-stopped-{who}"
                GradientLearner.step = signalled(ranks, who, 17)
                said[name] = trained(experiment, name, backend)
                GradientLearner.step = STEP
                said[f"{name}-at"] = checkpoints.steps(root / name / "checkpoints")[-1]
                said[f"{backend}-resumed-{who}"] = trained(experiment, name, backend)
        experiment = on_two(RUNS["fused"][1])
        FusedLearner._gradients = poisoned(ranks, 1, 5)
        said["diverged"] = trained(experiment, "diverged", "fused")
        FusedLearner._gradients = GRADIENTS
        if ranks.leads:  # what only rank 0 sees must reach all
            RunDirectory(root / "strange").path.mkdir()
            (root / "strange" / "file").touch()
        said["strange"] = trained(experiment, "strange", "fused")
        said["device"] = trained(experiment, "device", "reference", f"cuda:{90 + ranks.rank}")
        said["size"] = trained(small(), "size", "fused")
        watching = Watching()
        said["watched"] = told(
            lambda: commanded(experiment, root / "watched", "fused", callbacks=[watching], ranks=ranks)
        )
        said["watched-calls"] = watching.calls
    (root / f"said-{said['rank'][0]}.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    sys.stderr.flush()
    os._exit(0)  # as the command does: a thread of torch's that is still there now and then aborts a process at its end
