"""The classic relative encodings: a vector for each clipped distance, on keys and on values.

Both q_i R_ijᵀ and Σ_j a_ij R_ij are computed distance by distance, so that no (n, n, head_dim)
tensor is ever formed: products with the few rows of a table, and then a gather; and the weights
gathered into the few distances, and then a product.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from ..absolute.sinusoidal import Sinusoidal
from ..checks import require, require_size
from ..encoding import At, Encoding, Project


class Classic(Encoding):
    """q_i (k_j + R^K_ij)ᵀ and Σ_j a_ij (v_j + R^V_ij), with R_ij = row clip(i − j, low, high).

    Override `key_rows` and `value_rows`, or one of them. The rows multiply q as `transform` left
    it: after RoPE that is the turned query, so that rows on the keys combined with RoPE give logits
    that depend on more than distances. Rows on the values combine without such an effect.

    Args:
        low: the smallest distance with a row of its own, 0 or less: keys farther ahead share it.
        high: the largest one, 0 or more: keys farther behind share it.

    Raises:
        TypeError: low or high is no whole number.
        ValueError: low is above 0, or high below.
    """

    def __init__(self, low: int, high: int) -> None:
        super().__init__()
        require_size("high", high, least=0)
        require_size("-low", -low if isinstance(low, int) else low, least=0)
        self.low, self.high = low, high

    def index(self, at: At) -> Tensor:
        """The row of each query and key, clip(i − j, low, high) − low: (batch or 1, n_q, n_k)."""
        return at.distance().clamp(self.low, self.high) - self.low

    def key_rows(self, device: torch.device) -> Tensor | None:
        """R^K for the distances low … high: (heads or 1, rows, head_dim); None for none."""
        return None

    def value_rows(self, device: torch.device) -> Tensor | None:
        """R^V for the distances low … high: (heads or 1, rows, value_dim); None for none."""
        return None

    def position_logits(
        self, q: Tensor, k: Tensor, at: At, project: Project | None = None
    ) -> Tensor | None:
        """scale · q_i R^K_ijᵀ: (batch, heads, n_q, n_k)."""
        rows = self.key_rows(q.device)
        if rows is None:
            return None
        _require_fit("q", q, rows, at, q.shape[-1])
        products = q @ rows.to(q.dtype).mT * self.scale(q.shape[-1])  # (batch, heads, n_q, rows)
        index = self.index(at)[:, None].expand(*q.shape[:3], -1)
        return products.gather(-1, index)

    def position_values(self, weights: Tensor, at: At) -> Tensor | None:
        """Σ_j a_ij R^V_ij: (batch, heads, n_q, value_dim)."""
        rows = self.value_rows(weights.device)
        if rows is None:
            return None
        _require_fit("weights", weights, rows, at, None)
        index = self.index(at)[:, None].expand_as(weights)
        # thousands of small weights meet in one bin: half precision would lose most of them
        wide = weights if weights.dtype == torch.float64 else weights.float()
        bins = wide.new_zeros(*weights.shape[:3], rows.shape[-2])  # (batch, heads, n_q, rows)
        bins = bins.scatter_add(-1, index, wide).to(weights.dtype)
        return bins @ rows.to(weights.dtype)

    def extra_repr(self) -> str:
        return f"low={self.low}, high={self.high}"


class Shaw(Classic):
    """Trainable rows: R^K_ij and R^V_ij are rows clip(i − j, low, high) of two tables.

    Args:
        low, high: as for `Classic`. The paper has −high = low.
        head_dim: width of a query and key; None for no rows on the keys.
        value_dim: width of a value; None for no rows on the values.
        heads: give it for rows of their own for each head; None for rows that all heads share.
        std: the rows are drawn from a normal distribution with mean 0 and this deviation.

    Raises:
        ValueError: low, high or a width is out of range, std is negative, or neither width is
            given.

    Source: Shaw et al. 2018, equations 3 and 4, there with j − i in place of i − j.
    """

    def __init__(
        self,
        low: int,
        high: int,
        *,
        head_dim: int | None = None,
        value_dim: int | None = None,
        heads: int | None = None,
        std: float = 0.02,
    ) -> None:
        super().__init__(low, high)
        require(
            head_dim is not None or value_dim is not None,
            "give head_dim for rows on the keys, value_dim for rows on the values, or both",
        )
        require(0 <= std < math.inf, f"std must be 0 or more and finite, but is {std}")
        for name, size in (("head_dim", head_dim), ("value_dim", value_dim), ("heads", heads)):
            if size is not None:
                require_size(name, size)

        def table(width: int | None) -> nn.Parameter | None:
            if width is None:
                return None
            return nn.Parameter(torch.empty(heads or 1, high - low + 1, width).normal_(0, std))

        self.keys, self.values = table(head_dim), table(value_dim)

    def key_rows(self, device: torch.device) -> Tensor | None:
        return self.keys

    def value_rows(self, device: torch.device) -> Tensor | None:
        return self.values


class Nezha(Classic):
    """The sinusoid of the clipped distance, on keys and values, the same for all heads and layers.

    Args:
        head_dim: width of a query, a key and a value.
        high: distances are clipped to −high … high; 64 in the published configuration.
        variant: "paper" takes the sinusoid at j − i, "code" at j − i + high, which never is
            negative. One is a fixed rotation of the other.

    Raises:
        ValueError: head_dim is not positive, high is negative, or variant is unknown.

    Source: Wei et al. 2019, section 2.2; the variant: `NEZHA-PyTorch/modeling_nezha.py` of
    huawei-noah/Pretrained-Language-Model.
    """

    def __init__(
        self, head_dim: int, high: int = 64, *, variant: Literal["paper", "code"] = "paper"
    ) -> None:
        require_size("high", high, least=0)
        super().__init__(-high, high)
        require(
            variant in ("paper", "code"), f'variant must be "paper" or "code", but is {variant!r}'
        )
        self.sinusoid, self.variant = Sinusoidal(head_dim), variant

    def key_rows(self, device: torch.device) -> Tensor:
        ahead = -torch.arange(self.low, self.high + 1, device=device)  # j − i
        return self.sinusoid.vectors(ahead if self.variant == "paper" else ahead + self.high)[None]

    def value_rows(self, device: torch.device) -> Tensor:
        return self.key_rows(device)

    def extra_repr(self) -> str:
        return f"{self.sinusoid.dim}, high={self.high}, variant={self.variant!r}"


def _require_fit(name: str, tensor: Tensor, rows: Tensor, at: At, width: int | None) -> None:
    heads = rows.shape[0]
    require(
        tensor.dim() == 4 and tensor.is_floating_point(),
        "{} must have four axes, of floats, but is {} {}",
        *(name, tensor.shape, tensor.dtype),
    )
    require(
        heads in (1, tensor.shape[1]),
        "{} must have {} heads like the rows, but has {}",
        *(name, heads, tensor.shape[1]),
    )
    require(
        width in (None, rows.shape[-1]),
        "{} must be {} wide like the rows, but is {}",
        *(name, rows.shape[-1], width),
    )
    require(
        tensor.shape[2] == at.query.shape[-1],
        "{} must have one row for each of the {} queries, but has {}",
        *(name, at.query.shape[-1], tensor.shape[2]),
    )
