"""A machine's weights as its operator takes them: one list of tensors, whatever makes them.

They are read off the modules anew for every call, so parametrised, tied, pruned or substituted weights are what they
are for the modules themselves. What an operator can't do is call a module: one that computes something else than it
was made for, or that somebody waits for with a hook, is left to the reference.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from typing import cast

from torch import Tensor, nn
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from nsm.controllers import NETWORKS, StateNetwork
from nsm.memories import DNCMemory, LRUAMemory, Memory, NTMMemory
from nsm.programs import ProgramMemory, StoredProgramLinear

TAPES = (NTMMemory, LRUAMemory, DNCMemory)
NORM_EPSILON = 1e-5
"""That of `nn.LayerNorm`, which the kernels have."""
MAKERS = (BasePruningMethod, WeightNorm, SpectralNorm)
"""Hooks that only make a weight before a module is called; they do so here, too."""


class NotCovered(Exception):
    """Why an operator can't do what a machine does. `plain`: nobody would expect it to."""

    def __init__(self, reason: str, plain: bool = False) -> None:
        super().__init__(reason)
        self.plain = plain


def operands(
    controller: nn.Module,
    interfaces: Iterable[nn.Module],
    norms: Iterable[nn.Module],
    memory: Memory,
    output: nn.Module,
) -> list[Tensor]:
    """The tensors in the order of `nsm.fused.layout.Parameters`.

    Raises:
        NotCovered: a module does not compute what an operator would.
    """
    if type(memory) not in TAPES:
        raise NotCovered(f"a {type(memory).__name__}")
    _check(memory, type(memory))
    if not isinstance(controller, StateNetwork):
        raise NotCovered("stored programs of a state network")
    if isinstance(output, StoredProgramLinear):
        raise NotCovered("stored programs of an output layer")
    if type(controller).advance is not NETWORKS[controller.config.kind].advance:
        raise NotCovered(f"the steps of a {type(controller).__name__}")
    found = _tensors(controller, NETWORKS[controller.config.kind], CONTROLLER, optional=RECURRENT)
    for norm in controller.norms:
        found += _tensors(norm, nn.LayerNorm, LINEAR)
    for network, norm in zip_longest(interfaces, norms):
        found += _interface(network)
        if norm is not None:
            found += _tensors(norm, nn.LayerNorm, LINEAR)
    return [*found, *_tensors(output, nn.Linear, LINEAR)]


LINEAR, CONTROLLER, RECURRENT = ("weight", "bias"), ("weight_ih", "bias_ih"), ("weight_hh", "bias_hh")


def _interface(network: nn.Module) -> list[Tensor]:
    if not isinstance(network, StoredProgramLinear):
        return _tensors(network, nn.Linear, LINEAR)
    _check(network, StoredProgramLinear)
    parts = network._modules
    found = _tensors(cast(nn.Module, parts["memory"]), ProgramMemory, LINEAR, optional=("key",))
    for inside in (parts.get("query"), parts.get("strength")):
        if inside is not None:
            found += _tensors(inside, nn.Linear, ("weight",), optional=("bias",))
    return found


def _tensors(
    module: nn.Module, kind: type[nn.Module], names: tuple[str, ...], optional: tuple[str, ...] = ()
) -> list[Tensor]:
    """A module's tensors by name, and those of the optional ones that it has."""
    _check(module, kind)
    # Most are plain parameters: to ask for them as attributes takes three times as long.
    plain: list[Tensor] = [tensor for tensor in map(module._parameters.get, names + optional) if tensor is not None]
    if len(plain) == len(names) + len(optional):
        return plain
    found = [getattr(module, name) for name in names + optional]
    for name, tensor in zip(names, found, strict=False):
        if tensor is None:
            raise NotCovered(f"a {type(module).__name__} without {name}")
    return [tensor for tensor in found if tensor is not None]


def _check(module: nn.Module, kind: type[nn.Module]) -> None:
    if type(module) is not kind and not (isinstance(module, kind) and type(module).forward is kind.forward):
        raise NotCovered(f"a {type(module).__name__} in place of a {kind.__name__}")
    if module._forward_pre_hooks:
        for hook in module._forward_pre_hooks.values():
            if not isinstance(hook, MAKERS):
                raise NotCovered(f"hooks on a {type(module).__name__}")
            hook(module, ())
    if kind is nn.LayerNorm and module.eps != NORM_EPSILON:
        raise NotCovered(f"a LayerNorm with eps = {module.eps}")
    if module._forward_hooks or module._backward_hooks or module._backward_pre_hooks:
        raise NotCovered(f"hooks on a {type(module).__name__}")
