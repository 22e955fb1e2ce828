"""The two roots of the relative encodings: q_i k_jᵀ in four terms, and o_i in two."""

from __future__ import annotations

from .derivation import Derivation, derivation
from .letters import W_K, W_Q, W_V, a_ij, k_j, p_i, p_j, q_i, v_j, x_i, x_j
from .words import SumOver, Term


@derivation
def expansion() -> Derivation:
    """q_i k_jᵀ = content–content + content–position + position–content + position–position."""
    cc = Term("cc", x_i @ W_Q @ W_K.T @ x_j.T, "content–content")
    cp = Term("cp", x_i @ W_Q @ W_K.T @ p_j.T, "content–position")
    pc = Term("pc", p_i @ W_Q @ W_K.T @ x_j.T, "position–content")
    pp = Term("pp", p_i @ W_Q @ W_K.T @ p_j.T, "position–position")

    q, k = (x_i + p_i) @ W_Q, (x_j + p_j) @ W_K
    return (
        Derivation("expansion", "The four-term expansion", q_i @ k_j.T)
        .define({q_i: q, k_j: k}, q @ k.T, because="definition of query and key")
        .equals((x_i + p_i) @ W_Q @ W_K.T @ (x_j + p_j).T, because="transpose of a product")
        .equals(cc + cp + pc + pp, because="multiplied out")
    )


@derivation
def value_path() -> Derivation:
    """o_i = Σ_j a_ij v_j: what the values carry, content and position apart."""
    content = Term("cc", SumOver("j", a_ij * (x_j @ W_V)), "content")
    position = Term("pp", SumOver("j", a_ij * (p_j @ W_V)), "position")
    return (
        Derivation("value-path", "The value path", SumOver("j", a_ij * v_j))
        .define(
            {v_j: (x_j + p_j) @ W_V},
            SumOver("j", a_ij * ((x_j + p_j) @ W_V)),
            because="definition of the value",
        )
        .equals(content + position, because="multiplied out")
    )
