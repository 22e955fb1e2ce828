"""Words on numbers: the same as evaluating the expression as it was written, in plain loops."""

from __future__ import annotations

import pytest
import sympy
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.symbolic.trees import (
    LETTERS,
    SETTINGS,
    SIZES,
    M,
    N,
    R,
    beta,
    matrices,
    rewritten,
    s,
    spoiled,
    t,
    u,
)

from posenc.symbolic.letters import W_V, a_ij, d, d_h, j, n, p_j, v, v_j, x_i, x_j
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
    difference,
    evaluate,
)

TOKENS = SIZES[n]


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=_GENERATOR)


_GENERATOR = torch.Generator().manual_seed(0)
NUMBERS = {
    letter: _random(*[TOKENS] * len(letter.indices), *(SIZES[side] for side in letter.shape))
    for letter in LETTERS
}
WEIGHTS = _random(TOKENS, TOKENS)
COEFFICIENTS = {a_ij: WEIGHTS, s: 0.7310, t: -1.377, **SIZES}


def by_hand(e: Matrix, at_i: int, at_j: int) -> torch.Tensor:
    """One entry of the grid, straight from the tree as it was written."""
    if isinstance(e, Letter):
        names = [index.name for index in e.indices]
        at = [where for name, where in (("i", at_i), ("j", at_j)) if name in names]
        return NUMBERS[e][tuple(at)]
    if isinstance(e, Identity):
        return torch.eye(SIZES[e.shape[0]], dtype=torch.float64)
    if isinstance(e, Product):
        return torch.einsum("ab,bc->ac", by_hand(e.left, at_i, at_j), by_hand(e.right, at_i, at_j))
    if isinstance(e, Sum):
        return by_hand(e.left, at_i, at_j) + by_hand(e.right, at_i, at_j)
    if isinstance(e, Scaled):
        numbers = {a_ij: float(WEIGHTS[at_i, at_j]), s: COEFFICIENTS[s], t: COEFFICIENTS[t], d_h: 7}
        return float(e.coefficient.subs(numbers)) * by_hand(e.body, at_i, at_j)
    if isinstance(e, Transposed):
        return by_hand(e.body, at_i, at_j).T
    if isinstance(e, SumOver):
        at = [(at_i, k) if e.index.name == "j" else (k, at_j) for k in range(TOKENS)]
        return sum(by_hand(e.body, *pair) for pair in at)
    assert isinstance(e, Term)
    return by_hand(e.body, at_i, at_j)


def numbers(e: Matrix) -> torch.Tensor:
    grid = evaluate(e, NUMBERS, COEFFICIENTS)
    return grid.expand(TOKENS, TOKENS, *grid.shape[2:])


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-9, atol=1e-9 * float(1 + b.abs().max()))


@SETTINGS
@given(matrices())
def test_words_on_numbers_are_the_tree_on_numbers(e):
    grid = numbers(e)
    assert grid.shape == (TOKENS, TOKENS, *(SIZES[side] for side in e.shape))
    for at in ((0, 0), (1, 3), (4, 2)):
        expected = by_hand(e, *at)
        assert close(grid[at], expected), f"{e}\n{grid[at]}\n{expected}"


@SETTINGS
@given(st.data())
def test_another_way_of_writing_it_has_the_same_words(data):
    e = data.draw(matrices(depth=3))
    other = data.draw(rewritten(e))
    assert difference(e, other) == {}
    assert close(numbers(e), numbers(other))


@SETTINGS
@given(st.data())
def test_equal_words_and_equal_numbers_are_one_thing(data):
    """Both ways round: pairs that are nearly the same, and sometimes are."""
    e = data.draw(matrices(depth=3))
    exchange = data.draw(st.sampled_from([{x_i: u}, {x_j: p_j}, {M: N}, {M: M.T}, {u: -u}, {}]))
    other = data.draw(rewritten(spoiled(e, exchange)))
    same = difference(e, other) == {}
    assert close(numbers(e), numbers(other)) is same, f"{e}\n{other}"


@SETTINGS
@given(st.data())
def test_unrelated_pairs_differ_in_words_and_numbers_alike(data):
    shape = data.draw(st.sampled_from([(1, 1), (1, d), (d, d)]))
    shape = tuple(map(sympy.sympify, shape))
    left, right = data.draw(matrices(shape, depth=2)), data.draw(matrices(shape, depth=2))
    same = difference(left, right) == {}
    assert close(numbers(left), numbers(right)) is same, f"{left}\n{right}"


def explicit(e: Matrix, at: dict[str, int]) -> sympy.Matrix:
    """sympy's own explicit matrices, straight from the tree; three positions."""
    sizes = {sympy.Integer(1): 1, d: 2, d_h: 3}
    if isinstance(e, Letter):
        name = e.name + "".join(str(at[k]) for k in ("i", "j") if k in map(str, e.indices))
        return sympy.MatrixSymbol(name, *(sizes[side] for side in e.shape)).as_explicit()
    if isinstance(e, Identity):
        return sympy.Identity(sizes[e.shape[0]]).as_explicit()
    if isinstance(e, Product):
        return explicit(e.left, at) * explicit(e.right, at)
    if isinstance(e, Sum):
        return explicit(e.left, at) + explicit(e.right, at)
    if isinstance(e, Scaled):
        weight = sympy.Symbol(f"a{at['i']}{at['j']}")
        return e.coefficient.subs(a_ij, weight) * explicit(e.body, at)
    if isinstance(e, Transposed):
        return explicit(e.body, at).T
    if isinstance(e, SumOver):
        bodies = [explicit(e.body, {**at, str(e.index): k}) for k in range(3)]
        return bodies[0] + bodies[1] + bodies[2]
    return explicit(e.body, at)


@SETTINGS
@given(st.data())
def test_no_difference_means_equal_entry_by_entry_in_sympy(data):
    e = data.draw(matrices(depth=2))
    exchange = data.draw(st.sampled_from([{x_i: u}, {x_j: p_j}, {M: M.T}, {}]))
    other = data.draw(rewritten(spoiled(e, exchange)))
    at = {"i": 0, "j": 1}
    gap = (explicit(e, at) - explicit(other, at)).expand()
    assert (gap == sympy.zeros(*gap.shape)) is (difference(e, other) == {}), f"{e}\n{other}"


# what the random trees do not reach


def test_sum_over_the_other_index():
    e = SumOver("i", a_ij * (x_i @ M))
    expected = torch.einsum("ij,id,de->je", WEIGHTS, NUMBERS[x_i][:, 0], NUMBERS[M])
    assert close(evaluate(e, NUMBERS, COEFFICIENTS)[0, :, 0], expected)


def test_rows_with_an_index_may_leave_their_row_axis_out():
    flat = {letter: value.squeeze(-2) for letter, value in NUMBERS.items() if letter.indices}
    e = beta @ x_i + R @ R.T @ x_j
    assert torch.equal(evaluate(e, NUMBERS | {R: flat[R], x_i: flat[x_i]}), evaluate(e, NUMBERS))


def test_a_letter_of_both_indices_takes_i_first_whatever_its_name():
    R_ji = Letter("R_ji", 1, d_h)
    grid = _random(TOKENS, TOKENS, 7)
    assert torch.equal(evaluate(R_ji, {R_ji: grid})[:, :, 0], grid)


def test_indexed_matrices_need_not_be_rows():
    D_j = Letter("D_j", d, d)
    value = _random(TOKENS, 2, 2)
    got = evaluate(SumOver("j", x_i @ D_j), NUMBERS | {D_j: value})
    assert close(got[:, 0], NUMBERS[x_i] @ value.sum(0))


def test_row_sums():
    row_sum = sympy.Sum(a_ij, (j, 0, n - 1))
    got = evaluate(row_sum * v, {v: torch.ones(1, 3)}, {a_ij: WEIGHTS})
    assert close(got[:, 0, 0, 0].double(), WEIGHTS.sum(1))


def test_sums_over_some_positions_are_not_taken_for_sums_over_all():
    for limits in [(j, 0, n), (j, 1, n - 1), (j, 0, sympy.Symbol("i"))]:
        with pytest.raises(ValueError, match="has no value"):
            evaluate(sympy.Sum(a_ij, limits) * v, {v: torch.ones(1, 3)}, {a_ij: WEIGHTS})


def test_the_identity_is_no_matrix_of_ones():
    got = evaluate(M + Identity(d), {M: torch.zeros(2, 2)})
    assert torch.equal(got[0, 0], torch.eye(2))


def test_zero_has_a_shape():
    assert torch.equal(evaluate(M - M, NUMBERS), torch.zeros(1, 1, 2, 2, dtype=torch.float64))


def test_a_size_among_the_coefficients_is_read_off_the_letters():
    got = evaluate((1 / sympy.sqrt(d_h)) * R, NUMBERS)
    assert close(got, NUMBERS[R] / 7**0.5)


@pytest.mark.parametrize(
    ("expression", "letters", "coefficients", "message"),
    [
        (x_i @ M, {x_i: NUMBERS[x_i]}, {}, "M has no value"),
        (s * M, {M: NUMBERS[M]}, {}, "coefficient s has no value"),
        (sympy.exp(s) * M, {M: NUMBERS[M]}, {s: 1.0}, "coefficient exp"),
        (x_i @ M, {x_i: NUMBERS[x_i], M: torch.ones(3, 3)}, {}, "x_i .* where d is 2"),
        (x_i @ M, {x_i: torch.ones(2), M: NUMBERS[M]}, {}, "value of shape"),
        (M @ M, {M: torch.ones(2, 3)}, {}, "M .* where d is 3"),
        (Letter("r", 1, d), {Letter("r", 1, d): torch.ones(4, 2)}, {}, "where 1 is 4"),
        (Letter("r", 1, d), {Letter("r", 1, d): torch.ones(2)}, {}, "value of shape"),
        (Identity(d), {}, {}, "coefficient d has no value"),
        (SumOver("k", Letter("x_k", 1, d)), {}, {}, "x_k has no value"),
        (
            SumOver("k", Letter("x_k", 1, d)),
            {Letter("x_k", 1, d): torch.ones(1, 2)},
            {},
            "only sums over i and j",
        ),
    ],
)
def test_what_is_missing_or_misshapen_is_named(expression, letters, coefficients, message):
    with pytest.raises(ValueError, match=message):
        evaluate(expression, letters, coefficients)


def test_a_sum_of_values():
    """o_i = Σ_j a_ij v_j with v_j = (x_j + p_j) W_V, the page's second root."""
    e = SumOver("j", a_ij * ((x_j + p_j) @ W_V))
    values = NUMBERS | {W_V: _random(2, 4)}
    expected = WEIGHTS @ ((values[x_j] + values[p_j])[:, 0] @ values[W_V])
    assert close(evaluate(e, values, {a_ij: WEIGHTS})[:, 0, 0], expected)
    assert v_j.shape == e.shape
