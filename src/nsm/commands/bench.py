"""nsm bench"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

from rich.table import Table

from nsm.checks import UserError, thread_count
from nsm.commands.terminal import console, option


@dataclass(frozen=True)
class Bench:
    """Compare the fused back end with the reference: equality first, then times, in one process.

    Run it on a quiet machine.

    Example: nsm bench --only copy
    """

    only: Annotated[str | None, option("STR", "all")] = None
    """Only shapes whose name contains this."""
    batch: Annotated[int | None, option("INT", "all")] = None
    """Only this batch size."""
    threads: Annotated[int | None, option("INT", "1 at batch 1, 2 above")] = None
    """Threads for both back ends."""
    seconds: float = 2.0
    """How long each back end is timed per shape."""
    growth: bool = True
    """Also measure how time grows with T, N, B and P."""
    json: bool = False
    """Print JSON: a list of rows."""

    def run(self) -> None:
        from nsm import bench

        chosen = [
            shape
            for shape in bench.shapes()
            if (self.only is None or self.only in shape.name) and (self.batch is None or self.batch == shape.batch)
        ]
        if not chosen:
            names = ", ".join(f"{shape.name} (batch {shape.batch})" for shape in bench.shapes())
            raise UserError(f"no shape fits --only {self.only} --batch {self.batch}; there are {names}")
        if self.threads is not None:
            thread_count(self.threads)
        rows = []
        for shape in chosen:
            threads = self.threads or (1 if shape.batch == 1 else 2)
            rows.append(bench.measure(shape, threads, self.seconds))
        if self.json:
            print(json.dumps(rows, indent=2))
            return
        table = Table(title="One training iteration, µs per time step")
        for name in ("shape", "batch", "threads", "reference", "fused", "ratio", "forward ratio", "GFLOP/s"):
            table.add_column(name, justify="left" if name == "shape" else "right")
        for name in ("large GEMM", "share", "worst error", "buffers MiB"):
            table.add_column(name, justify="right")
        for r in rows:
            table.add_row(
                r["shape"],
                str(r["batch"]),
                str(r["threads"]),
                f"{r['reference_us']:,.0f}",
                f"{r['fused_us']:,.1f}",
                f"{r['ratio']:.0f} ×",
                f"{r['forward_ratio']:.0f} ×",
                f"{r['gflops']:.1f}",
                f"{r['gemm_gflops']:.0f}",
                f"{r['share']:.2f}",
                f"{r['worst_gradient_error']:.1e}",
                f"{r['peak_mib']:.0f}",
            )
        console().print(table)
        if self.growth:
            table = Table(
                "grows", "value", "µs per iteration", "times the first", title="Growth, Copy, NUTM, one thread"
            )
            for r in bench.growth():
                table.add_row(r["grows"], str(r["value"]), f"{r['iteration_us']:,.0f}", f"{r['times_first']:.2f}")
            console().print(table)
