"""The sinusoid: the paper's formula, its layouts, and its rotation from position to position."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.encodings import draw, positions_with_gaps
from torch import Tensor

from posenc import Encoding, Sinusoidal
from posenc.unconventional.rotary import rotate


def table(encoding: Sinusoidal, n: int) -> Tensor:
    return encoding.vectors(torch.arange(n))


def close(ours: Tensor, numbers: list[float] | Tensor, atol: float = 1e-6) -> None:
    expected = torch.as_tensor(numbers, dtype=ours.dtype)
    torch.testing.assert_close(ours, expected, rtol=0, atol=atol)


@pytest.mark.parametrize(
    ("dim", "position", "expected"),
    [
        (8, 3, [0.141120, -0.989992, 0.295520, 0.955336, 0.029996, 0.999550, 0.003000, 0.999996]),
        (5, 0, [0, 1, 0, 1, 0]),
        (5, 1, [0.841471, 0.540302, 0.025116, 0.999685, 0.000631]),
        (1, 1, [0.841471]),
    ],
)
def test_known_rows(dim, position, expected):
    close(table(Sinusoidal(dim), position + 1)[position], expected)


@pytest.mark.parametrize("dim", [1, 2, 5, 8])
@pytest.mark.parametrize("base", [10000.0, 17.0])
def test_channels_are_the_formula(dim, base):
    positions = positions_with_gaps(2, 5)
    for layout in ("interleaved", "halves"):
        p = Sinusoidal(dim, layout=layout, base=base).vectors(positions)
        assert p.dtype == torch.float64
        for c in range(dim):
            i = c // 2 if layout == "interleaved" else c % math.ceil(dim / 2)
            sine = c % 2 == 0 if layout == "interleaved" else c < math.ceil(dim / 2)
            a = positions.double() * base ** (-2 * i / dim)
            close(p[..., c], a.sin() if sine else a.cos(), 1e-12)


@pytest.mark.parametrize("dim", [1, 5, 8])
def test_halves_are_a_permutation_of_interleaved_channels(dim):
    order = [*range(0, dim, 2), *range(1, dim, 2)]
    assert torch.equal(
        table(Sinusoidal(dim, layout="halves"), 50), table(Sinusoidal(dim), 50)[:, order]
    )


@given(p=st.integers(0, 5000), k=st.integers(0, 5000), dim=st.sampled_from([2, 4, 10]))
def test_one_rotation_takes_every_position_to_the_one_k_later(p, k, dim):
    sinusoid = Sinusoidal(dim)
    before, after = sinusoid.vectors(torch.tensor([p, p + k])).unflatten(-1, (-1, 2))
    a = k * torch.tensor([10000 ** (-2 * i / dim) for i in range(dim // 2)], dtype=torch.float64)
    sin, cos = before.unbind(-1)
    turned = torch.stack((sin * a.cos() + cos * a.sin(), cos * a.cos() - sin * a.sin()), -1)
    close(after, turned, 1e-10)
    close(before.square().sum(-1), torch.ones(dim // 2), 1e-12)


@pytest.mark.parametrize("batch", [6, 2])  # 6 = n on purpose: a swapped axis would fit
def test_position_runs_over_the_second_axis(batch):
    out = Sinusoidal(8).embed(torch.zeros(batch, 6, 8), torch.arange(6)[None])
    for s in range(batch):
        assert torch.equal(out[s], table(Sinusoidal(8), 6).float())
    assert not torch.equal(out[0, 0], out[0, 1])


def test_rows_of_the_batch_may_stand_at_different_positions():
    x, positions, sinusoid = draw(2, 7, 8), positions_with_gaps(), Sinusoidal(8)
    expected = torch.stack([x[s] + table(sinusoid, 60)[positions[s]] for s in range(2)])
    close(sinusoid.embed(x, positions), expected, 1e-12)


def test_there_is_no_longest_length():
    sinusoid, far = Sinusoidal(8), 10**6
    row = [f(far * 10000 ** (-2 * i / 8)) for i in range(4) for f in (math.sin, math.cos)]
    close(sinusoid.vectors(torch.tensor([far]))[0], row, 1e-9)
    short = table(sinusoid, 3)
    table(sinusoid, 5000)
    assert torch.equal(table(sinusoid, 3), short)


@pytest.mark.parametrize(
    ("dtype", "worst"),
    [(torch.bfloat16, 0.00196), (torch.float16, 0.00025), (torch.float32, 1e-7)],
)
def test_low_precision_rounds_the_result_and_not_the_angle(dtype, worst):
    sinusoid, n = Sinusoidal(64).to(dtype), 4096
    out = sinusoid.embed(torch.zeros(1, n, 64, dtype=dtype), torch.arange(n)[None])[0]
    assert out.dtype == dtype
    assert (out.double() - table(sinusoid, n)).abs().max() <= worst
    assert not torch.equal(out[256], out[257])


def test_float16_stands_positions_beyond_its_range():
    out = Sinusoidal(8).half().embed(torch.zeros(1, 1, 8).half(), torch.tensor([[70_000]]))
    assert out.isfinite().all()


def test_the_input_gets_the_gradient_unchanged():
    x = draw(2, 7, 8).requires_grad_()
    Sinusoidal(8).embed(x, positions_with_gaps()).sum().backward()
    assert (x.grad == 1).all()


def test_only_embed_is_changed():
    stages = ["embed", "transform", "score", "scale", "position_logits", "mix", "undo"]
    stages += ["position_values"]
    changed = [s for s in stages if getattr(Sinusoidal, s) is not getattr(Encoding, s)]
    assert changed == ["embed"]


X, P = draw(2, 7, 8), positions_with_gaps()


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: Sinusoidal(0), ValueError, "dim must be 1 or more, but is 0"),
        (lambda: Sinusoidal(-3), ValueError, "dim must be 1 or more, but is -3"),
        (lambda: Sinusoidal(2.5), TypeError, "dim must be a whole number, but is 2.5"),
        (lambda: Sinusoidal("8"), TypeError, "dim must be a whole number, but is '8'"),
        (lambda: Sinusoidal(8, base=0), ValueError, "base must be positive and finite, but is 0"),
        (lambda: Sinusoidal(8, base=math.nan), ValueError, "base must be .* nan"),
        (lambda: Sinusoidal(8, base=math.inf), ValueError, "base must be .* inf"),
        (lambda: Sinusoidal(8, layout="half-split"), ValueError, "layout must be .*'half-split'"),
        (lambda: Sinusoidal(8, layout=None), ValueError, "layout must be .*None"),
        (lambda: Sinusoidal(6).embed(X, P), ValueError, r"x must be \(batch, n, 6\).*\(2, 7, 8\)"),
        (lambda: Sinusoidal(8).embed(X[0], P[:1]), ValueError, r"x must be .*\(7, 8\)"),
        (lambda: Sinusoidal(8).embed(X.long(), P), ValueError, "x must be .*floats.*int64"),
        (lambda: Sinusoidal(8).embed(X, P[:, :1]), ValueError, r"positions must be .*\(2, 1\)"),
        (lambda: Sinusoidal(8).embed(X, P[0]), ValueError, r"positions must be .*\(7,\)"),
        (lambda: Sinusoidal(8).embed(X[:1], P), ValueError, r"positions must be \(1 or 1, 7\)"),
    ],
)
def test_wrong_input_is_named(call, error, says):
    with pytest.raises(error, match=says):
        call()


@pytest.mark.parametrize("dim", [2, 3, 8, 9])
@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_the_tensor2tensor_variant_ends_at_one_over_the_base(dim, layout):
    sinusoid = Sinusoidal(dim, variant="tensor2tensor", layout=layout, base=100.0)
    theta = sinusoid.frequencies()
    half = dim // 2
    expected = [100.0 ** (-l / max(half - 1, 1)) for l in range(half)]  # noqa: E741
    close(theta, expected, 1e-15)
    p = table(sinusoid, 11)
    assert p.shape == (11, dim)
    sines = p[:, 0 : 2 * half : 2] if layout == "interleaved" else p[:, :half]
    close(sines, (torch.arange(11)[:, None] * theta).sin(), 1e-12)
    assert dim % 2 == 0 or (p[:, -1] == 0).all()  # as there, an odd width ends with zeros


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("variant", ["paper", "tensor2tensor"])
def test_one_matrix_moves_every_position(layout, variant):
    sinusoid = Sinusoidal(10, layout=layout, variant=variant)
    moves = {k: sinusoid.shift(k) for k in (-4, 3, 5, 8)}
    m = torch.tensor([7, 20, 4, 300])
    for k, M in moves.items():
        close(sinusoid.vectors(m) @ M, sinusoid.vectors(m + k), 1e-12)
        close(M @ M.T, torch.eye(10), 1e-12)
    close(moves[3] @ moves[5], moves[8], 1e-12)
    close(sinusoid.shift(-8), moves[8].T, 1e-12)


def test_moving_is_rotary_backwards():
    """(sin, cos) in place of (cos, sin) reverses the sense of the rotation."""
    x = draw(3, 6)
    angle = 5 * Sinusoidal(6).frequencies()
    close(x @ Sinusoidal(6).shift(5), rotate(x, -angle), 1e-12)


def test_an_odd_width_cannot_be_moved():
    with pytest.raises(ValueError, match="dim must be even to be moved, but is 5"):
        Sinusoidal(5).shift(1)


def test_inner_products_know_the_distance_and_not_the_side():
    p = table(Sinusoidal(12), 40)
    gram = p @ p.T
    for distance in (1, 7, 20):
        diagonal = gram.diagonal(distance)
        close(diagonal, diagonal[:1].expand_as(diagonal), 1e-12)
        close(diagonal[0], (distance * Sinusoidal(12).frequencies()).cos().sum(), 1e-12)
    close(p.square().sum(-1), torch.full((40,), 6.0), 1e-12)


def test_a_generic_map_in_between_spoils_that():
    p = table(Sinusoidal(12), 40)
    diagonal = (p @ draw(12, 12) @ p.T).diagonal(7)
    assert diagonal.max() - diagonal.min() > 0.1


def test_the_inner_product_is_not_monotone():
    """The numbers that the chapter prints, for d = 128."""
    f = (torch.arange(2000)[:, None] * Sinusoidal(128).frequencies()).cos().sum(-1)
    close(f[:5], [64, 62.0937, 57.3819, 52.1862, 48.5860], 1e-4)
    assert int((f.diff() > 0).nonzero()[0]) == 11 and int((f < 0).nonzero()[0]) == 1707
