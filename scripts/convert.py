"""Converts published results and machines from the flat configuration to the tree. Run once, then deleted.

python scripts/convert.py results          converts in place, and checks that every number is the same
"""

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load as load_tensors

from nsm import documents
from nsm.experiments import recipes
from nsm.machine import MachineConfig
from nsm.tasks import Omniglot
from nsm.training import checkpoints
from nsm.training.checkpoints import Checkpoint
from nsm.training.curriculum import LookUpFirst, OneByOne
from nsm.training.experiment import Experiment, Optimiser, Schedule
from nsm.tree import from_json, to_json

KINDS = {"ntm": "NTM", "lrua": "LRUA", "dnc": "DNC"}
LATER = {
    "easy_steps": 0,
    "curriculum": False,
    "follow_test": False,
    "persistent": False,
    "wiped_steps": 0,
    "rewind": 0.0,
    "start": None,
    "world_size": 1,
}


def machine(old):
    new = json.loads(json.dumps(old))
    new["memory"]["kind"] = KINDS[new["memory"]["kind"]]
    return from_json(MachineConfig, new)


def experiment(old):
    c = {**LATER, **old}
    preset = "authors" if c["protocol"] == "authors" else "paper"
    task = recipes.find(c["task"])("nutm", preset).task
    task = replace(task, ragged=c["ragged"])
    if isinstance(task, Omniglot):
        task = replace(task, easy_steps=c["easy_steps"])
    else:
        assert not c["easy_steps"]
    curriculum = OneByOne() if c["task"] == "continual" else LookUpFirst() if c["curriculum"] else None
    schedule = Schedule(
        curriculum=curriculum,
        validation_sequences=c["evaluate_sequences"],
        **{
            n: c[n]
            for n in (
                "iterations",
                "batch_size",
                "random_slots",
                "cell_noise",
                "persistent",
                "wiped_steps",
                "key_loss",
                "key_loss_decay",
                "log_every",
                "evaluate_every",
                "follow_test",
                "test_sequences",
                "checkpoint_every",
                "keep_checkpoints",
                "solved_loss",
                "stop_when_solved",
                "rewind",
            )
        },
    )
    return Experiment(
        task,
        machine(c["machine"]),
        from_json(Optimiser, c["optimiser"]),
        schedule,
        c["seed"],
        c["start"],
        c["world_size"],
    )


def line(old):
    return {{"held_out": "validation"}.get(k, k): v for k, v in old.items()}


def score(old):
    return None if old is None else {"step": old["step"], "figures": {k: v for k, v in old.items() if k != "step"}}


def outcome(old):
    old = dict(old)
    for k in ("task", "model", "seed"):
        old.pop(k)
    of = old.pop("of", None)
    old.pop("config", None)
    new = {
        k: old.pop(k)
        for k in ("steps", "seconds", "solved_step", "solved_seconds", "best_step", "parameters", "backend")
    }
    new["validation_loss"] = old.pop("held_out_loss")
    new["best"], new["last"] = score(old.pop("best", None)), score(old.pop("last", None))
    if new["last"] is None and new["best"] is not None:
        new["last"] = new["best"]
    new["phases"], new["notes"] = old.pop("phases", []), old.pop("notes", [])
    assert not old, old
    from nsm.training.result import Outcome

    return to_json(from_json(Outcome, new, "result")), of


def numbers(value):
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return []
    if isinstance(value, (int, float)):
        return [value]
    items = value.values() if isinstance(value, dict) else value
    return [n for item in items for n in numbers(item)]


def same(old, new):
    a, b = sorted(map(float, numbers(old))), sorted(map(float, numbers(new)))
    assert a == b, (len(a), len(b))


def result(path):
    old = documents.read_sealed(path)
    assert old["version"] == 1
    exp = experiment(old["config"])
    assert exp.seed == old["seed"]
    out = None
    if old["result"] is not None:
        out, _ = outcome(old["result"])
        check = dict(old["result"])
        check.pop("seed")
        if "last" not in check and check.get("best"):
            check["last"] = check["best"]
        same(check, out)
    new = {
        "format": old["format"],
        "version": 2,
        "of": old["of"],
        "experiment": to_json(exp),
        "made_with": old["made_with"],
        "outcome": out,
        "failure": old["failure"],
        "curve": [line(each) for each in old["curve"]],
    }
    same(old["curve"], new["curve"])
    path.write_bytes(documents.text(new, indent=None) + b"\n")
    from nsm.experiments import results

    results.read(path)


def model(path):
    document = documents.read_sealed(path / "config.json")
    old_result = documents.read_sealed(path / "result.json") if (path / "result.json").exists() else None
    exp = experiment(document["config"])
    new = {"format": document["format"], "version": 2, "experiment": to_json(exp), "made_with": document["made_with"]}
    documents.write(path / "config.json", new)
    if old_result is not None:
        out, of = outcome(old_result)
        check = {k: v for k, v in old_result.items() if k not in ("seed", "of")}
        if "last" not in check and check.get("best"):
            check["last"] = check["best"]
        same(check, out)
        documents.write(
            path / "result.json",
            {**out, **({"of": of} if of else {}), "config": documents.digest_of(new["experiment"])},
        )
    running = not path.as_posix().startswith("results") or "models" not in path.parts
    if (path / "metrics.jsonl").exists():
        lines = [json.loads(each) for each in (path / "metrics.jsonl").read_text().splitlines() if each]
        (path / "metrics.jsonl").write_bytes(b"".join((json.dumps(line(each)) + "\n").encode() for each in lines))
    for directory in sorted((path / "checkpoints").iterdir()):
        manifest = documents.read_sealed(directory / "MANIFEST.json")
        assert manifest["version"] == 1
        tensors = {}
        for name in ("model.safetensors", "optimiser.safetensors"):
            content = (directory / name).read_bytes()
            assert hashlib.sha256(content).hexdigest() == manifest["sha256"][name]
            tensors[name] = load_tensors(content)
        state = json.loads((directory / "state.json").read_bytes())
        step = state.pop("step")
        opt = tensors["optimiser.safetensors"]
        memory = {n.removeprefix("kept."): t for n, t in opt.items() if n.startswith("kept.")}
        opt = {n: t for n, t in opt.items() if not n.startswith("kept.")} if running else {}
        if (path / "metrics.jsonl").exists():
            content = (path / "metrics.jsonl").read_bytes()
            count = (
                len((path / "metrics.jsonl.old").read_bytes()[: state["metrics_position"]].splitlines())
                if (path / "metrics.jsonl.old").exists()
                else None
            )
            head = b"".join(content.splitlines(True)[:count])
            state["metrics_position"], state["metrics_sha256"] = len(head), hashlib.sha256(head).hexdigest()
        for file in directory.iterdir():
            file.unlink()
        directory.rmdir()
        checkpoints.save(path / "checkpoints", Checkpoint(step, tensors["model.safetensors"], opt, memory, state))
        found = checkpoints.load(checkpoints.path(path / "checkpoints", step))
        assert all(torch.equal(found.model[n], t) for n, t in tensors["model.safetensors"].items())
    from nsm.training.run import RunDirectory

    run = RunDirectory(path)
    assert run.experiment == exp
    run.outcome()
    run.machine()


if __name__ == "__main__":
    root = Path(sys.argv[1])
    if (root / "config.json").exists():
        content = (root / "metrics.jsonl").read_bytes()
        (root / "metrics.jsonl.old").write_bytes(content)
        model(root)
        (root / "metrics.jsonl.old").unlink()
        sys.exit()
    files = sorted(root.glob("*/*/*/*/seed-*.json"))
    n = 0
    for path in files:
        result(path)
        n += 1
    machines = [p.parent for p in sorted((root / "models").rglob("config.json"))]
    for path in machines:
        model(path)
    print(n, "results and", len(machines), "machines converted; every number is the same")
