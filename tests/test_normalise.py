"""The six normalisers against loops that spell out their formulas, and at their edges."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from posenc import L2, At, Exp, ExpOverN, ReluSquaredOverN, Softmax, SwishL2
from tests.encodings import ALL_NORMALISERS, draw

every_normaliser = pytest.mark.parametrize("name", ALL_NORMALISERS)
LOGITS = draw(2, 3, 5, 5) * 2  # (batch, heads, n_q, n_k)
MASK = torch.tensor([[False, False, True, True, True], [True, False, True, True, False]])


def ats() -> dict[str, At]:
    positions = torch.arange(5)[None]
    return {
        "all": At.sequence(5),
        "causal": At.sequence(5, causal=True),
        "padded": At.of(positions, mask=MASK),  # no row is empty
        "padded, causal": At.of(positions, mask=MASK, causal=True),  # rows 0, 1 of batch 0 are
        "nothing": At.of(positions, mask=torch.zeros(1, 5, dtype=torch.bool)),
    }


every_at = pytest.mark.parametrize("where", ats())


def swish(b: float) -> float:
    return b / (1 + math.exp(-b))


def naive_row(name: str, b: list[float], n_all: int) -> list[float]:
    """The weights of one row that sees exactly the keys with logits b, as on the page."""
    if not b:
        return []
    exp = [math.exp(x) for x in b]
    relu2 = [max(x, 0.0) ** 2 for x in b]
    return {
        "softmax": lambda: [e / sum(exp) for e in exp],
        "exp": lambda: exp,
        "exp/n": lambda: [e / n_all for e in exp],
        "exp/n visible": lambda: [e / len(b) for e in exp],
        "relu2/n": lambda: [r / n_all for r in relu2],
        "relu2/n visible": lambda: [r / len(b) for r in relu2],
        "l2": lambda: [e / math.sqrt(sum(f * f for f in exp)) for e in exp],
        "swish+l2": lambda: [swish(x) / math.sqrt(sum(swish(y) ** 2 for y in b)) for x in b],
    }[name]()


def naive(name: str, logits: Tensor, at: At) -> Tensor:
    result = torch.zeros_like(logits)
    batch, heads, n_q, n_k = logits.shape
    for s in range(batch):
        visible = torch.ones(n_q, n_k, dtype=torch.bool)
        if at.visible is not None:
            visible = at.visible[s if len(at.visible) > 1 else 0]
        n_all = sum(bool(visible[:, j].any()) for j in range(n_k))
        for h in range(heads):
            for i in range(n_q):
                seen = [j for j in range(n_k) if visible[i, j]]
                row = naive_row(name, [float(logits[s, h, i, j]) for j in seen], n_all)
                for j, a in zip(seen, row, strict=True):
                    result[s, h, i, j] = a
    return result


def run(name: str, logits: Tensor, at: At) -> Tensor:
    return ALL_NORMALISERS[name]()(logits, at)


def close(ours: Tensor, theirs: Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=atol)


@every_normaliser
@every_at
def test_every_row_is_the_formula(name, where):
    close(run(name, LOGITS, ats()[where]), naive(name, LOGITS, ats()[where]))


@pytest.mark.parametrize("name", [n for n in ALL_NORMALISERS if n not in ("exp/n", "relu2/n")])
def test_every_row_is_the_formula_where_queries_are_fewer_than_keys(name):
    logits, at = draw(2, 3, 4, 6), At.of(torch.tensor([[2, 3, 4, 5]]), torch.arange(6)[None])
    close(run(name, logits, at), naive(name, logits, at))
    at = At.of(at.query, at.key, causal=True)
    close(run(name, logits, at), naive(name, logits, at))


@every_normaliser
@every_at
def test_gradients_are_right_and_finite_even_where_nothing_is_visible(name, where):
    logits = LOGITS[:, :1].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda b: run(name, b, ats()[where]), (logits,))


@every_normaliser
@pytest.mark.parametrize("where", ["padded, causal", "nothing"])
def test_hidden_keys_and_empty_rows_get_exactly_0_whatever_their_logits(name, where):
    at = ats()[where]
    hidden = ~at.visible[:, None].expand_as(LOGITS)
    for garbage in (math.nan, math.inf, -math.inf, 1e300):
        logits = LOGITS.masked_fill(hidden, garbage).requires_grad_()
        weights = run(name, logits, at)
        assert (weights[hidden] == 0).all()
        close(weights, naive(name, LOGITS, at))
        weights.square().sum().backward()
        assert (logits.grad[hidden] == 0).all() and logits.grad.isfinite().all()


@every_at
def test_softmax_rows_sum_to_1_or_to_0_where_nothing_is_visible(where):
    at = ats()[where]
    sums = Softmax()(LOGITS, at).sum(-1)
    full = torch.ones_like(sums) if at.visible is None else at.visible.any(-1)[:, None].double()
    close(sums, full.expand_as(sums))


@pytest.mark.parametrize("normaliser", [L2(), SwishL2()])
@every_at
def test_l2_rows_have_length_1_or_0_where_nothing_is_visible(normaliser, where):
    at = ats()[where]
    lengths = normaliser(LOGITS, at).norm(dim=-1)
    full = torch.ones_like(lengths) if at.visible is None else at.visible.any(-1)[:, None].double()
    close(lengths, full.expand_as(lengths))


def test_l2_row_sums_lie_between_1_and_root_n_and_reach_both():
    at = At.sequence(5)
    sums = L2()(LOGITS * 3, at).sum(-1)
    assert (sums > 1).all() and (sums < 5**0.5).all()
    close(
        L2()(torch.zeros(1, 1, 5, 5).double(), at).sum(-1),
        torch.full((1, 1, 5), 5**0.5, dtype=torch.float64),
    )
    close(L2()(torch.eye(5).double()[None, None] * 900, at).sum(-1), torch.ones(1, 1, 5).double())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("softmax", [1, 1, 1, 1]),
        ("exp", [1.5, 3, 4.5, 6]),
        ("l2", [1, 2**0.5, 3**0.5, 2]),
        ("exp/n", [1.5 / 4, 3 / 4, 4.5 / 4, 6 / 4]),
        ("exp/n visible", [1.5, 1.5, 1.5, 1.5]),
        ("relu2/n", [math.log(1.5) ** 2 * i / 4 for i in (1, 2, 3, 4)]),
        ("relu2/n visible", [math.log(1.5) ** 2] * 4),
    ],
)
def test_causal_row_sums_of_equal_logits_are_those_of_the_flaw_chapter(name, expected):
    sums = run(
        name,
        torch.full((1, 1, 4, 4), math.log(1.5), dtype=torch.float64),
        At.sequence(4, causal=True),
    )
    close(sums.sum(-1), torch.tensor([[expected]], dtype=torch.float64))


@every_normaliser
def test_only_softmax_and_l2_ignore_a_number_added_to_a_row(name):
    at, c = At.sequence(5, causal=True), draw(2, 3, 5, 1, seed=9)
    change = (run(name, LOGITS + c, at) - run(name, LOGITS, at)).abs().max()
    if name in ("softmax", "l2"):
        assert change <= 1e-12
    else:
        assert change > 1e-2


@every_normaliser
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("left", [0, 2])
def test_padding_leaves_the_weights_of_real_tokens_as_they_were(name, causal, left):
    alone = run(name, LOGITS, At.sequence(5, causal=causal))
    padded = draw(2, 3, 7, 7, seed=4)
    real = slice(left, left + 5)
    padded[..., real, real] = LOGITS
    mask = torch.zeros(1, 7, dtype=torch.bool)
    mask[:, real] = True
    at = At.of((torch.arange(7)[None] - left).clamp(min=0), mask=mask, causal=causal)
    close(run(name, padded, at)[..., real, real], alone)


@pytest.mark.parametrize("kind", [ExpOverN, ReluSquaredOverN])
def test_count_all_refuses_a_key_cache_and_count_visible_does_not(kind):
    at = At.of(torch.tensor([[2, 3]]), torch.arange(4)[None], causal=True)
    with pytest.raises(ValueError, match=r'2 queries meet 4 keys.*use count="visible"'):
        kind()(draw(1, 3, 2, 4), at)
    whole = draw(1, 3, 4, 4)
    part = kind("visible")(whole[:, :, 2:], at)
    close(part, kind("visible")(whole, At.sequence(4, causal=True))[:, :, 2:])


@pytest.mark.parametrize("kind", [ExpOverN, ReluSquaredOverN])
@pytest.mark.parametrize("count", ["keys", None, 5])
def test_an_unknown_count_is_named(kind, count):
    with pytest.raises(ValueError, match=f'count must be "all" or "visible", but is {count!r}'):
        kind(count)


# range


@pytest.mark.parametrize("kind", [Exp, ExpOverN])
@pytest.mark.parametrize(
    ("dtype", "largest"), [(torch.float16, 11), (torch.float32, 88), (torch.float64, 709)]
)
def test_exp_raises_where_it_overflows_and_not_before(kind, dtype, largest):
    logits = torch.full((1, 2, 3, 3), float(largest), dtype=dtype)
    assert kind()(logits, At.sequence(3)).isfinite().all()
    logits[0, 1, 2, 0] += 1
    says = f"exp overflows {str(dtype)[6:]}: the largest logit is {largest + 1}"
    with pytest.raises(OverflowError, match=says):
        kind()(logits, At.sequence(3, causal=True))


def test_a_hidden_logit_neither_overflows_nor_is_reported():
    logits = torch.full((1, 1, 2, 2), 5.0)
    logits[0, 0, 0, 1] = 5000.0  # a later key
    assert Exp()(logits, At.sequence(2, causal=True)).isfinite().all()
    logits[0, 0, 1, 0] = 91.0
    with pytest.raises(OverflowError, match="the largest logit is 91,"):
        Exp()(logits, At.sequence(2, causal=True))


HALF_PRECISION = [torch.float16, torch.bfloat16]


@every_normaliser
@pytest.mark.parametrize("dtype", HALF_PRECISION)
@every_at
def test_half_precision_is_kept_and_close(name, dtype, where):
    logits = LOGITS.to(dtype)
    weights = run(name, logits, ats()[where])
    assert weights.dtype == dtype
    exact = naive(name, logits.double(), ats()[where])
    torch.testing.assert_close(weights.double(), exact, rtol=0.03, atol=1e-3)


@pytest.mark.parametrize("normaliser", [L2(), SwishL2()])
@pytest.mark.parametrize("dtype", [*HALF_PRECISION, torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1e-3, 5e-3, 1.0, 300.0, 3e4])
def test_l2_rows_have_length_1_for_small_and_large_logits(normaliser, dtype, size):
    logits = (torch.tensor([[0.9, 1.0, 0.7, 0.8, 1.0]] * 5) * size).to(dtype)[None, None]
    lengths = normaliser(logits, At.sequence(5, causal=True)).double().norm(dim=-1)
    torch.testing.assert_close(lengths, torch.ones_like(lengths), rtol=0, atol=1e-2)


@pytest.mark.parametrize("normaliser", [Softmax(), L2()])
@pytest.mark.parametrize("dtype", [*HALF_PRECISION, torch.float32, torch.float64])
@pytest.mark.parametrize("causal", [False, True])
def test_softmax_and_l2_stand_the_largest_logits(normaliser, dtype, causal):
    top = torch.finfo(dtype).max
    logits = torch.tensor([[top, -top, 0], [-top / 2, top, 1], [1, 1, top]], dtype=dtype)
    weights = normaliser(logits[None, None], At.sequence(3, causal=causal))
    assert torch.equal(weights[0, 0], torch.eye(3, dtype=dtype))


def test_swish_l2_leaves_a_row_of_zeros_at_zero_without_nan():
    logits = torch.zeros(1, 1, 3, 3, dtype=torch.float64, requires_grad=True)
    weights = SwishL2()(logits, At.sequence(3))
    assert (weights == 0).all()
    weights.sum().backward()
    assert logits.grad.isfinite().all()


# wrong input


@every_normaliser
@pytest.mark.parametrize(
    ("logits", "at", "error", "says"),
    [
        (torch.ones(1, 2, 3, 3).long(), At.sequence(3), ValueError, "logits must be .*int64"),
        (torch.ones(1, 2, 3, 3).cfloat(), At.sequence(3), ValueError, "logits must be .*complex64"),
        (torch.ones(3), At.sequence(3), ValueError, r"logits must be .*\(3,\)"),
        (None, At.sequence(3), TypeError, "logits must be a Tensor"),
        (torch.ones(1, 2, 3, 3), None, TypeError, "at must be an At"),
        (torch.ones(3, 3), At.sequence(3, causal=True), ValueError, r"at.visible .*for \(3, 3\)"),
        (torch.ones(1, 2, 3, 3), At.sequence(4, causal=True), ValueError, r"is \(1, 4, 4\)"),
        (
            torch.ones(3, 2, 3, 3),
            At.of(torch.arange(3).repeat(2, 1), causal=True),
            ValueError,
            r"at.visible must be \(batch or 1, .*\(2, 3, 3\)",
        ),
        (
            torch.ones(1, 2, 3, 3),
            At.sequence(3)._replace(visible=torch.ones(1, 3, 3)),
            ValueError,
            "at.visible must be .* bool .*float32",
        ),
    ],
)
def test_wrong_logits_are_named(name, logits, at, error, says):
    with pytest.raises(error, match=says):
        run(name, logits, at)


def test_every_normaliser_is_a_module_without_parameters():
    for make in ALL_NORMALISERS.values():
        module = make()
        assert isinstance(module, nn.Module) and not module.state_dict()
