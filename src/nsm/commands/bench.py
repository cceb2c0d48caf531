"""nsm bench"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.table import Table

from nsm.checks import UserError, positive, thread_count
from nsm.commands.options import Integer, option
from nsm.screen import about, console, plain_table, say

Row = dict[str, Any]


@dataclass(frozen=True)
class Bench:
    """Measure the speed of nsm and of other implementations, after checking that their results are equal.

    Use an otherwise idle machine. An implementation whose results differ is not timed, and the exit code is 1.

    Example: nsm bench --only copy --peers eager,jax
    """

    only: Annotated[str | None, option("STR", "all")] = None
    """Only shapes whose name contains this."""
    batch: Annotated[Integer, option("INT", "all")] = None
    """Only this batch size."""
    threads: Annotated[Integer, option("INT", "1 at batch 1, 2 above")] = None
    """Threads for all implementations; JAX uses one, or one per core."""
    seconds: float = 2.0
    """Seconds per measurement."""
    peers: str = "eager"
    """Compare with eager, compiled (torch.compile, a minute per shape), jax or none; separate several with commas."""
    growth: bool = True
    """Also measure how the time grows with T, N, B and P."""
    json: bool = False
    """Print JSON: the machine, and a list of rows."""
    picture: Annotated[Path | None, option("PATH", "none")] = None
    """Also plot the times to this file, .png or .svg."""

    def run(self) -> None:
        from nsm import bench

        chosen = [
            shape
            for shape in bench.shapes()
            if (self.only is None or self.only in shape.name) and (self.batch is None or self.batch == shape.batch)
        ]
        if not chosen:
            names = ", ".join(f"{shape.name} (batch {shape.batch})" for shape in bench.shapes())
            raise UserError(f"no shape matches --only {self.only} --batch {self.batch}; the shapes are {names}")
        if self.threads is not None:
            thread_count(self.threads)
        positive("seconds", self.seconds)
        if self.picture is not None and self.picture.suffix not in (".png", ".svg"):
            raise UserError(f"picture must end with .png or .svg, was {str(self.picture)!r}")
        peers = bench.chosen(self.peers)
        rows: list[Row] = []
        # Four measurements of ours and one of each peer, with what is compiled for them.
        least = len(chosen) * (4 + len(peers)) * self.seconds
        say(f"{len(chosen)} shapes, at least {about(least).removeprefix('about ')}")
        for number, shape in enumerate(chosen, start=1):
            say(f"{number}/{len(chosen)} {shape.name}, batch {shape.batch}")
            rows.append(bench.measure(shape, self.threads or (1 if shape.batch == 1 else 2), self.seconds, peers))
        found: Row = {"machine": bench.facts(peers), "rows": rows, "growth": bench.growth() if self.growth else []}
        if self.picture is not None:
            bench.save(bench.picture(rows), self.picture)
        if self.json:
            print(json.dumps(found, indent=2))
        else:
            _print(found)
        if any(one["failure"] for row in rows for one in (row, *row["peers"])):
            raise SystemExit(1)


def _print(found: Row) -> None:
    rows = [row for row in found["rows"] if row["failure"] is None]
    tables = [_ours(rows), _peers(rows), _words([row for row in rows if row["stories"]]), _growth(found["growth"])]
    for table in tables:
        if table.rows:
            console().print(table)
            console().print()
    for sentence in dict.fromkeys(_notes(found)):
        console().print(sentence)


def _table(title: str, names: str, rows: Sequence[Row], cells: Callable[[Row], Sequence[str]]) -> Table:
    """Shape and batch, then the `cells` of each row."""
    table = plain_table(title, ("shape",), ("batch", *names.split("|")))
    for row in rows:
        table.add_row(row["shape"], str(row["batch"]), *cells(row))
    return table


def _ours(rows: Sequence[Row]) -> Table:
    names = "thre-\nads|loop|of\nGEMM|public\nAPI|to\nloop|infer-\nence|loop\nto it|one\nstep|worst\nerror"

    def cells(row: Row) -> list[str]:
        return [
            str(row["threads"]),
            _us(row["loop_us"]),
            f"{row['share']:.2f}",
            _us(row["public_us"]),
            _times(row["public_to_loop"]),
            _us(row["inference_us"]),
            _times(row["loop_to_inference"]),
            _us(row["step_us"]),
            f"{row['error']:.0e}",
        ]

    return _table("Ours, µs per time step of the whole batch", names, rows, cells)


def _peers(rows: Sequence[Row]) -> Table:
    """Training iterations of the others, absolute and as a multiple of ours."""
    titles = {peer["name"]: peer["title"] for row in rows for peer in row["peers"] if "title" in peer}

    def cells(row: Row) -> list[str]:
        shown = [_us(row["loop_us"]), _us(row["public_us"])]
        by_name = {peer["name"]: peer for peer in row["peers"]}
        for name in titles:
            peer = by_name[name]
            shown += ["differs" if peer["failure"] else "–", ""]
            if peer["us"] is not None:
                shown[-2:] = [_us(peer["us"]), _times(peer["to_loop"])]
        errors = [peer["error"] for peer in row["peers"] if peer["error"] is not None]
        return [*shown, f"{max(errors):.0e}" if errors else "–"]

    narrow = [title.replace(" ", "\n").replace(".", ".\n") for title in titles.values()]
    names = "|".join(["loop", "public\nAPI", *(f"{title}|to\nloop" for title in narrow), "worst\nerror"])
    return _table("Training iterations, µs per time step of the whole batch", names, rows if titles else [], cells)


def _words(rows: Sequence[Row]) -> Table:
    def cells(row: Row) -> list[str]:
        rates = (row[f"{part}_words_per_second"] for part in ("loop", "public", "inference"))
        return [f"{row['words']:,}", str(row["steps"]), *(f"{rate:,.0f}" for rate in rates)]

    return _table("Words per second, padding not counted", "words|longest|loop|public API|inference", rows, cells)


def _growth(rows: Sequence[Row]) -> Table:
    figures = ("value", "µs per iteration", "times the first")
    table = plain_table("Growth, Copy, NUTM, one thread", ("grows",), figures)
    for r in rows:
        table.add_row(r["grows"], str(r["value"]), f"{r['iteration_us']:,.0f}", f"{r['times_first']:.2f}")
    return table


def _notes(found: Row) -> list[str]:
    """The processor, the versions, missing peers, and peers whose results differ."""
    versions = ", ".join(f"{name} {version}" for name, version in found["machine"]["versions"].items() if version)
    notes = [f"{found['machine']['cpu']}, {found['machine']['cores']} cores; {versions}."]
    speeds = {row["threads"]: row["gemm_gflops"] for row in found["rows"] if row["failure"] is None}
    notes += [f"A large GEMM on {threads} thread(s): {speed:.0f} GFLOP/s." for threads, speed in speeds.items()]
    for row in found["rows"]:
        where = f"{row['shape']}, batch {row['batch']}"
        if row["failure"]:
            notes.append(f"{where}: the kernels differ from the reference: {row['failure']}")
        for peer in row["peers"]:
            if peer["absent"]:
                notes.append(f"{peer['name']}: {peer['absent']}")
            if peer["failure"]:
                notes.append(f"{where}: {peer['title']} differs from ours and was not timed: {peer['failure']}")
            if peer["us"] is not None:
                notes.append(f"{peer['title']}: {peer['version']}")
    return notes


def _times(ratio: float) -> str:
    return f"{ratio:,.0f} ×" if ratio >= 100 else f"{ratio:.1f} ×"


def _us(time: float) -> str:
    return f"{time:,.1f}" if time < 100 else f"{time:,.0f}"
