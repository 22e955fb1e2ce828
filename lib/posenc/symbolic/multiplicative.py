"""The four-term expansion when position multiplies the content, or stands beside it."""

from __future__ import annotations

from sympy import Symbol

from .derivation import Derivation, derivation
from .letters import W_K, W_Q, d, d_h, k_j, q_i, x_i, x_j
from .words import Identity, Letter, Term

D_i = Letter("D_i", d, d, r"\operatorname{diag}(p_i)")
D_j = Letter("D_j", d, d, r"\operatorname{diag}(p_j)")
one = Identity(d)

d_p = Symbol("d_p", integer=True, positive=True)
"""The width of a position vector that stands beside the content."""
p_i, p_j = Letter("p_i", 1, d_p), Letter("p_j", 1, d_p)
U_Q, U_K = Letter("U_Q", d_p, d_h), Letter("U_K", d_p, d_h)

symmetric = {D_j.T: D_j}


@derivation
def multiply_expansion() -> Derivation:
    """x ⊗ p: one term, in which content and position cannot be told apart."""
    q, k = x_i @ D_i @ W_Q, x_j @ D_j @ W_K
    return (
        Derivation("multiply-expansion", "The logit of products", q_i @ k_j.T)
        .define({q_i: q, k_j: k}, q @ k.T, because=r"$x \otimes p = x \operatorname{diag}(p)$")
        .equals(x_i @ D_i @ W_Q @ W_K.T @ D_j.T @ x_j.T, because="transpose of a product")
        .given(
            symmetric,
            x_i @ D_i @ W_Q @ W_K.T @ D_j @ x_j.T,
            because="diagonals are symmetric",
        )
    )


@derivation
def scale_expansion() -> Derivation:
    """x ⊗ (1 + p): four terms again, but content is in each of them."""
    q, k = x_i @ (one + D_i) @ W_Q, x_j @ (one + D_j) @ W_K
    cc = Term("cc", x_i @ W_Q @ W_K.T @ x_j.T, "content–content")
    cp = Term("cp", x_i @ W_Q @ W_K.T @ D_j @ x_j.T, "position of the key")
    pc = Term("pc", x_i @ D_i @ W_Q @ W_K.T @ x_j.T, "position of the query")
    pp = Term("pp", x_i @ D_i @ W_Q @ W_K.T @ D_j @ x_j.T, "both positions")
    return (
        Derivation("scale-expansion", "The logit of scaled contents", q_i @ k_j.T)
        .define({q_i: q, k_j: k}, q @ k.T, because="definition of query and key")
        .given(
            symmetric,
            x_i @ (one + D_i) @ W_Q @ W_K.T @ (one + D_j) @ x_j.T,
            because="diagonals are symmetric",
        )
        .equals(cc + cp + pc + pp, because="multiplied out")
    )


@derivation
def concatenate_expansion() -> Derivation:
    """[x, p]: the four terms of addition, with matrices of its own for position."""
    q, k = x_i @ W_Q + p_i @ U_Q, x_j @ W_K + p_j @ U_K
    cc = Term("cc", x_i @ W_Q @ W_K.T @ x_j.T, "content–content")
    cp = Term("cp", x_i @ W_Q @ U_K.T @ p_j.T, "content–position")
    pc = Term("pc", p_i @ U_Q @ W_K.T @ x_j.T, "position–content")
    pp = Term("pp", p_i @ U_Q @ U_K.T @ p_j.T, "position–position")
    return (
        Derivation("concatenate-expansion", "The logit of concatenations", q_i @ k_j.T)
        .define({q_i: q, k_j: k}, q @ k.T, because="projections in two blocks")
        .equals(cc + cp + pc + pp, because="multiplied out")
    )
