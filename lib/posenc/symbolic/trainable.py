"""Making a table longer: the hierarchical decomposition, and why its α is not one half."""

from __future__ import annotations

import sympy

from .derivation import Derivation, derivation
from .letters import d
from .words import Letter, Matrix

alpha = sympy.Symbol("alpha", real=True)
p_0, p_k = Letter("p_0", 1, d), Letter("p_k", 1, d)
u_0, u_k = Letter("u_0", 1, d), Letter("u_k", 1, d)
u_i, u_j = Letter("u_i", 1, d), Letter("u_j", 1, d)


def mixed(first: Letter, second: Letter) -> Matrix:
    """α first + (1 − α) second."""
    return alpha * first + (1 - alpha) * second


@derivation
def hierarchical_choice() -> Derivation:
    """If the first n vectors are to stay, u_k can only be (p_k − α p_0)/(1 − α)."""
    share = 1 / (1 - alpha)
    return (
        Derivation(
            "hierarchical-choice",
            "The only choice of u",
            share * (p_k - alpha * p_0),
        )
        .given(
            {p_k: mixed(u_0, u_k), p_0: u_0},
            share * (mixed(u_0, u_k) - alpha * u_0),
            because="the first $n$ stay",
        )
        .equals(u_k, because="the $u_0$ cancel")
    )


@derivation
def hierarchical_consistent() -> Derivation:
    """With these u, position k below n keeps its vector p_k."""
    share = 1 / (1 - alpha)
    return (
        Derivation("hierarchical-consistent", "The first n stay", mixed(u_0, u_k))
        .define(
            {u_0: share * (p_0 - alpha * p_0), u_k: share * (p_k - alpha * p_0)},
            alpha * share * (p_0 - alpha * p_0) + (p_k - alpha * p_0),
            because="definition of $u$",
        )
        .equals(p_k, because="the $p_0$ cancel")
    )


@derivation
def hierarchical_swap() -> Derivation:
    """What tells position in + j from position jn + i."""
    return Derivation(
        "hierarchical-swap", "Swapping the two digits", mixed(u_i, u_j) - mixed(u_j, u_i)
    ).equals((2 * alpha - 1) * (u_i - u_j), because="sorted by $u_i$ and $u_j$")
