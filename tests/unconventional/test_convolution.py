"""Zero padding: the convolution against a loop, what leaks from the border, and reading it off."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats
from tests.encodings import draw, weights
from torch import Tensor

from posenc import At, Attention, Convolution, Transformer
from posenc.unconventional.convolution import (
    distinct,
    layers,
    rank_correlation,
    read,
    read_out,
)

BATCH, N, DIM = 2, 9, 5
X, PLACES = draw(BATCH, N, DIM), torch.arange(N)[None]


def close(ours: Tensor, theirs: Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=atol)


def convolution(kernel: int = 3, **choices) -> Convolution:
    return weights(Convolution(DIM, kernel, **choices).double())


@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 5, 12])
@pytest.mark.parametrize("causal", [False, True])
def test_the_convolution_is_the_loop(kernel, causal):
    encoding = convolution(kernel, causal=causal)
    first = -(kernel - 1) if causal else -((kernel - 1) // 2)
    expected = torch.zeros_like(X)
    for b in range(BATCH):
        for k in range(N):
            for c in range(DIM):
                total = X[b, k, c] + encoding.bias[c]
                for r in range(kernel):
                    if 0 <= k + first + r < N:
                        total = total + encoding.weight[r, c] * X[b, k + first + r, c]
                expected[b, k, c] = total
    y = encoding.embed(X, PLACES)
    assert y.shape == X.shape
    close(y, expected.detach())


@pytest.mark.parametrize("kernel", [3, 4])
@pytest.mark.parametrize("left", [0, 3])
def test_a_padded_text_gives_what_it_gives_alone(kernel, left):
    encoding, alone = convolution(kernel), X[:, :7]
    row, real = draw(BATCH, 12, DIM, seed=4), torch.zeros(1, 12, dtype=torch.bool)
    row[:, left : left + 7], real[:, left : left + 7] = alone, True
    padded = encoding.embed(row, torch.arange(12)[None], real)[:, left : left + 7]
    close(padded, encoding.embed(alone, torch.arange(7)[None]))


def test_a_causal_convolution_sees_nothing_ahead():
    encoding, changed = convolution(4, causal=True), X.clone()
    changed[:, 5:] += 1
    before, after = (encoding.embed(x, PLACES) for x in (X, changed))
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.equal(convolution(3).embed(X, PLACES)[:, :5], after[:, :5])


def test_positions_are_not_looked_at():
    encoding = convolution()
    assert torch.equal(encoding.embed(X, PLACES), encoding.embed(X, 3 * PLACES + 40))


def test_identical_tokens_differ_where_the_kernel_reaches_an_end_and_nowhere_else():
    torch.manual_seed(0)
    model = Transformer(2, 12, 3, 2, Convolution(12, 5), outputs=3).double()
    y = model(torch.ones(1, 11, dtype=torch.int64), At.sequence(11))[0].T.detach()
    assert distinct(y) == 5
    close(y[:, 2:9], y[:, 5:6].expand(-1, 7))


def test_it_starts_small_and_says_what_it_is():
    torch.manual_seed(0)
    encoding = Convolution(4000, 9)
    assert abs(encoding.weight.std() - 1 / 3) < 0.01 and (encoding.bias == 0).all()
    assert (Convolution(4, std=0).weight == 0).all()
    assert repr(Convolution(4, 2, causal=True)) == "Convolution(4, kernel=2, causal=True)"


# networks


def columns(x: Tensor, depth: int, seed: int = 0, **choices) -> Tensor:
    torch.manual_seed(seed)
    return layers(x.shape[1], depth, **choices).double()(x)[0]


ONES, ZEROS = torch.ones(1, 6, 31).double(), torch.zeros(1, 6, 31).double()


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_columns_are_as_many_as_the_border_reaches(depth, kernel, seed):
    reach = depth * (kernel // 2)
    build = {"depth": depth, "kernel": kernel, "seed": seed}
    assert distinct(columns(ONES, **build)) == 2 * reach + 1
    assert distinct(columns(ONES, bias=False, **build)) == 2 * reach + 1
    assert distinct(columns(ZEROS, **build)) == 2 * (reach - kernel // 2) + 1
    assert distinct(columns(ZEROS, bias=False, **build)) == 1
    for padding in ("circular", "reflect", "replicate", "none"):
        assert distinct(columns(ONES, padding=padding, **build)) == 1
    mirrored = columns(ONES, mirrored=True, **build)
    assert distinct(mirrored) == reach + 1
    close(mirrored, mirrored.flip(-1))


def test_the_inner_columns_are_the_ones_that_are_equal():
    y = columns(ONES, 3)
    close(y[:, 3:-3], y[:, 15:16].expand(-1, 25))
    assert ((y[:, :3] - y[:, 15:16]).abs().max(0).values > 1e-6).all()


def test_layers_without_padding_are_narrower_and_frozen():
    net = layers(4, 3, 5, padding="none")
    assert net(torch.zeros(2, 4, 20)).shape == (2, 4, 8)
    assert not any(p.requires_grad for p in net.parameters())
    assert layers(4, 2, dims=2)(torch.zeros(2, 4, 6, 7)).shape == (2, 4, 6, 7)
    assert len(layers(4, 3)) == 6


def test_distinct_counts_up_to_the_tolerance():
    assert distinct(torch.tensor([[1.0, 1.0, 2.0, 1.0 + 1e-12], [0.0, 0.0, 0.0, 0.0]])) == 2
    assert distinct(torch.tensor([[1.0, 1.1, 1.3]]), tolerance=0.15) == 2
    assert distinct(torch.zeros(3, 0)) == 0


# reading


def test_read_out_finds_a_map_that_is_linear_in_the_features():
    features = draw(3, 4, 6, 7)
    features[:, 2] = torch.linspace(-1, 1, 7).double()  # the ramp itself, in one channel
    target = 5 + 2 * torch.linspace(-1, 1, 7).double().expand(6, 7)
    found = read_out(features, target, ridge=0.0)
    close(found, torch.tensor([0, 0, 2, 0, 5]).double(), 1e-9)
    close(read(features, found), target.expand(3, 6, 7), 1e-9)
    assert read_out(features, target, ridge=10.0).norm() < found.norm()


@pytest.mark.parametrize("ties", [False, True])
def test_rank_correlation_is_spearmans(ties):
    a, b = draw(40), draw(40, seed=1)
    b = b + 0.5 * a
    if ties:
        a, b = (2 * a).round(), (2 * b).round()
    ours = rank_correlation(a.view(5, 8), b.view(5, 8))
    assert math.isclose(ours, stats.spearmanr(a, b).statistic, abs_tol=1e-12)
    assert math.isclose(rank_correlation(a, -(a**3)), -1)


def test_random_networks_hold_a_map_with_zeros_and_none_without():
    target, found = torch.linspace(0, 1, 16).expand(16, 16), {}
    for padding in ("zeros", "circular", "reflect", "replicate"):
        torch.manual_seed(0)
        net, images = layers(8, 6, padding=padding, dims=2), torch.zeros(18, 8, 16, 16)
        images[:, 0] = 2 * torch.rand(18, 16, 16) - 1
        features = net(images)
        maps = read(features[12:], read_out(features[:12], target))
        found[padding] = sum(rank_correlation(m, target) for m in maps) / 6
    assert found.pop("zeros") > 0.5
    assert all(abs(value) < 0.25 for value in found.values())


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: Convolution(0), ValueError, "dim must be 1 or more, but is 0"),
        (lambda: Convolution(4, 0), ValueError, "kernel must be 1 or more, but is 0"),
        (lambda: Convolution(4, 2.5), TypeError, "kernel must be a whole number, but is 2.5"),
        (lambda: Convolution(4, std=-1), ValueError, "std must be 0 or more and finite"),
        (
            lambda: convolution().embed(X[..., :4], PLACES),
            ValueError,
            r"x must be \(batch, n, 5\) of floats",
        ),
        (
            lambda: convolution().embed(X, PLACES, torch.ones(1, 3, dtype=torch.bool)),
            ValueError,
            r"mask must be \(2 or 1, 9\) bool, but is \(1, 3\)",
        ),
        (
            lambda: convolution().embed(X, PLACES, torch.ones(1, N)),
            ValueError,
            "mask must be .* but is .* torch.float32",
        ),
        (
            lambda: Transformer(2, 6, 1, 1, Convolution(6))(
                torch.ones(1, 2, dtype=torch.int64), At.sequence(2), cache=[]
            ),
            ValueError,
            "looks at neighbouring tokens needs the whole sequence",
        ),
        (lambda: layers(4, 1, 4), ValueError, "kernel must be odd, but is 4"),
        (lambda: layers(4, 0), ValueError, "depth must be 1 or more, but is 0"),
        (lambda: layers(4, 1, padding="same"), ValueError, "one of zeros, .* but is 'same'"),
        (lambda: layers(4, 1, dims=3), ValueError, "dims must be 1 or 2, but is 3"),
        (lambda: distinct(torch.zeros(3)), ValueError, r"must be \(channels, n\), but .* \(3,\)"),
        (
            lambda: rank_correlation(torch.zeros(3), torch.zeros(4)),
            ValueError,
            r"one shape, but have \(3,\) and \(4,\)",
        ),
    ],
)
def test_wrong_input_is_named(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_attention_never_runs_it():
    """`embed` is a model's to run: attention alone does not know of it."""
    x = draw(1, 4, 6)
    torch.manual_seed(0)
    with_it = Attention(6, 2, Convolution(6)).double()
    torch.manual_seed(0)
    Convolution(6)
    without = Attention(6, 2).double()
    without.load_state_dict(with_it.state_dict(), strict=False)
    assert torch.equal(with_it(x, At.sequence(4)), without(x, At.sequence(4)))
