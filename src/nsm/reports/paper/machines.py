"""What trained machines do: programs by phase, perseveration, clusters of controller states."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from nsm.experiments.intervals import of_means
from nsm.experiments.paper import SEQUENCING, SINGLE
from nsm.experiments.results import Key, Settings
from nsm.plots.style import named
from nsm.reports import figures
from nsm.reports.association import Association, by_phase
from nsm.reports.document import Block, Heading, Picture, Table
from nsm.reports.execution import Execution, execute
from nsm.reports.figures.states import processing_states, silhouette
from nsm.reports.paper.claims import Claim, more
from nsm.reports.paper.evidence import Evidence, Group, Trained
from nsm.reports.paper.section import Part, Section, of_experiment, section, spread

SEQUENCES = 50
"""Validation sequences that a machine is watched on: of all training lengths, the same for all machines."""
TELLING = 0.1
"""Programs depend on the phase if their mutual information is a tenth of the maximum, and above chance level."""
NEGLECTED = {
    "copy+repeat-copy": ("copy",),
    "copy+associative-recall": ("associative-recall",),
    "copy+priority-sort": ("priority-sort",),
    "copy+repeat-copy+associative-recall+priority-sort": ("copy", "associative-recall", "priority-sort"),
}
"""The subtasks that NTM fails in the appendix's figures, whose captions name the one it does instead."""
WATCHED = ("single", "sequencing", "ablation", "factorial")
"""The experiments whose machines are watched."""


class Watched(NamedTuple):
    """A machine and what it does on validation sequences."""

    trained: Trained
    runs: list[Execution]

    @property
    def key(self) -> Key:
        return self.trained.key


def watch(evidence: Evidence) -> list[Watched]:
    """Every machine there is on validation sequences."""
    found = []
    for trained in evidence.machines(*WATCHED):
        task = trained.run.experiment.task.like_training()
        runs = execute(trained.run.machine(), task, SEQUENCES, memory=False, extremes=False)
        found.append(Watched(trained, runs))
    return found


# --- programs ---------------------------------------------------------------------------------------------------------


def executions(evidence: Evidence, watched: Sequence[Watched]) -> Section:
    """Figure 3 (a–c) and the appendix's plots of program usage."""
    claims: list[Claim] = []
    rows: list[tuple[str, ...]] = []
    pictures: list[Block] = []
    for task in (*SINGLE, *SEQUENCING):
        every = [(machine, by_phase(machine.runs)) for machine in watched if machine.key.row == task]
        stored = [(machine, found[0]) for machine, found in every if found]
        rows += [_row(machine, found) for machine, found in stored]
        # Uniform programs can't change: they are in the table to show that the measure detects it.
        able = [found for machine, found in stored if machine.key.model != "uniform"]
        claims.append(_depends(task, able))
        pictures += _pictures(evidence, task)
    told = [claim for claim in claims if claim.holds is not None]
    finding = (
        f"In {sum(claim.holds is True for claim in told)} of {len(told)} tasks, most machines have a head whose "
        "programs depend on the phase."
    )
    table = Table(
        ("task", "machine", "head", "bits", "maximum", "chance level", "p"),
        rows,
        words=3,
        caption=f"Mutual information between phase and program, in bits, on {SEQUENCES} validation sequences, for the "
        "head where it is largest. Maximum: the largest possible value. Chance level: the 95th percentile for the "
        "strongest head when the phases of each sequence are shifted circularly by a random number of steps. p: the "
        "share of 1,000 shifts that reach as much.",
    )
    paper = (
        "Figure 3 (a–c) and the appendix show where NUTM reads and writes and which programs it uses: one while "
        "reading the input, another while answering, and others as subtasks change. Here a phase is reading the input "
        "or answering, in one subtask. A claim holds if most machines of the task have a head whose programs share at "
        "least a tenth of the possible mutual information with the phase, and more than chance level. The figures "
        "show the best machine of each task on the first test sequence and on the best of the first 50."
    )
    part = Part(finding if told else "There are no trained machines.", claims, [*([table] if rows else []), *pictures])
    return section(
        "Figure 3 (a–c): executions", paper, part, f"{len(rows)} machines, from all settings and experiments."
    )


def telling(found: Association) -> bool:
    """Whether programs depend on the phase."""
    return found.found and found.bits >= TELLING * found.possible


def _depends(task: str, machines: Sequence[Association]) -> Claim:
    words = f"{task}: programs depend on the phase"
    if not machines:
        return Claim(words)
    some = sum(map(telling, machines))
    least, most = (pick(found.bits for found in machines) for pick in (min, max))
    span = f"{least:.3f}" + (f" to {most:.3f}" if len(machines) > 1 else "")
    ours = f"{some} of {len(machines)} machines; {span} of {machines[0].possible:.2f} bits"
    return Claim(words, ours, some > len(machines) / 2)


def _row(machine: Watched, found: Association) -> tuple[str, ...]:
    bits = (f"{found.bits:.3f}", f"{found.possible:.2f}", f"{found.chance:.3f}", f"{found.p:.3f}")
    return machine.key.row, f"{named(machine.key.model)}, {machine.trained.words}", found.head, *bits


def _pictures(evidence: Evidence, task: str) -> list[Block]:
    """The best NUTM of a task on the first test sequence, and on the best."""
    trained = evidence.machine("sequencing" if task in SEQUENCING else "single", task, "nutm")
    if trained is None:
        return []
    first, *others = tested(trained)
    pictures = [_picture(f"execution-{task}-random", first)]
    pictures += [_picture(f"execution-{task}-best", run) for run in others if "best of" in run.name]
    return [Heading(f"{task}, NUTM, {trained.words}", 3), *pictures]


def tested(trained: Trained) -> list[Execution]:
    """The first test sequence, and the best and the worst of the first fifty."""
    experiment = trained.run.experiment
    return execute(trained.run.machine(), experiment.task.tested, 1, experiment.seed, memory=False)


def _picture(name: str, run: Execution, perseverating: bool = False) -> Picture:
    draw = figures.perseveration if perseverating else figures.execution
    return Picture(name, partial(draw, run), figures.caption(run))


# --- perseveration ----------------------------------------------------------------------------------------------------


@of_experiment(
    "sequencing",
    "Figure 3 (d): perseveration",
    "Figure 3 (d) and the appendix show how NTM fails on sequences of tasks: it keeps reading the way one subtask "
    "needs and neglects the others (perseveration). The claim is that NUTM does not. So the two are compared on the "
    "subtasks that NTM neglects in the paper's figures, in wrong bits per test sequence, over all seeds. The figures "
    "show a mistake of the best NTM, on the first test sequence or, if that has none, on the worst of 50.",
)
def perseveration(evidence: Evidence, settings: Settings, group: Group) -> Part:
    """Figure 3 (d) and the appendix's plots of perseveration."""
    cells = [(task, task, group, ("ntm", "nutm")) for task in SEQUENCING]
    # The comparison with many seeds: batches of one sequence, each model with the initial weights of the paper.
    first, singly = SEQUENCING[0], evidence.group("factorial", settings)
    cells.append((first, f"{first}, batches of one", singly, ("ntm-large", "nutm-small")))
    claims, rows = [], []
    for task, words, among, models in cells:
        neglected = NEGLECTED[task]
        ntm, nutm = (_wrong(among, task, model) for model in models)
        claim = f"{words}: NTM has more wrong bits than NUTM in {', '.join(neglected)}"
        claims.append(more(claim, _summed(ntm, neglected), _summed(nutm, neglected)))
        for name in (part for part in ntm if part in nutm):
            ours, theirs = ntm[name], nutm[name]
            gap = of_means([(1, ours), (-1, theirs)]).texts()
            mark = "neglected" if name in neglected else ""
            rows.append((words, name, mark, spread(ours, 1), spread(theirs, 1), *gap, f"{len(ours)}, {len(theirs)}"))
    told = [claim for claim in claims if claim.holds is not None]
    finding = (
        f"NTM has more wrong bits than NUTM in the neglected subtasks in {sum(c.holds is True for c in told)} of "
        f"{len(told)} comparisons with enough seeds."
        if told
        else "There are too few seeds to compare the models."
    )
    columns = ("sequence", "subtask", "in the paper's NTM", "NTM", "NUTM", "NTM − NUTM", "95 % interval", "seeds")
    caption = "Wrong bits per test sequence in every subtask, mean ± standard deviation over all seeds."
    table = [Table(columns, rows, words=3, caption=caption)] if rows else []
    pictures = _failures(evidence) if [settings] == evidence.settings("sequencing")[:1] else []
    return Part(finding, claims, [*table, *pictures])


def _wrong(group: Group, task: str, model: str) -> dict[str, list[float]]:
    """The wrong bits of all seeds of a cell, by subtask; empty if none has finished."""
    summary = group.get((task, model))
    parts = summary.cell.experiment.task.breakdown if summary is not None and summary.finished else None
    return {} if parts is None or summary is None else {part: summary.values(f) for part, f in parts.names.items()}


def _summed(wrong: dict[str, list[float]], subtasks: Sequence[str]) -> list[float]:
    """The sum over some subtasks, for every seed."""
    return [sum(seed) for seed in zip(*(wrong[name] for name in subtasks), strict=True)] if wrong else []


def _failures(evidence: Evidence) -> list[Block]:
    """The best NTM of every sequence, where it makes mistakes."""
    blocks: list[Block] = []
    for task in SEQUENCING:
        trained = evidence.machine("sequencing", task, "ntm")
        failed = next((run for run in tested(trained) if run.errors), None) if trained is not None else None
        if trained is not None and failed is not None:
            blocks.append(Heading(f"{task}, NTM, {trained.words}", 3))
            blocks.append(_picture(f"perseveration-{task}", failed, perseverating=True))
    return blocks


# --- clusters ---------------------------------------------------------------------------------------------------------


def clusters(watched: Sequence[Watched]) -> Section:
    """The appendix's figure of the states' principal components."""
    scores = {machine.key: silhouette(*processing_states(machine.runs)[:2]) for machine in watched}
    pairs = _pairs([machine.key for machine in watched])
    gaps = [(nutm, scores[nutm] - scores[ntm]) for nutm, ntm in pairs]
    shown = ("copy+repeat-copy", "copy", "repeat-copy")
    claims = [
        _clearer("Copy, Repeat Copy and their sequence", [gap for key, gap in gaps if key.row in shown]),
        _clearer("All tasks", [gap for _, gap in gaps]),
    ]
    by_key = {machine.key: machine for machine in watched}
    rows = [
        (nutm.row, f"{named(ntm.model)} and {named(nutm.model)}, {by_key[nutm].trained.words}", f"{scores[ntm]:.2f}",
         f"{scores[nutm]:.2f}", f"{gap:+.2f}")
        for (nutm, ntm), (_, gap) in zip(pairs, gaps, strict=True)
    ]  # fmt: skip
    finding = "There are no trained machines to compare."
    blocks: list[Block] = []
    if gaps:
        clearer = sum(gap > 0 for _, gap in gaps)
        finding = f"NUTM's states form clearer clusters than NTM's in {clearer} of {len(gaps)} pairs of machines."
        columns = ("task", "machines", "NTM", "NUTM", "NUTM − NTM")
        caption = f"Silhouette of the controller states by phase, from −1 to 1, on {SEQUENCES} validation sequences."
        blocks.append(Table(columns, rows, words=2, caption=caption))
    for task in shown:
        pair = next(((nutm, ntm) for nutm, ntm in pairs if nutm.row == task), None)
        if pair is not None:
            panels = {named(key.model): by_key[key].runs for key in reversed(pair)}
            blocks.append(
                Picture(
                    f"states-{task}",
                    partial(figures.states, panels),
                    f"{task}, {by_key[pair[0]].trained.words}: the controller's output c_t along its first two "
                    f"principal components, on {SEQUENCES} validation sequences, coloured by phase; paler points are "
                    "earlier.",
                )
            )
    paper = (
        "The appendix's first figure has the first two principal components of c_t in NTM and NUTM, for Copy and "
        "Repeat Copy: the states cluster by phase, NUTM's more clearly. Here the clustering is measured by the "
        "silhouette in all dimensions. Machines with the same task, settings and initial weights are compared pair by "
        "pair, and the interval is over pairs."
    )
    return section(
        "Appendix: clusters of states", paper, Part(finding, claims, blocks), f"{_paired(gaps)} of machines."
    )


def _clearer(tasks: str, gaps: Sequence[float]) -> Claim:
    words = f"{tasks}: NUTM's states form clearer clusters than NTM's"
    if not gaps:
        return Claim(words)
    found = of_means([(1, gaps)])
    return Claim(words, f"{found.text(2)}; {_paired(gaps)}", found.above_zero)


def _paired(gaps: Sequence[object]) -> str:
    return f"{len(gaps)} pair{'s' * (len(gaps) != 1)}"


def _pairs(keys: Sequence[Key]) -> list[tuple[Key, Key]]:
    """NUTM and NTM trained alike: with the same seed, or the only machine of each."""
    found: list[tuple[Key, Key]] = []
    for key in keys:
        kind, _, weights = key.model.partition("-")
        if kind == "nutm":
            other = f"ntm-{weights}" if weights else "ntm"
            theirs = [k for k in keys if (k[:3], k.model) == (key[:3], other)]
            same = [k for k in theirs if k.seed == key.seed] or theirs[: len(theirs) == 1]
            found += [(key, k) for k in same]
    return found
