"""The angles k θ_i that the sinusoid and RoPE share."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .checks import require, require_size


def frequencies(
    width: int, base: float = 10000.0, device: torch.device | str | None = None
) -> Tensor:
    """θ_i = base^(−2i/width) for i = 0 … ⌈width/2⌉ − 1, in radians per position.

    Returns:
        (⌈width/2⌉,) float64, or float32 on a device that has no float64.

    Raises:
        ValueError: width or base is not positive, or base is infinite.

    Source: Vaswani et al. 2017, section 3.5.
    """
    require_frequencies(width, base)
    exponent = torch.arange(0, width, 2, dtype=_wide(device), device=device) / width
    return base**-exponent


def geometric(
    count: int, base: float = 10000.0, device: torch.device | str | None = None
) -> Tensor:
    """θ_l = base^(−l/(count − 1)) for l = 0 … count − 1: from 1 to 1/base, both included.

    Returns:
        (count,) float64, or float32 on a device that has no float64.

    Source: tensor2tensor, `get_timing_signal_1d`.
    """
    exponent = torch.arange(count, dtype=_wide(device), device=device) / max(count - 1, 1)
    return base**-exponent


def require_frequencies(width: int, base: float) -> None:
    """Raise unless `frequencies` is defined."""
    require_size("width", width)
    require(0 < base < math.inf, "base must be positive and finite, but is {}", base)


def angles(positions: Tensor, theta: Tensor) -> Tensor:
    """k θ_i, never in less than float32, whatever the model or autocast computes in.

    bfloat16 cannot tell position 256 from 257: an angle made in it is wrong by whole turns.

    Args:
        positions: (…, n) int64.
        theta: (m,) radians per position.

    Returns:
        (…, n, m) radians, float64 where theta is.
    """
    theta = theta if theta.dtype == torch.float64 else theta.float()
    return positions[..., None].to(theta.dtype) * theta


def _wide(device: torch.device | str | None) -> torch.dtype:
    # float64 angles are good to 1e-7 at position 4096, float32 ones to 3e-4; Apple's GPUs have none
    return torch.float32 if torch.device(device or "cpu").type == "mps" else torch.float64
