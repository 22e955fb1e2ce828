"""Why rows that sum to 1 cannot count, and what a model that cannot still gets."""

from __future__ import annotations

import sympy

from .derivation import Derivation, derivation
from .formula import Formula, formula, sum_over, symbol
from .letters import a_ij, j, n, v, v_j
from .words import SumOver

row_sum = sympy.Sum(a_ij, (j, 0, n - 1))
"""Σ_j a_ij, the sum of row i of the attention matrix."""


@derivation
def row_sum_theorem() -> Derivation:
    """Equal values under weights that sum to 1 give equal outputs."""
    return (
        Derivation("row-sum-theorem", "Rows that sum to 1 cannot count", SumOver("j", a_ij * v_j))
        .given({v_j: v}, SumOver("j", a_ij * v), because="all values are equal")
        .equals(row_sum * v, because="$v$ does not depend on $j$")
        .assume(row_sum, 1, v, because="every row sums to 1")
    )


@derivation
def constant_floor() -> Derivation:
    """The squared error of a constant c on the targets 1 … n, with its minimum in plain sight."""
    m = symbol("n", integer=True, positive=True)
    k = symbol("k", integer=True, positive=True)
    c = symbol("c")
    mean: Formula = (m + 1) / formula(2)
    error = (formula(1) / m) * sum_over(k, 1, m, (k - c) ** 2)
    return Derivation("constant-floor", "The failure floor", error).equals(
        (c - mean) ** 2 + (m**2 - 1) / formula(12), because="mean and variance of $1 \\dots  n$"
    )
