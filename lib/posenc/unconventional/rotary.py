"""RoPE: turn queries and keys by their positions, and their product knows the distance."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from ..angles import angles, frequencies, require_frequencies
from ..checks import require, require_size
from ..encoding import At, Encoding

Layout = Literal["interleaved", "half-split"]


def rotate(x: Tensor, angle: Tensor, layout: Layout = "interleaved") -> Tensor:
    """(x + iy) e^{i angle}, for every pair (x, y) of channels.

    Args:
        x: (…, width), width even.
        angle: (…, width / 2) radians, one for each pair.
        layout: which channels are a pair, see `Rotary`.

    Returns:
        (…, width) of x's dtype.

    Raises:
        ValueError: the widths do not fit, x is not of floats, or the layout is unknown.
    """
    _require_layout(layout)
    require(
        x.shape[-1] == 2 * angle.shape[-1],
        "x must have two channels for each of the {} angles, but has shape {}",
        *(angle.shape[-1], x.shape),
    )
    require(x.is_floating_point(), "x must be of floats, but is {}", x.dtype)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    if layout == "interleaved":
        x, y = x.unflatten(-1, (-1, 2)).unbind(-1)  # pairs (0, 1), (2, 3), …
        return torch.stack((x * cos - y * sin, x * sin + y * cos), -1).flatten(-2)
    x, y = x.chunk(2, -1)  # pairs (0, width/2), (1, width/2 + 1), …
    return torch.cat((x * cos - y * sin, x * sin + y * cos), -1)


def half_split_order(width: int) -> Tensor:
    """The channel order π = 0, 2, 4, …, 1, 3, … that turns interleaved pairs into half-split ones.

    half_split(x[π]) = interleaved(x)[π]. For projection weights, reorder the output channels of
    W_Q and W_K by π within each head, and scores stay what they were.

    Returns:
        (width,) int64.

    Raises:
        ValueError: width is odd or negative.
    """
    require_size("width", width, least=0)
    require(width % 2 == 0, f"width must be even, but is {width}")
    return torch.arange(width).unflatten(0, (-1, 2)).T.flatten()


class Rotary(Encoding):
    """q_m → q_m e^{imθ} and k_n → k_n e^{inθ}, pair by pair, with θ_i = base^(−2i/width).

    Then q_m k_nᵀ depends on q, k and the distance m − n only.

    Args:
        head_dim: width of a query and of a key.
        width: how many channels turn, the first ones; all by default. The others stay as they are.
        layout: which two channels are a pair. "interleaved": (0, 1), (2, 3), …, as in RoFormer,
            GPT-J and Meta's LLaMA. "half-split": (0, width/2), (1, width/2 + 1), …, as in GPT-NeoX
            and the LLaMA of Hugging Face. Weights trained with one give wrong numbers with the
            other, see `half_split_order`.
        base: the longest wavelength is 2π base^(1 − 2/width) positions.
        values: None leaves the values alone; "absolute" turns them too, so that the output depends
            on where the sequence stands; "relative" turns them and turns the output back, so that
            it depends on distances only.
        learned: train the frequencies (one set, shared by all heads). They are then a parameter,
            which `.bfloat16()` rounds like every other.

    Raises:
        ValueError: a width is odd, not positive, or wider than the head, base is not positive, or a
            choice is unknown.

    Source: Su et al. 2021, section 3.4.2; on the values, Su 2025 (kexue.fm 10862).
    """

    def __init__(
        self,
        head_dim: int,
        *,
        width: int | None = None,
        layout: Layout = "interleaved",
        base: float = 10000.0,
        values: Literal["absolute", "relative"] | None = None,
        learned: bool = False,
    ) -> None:
        super().__init__()
        width = head_dim if width is None else width
        require_size("head_dim", head_dim)
        require_size("width", width)
        require(
            width <= head_dim and width % 2 == 0,
            "width must be an even number of channels, at most the head's, but width is "
            f"{width} and head_dim is {head_dim}",
        )
        require_frequencies(width, base)
        _require_layout(layout)
        require(
            values in (None, "absolute", "relative"),
            f'values must be None, "absolute" or "relative", but is {values!r}',
        )
        self.head_dim, self.width, self.base = head_dim, width, base
        self.layout: Layout = layout
        self.values = values
        self.theta = nn.Parameter(frequencies(width, base).float()) if learned else None

    def angle(self, positions: Tensor) -> Tensor:
        """m θ_i, for all heads: (batch or 1, n) → (batch or 1, 1, n, width / 2) radians."""
        learned = self.theta
        fixed = frequencies(self.width, self.base, positions.device)
        return angles(positions, fixed if learned is None else learned)[:, None]

    def turn(self, x: Tensor, angle: Tensor) -> Tensor:
        """Turn the first `width` channels of (batch, heads, n, channels)."""
        if x.shape[-1] == self.width:
            return rotate(x, angle, self.layout)
        turned, rest = x.split((self.width, x.shape[-1] - self.width), -1)
        return torch.cat((rotate(turned, angle, self.layout), rest), -1)

    def transform(self, q: Tensor, k: Tensor, v: Tensor, at: At) -> tuple[Tensor, Tensor, Tensor]:
        """R_m q_m, R_n k_n and, where asked, R_n v_n. Shapes stay as they are."""
        self._require_shapes(q, k, v, at)
        at_query = self.angle(at.query)
        at_key = at_query if at.key is at.query else self.angle(at.key)
        q, k = self.turn(q, at_query), self.turn(k, at_key)
        return q, k, v if self.values is None else self.turn(v, at_key)

    def undo(self, o: Tensor, at: At) -> Tensor:
        """Turn the output back by the query's angle: Σ_j a_ij v_j e^{i(j − i)θ}."""
        return self.turn(o, -self.angle(at.query)) if self.values == "relative" else o

    def _require_shapes(self, q: Tensor, k: Tensor, v: Tensor, at: At) -> None:
        for name, x, positions in (("q", q, at.query), ("k", k, at.key), ("v", v, at.key)):
            require(
                x.dim() == 4
                and positions.shape[-1] == x.shape[2]
                and positions.shape[0] in (1, x.shape[0]),
                "{} must be (batch, heads, n, channels), one row for each of the positions {}, but "
                "has shape {}",
                *(name, positions.shape, x.shape),
            )
            require(
                name == "v" or x.shape[-1] == self.head_dim,
                "{} must have head_dim = {} channels, but has shape {}",
                *(name, self.head_dim, x.shape),
            )
        require(
            self.values is None or v.shape[-1] >= self.width,
            "v must have at least the {} channels that turn, but has shape {}",
            *(self.width, v.shape),
        )

    def extra_repr(self) -> str:
        return (
            f"{self.head_dim}, width={self.width}, layout={self.layout!r}, base={self.base}, "
            f"values={self.values!r}, learned={self.theta is not None}"
        )


def _require_layout(layout: str) -> None:
    require(
        layout in ("interleaved", "half-split"),
        f'layout must be "interleaved" or "half-split", but is {layout!r}',
    )
