"""Shaw's encoding from the two roots, and the rotation between NEZHA's paper and its code."""

from __future__ import annotations

from .derivation import Derivation, derivation
from .expansion import expansion, value_path
from .letters import W_K, W_Q, W_V, a_ij, d_h, d_v, i, k_j, n, p_i, p_j, q_i, v_j, x_i, x_j
from .words import Identity, Letter, SumOver, Term

R_K = Letter("R_K", 1, d_h, "R^K_{ij}")
R_V = Letter("R_V", 1, d_v, "R^V_{ij}")

ahead = Letter("R_ahead", 1, d_v, "R_{-1}")
here = Letter("R_here", 1, d_v, "R_0")
behind = Letter("R_behind", 1, d_v, "R_1")

R_ij = Letter("R_ij", 1, d_h, "R_{ij}")
M = Letter("M", d_h, d_h)
M_v = Letter("M", d_v, d_v)


@derivation
def shaw_keys() -> Derivation:
    """From four terms to Shaw's logit: one row for each pair, and no position of the query."""
    cc = Term("cc", x_i @ W_Q @ W_K.T @ x_j.T, "content–content")
    cp = Term("cp", x_i @ W_Q @ R_K.T, "content–position")
    pc = Term("pc", p_i @ W_Q @ W_K.T @ x_j.T, "position–content")
    pp = Term("pp", p_i @ W_Q @ R_K.T, "position–position")
    return (
        Derivation("shaw-keys", "Shaw's logit", expansion().end)
        .choose({p_j @ W_K: R_K}, cc + cp + pc + pp, because="a row for each pair")
        .drop(["pc", "pp"], cc + cp, because="no position of the query")
        .equals(x_i @ W_Q @ (x_j @ W_K + R_K).T, because="factored")
    )


@derivation
def shaw_values() -> Derivation:
    """From the value path to Shaw's output: a row for each pair here too."""
    content = Term("cc", SumOver("j", a_ij * (x_j @ W_V)), "content")
    position = Term("pp", SumOver("j", a_ij * R_V), "position")
    return (
        Derivation("shaw-values", "Shaw's output", value_path().end)
        .choose({p_j @ W_V: R_V}, content + position, because="a row for each pair")
        .equals(SumOver("j", a_ij * (x_j @ W_V + R_V)), because="one sum")
    )


@derivation
def nezha_rotation() -> Derivation:
    """Queries and keys that are turned back do what turned rows do."""
    return (
        Derivation("nezha-rotation", "Turned queries and keys", (q_i @ M.T) @ (k_j @ M.T + R_ij).T)
        .equals(q_i @ M.T @ M @ k_j.T + q_i @ M.T @ R_ij.T, because="multiplied out")
        .given(
            {M.T @ M: Identity(d_h)},
            q_i @ k_j.T + q_i @ M.T @ R_ij.T,
            because="$M$ is orthogonal",
        )
        .equals(q_i @ (k_j + R_ij @ M).T, because="factored")
    )


@derivation
def nezha_values() -> Derivation:
    """Values that are turned back, and outputs that are turned, do what turned rows do."""
    turned = SumOver("j", a_ij * (v_j @ M_v.T + R_V)) @ M_v
    return (
        Derivation("nezha-values", "Turned values", turned)
        .equals(
            SumOver("j", a_ij * (v_j @ M_v.T @ M_v)) + SumOver("j", a_ij * (R_V @ M_v)),
            because="multiplied out",
        )
        .given(
            {M_v.T @ M_v: Identity(d_v)},
            SumOver("j", a_ij * v_j) + SumOver("j", a_ij * (R_V @ M_v)),
            because="$M$ is orthogonal",
        )
        .equals(SumOver("j", a_ij * (v_j + R_V @ M_v)), because="one sum")
    )


@derivation
def shaw_counts() -> Derivation:
    """What three rows on the values add, if all n weights are 1/n: a line in i."""
    return Derivation(
        "shaw-counts",
        "Three rows count",
        1 / n * ((n - 1) * ahead - i * ahead + here + i * behind),
    ).equals(
        1 / n * ((n - 1) * ahead + here) + i / n * (behind - ahead),
        because="sorted by $i$",
    )
