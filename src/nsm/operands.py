"""A machine's weights as its operator takes them: one list of tensors.

They are read from the modules at every call, so parametrised, tied, pruned or substituted weights are those the modules
would use. An operator can't call a module: a module that computes something other than its class does, or that has
hooks, needs the reference.
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
from nsm.programs import ProgramMemory, Querying, StoredProgramLinear
from nsm.state_programs import StatePrograms, StoredStateNetwork

TAPES = (NTMMemory, LRUAMemory, DNCMemory)
NORM_EPSILON = 1e-5
"""The ε of `nn.LayerNorm`, as in the kernels."""
MAKERS = (BasePruningMethod, WeightNorm, SpectralNorm)
"""Hooks that only compute a weight before a module is called; they are called here too."""


class NotCovered(Exception):
    """Why an operator can't replace a machine's modules. `plain`: the user expects it, so no warning is needed."""

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
        NotCovered: an operator would compute something else.
    """
    if type(memory) not in TAPES:
        raise NotCovered(f"a {type(memory).__name__}")
    _check(memory, type(memory))
    found = _state_network(controller)
    for network, norm in zip_longest(interfaces, norms):
        found += _layer(network)
        if norm is not None:
            found += _tensors(norm, nn.LayerNorm, LINEAR)
    return [*found, *_layer(output)]


LINEAR, CONTROLLER, RECURRENT = ("weight", "bias"), ("weight_ih", "bias_ih"), ("weight_hh", "bias_hh")


def _state_network(controller: nn.Module) -> list[Tensor]:
    """Those of a state network, or of P of them side by side and of what chooses among them; then its norms'."""
    network, asked = controller, []
    if isinstance(controller, StoredStateNetwork):
        _check(controller, StoredStateNetwork)
        memory = controller.memory
        asked = [*_tensors(memory, StatePrograms, (), optional=("key",)), *_questions(controller)]
        network = memory.network
    if not isinstance(network, StateNetwork):
        raise NotCovered(f"a {type(network).__name__} as a state network")
    kind = NETWORKS[network.config.kind]
    if type(network).advance is not kind.advance:
        raise NotCovered(f"the steps of a {type(network).__name__}")
    found = [*_tensors(network, kind, CONTROLLER, optional=RECURRENT), *asked]
    for norm in network.norms:
        found += _tensors(norm, nn.LayerNorm, LINEAR)
    return found


def _layer(network: nn.Module) -> list[Tensor]:
    """Those of a linear layer, or what chooses among P of them and then they side by side."""
    if not isinstance(network, StoredProgramLinear):
        return _tensors(network, nn.Linear, LINEAR)
    _check(network, StoredProgramLinear)
    weight, bias, *key = _tensors(cast(nn.Module, network._modules["memory"]), ProgramMemory, LINEAR, optional=("key",))
    return [*key, *_questions(network), weight, bias]


def _questions(network: Querying) -> list[Tensor]:
    """Those of the query network: of the query, then of the strength."""
    found: list[Tensor] = []
    for inside in map(network._modules.get, ("query", "strength")):
        if inside is not None:
            found += _tensors(inside, nn.Linear, ("weight",), optional=("bias",))
    return found


def _tensors(
    module: nn.Module, kind: type[nn.Module], names: tuple[str, ...], optional: tuple[str, ...] = ()
) -> list[Tensor]:
    """A module's tensors by name, with the optional ones it has."""
    _check(module, kind)
    # Most are plain parameters: attribute access would take three times as long.
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
