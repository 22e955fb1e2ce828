"""Transformer-XL's encoding, XLNet's too: a sinusoid of the distance, two rows for all queries."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..absolute.sinusoidal import Sinusoidal
from ..checks import head_width, require, require_size
from ..encoding import At, Encoding, Project
from .distances import are_runs, dot, dot_table, occurring, require_fit


class TransformerXL(Encoding):
    """(q_i + u) k_jᵀ + (q_i + v) (R_{i−j} W_KR)ᵀ, all of it divided by √head_dim.

    R is the sinusoid of the distance, sines before cosines; R_{−r} has its sines negated. u and v
    are one row for each head, whatever the query.

    Args:
        dim: width of R, the model's in the paper; even.
        heads: number of heads.
        head_dim: width of a query and key, dim // heads by default.
        clip: the largest distance, either way, that is told from longer ones; None for no such
            bound. Published code calls it `clamp_len`.
        std: u and v are drawn from a normal distribution with mean 0 and this deviation.

    Raises:
        TypeError: a size is no whole number.
        ValueError: a size or std is out of range, or dim is odd.

    Source: Dai et al. 2019, section 3.3; `pytorch/mem_transformer.py` of kimiyoung/transformer-xl.
    """

    new_logits = True

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        head_dim: int | None = None,
        clip: int | None = None,
        std: float = 0.02,
    ) -> None:
        super().__init__()
        require_size("dim", dim)
        require_size("heads", heads)
        require(dim % 2 == 0, f"dim must be even, for pairs of sine and cosine, but is {dim}")
        head_dim = head_width(dim, heads, head_dim)
        if clip is not None:
            require_size("clip", clip, least=0)
        require(0 <= std < float("inf"), f"std must be 0 or more and finite, but is {std}")
        self.heads, self.clip = heads, clip
        self.sinusoid = Sinusoidal(dim, layout="halves")
        self.W_KR = nn.Linear(dim, heads * head_dim, bias=False)
        self.u = nn.Parameter(torch.empty(heads, head_dim).normal_(0, std))
        self.v = nn.Parameter(torch.empty(heads, head_dim).normal_(0, std))

    def rows(self, distance: Tensor) -> Tensor:
        """R_r W_KR by head: (…, m) int64 → (…, heads, m, head_dim)."""
        if self.clip is not None:
            distance = distance.clamp(-self.clip, self.clip)
        R = self.sinusoid.vectors(distance).to(self.W_KR.weight.dtype)
        return self.W_KR(R).unflatten(-1, (self.heads, -1)).transpose(-2, -3)

    def position_logits(
        self, q: Tensor, k: Tensor, at: At, project: Project | None = None
    ) -> Tensor:
        """(u k_jᵀ + (q_i + v) (R_{i−j} W_KR)ᵀ) / √head_dim: (batch, heads, n_q, n_k)."""
        require_fit(q, k, at, self.u.shape[0], self.u.shape[1])
        scale = self.scale(q.shape[-1])
        u, v = (
            row[:, None].to(q.dtype) * scale for row in (self.u, self.v)
        )  # (heads, 1, head_dim)
        asks = q * scale + v
        if are_runs(at):
            logits = dot(asks, self.rows(occurring(at)).to(q.dtype))
        elif self.clip is None:
            logits = self._anywhere(asks, at)
        else:
            every = torch.arange(-self.clip, self.clip + 1, device=q.device)
            table, clip = self.rows(every).to(q.dtype), self.clip
            logits = dot_table(asks, table, lambda r: r.clamp(-clip, clip) + clip, at)
        return logits + u @ k.mT  # the second is one row for all queries, (batch, heads, 1, n_k)

    def _anywhere(self, asks: Tensor, at: At) -> Tensor:
        """asks_i (R_{i−j} W_KR)ᵀ for positions with gaps, by sin and cos of a difference.

        a sin(i − j)θ + b cos(i − j)θ = (b sin iθ − a cos iθ) sin jθ + (a sin iθ + b cos iθ) cos jθ
        """
        W_KR = self.W_KR.weight.unflatten(0, (self.heads, -1)).to(asks.dtype)
        a, b = (asks @ W_KR).chunk(2, -1)  # (batch, heads, n_q, dim / 2)
        p_i, p_j = (
            self.sinusoid.vectors(positions)[:, None].to(asks.dtype)
            for positions in (at.query, at.key)
        )
        sin, cos = p_i.chunk(2, -1)
        return torch.cat((b * sin - a * cos, a * sin + b * cos), -1) @ p_j.mT

    def extra_repr(self) -> str:
        return f"{self.heads} heads, clip={self.clip}"
