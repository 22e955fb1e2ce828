"""RoPE: complex multiplication, distance only, both layouts, partial widths, values."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.encodings import draw, positions_with_gaps, weights
from torch import Tensor

from posenc import At, Attention, Rotary
from posenc.unconventional.rotary import half_split_order, rotate

LAYOUTS = ["interleaved", "half-split"]
every_layout = pytest.mark.parametrize("layout", LAYOUTS)


def close(ours: Tensor, numbers: list[float] | Tensor, atol: float = 1e-12) -> None:
    expected = torch.as_tensor(numbers, dtype=ours.dtype)
    torch.testing.assert_close(ours, expected, rtol=0, atol=atol)


def turn(rotary: Rotary, x: Tensor, positions: Tensor) -> Tensor:
    """Turn one row of queries: (…, head_dim) at positions that broadcast to (…)."""
    at = At.of(positions.reshape(1, -1))
    return rotary.transform(*[x.reshape(1, 1, -1, rotary.head_dim)] * 3, at)[0].reshape(x.shape)


def pairs(width: int, layout: str) -> list[tuple[int, int]]:
    if layout == "interleaved":
        return [(2 * i, 2 * i + 1) for i in range(width // 2)]
    return [(i, i + width // 2) for i in range(width // 2)]


def naive(row: list[float], k: int, layout: str, width: int, base: float) -> list[float]:
    """(x + iy) e^{ikθ} for every pair, with complex numbers."""
    turned = list(row)
    for i, (a, b) in enumerate(pairs(width, layout)):
        angle = k * base ** (-2 * i / width)
        z = complex(row[a], row[b]) * complex(math.cos(angle), math.sin(angle))
        turned[a], turned[b] = z.real, z.imag
    return turned


@every_layout
@pytest.mark.parametrize(("head_dim", "width"), [(2, 2), (8, 8), (8, 2), (7, 4), (6, 4)])
@pytest.mark.parametrize("base", [10000.0, 30.0])
def test_every_pair_is_multiplied_by_its_power_of_e(layout, head_dim, width, base):
    rotary = Rotary(head_dim, width=width, layout=layout, base=base)
    q, k, v = draw(2, 3, 5, head_dim), draw(2, 3, 7, head_dim, seed=1), draw(2, 3, 7, 9, seed=2)
    at = At.of(positions_with_gaps(2, 5) + 4, positions_with_gaps(2, 7))
    new_q, new_k, new_v = rotary.transform(q, k, v, at)
    for old, new, positions in ((q, new_q, at.query), (k, new_k, at.key)):
        expected = [
            [
                [
                    naive(row.tolist(), int(m), layout, width, base)
                    for row, m in zip(head, positions[s], strict=True)
                ]
                for head in old[s]
            ]
            for s in range(2)
        ]
        close(new, expected)
    assert new_v is v


@pytest.mark.parametrize(
    ("layout", "head_dim", "width", "x", "expected"),
    [
        ("interleaved", 4, 4, [1, 0, 0, 1], [0.540302, 0.841471, -0.01, 0.99995]),
        ("half-split", 4, 4, [1, 0, 0, 1], [0.540302, -0.01, 0.841471, 0.99995]),
        ("half-split", 6, 4, [1, 2, 3, 4, 5, 6], [-1.984111, 1.959901, 2.462378, 4.0198, 5, 6]),
        ("interleaved", 6, 4, [1, 2, 3, 4, 5, 6], [-1.14264, 1.922076, 2.959851, 4.0298, 5, 6]),
    ],
)
def test_known_rows_at_position_1(layout, head_dim, width, x, expected):
    x = torch.tensor(x, dtype=torch.float64)
    y = turn(Rotary(head_dim, width=width, layout=layout), x, torch.tensor(1))
    close(y, expected, 1e-6)
    assert torch.equal(y[width:], x[width:])


positions = st.integers(0, 4000)
shapes = st.sampled_from([(2, 2), (8, 8), (8, 4), (7, 6)])


@given(m=positions, shape=shapes, layout=st.sampled_from(LAYOUTS), seed=st.integers(0, 99))
def test_length_is_kept(m, shape, layout, seed):
    x = draw(shape[0], seed=seed)
    rotary = Rotary(shape[0], width=shape[1], layout=layout)
    close(turn(rotary, x, torch.tensor(m)).norm(), x.norm())


@given(m=positions, n=positions, shift=positions, shape=shapes, layout=st.sampled_from(LAYOUTS))
def test_the_score_depends_on_the_distance_only(m, n, shift, shape, layout):
    q, k = draw(shape[0], seed=1), draw(shape[0], seed=2)
    rotary = Rotary(shape[0], width=shape[1], layout=layout)

    def score(m: int, n: int) -> Tensor:
        return turn(rotary, q, torch.tensor(m)) @ turn(rotary, k, torch.tensor(n))

    close(score(m + shift, n + shift), score(m, n), 1e-10)
    if m >= n:  # q turned by the distance alone, the key left where it is
        close(score(m - n, 0), score(m, n), 1e-10)


@given(m=positions, width=st.sampled_from([2, 4, 10]), seed=st.integers(0, 99))
def test_layouts_agree_after_the_permutation(m, width, seed):
    x, order, m = draw(width, seed=seed), half_split_order(width), torch.tensor(m)
    half, interleaved = Rotary(width, layout="half-split"), Rotary(width)
    assert torch.equal(turn(half, x[order], m), turn(interleaved, x, m)[order])


def test_the_permutation_puts_even_channels_first():
    assert half_split_order(8).tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    assert half_split_order(2).tolist() == [0, 1]
    assert half_split_order(0).tolist() == []


def test_the_permutation_also_carries_projection_weights_from_layout_to_layout():
    interleaved = weights(Attention(11, 3, Rotary(6), head_dim=6, value_dim=5)).double()
    half = Attention(11, 3, Rotary(6, layout="half-split"), head_dim=6, value_dim=5).double()
    half.load_state_dict(interleaved.state_dict())
    x, at, order = draw(2, 7, 11), At.of(positions_with_gaps(), causal=True), half_split_order(6)
    assert (half(x, at) - interleaved(x, at)).abs().max() > 1e-3
    for W in (half.W_Q, half.W_K):
        W.weight.data = W.weight.data.unflatten(0, (3, 6))[:, order].flatten(0, 1)
    close(half(x, at), interleaved(x, at))


@every_layout
@pytest.mark.parametrize("heads", [5, 3])  # 5 = n on purpose: a swapped axis would fit
def test_the_angle_runs_over_time_and_not_over_heads_or_batch(layout, heads):
    x, at = torch.ones(2, heads, 5, 8), At.sequence(5)
    q, k, _ = Rotary(8, layout=layout).transform(x, x, x, at)
    for y in (q, k):
        assert torch.equal(y[:, :, 0], x[:, :, 0])
        assert torch.equal(y, y[:1, :1].expand_as(y))
        assert all(not torch.equal(y[0, 0, i], y[0, 0, i + 1]) for i in range(4))


@every_layout
def test_a_later_call_gives_the_rows_of_one_long_call(layout):
    rotary, x = Rotary(8, layout=layout), draw(9, 8)
    whole = turn(rotary, x, torch.arange(9))
    assert torch.equal(turn(rotary, x[5:], torch.arange(5, 9)), whole[5:])
    assert not torch.equal(turn(rotary, x[5:], torch.arange(4)), whole[5:])
    turn(rotary, draw(5000, 8), torch.arange(5000))
    assert torch.equal(turn(rotary, x, torch.arange(9)), whole)


# values


@every_layout
def test_values_turn_at_the_keys_position_when_asked(layout):
    x = draw(2, 3, 7, 8)
    at = At.of(positions_with_gaps(2, 7) + 9, positions_with_gaps(2, 7))
    q, k, v = Rotary(8, layout=layout, values="absolute").transform(x, x, x, at)
    assert torch.equal(v, k) and not torch.equal(v, q)


@every_layout
@pytest.mark.parametrize("value_dim", [6, 9])
def test_values_may_be_wider_than_what_turns(layout, value_dim):
    q, v = draw(2, 3, 7, 8), draw(2, 3, 7, value_dim, seed=1)
    rotary = Rotary(8, width=6, layout=layout, values="absolute")
    new = rotary.transform(q, q, v, At.sequence(7))[2]
    assert torch.equal(new[..., 6:], v[..., 6:])
    expected = Rotary(6, layout=layout).transform(*[v[..., :6]] * 3, At.sequence(7))[1]
    close(new[..., :6], expected)


def outputs(rotary: Rotary, at: At) -> Tensor:
    a = torch.softmax(draw(2, 3, 5, 7, seed=3), -1)
    q, k, v = draw(2, 3, 5, 8), draw(2, 3, 7, 8, seed=1), draw(2, 3, 7, 9, seed=2)
    return rotary.mix(a, rotary.transform(q, k, v, at)[2], at)


@every_layout
def test_relative_values_are_turned_by_key_minus_query(layout):
    query, key = positions_with_gaps(2, 5), positions_with_gaps(2, 7)
    rotary = Rotary(8, layout=layout, values="relative")
    a, v = torch.softmax(draw(2, 3, 5, 7, seed=3), -1), draw(2, 3, 7, 9, seed=2)
    expected = torch.zeros(2, 3, 5, 9, dtype=torch.float64)
    for s in range(2):
        for h in range(3):
            for i in range(5):
                for j in range(7):
                    distance = int(key[s, j] - query[s, i])
                    row = naive(v[s, h, j].tolist(), distance, layout, 8, 10000.0)
                    expected[s, h, i] += a[s, h, i, j] * torch.tensor(row, dtype=torch.float64)
    close(outputs(rotary, At.of(query, key)), expected)


@pytest.mark.parametrize(
    ("values", "same"), [(None, True), ("relative", True), ("absolute", False)]
)
def test_only_absolute_values_tell_where_the_sequence_stands(values, same):
    query, key = positions_with_gaps(2, 5), positions_with_gaps(2, 7)
    rotary = Rotary(8, values=values)
    shift = outputs(rotary, At.of(query + 40, key + 40)) - outputs(rotary, At.of(query, key))
    assert bool(shift.abs().max() <= 1e-12) is same


# precision


@every_layout
@pytest.mark.parametrize(
    ("dtype", "worst", "autocast"),
    [
        (torch.float32, 1e-7, False),
        (torch.float16, 0.00025, False),
        (torch.bfloat16, 0.00196, False),
        (torch.float32, 1e-7, True),
        (torch.bfloat16, 0.00196, True),
    ],
)
def test_low_precision_rounds_cos_and_sin_and_not_the_angle(layout, dtype, worst, autocast):
    rotary, n = Rotary(64, layout=layout).to(dtype), 4096
    ones = torch.zeros(1, 1, n, 64, dtype=dtype)
    ones[..., [a for a, _ in pairs(64, layout)]] = 1  # so that a pair becomes (cos, sin)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        out = rotary.transform(ones, ones, ones, At.sequence(n))[0][0, 0]
    assert out.dtype == dtype
    a = torch.arange(n).double()[:, None] * torch.tensor(
        [10000 ** (-2 * i / 64) for i in range(32)], dtype=torch.float64
    )
    first, second = (list(channels) for channels in zip(*pairs(64, layout), strict=True))
    assert (out[:, first].double() - a.cos()).abs().max() <= worst
    assert (out[:, second].double() - a.sin()).abs().max() <= worst
    assert not torch.equal(out[256], out[257])


def test_float16_stands_positions_beyond_its_range():
    x = torch.ones(1, 1, 1, 8).half()
    q, _, _ = Rotary(8).half().transform(x, x, x, At.of(torch.tensor([[70_000]])))
    assert q.isfinite().all()


def test_the_score_of_far_positions_is_that_of_near_ones():
    q, k, rotary = draw(8), draw(8, seed=1), Rotary(8)
    near = turn(rotary, q, torch.tensor(7)) @ turn(rotary, k, torch.tensor(2))
    far = turn(rotary, q, torch.tensor(10**6 + 5)) @ turn(rotary, k, torch.tensor(10**6))
    close(far, near, 1e-8)


# learned frequencies


@pytest.mark.parametrize("options", [{}, {"base": 30.0}, {"width": 6, "layout": "half-split"}])
def test_learned_frequencies_start_as_the_fixed_ones_and_are_one_parameter(options):
    fixed, learned, x = Rotary(8, **options), Rotary(8, **options, learned=True), draw(7, 8)
    assert [tuple(p.shape) for p in learned.parameters()] == [(fixed.width // 2,)]
    close(turn(learned, x, torch.arange(7)), turn(fixed, x, torch.arange(7)), 1e-6)


def test_learned_frequencies_train():
    attention = weights(Attention(11, 3, Rotary(6, learned=True), head_dim=6))
    rotary, x, at = attention.encoding, draw(2, 7, 11, dtype=torch.float32), At.sequence(7)
    optimiser = torch.optim.SGD(attention.parameters(), lr=1e-3)
    losses, thetas = [], [rotary.theta.detach().clone()]
    for _ in range(3):
        optimiser.zero_grad()
        loss = attention(x, at).square().sum()
        loss.backward()
        assert (rotary.theta.grad != 0).all()
        optimiser.step()
        losses.append(float(loss.detach()))
        thetas.append(rotary.theta.detach().clone())
    assert losses[0] > losses[1] > losses[2]
    assert all(not torch.equal(a, b) for a, b in pairwise(thetas))
    # the angles follow the parameter: nothing is remembered from an earlier call
    close(rotary.angle(torch.tensor([[3]]))[0, 0, 0], 3 * thetas[-1])


def test_the_gradient_of_learned_frequencies_is_right():
    rotary, x = Rotary(4, learned=True).double(), draw(1, 2, 3, 4)
    q, k, _ = rotary.transform(x, x, x, At.sequence(3))
    (ours,) = torch.autograd.grad((q @ k.mT).square().sum(), rotary.theta)
    for i in range(2):
        values = []
        for step in (1e-6, -1e-6):
            moved = Rotary(4, learned=True).double()
            with torch.no_grad():
                moved.theta.copy_(rotary.theta)
                moved.theta[i] += step
                q, k, _ = moved.transform(x, x, x, At.sequence(3))
                values.append(float((q @ k.mT).square().sum()))
        assert float(ours[i]) == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-6)


# wrong input


X, SEQ = draw(2, 3, 7, 8), At.sequence(7)


def rotate_all(q: Tensor, k: Tensor, v: Tensor, at: At, **options) -> None:
    Rotary(8, **options).transform(q, k, v, at)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: Rotary(9), ValueError, "width must be an even .* width is 9 and head_dim is 9"),
        (lambda: Rotary(8, width=16), ValueError, "width is 16 and head_dim is 8"),
        (lambda: Rotary(8, width=3), ValueError, "width is 3 and head_dim is 8"),
        (lambda: Rotary(0), ValueError, "head_dim must be 1 or more, but is 0"),
        (lambda: Rotary(8, width=0), ValueError, "width must be 1 or more, but is 0"),
        (lambda: Rotary(8, width=-2), ValueError, "width must be 1 or more, but is -2"),
        (lambda: Rotary(8.0), TypeError, "head_dim must be a whole number, but is 8.0"),
        (lambda: Rotary("8"), TypeError, "head_dim must be a whole number, but is '8'"),
        (lambda: Rotary(8, base=0), ValueError, "base must be positive and finite, but is 0"),
        (lambda: Rotary(8, base=-3.0), ValueError, "base must be .* -3.0"),
        (lambda: Rotary(8, base=math.nan), ValueError, "base must be .* nan"),
        (lambda: Rotary(8, layout="halves"), ValueError, "layout must be .* 'halves'"),
        (lambda: Rotary(8, layout=None), ValueError, "layout must be .* None"),
        (lambda: Rotary(8, values=True), ValueError, "values must be .* True"),
        (lambda: half_split_order(5), ValueError, "width must be even, but is 5"),
        (lambda: half_split_order(-2), ValueError, "width must be 0 or more, but is -2"),
        (lambda: half_split_order(4.0), TypeError, "width must be a whole number, but is 4.0"),
        (lambda: rotate(draw(8), draw(3)), ValueError, r"x must have two channels .* 3 .*\(8,\)"),
        (lambda: rotate(draw(5), draw(2)), ValueError, r"two channels .*\(5,\)"),
        (lambda: rotate(draw(4), draw(2), "halves"), ValueError, "layout must be .* 'halves'"),
        (lambda: rotate(draw(4).long(), draw(2)), ValueError, "x must be of floats.*int64"),
        (lambda: rotate_all(X[..., :6], X, X, SEQ), ValueError, "q must have head_dim = 8"),
        (lambda: rotate_all(X, X[..., :6], X, SEQ), ValueError, "k must have head_dim = 8"),
        (lambda: rotate_all(X[0], X, X, SEQ), ValueError, r"q must be \(batch.*\(3, 7, 8\)"),
        (lambda: rotate_all(X, X[0], X, SEQ), ValueError, r"k must be \(batch.*\(3, 7, 8\)"),
        (lambda: rotate_all(*[draw(1, 8, 8)] * 3, At.sequence(8)), ValueError, r"q .*\(1, 8, 8\)"),
        # (batch, n, heads, head_dim), what other libraries use
        (lambda: rotate_all(*[X.transpose(1, 2)] * 3, SEQ), ValueError, r"q must be .*\(2, 7, 3"),
        (lambda: rotate_all(X, X, X, At.sequence(6)), ValueError, r"q must be .*\(1, 6\)"),
        (lambda: rotate_all(X, X[:, :, 1:], X, SEQ), ValueError, r"k must be .*\(2, 3, 6, 8\)"),
        (
            lambda: rotate_all(X, X, X, At.of(positions_with_gaps(3))),
            ValueError,
            r"q must be .*\(3, 7\), but has shape \(2,",
        ),
        (
            lambda: rotate_all(X, X, X[..., :6], SEQ, values="absolute"),
            ValueError,
            "v must have at least the 8 channels",
        ),
        (
            lambda: rotate_all(X, X, X[:, :, 1:], SEQ, values="absolute"),
            ValueError,
            r"v must be .*\(2, 3, 6, 8\)",
        ),
    ],
)
def test_wrong_input_is_named(call, error, says):
    with pytest.raises(error, match=says):
        call()
