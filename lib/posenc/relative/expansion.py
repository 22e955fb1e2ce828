"""The four terms of q_i k_jᵀ, and the two of o_i, when x_i + p_i goes into attention."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ..checks import require


class FourTerms(NamedTuple):
    """The unscaled logits, taken apart by what meets what.

    Each is (…, n_q, n_k), the last without the leading axes of the content.
    """

    content_content: Tensor
    content_position: Tensor
    position_content: Tensor
    position_position: Tensor


def four_terms(x: Tensor, p: Tensor, W_Q: Tensor, W_K: Tensor) -> FourTerms:
    """(x_i + p_i) W_Q W_Kᵀ (x_j + p_j)ᵀ as four matrices that add up to it.

    Args:
        x: (…, n, dim), the content.
        p: (n, dim), the positions' vectors.
        W_Q, W_K: (dim, head_dim), acting on row vectors from the right.

    Raises:
        ValueError: the widths of x, p, W_Q and W_K do not fit.

    Source: Su 2021, equation for q_i k_jᵀ in "XLNET Type".
    """
    require(
        x.dim() >= 2 and x.shape[-2:] == p.shape[-2:],
        f"x and p must be (…, n, dim) with one n and dim, but have shapes {tuple(x.shape)} and "
        f"{tuple(p.shape)}",
    )
    require(
        W_Q.shape == W_K.shape and W_Q.dim() == 2 and W_Q.shape[0] == x.shape[-1],
        f"W_Q and W_K must both be ({x.shape[-1]}, head_dim), but have shapes {tuple(W_Q.shape)} "
        f"and {tuple(W_K.shape)}",
    )
    M = W_Q @ W_K.T
    return FourTerms(
        x @ M @ x.mT,  # content–content
        x @ M @ p.mT,  # content–position
        p @ M @ x.mT,  # position–content
        p @ M @ p.mT,  # position–position
    )


class TwoPaths(NamedTuple):
    """The outputs, taken apart by what the values carry. Each is (…, n_q, value_dim)."""

    content: Tensor
    position: Tensor


def two_paths(weights: Tensor, x: Tensor, p: Tensor, W_V: Tensor) -> TwoPaths:
    """o_i = Σ_j a_ij (x_j + p_j) W_V as two matrices that add up to it.

    Args:
        weights: (…, n_q, n_k).
        x: (…, n_k, dim), the content.
        p: (n_k, dim), the positions' vectors.
        W_V: (dim, value_dim), acting on row vectors from the right.

    Raises:
        ValueError: the sizes of weights, x, p and W_V do not fit.
    """
    require(
        x.dim() >= 2 and x.shape[-2:] == p.shape[-2:] and weights.shape[-1] == x.shape[-2],
        "weights, x and p must be (…, n_q, n_k), (…, n_k, dim) and (n_k, dim), but have shapes "
        f"{tuple(weights.shape)}, {tuple(x.shape)} and {tuple(p.shape)}",
    )
    require(
        W_V.dim() == 2 and W_V.shape[0] == x.shape[-1],
        f"W_V must be ({x.shape[-1]}, value_dim), but has shape {tuple(W_V.shape)}",
    )
    return TwoPaths(weights @ x @ W_V, weights @ p @ W_V)
