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
from nsm.training.config import OptimiserConfig
from nsm.training.distribution import joined
from nsm.training.learner import FusedLearner
from nsm.training.loop import train
from nsm.training.run import RunDirectory
from training.small_runs import register, small

STEPS = {"iterations": 50, "log_every": 5, "evaluate_every": 20, "checkpoint_every": 15}
RMSPROP, ADAM = (OptimiserConfig(kind, learning_rate=3e-4) for kind in ("rmsprop", "adam"))
DRAWS = {"random_slots": True, "cell_noise": 0.3}


def gumbel(config):
    return replace(config, machine=replace(config.machine, programs=Programs(3, attention="gumbel")))


RUNS = {
    "fused": ("fused", small(**STEPS, **DRAWS, batch_size=5, optimiser=RMSPROP)),
    "reference": ("reference", small(**STEPS, **DRAWS, batch_size=5, optimiser=RMSPROP)),
    "fused-adam": ("fused", small(**STEPS, batch_size=12, optimiser=ADAM)),
    "fused-gumbel": ("fused", gumbel(small(**STEPS, batch_size=3, optimiser=RMSPROP))),
    "solved": ("fused", small(**STEPS, batch_size=2, solved_loss=10.0, stop_when_solved=2)),
}


def on_two(config):
    return replace(config, world_size=2)


def told(work) -> str:
    try:
        work()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "done"


def signalled(ranks, who, step):
    def report(progress, line):
        if ranks.rank == who and progress.step == step:
            os.kill(os.getpid(), signal.SIGTERM)

    return report


def poisoned(ranks, who, step):
    """One rank's own gradient is not a number at that step."""
    true_gradients = FusedLearner._gradients

    def gradients(self, task, batch, slots, noise):
        loss = true_gradients(self, task, batch, slots, noise)
        if ranks.rank == who and self.optimiser.updates == step:
            self.machine.output.bias.grad[1] = float("nan")
        return loss

    return gradients


def main(root: Path) -> None:
    register()
    said = {}
    with joined("cpu") as ranks:
        said["rank"] = [ranks.rank, ranks.size]
        for name, (backend, config) in RUNS.items():
            said[name] = told(lambda: train(on_two(config), root / name, backend, ranks=ranks))  # noqa: B023
        for backend in ("fused", "reference"):
            config = on_two(RUNS[backend][1])
            for who in (0, 1):
                name = f"{backend}-stopped-{who}"
                out, report = root / name, signalled(ranks, who, 17)
                said[name] = told(lambda: train(config, out, backend, report=report, ranks=ranks))  # noqa: B023
                said[f"{name}-at"] = checkpoints.steps(out / "checkpoints")[-1]
                said[f"{backend}-resumed-{who}"] = told(lambda: train(config, out, backend, ranks=ranks))  # noqa: B023
        config, true_gradients = on_two(RUNS["fused"][1]), FusedLearner._gradients
        FusedLearner._gradients = poisoned(ranks, 1, 5)
        said["diverged"] = told(lambda: train(config, root / "diverged", "fused", ranks=ranks))
        FusedLearner._gradients = true_gradients
        if ranks.leads:  # what only rank 0 sees must reach all
            RunDirectory(root / "strange").path.mkdir()
            (root / "strange" / "file").touch()
        said["strange"] = told(lambda: train(config, root / "strange", "fused", ranks=ranks))
        said["device"] = told(
            lambda: train(config, root / "device", "reference", f"cuda:{90 + ranks.rank}", ranks=ranks)
        )
        said["size"] = told(lambda: train(small(), root / "size", "fused", ranks=ranks))
    (root / f"said-{said['rank'][0]}.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
