"""Long sequences in little memory: keep the state every so many steps, and run each stretch again on the way back.

A pass that keeps all it needs for its gradient costs T times what a step keeps, most of it copies of the tape. Run in
stretches, it costs one stretch and one state per stretch, for one more forward pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nsm import nested
from nsm.fused.layout import CELL, HIDDEN, Array
from nsm.machine import MachineState, Noise

if TYPE_CHECKING:
    from nsm.fused.engine import Engine, Run, Taken


class Stretch(NamedTuple):
    """Some steps of those samples that reach them, and the state they begin with."""

    start: int
    stop: int
    samples: Array
    lengths: list[int]
    state: MachineState


class Segments:
    """A forward pass in stretches of `span` steps; to its caller it is a `Run`."""

    def __init__(
        self,
        engine: Engine,
        taken: Taken,
        x: Array,
        lengths: list[int],
        state: MachineState,
        noise: Noise,
        input_gradient: bool,
        span: int,
    ) -> None:
        self.engine, self.taken = engine, taken
        # Copies: they are looked at again on the way back, and the caller may have overwritten his own by then.
        self.x, self.noise = x.copy(), nested.apply(np.copy, noise)
        self.wants_input = input_gradient
        self.stretches: list[Stretch] = []
        self._outputs = np.zeros((*x.shape[:2], engine.arguments.sizes.outputs), np.float32)
        self._state: MachineState = nested.apply(np.copy, state)
        ends = np.array(lengths)
        for start in range(0, max(lengths), span):
            samples = np.flatnonzero(ends > start)
            inside = np.minimum(ends[samples] - start, span)
            begin = nested.apply(lambda leaf, samples=samples: leaf[samples], self._state)
            stretch = Stretch(start, start + int(inside.max()), samples, inside.tolist(), begin)
            self.stretches.append(stretch)
            run = self._run(stretch)
            self._outputs[start : stretch.stop, samples] = run.outputs()
            nested.apply(
                lambda whole, part, samples=samples: whole.__setitem__(samples, part), self._state, run.final()
            )

    def _run(self, stretch: Stretch) -> Run:
        def cut(array: Array | None) -> Any:
            if array is None:
                return None
            return np.ascontiguousarray(array[stretch.start : stretch.stop, stretch.samples])

        noise = Noise(*(cut(drawn) for drawn in self.noise))
        return self.engine.stretch(self.taken, cut(self.x), stretch.lengths, stretch.state, noise, self.wants_input)

    def outputs(self) -> Array:
        return self._outputs

    def final(self) -> MachineState:
        return self._state

    def backward(self, d_outputs: Array, d_final: MachineState | None, gradient: Array) -> None:
        """See `Run.backward`."""
        self.back(d_outputs, d_final)
        self.collect(gradient)

    def back(self, d_outputs: Array, d_final: MachineState | None) -> None:
        """The stretches in reverse, each run again and then back."""
        self._gradient = np.zeros(self.engine.size, np.float32)
        start_from = nested.apply(np.zeros_like, self._state) if d_final is None else nested.apply(np.copy, d_final)
        self._d_state: MachineState = start_from
        self._d_inputs = np.zeros_like(self.x)
        for stretch in reversed(self.stretches):
            run, samples = self._run(stretch), stretch.samples
            d_end = nested.apply(lambda leaf, samples=samples: np.ascontiguousarray(leaf[samples]), self._d_state)
            d_part = np.ascontiguousarray(d_outputs[stretch.start : stretch.stop, samples])
            run.backward(d_part, d_end, self._gradient)
            nested.apply(
                lambda whole, part, samples=samples: whole.__setitem__(samples, part),
                self._d_state,
                run.initial_gradient(),
            )
            if self.wants_input:
                self._d_inputs[stretch.start : stretch.stop, samples] = run.input_gradient()

    def collect(self, gradient: Array, start: bool = False) -> None:
        gradient[: self.engine.size] += self._gradient
        for name, first in (("hidden", HIDDEN), ("cell", CELL)):
            if start and (at := self.engine.arguments.where[first]) >= 0:
                d_start = getattr(self._d_state.controller, name).sum(0)
                gradient[at : at + d_start.size] += d_start

    def release(self) -> None:
        """Each stretch has let go of its buffers already."""

    def initial_gradient(self) -> MachineState:
        return self._d_state

    def input_gradient(self) -> Array:
        return self._d_inputs
