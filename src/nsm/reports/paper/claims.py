"""What the paper claims, whether we find it again, and the plain word for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nsm.reports.document import Table, Verdict
from nsm.reports.paper.evidence import Settings

REPRODUCED, PARTLY, NOT, NOT_YET = "reproduced", "partly", "not", "not yet run"
MEASURED = "measured"
"""Of what the paper does not have: there is nothing to find again."""


class Claim(NamedTuple):
    """One thing that was published."""

    words: str
    holds: bool | None
    """None: what it needs has not been run."""


def judge(claims: Sequence[Claim], settings: Settings | None) -> Verdict:
    """All claims hold: reproduced; none: not; else partly. Runs cut short can't tell: they were not yet run."""
    held, missed, untold = (sum(claim.holds is kind for claim in claims) for kind in (True, False, None))
    if settings is None or untold == len(claims):
        return Verdict(NOT_YET, "There are no finished runs to tell by.")
    counts = f"{held} of {len(claims)} claims found again, {missed} not" + (f", {untold} not yet run" if untold else "")
    if settings.budget is not None:
        return Verdict(NOT_YET, f"Only runs cut to {settings.budget:,} iterations, which can't tell; in them {counts}.")
    if held == len(claims):
        return Verdict(REPRODUCED, f"All {held} claims found again." if held > 1 else "Found again.")
    return Verdict(PARTLY if held else NOT, f"{counts}.")


def claim_table(claims: Sequence[Claim]) -> Table:
    """What was claimed, and whether we found it."""
    words = {True: "yes", False: "no", None: "not yet run"}
    return Table(("the paper's claim", "found again"), [(c.words, words[c.holds]) for c in claims], words=2)
