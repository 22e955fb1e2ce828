"""T5, ALiBi and TUPE from the root: content and position apart."""

from __future__ import annotations

import sympy

from .derivation import Derivation, derivation
from .expansion import expansion
from .letters import W_K, W_Q, d, d_h, p_i, p_j, x_i, x_j
from .words import Letter, Term

beta = Letter("beta", 1, 1, r"\beta_{ij}")
r = Letter("r", 1, 1, "r_{ij}")
"""How far apart, |i − j|."""
m_h = sympy.Symbol("m_h", positive=True)
U_Q, U_K = Letter("U_Q", d, d_h), Letter("U_K", d, d_h)

_cc = Term("cc", x_i @ W_Q @ W_K.T @ x_j.T, "content–content")
_pp = Term("pp", p_i @ W_Q @ W_K.T @ p_j.T, "position–position")
_bias = Term("pp", beta, "position–position")


@derivation
def t5() -> Derivation:
    """Without the mixed terms, what is left of position is one number for each pair."""
    return (
        Derivation("t5", "T5's logit", expansion().end)
        .drop(["cp", "pc"], _cc + _pp, because="content and position apart")
        .choose(
            {p_i @ W_Q @ W_K.T @ p_j.T: beta},
            _cc + _bias,
            because="a trained number",
            within="pp",
        )
    )


@derivation
def alibi() -> Derivation:
    """A number too, but none that is trained."""
    penalty = Term("pp", -m_h * r, "position–position")
    return Derivation("alibi", "ALiBi's logit", t5().end).choose(
        {beta: -m_h * r}, _cc + penalty, because="a fixed slope"
    )


@derivation
def tupe() -> Derivation:
    """The last term stays absolute, with projections of its own."""
    apart = Term("pp", p_i @ U_Q @ U_K.T @ p_j.T, "position–position")
    return (
        Derivation("tupe", "TUPE's logit", expansion().end)
        .drop(["cp", "pc"], _cc + _pp, because="no mixed terms")
        .choose({W_Q: U_Q, W_K: U_K}, _cc + apart, because="untied", within="pp")
    )
