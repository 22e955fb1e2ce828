"""Derivations as objects: a start, then steps, each checked before it can be shown.

A step is an *equality*, which is decided and not sampled, or it names what it puts in: a
*definition* or hypothesis, or a *modelling choice*, which is shown as a choice and never as an
equality. For the steps that replace something the author writes down the result too, and what the
replacement really gives must equal it. A wrong step raises, names itself and shows the difference.
What is printed means one thing from the first step to the last: a letter that would stand for two
things, or one that would print in two ways, is an error too.

Expressions are matrices of any size (`words.Matrix`), decided on words, or scalars, complex numbers
and small explicit matrices (`formula.Formula`), decided by sympy: the real and the imaginary part
of the difference must simplify to zero. What sympy cannot decide is an error, never a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, NoReturn

import sympy

from .formula import Formula
from .tex import inline, scalar
from .words import (
    Letter,
    Matrix,
    Sum,
    Term,
    Words,
    normal,
    replace,
    require_same_shape,
    show,
    subtract,
    total,
)

Expression = Matrix | Formula
Kind = Literal["start", "equality", "definition", "hypothesis", "choice"]

_RELATION = {"equality": "=", "definition": "=", "hypothesis": "=", "choice": r"\rightsquigarrow"}


class DerivationError(Exception):
    """A step that does not hold, or that could not be decided."""


class Step(NamedTuple):
    """One line of a derivation."""

    kind: Kind
    expression: Expression
    because: str


class Derivation:
    r"""A chain of checked steps that prints itself.

    Args:
        id: a stable name, `words-with-dashes`; labels and links are made from it.
        title: what it shows, in a few words.
        start: the first expression.

    Each method that adds a step returns the derivation, so that a chain reads like its proof.
    """

    def __init__(self, id: str, title: str, start: Expression) -> None:
        self.id, self.title = id, title
        self.steps = [Step("start", start, "")]
        self.hypotheses: list[str] = []  # LaTeX
        self._meanings: dict[tuple[str, str], tuple[str, object]] = {}
        self._require_equal(start, start, "")

    def equals(self, expression: Expression, because: str) -> Derivation:
        """Add an equality.

        Raises:
            DerivationError: the expressions differ, or sympy cannot decide.
        """
        self._require_equal(self.end, expression, because)
        return self._add("equality", expression, because)

    def define(
        self, meaning: Mapping[Matrix, Matrix], expression: Matrix, because: str
    ) -> Derivation:
        """Put in definitions: each key is a name for its value, or the other way round.

        Raises:
            DerivationError: a key occurs nowhere, or the result is not `expression`.
        """
        self._require_equal(self._replaced(meaning, None, because), expression, because)
        return self._add("definition", expression, because)

    def given(
        self, hypothesis: Mapping[Matrix, Matrix], expression: Matrix, because: str
    ) -> Derivation:
        """Put in hypotheses: each key equals its value. The mark names them.

        Raises:
            DerivationError: a key occurs nowhere, or the result is not `expression`.
        """
        self._require_equal(self._replaced(hypothesis, None, because), expression, because)
        self.hypotheses += [f"{old.latex()} = {new.latex()}" for old, new in hypothesis.items()]
        return self._add("hypothesis", expression, because)

    def assume(
        self, coefficient: sympy.Expr, value: sympy.Expr | int, expression: Matrix, because: str
    ) -> Derivation:
        """Put in a hypothesis about a coefficient, such as Σ_j a_ij = 1.

        Raises:
            DerivationError: the coefficient occurs nowhere, or the result is not `expression`.
        """
        before, coefficient, value = self._words(because), *map(sympy.sympify, (coefficient, value))
        if coefficient.is_number:
            self._fail(
                because, f"{coefficient} is a number, about which there is nothing to assume"
            )
        sums = {s for c in before.values() for s in c.atoms(sympy.Sum)}
        bound = {w.over for w in before}.union(*(s.bound_symbols for s in sums))
        if bound & (value.free_symbols - coefficient.free_symbols):
            self._fail(because, f"{value} would be captured by a sum in {show(before)}")
        after = {w: c.subs(coefficient, value) for w, c in before.items()}
        if after == before:
            self._fail(because, f"{coefficient} occurs nowhere, so there is nothing to replace")
        self._require_equal(total([after]), expression, because)
        self.hypotheses.append(f"{scalar(coefficient)} = {scalar(value)}")
        return self._add("hypothesis", expression, because)

    def choose(
        self,
        replacement: Mapping[Matrix, Matrix],
        expression: Matrix,
        because: str,
        *,
        within: str | None = None,
    ) -> Derivation:
        """Make a modelling choice: each key is replaced by its value, transposed like the key.

        Args:
            within: only in the summand of that name.

        Raises:
            DerivationError: a key occurs nowhere, or the result is not `expression`.
        """
        self._require_equal(self._replaced(replacement, within, because), expression, because)
        return self._add("choice", expression, because)

    def drop(self, names: Sequence[str], expression: Matrix, because: str) -> Derivation:
        """Make the modelling choice to leave out the summands of these names.

        Raises:
            DerivationError: no summand has the name, or the result is not `expression`.
        """
        words = self._words(because)
        if len(set(names)) != len(names):
            self._fail(because, f"no term can be left out twice: {', '.join(names)}")
        for name in names:
            words = subtract(words, self._term(name, because))
        self._require_equal(words, expression, because)
        return self._add("choice", expression, because)

    @property
    def start(self) -> Expression:
        return self.steps[0].expression

    @property
    def end(self):
        """The last expression, a `Matrix` or a `Formula` like all the others."""
        return self.steps[-1].expression

    def choices(self) -> list[Step]:
        """The modelling choices among the steps."""
        return [step for step in self.steps if step.kind == "choice"]

    def extent(self) -> str:
        """How far the equalities were checked."""
        expressions = [step.expression for step in self.steps]
        if isinstance(self.start, Matrix):
            matrices = [e for e in expressions if isinstance(e, Matrix)]
            sizes = sorted({s for m in matrices for s in m.sizes()}, key=str)
            return "for every size " + _and(sizes) if sizes else "as it stands"
        return _formula_extent([e for e in expressions if isinstance(e, Formula)])

    def mark(self) -> str:
        """The mark beside the formula, in Markdown: that a machine checked it, and how far."""
        checked = sum(step.kind not in ("start", "choice") for step in self.steps)
        steps = f"{checked} step{'s' if checked != 1 else ''}" if checked else "no equality"
        given = f", given {_and(self.hypotheses)}" if self.hypotheses else ""
        choices = len(self.choices())
        chosen = f", and {choices} modelling choice{'s' if choices != 1 else ''}" if choices else ""
        return f"✓ checked by machine: {steps}, {self.extent()}{given}{chosen}"

    def latex(self) -> str:
        """All steps, aligned, with the reason beside each line."""
        first, *more = _lines(self.start)
        lines = [rf"& {first}", *(rf"&\quad {line}" for line in more)]
        for step in self.steps[1:]:
            reason = rf"&& \small\text{{{_reason(step)}}}"
            first, *more = _lines(step.expression)
            lines.append(rf"&{_RELATION[step.kind]} {first} {reason}")
            lines += [rf"&\quad {line}" for line in more]
        return _aligned(lines)

    def statement(self) -> str:
        """The start and the end, with the terms named where they have names."""
        relation = r"\rightsquigarrow" if self.choices() else "="
        start, *below = _lines(self.start)
        first, *more = _lines(self.end, labels=True)
        wide = r"\begin" in first or len(start + first) > 90
        if not below and not more and not wide:
            return rf"{start} {relation} {first}"
        lines = [rf"& {start}", *(rf"&\quad {line}" for line in below), rf"&{relation} {first}"]
        return _aligned(lines + [rf"&\quad {line}" for line in more])

    def __repr__(self) -> str:
        return f"<{self.id}: {self.title}. {self.mark()}>"

    def _add(self, kind: Kind, expression: Expression, because: str) -> Derivation:
        self.steps.append(Step(kind, expression, because))
        return self

    def _words(self, because: str) -> Words:
        """The words of the last expression, as they were written."""
        if not isinstance(self.end, Matrix):
            self._fail(because, "only in a matrix of any size can letters and terms be replaced")
        return self.end._words()

    def _term(self, name: str, because: str) -> Words:
        try:
            return self.end.term(name)._words()
        except ValueError as error:
            self._fail(because, str(error))

    def _replaced(
        self, replacement: Mapping[Matrix, Matrix], within: str | None, because: str
    ) -> Words:
        words = self._words(because)
        changing = words if within is None else self._term(within, because)
        rest = subtract(words, changing)
        try:
            changed, hits = replace(changing, replacement)
        except ValueError as error:
            self._fail(because, str(error))
        for old, found in zip(replacement, hits, strict=True):
            if not found:
                where = f"the term {within!r}, " if within else ""
                self._fail(because, f"{old.latex()} occurs nowhere in {where}{show(changing)}")
        return normal(total([changed, rest]))

    def _require_one_meaning(self, expression: Expression, because: str) -> None:
        for tex, meaning in expression.printed():
            name = meaning.name if isinstance(meaning, Letter | sympy.Symbol) else tex
            for key in (("printed", tex), ("named", name)):
                known = self._meanings.setdefault(key, (tex, meaning))
                if known != (tex, meaning):
                    self._fail(because, "{} means {}, but {} means {}".format(*known, tex, meaning))

    def _require_equal(self, left: Expression | Words, right: Expression, because: str) -> None:
        if isinstance(right, Matrix | Formula):
            self._require_one_meaning(right, because)
        try:
            if isinstance(left, Formula) and isinstance(right, Formula):
                problem = formula_difference(left, right)
            elif isinstance(right, Matrix) and not isinstance(left, Formula):
                require_same_shape(self.end, right)
                words = left._words() if isinstance(left, Matrix) else left
                remainder = normal(subtract(words, right._words()))
                problem = f"left − right = {show(remainder)}" if remainder else ""
            else:
                problem = f"{self.end} and {right} are not of one kind"
        except (ValueError, TypeError, NotImplementedError) as error:
            problem = str(error)
        if problem:
            self._fail(because, problem)

    def _fail(self, because: str, problem: str) -> NoReturn:
        where = f"step {len(self.steps)} ({because})" if because else "start"
        raise DerivationError(f"derivation {self.id!r}, {where}: {problem}")


def formula_difference(left: Formula, right: Formula) -> str:
    """Why left = right does not hold, or "" where sympy decides that it does.

    Matrices are compared entry by entry.
    """
    if isinstance(left.value, sympy.MatrixBase) != isinstance(right.value, sympy.MatrixBase):
        return "a matrix cannot equal a number"
    if isinstance(left.value, sympy.MatrixBase):
        if left.value.shape != right.value.shape:
            return f"shapes differ: {left.value.shape} and {right.value.shape}"
        for row in range(left.value.rows):
            for col in range(left.value.cols):
                problem = _scalar_difference(left.value[row, col], right.value[row, col])
                if problem:
                    return f"entry ({row}, {col}): {problem}"
        return ""
    return _scalar_difference(left.value, right.value)


def _scalar_difference(left: sympy.Expr, right: sympy.Expr) -> str:
    if witness := _witness(left, right):  # much faster than finding that nothing simplifies
        return witness
    gap = sympy.expand((left - right).doit(), complex=True)
    for part in gap.as_real_imag():
        if part != 0 and sympy.simplify(sympy.expand_trig(part)) != 0:
            return f"sympy cannot decide whether {left} = {right}"
    return ""


def _witness(left: sympy.Expr, right: sympy.Expr) -> str:
    """Values at which the two differ clearly, or "" where none of a few was found."""
    symbols = sorted(left.free_symbols | right.free_symbols, key=str)
    for attempt in range(1, 4):
        values = {
            s: sympy.Integer(attempt + k)
            if s.is_integer
            else sympy.Rational(3 * attempt + 2 * k + 1, 7 + k) + (0 if s.is_real else sympy.I)
            for k, s in enumerate(symbols)
        }
        try:
            a, b = (complex(side.subs(values).doit().evalf()) for side in (left, right))
        except TypeError:  # no number comes out, so these values tell nothing
            continue
        if abs(a - b) > 1e-9 * (1 + abs(a)):
            at = ", ".join(f"{s} = {v}" for s, v in values.items())
            return f"the sides differ: {a:.6g} and {b:.6g}" + (f" at {at}" if at else "")
    return ""


def _formula_extent(expressions: Sequence[Formula]) -> str:
    letters = {meaning for e in expressions for _, meaning in e.letters}
    sums = {s for e in expressions for s in e.value.atoms(sympy.Sum)}
    bound = {s for sum_ in sums for s in sum_.bound_symbols}
    groups: dict[str, list[sympy.Symbol]] = {}
    for s in sorted({s for meaning in letters for s in meaning.free_symbols} - bound, key=str):
        sign = "positive " if s.is_positive else "nonnegative " if s.is_nonnegative else ""
        sign = sign or ("nonzero " if s.is_nonzero else "")
        kind = "every {}integer" if s.is_integer else "all {}real" if s.is_real else "all complex"
        groups.setdefault(kind.format(sign), []).append(s)
    said = " and ".join(f"{kind} {_and(found)}" for kind, found in sorted(groups.items())[::-1])
    shapes = {e.value.shape for e in expressions if isinstance(e.value, sympy.MatrixBase)}
    entries = "entry by entry at " + ", ".join(f"{r}×{c}" for r, c in sorted(shapes))
    return ("for " + said if said else "as it stands") + (f", {entries}" if shapes else "")


def _and(formulas: Sequence[sympy.Basic | str]) -> str:
    """Symbols, or LaTeX, as a list in running text."""
    *first, last = (f"${f}$" if isinstance(f, str) else inline(f) for f in formulas)
    return f"{', '.join(first)} and {last}" if first else last


def _reason(step: Step) -> str:
    return f"choice: {step.because}" if step.kind == "choice" else step.because


def _lines(expression: Expression, labels: bool = False) -> list[str]:
    """One line for an expression, or one for each term where its terms have names."""
    terms = expression.terms() if isinstance(expression, Sum) else []
    named = [term for term in terms if isinstance(term, Term)]
    if isinstance(expression, Sum) and len(named) == len(terms):
        out = []
        for (sign, tex), term in zip(expression.signed(), named, strict=True):
            name = rf"\term{{{term.name}}}{{\small\text{{{term.label}}}}}"
            out.append(sign + tex + (rf" && {name}" if labels else ""))
        return [out[0].removeprefix("+ "), *out[1:]]
    return [expression.latex()]


def _aligned(lines: list[str]) -> str:
    return "\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}"


CATALOGUE: dict[str, Callable[[], Derivation]] = {}
"""Every derivation of the book by its id. Calling one builds it, and so checks it."""


def derivation(build: Callable[[], Derivation]) -> Callable[[], Derivation]:
    """Put a function that builds a derivation into the catalogue."""
    id = build.__name__.replace("_", "-")
    if id in CATALOGUE and CATALOGUE[id].__module__ != build.__module__:
        raise ValueError(f"two derivations have the id {id!r}")
    CATALOGUE[id] = build
    return build
