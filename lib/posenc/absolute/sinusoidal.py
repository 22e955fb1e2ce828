"""The sinusoidal encoding: a fixed vector for every position, added to the input."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ..angles import angles, frequencies, require_frequencies
from ..checks import require, require_size
from ..encoding import Encoding


class Sinusoidal(Encoding):
    """p_{k,2i} = sin(k θ_i) and p_{k,2i+1} = cos(k θ_i), with θ_i = base^(−2i/dim), added to x_k.

    It has no parameters and no table, so no longest length either. An odd width, which the paper
    leaves open, ends with a sine.

    Args:
        dim: width of the vectors, 1 or more.
        layout: "interleaved" puts sin and cos of one frequency side by side, as the paper does;
            "halves" puts all sines before all cosines, as tensor2tensor and Transformer-XL do. One
            is a permutation of the other's channels.
        base: the longest wavelength is 2π base^(1 − 2/dim) positions.

    Raises:
        ValueError: dim or base is not positive, or the layout is unknown.

    Source: Vaswani et al. 2017, section 3.5.
    """

    def __init__(
        self,
        dim: int,
        *,
        layout: Literal["interleaved", "halves"] = "interleaved",
        base: float = 10000.0,
    ) -> None:
        super().__init__()
        require_size("dim", dim)
        require_frequencies(dim, base)
        require(
            layout in ("interleaved", "halves"),
            f'layout must be "interleaved" or "halves", but is {layout!r}',
        )
        self.dim, self.layout, self.base = dim, layout, base

    def vectors(self, positions: Tensor) -> Tensor:
        """The vectors p_k themselves: (…, n) int64 → (…, n, dim), in float64 where there is one."""
        a = angles(positions, frequencies(self.dim, self.base, positions.device))
        sin, cos = a.sin(), a.cos()  # (…, n, ⌈dim/2⌉)
        if self.layout == "halves":
            return torch.cat((sin, cos), -1)[..., : self.dim]
        return torch.stack((sin, cos), -1).flatten(-2)[..., : self.dim]

    def embed(self, x: Tensor, positions: Tensor, mask: Tensor | None = None) -> Tensor:
        """x_k + p_k: (batch, n, dim) and (batch or 1, n) → (batch, n, dim)."""
        require(
            x.dim() == 3 and x.shape[-1] == self.dim and x.is_floating_point(),
            "x must be (batch, n, {}) of floats, but is {} {}",
            *(self.dim, x.shape, x.dtype),
        )
        require(
            positions.dim() == 2
            and positions.shape[0] in (1, x.shape[0])
            and positions.shape[1] == x.shape[1],
            "positions must be ({} or 1, {}), one for each row of x, but have shape {}",
            *(x.shape[0], x.shape[1], positions.shape),
        )
        return x + self.vectors(positions).to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.dim}, layout={self.layout!r}, base={self.base}"
