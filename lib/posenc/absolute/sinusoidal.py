"""The sinusoidal encoding: a fixed vector for every position."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..angles import angles, frequencies, geometric, require_frequencies
from ..checks import require, require_positions
from .base import Absolute


class Sinusoidal(Absolute):
    """p_{k,2l} = sin(k θ_l) and p_{k,2l+1} = cos(k θ_l), with θ_l = base^(−2l/dim).

    It has no parameters and no table, so no longest length either. An odd width, which the paper
    leaves open, leaves out the slowest cosine.

    Args:
        dim, combine: as for `Absolute`.
        layout: "interleaved" puts sin and cos of one frequency side by side, as the paper does;
            "halves" puts all sines before all cosines, as tensor2tensor and Transformer-XL do. One
            is a permutation of the other's channels.
        variant: "paper" for the frequencies above; "tensor2tensor" for ⌊dim/2⌋ frequencies in equal
            ratios from 1 to exactly 1/base (only 1 where there is just one), as in tensor2tensor
            and fairseq. There, an odd width ends with a channel of zeros.
        base: the longest wavelength is 2π base^(1 − 2/dim) positions for even dim,
            2π base^(1 − 1/dim) for odd, and 2π base for tensor2tensor from dim 4 on.

    Raises:
        ValueError: dim or base is not positive, base is infinite, or a choice is unknown.

    Source: Vaswani et al. 2017, section 3.5; the variant: tensor2tensor, `get_timing_signal_1d`.
    """

    def __init__(
        self,
        dim: int,
        *,
        layout: Literal["interleaved", "halves"] = "interleaved",
        variant: Literal["paper", "tensor2tensor"] = "paper",
        base: float = 10000.0,
        combine: str = "add",
    ) -> None:
        super().__init__(dim, combine=combine)
        require_frequencies(dim, base)
        require(
            layout in ("interleaved", "halves"),
            f'layout must be "interleaved" or "halves", but is {layout!r}',
        )
        require(
            variant in ("paper", "tensor2tensor"),
            f'variant must be "paper" or "tensor2tensor", but is {variant!r}',
        )
        self.layout, self.variant, self.base = layout, variant, base

    def frequencies(self, device: torch.device | str | None = None) -> Tensor:
        """θ_l in radians per position: (⌈dim/2⌉,), or (⌊dim/2⌋,) for tensor2tensor."""
        if self.variant == "tensor2tensor":
            return geometric(self.dim // 2, self.base, device)
        return frequencies(self.dim, self.base, device)

    def vectors(self, positions: Tensor) -> Tensor:
        """The vectors p_k themselves: (…, n) int64 → (…, n, dim), in float64 where there is one."""
        require_positions(positions)
        a = angles(positions, self.frequencies(positions.device))
        sin, cos = a.sin(), a.cos()  # (…, n, ⌈dim/2⌉)
        if self.layout == "halves":
            p = torch.cat((sin, cos), -1)
        else:
            p = torch.stack((sin, cos), -1).flatten(-2)
        return F.pad(p, (0, self.dim - p.shape[-1]))  # cuts a cosine off, or adds a zero

    def shift(self, k: int) -> Tensor:
        """M_k, which moves every position by k: p_{m+k} = p_m M_k, whatever m is.

        Returns:
            (dim, dim), orthogonal, with one 2×2 rotation for each frequency.

        Raises:
            ValueError: dim is odd: a sine without its cosine cannot be moved.
        """
        require(self.dim % 2 == 0, f"dim must be even to be moved, but is {self.dim}")
        a = angles(torch.tensor([k]), self.frequencies())[0]  # (dim/2,)
        cos, sin = a.cos(), a.sin()
        # rows and columns: the sine and the cosine of one frequency
        block = torch.stack((torch.stack((cos, -sin), -1), torch.stack((sin, cos), -1)), -2)
        M = torch.block_diag(*block)
        if self.layout == "interleaved":
            return M
        order = torch.arange(self.dim).unflatten(0, (-1, 2)).T.flatten()  # sines, then cosines
        return M[order][:, order]

    def extra_repr(self) -> str:
        return (
            f"{super().extra_repr()}, layout={self.layout!r}, variant={self.variant!r}, "
            f"base={self.base}"
        )
