"""The row-sum theorem as a certificate, its exceptions, and the floors against brute force."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from tests.encodings import (
    ALL_NORMALISERS,
    DIM,
    ENCODINGS,
    HEAD_DIM,
    HEADS,
    READS_NEIGHBOURS,
    RELATIVE,
    draw,
    weights,
)
from torch import Tensor

from posenc import At, Encoding, Rotary, Transformer
from posenc.probe.flaw import floors, spread

every_normaliser = pytest.mark.parametrize("normaliser", ALL_NORMALISERS)
causal_or_not = pytest.mark.parametrize("causal", [False, True])
sizes = pytest.mark.parametrize(("n", "seed"), [(2, 0), (5, 10), (16, 20), (33, 30)])

# the theorem: rows of attention sum to 1, and neither inputs nor values carry position
ON_VALUES = {"rotary values relative", "shaw", "shaw values", "nezha", "nezha code"}
ON_LOGITS = {"tupe", "tupe relative", "tupe tied"}  # absolute, and bound all the same
BOUND = sorted((RELATIVE | ON_LOGITS) - READS_NEIGHBOURS - ON_VALUES)
FREE = sorted(set(ENCODINGS) - set(BOUND))


def answer(
    encoding: Encoding, n: int, *, normaliser: str = "softmax", causal: bool = False, seed: int = 0
) -> Tensor:
    """What a model with random weights reads from n copies of token 1: (2, n, 3)."""
    model = Transformer(2, DIM, HEADS, 3, encoding, ALL_NORMALISERS[normaliser](), outputs=3)
    model = weights(model, seed).double().eval()
    return model(torch.ones(2, n, dtype=torch.int64), At.sequence(n, causal=causal)).detach()


@pytest.mark.parametrize("name", BOUND)
@causal_or_not
@sizes
def test_rows_that_sum_to_1_tell_no_position_apart(name, causal, n, seed):
    assert (spread(answer(ENCODINGS[name](), n, causal=causal, seed=seed)) <= 1e-12).all()


@pytest.mark.parametrize("name", FREE)
@causal_or_not
def test_position_in_the_input_or_the_values_is_not_bound(name, causal):
    assert (spread(answer(ENCODINGS[name](), 5, causal=causal)) > 1e-6).all()


@pytest.mark.parametrize("normaliser", [n for n in ALL_NORMALISERS if n != "softmax"])
@causal_or_not
@sizes
def test_rows_that_do_not_sum_to_1_are_not_bound(normaliser, causal, n, seed):
    y = answer(Rotary(HEAD_DIM), n, normaliser=normaliser, causal=causal, seed=seed)
    assert (spread(y) > 1e-6).all()


@every_normaliser
@sizes
def test_without_an_encoding_and_an_order_nothing_tells_positions_apart(normaliser, n, seed):
    y = answer(Encoding(), n, normaliser=normaliser, seed=seed)
    assert (spread(y) <= 1e-12).all()


@every_normaliser
def test_causal_order_alone_counts_unless_a_row_sum_is_constant(normaliser):
    y = answer(Encoding(), 7, normaliser=normaliser, causal=True)
    # equal logits: the row sums of these three are 1, e^b and relu(b)² at every position
    constant = normaliser in ("softmax", "exp/n visible", "relu2/n visible")
    assert (spread(y) <= 1e-12).all() if constant else (spread(y) > 1e-6).all()


# the spread


def test_the_spread_is_the_largest_over_outputs_and_one_for_each_batch():
    y = torch.tensor([[[0.0, 5.0], [3.0, 4.0], [1.0, 5.0]], [[0.0, -9.0], [1.0, 0.0], [0.5, 2.0]]])
    assert spread(y).tolist() == [3.0, 11.0]
    assert spread(y[0]).tolist() == 3.0
    assert spread(y[:, :1]).tolist() == [0.0, 0.0]


def test_the_spread_of_nan_is_nan_and_never_a_certificate():
    y = draw(5, 2)
    y[3, 1] = math.nan
    assert not spread(y) <= 1e-12


@pytest.mark.parametrize("shape", [(3,), (0, 3), (3, 0)])
def test_a_spread_over_nothing_is_refused(shape):
    with pytest.raises(ValueError, match=r"y must be \(…, n, outputs\)"):
        spread(torch.zeros(shape))


def test_a_spread_of_no_tensor_is_refused():
    with pytest.raises(TypeError, match="y must be a Tensor, but is of type list"):
        spread([[1.0]])


# the floors


@pytest.mark.parametrize("n", [1, 2, 5, 16])
def test_no_constant_has_a_smaller_squared_error(n):
    targets = torch.arange(1, n + 1, dtype=torch.float64)
    grid = torch.linspace(0, n + 1, 20 * (n + 1) + 1, dtype=torch.float64)  # holds (n + 1)/2
    for scale, floor in ((1, floors(n).squared_error), (n, floors(n).scaled_squared_error)):
        errors = (grid[:, None] / scale - targets / scale).square().mean(-1)
        assert float(errors.min()) == pytest.approx(floor, abs=1e-12)
        assert float(grid[errors.argmin()]) == pytest.approx((n + 1) / 2, abs=0.05)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_no_distribution_has_a_smaller_cross_entropy_and_none_is_more_accurate(n):
    floor, steps, best = floors(n), 12, math.inf  # 12 is a multiple of 1 … 4
    for counts in itertools.product(range(steps + 1), repeat=n):
        if sum(counts) != steps:
            continue
        p = [c / steps for c in counts]
        entropy = math.inf if 0 in p else -sum(map(math.log, p)) / n
        best = min(best, entropy)
        guess = p.index(max(p))
        assert sum(guess == i for i in range(n)) / n == floor.accuracy
    assert best == pytest.approx(floor.cross_entropy, abs=1e-12)


def test_the_floors_of_the_probe():
    assert floors(16) == pytest.approx((21.25, 21.25 / 256, 2.772588722, 0.0625))
    assert floors(1) == (0, 0, 0, 1)


@pytest.mark.parametrize(
    ("n", "error", "says"),
    [
        (0, ValueError, "n must be 1 or more, but is 0"),
        (-3, ValueError, "n must be 1 or more, but is -3"),
        (2.5, TypeError, "n must be a whole number, but is 2.5"),
        ("3", TypeError, "n must be a whole number, but is '3'"),
        (None, TypeError, "n must be a whole number, but is None"),
    ],
)
def test_wrong_lengths_are_named(n, error, says):
    with pytest.raises(error, match=says):
        floors(n)
