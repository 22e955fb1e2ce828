"""The few LaTeX habits that matrices and formulas share."""

from __future__ import annotations

import re

import sympy
from sympy.printing.latex import LatexPrinter


def brackets(tex: str) -> str:
    """Round brackets: plain ones around plain content, growing ones around tall content."""
    tall = any(command in tex for command in (r"\frac", r"\sum", r"\begin"))
    return rf"\left({tex}\right)" if tall else f"({tex})"


# a letter or a command, primes, sub- and superscripts, perhaps (…) as in diag(p)
_LETTER = re.compile(r"([A-Za-z]|\\[A-Za-z]+•*)'*([_^](•|\w|\\[A-Za-z]+))*(\([^()+-]*\))?")


def letter(tex: str) -> str:
    """A letter's LaTeX, with a long subscript in braces: W_KR is not W_K times R.

    Raises:
        ValueError: it would read as something else than one letter, such as a product.
    """
    tex = re.sub(r"_(\w\w+)$", r"_{\1}", tex)
    shape = tex
    while (outer := re.sub(r"\{[^{}]*\}", "•", shape)) != shape:
        shape = outer
    if not _LETTER.fullmatch(shape):
        raise ValueError(f"{tex!r} does not read as one letter")
    return tex


def indices(tex: str) -> set[str]:
    """The indices in a letter's sub- and superscripts: j in x_j, i and j in R^K_{i-j}."""
    bare = re.sub(r"\\(mathrm|operatorname|text)\{[^{}]*\}|\\[A-Za-z]+", " ", tex)
    scripts = " ".join(re.split("[_^]", bare)[1:])
    runs = re.findall(r"(?<![A-Za-z])[a-z]{1,2}(?![A-Za-z])", scripts)
    return {index for run in runs for index in run}


def scalar(coefficient: sympy.Expr) -> str:
    """A coefficient, with a_{ij} for a weight and no limits on a sum over all positions."""
    return _Printer().doprint(coefficient)


def inline(symbol: sympy.Basic) -> str:
    """A symbol in running text, as Markdown: d_h → $d_h$."""
    return f"${sympy.latex(symbol)}$"


class _Printer(LatexPrinter):
    def _print_Indexed(self, expr, exp=None):
        indices = "".join(self._print(index) for index in expr.indices)
        tex = f"{self._print(expr.base.label)}_{{{indices}}}"
        return tex if exp is None else f"{tex}^{{{exp}}}"

    def _print_Sum(self, expr):
        n = sympy.Symbol("n", integer=True, positive=True)
        (index, first, last), *more = expr.limits
        if more or (first, last) != (0, n - 1):
            return super()._print_Sum(expr)
        body = self._print(expr.function)  # Σ over all positions goes without limits
        return rf"\sum_{{{self._print(index)}}} {brackets(body) if expr.function.is_Add else body}"
