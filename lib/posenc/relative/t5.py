"""Position as a number on the logits: T5's buckets, ALiBi's slopes, and TUPE's own projections."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..absolute.trainable import Trainable
from ..checks import head_width, require, require_size, require_type
from ..encoding import At, Encoding, Project
from .distances import by_distance, require_fit


class Bias(Encoding):
    """q_i k_jᵀ / √head_dim + β(i − j): a number for each head and distance. Override `bias`."""

    new_logits = True

    def bias(self, distance: Tensor) -> Tensor:
        """β for each distance i − j: (…) int64 → (heads or 1, …), never in less than float32."""
        raise NotImplementedError

    def position_logits(
        self, q: Tensor, k: Tensor, at: At, project: Project | None = None
    ) -> Tensor:
        """β(i − j): (batch or 1, heads or 1, n_q, n_k)."""
        require_fit(q, k, at)
        beta = by_distance(lambda distance: self.bias(distance).to(q.dtype), at)
        require(
            beta.shape[0] == 1 or beta.shape[0] == q.shape[1],
            "q must have {} heads like the bias, but has {}",
            *(beta.shape[0], q.shape[1]),
        )
        return beta.transpose(0, 1)


def bucket(
    distance: Tensor, buckets: int = 32, max_distance: int = 128, *, bidirectional: bool = True
) -> Tensor:
    """T5's f(i − j), the bucket of a distance: each near one of its own, far ones together.

    With N buckets on a side and E = ⌊N / 2⌋, m positions away falls into bucket m for m < E, and
    then into E + ⌊(N − E) ln(m / E) / ln(max_distance / E)⌋, but never above N − 1. Bidirectional,
    half the buckets are for keys behind and at the query, and half, N + the same, for keys ahead;
    that leaves bucket N itself empty. One-directional, all keys ahead fall into bucket 0.

    Args:
        distance: i − j, int64 of any shape; the published code has j − i.

    Returns:
        int64 of that shape, from 0 to buckets − 1.

    Raises:
        ValueError: there are too few buckets, or an odd number for two directions, max_distance is
            not above E, or distance is not of int64.

    Source: Raffel et al. 2020, section 2.1; `_relative_position_bucket` in `transformers`.
    """
    require_type("distance", distance, Tensor)
    require(distance.dtype == torch.int64, f"distance must be int64, but is {distance.dtype}")
    side = _side(buckets, max_distance, bidirectional)
    return _bucket(distance, torch.tensor(side, device=distance.device), bidirectional)


class T5(Bias):
    """q_i k_jᵀ + β[bucket(i − j)]: one trained number for each bucket and head, and no 1/√head_dim.

    Give one module to all layers of a stack, and none to cross-attention, as T5 does.

    Args:
        heads: number of heads.
        buckets, max_distance, bidirectional: as for `bucket`.
        std: β is drawn from a normal distribution with mean 0 and this deviation.

    Raises:
        TypeError: a size is no whole number.
        ValueError: as for `bucket`, or heads or std is out of range.

    Source: Raffel et al. 2020, section 2.1.
    """

    def __init__(
        self,
        heads: int,
        buckets: int = 32,
        max_distance: int = 128,
        *,
        bidirectional: bool = True,
        std: float = 0.02,
    ) -> None:
        super().__init__()
        require_size("heads", heads)
        require(0 <= std < math.inf, f"std must be 0 or more and finite, but is {std}")
        self.side = _side(buckets, max_distance, bidirectional)
        self.buckets, self.max_distance = buckets, max_distance
        self.bidirectional = bidirectional
        self.table = nn.Parameter(torch.empty(buckets, heads).normal_(0, std))

    def scale(self, head_dim: int) -> float:
        return 1.0

    def bias(self, distance: Tensor) -> Tensor:
        """β[bucket(i − j)]: (…) int64 → (heads, …)."""
        side = torch.tensor(self.side, device=distance.device)
        return self.table[_bucket(distance, side, self.bidirectional)].movedim(-1, 0)

    def extra_repr(self) -> str:
        return (
            f"{self.table.shape[1]} heads, buckets={self.buckets}, "
            f"max_distance={self.max_distance}, bidirectional={self.bidirectional}"
        )


def slopes(heads: int) -> Tensor:
    """ALiBi's m_h = 2^(−8h/heads), h = 1 … heads: (heads,) float64.

    That is for powers of two. Between them, the slopes of the next power c below come first, and
    then every other one of 2c, from the steepest on.

    Raises:
        ValueError: heads is not positive.

    Source: `get_slopes` in ofirpress/attention_with_linear_biases.
    """
    require_size("heads", heads)
    c = 2 ** int(math.log2(heads))
    powers = [-8 * h / c for h in range(1, c + 1)]
    powers += [-8 * h / (2 * c) for h in range(1, 2 * c + 1, 2)][: heads - c]
    return 2.0 ** torch.tensor(powers, dtype=torch.float64)


class ALiBi(Bias):
    """q_i k_jᵀ / √head_dim − m_h |i − j|: a penalty for distance, and nothing to train.

    Args:
        heads: number of heads.
        symmetric: False for −m_h (i − j), which a causal mask makes the same; without one, it
            rewards keys ahead.

    In float16 a penalty above 65504 is infinite; a query that sees such keys only gives NaN.

    Raises:
        ValueError: heads is not positive.

    Source: Press et al. 2022, section 3, for the causal mask.
    """

    def __init__(self, heads: int, *, symmetric: bool = True) -> None:
        super().__init__()
        require_size("heads", heads)
        self.heads, self.symmetric = heads, symmetric

    def bias(self, distance: Tensor) -> Tensor:
        """−m_h |i − j|: (…) int64 → (heads, …), in float32 or wider."""
        steps = distance.abs() if self.symmetric else distance
        wide = torch.float32 if distance.device.type == "mps" else torch.float64
        m = slopes(self.heads).to(distance.device, wide)
        return -m.view(-1, *[1] * distance.dim()) * steps.to(wide)

    def extra_repr(self) -> str:
        return f"{self.heads} heads, symmetric={self.symmetric}"


class TUPE(Encoding):
    """(q_i k_jᵀ + (p_i U_Q)(p_j U_K)ᵀ) / √(2 head_dim): positions with projections of their own.

    The position part is the same in all layers that share the module. `relative` makes TUPE-R of
    this TUPE-A. In the row of [CLS] and in its column, the position part, the relative one
    included, is reset to one trained number for each head.

    Args:
        dim: width of the position vectors, the model's.
        heads: number of heads.
        max_length: number of position vectors.
        head_dim: width of a query and key, dim // heads by default.
        cls: the position of [CLS]; None for nothing to be reset.
        relative: what else depends on i − j, as T5's buckets do.

    Raises:
        TypeError: a size is no whole number, or relative is no `Bias`.
        ValueError: a size is out of range.

    Source: Ke et al. 2021, equations 7 to 10. The published code also normalises p, has a bias in
    U_Q and U_K, and makes the two numbers of [CLS] from two of its vectors.
    """

    new_logits = True

    def __init__(
        self,
        dim: int,
        heads: int,
        max_length: int,
        *,
        head_dim: int | None = None,
        cls: int | None = 0,
        relative: Bias | None = None,
    ) -> None:
        super().__init__()
        require_size("heads", heads)
        self.positions = Trainable(dim, max_length)
        head_dim = head_width(dim, heads, head_dim)
        if cls is not None:
            require_size("cls", cls, least=0)
            require(cls < max_length, f"cls must be below max_length = {max_length}, but is {cls}")
        if relative is not None:
            require_type("relative", relative, Bias)
        self.heads, self.head_dim, self.cls, self.relative = heads, head_dim, cls, relative
        self.U_Q = nn.Linear(dim, heads * head_dim, bias=False)
        self.U_K = nn.Linear(dim, heads * head_dim, bias=False)
        if cls is not None:
            self.from_cls = nn.Parameter(torch.empty(heads).normal_(0, 0.02))
            self.to_cls = nn.Parameter(torch.empty(heads).normal_(0, 0.02))

    def scale(self, head_dim: int) -> float:
        return (2 * head_dim) ** -0.5

    def position_logits(
        self, q: Tensor, k: Tensor, at: At, project: Project | None = None
    ) -> Tensor:
        """reset((p_i U_Q)(p_j U_K)ᵀ / √(2 head_dim) + β(i − j)): (batch or 1, heads, n_q, n_k)."""
        require_fit(q, k, at, self.heads, self.head_dim)
        asks = self._projected(self.U_Q, at.query) * self.scale(self.head_dim)
        logits = asks @ self._projected(self.U_K, at.key).mT
        if self.relative is not None:
            logits = logits + by_distance(self.relative.bias, at).transpose(0, 1)
        if self.cls is not None:
            row, column = at.query == self.cls, at.key == self.cls  # (batch or 1, n_q), (…, n_k)
            to_cls, from_cls = self.to_cls[:, None, None], self.from_cls[:, None, None]
            logits = torch.where(column[:, None, None, :], to_cls, logits)
            logits = torch.where(row[:, None, :, None], from_cls, logits)
        return logits.to(q.dtype)

    def _projected(self, U: nn.Linear, positions: Tensor) -> Tensor:
        """p U by head: (batch or 1, n) int64 → (batch or 1, heads, n, head_dim)."""
        return (
            U(self.positions.vectors(positions)).unflatten(-1, (self.heads, -1)).transpose(-2, -3)
        )


def _side(buckets: int, max_distance: int, bidirectional: bool) -> list[int]:
    """The bucket of m positions away, on one side, for m = 0, 1, 2, … up to the last bucket.

    In exact integers: at the thresholds the logarithms meet whole numbers, where a float may fall
    on either side. Compared as powers, they do not.
    """
    require_size("buckets", buckets, least=4 if bidirectional else 2)
    require(
        not bidirectional or buckets % 2 == 0,
        f"buckets must be even, half for each direction, but are {buckets}",
    )
    n = buckets // 2 if bidirectional else buckets
    exact = n // 2
    require_size("max_distance", max_distance, least=exact + 1)
    side = list(range(exact))
    while side[-1] < n - 1:
        m, g = len(side), max(exact, side[-1])
        # g + 1 is reached where (m / exact)^(n − exact) ≥ (max_distance / exact)^(g + 1 − exact)
        while g < n - 1 and (
            m ** (n - exact) * exact ** (g + 1 - exact)
            >= max_distance ** (g + 1 - exact) * exact ** (n - exact)
        ):
            g += 1
        side.append(g)
    return side


def _bucket(distance: Tensor, side: Tensor, bidirectional: bool) -> Tensor:
    m = distance.abs() if bidirectional else distance.clamp(min=0)
    bucket = side[m.clamp(max=side.shape[0] - 1)]
    return bucket + (side[-1] + 1) * (distance < 0) if bidirectional else bucket
