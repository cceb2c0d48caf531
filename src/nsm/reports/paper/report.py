"""The whole report."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nsm.reports.document import Document, Heading, Note, Paragraph, Table
from nsm.reports.paper import beyond, fewshot, machines, questions, synthetic
from nsm.reports.paper.claims import RULE
from nsm.reports.paper.evidence import Evidence
from nsm.reports.paper.section import Section


def report(evidence: Evidence, say: Callable[[str], None] = lambda _: None) -> Document:
    """Every table and figure of the paper beside ours, with a verdict on each; `say` reports progress."""
    found = [section for section in _sections(evidence, say) if section is not None]
    overview = Table(
        ("section", "finding", "verdict"),
        [(section.title, section.finding, section.verdict.status) for section in found],
        words=3,
    )
    document = Document("Neural stored-program memory: the paper's results beside ours")
    document.blocks.extend(
        [
            Paragraph("Le, Tran & Venkatesh, Neural Stored-program Memory (ICLR 2020)."),
            Heading("Overview"),
            overview,
            Note(f"{RULE} Settings, seeds and commits are in the footnote of each section."),
        ]
    )
    for section in found:
        document.blocks.extend(section.all_blocks())
    return document


def _sections(evidence: Evidence, say: Callable[[str], None]) -> Iterator[Section | None]:
    say("tables of single tasks and of the ablation")
    yield synthetic.single(evidence)
    yield synthetic.ablation(evidence)
    say("machines on validation sequences")
    watched = machines.watch(evidence)
    say("machines on test sequences")
    yield machines.executions(evidence, watched)
    yield machines.perseveration(evidence)
    say("tables of the other experiments")
    yield synthetic.sequencing(evidence)
    yield synthetic.continual(evidence)
    yield fewshot.few_shot(evidence)
    yield questions.question_answering(evidence)
    yield machines.clusters(watched)
    yield synthetic.parameters()
    yield beyond.factorial(evidence)
    yield beyond.complete(evidence)
    yield beyond.longer_sequences(evidence)
    yield questions.tasks_alone(evidence)
