"""The whole report."""

from __future__ import annotations

from nsm.reports.document import Document, Heading, Paragraph, Table
from nsm.reports.paper import beyond, machines, others, synthetic
from nsm.reports.paper.evidence import Evidence


def report(evidence: Evidence) -> Document:
    """Every table and figure of the paper beside ours, with a verdict on each."""
    found = [
        synthetic.single(evidence),
        synthetic.ablation(evidence),
        machines.executions(evidence),
        machines.perseveration(evidence),
        synthetic.sequencing(evidence),
        synthetic.continual(evidence),
        others.few_shot(evidence),
        others.question_answering(evidence),
        machines.clusters(evidence),
        synthetic.parameters(),
        beyond.factorial(evidence),
        beyond.longer_sequences(evidence),
        others.tasks_alone(evidence),
    ]
    sections = [section for section in found if section is not None]
    overview = Table(
        ("in the paper", "verdict", "from"),
        [(section.title, section.verdict.status, section.sources) for section in sections],
        words=3,
    )
    document = Document("Neural stored-program memory: the paper's results beside ours")
    document.blocks.extend(
        [
            Paragraph(
                "Le, Tran & Venkatesh, Neural Stored-program Memory (ICLR 2020). A verdict is drawn from claims, which "
                "are named with it: all found again is reproduced, some partly, none not. Runs cut short tell nothing. "
                "What the paper does not have is measured."
            ),
            Heading("Overview"),
            overview,
        ]
    )
    for section in sections:
        document.blocks.extend(section.all_blocks())
    return document
