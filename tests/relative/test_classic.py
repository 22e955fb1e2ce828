"""Shaw's rows and NEZHA's sinusoid for clipped distances, against triple loops."""

from __future__ import annotations

import math

import pytest
import torch
from tests.encodings import BATCH, HEAD_DIM, HEADS, VALUE_DIM, N, draw, positions_with_gaps, weights
from torch import Tensor

from posenc import At, Attention, Combined, Nezha, Rotary, Shaw, Sinusoidal
from posenc.probe.flaw import spread

QUERY, KEY = positions_with_gaps(BATCH, 6), positions_with_gaps(BATCH, N) + 1
Q, A = draw(BATCH, HEADS, 6, HEAD_DIM), draw(BATCH, HEADS, 6, N, seed=5)
K = draw(BATCH, HEADS, N, HEAD_DIM, seed=6)


def close(ours: Tensor, theirs: Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=atol)


def shaw(low: int = -2, high: int = 3, **widths) -> Shaw:
    return weights(Shaw(low, high, **widths).double())


def looped(rows: Tensor, low: int, high: int, at: At) -> tuple[Tensor, Tensor]:
    """Logits and values by a loop over every number: rows are (heads or 1, rows, width)."""
    logits = torch.zeros(BATCH, HEADS, at.query.shape[1], at.key.shape[1], dtype=torch.float64)
    values = torch.zeros(BATCH, HEADS, at.query.shape[1], rows.shape[-1], dtype=torch.float64)
    for b in range(BATCH):
        for h in range(HEADS):
            for i, m in enumerate(at.query[b % at.query.shape[0]].tolist()):
                for j, n in enumerate(at.key[b % at.key.shape[0]].tolist()):
                    row = rows[h % rows.shape[0], min(max(m - n, low), high) - low]
                    if rows.shape[-1] == HEAD_DIM:
                        logits[b, h, i, j] = Q[b, h, i] @ row / math.sqrt(HEAD_DIM)
                    values[b, h, i] += A[b, h, i, j] * row
    return logits, values


@pytest.mark.parametrize("heads", [None, HEADS])
@pytest.mark.parametrize(("low", "high"), [(-2, 3), (-5, 0), (0, 4), (0, 0), (-40, 50)])
def test_shaw_is_the_triple_loop(low, high, heads):
    encoding = shaw(low, high, head_dim=HEAD_DIM, value_dim=VALUE_DIM, heads=heads)
    at = At.of(QUERY, KEY)
    assert encoding.keys.shape == (heads or 1, high - low + 1, HEAD_DIM)
    close(encoding.position_logits(Q, K, at), looped(encoding.keys, low, high, at)[0])
    close(encoding.position_values(A, at), looped(encoding.values, low, high, at)[1])


@pytest.mark.parametrize("variant", ["paper", "code"])
def test_nezha_is_the_triple_loop_with_the_sinusoid_of_j_minus_i(variant):
    encoding, at = Nezha(HEAD_DIM, 3, variant=variant), At.of(QUERY, KEY)
    rows = torch.zeros(1, 7, HEAD_DIM, dtype=torch.float64)
    for distance in range(-3, 4):
        place = -distance if variant == "paper" else -distance + 3
        for c in range(HEAD_DIM):
            angle = place / 10000 ** (c // 2 * 2 / HEAD_DIM)
            rows[0, distance + 3, c] = math.sin(angle) if c % 2 == 0 else math.cos(angle)
    close(encoding.key_rows(torch.device("cpu")), rows)
    close(encoding.position_logits(Q, K, at), looped(rows, -3, 3, at)[0])
    close(encoding.position_values(A, at), looped(rows, -3, 3, at)[1])


def test_the_index_table_of_five_tokens_clipped_at_two():
    """The table of the paper, whose distances are key minus query, read backwards."""
    theirs = [[2, 3, 4, 4, 4], [1, 2, 3, 4, 4], [0, 1, 2, 3, 4], [0, 0, 1, 2, 3], [0, 0, 0, 1, 2]]
    encoding = shaw(-2, 2, head_dim=HEAD_DIM)
    assert (4 - encoding.index(At.sequence(5))[0]).tolist() == theirs
    decode = At.of(torch.tensor([[4]]), torch.arange(5)[None], causal=True)
    assert (4 - encoding.index(decode)[0]).tolist() == [[0, 0, 0, 1, 2]]
    assert encoding.index(At.sequence(1)).tolist() == [[[2]]]


def test_every_row_gets_a_gradient_and_there_are_no_others():
    encoding = shaw(-2, 2, head_dim=HEAD_DIM, value_dim=HEAD_DIM)
    layer = Attention(6, HEADS, encoding, head_dim=HEAD_DIM).double()
    layer(draw(1, 5, 6), At.sequence(5)).square().sum().backward()
    for table in (encoding.keys, encoding.values):
        assert table.shape[1] == 5 and (table.grad != 0).any(-1).all()


def test_distances_beyond_the_clip_share_a_row():
    encoding = shaw(-2, 3, head_dim=HEAD_DIM)
    at = At.of(torch.tensor([[50]]), torch.tensor([[0, 7, 47, 48, 52, 53, 90]]))
    rows = encoding.index(at)[0, 0].tolist()
    assert rows == [5, 5, 5, 4, 0, 0, 0]


def test_a_reversed_text_is_a_reversed_table():
    encoding, at = shaw(-3, 3, head_dim=HEAD_DIM), At.sequence(6)
    before = encoding.position_logits(Q, K, at)
    with torch.no_grad():
        encoding.keys.copy_(encoding.keys.flip(1))
    close(encoding.position_logits(Q.flip(2), K, at).flip(2, 3), before)


def test_no_tensor_has_an_entry_for_each_pair_and_channel():
    """Peak size of what is made on the way, against n · n · head_dim."""
    n, dim = 64, 32
    encoding = Shaw(-4, 4, head_dim=dim, value_dim=dim)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, tuple) else (out,):
                if isinstance(tensor, Tensor):
                    largest = max(largest, tensor.numel())
            return out

    at = At.sequence(n)
    with Watch():
        encoding.position_logits(torch.randn(1, 2, n, dim), torch.randn(1, 2, n, dim), at)
        encoding.position_values(torch.rand(1, 2, n, n), at)
    assert largest <= 2 * n * n


@pytest.mark.parametrize("n", [2, 5, 40])
def test_one_row_on_each_side_of_the_values_counts(n):
    """Equal tokens under equal weights: o_i moves by (R_high − R_low)/n from place to place."""
    encoding = shaw(-1, 1, value_dim=VALUE_DIM)
    a = torch.full((1, 1, n, n), 1 / n, dtype=torch.float64)
    o = encoding.position_values(a, At.sequence(n))[0, 0]
    step = (encoding.values[0, 2] - encoding.values[0, 0]) / n
    close(o.diff(dim=0), step.expand(n - 1, -1))
    assert spread(o[None]) > 1e-3


def test_nezha_code_and_paper_are_one_model_up_to_a_rotation():
    """Queries, keys, values and outputs turned by M_high."""
    M, at = Sinusoidal(HEAD_DIM).shift(3), At.of(QUERY, KEY)
    paper, code = Nezha(HEAD_DIM, 3), Nezha(HEAD_DIM, 3, variant="code")
    close(code.score(Q, K, at), paper.score(Q @ M.T, K @ M.T, at))
    v = draw(BATCH, HEADS, N, HEAD_DIM, seed=8)
    close(code.mix(A, v, at), paper.mix(A, v @ M.T, at) @ M)
    assert (code.score(Q, K, at) - paper.score(Q, K, at)).abs().max() > 0.1


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: Shaw(1, 2, head_dim=4), ValueError, "-low must be 0 or more, but is -1"),
        (lambda: Shaw(-1, -1, head_dim=4), ValueError, "high must be 0 or more, but is -1"),
        (lambda: Shaw(-1.5, 1, head_dim=4), TypeError, "-low must be a whole number, but is"),
        (lambda: Shaw(-1, 1), ValueError, "give head_dim .* value_dim .* or both"),
        (lambda: Shaw(-1, 1, head_dim=0), ValueError, "head_dim must be 1 or more, but is 0"),
        (lambda: Shaw(-1, 1, value_dim=4, heads=0), ValueError, "heads must be 1 or more"),
        (
            lambda: Shaw(-1, 1, value_dim=4, std=-1),
            ValueError,
            "std must be 0 or more and finite, but is -1",
        ),
        (lambda: Nezha(4, variant="official"), ValueError, "variant must be .*'official'"),
        (lambda: Shaw(-1, 1, value_dim=4, std=math.inf), ValueError, "finite, but is inf"),
        (lambda: Nezha(4, "64"), TypeError, "high must be a whole number, but is '64'"),
        (
            lambda: shaw(head_dim=HEAD_DIM).position_logits(Q[0], K[0], At.of(QUERY, KEY)),
            ValueError,
            r"q must have four axes, of floats, but is \(3, 6, 4\)",
        ),
        (
            lambda: shaw(head_dim=HEAD_DIM).position_logits(Q.long(), K, At.of(QUERY, KEY)),
            ValueError,
            "q must have four axes, of floats, but is .* torch.int64",
        ),
        (
            lambda: shaw(head_dim=HEAD_DIM).position_logits(Q, K, At.of(QUERY[:, :1], KEY)),
            ValueError,
            "one row for each of the 1 queries, but has 6",
        ),
        (
            lambda: Attention(12, 3, Shaw(-1, 1, value_dim=1))(
                torch.zeros(1, 5, 12), At.sequence(5)
            ),
            ValueError,
            r"position values must be .*\(1, 3, 5, 4\) like the values, but are \(1, 3, 5, 1\)",
        ),
        (lambda: Nezha(0), ValueError, "dim must be 1 or more, but is 0"),
        (
            lambda: shaw(head_dim=5).position_logits(Q, K, At.of(QUERY, KEY)),
            ValueError,
            "q must be 5 wide like the rows, but is 4",
        ),
        (
            lambda: shaw(head_dim=HEAD_DIM, heads=2).position_logits(Q, K, At.of(QUERY, KEY)),
            ValueError,
            "q must have 2 heads like the rows, but has 3",
        ),
        (
            lambda: shaw(value_dim=VALUE_DIM, heads=2).position_values(A, At.of(QUERY, KEY)),
            ValueError,
            "weights must have 2 heads like the rows, but has 3",
        ),
    ],
)
def test_wrong_input_is_named(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_rows_start_near_zero_and_nezha_ends_at_64():
    torch.manual_seed(0)
    table = Shaw(-500, 500, head_dim=64).keys
    assert abs(table.mean()) < 1e-3 and abs(table.std() - 0.02) < 1e-3
    assert (Shaw(-1, 1, head_dim=4, std=0).keys == 0).all()
    assert Nezha(4).low == -64 and Nezha(4).high == 64
    assert repr(Shaw(-1, 2, head_dim=4)) == "Shaw(low=-1, high=2)"
    assert repr(Nezha(4, 5)) == "Nezha(\n  4, high=5, variant='paper'\n  (sinusoid): " + (
        repr(Sinusoidal(4)) + "\n)"
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_thousands_of_small_weights_are_not_lost_in_half_precision(dtype):
    n = 4096
    encoding = Shaw(-1, 1, value_dim=1, std=0.0).to(dtype)
    torch.nn.init.ones_(encoding.values)
    at = At.of(torch.tensor([[n]]), torch.arange(n)[None])
    o = encoding.position_values(torch.full((1, 1, 1, n), 1 / n, dtype=dtype), at)
    assert o.dtype == dtype and abs(o.float().item() - 1) < 1e-2


def test_rows_on_the_keys_under_rope_are_not_relative_and_rows_on_the_values_are():
    """The rows meet queries that are turned already: a documented effect, pinned here."""
    x, positions = draw(1, N, HEADS * HEAD_DIM), positions_with_gaps(1)
    for widths, relative in (({"head_dim": HEAD_DIM}, False), ({"value_dim": HEAD_DIM}, True)):
        both = Combined(Rotary(HEAD_DIM, values="relative"), shaw(-2, 2, **widths))
        layer = weights(Attention(HEADS * HEAD_DIM, HEADS, both)).double()
        change = (layer(x, At.of(positions + 37)) - layer(x, At.of(positions))).abs().max()
        assert change <= 1e-12 if relative else change > 1e-3
