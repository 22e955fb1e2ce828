"""Position vectors that are computed one from the other: recursion, a recurrent layer, and a flow.

Position vectors are computed in float32 or wider, whatever the model or autocast computes in: a
rounding error made early is carried to every later position.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from ..checks import largest, require, require_positions, require_size, smallest
from ..encoding import At, Encoding
from .base import Absolute, require_input


class Cell(nn.Module):
    """f(p) = z ⊗ p + (1 − z) ⊗ tanh(p W + b), with the gate z = σ(p W_z + b_z).

    It is a GRU cell without input and without reset gate. Written p + (1 − z) ⊗ (tanh(…) − p) it
    is a step of size 1 along a flow.

    Source: Cho et al. 2014, the gated recurrent unit.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        require_size("dim", dim)
        self.candidate = nn.Linear(dim, dim)
        self.gate = nn.Linear(dim, dim)

    def forward(self, p: Tensor) -> Tensor:
        """(…, dim) → (…, dim)."""
        z = _linear(self.gate, p).sigmoid()
        return z * p + (1 - z) * _linear(self.candidate, p).tanh()


class Recursive(Absolute):
    """p_{k+1} = f(p_k) from a trainable p_0: any length, one position after the other.

    Args:
        dim, combine: as for `Absolute`.
        cell: f, from (…, dim) to (…, dim), in float32 or wider; a `Cell` by default.
        std: p_0 is drawn from a normal distribution with mean 0 and this deviation.

    Raises:
        ValueError: dim is not positive, std is negative, or combine is unknown.

    It looks at the values of the positions, to know how far to go: so it cannot be exported, and
    compiled code is left for that look (no fullgraph).

    Source: Su 2021, "Recursive Type".
    """

    def __init__(
        self,
        dim: int,
        *,
        cell: nn.Module | None = None,
        combine: str = "add",
        std: float = 1.0,
    ) -> None:
        super().__init__(dim, combine=combine)
        require(std >= 0, f"std must be 0 or more, but is {std}")
        self.start = nn.Parameter(torch.randn(dim) * std)
        self.cell = Cell(dim) if cell is None else cell

    def vectors(self, positions: Tensor) -> Tensor:
        """p_k: (…, n) int64 → (…, n, dim), after as many steps as the largest position asks.

        Raises:
            ValueError: a position is below 0, or its value cannot be seen (export).
        """
        p, rows = _wide(self.start), []
        with _exactly(p):
            for k in range(_count(positions)):
                p = self.cell(p) if k else p
                rows.append(p)
            return torch.stack(rows)[positions]


class GRUCell(nn.GRUCell):
    """torch's own cell and parameters, computed by plain products: vmap knows no other way.

    r, z = σ(x W_ir + h W_hr), σ(x W_iz + h W_hz), c = tanh(x W_ic + r ⊗ (h W_hc)), each with its
    biases, and then h' = z ⊗ h + (1 − z) ⊗ c.
    """

    def forward(self, x: Tensor, h: Tensor) -> Tensor:  # type: ignore[override]
        """(batch, dim) and (batch, dim) → (batch, dim)."""
        given = F.linear(x, self.weight_ih, self.bias_ih).chunk(3, -1)
        kept = F.linear(h, self.weight_hh, self.bias_hh).chunk(3, -1)
        r, z = (given[0] + kept[0]).sigmoid(), (given[1] + kept[1]).sigmoid()
        return z * h + (1 - z) * (given[2] + r * kept[2]).tanh()


class Recurrent(Encoding):
    """h_k = g(x_k, h_{k−1}): a recurrent layer between the input and the Transformer.

    It reads the tokens in the order of the rows, and does not look at positions. Pads, told by the
    mask, leave the state as it is. As it reads neighbours, a model with it refuses a key cache. It
    takes one step after the other, so compiled or exported it is tied to one length.

    Args:
        dim: width of the input and of the state.
        cell: g, from x_k (batch, dim) and h_{k−1} (batch, dim) to h_k; a GRU cell by default.

    Raises:
        ValueError: dim is not positive.

    Source: Su 2021, "Recursive Type".
    """

    reads_neighbours = True

    def __init__(self, dim: int, *, cell: nn.Module | None = None) -> None:
        super().__init__()
        require_size("dim", dim)
        self.dim = dim
        self.cell = GRUCell(dim, dim) if cell is None else cell

    def embed(self, x: Tensor, positions: Tensor, mask: Tensor | None = None) -> Tensor:
        """h_k, from h_{−1} = 0: (batch, n, dim) → (batch, n, dim)."""
        require_input(x, positions, self.dim)
        require(
            mask is None
            or (
                tuple(mask.shape) in [(1, x.shape[1]), tuple(x.shape[:2])]
                and mask.dtype == torch.bool
            ),
            "mask must be ({} or 1, {}) bool, but is {} {}",
            *(*x.shape[:2], *(() if mask is None else (mask.shape, mask.dtype))),
        )
        dtype = next((p.dtype for p in self.parameters()), x.dtype)
        h, states = x.new_zeros(x.shape[0], self.dim, dtype=dtype), [x[:, :0].to(dtype)]
        with _exactly(x):
            for k in range(x.shape[1]):
                new = self.cell(x[:, k].to(dtype), h)
                h = new if mask is None else torch.where(mask[:, k, None], new, h)
                states.append(h[:, None])
        return torch.cat(states, 1).to(x.dtype)


class Dynamics(nn.Module):
    """h(t, p) = [φ([p, t] W_1 + b_1), t] W_2 + b_2: where a flow goes from p at time t.

    Args:
        dim: width of p.
        activation: φ; relu as in FLOATER's code. A flow under relu may grow exponentially with
            time; under a bounded φ such as tanh it grows no faster than time squared.

    Source: FLOATER's code, `flow_func_linear`.
    """

    def __init__(self, dim: int, activation: Callable[[Tensor], Tensor] = torch.relu) -> None:
        super().__init__()
        require_size("dim", dim)
        self.activation = activation
        self.first = nn.Linear(dim + 1, dim)
        self.second = nn.Linear(dim + 1, dim)
        for layer in (self.first, self.second):
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, t: Tensor, p: Tensor) -> Tensor:
        """A number t and (…, dim) → (…, dim)."""
        time = t.to(p.dtype).expand(*p.shape[:-1], 1)
        hidden = _linear(self.first, torch.cat((p, time), -1))
        hidden = self.activation(hidden)
        return _linear(self.second, torch.cat((hidden, time), -1))


def solve(
    h: Callable[[Tensor, Tensor], Tensor],
    start: Tensor,
    count: int,
    *,
    spacing: float = 1.0,
    steps: int = 1,
) -> Tensor:
    """p(0), p(spacing), p(2 · spacing), … of dp/dt = h(t, p), by classical Runge–Kutta of order 4.

    Args:
        h: from a number t, as a tensor, and p of start's shape to dp/dt.
        start: (…), p(0).
        count: how many to return, 1 or more.
        spacing: time from one to the next.
        steps: solver steps from one to the next; on a smooth flow, twice as many make the error 16
            times smaller.

    Returns:
        (count, …).

    Raises:
        ValueError: count, spacing or steps is not positive.
    """
    require_size("count", count)
    _require_grid(spacing, steps)
    dt, p, out = spacing / steps, start, [start]
    for step in range(steps * (count - 1)):
        t = torch.as_tensor(step * dt, dtype=start.dtype, device=start.device)
        h1 = h(t, p)
        h2 = h(t + dt / 2, p + dt / 2 * h1)
        h3 = h(t + dt / 2, p + dt / 2 * h2)
        h4 = h(t + dt, p + dt * h3)
        p = p + dt / 6 * (h1 + 2 * h2 + 2 * h3 + h4)
        if (step + 1) % steps == 0:
            out.append(p)
    return torch.stack(out)


class Floater(Absolute):
    """p_k = p(k · spacing) on a learned flow dp/dt = h(t, p), from a trainable p(0), in the input.

    Args:
        dim, combine: as for `Absolute`.
        dynamics: h, from a number t and (…, dim) to (…, dim), in float32 or wider; a `Dynamics` by
            default.
        spacing: time from one position to the next.
        steps: Runge–Kutta steps from one position to the next.
        std: p(0) is drawn from a normal distribution with mean 0 and this deviation.

    Raises:
        ValueError: dim or steps is not positive, spacing is not or is infinite, or combine is
            unknown.

    Source: Liu et al. 2020, equation 2. Like `Recursive`, it cannot be exported.
    """

    def __init__(
        self,
        dim: int,
        *,
        dynamics: nn.Module | None = None,
        spacing: float = 0.1,
        steps: int = 1,
        combine: str = "add",
        std: float = 1.0,
    ) -> None:
        super().__init__(dim, combine=combine)
        _require_grid(spacing, steps)
        require(std >= 0, f"std must be 0 or more, but is {std}")
        self.spacing, self.steps = spacing, steps
        self.start = nn.Parameter(torch.randn(dim) * std)
        self.dynamics = Dynamics(dim) if dynamics is None else dynamics

    def vectors(self, positions: Tensor) -> Tensor:
        """p_k: (…, n) int64 → (…, n, dim), solved as far as the largest position.

        Raises:
            ValueError: a position is below 0, or its value cannot be seen (export).
        """
        count, start = _count(positions), _wide(self.start)
        with _exactly(start):
            table = solve(
                self.dynamics, start, count, spacing=self.spacing, steps=self.steps
            )  # (count, dim)
        return table[positions]

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, spacing={self.spacing}, steps={self.steps}"


class FloaterBiases(Encoding):
    """q_k + p^q_k, k_k + p^k_k and v_k + p^v_k: three flows in a layer, as in FLOATER's encoder.

    Each layer has a `FloaterBiases` of its own, with its own three initial values, and all layers
    share one dynamics: make a `Dynamics(heads · head_dim)` and give it to each.

    Args:
        heads, head_dim: as for `Attention`, whose values must be as wide as its queries.
        dynamics: h, from a number t and (3, heads · head_dim) to the same shape.
        spacing: time from one position to the next, 0.01 in the official code.
        steps: Runge–Kutta steps from one position to the next, 5 in the official code.

    Raises:
        ValueError: a size or spacing is not positive, or (in `transform`) queries, keys or values
            are of another width.

    Like `Recursive`, it cannot be exported.

    Source: FLOATER's code, `flow_transformer.py` and `flow_attention.py`. There the initial values
    are drawn by `xavier_uniform_`, the sinusoid stays in the input, and the solution is renewed and
    differentiated only in every 400th update; here in every call.
    """

    def __init__(
        self,
        heads: int,
        head_dim: int,
        *,
        dynamics: nn.Module | None = None,
        spacing: float = 0.01,
        steps: int = 5,
    ) -> None:
        super().__init__()
        require_size("heads", heads)
        require_size("head_dim", head_dim)
        _require_grid(spacing, steps)
        self.heads, self.head_dim = heads, head_dim
        self.spacing, self.steps = spacing, steps
        self.start = nn.Parameter(torch.empty(3, heads * head_dim))
        nn.init.xavier_uniform_(self.start)
        self.dynamics = Dynamics(heads * head_dim) if dynamics is None else dynamics

    def biases(self, count: int) -> Tensor:
        """p^q, p^k and p^v at positions 0 … count − 1: (3, count, heads · head_dim)."""
        start = _wide(self.start)
        with _exactly(start):
            return solve(
                self.dynamics, start, count, spacing=self.spacing, steps=self.steps
            ).transpose(0, 1)

    def transform(self, q: Tensor, k: Tensor, v: Tensor, at: At) -> tuple[Tensor, Tensor, Tensor]:
        require(
            all(x.shape[-3] == self.heads and x.shape[-1] == self.head_dim for x in (q, k, v)),
            "q, k and v must have {} heads of width {}, but have shapes {}, {} and {}",
            *(self.heads, self.head_dim, q.shape, k.shape, v.shape),
        )
        tables = self.biases(max(_count(at.query), _count(at.key)))

        def moved(x: Tensor, table: Tensor, positions: Tensor) -> Tensor:
            p = table[positions].unflatten(-1, (self.heads, self.head_dim))
            return x + p.transpose(-2, -3).to(x.dtype)  # (batch or 1, heads, n, head_dim)

        return (
            moved(q, tables[0], at.query),
            moved(k, tables[1], at.key),
            moved(v, tables[2], at.key),
        )

    def extra_repr(self) -> str:
        return f"{self.heads}, {self.head_dim}, spacing={self.spacing}, steps={self.steps}"


def _exactly(tensor: Tensor) -> AbstractContextManager:
    """Autocast off; on the meta device there is none to turn off."""
    return nullcontext() if tensor.is_meta else torch.autocast(tensor.device.type, enabled=False)


def _linear(layer: nn.Linear, p: Tensor) -> Tensor:
    """The layer in p's dtype, which may be wider than the layer's own."""
    return F.linear(p, layer.weight.to(p.dtype), layer.bias.to(p.dtype))


def _wide(start: Tensor) -> Tensor:
    return start if start.dtype == torch.float64 else start.float()


@torch.compiler.disable
def _count(positions: Tensor) -> int:
    """How many positions have to be computed to reach the largest; one on the meta device."""
    require_positions(positions)
    require(
        not (torch.compiler.is_compiling() or isinstance(positions, FakeTensor)),
        "how far to go depends on the values of the positions, which export does not see",
    )
    low = smallest(positions)
    require(low >= 0, "positions count from 0, but {} is among them", low)
    return largest(positions) + 1


def _require_grid(spacing: float, steps: int) -> None:
    require(0 < spacing < math.inf, f"spacing must be positive and finite, but is {spacing}")
    require_size("steps", steps)
