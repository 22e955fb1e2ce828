"""From logits b_ij to weights a_ij: six normalisers, freely combined with any encoding.

Each is a module called as `normaliser(logits, at)`. Logits are (batch, heads, n_q, n_k), and so are
the weights. A key that `at.visible` hides gets weight 0, and a row without a visible key is all 0,
never NaN. Only softmax makes every row sum to 1, and that is the whole story of the flaw chapter.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .checks import concrete, require, require_type
from .encoding import At


class Softmax(nn.Module):
    """a_ij = e^{b_ij} / Σ_j e^{b_ij}: non-negative, every row sums to 1."""

    def forward(self, logits: Tensor, at: At) -> Tensor:
        _require_logits(logits, at)
        if at.visible is None:
            return torch.softmax(logits, -1)
        visible = _by_head(at.visible)
        # the lowest finite number and not −inf: a row that sees nothing must not become NaN
        hidden = logits.masked_fill(~visible, torch.finfo(logits.dtype).min)
        return torch.softmax(hidden, -1) * visible


class Exp(nn.Module):
    """a_ij = e^{b_ij}: softmax without its denominator. Not invariant under b_ij + c_i.

    Raises:
        OverflowError: an exponential does not fit the dtype (in eager mode).
    """

    def forward(self, logits: Tensor, at: At) -> Tensor:
        _require_logits(logits, at)
        hidden = _hide(logits, at, -math.inf)
        weights = hidden.exp()
        if concrete(weights) and bool(torch.isinf(weights).any()):
            dtype = str(weights.dtype).removeprefix("torch.")
            raise OverflowError(
                f"exp overflows {dtype}: the largest logit is {float(hidden.detach().max()):.4g}, "
                f"and {dtype} holds exp of up to {math.log(torch.finfo(weights.dtype).max):.4g}; "
                "use smaller weights, a wider dtype, or the l2 normaliser, which cannot overflow"
            )
        return weights


class _PerKey(nn.Module):
    """The share of the two normalisers that divide by a number of keys.

    Args:
        count: "all" divides by n, the number of real keys in the sequence, the article's reading.
            It needs the whole sequence, so a key cache is refused. "visible" divides by the number
            of keys that the query sees, which stays the same under a cache.
    """

    def __init__(self, count: Literal["all", "visible"] = "all") -> None:
        super().__init__()
        require(count in ("all", "visible"), f'count must be "all" or "visible", but is {count!r}')
        self.count = count

    def keys(self, logits: Tensor, at: At) -> Tensor | int:
        """The divisor: an int, or (batch or 1, 1, n_q or 1, 1)."""
        _require_logits(logits, at)
        n_q, n_k = logits.shape[-2:]
        require(
            self.count == "visible" or n_q == n_k,
            'count="all" divides by the length of the whole sequence, but {} queries meet {} keys, '
            'as with a key cache; use count="visible"',
            *(n_q, n_k),
        )
        if at.visible is None:
            return max(n_k, 1)
        if self.count == "all":
            n = at.visible.any(-2, keepdim=True).sum(-1, keepdim=True)  # pads: no query sees them
        else:
            n = at.visible.sum(-1, keepdim=True)
        return n.clamp(min=1)[:, None]

    def extra_repr(self) -> str:
        return f"count={self.count!r}"


class ExpOverN(_PerKey):
    """a_ij = e^{b_ij} / n.

    Raises:
        OverflowError: an exponential does not fit the dtype (in eager mode).
    """

    def __init__(self, count: Literal["all", "visible"] = "all") -> None:
        super().__init__(count)
        self.exp = Exp()

    def forward(self, logits: Tensor, at: At) -> Tensor:
        n = self.keys(logits, at)
        return self.exp(logits, at) / n


class ReluSquaredOverN(_PerKey):
    """a_ij = relu(b_ij)² / n, as in the gated attention unit. Not invariant under b_ij + c_i."""

    def forward(self, logits: Tensor, at: At) -> Tensor:
        n = self.keys(logits, at)
        return _hide(logits, at, 0.0).relu().square() / n


class L2(nn.Module):
    """a_ij = e^{b_ij} / √(Σ_j e^{2 b_ij}): every row has Euclidean length 1.

    Row sums lie between 1 and √n. Invariant under b_ij + c_i, so the maximum can be taken out and
    nothing overflows.
    """

    def forward(self, logits: Tensor, at: At) -> Tensor:
        _require_logits(logits, at)
        if logits.shape[-1] == 0:
            return logits
        hidden = _hide(logits, at, torch.finfo(logits.dtype).min)
        weights = _hide((hidden - hidden.amax(-1, keepdim=True).detach()).exp(), at, 0.0)
        # the largest weight of a row is 1, so its norm is below 1 only where nothing is visible
        return weights / torch.linalg.vector_norm(weights, dim=-1, keepdim=True).clamp(min=1.0)


class SwishL2(nn.Module):
    """a_ij = swish(b_ij) / √(Σ_j swish(b_ij)²): Euclidean length 1, and weights may be negative.

    A row of zeros stays a row of zeros.
    """

    def forward(self, logits: Tensor, at: At) -> Tensor:
        _require_logits(logits, at)
        if logits.shape[-1] == 0:
            return logits
        weights = F.silu(_hide(logits, at, 0.0))
        # largest entry to ±1 first: squares of float16 leave its range above 255 and below 0.008
        largest = weights.abs().amax(-1, keepdim=True).detach()
        weights = weights / largest.clamp(min=torch.finfo(weights.dtype).tiny)
        return weights / torch.linalg.vector_norm(weights, dim=-1, keepdim=True).clamp(min=1.0)


NORMALISERS: dict[str, type[nn.Module]] = {
    "softmax": Softmax,
    "exp": Exp,
    "exp/n": ExpOverN,
    "relu2/n": ReluSquaredOverN,
    "l2": L2,
    "swish+l2": SwishL2,
}
"""Every normaliser by the name that tables and figures give it."""


def _require_logits(logits: Tensor, at: At) -> None:
    require_type("logits", logits, Tensor)
    require_type("at", at, At, "an")
    require(
        logits.dim() >= 2 and logits.is_floating_point(),
        "logits must be (batch, heads, n_q, n_k) floats, but are {} {}",
        *(logits.shape, logits.dtype),
    )
    if at.visible is not None:
        require(
            logits.dim() == 4
            and tuple(at.visible.shape) in [(b, *logits.shape[2:]) for b in (1, logits.shape[0])]
            and at.visible.dtype == torch.bool,
            "at.visible must be (batch or 1, n_q, n_k) bool for logits (batch, heads, n_q, n_k), "
            "but is {} {} for {}",
            *(at.visible.shape, at.visible.dtype, logits.shape),
        )


def _by_head(visible: Tensor) -> Tensor:
    return visible[:, None]  # (batch or 1, n_q, n_k) → (batch or 1, 1, n_q, n_k)


def _hide(logits: Tensor, at: At, value: float) -> Tensor:
    return logits if at.visible is None else logits.masked_fill(~_by_head(at.visible), value)
