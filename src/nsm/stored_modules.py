"""Any module with stored programs: P copies of its parameters, mixed for every sample by a query.

    w = softmax_i(β D(k, k_i))        of each sample, Eqs. 3–4
    y = module(x; Σ_i w(i) θ_i)       Eq. 5, with θ_i all parameters of the module in program i

Where a product is linear in θ it is mixed afterwards, Σ_i w(i) (x θ_i), which builds no parameters for a sample: in
linear layers, convolutions, an `nn.Sequential` of them and recurrent cells' gates. All else goes through `vmap`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parameter import is_lazy

from nsm.attention import seed_from
from nsm.checks import UserError, at_least, choose
from nsm.precision import autocasts, for_product
from nsm.programs import ProgramKeys, Programs, Querying, mixed

Query = Callable[..., Tensor]
"""Makes the query c (B, features) from the module's own arguments."""
Output = Any
"""The module's output."""
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
SIZES = ("in_features", "in_channels", "num_channels", "input_size", "embed_dim")
"""Names of the input width in PyTorch's layers."""


def stored(
    module: nn.Module,
    programs: int | Programs = 2,
    *,
    query: Query | None = None,
    features: int | None = None,
    per: Literal["sample", "position"] = "sample",
    shared: Sequence[str] = (),
    spread: float = 0.1,
    generator: torch.Generator | None = None,
) -> StoredModule:
    """A copy of a module whose parameters are P programs, mixed for every sample.

    Call it like the module, with tensors whose first dimension is the batch; keyword arguments named in `shared` (a
    mask, say) are the same for all samples. The module itself is not changed.

    Args:
        programs: their number, or a `Programs` with the attention, the width of keys and l_p.
        query: makes c (B, features) from the arguments, a network or any function; by default c is the first argument,
            averaged over time and space. A call may pass its own: `layer(x, query=c)`.
        features: the width of c; known for PyTorch's own layers.
        per: "sample": one mixture per sample. "position": one per vector along the last dimension, as in a feed-forward
            block.
        spread: how far apart programs start, 0 to 1: each is m + √(1 − s²) (θ − m) + s σ ε, ε ~ N(0, 1), with mean m
            and deviation σ of each parameter θ. 0 makes copies; 1 makes programs of the same scale, independent of the
            module and of each other. A single program equals the module.
    """
    config = programs if isinstance(programs, Programs) else Programs(programs)
    choose("per", per, ("sample", "position"))
    if isinstance(spread, bool) or not isinstance(spread, int | float) or not 0 <= spread <= 1:
        raise UserError(f"spread must be a number from 0 to 1, was {spread!r}")
    _refuse(module)
    if features is None:
        features = _features(module)
    if per == "position" and _channels_first(module):
        raise UserError("per='position' needs a module whose features are last, not a convolution")
    memory = ModulePrograms(module, config, float(spread), tuple(shared), generator)
    return StoredModule(memory, at_least("features", features, 1), query, per == "position", generator)


class ModulePrograms(ProgramKeys):
    """P programs, each all parameters of a module, under P keys.

    `module` is a copy of the module whose parameters have a leading dimension P. Tied parameters stay tied. Buffers are
    shared by all programs.
    """

    def __init__(
        self,
        module: nn.Module,
        config: Programs,
        spread: float = 0.1,
        shared: tuple[str, ...] = (),
        generator: torch.Generator | None = None,
    ) -> None:
        first = next(module.parameters())
        super().__init__(config, device=first.device, dtype=first.dtype)
        self.module = copy.deepcopy(module)
        self.shared = shared
        made: dict[nn.Parameter, nn.Parameter] = {}
        for owner in self.module.modules():
            for name, parameter in list(owner._parameters.items()):
                if parameter is None:
                    continue
                if parameter not in made:
                    made[parameter] = _programs(parameter, config.count, spread, generator)
                setattr(owner, name, made[parameter])
        self._norms = [part for part in self.module.modules() if isinstance(part, nn.modules.batchnorm._NormBase)]

    def forward(self, weights: Tensor, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """The module's output, with a mixture per sample. weights (B, P)."""
        if any(map(_mixes_samples, self._norms)):
            raise UserError(NO_STATISTICS)
        own, fixed = (inputs, self.owned(options)), {name: options[name] for name in self.shared if name in options}
        tensors = _leaves(own)
        for tensor in tensors:
            if tensor.shape[:1] != weights.shape[:1]:
                raise UserError(
                    f"every tensor must have the batch, {len(weights)}, as its first dimension, one was "
                    f"{tuple(tensor.shape)}; pass what all samples share by keyword and name it in "
                    "nsm.stored(…, shared=…)"
                )
        if not options and not _watched(self.module):
            if type(self.module) in CELLS and len(inputs) in (1, 2):
                return CELLS[type(self.module)](self.module, weights, *inputs)
            if len(inputs) == 1 and isinstance(inputs[0], Tensor) and _is_linear(self.module):
                return _execute(self.module, inputs[0], weights)
        return self._by_sample(weights, own, tensors, fixed)

    def owned(self, options: dict[str, Any]) -> dict[str, Any]:
        """The keyword arguments that have a batch."""
        return {name: option for name, option in options.items() if name not in self.shared}

    def _by_sample(self, weights: Tensor, own: Any, tensors: list[Tensor], fixed: dict[str, Any]) -> Any:
        """The module called once per sample, as a batch of one, with the sample's own parameters.

        Under autocast in the precision of its weights, with outputs in autocast's: vmap decomposes many operations
        before autocast sees them.
        """
        if not autocasts(weights):
            return self._mapped(weights, own, tensors, fixed)
        kind, ours = weights.device.type, next(self.module.parameters()).dtype
        wanted = torch.get_autocast_dtype(kind)
        with torch.autocast(kind, enabled=False):
            tensors, fixed = _each(partial(_cast, dtype=ours), (tensors, fixed))
            out = self._mapped(weights, own, tensors, fixed)
        return _each(partial(_cast, dtype=wanted), out)

    def _mapped(self, weights: Tensor, own: Any, tensors: list[Tensor], fixed: dict[str, Any]) -> Any:
        """The module's output; `own` are its arguments, and `tensors` their leaves."""
        parameters = {
            name: torch.tensordot(weights.to(stack.dtype), stack, dims=1)
            for name, stack in self.module.named_parameters()
        }
        outputs: list[Any] = []

        def one(parameters: dict[str, Tensor], tensors: list[Tensor]) -> list[Tensor]:
            left = iter(tensors)
            given, named = _each(lambda _: next(left).unsqueeze(0), own)
            outputs.append(functional_call(self.module, parameters, given, {**named, **fixed}))
            return [_alone(tensor) for tensor in _leaves(outputs[0])]

        with _mappable():
            found = iter(vmap(one, randomness="different")(parameters, tensors))
        return _each(lambda _: next(found), outputs[0])

    def extra_repr(self) -> str:
        return str(self.config)


class StoredModule(Querying):
    """A module with stored programs, made by `nsm.stored`: called like the module, with parameters mixed per sample.

    Its parameters: `memory.key` (P, K) and `memory.module`, those of the module with a leading dimension P; `query` and
    `strength` with a weight and a bias each; `source.…` if the query is a network of your own.
    """

    memory: ModulePrograms

    def __init__(
        self,
        memory: ModulePrograms,
        features: int,
        source: Query | None = None,
        positions: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(features, memory)
        self.source = source
        self.positions = positions
        self.reset_parameters(generator=generator)
        self._generator = torch.Generator().manual_seed(seed_from(next(memory.module.parameters())))

    def attend(
        self, *inputs: object, query: Tensor | None = None, noise: Tensor | None = None, **options: object
    ) -> Tensor:
        """The program weights w^p of every sample, (B, P); of every position, (…, P)."""
        c = self._c(inputs, options, query)
        return self.memory.attend(*self.ask(c), noise)

    def forward(
        self, *inputs: object, query: Tensor | None = None, noise: Tensor | None = None, **options: object
    ) -> Output:
        """The module's output. `query` (B, features) replaces c; `noise` (B, P) is for Gumbel attention.

        Both keywords are used here: a module with arguments of these names gets them by position.
        """
        c = self._c(inputs, options, query)
        weights = self.memory.attend(*self.ask(c), self._drawn(c, noise))
        if not self.positions:
            return self.memory(weights, inputs, options)
        leading = c.shape[:-1]
        given, named = _each(lambda tensor: tensor.flatten(0, len(leading) - 1), (inputs, self.memory.owned(options)))
        out = self.memory(weights.flatten(0, -2), given, {**options, **named})
        return _each(lambda tensor: tensor.unflatten(0, leading), out)

    def _c(self, inputs: tuple[object, ...], options: dict[str, object], query: Tensor | None) -> Tensor:
        """The input of the query network: c (B, features), or (…, features) per position."""
        if query is not None:
            c = query
        elif self.source is not None:
            c = self.source(*inputs, **options)
        else:
            c = self._pooled(inputs)
        self._check(c)
        if not self.positions and c.dim() != 2:
            raise UserError(f"the query must have shape (B, {self.features}), was {tuple(c.shape)}")
        return c

    def _pooled(self, inputs: tuple[object, ...]) -> Tensor:
        """The first input, averaged over all dimensions but batch and features."""
        x = inputs[0] if inputs else None
        if not isinstance(x, Tensor) or not x.is_floating_point():
            raise UserError(
                "the first argument is not a floating-point tensor and can't be the query: pass nsm.stored a query=…"
            )
        if self.positions or x.dim() < 3:
            return x
        return x.flatten(2).mean(dim=2) if _channels_first(self.memory.module) else x.flatten(1, -2).mean(dim=1)


# --- how programs start -----------------------------------------------------------------------------------------------

NO_STATISTICS = (
    "batch norm keeps statistics of whole batches, which samples with their own parameters don't have: use "
    "nn.GroupNorm or nn.LayerNorm, or keep it in evaluation mode"
)


def _refuse(module: nn.Module) -> None:
    """Raise a UserError for a module whose samples can't have their own parameters."""
    if not isinstance(module, nn.Module):
        raise UserError(f"nsm.stored takes an nn.Module, was {type(module).__name__}")
    if any(map(is_lazy, module.parameters())):
        raise UserError(f"a {type(module).__name__} has uninitialised parameters: call it once before nsm.stored")
    if not any(parameter.is_floating_point() for parameter in module.parameters()):
        raise UserError(f"a {type(module).__name__} has no parameters to store")
    for part in module.modules():
        if _mixes_samples(part):
            raise UserError(NO_STATISTICS)
        if isinstance(part, nn.RNNBase):
            raise UserError(f"an nn.{type(part).__name__} can't be stored, an nn.{type(part).__name__}Cell can")
        if getattr(part, "batch_first", True) is False:
            raise UserError(f"a {type(part).__name__} must have batch_first=True to be stored")


def _mixes_samples(part: nn.Module) -> bool:
    """Whether a module normalises by a whole batch, or keeps statistics over batches."""
    if isinstance(part, nn.modules.batchnorm._BatchNorm):
        return part.training or not part.track_running_stats
    return isinstance(part, nn.modules.batchnorm._NormBase) and part.training and part.track_running_stats


def _programs(parameter: nn.Parameter, count: int, spread: float, generator: torch.Generator | None) -> nn.Parameter:
    """P programs of one parameter (…) → (P, …): m + √(1 − s²) (θ − m) + s σ ε."""
    theta = parameter.detach()
    stack = theta.expand(count, *theta.shape).clone()
    if count > 1 and spread:
        deviation, mean = torch.std_mean(theta, correction=0)
        drawn = torch.empty_like(stack).normal_(generator=generator)
        stack = mean + math.sqrt(1 - spread**2) * (stack - mean) + spread * deviation * drawn
    return nn.Parameter(stack, parameter.requires_grad)


# --- what the query is made of ----------------------------------------------------------------------------------------


def _first(module: nn.Module) -> nn.Module:
    """The first submodule that has parameters of its own."""
    return next(part for part in module.modules() if any(True for _ in part.parameters(recurse=False)))


def _features(module: nn.Module) -> int:
    """The input width of a module's first layer."""
    first = _first(module)
    for name in SIZES:
        if isinstance(size := getattr(first, name, None), int):
            return size
    raise UserError(f"the width of the query is unknown for a {type(first).__name__}: pass features=…")


def _channels_first(module: nn.Module) -> bool:
    return isinstance(_first(module), nn.modules.conv._ConvNd | nn.GroupNorm)


# --- mixed after the product ------------------------------------------------------------------------------------------


def _watched(module: nn.Module) -> bool:
    """Whether a module has hooks."""
    hooks = module._forward_pre_hooks, module._forward_hooks, module._backward_pre_hooks, module._backward_hooks
    return any(hooks)


def _is_linear(module: nn.Module) -> bool:
    """Whether a module can be mixed layer by layer after the product."""
    if type(module) is nn.Sequential:
        return all(_is_linear(layer) and not _watched(layer) for layer in module)
    return type(module) in (nn.Linear, *CONVOLUTIONS) or not (
        any(True for _ in module.parameters()) or any(True for _ in module.buffers())
    )


def _execute(module: nn.Module, x: Tensor, weights: Tensor) -> Tensor:
    """Σ_i w(i) module(x; θ_i). weights (B, P)."""
    if isinstance(module, nn.Sequential):
        for layer in module:
            x = _execute(layer, x, weights)
        return x
    if isinstance(module, nn.Linear):
        return mixed_linear(x, module.weight, module.bias, weights)
    if isinstance(module, CONVOLUTIONS):
        return _convolution(module, x, weights)
    return cast(Tensor, module(x))


def mixed_linear(x: Tensor, weight: Tensor, bias: Tensor | None, weights: Tensor) -> Tensor:
    """x (B, …, in), weight (P, out, in) → (B, …, out): one product with the programs side by side."""
    each = F.linear(x, weight.flatten(0, 1), None if bias is None else bias.flatten())
    along = weights.reshape(len(weights), *[1] * (x.dim() - 2), -1)
    return mixed(each.unflatten(-1, weight.shape[:2]), along)


def _convolution(module: nn.Conv1d | nn.Conv2d | nn.Conv3d, x: Tensor, weights: Tensor) -> Tensor:
    """x (B, in, …), weight (P, out, in / groups, …) → (B, out, …): one convolution with P times the channels.

    Channels lie by group, then by program, because a convolution's groups are contiguous.
    """
    count, groups = weights.shape[-1], module.groups

    def by_group(stack: Tensor) -> Tensor:
        side_by_side: Tensor = stack.unflatten(1, (groups, -1)).transpose(0, 1).flatten(0, 2)
        return side_by_side

    bias = None if module.bias is None else by_group(module.bias)
    each = module._conv_forward(x, by_group(module.weight), bias).unflatten(1, (groups, count, -1))
    shares = for_product(weights).reshape(len(weights), 1, count, *[1] * (each.dim() - 3)) * each
    out: Tensor = shares.sum(dim=2, dtype=shares.dtype).flatten(1, 2)
    return out


def _gates(cell: nn.RNNCellBase, weights: Tensor, x: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Wx and Uh of a recurrent cell, each (B, gates · H)."""
    ours = mixed_linear(x, cell.weight_ih, cell.bias_ih, weights)
    return ours, mixed_linear(hidden, cell.weight_hh, cell.bias_hh, weights)


def _zeros(cell: nn.RNNCellBase, x: Tensor) -> Tensor:
    return x.new_zeros(len(x), cell.hidden_size)


def _rnn_cell(cell: nn.RNNCell, weights: Tensor, x: Tensor, hidden: Tensor | None = None) -> Tensor:
    """h = tanh(Wx + Uh), or a ReLU."""
    ours, theirs = _gates(cell, weights, x, _zeros(cell, x) if hidden is None else hidden)
    return torch.tanh(ours + theirs) if cell.nonlinearity == "tanh" else torch.relu(ours + theirs)


def _gru_cell(cell: nn.GRUCell, weights: Tensor, x: Tensor, hidden: Tensor | None = None) -> Tensor:
    """r, z = σ(Wx + Uh); n = tanh(Wx + r (Uh)); h = (1 − z) n + z h."""
    hidden = _zeros(cell, x) if hidden is None else hidden
    ours, theirs = (part.chunk(3, dim=-1) for part in _gates(cell, weights, x, hidden))
    r, z = torch.sigmoid(ours[0] + theirs[0]), torch.sigmoid(ours[1] + theirs[1])
    candidate = torch.tanh(ours[2] + r * theirs[2])
    return (1 - z) * candidate + z * hidden


def _lstm_cell(
    cell: nn.LSTMCell, weights: Tensor, x: Tensor, state: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """i, f, g, o = Wx + Uh; c = σ(f) c + σ(i) tanh(g); h = σ(o) tanh(c)."""
    hidden, kept = (_zeros(cell, x), _zeros(cell, x)) if state is None else state
    ours, theirs = _gates(cell, weights, x, hidden)
    i, f, g, o = (ours + theirs).chunk(4, dim=-1)
    kept = torch.sigmoid(f) * kept + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(kept), kept


CELLS: dict[type[nn.Module], Callable[..., Any]] = {
    nn.RNNCell: _rnn_cell,
    nn.GRUCell: _gru_cell,
    nn.LSTMCell: _lstm_cell,
}


# --- called for every sample ------------------------------------------------------------------------------------------


@contextmanager
def _mappable() -> Iterator[None]:
    """Attention in plain operations, because its fused kernels can't be mapped over samples."""
    fast = torch.backends.mha.get_fastpath_enabled() and not torch.compiler.is_compiling()
    try:
        if fast:
            torch.backends.mha.set_fastpath_enabled(False)
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        if fast:
            torch.backends.mha.set_fastpath_enabled(True)


# --- trees of arguments -----------------------------------------------------------------------------------------------


def _each(function: Callable[[Tensor], Any], tree: Any) -> Any:
    """Tuples, lists and dicts with `function` of every tensor; everything else is kept."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, dict):
        return type(tree)((name, _each(function, branch)) for name, branch in tree.items())
    if isinstance(tree, tuple | list):
        branches = [_each(function, branch) for branch in tree]
        return type(tree)(*branches) if hasattr(tree, "_fields") else type(tree)(branches)
    return tree


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _leaves(tree: Any) -> list[Tensor]:
    """The tensors of a tree, from first to last."""
    leaves: list[Tensor] = []
    _each(leaves.append, tree)
    return leaves


def _alone(tensor: Tensor) -> Tensor:
    """The output for a batch of one, without the batch."""
    if tensor.dim() == 0 or len(tensor) != 1:
        raise UserError(f"outputs must have the batch as first dimension; for batch 1, one was {tuple(tensor.shape)}")
    return tensor.squeeze(0)
