"""What a call of the kernels looks like: records in one buffer, to which a call adds its addresses."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsm.fused import chunks
from nsm.fused.chunks import Call
from nsm.fused.kernels import Kernels
from nsm.fused.layout import Array
from nsm.fused.plans import Extent, Planned, plans
from nsm.fused.workspace import KEPT, Form

WAVE = 16
"""So many chunks leave gradients of their own before these are added up."""
# Where the words of a call count from: nothing, its buffer, and what else it is told of. Then come the rooms, and for
# each job what it keeps and its gradients.
(
    NOTHING, BUFFER, INITIAL, FINAL, WEIGHTS, X, CELL_NOISE, PROGRAM_NOISE, OUT, D_OUT, D_X, D_FINAL, D_INITIAL,
    TARGETS, MASK, SUMS, OTHERS,
) = range(17)  # fmt: skip


class Job(NamedTuple):
    """What a lane does in its turn: a chunk, or a stretch of one."""

    lane: int
    planned: Planned
    extent: Extent
    again: bool
    """whether it goes on from where the stretch before it ended"""


class Outline(NamedTuple):
    """What decides what a call looks like, but for the addresses in it."""

    lengths: tuple[int, ...]
    slots: int
    spans: tuple[tuple[int, int], ...]
    """the stretches"""
    threads: int
    noisy: tuple[bool, bool]
    keeps: int
    input_gradient: bool
    apart: bool = False
    """whether every job has a room of its own, not only every lane"""
    held: bool = False
    """whether what a job keeps is somewhere else than in its room"""
    slopes: bool = False
    """whether there are gradients"""
    wave: int = 0
    """which WAVE jobs, of those that leave gradients; all of those that don't"""


class Template:
    """A call, as records in one buffer: those of the weights and of gradients, each job's, the chunks', its own. All
    words but for addresses are there, and of each address what it counts from: to make a call is one addition."""

    def __init__(self, k: Kernels, outline: Outline) -> None:
        jobs = self._jobs(k, outline)
        kept = [k.room(job.extent)[0].kept for job in jobs]
        some = slice(outline.wave * WAVE, (outline.wave + 1) * WAVE) if outline.slopes else slice(None)
        self.jobs, self.kept_at = jobs[some], np.cumsum([0, *kept])[:-1][some].tolist()
        """and where in the block of all that is kept each job's begins"""
        rooms = [k.room(job.extent) for job in self.jobs]
        places = range(len(self.jobs)) if outline.apart else [job.lane for job in self.jobs]
        self.needed = [0] * (1 + max(places))
        """how many numbers each room has"""
        self.lanes = 1 + max(job.lane for job in self.jobs)
        words: list[Array] = []
        blocks: list[Array] = []
        at, rest, count = 0, OTHERS + len(self.needed), len(self.jobs)

        def lay(form: Form, kept: int, used: int, inside: int = 0) -> int:
            """Records over two bases, what is kept `inside` numbers after the beginning of its."""
            nonlocal at
            start = at
            words.append(form.words + 4 * inside * (form.blocks == KEPT))
            blocks.append(np.array((NOTHING, kept, used))[form.blocks])
            at += len(form.words)
            return 8 * start

        weights = lay(k.weights, WEIGHTS, WEIGHTS)
        slopes = [lay(k.weights, rest + count + i, NOTHING) for i in range(count)] if outline.slopes else [0] * count
        rows: list[tuple[int, int]] = []
        self.chunks = []
        for i, (place, job, (room, form)) in enumerate(zip(places, self.jobs, rooms, strict=True)):
            used = OTHERS + place
            start = lay(form, rest + i, used) if outline.held else lay(form, used, used, room.used)
            needed = room.used + (0 if outline.held else room.kept)
            self.needed[place] = max(self.needed[place], needed)
            rows += [(job.lane, NOTHING), (0, BUFFER), (job.planned.address, NOTHING)]
            rows += [(start + begin, BUFFER) for begin in form.starts[:3]]
            rows += [(slopes[i], BUFFER if outline.slopes else NOTHING)]
            rows += [(0, FINAL if job.again else INITIAL), (0, FINAL)]
            self.chunks.append((place, job, room, form))
        sizes, scales, table = k.constants
        entries = chunks.entries(k.tape.Work)
        call = Call(
            turn=0,
            lanes=self.lanes,
            chunks=8 * at,
            chunk_count=count,
            there=entries.there.address,
            back=entries.back.address,
            what=0,
            batch=len(outline.lengths),
            leaves=len(rooms[0][1].starts) - 2,
            read=k.states + k.leaves,
            clear=k.clear,
            sizes=sizes,
            scales=scales,
            table=table,
            weights=weights,
            x=0,
            cell_noise=0,
            program_noise=0,
        )
        based = {
            "chunks": BUFFER, "weights": BUFFER, "x": X, "cell_noise": CELL_NOISE, "program_noise": PROGRAM_NOISE,
            "out": OUT, "d_out": D_OUT, "d_x": D_X, "d_final": D_FINAL, "d_initial": D_INITIAL, "targets": TARGETS,
            "mask": MASK, "sums": SUMS,
        }  # fmt: skip
        rows += [(word, based.get(name, NOTHING)) for name, word in call._asdict().items()]
        self.head = at + chunks.CHUNK * count
        """where the record of the call begins"""
        last = np.array(rows, np.int64)
        last[1 : chunks.CHUNK * count : chunks.CHUNK, 0] = 8 * self.head
        self.words, self.blocks = np.concatenate([*words, last[:, 0]]), np.concatenate([*blocks, last[:, 1]])
        self.bases = rest + count * (1 + outline.slopes)

    def _jobs(self, k: Kernels, outline: Outline) -> list[Job]:
        found: list[Job] = []
        for number, (start, stop) in enumerate(outline.spans):
            parts = plans(outline.lengths, k.chunk, start, stop)
            lanes = min(outline.threads, -(-len(outline.lengths) // k.chunk))
            for i, planned in enumerate(parts):
                p = planned.plan
                extent = Extent(
                    p.rows, len(p.samples), len(p.counts), outline.slots, outline.noisy, outline.keeps,
                    outline.input_gradient,
                )  # fmt: skip
                # There and back again: chunks are sorted by their length, and lanes are to be of about the same.
                turn = i % (2 * lanes)
                found.append(Job(min(turn, 2 * lanes - 1 - turn), planned, extent, number > 0))
        return found


def template(k: Kernels, outline: Outline) -> Template:
    """The calls of an outline."""
    found: Template | None = k.templates.get(outline)
    if found is None:
        if len(k.templates) >= 64:
            k.templates.clear()
        found = k.templates[outline] = Template(k, outline)
    return found
