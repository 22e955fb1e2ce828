"""DeBERTa from the root: the two mixed terms, and no position on its own."""

from __future__ import annotations

from .derivation import Derivation, derivation
from .expansion import expansion
from .letters import W_K, W_Q, d, d_h, p_i, p_j, x_i, x_j
from .words import Letter, Term

R_ij = Letter("R_ij", 1, d, r"R_{\delta(i,j)}")
R_ji = Letter("R_ji", 1, d, r"R_{\delta(j,i)}")
W_QR = Letter("W_QR", d, d_h, "W_{Q,R}")
W_KR = Letter("W_KR", d, d_h, "W_{K,R}")

_cc = Term("cc", x_i @ W_Q @ W_K.T @ x_j.T, "content–content")
_cp = Term("cp", x_i @ W_Q @ W_K.T @ p_j.T, "content–position")
_pc = Term("pc", p_i @ W_Q @ W_K.T @ x_j.T, "position–content")


@derivation
def deberta() -> Derivation:
    """The terms in which content and position meet stay, each with a row for the distance."""
    cR = Term("cp", x_i @ W_Q @ W_K.T @ R_ij.T, "content–position")
    Rc = Term("pc", R_ji @ W_Q @ W_K.T @ x_j.T, "position–content")
    return (
        Derivation("deberta", "DeBERTa's logit", expansion().end)
        .drop(["pp"], _cc + _cp + _pc, because="no position alone")
        .choose({p_j: R_ij, p_i: R_ji}, _cc + cR + Rc, because="rows for distances")
    )


@derivation
def deberta_from_the_key() -> Derivation:
    """The third term as the library computes it: a key times what asks from its side."""
    return Derivation(
        "deberta-from-the-key", "From the key's side", R_ji @ W_Q @ W_K.T @ x_j.T
    ).equals((x_j @ W_K) @ (R_ji @ W_Q).T, because="a number equals its transpose")


@derivation
def deberta_own_projections() -> Derivation:
    """The first version's: rows that have projections of their own."""
    cR = Term("cp", x_i @ W_Q @ W_KR.T @ R_ij.T, "content–position")
    Rc = Term("pc", R_ji @ W_QR @ W_K.T @ x_j.T, "position–content")
    return Derivation("deberta-own-projections", "DeBERTa, version 1", deberta().end).choose(
        {R_ij @ W_K: R_ij @ W_KR, R_ji @ W_Q: R_ji @ W_QR}, _cc + cR + Rc, because="untied"
    )
