"""What the paper claims, what we found, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nsm.experiments.intervals import SEEDS, Difference, best_of, of_means, of_shares
from nsm.reports.document import Table, Verdict

REPRODUCED, PARTLY, NOT, NOT_YET = "reproduced", "partly", "not reproduced", "not yet run"
MEASURED = "measured"
"""The verdict on experiments that are not in the paper, which claims nothing about them."""
RULE = (
    "Every section lists the paper's claims. Reproduced if every claim holds, partly if some do, not reproduced if "
    "none does. A difference between two models holds if its 95 % interval over seeds lies above zero. Runs that were "
    "cut short count as not yet run. Experiments that are not in the paper are only measured."
)


class Claim(NamedTuple):
    """One published claim."""

    words: str
    ours: str = ""
    """What we found, in numbers; empty if it has not been run."""
    holds: bool | None = None
    """None: not run, or too few seeds to tell."""

    @property
    def answer(self) -> str:
        if self.holds is not None:
            return "yes" if self.holds else "no"
        return "too few seeds" if self.ours else NOT_YET


def more(words: str, ours: Sequence[float], theirs: Sequence[float], digits: int = 1, times: float = 1) -> Claim:
    """The claim that one model has a larger mean over seeds than another."""
    if not ours or not theirs:
        return Claim(words)
    return _compared(words, of_means([(1, ours), (-1, theirs)]), ours, theirs, digits, times)


def oftener(words: str, ours: Sequence[bool], theirs: Sequence[bool]) -> Claim:
    """The claim that a larger share of seeds of one model solve their task than of another, in percentage points."""
    if not ours or not theirs:
        return Claim(words)
    return _compared(words, of_shares([(1, ours), (-1, theirs)]), ours, theirs, 1, 100)


def _compared(
    words: str, found: Difference, ours: Sequence[float], theirs: Sequence[float], digits: int, times: float
) -> Claim:
    holds, (value, interval) = found.above_zero, found.texts(digits, times)
    if not holds and min(len(ours), len(theirs)) < SEEDS:
        holds = None
    unit = " points" if times == 100 else ""
    return Claim(words, f"{value}{unit} ({interval}); {len(ours)} and {len(theirs)} seeds", holds)


def best_within(words: str, ours: Sequence[float], limits: Sequence[tuple[float, float]], count: int) -> Claim:
    """The claim that the best of `count` seeds stays within a limit; of several (value, probability) one is drawn.

    With more seeds, every choice of `count` is equally likely, and the claim holds if most choices stay within.
    """
    if not ours or not limits:
        return Claim(words)
    share = sum(p * q for value, p in best_of(ours, count) for limit, q in limits if value <= limit)
    if len(ours) > count:
        told = f"holds in {share:.0%} of draws of {count} from {len(ours)} seeds; best of all: {min(ours):,.2f}"
    else:
        told = f"best of {len(ours)}: {min(ours):,.2f}; the limit is {min(limit for limit, _ in limits):,.2f}"
    return Claim(words, told, share > 0.5)


def judge(claims: Sequence[Claim], finding: str, budget: int | None = None) -> Verdict:
    """The verdict on some claims. Runs cut to a budget decide nothing; without claims a result is only measured."""
    held, missed, untold = (sum(claim.holds is kind for claim in claims) for kind in (True, False, None))
    counts = f" {held} of {len(claims)} claims hold" + (f", {untold} undecided." if untold else ".")
    if budget is not None:
        return Verdict(NOT_YET, f"Only runs cut to {budget:,} iterations, too few to decide: {finding}{counts}")
    if not claims:
        return Verdict(MEASURED, finding)
    if not held and not missed:
        return Verdict(NOT_YET, finding)
    return Verdict(REPRODUCED if held == len(claims) else PARTLY if held else NOT, finding + counts)


def claim_table(claims: Sequence[Claim]) -> Table:
    """What was claimed, what we found, and whether the claim holds."""
    return Table(("the paper's claim", "ours", "holds"), [(c.words, c.ours or "–", c.answer) for c in claims], words=3)
