"""Neural stored-program memory (Section 3.1): a key-value memory whose values are the weights of another network.

    D(k, k_i)  = k·k_i / (|k| |k_i|)                          (3)
    w(i)       = softmax_i(β D(k, k_i))                       (4)
    p          = Σ_i w(i) v_i                                 (5)
    l_p        = Σ_{i<j} D(k_i, k_j)                          (6)

`ProgramMemory` holds keys and programs and answers queries; `StoredProgramLinear` adds the query network P_I and is a
drop-in for `nn.Linear` in any network.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import skip_init

from nsm.attention import ATTENTION, Attention, gumbel_noise, seed_from
from nsm.checks import UserError, at_least, choose, positive
from nsm.precision import autocasts, for_product, for_softmax
from nsm.similarity import cosine_similarity

PARTS = ("interface", "state", "output")


@dataclass(frozen=True)
class Programs:
    """How many programs a control head stores and how it attends to them."""

    count: int = 2
    """P, the number of stored programs per control head."""
    key_size: int | None = None
    """K, the width of a program's key; None: K = P, as in the paper."""
    attention: str = "key-value"
    """key-value (Eqs. 3–4), direct (the query is the logits), uniform (fixed 1/P), gumbel (hard, one at a time)
    or gumbel-probabilities (the published code's: noise on the weights instead of the logits, soft, in tests too)."""
    temperature: float = 1.0
    """Temperature of the Gumbel softmax; the hard choice uses it for the gradient only."""
    query_bias: bool = True
    """Whether the query and strength networks have a bias."""
    bounded_keys: bool = False
    """tanh on the query and on the stored keys before they are compared, as in the published code."""
    strength_scale: float = 1.0
    """A factor on β. The published code's similarity is cos/K by accident, which is a factor of 1/K here."""
    loss: str = "sum"
    """l_p over the pairs of keys (and the heads of a machine): sum as in Eq. 6, or mean as in the published code."""
    parts: tuple[str, ...] = ("interface",)
    """Which weights are stored programs: interface (those of the interface networks, as in the paper), and also state
    (those of the state network) or output (those of the output layer). Each network has its own program memory."""

    def __post_init__(self) -> None:
        at_least("programs", self.count, 1)
        choose("attention", self.attention, ATTENTION)
        choose("loss", self.loss, ("sum", "mean"))
        positive("temperature", self.temperature)
        for part in self.parts:
            choose("parts", part, PARTS)
        if len({*self.parts}) < len(self.parts) or "interface" not in self.parts:
            raise UserError(f"parts must be distinct and include interface, were {', '.join(self.parts)}")
        positive("strength_scale", self.strength_scale)
        if self.key_size is not None:
            at_least("key_size", self.key_size, 1)
        if self.attention == "direct" and self.keys != self.count:
            raise UserError(
                f"key_size must equal the number of programs, {self.count}, for direct attention, was {self.keys}"
            )

    @property
    def strategy(self) -> Attention:
        """How programs are attended to."""
        return ATTENTION[self.attention]

    @property
    def keys(self) -> int:
        """K, resolved."""
        return self.count if self.key_size is None else self.key_size


# --- after the product ------------------------------------------------------------------------------------------------


def mixed(each: Tensor, weights: Tensor) -> Tensor:
    """Σ_i w(i) each(i), the mixed outputs of P programs. each (…, P, L), weights (…, P) → (…, L)."""
    shares = for_product(weights).unsqueeze(-1) * each
    # The precision is kept explicitly: autocast makes sums float32 on some devices.
    return shares.sum(dim=-2, dtype=shares.dtype)


# --- the losses on the keys -------------------------------------------------------------------------------------------


def key_similarity_loss(keys: Tensor, reduction: str = "sum") -> Tensor:
    """l_p = Σ_{i<j} D(k_i, k_j), Eq. 6, which keeps programs from collapsing into one. keys (P, K) → scalar."""
    first, second = torch.triu_indices(len(keys), len(keys), offset=1, device=keys.device)
    similarity = cosine_similarity(keys[first], keys[second])
    total = similarity.sum()
    return total / max(1, len(similarity)) if reduction == "mean" else total


def orthogonality_loss(keys: Tensor) -> Tensor:
    """l_p2 = ‖K Kᵀ − I‖ (Appendix G): the keys become an orthonormal basis. keys (P, P) → scalar."""
    if keys.shape[0] != keys.shape[1]:
        raise UserError(f"keys must be square (key size = number of programs) for l_p2, were {tuple(keys.shape)}")
    identity = torch.eye(len(keys), dtype=keys.dtype, device=keys.device)
    loss: Tensor = torch.linalg.matrix_norm(keys @ keys.T - identity)
    return loss


def annealing(step: int, initial: float = 0.1, decay: float = 0.9) -> float:
    """η_t = initial · decay^t, the weight of l_p at training step t."""
    return float(initial * decay**step)


# --- the memory and the layer -----------------------------------------------------------------------------------------


class ProgramKeys(nn.Module):
    """The keys of a program memory: which programs a query chooses, Eqs. 3–4 and 6. Subclasses define the programs.

    key (P, K); attention without keys (direct, uniform) stores none. No parameter is called `keys` or `values`: a
    parametrisation keeps its tensors in a `ModuleDict`, which has methods of these names. Under autocast programs are
    chosen in float32.
    """

    key: nn.Parameter | None

    def __init__(
        self,
        config: Programs,
        *,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.attention = config.strategy
        shape = config.count, config.keys
        key = nn.Parameter(torch.empty(shape, device=device, dtype=dtype)) if self.attention.has_keys else None
        self.register_parameter("key", key)

    def reset_parameters(self, bound: float | None = None, generator: torch.Generator | None = None) -> None:
        """Draw the keys from U(±bound), by default 1/√K."""
        if self.key is not None:
            bound = 1 / math.sqrt(self.config.keys) if bound is None else bound
            nn.init.uniform_(self.key, -bound, bound, generator=generator)

    def attend(
        self, query: Tensor, strength: Tensor, noise: Tensor | None = None, allowed: Tensor | None = None
    ) -> Tensor:
        """Eqs. 3–4: how much of each program to take. query (…, K), strength (…, 1) → (…, P).

        `allowed` (P,) marks the programs to choose from, if not all.
        """
        query = for_softmax(query)
        if self.attention.logits is None:
            shares = query.new_ones(self.config.count) if allowed is None else allowed.to(query)
            return (shares / shares.sum()).expand(*query.shape[:-1], -1)
        strength, noise = for_softmax(strength), None if noise is None else for_softmax(noise)
        key = self.key  # once: a parametrisation computes it each time
        keys = query.new_empty(0) if key is None else for_softmax(key)
        if self.config.bounded_keys:
            query, keys = torch.tanh(query), torch.tanh(keys)
        logits = self.attention.logits(query, self.config.strength_scale * strength, keys)
        if allowed is not None:
            logits = logits.masked_fill(~allowed, -math.inf)
        return self.attention.weights(logits, noise, self.config.temperature)

    def loss(self) -> Tensor:
        """l_p of the keys, 0 where the attention has none."""
        key = self.key
        if key is None:
            return next(self.parameters()).new_zeros(())
        return key_similarity_loss(torch.tanh(key) if self.config.bounded_keys else key, self.config.loss)


class ProgramMemory(ProgramKeys):
    """M_p: P programs under P keys. A program v_i is a weight matrix, and with `bias` a bias as its last row.

    key (P, K), weight (P, in_features, out_features), bias (P, out_features). Under autocast programs are executed in
    its precision.
    """

    bias: nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        config: Programs,
        *,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(config, device=device, dtype=dtype)
        self.in_features = at_least("in_features", in_features, 1)
        self.out_features = at_least("out_features", out_features, 1)

        def parameter(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(config.count, *shape, device=device, dtype=dtype))

        self.weight = parameter(in_features, out_features)
        self.register_parameter("bias", parameter(out_features) if bias else None)

    def reset_parameters(self, bound: float | None = None, generator: torch.Generator | None = None) -> None:
        """Draw keys and programs from U(±bound), by default the bound of `nn.Linear`, 1/√in_features."""
        bound = 1 / math.sqrt(self.in_features) if bound is None else bound
        super().reset_parameters(bound, generator)
        # In one draw, program by program, bias last.
        rows = self.in_features + (self.bias is not None)
        drawn = self.weight.new_empty(self.config.count, rows, self.out_features)
        nn.init.uniform_(drawn, -bound, bound, generator=generator)
        with torch.no_grad():
            self.weight.copy_(drawn[:, : self.in_features])
            if self.bias is not None:
                self.bias.copy_(drawn[:, -1])

    def working_program(self, weights: Tensor) -> Tensor:
        """Eq. 5: p = Σ_i w(i) v_i as a matrix. weights (…, P) → (…, in_features + 1, out_features).

        Without a bias a program has in_features rows.
        """
        bias = self.bias
        stored = self.weight if bias is None else torch.cat([self.weight, bias.unsqueeze(1)], dim=1)
        program: Tensor = torch.tensordot(for_product(weights), for_product(stored), dims=1)
        return program

    def execute(self, c: Tensor, weights: Tensor) -> Tensor:
        """[c, 1]·p without building p: Σ_i w(i) ([c, 1]·v_i). c (…, in_features), weights (…, P) → (…, out_features).

        Mixing after the product costs one matrix product for the whole batch instead of a matrix per sample.
        """
        bias = self.bias
        each: Tensor = torch.tensordot(for_product(c), for_product(self.weight), dims=([-1], [1]))
        if bias is not None:
            each = each + for_product(bias)
        return mixed(each, weights)

    def forward(
        self,
        c: Tensor,
        query: Tensor,
        strength: Tensor,
        noise: Tensor | None = None,
        allowed: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attend, then execute: (…, out_features), and the weights (…, P) of the programs that made it."""
        weights = self.attend(query, strength, noise, allowed)
        return self.execute(c, weights), weights

    def extra_repr(self) -> str:
        bias = ", bias=False" if self.bias is None else ""
        return f"{self.in_features} → {self.out_features}, {self.config}{bias}"


class MadeAnew:
    """Stands in for the weight and bias of `nn.Linear`: a stored-program layer makes them anew for every input.

    In evaluation `nn.TransformerEncoderLayer` reads the weights of its layers and computes by itself, unless one of
    them has a `__torch_function__`: then it calls the layers. Any other computation with this object is a UserError.
    """

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., object], types: object, args: object = (), kwargs: object = None
    ) -> NoReturn:
        raise UserError(f"{getattr(function, '__name__', function)} is not possible: {NO_WEIGHT}")

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"no {name}: {NO_WEIGHT}")


NO_WEIGHT = (
    "a StoredProgramLinear has no weight and bias of its own; it makes them for every input from memory.weight and "
    "memory.bias"
)
MADE_ANEW = MadeAnew()


class Querying(nn.Module):
    """A program memory and its query network P_I, which maps c to a key and a strength, ξ^p = [k^p, β^p]."""

    memory: ProgramKeys
    query: nn.Linear | None
    strength: nn.Linear | None
    _generator: torch.Generator
    """The module's own generator of Gumbel noise, so that global random state is neither used nor changed."""

    def __init__(self, features: int, memory: ProgramKeys) -> None:
        super().__init__()
        self.features = features
        self.memory = memory
        self.query = self.strength = None
        if memory.attention.logits is not None:
            stored = next(memory.parameters())
            # skip_init: nn.Linear would draw from the global generator weights that reset_parameters draws anew.
            options = {"device": stored.device, "dtype": stored.dtype, "bias": memory.config.query_bias}
            self.query = skip_init(nn.Linear, features, memory.config.keys, **options)
            self.strength = skip_init(nn.Linear, features, 1, **options)

    def reset_parameters(self, bound: float | None = None, generator: torch.Generator | None = None) -> None:
        """Draw all weights; programs and keys from U(±bound), by default the bound of `nn.Linear`, 1/√in_features."""
        self.memory.reset_parameters(1 / math.sqrt(self.features) if bound is None else bound, generator)
        for network in (self.query, self.strength):
            if network is not None:
                nn.init.xavier_uniform_(network.weight, gain=1.4, generator=generator)
                if network.bias is not None:
                    nn.init.normal_(network.bias, std=0.01, generator=generator)

    def seed(self, seed: int) -> None:
        """Restart its own generator of Gumbel noise."""
        self._generator.manual_seed(seed)

    def ask(self, c: Tensor) -> tuple[Tensor, Tensor]:
        """ξ^p = [k^p, β^p], c (…, features) → query (…, K), strength (…, 1). Uniform attention has no query."""
        if self.query is None or self.strength is None:
            return c[..., :0], c[..., :0]
        return self.query(c), F.softplus(for_softmax(self.strength(c)))

    def _drawn(self, c: Tensor, noise: Tensor | None) -> Tensor | None:
        """The noise that was passed, or else, while training with Gumbel attention, noise drawn for c (…, features)."""
        if noise is not None or not self.training or not self.memory.attention.noisy:
            return noise
        shape = (*c.shape[:-1], self.memory.config.count)
        return gumbel_noise(*shape, generator=self._generator, like=for_softmax(c[..., :0]))

    def _check(self, c: Tensor) -> None:
        if c.shape[-1] != self.features:
            raise UserError(f"c must have {self.features} features in its last dimension, was {tuple(c.shape)}")
        # The stored parameter, not `memory.weight`, which a parametrisation would compute once more.
        stored = next(self.memory.parameters(), c)
        if c.dtype != stored.dtype and not (autocasts(c) and autocasts(stored)):
            raise UserError(f"c must be {stored.dtype} like the weights, was {c.dtype}")

    def loss(self) -> Tensor:
        """l_p (Eq. 6), to be added to the training loss with the annealed factor η_t."""
        return self.memory.loss()


class StoredProgramLinear(Querying):
    """A linear layer whose weight and bias are read from a program memory anew for every input.

    A drop-in for `nn.Linear(in_features, out_features)`: `layer(c)` with c (…, in_features) → (…, out_features).
    `bias`, `device` and `dtype` are those of `nn.Linear`; biases of the query network are `Programs.query_bias`.
    """

    memory: ProgramMemory

    def __init__(
        self,
        in_features: int,
        out_features: int,
        programs: int | Programs = 2,
        *,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        bound: float | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        config = programs if isinstance(programs, Programs) else Programs(programs)
        memory = ProgramMemory(in_features, out_features, config, bias=bias, device=device, dtype=dtype)
        super().__init__(in_features, memory)
        self.reset_parameters(bound, generator)
        self._generator = torch.Generator().manual_seed(seed_from(memory.weight))

    @property
    def in_features(self) -> int:
        return self.memory.in_features

    @property
    def out_features(self) -> int:
        return self.memory.out_features

    @property
    def weight(self) -> MadeAnew:
        """No tensor, see `MadeAnew`: the weights of the programs are `memory.weight`."""
        return MADE_ANEW

    @property
    def bias(self) -> MadeAnew | None:
        """None without a bias, else no tensor, see `MadeAnew`: the biases of the programs are `memory.bias`."""
        return None if self.memory.bias is None else MADE_ANEW

    def attend(self, c: Tensor, noise: Tensor | None = None) -> Tensor:
        """The program weights w^p for an input. c (…, in_features), noise (…, P) for Gumbel attention → (…, P)."""
        self._check(c)
        return self.memory.attend(*self.ask(c), noise)

    def forward(self, c: Tensor, noise: Tensor | None = None) -> Tensor:
        """c (…, in_features) → (…, out_features). While training, Gumbel noise is drawn unless it is passed."""
        self._check(c)
        out, _ = self.memory(c, *self.ask(c), self._drawn(c, noise))
        return cast(Tensor, out)
