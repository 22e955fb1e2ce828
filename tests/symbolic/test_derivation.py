"""Right derivations pass, wrong ones raise and say where; the roots' descendants can be written."""

from __future__ import annotations

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.symbolic.trees import POINTS, SETTINGS, at, numbers

from posenc.symbolic import Derivation, DerivationError, Identity, Letter, SumOver, Term
from posenc.symbolic import formula as F
from posenc.symbolic.derivation import formula_difference
from posenc.symbolic.expansion import expansion, value_path
from posenc.symbolic.formula import Formula
from posenc.symbolic.letters import (
    W_K,
    W_Q,
    W_V,
    a_ij,
    d,
    d_h,
    d_v,
    i,
    j,
    k_j,
    n,
    p_i,
    p_j,
    q_i,
    v,
    v_j,
    x_i,
    x_j,
)

M, N = Letter("M", d, d), Letter("N", d, d)
row_sum = sympy.Sum(a_ij, (j, 0, n - 1))
s, t = sympy.symbols("s t", real=True)
scale = 1 / sympy.sqrt(d_h)

cc = Term("cc", x_i @ W_Q @ W_K.T @ x_j.T)
cp = Term("cp", x_i @ W_Q @ W_K.T @ p_j.T)
pc = Term("pc", p_i @ W_Q @ W_K.T @ x_j.T)
pp = Term("pp", p_i @ W_Q @ W_K.T @ p_j.T)

theta = F.symbol("theta", r"\theta")
m, l = F.symbol("m"), F.symbol("l")  # noqa: E741
x, y, z = F.symbol("x"), F.symbol("y"), F.symbol("z", complex=True)
most = F.symbol("n", integer=True, positive=True)
count = F.symbol("k_0", integer=True)
q = F.named("q", F.symbol("q_x") + F.i * F.symbol("q_y"))
k = F.named("k", F.symbol("k_x") + F.i * F.symbol("k_y"))


def chain(start) -> Derivation:
    return Derivation("some-id", "A title", start)


def four() -> Derivation:
    return chain(expansion().end)


# the descendants of the two roots


def test_shaw_keys():
    """p_j W_K becomes a learned row; what begins with p_i goes."""
    R = Letter("R_K", 1, d_h, "R^K_{ij}")
    cR = Term("cp", x_i @ W_Q @ R.T)
    shaw = (
        four()
        .choose(
            {p_j @ W_K: R},
            cc + cR + pc + Term("pp", p_i @ W_Q @ R.T),
            because="a row for each distance",
        )
        .drop(["pc", "pp"], cc + cR, because="no position of the query")
        .equals(x_i @ W_Q @ (x_j @ W_K + R).T, because="factored")
    )
    assert [step.kind for step in shaw.steps] == ["start", "choice", "choice", "equality"]
    assert shaw.mark().endswith("and 2 modelling choices")
    assert r"\rightsquigarrow" in shaw.statement() and " = " not in shaw.statement()


def test_shaw_values():
    R = Letter("R_V", 1, d_v, "R^V_{ij}")
    content = Term("cc", SumOver("j", a_ij * (x_j @ W_V)))
    (
        chain(value_path().end)
        .choose(
            {p_j @ W_V: R},
            content + Term("pp", SumOver("j", a_ij * R)),
            because="a row for each distance",
        )
        .equals(SumOver("j", a_ij * (x_j @ W_V + R)), because="one sum")
    )


def test_value_path_without_positions():
    content = Term("cc", SumOver("j", a_ij * (x_j @ W_V)))
    chain(value_path().end).drop(["pp"], content, because="values carry no position")


def test_transformer_xl():
    R = Letter("R", 1, d, "R_{i-j}")
    u, w = Letter("u", 1, d), Letter("w", 1, d)
    u1, w1 = Letter("u1", 1, d_h, "u'"), Letter("w1", 1, d_h, "w'")
    W_KR = Letter("W_KR", d, d_h)
    cR = Term("cp", x_i @ W_Q @ W_K.T @ R.T)
    uc, wR = Term("pc", u @ W_Q @ W_K.T @ x_j.T), Term("pp", w @ W_Q @ W_K.T @ R.T)
    cR2, wR2 = Term("cp", x_i @ W_Q @ W_KR.T @ R.T), Term("pp", w @ W_Q @ W_KR.T @ R.T)
    uc3, wR3 = Term("pc", u1 @ W_K.T @ x_j.T), Term("pp", w1 @ W_KR.T @ R.T)
    transformer_xl = (
        four()
        .choose(
            {p_j: R},
            cc + cR + pc + Term("pp", p_i @ W_Q @ W_K.T @ R.T),
            because="relative sinusoids",
        )
        .choose(
            {p_i: u},
            cc + cR + uc + Term("pp", p_i @ W_Q @ W_K.T @ R.T),
            because="one row for every query",
            within="pc",
        )
        .choose({p_i: w}, cc + cR + uc + wR, because="and another", within="pp")
        .choose({R @ W_K: R @ W_KR}, cc + cR2 + uc + wR2, because="keys of their own")
        .define({u @ W_Q: u1, w @ W_Q: w1}, cc + cR2 + uc3 + wR3, because="absorbed")
        .equals((x_i @ W_Q + u1) @ (x_j @ W_K).T + (x_i @ W_Q + w1) @ (R @ W_KR).T, "factored")
    )
    assert len(transformer_xl.choices()) == 4


def test_t5():
    beta = Letter("beta_ij", 1, 1, r"\beta_{ij}")
    bias = Term("pp", beta)
    (
        four()
        .drop(["cp", "pc"], cc + pp, because="content and position apart")
        .choose({p_i @ W_Q @ W_K.T @ p_j.T: beta}, cc + bias, because="a number", within="pp")
    )


def test_tupe():
    """Positions with projections of their own, within one term."""
    U_Q, U_K = Letter("U_Q", d, d_h), Letter("U_K", d, d_h)
    apart = Term("pp", p_i @ U_Q @ U_K.T @ p_j.T)
    (
        four()
        .drop(["cp", "pc"], cc + pp, because="no mixed terms")
        .choose({W_Q: U_Q, W_K: U_K}, cc + apart, because="untied", within="pp")
    )


def test_deberta():
    R_ij, R_ji = Letter("R_ij", 1, d), Letter("R_ji", 1, d)
    (
        four()
        .drop(["pp"], cc + cp + pc, because="no position–position term")
        .choose(
            {p_j: R_ij, p_i: R_ji},
            cc + Term("cp", x_i @ W_Q @ W_K.T @ R_ij.T) + Term("pc", R_ji @ W_Q @ W_K.T @ x_j.T),
            because="relative rows",
        )
        .equals(
            (x_i @ W_Q) @ (x_j @ W_K + R_ij @ W_K).T + (x_j @ W_K) @ (R_ji @ W_Q).T,
            because="a number equals its transpose",
        )
    )


def test_terms_may_stand_behind_a_factor():
    (
        chain(scale * (cc + cp + pc + pp))
        .drop(["pp"], scale * (cc + cp + pc), because="no position–position term")
        .choose({p_i: x_i}, scale * (cc + cp + cc), because="some choice", within="pc")
        .equals((2 * scale) * cc + scale * cp, because="collected")
    )


# wrong steps: the name, the step's number and reason, and the difference

turn = F.cis(m * theta)
R_m, R_l = (F.matrix([[F.cos(a), F.sin(a)], [-F.sin(a), F.cos(a)]]) for a in (m * theta, l * theta))
start_score = F.real_part(F.group(q * F.cis(m * theta)) * F.conjugate(k * F.cis(l * theta)))
beta = Letter("beta", 1, 1, r"\beta")
undecided = Formula(sympy.Function("f", real=True)(x.value), "f")

WRONG = {
    "a missing transpose": (lambda: chain(M @ N.T).equals(M @ N, "why"), 1, "M Nᵀ + (-1) M N"),
    "a missing transpose, not square": (
        lambda: chain(q_i @ k_j.T).define(
            {q_i: x_i @ W_Q, k_j: x_j @ W_K}, x_i @ W_K @ W_Q.T @ x_j.T, "why"
        ),
        1,
        "(-1) x_i W_K W_Qᵀ x_jᵀ",
    ),
    "i and j swapped": (
        lambda: chain((x_i @ W_Q) @ (x_j @ W_K).T).equals(x_j @ W_Q @ W_K.T @ x_i.T, "why"),
        1,
        "x_i W_Q W_Kᵀ x_jᵀ",
    ),
    "a sign": (lambda: chain(M - N).equals(N - M, "why"), 1, "(2) M + (-2) N"),
    "a lost factor": (lambda: chain(scale * cc).equals(cc, "why"), 1, "(-1 + 1/sqrt(d_h))"),
    "the factor of another size": (
        lambda: chain(scale * cc).equals((1 / sympy.sqrt(d)) * cc, "why"),
        1,
        "1/sqrt(d_h) - 1/sqrt(d)",
    ),
    "the wrong root": (lambda: chain(scale * cc).equals((1 / d_h) * cc, "why"), 1, "1/d_h"),
    "d for d_h": (
        lambda: chain(x_i @ W_Q).equals(x_i @ Letter("W_Q", d, d), "why"),
        1,
        "W_Q means W_Q (d×d_h), but W_Q means W_Q (d×d)",
    ),
    "another shape": (lambda: chain(x_i @ W_Q).equals(x_i, "why"), 1, "x_i W_Q (1×d_h) and x_i"),
    "transposed": (lambda: chain(x_i).equals(x_i.T, "why"), 1, "(1×d) and x_i^\\top (d×1)"),
    "identities of two sizes": (
        lambda: chain(M.T @ M).define({M.T @ M: Identity(d)}, Identity(d_h), "why"),
        1,
        "(d×d) and I (d_h×d_h)",
    ),
    "zeros of two sizes": (
        lambda: chain(M).define({M: 0 * M}, 0 * Letter("W", d, d_h), "why"),
        1,
        "(d×d_h)",
    ),
    "replaced nothing": (
        lambda: four().choose({v_j: v}, cc + cp + pc + pp, "why"),
        1,
        "v_j occurs nowhere in x_i W_Q",
    ),
    "one key of two replaced nothing": (
        lambda: four().choose({x_i: p_i, v_j: v}, pc + pp + pc + pp, "why"),
        1,
        "v_j occurs nowhere",
    ),
    "defined nothing": (
        lambda: four().define({q_i: x_i @ W_Q}, cc + cp + pc + pp, "why"),
        1,
        "q_i occurs nowhere",
    ),
    "replaced nothing within the term": (
        lambda: four().choose({x_i: p_i}, cc + cp + pc + pp, "why", within="pc"),
        1,
        "x_i occurs nowhere in the term 'pc', p_i W_Q",
    ),
    "replaced in the wrong term": (
        lambda: four().choose(
            {p_i: x_i}, cc + cp + pc + Term("pp", x_i @ W_Q @ W_K.T @ p_j.T), "why", within="pc"
        ),
        1,
        "p_i W_Q W_Kᵀ p_jᵀ",
    ),
    "replaced everywhere, not within": (
        lambda: four().choose({p_i: x_i}, cc + cp + cc + cp, "why", within="pc"),
        1,
        "p_i W_Q W_Kᵀ p_jᵀ",
    ),
    "no such term": (
        lambda: four().choose({p_i: x_i}, cc, "why", within="qq"),
        1,
        "no summand is named 'qq' here; the names are ['cc', 'cp', 'pc', 'pp']",
    ),
    "a term of no summand": (
        lambda: chain((cc + cp).T).drop(["cp"], cc.T, "why"),
        1,
        "no summand is named 'cp'",
    ),
    "two terms of one name": (
        lambda: chain(cc + Term("cc", cp)).drop(["cc"], cp, "why"),
        1,
        "several summands are named 'cc'",
    ),
    "a term too many dropped": (
        lambda: four().drop(["cp", "pc"], cc, "why"),
        1,
        "p_i W_Q W_Kᵀ p_jᵀ",
    ),
    "a term too few dropped": (
        lambda: four().drop(["cp"], cc + cp + pc + pp, "why"),
        1,
        "(-1) p_j W_K",
    ),
    "dropped what is not there": (lambda: four().drop(["qq"], cc, "why"), 1, "named 'qq'"),
    "dropped twice": (
        lambda: four().drop(["pp", "pp"], cc + cp + pc - pp, "why"),
        1,
        "no term can be left out twice: pp, pp",
    ),
    "a factor forgotten with the term": (
        lambda: chain(scale * (cc + cp)).drop(["cp"], scale * cc + scale * cp - cp, "why"),
        1,
        "1/sqrt(d_h)",
    ),
    "replaced a sum": (lambda: chain(M + N).choose({M + N: M}, M, "why"), 1, "only a product"),
    "replaced Σ_j x_j": (
        lambda: chain(x_j).define({SumOver("j", x_j): x_i}, x_i, "why"),
        1,
        "only a product of letters can be replaced, and Σ_j x_j is none",
    ),
    "replaced by another shape": (
        lambda: chain(M).choose({M: W_Q}, W_Q, "why"),
        1,
        "shapes differ: M (d×d) and W_Q (d×d_h)",
    ),
    "one after the other": (
        lambda: chain(x_i @ M @ x_j.T).choose({x_i: x_j, x_j: x_i}, x_i @ M @ x_i.T, "why"),
        1,
        "x_i Mᵀ x_jᵀ",
    ),
    "a replacement that is captured": (
        lambda: chain(SumOver("j", x_j @ M @ N)).choose(
            {N: x_i.T @ x_j}, SumOver("j", x_j @ M @ x_i.T @ x_j), "why"
        ),
        1,
        "would be captured by the sum in Σ_j x_j M N",
    ),
    "Σ over the wrong index": (
        lambda: chain(SumOver("j", a_ij * v_j)).equals(SumOver("i", a_ij * v_j), "why"),
        1,
        "Σ_j v_j",
    ),
    "Σ lost": (lambda: chain(SumOver("j", a_ij * v_j)).equals(a_ij * v_j, "why"), 1, "Σ_j v_j"),
    "the weights summed alone": (
        lambda: chain(SumOver("j", a_ij * v_j)).equals(row_sum * v_j, "why"),
        1,
        "Σ_j v_j",
    ),
    "columns for rows": (
        lambda: chain(SumOver("j", a_ij * v)).equals(sympy.Sum(a_ij, (i, 0, n - 1)) * v, "why"),
        1,
        "(i, 0, n - 1)",
    ),
    "one summand too many": (
        lambda: chain(SumOver("j", a_ij * v)).equals(sympy.Sum(a_ij, (j, 0, n)) * v, "why"),
        1,
        "(j, 0, n)",
    ),
    "a captured index": (
        lambda: chain(SumOver("j", a_ij * x_j) @ M).equals(SumOver("j", x_j) @ (a_ij * M), "why"),
        1,
        "an index is used outside of its sum",
    ),
    "a captured index at the start": (lambda: chain(a_ij * SumOver("j", x_j)), 0, "outside"),
    "assumed of nothing": (
        lambda: chain(SumOver("j", a_ij * v_j)).assume(row_sum, 1, v_j, "why"),
        1,
        "Sum(a[i, j], (j, 0, n - 1)) occurs nowhere",
    ),
    "assumed of a number": (lambda: chain(M).assume(1, 2, 2 * M, "why"), 1, "1 is a number"),
    "assumed what is captured": (
        lambda: chain(SumOver("j", s * x_j)).assume(s, a_ij, SumOver("j", a_ij * x_j), "why"),
        1,
        "a[i, j] would be captured by a sum in (s) Σ_j x_j",
    ),
    "assumed what a sum of weights captures": (
        lambda: chain(sympy.Sum(s * a_ij, (j, 0, n - 1)) * v).assume(s, j, row_sum * v, "why"),
        1,
        "j would be captured",
    ),
    "assumed, with another result": (
        lambda: chain(row_sum * v).assume(row_sum, 1, 2 * v, "why"),
        1,
        "(-1) v",
    ),
    "a later step": (
        lambda: chain(M).equals(M.T.T, "fine").equals(M + N - N, "fine").equals(N, "why"),
        3,
        "M + (-1) N",
    ),
    "a matrix for a formula": (lambda: chain(x).equals(M, "why"), 1, "not of one kind"),
    "a formula for a matrix": (lambda: chain(M).equals(x, "why"), 1, "not of one kind"),
    "a number for a formula": (lambda: chain(x).equals(3, "why"), 1, "not of one kind"),
    "define on formulas": (lambda: chain(x).define({M: N}, N, "why"), 1, "only in a matrix"),
    "drop on formulas": (lambda: chain(x).drop(["cc"], N, "why"), 1, "only in a matrix"),
    "assume on formulas": (lambda: chain(x).assume(s, 1, N, "why"), 1, "only in a matrix"),
    "one name, two letters": (
        lambda: chain(M + N).equals(N + Letter("M", d, d, r"\tilde{M}"), "why"),
        1,
        "M means M (d×d)",
    ),
    "one print, two letters": (
        lambda: chain(M).choose({M: Letter("other", d, d, "M")}, Letter("other", d, d, "M"), "why"),
        1,
        "M means M (d×d), but M means M (d×d)",
    ),
    "a letter and a coefficient print alike": (
        lambda: chain(M).equals(2 * M - sympy.Symbol("M") * Identity(d), "why"),
        1,
        "M means M (d×d), but M means M",
    ),
    "a missing conjugate": (
        lambda: chain(q_x * k_x + q_y * k_y).equals(F.real_part(q * k), "why"),
        1,
        "the sides differ",
    ),
    "the conjugate of the wrong one is none": (
        lambda: chain(F.conjugate(q) * k).equals(q * F.conjugate(k), "why"),
        1,
        "the sides differ",
    ),
    "a sign in the rotation": (
        lambda: chain((x + F.i * y) * turn).equals(
            (x * F.cos(m * theta) + y * F.sin(m * theta))
            + F.i * (x * F.sin(m * theta) + y * F.cos(m * theta)),
            "why",
        ),
        1,
        "the sides differ",
    ),
    "the sign of the exponent": (
        lambda: chain(start_score).equals(
            F.real_part(q * F.conjugate(k) * F.cis((m + l) * theta)), "why"
        ),
        1,
        "the sides differ",
    ),
    "the direction of the exponent": (
        lambda: chain(start_score).equals(
            F.real_part(q * F.conjugate(k) * F.cis((l - m) * theta)), "why"
        ),
        1,
        "the sides differ",
    ),
    "one sign in one entry": (
        lambda: chain(R_m * R_l.T).equals(
            F.matrix([[F.cos((m - l) * theta), F.sin((m - l) * theta)]] * 2), "why"
        ),
        1,
        "entry (1, 0): the sides differ",
    ),
    "a missing transpose of a rotation": (
        lambda: chain(R_m * R_l.T).equals(R_m * R_l, "why"),
        1,
        "entry (0, 0): the sides differ",
    ),
    "explicit shapes": (
        lambda: chain(F.matrix([[x, y]])).equals(F.matrix([[x], [y]]), "why"),
        1,
        "shapes differ: (1, 2) and (2, 1)",
    ),
    "1×1 is no number": (
        lambda: chain(F.matrix([[x]])).equals(x, "why"),
        1,
        "a matrix cannot equal a number",
    ),
    "a number is no 1×1": (
        lambda: chain(x).equals(F.matrix([[x]]), "why"),
        1,
        "a matrix cannot equal a number",
    ),
    "a conjugate too many": (lambda: chain(z).equals(F.conjugate(z), "why"), 1, "sides differ"),
    "a bound for every number of summands": (
        lambda: chain(F.sum_over(count, 1, most, count)).equals(most**2, "why"),
        1,
        "the sides differ: 3+0j and 4+0j at n = 2",
    ),
    "equal at the first four integers": (
        lambda: chain((most - 1) * (most - 2) * (most - 3) * (most - 4)).equals(0 * most, "why"),
        1,
        "sympy cannot decide",
    ),
    "a difference too small to see": (
        lambda: chain(x).equals(x + F.formula(1) / 10**12, "why"),
        1,
        "sympy cannot decide",
    ),
    "true for positive x only": (
        lambda: chain(Formula(sympy.sqrt(x.value**2), "w")).equals(x, "why"),
        1,
        "sympy cannot decide",
    ),
    "a branch cut": (
        lambda: chain(Formula(sympy.log(sympy.exp(sympy.I * x.value)), "w")).equals(F.i * x, "why"),
        1,
        "sympy cannot decide",
    ),
    "undecided": (lambda: chain(x).equals(undecided, "why"), 1, "sympy cannot decide whether x"),
    "not a number": (lambda: chain(Formula(sympy.nan, "w")), 0, "sympy cannot decide"),
    "infinite": (lambda: chain(Formula(sympy.oo, "w")), 0, "sympy cannot decide"),
    "a divergent sum": (
        lambda: chain(Formula(sympy.Sum(i, (i, 1, sympy.oo)), "w")).equals(
            Formula(2 * sympy.Sum(i, (i, 1, sympy.oo)), "w"), "why"
        ),
        1,
        "sympy cannot decide",
    ),
    "a letter that prints like the identity": (
        lambda: chain(M @ Identity(d)).choose({M: Letter("I", d, d)}, Letter("I", d, d), "why"),
        1,
        "I means the identity, but I means I",
    ),
    "a letter that prints like e": (
        lambda: chain(F.cis(x)).equals(F.cis(x) + F.named("e", x) - x, "why"),
        1,
        "e means",
    ),
    "a letter that prints like the imaginary unit": (
        lambda: chain(F.i * x).equals(F.i * x + F.named(r"\mathrm{i}", y) - y, "why"),
        1,
        r"\mathrm{i} means",
    ),
    "a symbol of other assumptions": (
        lambda: chain(x).equals(F.symbol("x", positive=True), "why"),
        1,
        "x means x, but x means x",
    ),
    "a symbol of two prints": (
        lambda: chain(theta).equals(F.symbol("theta", r"\vartheta"), "why"),
        1,
        r"\theta means theta, but \vartheta means theta",
    ),
    "a name for two things": (
        lambda: chain(F.named("c", x) + F.named("c", y)),
        0,
        "c means",
    ),
    "a name for another thing later": (
        lambda: chain(F.named("c", x + y)).equals(x + y, "fine").equals(F.named("c", x) + y, "why"),
        2,
        "c means x + y, but c means x",
    ),
}
q_x, q_y, k_x, k_y = (F.symbol(name) for name in ("q_x", "q_y", "k_x", "k_y"))


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_step_raises_and_says_where(case):
    build, step, difference = WRONG[case]
    with pytest.raises(DerivationError) as error:
        build()
    where = f"step {step} (why)" if step else "start"
    assert str(error.value).startswith(f"derivation 'some-id', {where}: ")
    assert difference in str(error.value)


def test_a_wrong_step_is_not_added():
    derivation = chain(M)
    with pytest.raises(DerivationError):
        derivation.equals(N, "why")
    assert [step.kind for step in derivation.steps] == ["start"]


def test_what_could_be_zero_divides_nothing():
    positive = F.symbol("r", positive=True)
    chain(positive / positive).equals(F.formula(1), "fine")
    for build in (
        lambda: x / x,
        lambda: x**-1,
        lambda: F.formula(1) / 0,
        lambda: x / F.cos(x),
        lambda: x / (x - x),
        lambda: x / F.matrix([[x]]),
    ):
        with pytest.raises(ValueError, match="nothing can be divided by"):
            build()


def test_a_sum_that_could_run_backwards_is_no_formula():
    whole, up = F.symbol("w", integer=True), F.symbol("u", integer=True, positive=True)
    index = F.symbol("k", integer=True)
    chain(F.sum_over(index, 1, up, index)).equals(up * (up + 1) / 2, "fine")
    for first, last, over in ((1, whole, index), (1, x, index), (up, 1, index), (1, up, x)):
        with pytest.raises(ValueError, match="may be no range of integers"):
            F.sum_over(over, first, last, index)


@pytest.mark.parametrize("number", [0.5, "1", sympy.Rational(1, 2), None])
def test_only_integers_are_formulas(number):
    with pytest.raises(TypeError):
        F.formula(number)
    with pytest.raises(TypeError):
        x * number


def test_only_integers_are_exponents():
    for exponent in (0.5, x, sympy.Rational(1, 2)):
        with pytest.raises(TypeError):
            x**exponent


def test_only_what_the_mark_can_say_is_assumed():
    for assumptions in ({"prime": True}, {"real": False}, {"commutative": False}):
        with pytest.raises(ValueError, match="can be assumed"):
            F.symbol("x", **assumptions)


# right steps


def test_right_steps_of_each_kind():
    derivation = (
        chain(SumOver("j", a_ij * v_j))
        .given({v_j: v}, SumOver("j", a_ij * v), "equal values")
        .equals(row_sum * v, "v does not depend on j")
        .assume(row_sum, s, s * v, "rows sum to s")
        .choose({v: v - v}, 0 * v, "no values")
    )
    kinds = ["start", "hypothesis", "equality", "hypothesis", "choice"]
    assert [step.kind for step in derivation.steps] == kinds
    assert [step.because for step in derivation.choices()] == ["no values"]
    assert r"&\rightsquigarrow 0 \, v && \small\text{choice: no values}" in derivation.latex()
    assert ", given $v_j = v$ and $\\sum_{j} a_{ij} = s$, and 1 modelling" in derivation.mark()
    assert r"&= s \, v && \small\text{rows sum to s}" in derivation.latex()


def test_a_definition_used_on_a_transpose():
    chain(k_j.T).define({k_j: x_j @ W_K}, W_K.T @ x_j.T, "keys")


@pytest.mark.parametrize(
    ("build", "mark"),
    [
        (lambda: chain(M), "no equality, for every size $d$"),
        (lambda: chain(M).equals(M.T.T, "r"), "1 step, for every size $d$"),
        (
            lambda: chain(x_i @ W_Q).equals(x_i @ W_Q, "r").choose({x_i: p_i}, p_i @ W_Q, "c"),
            "1 step, for every size $d$ and $d_{h}$, and 1 modelling choice",
        ),
        (lambda: chain(beta).equals(beta.T, "r"), "1 step, as it stands"),
        (lambda: chain(x * y).equals(y * x, "r"), "1 step, for all real $x$ and $y$"),
        (
            lambda: chain(F.cis(x) * F.cis(-x)).equals(F.formula(1), "r"),
            "1 step, for all real $x$",
        ),
        (
            lambda: chain(F.sum_over(count, 1, most, x)).equals(most * x, "r"),
            "1 step, for every positive integer $n$ and all real $x$",
        ),
        (lambda: chain(F.formula(2)).equals(F.formula(1) + 1, "r"), "1 step, as it stands"),
        (
            lambda: chain(F.matrix([[x, y]])).equals(F.matrix([[x, y]]), "r"),
            "1 step, for all real $x$ and $y$, entry by entry at 1×2",
        ),
    ],
)
def test_marks(build, mark):
    assert build().mark() == f"✓ checked by machine: {mark}"


@pytest.mark.parametrize(
    ("assumptions", "kind"),
    [
        ({}, "all real"),
        ({"real": True}, "all real"),
        ({"positive": True}, "all positive real"),
        ({"nonnegative": True}, "all nonnegative real"),
        ({"nonzero": True}, "all nonzero real"),
        ({"integer": True}, "every integer"),
        ({"integer": True, "positive": True}, "every positive integer"),
        ({"integer": True, "nonnegative": True}, "every nonnegative integer"),
        ({"integer": True, "nonzero": True}, "every nonzero integer"),
        ({"complex": True}, "all complex"),
    ],
)
def test_a_mark_claims_no_more_than_was_assumed(assumptions, kind):
    z = F.symbol("z", **assumptions)
    assert chain(z).equals(z + 0, "r").extent() == f"for {kind} $z$"
    # what was assumed of one symbol is not said of the other
    assert chain(z + x).extent().count("$x$") == 1
    if kind != "all real":
        assert "all real $x$" in chain(z + x).extent()


# what sympy accepts


@settings(SETTINGS, max_examples=60)
@given(st.data())
def test_formulas_found_equal_agree_on_numbers(data):
    f = data.draw(numbers(2))
    change = data.draw(
        st.sampled_from(
            [
                lambda value: value,
                sympy.expand,
                sympy.conjugate,
                sympy.trigsimp,
                lambda value: value.subs(POINT_X, -POINT_X),
                lambda value: value.replace(sympy.cos, sympy.sin),
                lambda value: value.replace(sympy.exp, lambda angle: sympy.exp(-angle)),
                lambda value: value.subs(sympy.I, -sympy.I),
                lambda value: value.rewrite(sympy.exp),
                lambda value: value + sympy.Rational(1, 1000),
            ]
        )
    )
    g = Formula(change(f.value), "g")
    same = all(
        at(f.value, point) == pytest.approx(at(g.value, point), rel=1e-9) for point in POINTS
    )
    problem = formula_difference(f, g)
    assert same or problem, f"{f} and {g} differ on numbers"
    if same:
        assert problem == "" or problem.startswith("sympy cannot decide")


POINT_X = sympy.Symbol("x", real=True)
