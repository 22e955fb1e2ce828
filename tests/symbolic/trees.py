"""Random expressions and formulas over a few letters, for the tests of this folder.

Every size differs from every other, so that two confused sizes cannot pass for one.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy

import sympy
from hypothesis import settings
from hypothesis import strategies as st

from posenc.symbolic import formula as F
from posenc.symbolic.formula import Formula
from posenc.symbolic.letters import W_K, W_Q, a_ij, d, d_h, n, p_i, p_j, x_i, x_j
from posenc.symbolic.words import (
    Identity,
    Letter,
    Matrix,
    Product,
    Scaled,
    Sum,
    SumOver,
    Term,
    Transposed,
)

SETTINGS = settings(derandomize=True, deadline=None, max_examples=80, database=None)

ONE = sympy.Integer(1)
SIZES = {ONE: 1, d: 2, d_h: 7, n: 5}

M = Letter("M", d, d)
N = Letter("N", d, d)
u = Letter("u", 1, d, r"\tilde{u}")
R = Letter("R", 1, d_h, "R^K_{i-j}")
beta = Letter("beta", 1, 1, r"\beta_{ij}")
LETTERS = [x_i, x_j, p_i, p_j, W_Q, W_K, M, N, u, R, beta]

s, t = sympy.symbols("s t", real=True)
COEFFICIENTS = [sympy.Integer(-1), sympy.Integer(2), sympy.Rational(-1, 2), s, -t, 1 + s]
COEFFICIENTS += [1 / sympy.sqrt(d_h), -s / 2, sympy.Integer(0)]
COLOURS = ["cc", "cp", "pc", "pp"]

SHAPES = [(ONE, ONE), (ONE, d), (d, ONE), (ONE, d_h), (d, d_h), (d_h, d), (d, d)]


@st.composite
def matrices(draw, shape=None, depth=4, free_j=True, sums=True) -> Matrix:
    """An expression of a shape.

    Args:
        free_j: whether it may depend on j.
        sums: whether it may hold Σ_j; what stands beside a Σ_j does not depend on j.
    """
    rows, cols = shape or draw(st.sampled_from(SHAPES))

    def again(rows, cols, free_j=free_j, sums=sums):
        return draw(matrices((rows, cols), depth - 1, free_j, sums))

    def leaf():
        j = sympy.Symbol("j", integer=True, nonnegative=True)
        fitting = [m for m in LETTERS if free_j or j not in m.indices]
        leaves = [m for m in fitting if m.shape == (rows, cols)]
        leaves += [m.T for m in fitting if m.shape == (cols, rows)]
        leaves += [Identity(d)] if rows == cols == d else []
        if not leaves:  # a row times a matrix
            leaves = [again(rows, ONE, False, False) @ again(ONE, cols, False, False)]
        return draw(st.sampled_from(leaves))

    kinds = ["leaf"]
    if depth > 0:
        kinds += ["sum", "difference", "product", "product", "scaled", "transpose", "term"]
        kinds += ["over"] if sums else []
    kind = draw(st.sampled_from(kinds))
    if kind in ("sum", "difference"):
        left, right = again(rows, cols), again(rows, cols)
        return left + right if kind == "sum" else left - right
    if kind == "product":
        middle = draw(st.sampled_from([ONE, d, d_h]))
        if sums and draw(st.booleans()):  # a sum in one factor, nothing with j beside it
            first = draw(st.booleans())
            return again(rows, middle, False, first) @ again(middle, cols, False, not first)
        return again(rows, middle, sums=False) @ again(middle, cols, sums=False)
    if kind == "scaled":
        weights = [a_ij] if free_j and not sums else []
        return draw(st.sampled_from(COEFFICIENTS + weights)) * again(rows, cols)
    if kind == "transpose":
        return again(cols, rows).T
    if kind == "term":
        return Term(draw(st.sampled_from(COLOURS)), again(rows, cols))
    if kind == "over":
        return SumOver("j", again(rows, cols, True, False))
    return leaf()


@st.composite
def rewritten(draw, expression: Matrix) -> Matrix:
    """An expression that means the same and is written in another way."""

    def again(part):
        return draw(rewritten(part))

    if isinstance(expression, Sum):
        left, right = again(expression.left), again(expression.right)
        return draw(st.sampled_from([left + right, right + left, -(-left - right)]))
    if isinstance(expression, Product):
        left, right = expression.left, expression.right
        if isinstance(left, Sum) and draw(st.booleans()):
            return again(left.left @ right) + again(left.right @ right)
        if isinstance(right, Sum) and draw(st.booleans()):
            return again(left @ right.left) + again(left @ right.right)
        if isinstance(left, Product) and draw(st.booleans()):
            return again(left.left @ (left.right @ right))
        left, right = again(left), again(right)
        return draw(st.sampled_from([left @ right, (right.T @ left.T).T]))
    if isinstance(expression, Scaled):
        body, c = again(expression.body), expression.coefficient
        return draw(st.sampled_from([c * body, (c * body.T).T, c / 2 * body + c / 2 * body]))
    if isinstance(expression, Transposed):
        if expression.shape == (1, 1) and draw(st.booleans()):
            return again(expression.body)
        return again(expression.body).T
    if isinstance(expression, SumOver):
        if isinstance(expression.body, Sum):
            parts = expression.body.parts()
            left, right = (again(SumOver("j", part)) for part in parts)
            return left + right
        return SumOver("j", again(expression.body))
    if isinstance(expression, Term):
        return again(expression.body)
    return draw(st.sampled_from([expression, expression.T.T, 2 * expression - expression]))


def spoiled(expression: Matrix, letters: Mapping[Letter, Matrix]) -> Matrix:
    """The same tree with some letters exchanged for others of their shape."""
    if isinstance(expression, Letter):
        return letters.get(expression, expression)
    out = copy(expression)
    for name, part in vars(expression).items():
        if isinstance(part, Matrix):
            setattr(out, name, spoiled(part, letters))
    return out


# formulas

x, y, z = F.symbol("x"), F.symbol("y"), F.symbol("z", complex=True)
m = F.symbol("m", integer=True, positive=True)
k = F.symbol("k", integer=True, positive=True)
r = F.symbol("r", positive=True)
theta = F.symbol("theta_0", r"\theta_0")
c = F.named("c", x + F.i * y)
q = F.named("q^c", x - y)
POINTS = [
    {x: 0.731, y: -1.21, z: 0.4 - 0.9j, m: 3, k: 2, r: 1.7, theta: 0.37},
    {x: -1.9, y: 0.3, z: -1.1 + 0.2j, m: 2, k: 1, r: 0.6, theta: 2.2},
]


@st.composite
def numbers(draw, depth=4, index=False, real=False) -> Formula:
    """A random scalar formula.

    Args:
        index: whether it stands under Σ_k, and k may occur.
        real: whether all its letters are real.
    """

    def again(**options):
        return draw(numbers(depth - 1, **{"index": index, "real": real, **options}))

    leaves = [x, y, m, r, theta, q, F.formula(2), F.formula(-3), F.formula(10)]
    leaves += ([] if real else [z, c, F.i]) + ([k] if index else [])
    if depth == 0:
        return draw(st.sampled_from(leaves))
    kinds = ["leaf", "+", "-", "*", "*", "neg", "/", "**", "cos", "sin", "cis", "group"]
    kinds += ["conj", "re"] + ([] if index else ["sum"])
    kind = draw(st.sampled_from(kinds))
    if kind == "leaf":
        return draw(st.sampled_from(leaves))
    if kind == "+":
        return again() + again()
    if kind == "-":
        return again() - again()
    if kind == "*":
        return again() * again()
    if kind == "neg":
        return -again()
    if kind == "/":
        return again() / draw(st.sampled_from([r, m, F.formula(2), -r, r * m, r + m, r**2]))
    if kind == "**":
        return again() ** draw(st.sampled_from([0, 1, 2, 3]))
    if kind in ("cos", "sin", "cis"):
        return getattr(F, kind)(again(real=True))
    if kind == "group":
        return F.group(again())
    if kind == "conj":
        return F.conjugate(again())
    if kind == "re":
        return F.real_part(again())
    return F.sum_over(k, 1, m, again(index=True))


Q = F.named("Q", F.matrix([[x, 2], [F.cos(y), z]]))


@st.composite
def tables(draw, depth=2) -> Formula:
    """A random 2×2 matrix formula."""

    def again():
        return draw(tables(depth - 1))

    kinds = ["+", "-", "*", "scaled", "T", "**", "neg"] if depth else ["square", "blocks", "named"]
    kind = draw(st.sampled_from(kinds))
    if kind == "square":
        return F.matrix([[draw(numbers(2)), draw(numbers(1))], [draw(numbers(1)), 1]])
    if kind == "blocks":
        return F.block_diagonal([F.matrix([[draw(numbers(2))]]) for _ in range(2)])
    if kind == "named":
        return Q
    if kind == "+":
        return again() + again()
    if kind == "-":
        return again() - again()
    if kind == "*":
        return again() * again()
    if kind == "scaled":
        return draw(numbers(1)) * again()
    return again().T if kind == "T" else again() ** 2 if kind == "**" else -again()


def at(value: sympy.Basic, point: Mapping[Formula, complex]):
    """A value as numbers, a list of them for a matrix."""
    numbers = {letter.value: number for letter, number in point.items()}
    entries = value if isinstance(value, sympy.MatrixBase) else [value]
    return [complex(entry.subs(numbers).doit().evalf()) for entry in entries]
