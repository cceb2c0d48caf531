"""The sequences of machines as torch operators: `torch.ops.nsm.ntm`, `lrua` and `dnc`, one for each memory.

    out, final state, trace, kept = op(x, state, parameters, cell noise, program noise, lengths, description, …)

An operator is a function of the tensors it is handed and of a text that says what they are the weights of
(`nsm.description`). It knows no module. What its backward operator needs is either an input or `kept`, and both go
through autograd: graphs are freed, changes in place are noticed, hooks are called as for any operator of torch.
Threads are torch's (`torch.set_num_threads`); the result does not depend on their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from nsm.checks import UserError
from nsm.fused.compiling import compile_for
from nsm.fused.kernels import WITH_TAPES, Kernels, kernels
from nsm.fused.layout import STATIC
from nsm.fused.passes import Given, Pass
from nsm.fused.workspace import Block, addresses, floats, pool
from nsm.memories import MEMORIES

INPUTS = "Tensor x, Tensor[] state, Tensor[] parameters, Tensor? cell_noise, Tensor? program_noise, Tensor? lengths"
FORWARD = f"({INPUTS}, str description, int trace, bool keep=False) -> (Tensor, Tensor[], Tensor[], Tensor)"
BACKWARD = (
    f"(Tensor d_out, Tensor[] d_final, Tensor kept, {INPUTS}, str description, int trace, bool input_gradient,"
    " bool state_gradient) -> Tensor[]"
)
FLOATS = {torch.float32}
NOTHING = torch.empty(0, dtype=torch.uint8, device="cpu")
Found = tuple[Tensor, list[Tensor], list[Tensor], Tensor]
"""out (T, B, O), the leaves of the final state, those of a trace, and bytes that only the way back can read."""


class Call(NamedTuple):
    """The arguments that forward and backward operators have in common."""

    x: Tensor
    """(T, B, I)"""
    state: Sequence[Tensor]
    """the leaves of a machine's state, each with the batch first"""
    parameters: Sequence[Tensor]
    """in the order of `layout.Parameters`"""
    cell_noise: Tensor | None
    program_noise: Tensor | None
    lengths: Tensor | None
    """(B,): the sequences' own lengths; None: all T"""
    description: str
    trace: int

    @property
    def kernels(self) -> Kernels:
        return kernels(self.description, int(self.x.shape[2]), int(self.parameters[-1].shape[-1]))

    @property
    def ends(self) -> tuple[int, ...]:
        """All lengths."""
        steps, batch, _ = self.x.shape
        if self.lengths is None:
            return (int(steps),) * int(batch)
        ends = tuple(self.lengths.tolist())
        if min(ends) < 1 or max(ends) > steps:
            raise UserError(f"lengths must be from 1 to T = {steps}, were {min(ends)} to {max(ends)}")
        return ends

    def check(self) -> None:
        """Kernels go by addresses: what is not as they expect it would have them read what is not theirs."""
        k, (steps, batch, _) = self.kernels, self.x.shape
        slots = self.state[k.states].shape[1] if len(self.state) > k.states else 0
        _check("parameters", self.parameters, k.parameters.shapes)
        _check("state", self.state, k.state_shapes(batch, slots))
        _check("x", [self.x], [(steps, batch, k.sizes.inputs)])
        if self.cell_noise is not None:
            _check("cell_noise", [self.cell_noise], [(steps, batch, k.sizes.size)])
        if self.program_noise is not None:
            _check("program_noise", [self.program_noise], [(steps, batch, k.sizes.choices, k.sizes.programs)])

    def given(self) -> tuple[Given, Any]:
        """The same by addresses, and what has to be held on to as long as those are used."""
        x, state = self.x.contiguous(), _contiguous(self.state)
        noise = [None if drawn is None else drawn.contiguous() for drawn in (self.cell_noise, self.program_noise)]
        drawn = [0 if n is None else n.data_ptr() for n in noise]
        steps, batch, _ = x.shape
        slots = state[self.kernels.states].shape[1]
        found = Given(steps, batch, self.ends, slots, addresses(state), x.data_ptr(), *drawn)
        return found, (x, state, noise)

    def kept_size(self) -> int:
        """How many numbers the way back needs: packed weights, then what each chunk keeps, or a state per stretch."""
        k, slots = self.kernels, int(self.state[self.kernels.states].shape[1])
        return k.weights_size + k.kept_size(self.ends, slots, self.trace)


def _check(name: str, tensors: Sequence[Tensor], shapes: Sequence[tuple[int, ...]]) -> None:
    if [tensor.shape for tensor in tensors] == shapes and {tensor.dtype for tensor in tensors} <= FLOATS:
        return
    if len(tensors) != len(shapes):
        raise UserError(f"{name} must be {len(shapes)} tensors for this description, were {len(tensors)}")
    for i, (tensor, shape) in enumerate(zip(tensors, shapes, strict=True)):
        if tensor.shape != shape or tensor.dtype != torch.float32:
            found = f"{tuple(tensor.shape)} of {tensor.dtype}"
            raise UserError(f"{name}[{i}] must have shape {tuple(shape)} of torch.float32 here, was {found}")


def _call(arguments: tuple[Any, ...]) -> tuple[Call, bool]:
    """The arguments of a forward operator, looked at; what equals its default, torch leaves out."""
    call = Call(*arguments[: len(Call._fields)])
    call.check()
    return call, len(arguments) > len(Call._fields) and arguments[-1]


def _return(arguments: tuple[Any, ...]) -> tuple[Call, bool, bool]:
    """The arguments of a backward operator after the gradients it begins with: whether those of the input and of the
    initial state are asked for."""
    *given, asked, carried = arguments
    return Call(*given), asked, carried


def _contiguous(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    if all(map(Tensor.is_contiguous, tensors)):
        return tensors
    return [tensor.contiguous() for tensor in tensors]


# --- what the operators do --------------------------------------------------------------------------------------------


def _forward(*arguments: Any) -> Found:
    """All steps. Without `keep`, which is autograd's to ask for, there is no way back, and nothing is left for it."""
    call, keep = _call(arguments)
    k, threads = call.kernels, torch.get_num_threads()
    given, held = call.given()
    run, parameters = Pass(k, given, threads), _contiguous(call.parameters)
    compile_for(k.tape.config)
    shape = given.steps, given.batch, k.sizes.outputs
    # Of the input's kind: torch.empty would go by what is the default device and precision.
    out = call.x.new_empty(shape) if min(given.lengths) == given.steps else call.x.new_zeros(shape)
    final = [call.x.new_empty(shape) for shape in k.state_shapes(given.batch, given.slots)]
    where = out.data_ptr(), addresses(final)
    if keep:
        kept = pool.take_tensor(k.weights_size + k.kept_size(given.lengths, given.slots, call.trace))
        floats(kept)[: k.weights_size].fill(0)
        k.pack(addresses(parameters), kept.data_ptr(), threads)
        trace = run.forward(kept.data_ptr(), *where, kept.data_ptr() + 4 * k.weights_size, call.trace)
    else:
        kept = NOTHING
        with k.packed(addresses(parameters), threads) as block:
            trace = run.glance(block, *where, call.trace)
    del held
    return out, final, [torch.from_numpy(t) for t in trace], kept


def _backward(d_out: Tensor, d_final: Sequence[Tensor], kept: Tensor, *arguments: Any) -> list[Tensor]:
    """The gradients of the input and of the initial state's leaves, if they are asked for, and of the parameters.

    `d_final` may be empty: all zero.
    """
    call, asked, carried = _return(arguments)
    k, threads = call.kernels, torch.get_num_threads()
    given, held = call.given()
    run = Pass(k, given, threads, asked)
    d_out, d_final = d_out.contiguous(), _contiguous(d_final)
    d_x = call.x.new_empty(0)
    if asked:
        whole = min(given.lengths) == given.steps
        d_x = call.x.new_empty(call.x.shape) if whole else call.x.new_zeros(call.x.shape)
    d_initial = [call.x.new_empty(shape) for shape in k.state_shapes(given.batch, given.slots)] if carried else []
    d_parameters = [call.x.new_empty(shape) for shape in k.parameters.shapes]
    where, fresh = addresses(d_parameters), True

    def collect(blocks: list[Block]) -> None:
        nonlocal fresh
        k.unpack(blocks, where, fresh, threads)
        fresh = False

    run.backward(
        kept.data_ptr(),
        kept.data_ptr() + 4 * k.weights_size,
        d_out.data_ptr(),
        addresses(d_final) if d_final else None,
        d_x.data_ptr() if asked else 0,
        addresses(d_initial) if carried else None,
        collect,
        call.trace,
    )
    del held
    return [d_x, *d_initial, *d_parameters]


# --- what torch asks of an operator: shapes, gradients, batches of calls ----------------------------------------------


def _fake_forward(*arguments: Any) -> Found:
    call, keep = _call(arguments)
    x, k, shape = call.x, call.kernels, call.x.shape[:2]
    s, slots = k.sizes, call.state[k.states].shape[1]
    trace = []
    if call.trace:
        read, write = k.tape.counts
        widths: list[tuple[Any, ...]] = [(s.size,), (s.reads,), (read, slots), (write, slots)]
        widths += [(s.heads, s.programs)] if s.attention != STATIC else []
        widths += [(s.programs,)] * (s.choices - s.heads)
        widths += [(int(length),) for _, _, _, length, _ in k.table]
        widths += [(slots, k.tape.config.width)] if call.trace == WITH_TAPES else []
        trace = [x.new_empty(*shape, *width) for width in widths]
    room: Any = 0
    if keep:
        known = call.lengths is None and all(isinstance(size, int) for size in (*x.shape, slots))
        room = 4 * call.kept_size() if known else torch.library.get_ctx().new_dynamic_size()
    return x.new_empty(*shape, s.outputs), _like(call.state), trace, x.new_empty(room, dtype=torch.uint8)


def _fake_backward(d_out: Tensor, d_final: Sequence[Tensor], kept: Tensor, *arguments: Any) -> list[Tensor]:
    call, asked, carried = _return(arguments)
    return _like((call.x if asked else call.x.new_empty(0), *(call.state if carried else ()), *call.parameters))


def _like(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in tensors]


class _Transformable(torch.autograd.Function):
    """A forward operator with its gradient. Lists of tensors are laid out flat, as autograd wants them.

    Not `torch.library.register_autograd`: of operators that take lists, the functions that it makes know no transforms
    of `torch.func`.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(name: str, states: int, rest: tuple[Any, ...], *tensors: Tensor) -> tuple[Tensor, ...]:
        return _keeping(_forward if _plain(tensors) else getattr(torch.ops.nsm, name), states, rest, *tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.name, ctx.states, ctx.rest, *tensors = inputs
        # The weights are in `kept` as well; torch is to see that they don't change before the way back.
        ctx.save_for_backward(output[1], *tensors)
        ctx.mark_non_differentiable(output[1], *output[2 + ctx.states :])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, d_out: Tensor | None, _: None, *d_ends: Tensor | None) -> tuple[Tensor | None, ...]:
        kept, x, cell_noise, program_noise, lengths, *others = ctx.saved_tensors
        state, parameters = others[: ctx.states], others[ctx.states :]
        if d_out is None:
            d_out = x.new_zeros(*x.shape[:2], parameters[-1].shape[-1])
        d_final, found = [], d_ends[: ctx.states]
        if any(d is not None for d in found):
            d_final = [torch.zeros_like(leaf) if d is None else d for leaf, d in zip(state, found, strict=True)]
        tensors = d_out, kept, x, cell_noise, program_noise, lengths, *d_final, *others
        counts = len(d_final), ctx.states
        # Transforms of torch.func want to know that the gradient has none of its own; all others need no detour.
        back = _Gradient.apply if torch.is_grad_enabled() else _Gradient.forward
        asked, carried = ctx.needs_input_grad[3], any(ctx.needs_input_grad[7 : 7 + ctx.states])
        d_x, *rest = back(f"{ctx.name}_backward", counts, (*ctx.rest, asked, carried), *tensors)
        initial = () if carried else (None,) * ctx.states
        return None, None, None, d_x if asked else None, None, None, None, *initial, *rest


class _Sequence(torch.autograd.Function):
    """The same where no transforms are about: `setup_context` costs as much as a step of a small machine."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
        output = _keeping(_forward, *inputs[1:])
        _Transformable.setup_context(ctx, inputs, output)
        return output

    backward = _Transformable.backward


def _keeping(operator: Any, states: int, rest: tuple[Any, ...], *tensors: Tensor) -> tuple[Tensor, ...]:
    """A forward operator that keeps what its gradient needs, with flat lists of tensors."""
    x, cell_noise, program_noise, lengths, *others = tensors
    state, parameters = others[:states], others[states:]
    out, final, trace, kept = operator(x, state, parameters, cell_noise, program_noise, lengths, *rest, True)
    return out, kept, *final, *trace


PLAIN = {Tensor, torch.nn.Parameter, type(None)}


def _plain(tensors: Sequence[Tensor | None]) -> bool:
    """Whether nobody would see it if an operator's kernel were called without torch's dispatcher, which takes some ten
    microseconds: no transform, mode, tracer or profiler, and no tensors of other classes."""
    return not (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._get_tracing_state()
        or torch._C._autograd._profiler_enabled()
    ) and PLAIN.issuperset(map(type, tensors))


def _forward_with_gradient(name: str) -> Any:
    """The forward operator as autograd sees it. `keep` says that its gradient is taken care of already."""

    def autograd(keys: Any, *arguments: Any) -> Any:
        call, keep = Call(*arguments[: len(Call._fields)]), len(arguments) > len(Call._fields) and arguments[-1]
        inputs = call.x, *call.state, *call.parameters
        if keep or not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)):
            return _below_autograd(getattr(torch.ops.nsm, name).default, keys, arguments)
        return _with_gradient(name, call)

    return autograd


def _with_gradient(name: str, call: Call) -> Found:
    states = len(call.state)
    tensors = call.x, call.cell_noise, call.program_noise, call.lengths, *call.state, *call.parameters
    apply = _Sequence.apply if _plain(tensors) else _Transformable.apply
    out, kept, *others = apply(name, states, (call.description, call.trace), *tensors)
    return out, others[:states], others[states:], kept


class _Gradient(torch.autograd.Function):
    """A backward operator, laid out flat as well; it has no gradient of its own."""

    generate_vmap_rule = True

    @staticmethod
    def forward(name: str, counts: tuple[int, int], rest: tuple[Any, ...], *tensors: Tensor) -> tuple[Tensor, ...]:
        d_out, kept, x, cell_noise, program_noise, lengths, *others = tensors
        ends, states = counts
        d_final, state, parameters = others[:ends], others[ends : ends + states], others[ends + states :]
        operator = _backward if _plain(tensors) else getattr(torch.ops.nsm, name)
        inputs = x, state, parameters, cell_noise, program_noise, lengths
        return tuple(operator(d_out, d_final, kept, *inputs, *rest))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise UserError("the fused backend has no second derivatives; backend 'reference' has")


def _backward_without_gradient(name: str) -> Any:
    """The backward operator as autograd sees it."""

    def autograd(keys: Any, *arguments: Any) -> Any:
        d_out, d_final, kept, x, state, parameters, cell_noise, program_noise, lengths, *rest = arguments
        tensors = d_out, kept, x, cell_noise, program_noise, lengths, *d_final, *state, *parameters
        if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
            return list(_Gradient.apply(name, (len(d_final), len(state)), tuple(rest), *tensors))
        return _below_autograd(getattr(torch.ops.nsm, name).default, keys, arguments)

    return autograd


def _below_autograd(operator: Any, keys: Any, arguments: tuple[Any, ...]) -> Any:
    with torch._C._AutoDispatchBelowAutograd():  # as torch's own kernels for autograd do
        return operator.redispatch(keys & torch._C._after_autograd_keyset, *arguments)


def _one_by_one(operator: str) -> Any:
    """The rule for `torch.vmap`: the calls of a batch of them one after another, as each may have its own weights."""

    def rule(info: Any, dimensions: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
        def one(i: int) -> Any:
            return getattr(torch.ops.nsm, operator)(
                *(_pick(*pair, i) for pair in zip(arguments, dimensions, strict=True))
            )

        together = _stack([one(i) for i in range(info.batch_size)])
        return together, torch.utils._pytree.tree_map(lambda _: 0, together)

    return rule


def _pick(argument: Any, dimension: Any, i: int) -> Any:
    if isinstance(argument, list):
        return [_pick(*pair, i) for pair in zip(argument, dimension or [None] * len(argument), strict=True)]
    return argument if dimension is None else argument.select(dimension, i)


def _stack(results: list[Any]) -> Any:
    first = results[0]
    if isinstance(first, Tensor):
        return torch.nn.utils.rnn.pad_sequence(results, True) if first.dtype == torch.uint8 else torch.stack(results)
    return type(first)(_stack(list(parts)) for parts in zip(*results, strict=True))


_library = torch.library.Library("nsm", "DEF")
for _name in MEMORIES:
    _back = f"{_name}_backward"
    for _operator, _schema, _kernel, _fake, _autograd in (
        (_name, FORWARD, _forward, _fake_forward, _forward_with_gradient(_name)),
        (_back, BACKWARD, _backward, _fake_backward, _backward_without_gradient(_back)),
    ):
        _library.define(f"{_operator}{_schema}", tags=torch.Tag.needs_contiguous_strides)
        _library.impl(_operator, _kernel, "CPU")
        _library.impl(_operator, _autograd, "Autograd", with_keyset=True)
        torch.library.register_fake(f"nsm::{_operator}", _fake, lib=_library)
        torch.library.register_vmap(f"nsm::{_operator}", _one_by_one(_operator), lib=_library)


def run(name: str, *arguments: Any) -> Found:
    """An operator by its memory's name, also inside the transforms of `torch.func`.

    They know the gradient of a function, not of an operator: there the function is called before its operator is.
    """
    if torch.compiler.is_compiling():
        return cast(Found, getattr(torch.ops.nsm, name).default(*arguments))
    call = Call(*arguments)
    if torch._C._are_functorch_transforms_active():
        return _with_gradient(name, call)
    inputs = call.x, *call.state, *call.parameters
    if not _plain(inputs):
        return cast(Found, getattr(torch.ops.nsm, name).default(*arguments))
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        return _with_gradient(name, call)
    return _forward(*arguments)
