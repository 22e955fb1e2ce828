"""The worked example of the whole book: three tokens in four dimensions.

*dog bites man*, counted from 0. The numbers are small, have one decimal, and are asymmetric on
purpose, so that a transposed matrix or a swapped index shows.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .attention import Attention
from .encoding import Encoding

TOKENS = ("dog", "bites", "man")


def x() -> Tensor:
    """The content vectors, one row for each token: (3, 4) float64."""
    return torch.tensor(
        [[1.0, 0.2, -0.5, 0.3], [-0.4, 0.8, 0.1, -0.6], [0.5, -0.7, 0.9, 0.2]],
        dtype=torch.float64,
    )


def W_Q() -> Tensor:
    """The query projection, acting on row vectors from the right: (4, 4) float64."""
    return torch.tensor(
        [
            [0.9, -0.3, 0.2, 0.5],
            [0.1, 0.7, -0.6, 0.4],
            [-0.8, 0.3, 0.5, 0.2],
            [0.4, -0.1, 0.6, 1.0],
        ],
        dtype=torch.float64,
    )


def W_K() -> Tensor:
    """The key projection, acting on row vectors from the right: (4, 4) float64."""
    return torch.tensor(
        [
            [0.3, 0.6, -0.4, 0.8],
            [-0.5, 0.9, 0.7, 0.1],
            [0.2, -0.2, 1.0, -0.7],
            [0.6, 0.4, 0.1, -0.3],
        ],
        dtype=torch.float64,
    )


def W_V() -> Tensor:
    """The value projection, acting on row vectors from the right: (4, 4) float64."""
    return torch.tensor(
        [
            [0.5, -0.9, 0.3, 0.1],
            [0.7, 0.2, -0.4, 0.6],
            [-0.1, 0.8, 0.9, -0.5],
            [0.3, 0.4, -0.2, 1.0],
        ],
        dtype=torch.float64,
    )


def attention(encoding: Encoding | None = None, normaliser: nn.Module | None = None) -> Attention:
    """One head with these projections and nothing behind it: W_O is the identity. In float64."""
    layer = Attention(4, 1, encoding, normaliser).double()
    weights = {"W_Q": W_Q(), "W_K": W_K(), "W_V": W_V(), "W_O": torch.eye(4)}
    layer.load_state_dict({f"{k}.weight": w.T for k, w in weights.items()}, strict=False)
    return layer.requires_grad_(False)
