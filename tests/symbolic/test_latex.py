"""What is printed is what was meant: readers of their own parse the LaTeX back.

The readers know nothing of how the library prints. They take LaTeX as a person would: a product
runs as far as it can, Σ and cos without brackets take all of the product to their right. What a
person could take in two ways, such as a sign after a sign or an exponent on a fraction, is refused.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

import pytest
import sympy
from hypothesis import given, settings
from tests.symbolic.trees import (
    LETTERS,
    POINTS,
    SETTINGS,
    M,
    N,
    at,
    k,
    m,
    matrices,
    numbers,
    r,
    s,
    t,
    tables,
    x,
    y,
    z,
)

from posenc.symbolic import CATALOGUE, Derivation
from posenc.symbolic import formula as F
from posenc.symbolic.formula import Formula
from posenc.symbolic.letters import W_K, a_ij, d, d_h, n, x_i, x_j
from posenc.symbolic.words import Identity, Letter, Matrix, SumOver, Term, difference


class Reader:
    """What both readers share: tokens, and sums of products of items."""

    def __init__(self, tex: str, names: Mapping[str, object]) -> None:
        self.names = {self.squeezed(name): meaning for name, meaning in names.items()}
        known = sorted(map(re.escape, self.names), key=len, reverse=True)
        # a name ends where LaTeX would end it: \theta is no beginning of \thetas
        whole = [
            name + (r"(?![A-Za-z])" if name[-1].isalpha() and "\\" in name else "")
            for name in known
        ]
        other = [r"\\mathrm\{i\}", r"\\operatorname\{Re\}", r"\\left[(\[]", r"\\right[)\]]"]
        other += [r"\\(?:begin|end)\{pmatrix\}", r"\\\\", r"\\,", r"\\[A-Za-z]+", r"\d+", r"."]
        tokens = re.findall("|".join([*whole, *other]), self.squeezed(tex))
        self.tokens = [token for token in tokens if token not in (r"\,",)]
        self.at = 0

    @staticmethod
    def squeezed(tex: str) -> str:
        """Without blanks where they mean nothing: all but those that end a command."""
        return re.sub(r"(?<!\\) (?![A-Za-z])| (?=\W)|(?<=[^A-Za-z]) ", "", re.sub(" +", " ", tex))

    def read(self):
        out = self.sum()
        assert self.peek() == "", f"{self.tokens[self.at :]} is left over"
        return out

    def peek(self) -> str:
        while self.at < len(self.tokens) and self.tokens[self.at] == " ":
            self.at += 1
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, *expected: str) -> str:
        token = self.peek()
        assert token in expected or not expected, f"{token!r} where {expected} should be"
        self.at += 1
        return token

    def group(self):
        """{…}"""
        self.take("{")
        out = self.sum()
        self.take("}")
        return out

    def subscript(self) -> str:
        self.take("{")
        out = ""
        while self.peek() != "}":
            out += self.take()
        self.take("}")
        return out

    def bracketed(self, closing: str):
        out = self.sum()
        self.take(closing)
        return out

    def sum(self):
        negative = self.peek() == "-"
        if negative:
            self.take()
        out = self.negated(self.product()) if negative else self.product()
        while self.peek() in ("+", "-"):
            sign, item = self.take(), self.product()
            out = self.plus(out, item if sign == "+" else self.negated(item))
        return out

    ENDS = ("", "+", "-", ")", "}", "&", r"\\", r"\right)", r"\right]", r"\end{pmatrix}")

    def product(self):
        assert self.peek() not in self.ENDS, f"{self.peek()!r} where a factor should be"
        out = self.item()
        while self.peek() not in self.ENDS:
            out = self.times(out, self.item())
        return out

    def item(self): ...

    def plus(self, left, right):
        return left + right

    def negated(self, item):
        return -item

    def times(self, left, right):
        return left * right


class WordReader(Reader):
    """Matrices of any size; a scalar is a sympy expression."""

    def plus(self, left, right):
        if left == sympy.Symbol("the identity"):  # its size is that of what stands beside it
            left = Identity(right.shape[0])
        return left + right

    def item(self):
        out = self.atom()
        if self.peek() == "^":
            self.take()
            power = self.take()
            if power == r"\top":
                return out.T
            self.at -= power == "{"
            exponent = self.group() if power == "{" else int(power)
            if isinstance(out, Matrix):
                assert exponent > 1
                return functools.reduce(lambda one, other: one @ other, [out] * int(exponent))
            out **= exponent
        return out

    def atom(self):
        token = self.take()
        if token in self.names:
            return self.names[token]
        if token.isdigit():
            return sympy.Integer(token)
        if token == "(":
            return self.bracketed(")")
        if token == r"\left(":
            return self.bracketed(r"\right)")
        if token == "{":  # {R^K_{ij}}^⊤
            return self.bracketed("}")
        if token == r"\frac":
            return self.group() / self.group()
        if token == r"\sqrt":
            return sympy.sqrt(self.group())
        if token == r"\term":
            name = self.subscript()
            return Term(name, self.group())
        assert token == r"\sum", token
        self.take("_")
        index = self.subscript()
        body = self.product()
        if isinstance(body, Matrix):
            return SumOver(index, body)
        where = sympy.Symbol(index, integer=True, nonnegative=True)
        return sympy.Sum(body, (where, 0, n - 1)) if body.has(where) else n * body

    def times(self, left, right):
        if isinstance(left, Matrix) and isinstance(right, Matrix):
            return left @ right
        return right * left if isinstance(left, Matrix) else left * right


class FormulaReader(Reader):
    """Numbers and explicit matrices, to sympy."""

    def item(self):
        token = self.peek()
        out, plain = self.atom()
        if self.peek() == "^":
            assert plain, f"an exponent on {token} could belong to its last part"
            self.take()
            power = self.take()
            if power == r"\top":
                out = out.T
            elif power == "*":
                out = sympy.conjugate(out)
            else:
                self.at -= 1
                out = out ** self.group()
        if self.peek() == r"\cdot":
            self.take()
            assert self.peek() not in self.ENDS
        elif token.isdigit():
            assert not self.peek().isdigit(), "two numbers side by side"
            assert self.peek() != r"\frac", "a number and a fraction side by side"
        else:
            assert not self.peek().isdigit(), "a number behind its factor"
        return out

    def atom(self):
        """An item without exponent, and whether it may carry one."""
        token = self.take()
        if token in self.names:
            return self.names[token], "^" not in token
        if token.isdigit():
            return sympy.Integer(token), True
        if token == r"\mathrm{i}":
            return sympy.I, True
        if token == "(":
            return self.bracketed(")"), True
        if token == r"\left(":
            return self.bracketed(r"\right)"), True
        if token == r"\frac" and self.tokens[self.at : self.at + 4] == ["{", "d", "}", "{"]:
            self.at += 4
            self.take("d")
            variable = self.bracketed("}")
            return self.product().diff(variable), False
        if token == r"\frac":
            return self.group() / self.group(), False
        if token == "e":
            self.take("^")
            return sympy.exp(self.group()), False
        if token in (r"\cos", r"\sin"):
            return getattr(sympy, token[1:])(self.argument()), False
        if token == r"\operatorname{Re}":
            self.take(r"\left[")
            return sympy.re(self.bracketed(r"\right]")), False
        if token == r"\sum":
            return self.sum_over(), False
        assert token == r"\begin{pmatrix}", token
        rows = [[self.sum()]]
        while (after := self.take("&", r"\\", r"\end{pmatrix}")) != r"\end{pmatrix}":
            if after == r"\\":
                rows.append([])
            rows[-1].append(self.sum())
        return sympy.ImmutableMatrix(rows), True

    def argument(self):
        if self.peek() in ("(", r"\left("):
            closing = ")" if self.take() == "(" else r"\right)"
            return self.bracketed(closing)
        if self.peek() == "{":
            return self.group()
        start = self.at
        out = self.product()
        inside = self.tokens[start : self.at]
        assert not {"(", r"\left("} & set(inside[:-1]), f"does cos end at the bracket in {inside}?"
        return out

    def sum_over(self):
        self.take("_")
        self.take("{")
        index = self.names[self.take()]
        self.take("=")
        first = self.bracketed("}")
        self.take("^")
        last = self.group()
        return sympy.Sum(self.product(), (index, first, last))


# words

WORDS = {letter.latex(): letter for letter in LETTERS} | {"I": Identity(d)}
WORDS |= {"s": s, "t": t, "a_{ij}": a_ij, "d_{h}": d_h, "n": n}


def read_words(tex: str, names: Mapping[str, object]) -> Matrix:
    return WordReader(tex, names).read()


@SETTINGS
@given(matrices(depth=5))
def test_printed_words_read_back(e):
    assert difference(read_words(e.latex(), WORDS), e) == {}, e.latex()


@pytest.mark.parametrize(
    ("e", "tex"),
    [
        (x_i @ M @ x_j.T, r"x_i M x_j^\top"),
        (x_i @ (M @ N).T, r"x_i (M N)^\top"),
        ((x_i + x_j) @ W_K, r"(x_i + x_j) W_K"),
        (M - (N - M), "M - (N - M)"),
        (M + (N - M), "M + N - M"),
        (-(M + N), "-(M + N)"),
        (M @ (-N), "M (-N)"),
        (M @ ((-N) @ M), "M (-N M)"),
        (M @ Term("cc", -N), r"M (\term{cc}{-N})"),
        (2 * ((-M) @ N), r"2 \, (-M N)"),
        (-((-M) @ N), r"-(-M N)"),
        (2 * (s * M), r"2 \, (s \, M)"),
        ((2 * M) @ N, r"2 \, M N"),
        (M @ (2 * N), r"M (2 \, N)"),
        ((1 + s) * M, r"(s + 1) \, M"),
        (SumOver("j", x_j) @ M, r"\left(\sum_{j} x_j\right) M"),
        (SumOver("j", -x_j), r"\sum_{j} (-x_j)"),
        (SumOver("j", x_i + x_j), r"\sum_{j} (x_i + x_j)"),
        (Letter("R", 1, d, "R^K_{ij}").T, r"{R^K_{ij}}^\top"),
        (Letter("W_KR", d, d), "W_{KR}"),
        (Letter("D", d, d, r"\operatorname{diag}(p_i)").T, r"\operatorname{diag}(p_i)^\top"),
    ],
)
def test_how_words_print(e, tex):
    assert e.latex() == tex


_j, _n = sympy.Symbol("j", integer=True, nonnegative=True), n
_b = sympy.IndexedBase("b")[sympy.Symbol("i", integer=True, nonnegative=True), _j]


@pytest.mark.parametrize(
    ("coefficient", "tex"),
    [
        (sympy.Sum(a_ij, (_j, 0, n - 1)), r"\left(\sum_{j} a_{ij}\right) \, N"),
        (2 * sympy.Sum(a_ij, (_j, 0, n - 1)), r"\left(2 \sum_{j} a_{ij}\right) \, N"),
        (sympy.Sum(a_ij + _b, (_j, 0, n - 1)), r"\left(\sum_{j} (a_{ij} + b_{ij})\right) \, N"),
        (sympy.Sum(a_ij, (_j, 0, n)), r"\left(\sum_{j=0}^{n} a_{ij}\right) \, N"),
        (sympy.Sum(a_ij, (_j, 0, sympy.Symbol("i"))), r"\left(\sum_{j=0}^{i} a_{ij}\right) \, N"),
        (sympy.Sum(a_ij, (_j, 1, n - 1)), r"\left(\sum_{j=1}^{n - 1} a_{ij}\right) \, N"),
        (a_ij**2, r"a_{ij}^{2} \, N"),
    ],
)
def test_a_sum_prints_its_limits_unless_it_is_over_all_positions(coefficient, tex):
    assert (coefficient * N).latex() == tex


@pytest.mark.parametrize(
    "tex", ["A B", "AB", "A + B", "m - n", "-A", "(A)", "A^", "", "x_i y", r"A\top B"]
)
def test_a_letter_must_read_as_one_letter(tex):
    with pytest.raises(ValueError, match="does not read as one letter"):
        Letter("A", d, d, tex)
    with pytest.raises(ValueError, match="does not read as one letter"):
        F.named(tex, F.formula(1))


def test_the_word_reader_refuses_what_could_be_read_in_two_ways():
    for tex in ["M -", "M - -N", "M (N", "M N)", "M Q", r"2 \, -M + +N"]:
        with pytest.raises((AssertionError, IndexError, TypeError)):
            read_words(tex, WORDS)


# formulas


def assert_reads_back(f: Formula, names: Mapping[str, object], points) -> None:
    value = FormulaReader(f.latex(), names).read()
    if value == f.value:
        return
    for point in points:
        assert at(value, point) == pytest.approx(at(f.value, point), rel=1e-8, abs=1e-8), f.latex()


@settings(SETTINGS, max_examples=300)
@given(numbers())
def test_printed_formulas_read_back(f):
    assert_reads_back(f, dict(f.letters), POINTS)


@SETTINGS
@given(tables())
def test_printed_matrices_read_back(f):
    assert_reads_back(f, dict(f.letters), POINTS)


@pytest.mark.parametrize(
    ("f", "tex"),
    [
        (x * (-y), "x (-y)"),
        ((-x) * y, "(-x) y"),
        (z * ((-x) * y), "z (-x) y"),
        (-F.cos(x) * y, r"(-\cos x) y"),
        (F.cos(x) * y, r"(\cos x) y"),
        (y * F.cos(x), r"y \cos x"),
        (F.cos(x + y) * y, r"\cos(x + y) y"),
        (F.cos(x * (x - y)), r"\cos(x (x - y))"),
        (F.cos(-x), r"\cos(-x)"),
        (F.cos(x + y) ** 2, r"(\cos(x + y))^{2}"),
        (F.cos(x) ** 2, r"(\cos x)^{2}"),
        ((x / r) ** 2, r"\left(\frac{x}{r}\right)^{2}"),
        ((x**2) ** 3, "(x^{2})^{3}"),
        (F.conjugate(F.conjugate(z)), "(z^*)^*"),
        (F.conjugate(F.cos(z + x)), r"(\cos(z + x))^*"),
        (F.named("q^c", x) ** 2, "(q^c)^{2}"),
        (x - (y - x), "x - (y - x)"),
        (x + (-y + x), "x + (-y + x)"),
        (x + F.formula(-2), "x + (-2)"),
        (F.formula(-2) ** 2, "(-2)^{2}"),
        (F.formula(2) * (x / r), r"2 \cdot \frac{x}{r}"),
        (F.formula(2) * F.formula(3), r"2 \cdot 3"),
        (x * 2, r"x \cdot 2"),
        (F.cis(-(x * y)), r"e^{-\mathrm{i} x y}"),
        (F.cis((-x) * y), r"e^{\mathrm{i} (-x) y}"),
        (F.cis(-F.formula(2) * x), r"e^{\mathrm{i} (-2) x}"),
        (F.cis(F.formula(-2)), r"e^{-\mathrm{i} \cdot 2}"),
        (F.cis(x - y), r"e^{\mathrm{i} (x - y)}"),
        (F.sum_over(k, 1, m, k - x), r"\sum_{k=1}^{m} (k - x)"),
        (F.sum_over(k, 1, m, -k), r"\sum_{k=1}^{m} (-k)"),
        (F.sum_over(k, 1, m, k) * x, r"\left(\sum_{k=1}^{m} k\right) x"),
        (F.matrix([[x, 1]]).T, r"\begin{pmatrix} x & 1 \end{pmatrix}^\top"),
        (F.named("R^K", F.matrix([[x]])).T, r"(R^K)^\top"),
    ],
)
def test_how_formulas_print(f, tex):
    assert f.tex == tex


def test_transposing_twice_needs_brackets():
    assert F.named("Q", F.matrix([[x, y]])).T.T.tex == r"(Q^\top)^\top"


REFUSED = ["x -", "x - -y", r"\frac{x}{y}^{2}", r"\cos(x)^{2}", r"\cos x (y)", r"2 \frac{x}{y}"]
REFUSED += ["(x", "x y)", "e^{x}^{2}", "w", r"\begin{pmatrix} x & \end{pmatrix}", "x 2", "x + -y"]


@pytest.mark.parametrize("tex", REFUSED)
def test_the_formula_reader_refuses_what_could_be_read_in_two_ways(tex):
    with pytest.raises((AssertionError, IndexError)):
        FormulaReader(tex, {"x": x.value, "y": y.value}).read()


def test_the_formula_reader_takes_two_digits_for_one_number():
    assert FormulaReader("2 3", {}).read() == 23


# the catalogue


def printed_steps(tex: str) -> list[tuple[str, str]]:
    """(relation, expression) of each aligned line, its continuation lines added to it."""
    head, *lines, tail = tex.split("\n")
    assert (head, tail) == (r"\begin{aligned}", r"\end{aligned}")
    steps: list[tuple[str, str]] = []
    for line in lines:
        line = line.removesuffix(r" \\").split(" && ")[0]
        start, expression = re.fullmatch(r"&(\\quad|=|\\rightsquigarrow|) (.*)", line).groups()
        if start == r"\quad":
            start, before = steps.pop()
            expression = f"{before} {expression}"
        steps.append((start, expression))
    return steps


EQUAL = ("equality", "definition", "hypothesis")
RELATIONS = {"start": "", "choice": r"\rightsquigarrow"} | dict.fromkeys(EQUAL, "=")


def letters_of(derivation: Derivation) -> dict[str, object]:
    names: dict[str, object] = {}
    for step in derivation.steps:
        for tex, meaning in step.expression.printed():
            assert names.setdefault(tex, meaning) == meaning
    return names


@pytest.mark.parametrize("id", sorted(CATALOGUE))
def test_every_printed_step_of_the_catalogue_reads_back(id):
    derivation = CATALOGUE[id]()
    names = letters_of(derivation)
    points = [
        {Formula(symbol, ""): start + 0.317 * at if not symbol.is_integer else at + 2
         for at, symbol in enumerate(sorted(derivation_symbols(derivation), key=str))}
        for start in (0.5, -1.3)
    ]  # fmt: skip
    steps = printed_steps(derivation.latex())
    assert len(steps) == len(derivation.steps)
    for step, (relation, tex) in zip(derivation.steps, steps, strict=True):
        assert relation == RELATIONS[step.kind]
        if isinstance(step.expression, Matrix):
            names |= {"a_{ij}": a_ij, "n": n}
            assert difference(read_words(tex, names), step.expression) == {}, tex
        else:
            assert step.expression.latex() == tex
            assert_reads_back(step.expression, names, points)


def derivation_symbols(derivation: Derivation) -> set[sympy.Symbol]:
    expressions = [step.expression for step in derivation.steps]
    return {s for e in expressions if isinstance(e, Formula) for s in e.value.free_symbols}


@pytest.mark.parametrize("id", sorted(CATALOGUE))
def test_the_printed_statement_is_the_first_and_the_last_step(id):
    derivation = CATALOGUE[id]()
    relation = r"\rightsquigarrow" if derivation.choices() else "="
    tex = derivation.statement()
    if tex.startswith(r"\begin{aligned}"):
        (_, first), (printed, last) = printed_steps(tex)
        assert printed == relation
    else:
        first, last = tex.split(f" {relation} ")
    names = letters_of(derivation)
    if isinstance(derivation.start, Matrix):
        names |= {"a_{ij}": a_ij, "n": n}
        assert difference(read_words(first, names), derivation.start) == {}
        assert difference(read_words(last, names), derivation.end) == {}
    else:
        assert (first, last) == (derivation.start.latex(), derivation.end.latex())


def test_a_derivative_reads_back_and_a_wrong_one_is_refused():
    f = F.sin(x * y) + y**3
    points = [{x: 0.7, y: -1.2}, {x: -0.4, y: 2.0}]
    names = {"x": x.value, "y": y.value}
    assert_reads_back(F.derivative(f, x), names, points)
    assert_reads_back(F.derivative(F.matrix([[f, x], [2, y * x]]), y), names, points)
    wrong = Derivation("wrong", "Wrong", F.derivative(f, y))
    with pytest.raises(Exception, match="the sides differ"):
        wrong.equals(y * F.cos(x * y) + 3 * y**2, because="by the wrong letter")


@pytest.mark.parametrize(
    ("f", "variable", "says"),
    [
        (x, x * y, "it is no letter"),
        (x, F.named("w", x + y), "it is no letter"),
        (F.sum_over(F.symbol("k", integer=True), 1, 3, x), x, "holds a sum"),
    ],
)
def test_what_cannot_be_differentiated_is_named(f, variable, says):
    with pytest.raises(ValueError, match=says):
        F.derivative(f, variable)
