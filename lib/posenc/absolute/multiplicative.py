"""How a position vector meets the content at its position: add, multiply, scale, concatenate."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def add(x: Tensor, p: Tensor) -> Tensor:
    """x + p, what almost every absolute encoding does."""
    return x + p


def multiply(x: Tensor, p: Tensor) -> Tensor:
    """x ⊗ p, entry by entry: p = 1 changes nothing, and x = 0 stays 0.

    Source: Su 2021, "Multiplicative Type".
    """
    return x * p


def scale(x: Tensor, p: Tensor) -> Tensor:
    """x ⊗ (1 + p): p = 0 changes nothing, and x = 0 stays 0.

    Source: bert4keras, `PositionEmbedding(merge_mode="mul")`.
    """
    return x * (1 + p)


def concatenate(x: Tensor, p: Tensor) -> Tensor:
    """[x, p] side by side: as wide as both together, so that x is narrower than the model."""
    leading = torch.broadcast_shapes(x.shape[:-1], p.shape[:-1])
    return torch.cat((x.expand(*leading, -1), p.expand(*leading, -1)), -1)


COMBINATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": add,
    "multiply": multiply,
    "scale": scale,
    "concatenate": concatenate,
}
"""Each by its name: (batch, n, width of x), (batch or 1, n, dim) → (batch, n, width)."""
