"""What the best machines do: executions, perseveration, and the clusters of their states."""

from __future__ import annotations

from functools import partial

import numpy as np

from nsm.experiments.paper import SEQUENCING, SINGLE
from nsm.reports import figures
from nsm.reports.document import Block, Heading, Paragraph, Picture
from nsm.reports.execution import Execution, execute
from nsm.reports.figures.states import processing_states, silhouette
from nsm.reports.paper.claims import Claim, claim_table, judge
from nsm.reports.paper.evidence import Evidence, Settings
from nsm.reports.paper.section import Section
from nsm.training.run import RunDirectory

SWITCH = 0.25
"""Programs count as switched if the share of one changes by this much from encoding to decoding."""
STATES = 20
"""Sequences whose states are looked at together."""


def executions(evidence: Evidence) -> Section:
    """Figure 3 (a–c) and the appendix's plots of program usage."""
    claims: list[Claim] = []
    blocks: list[Block] = []
    origins: list[str] = []
    settings: Settings | None = None
    for experiment, tasks in (("single", SINGLE), ("sequencing", SEQUENCING)):
        for task in tasks:
            words = f"{task}: a head changes programs when decoding begins"
            found = evidence.machine(experiment, task, "nutm")
            if found is None:
                claims.append(Claim(words, None))
                continue
            settings = _telling(settings, found[0])
            runs = _watched(found[1])
            claims.append(Claim(words, max(switching(run) for run in runs[:1]) > SWITCH))
            origins.append(f"{task} {found[0].words} seed {found[1].experiment.seed}")
            blocks.append(Heading(f"{task}, NUTM", 3))
            blocks += _pictures(f"execution-{task}", runs)
    paper = (
        "Figure 3 (a–c) and the appendix show where NUTM reads and writes and which programs it uses: one while it "
        "listens, another while it answers, and others as subtasks change. Below are the best machine of each task on "
        "the first sequence of the test, whatever it is, and on the best of the first 50."
    )
    return Section(
        "Figure 3 (a–c): executions", paper, judge(claims, settings), _origin(origins), [claim_table(claims), *blocks]
    )


def perseveration(evidence: Evidence) -> Section:
    """Figure 3 (d) and the appendix's plots of perseveration."""
    claims: list[Claim] = []
    blocks: list[Block] = []
    origins: list[str] = []
    settings: Settings | None = None
    for task in SEQUENCING:
        words = f"{task}: NTM does one subtask much worse than another"
        found = evidence.machine("sequencing", task, "ntm")
        if found is None:
            claims.append(Claim(words, None))
            continue
        settings = _telling(settings, found[0])
        runs = _watched(found[1])
        failed = next((run for run in runs if run.errors), None)
        origins.append(f"{task} {found[0].words}")
        blocks.append(Heading(f"{task}, NTM", 3))
        if failed is None:
            claims.append(Claim(words, False))
            blocks.append(Paragraph("This NTM made no mistake on the sequences looked at."))
            continue
        shares = [wrong / bits for wrong, bits in failed.errors_by_subtask().values() if bits]
        claims.append(Claim(words, max(shares) - min(shares) > 0.1))
        blocks.append(_picture(f"perseveration-{task}", failed, perseverating=True))
    paper = (
        "Figure 3 (d) and the appendix show random failures of NTM on sequences of tasks: it keeps to the way it "
        "reads in one subtask, and fails the other (perseveration)."
    )
    return Section(
        "Figure 3 (d): perseveration", paper, judge(claims, settings), _origin(origins), [claim_table(claims), *blocks]
    )


def clusters(evidence: Evidence) -> Section:
    """The appendix's figure of the states' principal components."""
    claims: list[Claim] = []
    blocks: list[Block] = []
    origins: list[str] = []
    settings: Settings | None = None
    for experiment, task in (("sequencing", "copy+repeat-copy"), ("single", "copy"), ("single", "repeat-copy")):
        words = f"{task}: NUTM's states form clearer clusters than NTM's"
        found = {model: evidence.machine(experiment, task, model) for model in ("ntm", "nutm")}
        there = {model: machine for model, machine in found.items() if machine is not None}
        if len(there) < 2:
            claims.append(Claim(words, None))
            continue
        settings = _telling(settings, there["nutm"][0])
        panels = {model.upper(): _states(machine[1]) for model, machine in there.items()}
        scores = {}
        for model, runs in panels.items():
            points, labels, _ = processing_states(runs)
            scores[model] = silhouette(points, labels)
        claims.append(Claim(f"{words} ({scores['NUTM']:.2f}, {scores['NTM']:.2f})", scores["NUTM"] > scores["NTM"]))
        origins.append(f"{task} {there['nutm'][0].words}")
        blocks.append(
            Picture(
                f"states-{task}",
                partial(figures.states, panels),
                f"{task}: the controller's output c_t along its first two principal components, in {STATES} "
                "sequences as long as those trained on, by what the machine does; paler points are earlier. The "
                "silhouette, from −1 to 1, says how well these groups are parted in all dimensions.",
            )
        )
    paper = (
        "The appendix's first figure has the first two principal components of c_t in NTM and NUTM, for Copy and "
        "Repeat Copy: both form clusters of what is being done, NUTM clearer ones. Here the silhouette puts a number "
        "to it."
    )
    return Section(
        "Appendix: clusters of states", paper, judge(claims, settings), _origin(origins), [claim_table(claims), *blocks]
    )


def switching(run: Execution) -> float:
    """The largest change of a program's mean share from encoding to decoding, over all heads."""
    changes = [
        np.abs(head.programs[: run.decoding].mean(axis=0) - head.programs[run.decoding :].mean(axis=0)).max()
        for head in run.heads
        if head.programs is not None
    ]
    return float(max(changes, default=0.0))


def _telling(known: Settings | None, more: Settings) -> Settings:
    """The less telling of two settings: a verdict is no surer than its weakest part."""
    return more if known is None or more.order > known.order else known


def _origin(origins: list[str]) -> str:
    return f"Machines: {'; '.join(origins)}." if origins else "No machines."


def _watched(run: RunDirectory) -> list[Execution]:
    """The first sequence of a run's test, and the best and the worst of the first fifty."""
    experiment = run.experiment
    return execute(run.machine(), experiment.task.tested, 1, experiment.seed, memory=False)


def _states(run: RunDirectory) -> list[Execution]:
    """The same sequences for every machine, of all lengths: in a batch of training they are equally long."""
    return execute(run.machine(), run.experiment.task.validation(), STATES, memory=False, extremes=False)


def _pictures(name: str, runs: list[Execution]) -> list[Block]:
    first = runs[0]
    best = next(run for run in runs if "best of" in run.name)
    blocks: list[Block] = [_picture(f"{name}-random", first)]
    return blocks if best is first else [*blocks, _picture(f"{name}-best", best)]


def _picture(name: str, run: Execution, perseverating: bool = False) -> Picture:
    draw = figures.perseveration if perseverating else figures.execution
    return Picture(name, partial(draw, run), figures.caption(run))
