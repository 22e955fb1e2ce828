"""Scalar, complex and small explicit matrix formulas that print exactly as they were written.

sympy reorders and merges what it is given: e^{imθ} e^{−inθ} is one power before it can be shown. A
`Formula` therefore carries two things that are always built together, the sympy value and the LaTeX
of the way it was written. Nothing else can make one, so the two cannot drift apart.

    >>> theta = symbol("theta", r"\\theta")
    >>> (cis(theta) * cis(-theta)).tex
    'e^{\\\\mathrm{i} \\\\theta} e^{-\\\\mathrm{i} \\\\theta}'
    >>> (cis(theta) * cis(-theta)).value
    1
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum

import sympy

from .tex import brackets, letter

ALLOWED = {"real", "integer", "complex", "positive", "nonnegative", "nonzero"}
"""What can be assumed of a symbol; the mark of a derivation says it in words."""


class Kind(IntEnum):
    """How tightly a formula holds together, which decides on brackets."""

    SUM = 0  # a + b
    NEGATIVE = 1  # −a
    OPEN = 2  # cos x, Σ x, a cos x: reaches to the right as far as it can
    PRODUCT = 3
    FACTOR = 4  # a fraction, a power, cos(a + b): only an exponent asks for brackets
    ATOM = 5  # a letter, a number, a matrix, anything in brackets


class Formula:
    """A sympy value and the LaTeX it was written as. Build it with + - * / ** and functions.

    Args:
        value: what it means.
        tex: how it prints.
        kind: how tightly that holds together.
        parts: what it was built from; `letters` is what all their letters mean.
    """

    def __init__(
        self,
        value: sympy.Basic,
        tex: str,
        kind: Kind = Kind.ATOM,
        parts: Iterable[Formula] = (),
    ) -> None:
        self.value, self.tex, self.kind = value, tex, kind
        self.letters: frozenset[tuple[str, sympy.Basic]] = frozenset().union(
            *(part.letters for part in parts)
        )
        self.cells: list[list[Formula]] = []  # the entries of what `matrix` made

    def latex(self) -> str:
        return self.tex

    def printed(self) -> Iterable[tuple[str, sympy.Basic]]:
        """Each letter in it: its LaTeX, and the symbol or the formula that it stands for."""
        return self.letters

    def __repr__(self) -> str:
        return f"Formula({self.value})"

    def __add__(self, other: Formula | int) -> Formula:
        other = formula(other)
        right = brackets(other.tex) if other.tex.startswith("-") else other.tex
        return Formula(self.value + other.value, f"{self.tex} + {right}", Kind.SUM, (self, other))

    def __radd__(self, other: int) -> Formula:
        return formula(other) + self

    def __sub__(self, other: Formula | int) -> Formula:
        other = formula(other)
        right = _bracketed(other, Kind.SUM, Kind.NEGATIVE)
        return Formula(self.value - other.value, f"{self.tex} - {right}", Kind.SUM, (self, other))

    def __rsub__(self, other: int) -> Formula:
        return formula(other) - self

    def __neg__(self) -> Formula:
        tex = _bracketed(self, Kind.SUM, Kind.NEGATIVE)
        return Formula(-self.value, f"-{tex}", Kind.NEGATIVE, (self,))

    def __mul__(self, other: Formula | int) -> Formula:
        other = formula(other)
        left = _bracketed(self, Kind.SUM, Kind.NEGATIVE, Kind.OPEN)
        right = _bracketed(other, Kind.SUM, Kind.NEGATIVE)
        # 2 3 would read as 23, and 2 ½ as 2 + ½
        digits = right[0].isdigit() or (left[-1].isdigit() and right.startswith(r"\frac"))
        tex = f"{left} \\cdot {right}" if digits else f"{left} {right}"
        kind = Kind.OPEN if other.kind is Kind.OPEN else Kind.PRODUCT
        return Formula(self.value * other.value, tex, kind, (self, other))

    def __rmul__(self, other: int) -> Formula:
        return formula(other) * self

    def __truediv__(self, other: Formula | int) -> Formula:
        other = _divisor(formula(other))
        tex = rf"\frac{{{self.tex}}}{{{other.tex}}}"
        return Formula(self.value / other.value, tex, Kind.FACTOR, (self, other))

    def __pow__(self, exponent: int) -> Formula:
        if not isinstance(exponent, int):
            raise TypeError(f"the exponent {exponent} is no integer")
        base = self if exponent >= 0 else _divisor(self)
        tex = f"{_base(base)}^{{{exponent}}}"
        return Formula(base.value**exponent, tex, Kind.FACTOR, (base,))

    @property
    def T(self) -> Formula:
        """The transpose of a matrix."""
        return Formula(self.value.T, rf"{_base(self)}^\top", Kind.FACTOR, (self,))


def formula(value: Formula | int) -> Formula:
    """An integer as a formula; a formula as it is. A fraction is built with /."""
    if isinstance(value, Formula):
        return value
    if not isinstance(value, int | sympy.Integer):
        raise TypeError(f"{value!r} is neither a formula nor an integer")
    number = sympy.Integer(value)
    return Formula(number, str(number), Kind.ATOM if number >= 0 else Kind.NEGATIVE)


def _letter(tex: str, meaning: sympy.Basic) -> Formula:
    out = Formula(meaning, letter(tex))
    out.letters = frozenset({(out.tex, meaning)})
    return out


i = _letter(r"\mathrm{i}", sympy.I)
"""The imaginary unit."""


def symbol(name: str, tex: str | None = None, **assumptions: bool) -> Formula:
    """A letter for a number: real unless assumptions say otherwise."""
    if not (assumptions.keys() <= ALLOWED and all(assumptions.values())):
        raise ValueError(f"of {name}, only {sorted(ALLOWED)} can be assumed, not {assumptions}")
    return _letter(tex or name, sympy.Symbol(name, **(assumptions or {"real": True})))


def named(tex: str, meaning: Formula) -> Formula:
    """A letter that stands for a formula: prints as the letter, counts as its meaning."""
    return _letter(tex, meaning.value)


def group(f: Formula) -> Formula:
    """The same in brackets, where the reader should see a product as one thing."""
    return Formula(f.value, brackets(f.tex), Kind.ATOM, (f,))


def cis(angle: Formula) -> Formula:
    """e^{i·angle}; a minus sign in front of the angle stands in front of the i."""
    exponent = i * angle
    parts = i, _letter("e", sympy.E), angle
    if angle.kind is Kind.NEGATIVE:  # its tex is a minus sign and the opposite's
        exponent = -(i * Formula(-angle.value, angle.tex[1:], Kind.PRODUCT))
    tex = f"e^{{{exponent.tex}}}"
    return Formula(sympy.exp(sympy.I * angle.value), tex, Kind.FACTOR, parts)


def cos(angle: Formula) -> Formula:
    return _function(sympy.cos, r"\cos", angle)


def sin(angle: Formula) -> Formula:
    return _function(sympy.sin, r"\sin", angle)


def derivative(f: Formula, variable: Formula) -> Formula:
    r"""d/dt of a number, or of a matrix entry by entry.

    Raises:
        ValueError: the variable is no letter, or f contains a derivative or a sum already.
    """
    if not isinstance(variable.value, sympy.Symbol):
        raise ValueError(f"nothing can be differentiated by {variable.tex}: it is no letter")
    if f.value.has(sympy.Derivative, sympy.Sum):
        raise ValueError(f"{f.tex} is not differentiated here: it holds a sum or a derivative")
    tex = rf"\frac{{d}}{{d {variable.tex}}} {_bracketed(f, Kind.SUM, Kind.NEGATIVE)}"
    return Formula(f.value.diff(variable.value), tex, Kind.OPEN, (f, variable))


def conjugate(z: Formula) -> Formula:
    """z*."""
    return Formula(sympy.conjugate(z.value), f"{_base(z)}^*", Kind.FACTOR, (z,))


def real_part(z: Formula) -> Formula:
    """Re[z]."""
    tex = rf"\operatorname{{Re}}\left[{z.tex}\right]"
    return Formula(sympy.re(z.value), tex, Kind.FACTOR, (z,))


def sum_over(index: Formula, first: Formula | int, last: Formula | int, body: Formula) -> Formula:
    """Σ from index = first to last of body.

    Raises:
        ValueError: first … last may be no range of integers. For an empty one that runs backwards
            sympy's sum is not zero but what its closed form gives.
    """
    first, last = formula(first), formula(last)
    length = last.value - first.value + 1
    if not (length.is_nonnegative and length.is_integer and index.value.is_integer):
        raise ValueError(f"{first.tex} … {last.tex} may be no range of integers for {index.tex}")
    inner = _bracketed(body, Kind.SUM, Kind.NEGATIVE)
    return Formula(
        sympy.Sum(body.value, (index.value, first.value, last.value)),
        rf"\sum_{{{index.tex}={first.tex}}}^{{{last.tex}}} {inner}",
        Kind.OPEN,
        (index, first, last, body),
    )


def matrix(rows: Sequence[Sequence[Formula | int]]) -> Formula:
    """A matrix of formulas, given by its rows."""
    cells = [[formula(cell) for cell in row] for row in rows]
    body = r" \\ ".join(" & ".join(cell.tex for cell in row) for row in cells)
    out = Formula(
        sympy.ImmutableMatrix([[cell.value for cell in row] for row in cells]),
        rf"\begin{{pmatrix}} {body} \end{{pmatrix}}",
        parts=[cell for row in cells for cell in row],
    )
    out.cells = cells
    return out


def block_diagonal(blocks: Sequence[Formula]) -> Formula:
    """Matrices along the diagonal, zeros elsewhere, written out entry by entry."""
    width = sum(len(block.cells[0]) for block in blocks)
    rows: list[list[Formula | int]] = []
    offset = 0
    for block in blocks:
        for cells in block.cells:
            rows.append([0] * offset + cells + [0] * (width - offset - len(cells)))
        offset += len(block.cells[0])
    return matrix(rows)


def _bracketed(f: Formula, *kinds: Kind) -> str:
    """The formula's LaTeX, in brackets if it is of one of these kinds."""
    return brackets(f.tex) if f.kind in kinds else f.tex


def _base(f: Formula) -> str:
    """LaTeX to carry an exponent, a star or ⊤."""
    return f.tex if f.kind is Kind.ATOM and "^" not in f.tex else brackets(f.tex)


def _divisor(f: Formula) -> Formula:
    if isinstance(f.value, sympy.MatrixBase) or f.value.is_zero is not False:
        raise ValueError(f"nothing can be divided by {f.tex}: it may be zero or is a matrix")
    return f


def _function(function: type[sympy.Function], tex: str, angle: Formula) -> Formula:
    # cos (m − n) θ and cos θ (m − n) could be read as products
    value = function(angle.value)
    if angle.kind >= Kind.PRODUCT and "(" not in angle.tex:
        return Formula(value, f"{tex} {angle.tex}", Kind.OPEN, (angle,))
    return Formula(value, f"{tex}{brackets(angle.tex)}", Kind.FACTOR, (angle,))
