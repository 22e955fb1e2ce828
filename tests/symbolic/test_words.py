"""Letters, shapes, words, replacements: what is equal, what is not, and what is refused."""

from __future__ import annotations

import pytest
import sympy

from posenc.symbolic import Identity, Letter, ShapeError, SumOver, Term, difference, replace
from posenc.symbolic.letters import W_K, W_Q, W_V, a_ij, d, d_h, i, j, n, p_i, p_j, v, v_j, x_i, x_j
from posenc.symbolic.words import Matrix, normal, show, single_word, subtract

M, N = Letter("M", d, d), Letter("N", d, d)
beta, gamma = Letter("beta", 1, 1, r"\beta"), Letter("gamma", 1, 1, r"\gamma")
row_sum = sympy.Sum(a_ij, (j, 0, n - 1))
s = sympy.Symbol("s", real=True)


def same(left: Matrix, right: Matrix) -> bool:
    return difference(left, right) == {}


# shapes

MISFITS = {
    "d and d_h": (lambda: W_Q @ W_K, "W_Q", "W_K"),
    "a transpose too many": (lambda: x_i.T @ W_Q, r"x_i^\top", "W_Q"),
    "row times row": (lambda: x_i @ x_j, "x_i", "x_j"),
    "d_v for d_h": (lambda: (x_i @ W_Q) @ (x_j @ W_V).T, "x_i W_Q", r"(x_j W_V)^\top"),
    "the wrong identity": (lambda: x_i @ Identity(d_h), "x_i", "I"),
    "row plus column": (lambda: x_i + x_j.T, "x_i", r"x_j^\top"),
    "d plus d_h": (lambda: x_i + x_i @ W_Q, "x_i", "x_i W_Q"),
    "d minus d_h": (lambda: x_i - x_i @ W_Q, "x_i", "x_i W_Q"),
    "number plus row": (lambda: beta + x_i, r"\beta", "x_i"),
    "two identities": (lambda: Identity(d) + Identity(d_h), "I", "I"),
    "in a sum": (lambda: SumOver("j", x_j) @ W_Q.T, r"\sum_{j} x_j", r"W_Q^\top"),
    "in a term": (lambda: Term("cc", x_j) @ W_Q.T, r"\term{cc}{x_j}", r"W_Q^\top"),
    "in a scaled": (lambda: (2 * x_j) @ W_Q.T, r"2 \, x_j", r"W_Q^\top"),
}


@pytest.mark.parametrize("case", MISFITS)
def test_a_misfit_raises_where_it_is_written_and_names_both(case):
    build, *operands = MISFITS[case]
    with pytest.raises(ShapeError) as error:
        build()
    for operand in operands:
        assert operand in str(error.value)
    assert "×" in str(error.value)


def test_shapes_are_compared_as_symbols_not_by_their_names():
    other_d = sympy.Symbol("d")  # prints alike, is not known to be a positive integer
    with pytest.raises(ShapeError):
        x_i @ Letter("M", other_d, other_d)


def test_differences_of_shapes_raise():
    with pytest.raises(ShapeError, match=r"1×d.*d×1"):
        difference(x_i, x_i.T)
    with pytest.raises(ShapeError):
        difference(Identity(d), Identity(d_h))
    with pytest.raises(ShapeError):  # also where both are zero
        difference(0 * Identity(d), 0 * Identity(d_h))


def test_shapes_of_results():
    assert (x_i @ W_Q).shape == (1, d_h)
    assert (x_i @ W_Q).T.shape == (d_h, 1)
    assert (x_i.T @ x_j).shape == (d, d)
    assert SumOver("j", x_j).shape == Term("cc", x_j).shape == (2 * x_j).shape == (1, d)


# words

EQUAL = {
    "associative": ((x_i @ M) @ N, x_i @ (M @ N)),
    "distributive": ((x_i + p_i) @ M, x_i @ M + p_i @ M),
    "distributive from the left": (x_i @ (M + N), x_i @ N + x_i @ M),
    "transpose of a product": ((M @ N).T, N.T @ M.T),
    "transpose of a sum": ((M + N.T).T, M.T + N),
    "twice transposed": (M.T.T, M),
    "number = its transpose": (x_i @ M @ x_j.T, x_j @ M.T @ x_i.T),
    "part of a word": (x_i @ x_j.T @ p_i, x_j @ x_i.T @ p_i),
    "numbers commute": ((x_i @ x_j.T) @ (p_i @ p_j.T), (p_j @ p_i.T) @ (x_i @ x_j.T)),
    "numbers move": (x_i.T @ (p_i @ M @ p_j.T) @ x_j, (p_j @ M.T @ p_i.T @ x_i).T @ x_j),
    "1×1 letters": (beta @ gamma, gamma.T @ beta),
    "1×1 letters in a word": (beta @ x_i @ M, beta.T @ (x_i @ M)),
    "identity": (x_i @ Identity(d) @ M, x_i @ M),
    "identity transposed": (Identity(d).T, Identity(d)),
    "coefficients": ((2 * x_i) @ (s * M), (2 * s) * (x_i @ M)),
    "zero": (0 * M, M - M),
    "minus": (-(M - N), N - M),
    "terms are transparent": (Term("cc", M) + Term("cp", N), M + N),
    "sums are linear": (SumOver("j", 2 * x_j + p_j), SumOver("j", p_j) + 2 * SumOver("j", x_j)),
    "sum: matrix behind": (SumOver("j", a_ij * (x_j @ M)), SumOver("j", a_ij * x_j) @ M),
    "sum: row before": (SumOver("j", x_i @ M @ x_j.T), x_i @ M @ SumOver("j", x_j.T)),
    "sum: transposed": (SumOver("j", x_j).T, SumOver("j", x_j.T)),
    "sum of a constant": (SumOver("j", M), n * M),
    "sum of weights": (SumOver("j", a_ij * v), row_sum * v),
    "sum of some weights": (SumOver("j", (a_ij + s) * v), row_sum * v + (n * s) * v),
    "a free j beside a sum of weights": (row_sum * x_j, SumOver("j", a_ij * Identity(1)) @ x_j),
}


@pytest.mark.parametrize("case", EQUAL)
def test_equal(case):
    left, right = EQUAL[case]
    assert same(left, right)
    assert same(right.T, left.T)


UNEQUAL = {
    "a missing transpose": (M @ N.T, M @ N),
    "a square matrix is not its transpose": (M, M.T),
    "an outer product is not its transpose": (x_i.T @ x_j, x_j.T @ x_i),
    "matrices do not commute": (M @ N, N @ M),
    "i is not j": (x_i, Letter("x_j", 1, d)),
    "a sign": (M - N, M + N),
    "a coefficient": (2 * M, M),
    "x is not p": (x_i @ M @ x_j.T, x_i @ M @ p_j.T),
    "M is not its transpose between rows": (x_i @ M @ x_j.T, x_i @ M.T @ x_j.T),
    "a row of the same name without index": (x_j, Letter("x_j", 1, d, "x")),
    "a letter of the same name printed otherwise": (M, Letter("M", d, d, r"\tilde{M}")),
    "inside and outside of a sum": (SumOver("j", x_j), x_j),
    "times n": (SumOver("j", x_j), n * x_j),
    "over another index": (SumOver("j", a_ij * M), SumOver("i", a_ij * M)),
    "weights out of a sum": (SumOver("j", a_ij * x_j), row_sum * SumOver("j", x_j)),
    "weight beside a sum": (SumOver("j", a_ij * x_i), a_ij * (n * x_i)),
    "j declared, sum out": (SumOver("j", a_ij * v_j), row_sum * v_j),
}


@pytest.mark.parametrize("case", UNEQUAL)
def test_unequal(case):
    left, right = UNEQUAL[case]
    assert not same(left, right)
    assert not same(right, left)


def test_same_name_and_other_shape_never_cancel():
    wide, high = Letter("W", d, d_h), Letter("W", d_h, d)
    assert wide != high and len({wide, high, Letter("W", d, d_h)}) == 2
    assert not same(wide.T @ x_i.T, high @ x_i.T)
    # a palindrome of names whose halves differ in shape is still one number
    narrow = Letter("A", d_h, d_h), Letter("A", d, d_h)
    left, right = Letter("y", 1, d_h), Letter("y", 1, d)
    word = left @ narrow[0] @ narrow[1].T @ right.T
    assert same(word, word.T) and same(word.T, word)


def test_words_show_a_difference():
    assert show(difference(2 * (M @ N.T), N)) == "(2) M Nᵀ + (-1) N"
    assert show(difference(SumOver("j", x_j), 0 * x_j)) == "Σ_j x_j"
    assert show(Identity(d).words()) == "1"
    assert show({}) == "0"


# letters


@pytest.mark.parametrize(
    ("name", "latex", "indices"),
    [
        ("x_i", None, "i"),
        ("x_j", None, "j"),
        ("R_ij", None, "ij"),
        ("R_ji", None, "ij"),
        ("R", "R^K_{i-j}", "ij"),
        ("beta_ij", r"\beta_{ij}", "ij"),
        ("R_K", "R_{K,ij}", "ij"),
        ("W_Q", None, ""),
        ("W_KR", None, ""),
        ("M", None, ""),
        ("pi", r"R_{\pi}", ""),
        ("e_pos", None, ""),
        ("R", "R^{ij}", "ij"),
        ("R", "R_{K,{ij}}", "ij"),
        ("x", r"\tilde{x_j}", "j"),
        ("x", r"\tilde{x}'_j", "j"),
        ("W", r"W_{\mathrm{in}}", ""),
        ("W", r"W^Q_{\text{in},j}", "j"),
        ("D", r"\operatorname{diag}(p_j)", "j"),
    ],
)
def test_a_letter_depends_on_the_indices_it_prints(name, latex, indices):
    assert {index.name for index in Letter(name, d, d, latex).indices} == set(indices)


def test_a_letter_that_prints_j_does_not_come_out_of_a_sum_over_j():
    y_j = Letter("y_j", 1, d)
    assert not same(SumOver("j", y_j), n * y_j)
    assert not same(SumOver("i", Letter("R_ij", 1, d)), n * Letter("R_ij", 1, d))


@pytest.mark.parametrize(
    "coefficient",
    [
        0.5,
        1e-17 * sympy.Symbol("s"),
        sympy.zoo,
        sympy.nan,
        sympy.oo,
        1 / sympy.Integer(0),
        sympy.Symbol("A", commutative=False),
        sympy.MatrixSymbol("A", 1, 1),
        sympy.Matrix([[1]]),
        True,
        "x y",
    ],
)
def test_a_coefficient_is_a_number(coefficient):
    with pytest.raises((ValueError, TypeError, SyntaxError)):
        Matrix.__rmul__(M, coefficient)


def test_coefficients_named_like_letters_are_no_letters():
    x = sympy.Symbol("x_i", real=True)
    assert not same(x * M, x_i.T @ x_i)
    assert same(x * M, M @ (x * Identity(d)))


# sums


def capture_cases():
    J = sympy.Symbol("j", integer=True)  # prints as j, and is not the index
    return {
        "letter outside": lambda: SumOver("j", x_j) @ x_j.T,
        "letter before": lambda: x_j @ SumOver("j", x_j.T),
        "coefficient outside": lambda: a_ij * SumOver("j", x_j),
        "coefficient in a factor": lambda: SumOver("j", x_j) @ (a_ij * M),
        "coefficient before": lambda: (a_ij * M) @ SumOver("j", x_j.T),
        "index as a number": lambda: j * SumOver("j", x_j),
        "one summand of many": lambda: SumOver("j", x_j) @ (M + x_i.T @ x_j),
        "through a term and a transpose": lambda: Term("cc", SumOver("j", x_j).T).T @ x_j.T,
        "two sums": lambda: SumOver("j", x_j) @ SumOver("i", x_i).T,
        "a sum in a sum": lambda: SumOver("i", SumOver("j", x_i @ x_j.T)),
        "the same sum twice": lambda: SumOver("j", SumOver("j", x_j)),
        "another j": lambda: SumOver("j", J * x_j),
        "another j alone": lambda: SumOver("j", J * x_i),
        "a weight of another j": lambda: SumOver("j", sympy.IndexedBase("a")[J] * x_i),
    }


@pytest.mark.parametrize("case", capture_cases())
def test_captured_and_nested_indices_are_refused(case):
    with pytest.raises(ValueError, match=r"sum|index"):
        capture_cases()[case]().words()


def test_a_sum_of_sums_of_numbers_is_a_number():
    total = sympy.Sum(a_ij, (j, 0, n - 1))
    twice = SumOver("i", total * v)
    ((word, coefficient),) = twice.words().items()
    assert word.over is None
    assert coefficient == sympy.Sum(a_ij, (j, 0, n - 1), (i, 0, n - 1))
    assert not same(twice, n * (total * v))


# terms

cc, cp = Term("cc", M), Term("cp", N)


def test_terms_are_found_with_what_stands_before_them():
    assert same((cc + cp).term("cp"), N)
    assert same((cc - cp).term("cp"), -N)
    assert same((s * (cc - 2 * cp)).term("cp"), (-2 * s) * N)
    assert same((M + (N - cp)).term("cp"), -N)


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        (cc + cp, "pp"),
        (cc + Term("cc", N), "cc"),
        (M @ cc, "cc"),
        (cc.T, "cc"),
        (SumOver("j", Term("cc", x_j)), "cc"),
        (Term("pp", cc), "cc"),
        (M, "cc"),
    ],
)
def test_only_summands_are_terms(expression, name):
    with pytest.raises(ValueError, match=f"named '{name}'"):
        expression.term(name)


# replacing


R = Letter("R", 1, d, "R_{i-j}")
B = Letter("B", d, d)

REPLACED = {
    "a letter": (x_i @ M, {M: N}, x_i @ N, [1]),
    "and its transpose": (x_i @ M.T @ M, {M: N}, x_i @ N.T @ N, [2]),
    "by a transposed key": (x_i @ M, {M.T: N}, x_i @ N.T, [1]),
    "a product": (p_j @ W_K, {p_j @ W_K: Letter("S", 1, d_h)}, Letter("S", 1, d_h), [1]),
    "a product hidden in a transpose": (
        x_i @ W_K @ (p_j @ W_K).T,
        {p_j @ W_K: Letter("S", 1, d_h)},
        x_i @ W_K @ Letter("S", 1, d_h).T,
        [1],
    ),
    "by a sum": (x_i @ M, {M: N - B.T}, x_i @ N - x_i @ B.T, [1]),
    "by zero": (x_i @ M + x_i, {M: 0 * M}, x_i, [1]),
    "by the identity": (M.T @ M @ N, {M.T @ M: Identity(d)}, N, [1]),
    "overlapping: from the left": (M @ M @ M, {M @ M: N}, N @ M, [1]),
    "what it was put for is not replaced again": (M, {M: M @ M}, M @ M, [1]),
    "all at once": (x_i @ M @ x_j.T, {x_i: x_j, x_j: x_i}, x_j @ M @ x_i.T, [1, 1]),
    "the first key wins": (M @ N, {M @ N: B, N: M}, B, [1, 0]),
    "no hit": (M, {N: B}, M, [0]),
    "a symmetric key": (M.T @ M, {M.T @ M: B}, B, [1]),
    "under a sum": (SumOver("j", a_ij * x_j), {x_j: p_j}, SumOver("j", a_ij * p_j), [1]),
    "what no longer depends comes out": (SumOver("j", a_ij * v_j), {v_j: v}, row_sum * v, [1]),
    "with a free i under Σ_j": (SumOver("j", p_j @ M), {p_j: R}, SumOver("j", R @ M), [1]),
    "a number by a number": (x_i @ x_j.T @ p_i, {x_i @ x_j.T: beta}, beta @ p_i, [1]),
}


@pytest.mark.parametrize("case", REPLACED)
def test_replaced(case):
    expression, replacements, expected, hits = REPLACED[case]
    words, found = replace(expression._words(), replacements)
    assert found == hits
    assert normal(subtract(words, expected._words())) == {}, show(words)


REFUSED = {
    "shapes": (M, {M: W_Q}, ShapeError, "d×d.*d×d_h"),
    "transposed shape": (x_i, {x_i: x_j.T}, ShapeError, "1×d.*d×1"),
    "a sum": (M, {M + N: B}, ValueError, "only a product"),
    "a coefficient": (M, {2 * M: B}, ValueError, "only a product"),
    "zero": (M, {0 * M: B}, ValueError, "only a product"),
    "nothing": (M, {M - M: B}, ValueError, "only a product"),
    "the identity": (M, {Identity(d): B}, ValueError, "only a product"),
    "a sum over j": (x_j, {SumOver("j", x_j): x_i}, ValueError, "only a product"),
    "captured letter": (SumOver("j", x_j @ M), {M: x_i.T @ x_j}, ValueError, "captured"),
    "captured weight": (SumOver("j", x_j @ M), {M: a_ij * M}, ValueError, "captured"),
    "captures a neighbour": (x_j @ M, {M: SumOver("j", x_j.T @ x_j)}, ValueError, "index"),
    "captures a weight": (a_ij * M, {M: SumOver("j", x_j.T @ x_j)}, ValueError, "index"),
    "a sum in a sum": (SumOver("i", x_i @ M), {M: SumOver("j", x_j.T @ x_j)}, ValueError, "sum"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_replacements_refused(case):
    expression, replacements, kind, message = REFUSED[case]
    with pytest.raises(kind, match=message):
        replace(expression._words(), replacements)


def test_a_single_word():
    assert str(single_word(x_i @ M.T)) == "x_i Mᵀ"
    assert str(single_word(Term("cc", (M @ x_i.T).T))) == "x_i Mᵀ"
