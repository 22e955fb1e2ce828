"""Transformer-XL from the root, its shift on indices, and the sinusoid of a difference."""

from __future__ import annotations

from .derivation import Derivation, derivation
from .expansion import expansion
from .formula import cos, group, sin, symbol
from .letters import W_K, W_Q, d, d_h, p_i, p_j, x_i, x_j
from .words import Letter, Term

R = Letter("R", 1, d, "R_{i-j}")
u_0, v_0 = Letter("u_0", 1, d), Letter("v_0", 1, d)
u, v = Letter("u", 1, d_h), Letter("v", 1, d_h)
W_KR = Letter("W_KR", d, d_h, "W_{K,R}")


@derivation
def transformer_xl() -> Derivation:
    """All four terms stay: the key's position becomes a distance, the query's two rows for all."""
    cc = Term("cc", x_i @ W_Q @ W_K.T @ x_j.T, "content–content")
    pc = Term("pc", p_i @ W_Q @ W_K.T @ x_j.T, "position–content")

    cR = Term("cp", x_i @ W_Q @ W_K.T @ R.T, "content–position")
    uc = Term("pc", u_0 @ W_Q @ W_K.T @ x_j.T, "position–content")
    vR = Term("pp", v_0 @ W_Q @ W_K.T @ R.T, "position–position")

    cR_own = Term("cp", x_i @ W_Q @ W_KR.T @ R.T, "content–position")
    vR_own = Term("pp", v_0 @ W_Q @ W_KR.T @ R.T, "position–position")

    uc_merged = Term("pc", u @ W_K.T @ x_j.T, "position–content")
    vR_merged = Term("pp", v @ W_KR.T @ R.T, "position–position")

    pR = Term("pp", p_i @ W_Q @ W_K.T @ R.T, "position–position")
    return (
        Derivation("transformer-xl", "Transformer-XL's logit", expansion().end)
        .choose({p_j: R}, cc + cR + pc + pR, because="a distance for the key")
        .choose({p_i: u_0}, cc + cR + uc + pR, because="one row for all queries", within="pc")
        .choose({p_i: v_0}, cc + cR + uc + vR, because="and another one", within="pp")
        .choose({R @ W_K: R @ W_KR}, cc + cR_own + uc + vR_own, because="keys of their own")
        .define(
            {u_0 @ W_Q: u, v_0 @ W_Q: v},
            cc + cR_own + uc_merged + vR_merged,
            because="merged",
        )
        .equals(
            (x_i @ W_Q + u) @ (x_j @ W_K).T + (x_i @ W_Q + v) @ (R @ W_KR).T, because="factored"
        )
    )


i, j = symbol("i", "i", integer=True), symbol("j", "j", integer=True)
n_q, n_k = symbol("n_q", integer=True, positive=True), symbol("n_k", integer=True, positive=True)


@derivation
def transformer_xl_shift() -> Derivation:
    """Where an entry lies in memory: in rows of n_q + n_k, then in rows that are one shorter."""
    return (
        Derivation(
            "transformer-xl-shift",
            "The shift",
            group(i * group(n_q + n_k) + group(n_q - i + j)) - n_q,
        )
        .equals(i * group(n_q + n_k) - i + j, because="multiplied out")
        .equals(i * group(n_q + n_k - 1) + j, because="sorted by $i$")
    )


a, b, theta = symbol("a"), symbol("b"), symbol("theta", r"\theta")
at_i, at_j = symbol("i", "i"), symbol("j", "j")


@derivation
def sinusoid_of_a_difference() -> Derivation:
    """The sinusoid of i − j against a row: a product of something of i with something of j."""
    sin_i, cos_i = sin(at_i * theta), cos(at_i * theta)
    sin_j, cos_j = sin(at_j * theta), cos(at_j * theta)
    angle = (at_i - at_j) * theta
    return Derivation(
        "sinusoid-of-a-difference", "Apart again", a * sin(angle) + b * cos(angle)
    ).equals(
        group(b * sin_i - a * cos_i) * sin_j + group(a * sin_i + b * cos_i) * cos_j,
        because="addition theorems",
    )
