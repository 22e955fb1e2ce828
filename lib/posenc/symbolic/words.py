"""Matrix algebra of any size: letters, expressions as the author wrote them, and words.

A *letter* is a matrix with a name and symbolic sizes. An *expression* is a tree of letters, kept
exactly as written, because that is what gets printed. What it means is a sum of *words*: products
of letters, each plain or transposed, with a commutative coefficient, under at most one sum Σ_j. Two
expressions are equal for every size exactly when their words are the same, where a 1×1 part of a
word is a number: it equals its transpose and may stand anywhere.

    >>> d = sympy.Symbol("d", positive=True, integer=True)
    >>> x, W = Letter("x", 1, d), Letter("W", d, d)
    >>> (x @ W @ x.T).words() == (x @ W.T @ x.T).words()
    True

Why not sympy's own matrix expressions: they drop the author's order, replace nothing without a word
where a product is hidden in a transpose, and do not see that q kᵀ and k qᵀ are one number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, groupby
from typing import NamedTuple, TypeAlias

import sympy
import torch
from sympy.core.symbol import Symbol
from torch import Tensor

from . import tex

Size: TypeAlias = "sympy.Expr | int"


class Factor(NamedTuple):
    """One letter of a word, plain or transposed."""

    letter: Letter
    transposed: bool

    @property
    def shape(self) -> tuple[sympy.Expr, sympy.Expr]:
        rows, cols = self.letter.shape
        return (cols, rows) if self.transposed else (rows, cols)

    def __str__(self) -> str:
        return self.letter.name + ("ᵀ" if self.transposed else "")


class Word(NamedTuple):
    """A product of factors; `over` names the index of the sum it stands under, if any."""

    factors: tuple[Factor, ...]
    over: Symbol | None = None

    def __str__(self) -> str:
        sum_sign = f"Σ_{self.over} " if self.over is not None else ""
        return sum_sign + (" ".join(map(str, self.factors)) or "1")


Words = dict[Word, sympy.Expr]


class ShapeError(ValueError):
    """Two matrices that do not fit together."""


class Matrix:
    """An expression of known shape. Build it with @ + - .T and scalar *."""

    shape: tuple[sympy.Expr, sympy.Expr]

    def __matmul__(self, other: Matrix) -> Matrix:
        return Product(self, other)

    def __add__(self, other: Matrix) -> Matrix:
        return Sum(self, other)

    def __sub__(self, other: Matrix) -> Matrix:
        return Sum(self, -other)

    def __neg__(self) -> Matrix:
        return Scaled(sympy.Integer(-1), self)

    def __rmul__(self, coefficient: sympy.Expr | int) -> Matrix:
        return Scaled(coefficient, self)

    @property
    def T(self) -> Matrix:
        return Transposed(self)

    def __repr__(self) -> str:
        return f"{self.latex()} ({_by(self)})"

    def words(self) -> Words:
        """What the expression means, in normal form."""
        return normal(self._words())

    def _words(self) -> Words:
        raise NotImplementedError

    def latex(self) -> str:
        """What the expression looks like, in the author's order."""
        raise NotImplementedError

    def parts(self) -> Iterable[Matrix]:
        """The expressions that this one is made of."""
        return ()

    def term(self, name: str) -> Matrix:
        """The summand of that name, with the coefficient that stands before it.

        Raises:
            ValueError: no summand has that name, or several have.
        """
        named = list(_named_summands(self))
        found = [summand for known, summand in named if known == name]
        if len(found) != 1:
            names = sorted(known for known, _ in named)
            problem = "several summands are" if found else "no summand is"
            raise ValueError(f"{problem} named {name!r} here; the names are {names}")
        return found[0]

    def letters(self) -> set[Letter]:
        return {m for m in _walk(self) if isinstance(m, Letter)}

    def printed(self) -> Iterator[tuple[str, Letter | sympy.Basic]]:
        """Each letter and each symbol of a coefficient: its LaTeX and what it stands for."""
        for part in _walk(self):
            if isinstance(part, Letter):
                yield part.latex(), part
            elif isinstance(part, Identity):
                yield part.latex(), sympy.Symbol("the identity")
            elif isinstance(part, Scaled):
                for symbol in part.coefficient.free_symbols:
                    yield tex.scalar(symbol), symbol

    def sizes(self) -> list[Symbol]:
        """The symbolic sizes in it, in alphabetical order."""
        found = {s for m in _walk(self) for side in m.shape for s in side.free_symbols}
        return sorted(found, key=lambda s: (s.name.lower(), s.name))


class Letter(Matrix):
    """A matrix with a name.

    It depends on the indices in the subscript that it is printed with: x_j on j, R_{i-j} on both.

    Args:
        name: an ASCII name, unique for its meaning.
        rows, cols: its shape, symbols or numbers.
        latex: how it prints; made from the name where not given.

    Raises:
        ValueError: what it prints as would not read as one letter.
    """

    def __init__(self, name: str, rows: Size, cols: Size, latex: str | None = None) -> None:
        self.name = name
        self.shape = (sympy.sympify(rows), sympy.sympify(cols))
        self._latex = tex.letter(name if latex is None else latex)
        self.indices = frozenset(map(index_symbol, tex.indices(self._latex)))
        self._key = (name, self.shape, self._latex)

    # two letters of one name that differ in shape or in print never cancel
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Letter) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def _words(self) -> Words:
        return {Word((Factor(self, False),)): sympy.Integer(1)}

    def latex(self) -> str:
        return self._latex


class Identity(Matrix):
    """The n×n identity, the empty word."""

    def __init__(self, n: Size) -> None:
        self.shape = (sympy.sympify(n), sympy.sympify(n))

    def _words(self) -> Words:
        return {Word(()): sympy.Integer(1)}

    def latex(self) -> str:
        return "I"


class Product(Matrix):
    def __init__(self, left: Matrix, right: Matrix) -> None:
        if left.shape[1] != right.shape[0]:
            raise ShapeError(
                f"cannot multiply {left.latex()} of shape {_by(left)} "
                f"by {right.latex()} of shape {_by(right)}"
            )
        self.left, self.right = left, right
        self.shape = (left.shape[0], right.shape[1])

    def parts(self) -> Iterable[Matrix]:
        return self.left, self.right

    def _words(self) -> Words:
        return multiply(self.left._words(), self.right._words())

    def latex(self) -> str:
        first: Matrix = self
        rest: list[Matrix] = []
        while isinstance(first, Product):
            rest.insert(0, first.right)
            first = first.left
        # a coefficient may stand at the very left without brackets, and a Σ at the very right
        printed = [(first, _bracket(first, Sum, SumOver)), *((f, _factor(f)) for f in rest)]
        out = []
        for factor, run in groupby(printed, lambda pair: pair[0]):
            texts = [text for _, text in run]
            power = isinstance(factor, Letter) and len(texts) > 1 and "^" not in texts[0]
            out += [f"{texts[0]}^{{{len(texts)}}}"] if power else texts
        return " ".join(out)


class Sum(Matrix):
    def __init__(self, left: Matrix, right: Matrix) -> None:
        if left.shape != right.shape:
            raise ShapeError(
                f"cannot add {right.latex()} of shape {_by(right)} "
                f"to {left.latex()} of shape {_by(left)}"
            )
        self.left, self.right = left, right
        self.shape = left.shape

    def parts(self) -> Iterable[Matrix]:
        return self.left, self.right

    def terms(self) -> list[Matrix]:
        """The summands from left to right."""
        return [
            summand
            for part in self.parts()
            for summand in (part.terms() if isinstance(part, Sum) else [part])
        ]

    def _words(self) -> Words:
        return total([self.left._words(), self.right._words()])

    def latex(self) -> str:
        return " ".join(sign + piece for sign, piece in self.signed()).removeprefix("+ ")

    def signed(self) -> list[tuple[str, str]]:
        """Each summand's sign and LaTeX, from left to right."""
        pieces = [summand.latex() for summand in self.terms()]
        return [("- ", p[1:]) if p.startswith("-") else ("+ ", p) for p in pieces]


class Scaled(Matrix):
    """coefficient · body, with a scalar that commutes with everything."""

    def __init__(self, coefficient: sympy.Expr | int, body: Matrix) -> None:
        self.coefficient, self.body = sympy.sympify(coefficient), body
        self.shape = body.shape
        number = isinstance(self.coefficient, sympy.Expr) and self.coefficient.is_commutative
        inexact = (sympy.nan, sympy.zoo, sympy.oo, -sympy.oo, sympy.Float)
        if not number or self.coefficient.has(*inexact):
            raise ValueError(f"the coefficient {coefficient} of {body.latex()} is no exact number")

    def parts(self) -> Iterable[Matrix]:
        return (self.body,)

    def _words(self) -> Words:
        return multiply({Word(()): self.coefficient}, self.body._words())

    def latex(self) -> str:
        body = _factor(self.body)
        if self.coefficient == 1:
            return body
        if self.coefficient == -1:
            inner = self.body.latex() if isinstance(self.body, Scaled) else body
            return f"-{body if inner.startswith('-') else inner}"
        number = tex.scalar(self.coefficient)
        if self.coefficient.is_Add or self.coefficient.has(sympy.Sum):
            number = tex.brackets(number)
        return f"{number} \\, {body}"


class Transposed(Matrix):
    def __init__(self, body: Matrix) -> None:
        self.body = body
        self.shape = (body.shape[1], body.shape[0])

    def parts(self) -> Iterable[Matrix]:
        return (self.body,)

    def _words(self) -> Words:
        return _flip(self.body._words())

    def latex(self) -> str:
        if isinstance(self.body, Letter | Identity):
            letter = self.body.latex()
            # R^K transposed needs its own braces: a letter may carry a superscript already
            return f"{{{letter}}}^\\top" if "^" in letter else rf"{letter}^\top"
        return rf"{tex.brackets(self.body.latex())}^\top"


class SumOver(Matrix):
    """Σ_j body: linear, and everything that does not depend on j comes out of it."""

    def __init__(self, index: str, body: Matrix) -> None:
        self.index, self.body = index_symbol(index), body
        self.shape = body.shape

    def parts(self) -> Iterable[Matrix]:
        return (self.body,)

    def _words(self) -> Words:
        words = self.body._words()
        for word, coefficient in words.items():
            if word.over is not None:
                raise ValueError(f"a sum over {self.index} cannot contain a sum over {word.over}")
            if self.index.name in map(str, coefficient.free_symbols - {self.index}):
                raise ValueError(f"{coefficient} has a {self.index} that is not the index")
        return _sum_over(self.index, words)

    def latex(self) -> str:
        body = _bracket(self.body, Sum)
        return rf"\sum_{{{self.index}}} {tex.brackets(body) if body.startswith('-') else body}"


class Term(Matrix):
    """A part of an expression with a name and a colour of its own, and otherwise just the part.

    Args:
        name: the colour's name on the page, `term-name` in the style sheet.
        body: the part.
        label: what readers call it.
    """

    def __init__(self, name: str, body: Matrix, label: str = "") -> None:
        self.name, self.body, self.label = name, body, label
        self.shape = body.shape

    def parts(self) -> Iterable[Matrix]:
        return (self.body,)

    def _words(self) -> Words:
        return self.body._words()

    def latex(self) -> str:
        return rf"\term{{{self.name}}}{{{self.body.latex()}}}"


def index_symbol(name: str) -> Symbol:
    """The index of a sum as sympy knows it."""
    return sympy.Symbol(name, integer=True, nonnegative=True)


def sum_scalar(coefficient: sympy.Expr, index: Symbol) -> sympy.Expr:
    """Σ_index coefficient over 0 … n − 1, with what does not depend on the index in front."""
    n = sympy.Symbol("n", integer=True, positive=True)
    out = sympy.Integer(0)
    for summand in sympy.Add.make_args(sympy.expand(coefficient)):
        outside, inside = summand.as_independent(index, as_Add=False)
        out += outside * (n if inside == 1 else sympy.Sum(inside, (index, 0, n - 1)))
    return out


def total(parts: Iterable[Words]) -> Words:
    """The sum of several sums of words."""
    out: Words = {}
    for part in parts:
        for word, coefficient in part.items():
            out[word] = out.get(word, sympy.Integer(0)) + coefficient
    return _nonzero(out)


def multiply(left: Words, right: Words) -> Words:
    """The product of two sums of words; shapes are checked at every seam.

    Raises:
        ShapeError: two factors do not fit together.
        ValueError: a sum times a sum, or the index of a sum is also used outside of it.
    """
    out: list[Words] = []
    for w, c in left.items():
        for v, k in right.items():
            if w.over is not None and v.over is not None:
                raise ValueError(f"cannot multiply two sums, over {w.over} and over {v.over}")
            if w.over in _free_symbols(v, k) or v.over in _free_symbols(w, c):
                raise ValueError(f"in ({c} {w}) ({k} {v}) an index is used outside of its sum too")
            if w.factors and v.factors and w.factors[-1].shape[1] != v.factors[0].shape[0]:
                raise ShapeError(f"{w.factors[-1]} and {v.factors[0]} do not fit together")
            over = w.over if v.over is None else v.over
            out.append({Word(w.factors + v.factors, over): c * k})
    return total(out)


def transpose(word: Word) -> Word:
    """The same word read backwards, every factor transposed."""
    flipped = tuple(Factor(f.letter, not f.transposed) for f in reversed(word.factors))
    return Word(flipped, word.over)


def normal(words: Words) -> Words:
    """The normal form: the 1×1 parts of each word are turned one way and put in one order."""
    return total({_sorted_numbers(word): c} for word, c in words.items())


def subtract(left: Words, right: Words) -> Words:
    """left − right."""
    return total([left, {word: -c for word, c in right.items()}])


def difference(left: Matrix, right: Matrix) -> Words:
    """left − right in normal form: empty exactly when they are equal for every size."""
    require_same_shape(left, right)
    return normal(subtract(left._words(), right._words()))


def require_same_shape(left: Matrix, right: Matrix) -> None:
    """Raise ShapeError where two expressions differ in shape."""
    if left.shape != right.shape:
        raise ShapeError(f"shapes differ: {left} and {right}")


def replace(words: Words, replacements: Mapping[Matrix, Matrix]) -> tuple[Words, list[int]]:
    """Put each value for its key, a product of letters, and its transpose for the key's transpose.

    All at once: what was put in is not replaced again. Where keys overlap, the first one wins.

    Returns:
        The new words, and for each key how many places were changed.

    Raises:
        ShapeError: a key and its value have different shapes.
        ValueError: a key is not a product of letters, or a value would fall under a sum over an
            index that it depends on and its key does not.
    """
    for old, new in replacements.items():
        require_same_shape(old, new)
    patterns = []  # the factors to find, what to put there, and which key that is
    for at, (old, new) in enumerate(replacements.items()):
        key, value = single_word(old), new._words()
        patterns.append((key.factors, value, at))
        patterns.append((transpose(key).factors, _flip(value), at))
    hits = [0] * len(replacements)
    out: list[Words] = []
    for word, coefficient in words.items():
        done, rest = {Word(()): coefficient}, word.factors
        while rest:
            found = next((p for p in patterns if rest[: len(p[0])] == p[0]), None)
            factors, piece, at = found or (rest[:1], {Word(rest[:1]): sympy.Integer(1)}, -1)
            if found:
                hits[at] += 1
                added = set().union(*(_free_symbols(v, c) for v, c in piece.items()))
                if word.over in added - _free_symbols(Word(factors), sympy.Integer(1)):
                    raise ValueError(f"{show(piece)} would be captured by the sum in {word}")
            done, rest = multiply(done, piece), rest[len(factors) :]
        out.append(done if word.over is None else _sum_over(word.over, done))
    return total(out), hits


def single_word(expression: Matrix) -> Word:
    """The one word of an expression that is one.

    Raises:
        ValueError: it is a sum of any kind, has a coefficient, or is the identity.
    """
    words = expression._words()
    word, *more = words or [Word(())]
    if more or words.get(word) != 1 or word.over is not None or not word.factors:
        raise ValueError(f"only a product of letters can be replaced, and {show(words)} is none")
    return word


def show(words: Words) -> str:
    """Words as one line of text, for messages."""
    if not words:
        return "0"
    return " + ".join(f"{'' if c == 1 else f'({c}) '}{w}" for w, c in words.items())


def _free_symbols(word: Word, coefficient: sympy.Expr) -> set[sympy.Basic]:
    """The indices and symbols that a word depends on, without the index of its own sum."""
    return coefficient.free_symbols.union(*(f.letter.indices for f in word.factors)) - {word.over}


def _sum_over(index: Symbol, words: Words) -> Words:
    """Σ_index of words that stand under no sum; a coefficient alone is summed as a scalar."""
    out: list[Words] = []
    for word, coefficient in words.items():
        if word.over is not None:
            raise ValueError(f"a sum over {index} cannot contain a sum over {word.over}")
        if any(index in f.letter.indices for f in word.factors):
            out.append({Word(word.factors, index): coefficient})
        else:
            out.append({word: sum_scalar(coefficient, index)})
    return total(out)


def _flip(words: Words) -> Words:
    return {transpose(word): c for word, c in words.items()}


def _sorted_numbers(word: Word) -> Word:
    """The word with its 1×1 parts, which are numbers, in alphabetical order."""
    parts: list[tuple[Factor, ...]] = [()]
    for factor in word.factors:
        if parts[-1] and factor.shape[0] == 1:
            parts.append(())
        parts[-1] += (factor,)
    numbers: list[tuple[Factor, ...]] = []
    first: tuple[Factor, ...] = ()
    last: tuple[Factor, ...] = ()
    for part in parts:
        if part and part[0].shape[0] == part[-1].shape[1] == 1:
            numbers.append(min(part, transpose(Word(part)).factors, key=_alphabetical))
        elif part and part[-1].shape[1] == 1:
            first = part
        else:
            last = part
    return Word((*first, *chain(*sorted(numbers, key=_alphabetical)), *last), word.over)


def _alphabetical(factors: Iterable[Factor]) -> list[tuple[str, bool]]:
    return [(str(f.letter._key), f.transposed) for f in factors]


def _named_summands(
    expression: Matrix, coefficient: sympy.Expr | int = 1
) -> Iterator[tuple[str, Matrix]]:
    if isinstance(expression, Term):
        yield expression.name, expression if coefficient == 1 else Scaled(coefficient, expression)
    elif isinstance(expression, Scaled):
        yield from _named_summands(expression.body, coefficient * expression.coefficient)
    elif isinstance(expression, Sum):
        for summand in expression.parts():
            yield from _named_summands(summand, coefficient)


def _nonzero(words: Mapping[Word, sympy.Expr]) -> Words:
    expanded = {word: sympy.expand(c) for word, c in words.items()}
    return {word: c for word, c in expanded.items() if c != 0}


def _walk(expression: Matrix) -> Iterable[Matrix]:
    yield expression
    for part in expression.parts():
        yield from _walk(part)


def _by(expression: Matrix) -> str:
    return f"{expression.shape[0]}×{expression.shape[1]}"


def _bracket(expression: Matrix, *kinds: type[Matrix]) -> str:
    inner = expression
    while isinstance(inner, Term):
        inner = inner.body
    shown = expression.latex()
    return tex.brackets(shown) if isinstance(inner, kinds) else shown


def _factor(expression: Matrix) -> str:
    """LaTeX to stand behind a factor: a − b, −a and 2 a go in brackets, and so does (−a) b."""
    first = expression
    while isinstance(first, Term | Product):
        first = first.body if isinstance(first, Term) else first.left
    return (
        tex.brackets(expression.latex()) if isinstance(first, Scaled) else _bracket(expression, Sum)
    )


def evaluate(
    expression: Matrix,
    letters: Mapping[Letter, Tensor],
    coefficients: Mapping[sympy.Basic, Tensor | float] | None = None,
) -> Tensor:
    """The expression on numbers, for all i and j at once, by plain matrix products.

    A letter that depends on i, on j or on both is given with an axis for each in front, i before j;
    if it has one row, the row's own axis may be left out: x_i as (n, d), R_ij and R_ji both as
    (n, n, d). The result has an axis for i and one for j in front, of length 1 where it does not
    depend on them: (n, n, rows, cols). Sizes are read off the letters.

    Args:
        letters: a tensor for every letter.
        coefficients: a number or an (n, n) tensor for every symbol among the coefficients that is
            not a size.

    Raises:
        ValueError: a letter or a coefficient has no value, or a value has the wrong shape.
    """
    used = sorted(expression.letters(), key=lambda letter: letter.name)
    values = {letter: _placed(letter, letters) for letter in used}
    sizes = _sizes(values)
    numbers: dict[sympy.Basic, Tensor | float] = {**sizes, **(coefficients or {})}
    rows, cols = (int(_number(side, numbers)) for side in expression.shape)
    like = next(iter(values.values()), torch.zeros((), dtype=torch.float64))
    result = like.new_zeros(1, 1, rows, cols)
    for word, coefficient in expression.words().items():
        term: Tensor | None = None
        for factor in word.factors:
            value = values[factor.letter].mT if factor.transposed else values[factor.letter]
            term = value if term is None else term @ value
        if term is None:
            term = torch.eye(rows).to(like)
        term = _number(coefficient, numbers) * term
        if word.over is not None:
            term = term.sum(_axis(word.over), keepdim=True)
        result = result + term
    return result


def _axis(index: Symbol) -> int:
    if index.name not in ("i", "j"):
        raise ValueError(f"only sums over i and j can be evaluated, not over {index}")
    return 0 if index.name == "i" else 1


def _placed(letter: Letter, letters: Mapping[Letter, Tensor]) -> Tensor:
    """The letter's value with all four axes: i, j, rows, cols."""
    if letter not in letters:
        raise ValueError(f"the letter {letter.name} has no value")
    value = letters[letter]
    axes = [index.name for index in letter.indices if index.name in ("i", "j")]
    if axes and letter.shape[0] == 1 and value.ndim == len(axes) + 1:
        value = value.unsqueeze(-2)
    if value.ndim != len(axes) + 2:
        raise ValueError(f"the letter {letter} has a value of shape {tuple(value.shape)}")
    for axis, name in enumerate(("i", "j")):
        value = value if name in axes else value.unsqueeze(axis)
    return value


def _sizes(values: Mapping[Letter, Tensor]) -> dict[sympy.Basic, int]:
    """What number each size is, from the letters' values."""
    sizes: dict[sympy.Basic, int] = {}
    for letter, value in values.items():
        for side, length in zip(letter.shape, value.shape[-2:], strict=True):
            known = side if side.is_Integer else sizes.setdefault(side, length)
            if known != length:
                raise ValueError(f"the letter {letter} has a value where {side} is {length}")
    return sizes


def _number(
    coefficient: sympy.Expr, values: Mapping[sympy.Basic, Tensor | float]
) -> Tensor | float:
    if coefficient.is_number:
        return float(coefficient)
    if coefficient in values:
        value = values[coefficient]
        return value[:, :, None, None] if isinstance(value, torch.Tensor) else value
    if isinstance(coefficient, sympy.Sum) and len(coefficient.limits) == 1:
        ((index, *_),) = coefficient.limits
        if coefficient == sum_scalar(coefficient.function, index):  # over all positions
            summands = torch.as_tensor(_number(coefficient.function, values))
            return summands.sum(_axis(index), keepdim=True)
    if coefficient.is_Mul or coefficient.is_Add:
        first, *rest = (_number(arg, values) for arg in coefficient.args)
        for number in rest:
            first = first * number if coefficient.is_Mul else first + number
        return first
    if coefficient.is_Pow and coefficient.exp.is_number:
        return _number(coefficient.base, values) ** float(coefficient.exp)
    raise ValueError(f"the coefficient {coefficient} has no value")
