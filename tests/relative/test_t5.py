"""T5's buckets in exact numbers, ALiBi's slopes, TUPE's own projections, all against loops."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from tests.encodings import BATCH, DIM, HEAD_DIM, HEADS, N, draw, positions_with_gaps, weights
from torch import Tensor

from posenc import T5, TUPE, ALiBi, At, Attention, Bias, Combined, Exp, Sinusoidal, Transformer
from posenc.relative.t5 import bucket, slopes

Q, K = draw(BATCH, HEADS, 6, HEAD_DIM), draw(BATCH, HEADS, N, HEAD_DIM, seed=6)
SIX, SEVEN = torch.arange(6)[None], torch.arange(N)[None]

WHERE = {
    "run": At.of(SIX, SEVEN),
    "memory": At.of(SIX + 40, SEVEN + 7),
    "rows that start elsewhere": At.of(SIX + torch.tensor([[5], [9]]), SEVEN),
    "gaps": At.of(positions_with_gaps(BATCH, 6), positions_with_gaps(BATCH, N) + 1),
    "one row with gaps": At.of(positions_with_gaps(1, 6) + 3, SEVEN),
}
everywhere = pytest.mark.parametrize("where", WHERE)


def close(ours: Tensor, theirs: Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=atol)


def numbers(values: list) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def looped(beta, at: At, heads: int = HEADS) -> Tensor:
    """beta(h, i, j) for every pair of positions: (batch, heads, n_q, n_k)."""
    rows = range(max(len(at.query), len(at.key)))
    return numbers(
        [
            [
                [
                    [beta(h, i, j) for j in at.key[b % len(at.key)].tolist()]
                    for i in at.query[b % len(at.query)].tolist()
                ]
                for h in range(heads)
            ]
            for b in rows
        ]
    )


# buckets; distances here are query minus key, the negatives of T5's


def exact(r: int, buckets: int, max_distance: int, bidirectional: bool) -> int:
    """T5's rule in fractions: how many of the thresholds a distance has reached."""
    N = buckets // 2 if bidirectional else buckets
    E, m = N // 2, abs(r) if bidirectional else max(r, 0)
    ratio = Fraction(max_distance, E)
    # E + t is reached where ln(m/E) (N − E) ≥ t ln(ratio), and no bucket is above N − 1
    far = sum(Fraction(m, E) ** (N - E) >= ratio**t for t in range(1, N - E))
    return (m if m < E else E + far) + (N if bidirectional and r < 0 else 0)


TABLE = {
    True: {
        **{0: (0, 0), 1: (1, 17), 7: (7, 23), 8: (8, 24), 11: (8, 24), 12: (9, 25), 15: (9, 25)},
        **{16: (10, 26), 22: (10, 26), 23: (11, 27), 31: (11, 27), 32: (12, 28), 45: (12, 28)},
        **{46: (13, 29), 63: (13, 29), 64: (14, 30), 90: (14, 30), 91: (15, 31), 128: (15, 31)},
        **{10**6: (15, 31)},
    },
    False: {
        **{0: (0, 0), 1: (1, 0), 15: (15, 0), 16: (16, 0), 18: (16, 0), 19: (17, 0), 20: (17, 0)},
        **{21: (18, 0), 32: (21, 0), 64: (26, 0), 98: (29, 0), 99: (30, 0), 112: (30, 0)},
        **{113: (31, 0), 128: (31, 0), 10**6: (31, 0)},
    },
}


@pytest.mark.parametrize("bidirectional", [True, False])
def test_the_buckets_of_the_published_model(bidirectional):
    table = TABLE[bidirectional]
    behind, ahead = torch.tensor(list(table)), -torch.tensor(list(table))
    for distance, side in ((behind, 0), (ahead, 1)):
        ours = bucket(distance, bidirectional=bidirectional)
        assert ours.dtype == torch.int64
        assert ours.tolist() == [sides[side] for sides in table.values()]


@pytest.mark.parametrize(
    ("buckets", "max_distance", "bidirectional"),
    [
        (32, 128, True),
        (32, 128, False),
        (4, 2, True),
        (6, 9, True),
        (6, 9, False),
        (8, 20, True),
        (8, 64, False),
        (2, 2, False),
        (2, 90, False),
        (3, 11, False),
        (7, 50, False),
        (64, 256, True),
        (20, 6, True),
        (20, 1000, False),
    ],
)
def test_every_bucket_is_that_of_exact_fractions(buckets, max_distance, bidirectional):
    distances = range(-1100, 1101)
    ours = bucket(torch.tensor(distances), buckets, max_distance, bidirectional=bidirectional)
    assert ours.tolist() == [exact(r, buckets, max_distance, bidirectional) for r in distances]
    assert ours.min() == 0 and ours.max() == buckets - 1
    behind = ours[1100:]
    assert (behind.diff() >= 0).all()
    ahead = ours[:1101].flip(0)
    assert (ahead[1:].diff() >= 0).all()
    assert bidirectional or (ahead == 0).all()


@pytest.mark.parametrize("bidirectional", [True, False])
def test_away_from_the_thresholds_it_is_the_published_formula(bidirectional):
    N = 16 if bidirectional else 32
    E = N // 2
    for m in range(E, 300):
        place = math.log(m / E) / math.log(128 / E) * (N - E)
        if abs(place - round(place)) > 1e-9:
            expected = min(E + int(place), N - 1)
            assert bucket(torch.tensor(m), bidirectional=bidirectional) == expected


@pytest.mark.parametrize(
    ("buckets", "max_distance", "bidirectional", "thresholds"),
    [
        (32, 128, True, {16: 10, 32: 12, 64: 14}),
        (8, 64, False, {8: 5, 16: 6, 32: 7}),
        (6, 3000, False, {3: 3, 30: 4, 300: 5}),
        (4, 50, False, {2: 2, 10: 3}),
    ],
)
def test_a_distance_on_a_threshold_is_beyond_it(buckets, max_distance, bidirectional, thresholds):
    """Where the logarithms meet whole numbers, and a float may fall on either side."""
    for m, expected in thresholds.items():
        pair = torch.tensor([m - 1, m])
        ours = bucket(pair, buckets, max_distance, bidirectional=bidirectional)
        assert ours.tolist() == [expected - 1, expected]


def test_distances_saturate_at_91_and_at_113():
    distances = torch.arange(300)
    for bidirectional, first, last in ((True, 91, 15), (False, 113, 31)):
        ours = bucket(distances, bidirectional=bidirectional)
        assert int((ours == last).long().argmax()) == first
        assert (ours[first:] == last).all() and (ours[:first] < last).all()


def test_bucket_16_is_never_used_in_both_directions_and_every_other_is():
    every = torch.arange(-2000, 2001)
    assert set(bucket(every).tolist()) == set(range(32)) - {16}
    assert set(bucket(every, bidirectional=False).tolist()) == set(range(32))


def test_the_table_of_three_tokens():
    distance = At.sequence(3).distance()
    assert bucket(distance).tolist() == [[[0, 17, 18], [1, 0, 17], [2, 1, 0]]]
    causal = bucket(distance, bidirectional=False)
    assert causal.tolist() == [[[0, 0, 0], [1, 0, 0], [2, 1, 0]]]


@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3, 5)])
def test_distances_of_any_shape_have_buckets(shape):
    ours = bucket(torch.full(shape, -9))
    assert ours.shape == shape and (ours == 24).all()


# T5


def t5(*sizes: int, **options) -> T5:
    return weights(T5(HEADS, *sizes, **options).double())


@everywhere
@pytest.mark.parametrize(
    ("buckets", "max_distance", "bidirectional"), [(32, 128, True), (32, 128, False), (6, 9, True)]
)
def test_the_bias_of_t5_is_the_loop(where, buckets, max_distance, bidirectional):
    encoding, at = t5(buckets, max_distance, bidirectional=bidirectional), WHERE[where]
    table = encoding.table.tolist()
    expected = looped(
        lambda h, i, j: table[exact(i - j, buckets, max_distance, bidirectional)][h], at
    )
    ours = encoding.position_logits(Q, K, at)
    assert torch.equal(ours, expected) and ours.shape == (len(expected), HEADS, 6, N)
    content = torch.einsum("bhid,bhjd->bhij", Q, K)  # and nothing under it
    close(encoding.score(Q, K, at), content + expected)


def test_t5_has_no_scale_and_a_bucket_for_each_head():
    encoding = T5(5, 8, 20)
    assert encoding.scale(4) == encoding.scale(64) == 1.0 and encoding.has_own_scale()
    assert {n: tuple(p.shape) for n, p in encoding.named_parameters()} == {"table": (8, 5)}
    assert set(encoding.state_dict()) == {"table"}
    assert repr(encoding) == "T5(5 heads, buckets=8, max_distance=20, bidirectional=True)"
    assert repr(T5(1)).startswith("T5(1 heads, buckets=32, max_distance=128")


@pytest.mark.parametrize("bidirectional", [True, False])
def test_a_cached_query_gets_the_last_row_of_the_whole(bidirectional):
    encoding = t5(bidirectional=bidirectional)
    cached = At.of(torch.tensor([[4]]), torch.arange(5)[None], causal=True)
    whole = encoding.position_logits(Q[:, :, :5], K[:, :, :5], At.sequence(5, causal=True))
    row = encoding.position_logits(Q[:, :, :1], K[:, :, :5], cached)
    assert torch.equal(row, whole[:, :, -1:])
    buckets = bucket(cached.distance(), bidirectional=False)
    assert buckets.tolist() == [[[4, 3, 2, 1, 0]]]
    assert not torch.equal(row, whole[:, :, :1])


def test_one_t5_is_shared_by_all_layers_and_has_one_table():
    shared = Transformer(11, DIM, HEADS, 3, T5(HEADS))
    tables = [name for name, _ in shared.named_parameters() if name.endswith("table")]
    assert tables == ["blocks.0.attention.encoding.table"]
    encodings = {id(block.attention.encoding) for block in shared.blocks}
    assert len(encodings) == 1
    own = Transformer(11, DIM, HEADS, 3, [T5(HEADS) for _ in range(3)])
    assert sum(name.endswith("table") for name, _ in own.named_parameters()) == 3


def test_buckets_that_meet_get_gradients_and_no_others():
    encoding = t5(8, 20)
    layer = weights(Attention(6, HEADS, encoding, head_dim=HEAD_DIM)).double()
    layer(draw(1, 4, 6), At.sequence(4)).square().sum().backward()
    met = {exact(i - j, 8, 20, True) for i in range(4) for j in range(4)}
    for b in range(8):
        assert bool((encoding.table.grad[b] != 0).all()) is (b in met)


def test_the_table_starts_near_zero():
    torch.manual_seed(0)
    table = T5(1000).table
    assert abs(table.mean()) < 1e-3 and abs(table.std() - 0.02) < 1e-3
    assert abs(T5(1000, std=0.5).table.std() - 0.5) < 0.02
    assert (T5(3, std=0).table == 0).all()


def test_half_precision_does_not_touch_the_buckets():
    encoding, n = t5().bfloat16(), 600
    at = At.of(torch.tensor([[10**6]]), torch.arange(10**6 - n, 10**6)[None])
    q, k = draw(1, HEADS, 1, HEAD_DIM).bfloat16(), draw(1, HEADS, n, HEAD_DIM).bfloat16()
    ours = encoding.position_logits(q, k, at)
    assert ours.dtype == torch.bfloat16
    expected = encoding.table[[exact(r, 32, 128, True) for r in range(n, 0, -1)]]
    assert torch.equal(ours[0, :, 0], expected.T)


# ALiBi


def published_slopes(heads: int) -> list[float]:
    """`get_slopes`, as it is in the published code."""

    def power_of_2(n: int) -> list[float]:
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if math.log2(heads).is_integer():
        return power_of_2(heads)
    closest = 2 ** math.floor(math.log2(heads))
    return power_of_2(closest) + published_slopes(2 * closest)[0::2][: heads - closest]


SLOPES = {
    1: [0.00390625],
    2: [0.0625, 0.00390625],
    3: [0.0625, 0.00390625, 0.25],
    6: [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125],
    8: [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625],
}
SLOPES[12] = SLOPES[8] + [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]


@pytest.mark.parametrize("heads", SLOPES)
def test_known_slopes(heads):
    ours = slopes(heads)
    assert ours.dtype == torch.float64 and len(ours) == heads
    close(ours, numbers(SLOPES[heads]))
    if heads != 12:
        assert ours.tolist() == SLOPES[heads]


@pytest.mark.parametrize("heads", range(1, 71))
def test_slopes_are_those_of_the_published_code(heads):
    close(slopes(heads), numbers(published_slopes(heads)))


@everywhere
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("heads", [1, 3, 6, 8, 12])
def test_alibi_is_the_loop(where, symmetric, heads):
    encoding, at = ALiBi(heads, symmetric=symmetric), WHERE[where]
    m = slopes(heads).tolist()
    expected = looped(
        lambda h, i, j: -m[h] * (abs(i - j) if symmetric else i - j), at, heads
    )  # −m_h (i − j), query minus key
    q, k = draw(BATCH, heads, 6, HEAD_DIM), draw(BATCH, heads, N, HEAD_DIM, seed=6)
    assert torch.equal(encoding.position_logits(q, k, at), expected)
    content = torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(HEAD_DIM)
    close(encoding.score(q, k, at), content + expected)


def test_the_last_row_of_five_keys_and_what_all_rows_share():
    at, q = At.sequence(5), draw(1, 8, 5, HEAD_DIM)
    bias = ALiBi(8).position_logits(q, q, at)[0]
    assert bias[0, -1].tolist() == [-2, -1.5, -1, -0.5, 0]
    assert (bias <= 0).all() and (bias.diagonal(0, 1, 2) == 0).all()
    assert torch.equal(bias, bias.mT) and torch.equal(bias, bias.flip(1, 2))
    for row in range(5):
        assert (bias[:, row, row:].diff() < 0).all() and (bias[:, row, : row + 1].diff() > 0).all()
    signed = ALiBi(8, symmetric=False).position_logits(q, q, at)[0]
    assert torch.equal(signed.tril(), bias.tril()) and (signed.triu(1) >= 0).all()
    assert torch.equal(signed.mT, -signed) and signed[0, 0, 1] == 0.5


def test_a_causal_mask_makes_both_the_same_and_nothing_else_does():
    x = draw(BATCH, N, DIM)
    for where, same in (("causal", True), ("all", False)):
        at = At.of(positions_with_gaps(), causal=where == "causal")
        ours, signed = (
            weights(Attention(DIM, HEADS, ALiBi(HEADS, symmetric=symmetric))).double()(x, at)
            for symmetric in (True, False)
        )
        assert bool((ours - signed).abs().max() <= 1e-12) is same


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_slope_times_the_key_is_the_same_under_a_causal_softmax(symmetric):
    """What the published code stores: a row's own constant is nothing to softmax."""
    at = At.sequence(N, causal=True)
    q, k = draw(BATCH, 6, N, HEAD_DIM), draw(BATCH, 6, N, HEAD_DIM, seed=1)
    hidden = ~at.visible[:, None]
    content = q @ k.mT / math.sqrt(HEAD_DIM)
    stored = content + slopes(6)[:, None, None] * torch.arange(N)
    theirs = stored.masked_fill(hidden, -math.inf).softmax(-1)
    ours = ALiBi(6, symmetric=symmetric).score(q, k, at).masked_fill(hidden, -math.inf).softmax(-1)
    close(ours, theirs)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("gaps", [False, True])
def test_bfloat16_rounds_the_product_and_nothing_before_it(symmetric, gaps):
    encoding, n = ALiBi(12, symmetric=symmetric), 1024
    at = At.of(torch.tensor([[n - 1]]), torch.arange(n)[None])._replace(consecutive=not gaps)
    ours, single, double = (
        encoding.to(dtype).position_logits(
            torch.zeros(1, 12, 1, HEAD_DIM, dtype=dtype),
            torch.zeros(1, 12, n, HEAD_DIM, dtype=dtype),
            at,
        )
        for dtype in (torch.bfloat16, torch.float32, torch.float64)
    )
    assert ours.dtype == torch.bfloat16 and single.dtype == torch.float32
    assert torch.equal(ours, single.bfloat16())
    assert torch.equal(single, double.float())
    expected = -slopes(12)[:, None] * torch.arange(n - 1, -1, -1)
    assert torch.equal(double[0, :, 0], expected)


def test_slopes_are_exact_after_a_while_in_bfloat16():
    encoding = ALiBi(12).bfloat16().float()
    beta = encoding.bias(torch.tensor([1]))
    assert beta.shape == (12, 1) and beta.dtype == torch.float64
    assert abs(beta[8].item() + 0.70710678) < 1e-8 and torch.equal(-beta[:, 0], slopes(12))


def test_alibi_has_nothing_to_train_and_the_usual_scale():
    encoding = ALiBi(3)
    assert not encoding.state_dict() and not list(encoding.parameters())
    assert encoding.scale(16) == 0.25 and not encoding.has_own_scale()
    assert repr(ALiBi(3, symmetric=False)) == "ALiBi(3 heads, symmetric=False)"
    assert encoding.bias(torch.ones(2, 4, dtype=torch.int64)).shape == (3, 2, 4)


def test_a_bias_of_one_head_serves_all_and_has_to_be_made():
    class Ahead(Bias):
        def bias(self, distance):
            return (distance < 0)[None].float()

    ours = Ahead().position_logits(Q, K, WHERE["run"])
    assert ours.shape == (1, 1, 6, N) and ours.dtype == torch.float64
    close(ours, looped(lambda h, i, j: float(i < j), WHERE["run"], 1))
    with pytest.raises(NotImplementedError):
        Bias().position_logits(Q, K, WHERE["run"])
    both, at = Combined(ALiBi(HEADS), Ahead()), WHERE["gaps"]
    close(both.score(Q, K, at), ALiBi(HEADS).score(Q, K, at) + Ahead().position_logits(Q, K, at))


# TUPE


LENGTH = 60


def tupe(cls: int | None = 0, relative: Bias | None = None) -> TUPE:
    encoding = TUPE(10, HEADS, LENGTH, head_dim=HEAD_DIM, cls=cls, relative=relative)
    return weights(encoding.double())


def products(encoding: TUPE):
    """(p_i U_Q)(p_j U_K)ᵀ / √(2 head_dim) of one head, one number at a time."""
    p = encoding.positions.table.tolist()
    U_Q, U_K = encoding.U_Q.weight.tolist(), encoding.U_K.weight.tolist()

    def product(h: int, i: int, j: int) -> float:
        total = 0.0
        for c in range(h * HEAD_DIM, (h + 1) * HEAD_DIM):
            asks = sum(p[i][d] * U_Q[c][d] for d in range(10))
            total += asks * sum(p[j][d] * U_K[c][d] for d in range(10))
        return total / math.sqrt(2 * HEAD_DIM)

    return product


@everywhere
@pytest.mark.parametrize("cls", [None, 0, 4, 8])
@pytest.mark.parametrize("relative", [None, "t5", "alibi"])
def test_tupe_is_the_loop(where, cls, relative):
    """In the row and the column of [CLS], everything is reset, and the row's number wins."""
    kinds = {None: None, "t5": t5(8, 20), "alibi": ALiBi(HEADS, symmetric=False)}
    encoding, at = tupe(cls, kinds[relative]), WHERE[where]
    product, m = products(encoding), slopes(HEADS).tolist()

    def position(h: int, i: int, j: int) -> float:
        if i == cls:
            return float(encoding.from_cls.detach()[h])
        if j == cls:
            return float(encoding.to_cls.detach()[h])
        beta = {
            None: lambda: 0.0,
            "t5": lambda: float(encoding.relative.table.detach()[exact(i - j, 8, 20, True), h]),
            "alibi": lambda: -m[h] * (i - j),
        }
        return product(h, i, j) + beta[relative]()

    expected = looped(position, at)
    close(encoding.position_logits(Q, K, at), expected)
    content = torch.einsum("bhid,bhjd->bhij", Q, K) / math.sqrt(2 * HEAD_DIM)
    close(encoding.score(Q, K, at), content + expected)


@pytest.mark.parametrize("relative", [False, True])
def test_what_reset_does_to_four_tokens_with_cls_first(relative):
    encoding, q = tupe(0, t5(8, 20) if relative else None), Q[:, :, :4]
    bias = encoding.position_logits(q, q, At.sequence(4))
    assert bias.shape == (1, HEADS, 4, 4)
    assert torch.equal(bias[0, :, 0], encoding.from_cls[:, None].expand(-1, 4))
    assert torch.equal(bias[0, :, 1:, 0], encoding.to_cls[:, None].expand(-1, 3))
    without = tupe(None, t5(8, 20) if relative else None)
    without.load_state_dict(encoding.state_dict(), strict=False)
    tied = without.position_logits(q, q, At.sequence(4))
    close(bias[..., 1:, 1:], tied[..., 1:, 1:])
    assert (bias - tied)[..., 0, :].abs().min() > 1e-3
    assert (bias - tied)[..., 0].abs().min() > 1e-3


@pytest.mark.parametrize("relative", [False, True])
def test_the_number_of_the_row_of_cls_is_nothing_to_softmax_and_something_to_exp(relative):
    x, at = draw(BATCH, N, DIM), At.sequence(N)
    for normaliser, moves in ((None, False), (Exp(), True)):
        encoding = tupe(0, t5(8, 20) if relative else None)
        layer = weights(Attention(DIM, HEADS, encoding, normaliser)).double()
        before = layer(x, at)
        before.square().sum().backward()
        assert bool(encoding.from_cls.grad.abs().max() > 1e-6) is moves
        assert (encoding.to_cls.grad != 0).all()
        with torch.no_grad():
            encoding.from_cls.add_(torch.tensor([0.5, -1.0, 2.0]))
        change = (layer(x, at) - before).abs().amax((0, 2))
        assert bool(change[0] > 1e-3) is moves and (change[1:] == 0).all()
        with torch.no_grad():
            encoding.to_cls.add_(torch.tensor([0.5, -1.0, 2.0]))
        assert ((layer(x, at) - before).abs().amax((0, 2))[1:] > 1e-3).all()


def test_tupe_has_its_parameters_once_and_no_more_than_it_needs():
    shapes = {n: tuple(p.shape) for n, p in tupe().named_parameters()}
    assert shapes == {
        "from_cls": (3,),
        "to_cls": (3,),
        "positions.table": (LENGTH, 10),
        "U_Q.weight": (12, 10),
        "U_K.weight": (12, 10),
    }
    assert {n for n in shapes if "cls" not in n} == {n for n, _ in tupe(None).named_parameters()}
    shared = Transformer(11, DIM, HEADS, 3, TUPE(DIM, HEADS, 20, relative=T5(HEADS)))
    names = [name for name, _ in shared.named_parameters() if "encoding" in name]
    assert len(names) == 6 and all(name.startswith("blocks.0.") for name in names)
    assert TUPE(DIM, HEADS, 20).head_dim == DIM // HEADS
    assert TUPE(DIM, HEADS, 20).cls == 0


def test_the_numbers_of_cls_start_near_zero():
    torch.manual_seed(0)
    encoding = TUPE(2, 4000, 3, head_dim=1)
    for constant in (encoding.from_cls, encoding.to_cls):
        assert abs(constant.mean()) < 2e-3 and abs(constant.std() - 0.02) < 1e-3


def test_the_scale_is_for_two_products():
    encoding = tupe()
    assert encoding.scale(4) == 8**-0.5 and encoding.scale(64) == 128**-0.5
    assert encoding.has_own_scale()
    assert tupe(None, T5(HEADS)).scale(4) == 8**-0.5  # and not T5's


def test_values_carry_no_position():
    encoding, a, v = tupe(), draw(BATCH, HEADS, 6, N), draw(BATCH, HEADS, N, 5)
    assert torch.equal(encoding.mix(a, v, WHERE["gaps"]), a @ v)
    q, k, same = encoding.transform(Q, K, v, WHERE["gaps"])
    assert q is Q and k is K and same is v


def test_moving_everything_changes_tupe_and_not_the_bias_in_it():
    encoding, at = tupe(None, t5(8, 20)), WHERE["gaps"]
    moved = At.of(at.query + 20, at.key + 20)
    change = encoding.position_logits(Q, K, moved) - encoding.position_logits(Q, K, at)
    without = tupe(None)
    close(change, without.position_logits(Q, K, moved) - without.position_logits(Q, K, at))
    assert change.abs().max() > 0.1


def test_a_position_without_a_vector_is_named_and_the_module_works_after_it():
    encoding, last = tupe(), At.of(torch.tensor([[LENGTH - 1]]), torch.tensor([[0, LENGTH - 1]]))
    for at in (
        At.of(torch.tensor([[LENGTH]]), torch.tensor([[0, 1]])),
        At.of(torch.tensor([[0]]), torch.tensor([[0, LENGTH]])),
    ):
        with pytest.raises(ValueError, match="below max_length = 60, but 60 is among them"):
            encoding.position_logits(Q[:, :, :1], K[:, :, :2], at)
    assert encoding.position_logits(Q[:, :, :1], K[:, :, :2], last).isfinite().all()


# wrong input


GAPS = WHERE["gaps"]


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: bucket(SIX, 31), ValueError, "buckets must be even, .* but are 31"),
        (lambda: bucket(SIX, 2), ValueError, "buckets must be 4 or more, but is 2"),
        (lambda: bucket(SIX, 1, bidirectional=False), ValueError, "buckets must be 2 or more"),
        (lambda: bucket(SIX, 32, 8), ValueError, "max_distance must be 9 or more, but is 8"),
        (
            lambda: bucket(SIX, 32, 16, bidirectional=False),
            ValueError,
            "max_distance must be 17 or more, but is 16",
        ),
        (lambda: bucket(SIX, 32.0), TypeError, "buckets must be a whole number, but is 32.0"),
        (lambda: bucket(SIX, 32, 99.5), TypeError, "max_distance must be a whole number"),
        (lambda: T5(0), ValueError, "heads must be 1 or more, but is 0"),
        (lambda: T5("3"), TypeError, "heads must be a whole number, but is '3'"),
        (lambda: T5(3, 2), ValueError, "buckets must be 4 or more, but is 2"),
        (lambda: T5(3, 7), ValueError, "buckets must be even, half for each .* but are 7"),
        (lambda: T5(3, 8, 2), ValueError, "max_distance must be 3 or more, but is 2"),
        (lambda: T5(3, std=-0.1), ValueError, "std must be 0 or more and finite, but is -0.1"),
        (lambda: T5(3, std=math.inf), ValueError, "finite, but is inf"),
        (
            lambda: T5(2).position_logits(Q, K, GAPS),
            ValueError,
            "q must have 2 heads like the bias, but has 3",
        ),
        (
            lambda: ALiBi(4).position_logits(Q, K, GAPS),
            ValueError,
            "q must have 4 heads like the bias, but has 3",
        ),
        (lambda: slopes(0), ValueError, "heads must be 1 or more, but is 0"),
        (lambda: slopes(2.0), TypeError, "heads must be a whole number, but is 2.0"),
        (lambda: ALiBi(0), ValueError, "heads must be 1 or more, but is 0"),
        (lambda: ALiBi("8"), TypeError, "heads must be a whole number, but is '8'"),
        (lambda: TUPE(0, 3, 9), ValueError, "dim must be 1 or more, but is 0"),
        (lambda: TUPE(12, 0, 9), ValueError, "heads must be 1 or more, but is 0"),
        (lambda: TUPE(12, 3, 0), ValueError, "max_length must be 1 or more, but is 0"),
        (lambda: TUPE(12, 5, 9), ValueError, "heads must divide dim, but 5 does not divide 12"),
        (lambda: TUPE(12, 3, 9, head_dim=0), ValueError, "head_dim must be 1 or more"),
        (lambda: TUPE(12, 3, 9, cls=-1), ValueError, "cls must be 0 or more, but is -1"),
        (lambda: TUPE(12, 3, 9, cls=1.5), TypeError, "cls must be a whole number, but is 1.5"),
        (
            lambda: TUPE(12, 3, 9, relative=Sinusoidal(12)),
            TypeError,
            "relative must be a Bias, but is of type Sinusoidal",
        ),
        (lambda: TUPE(12, 3, 9, relative=T5), TypeError, "relative must be a Bias, .* class T5"),
        (
            lambda: tupe().position_logits(Q[:, :2], K, GAPS),
            ValueError,
            "q must have 3 heads of width 4, as the encoding has, but has 2",
        ),
        (
            lambda: tupe().position_logits(Q[0], K, GAPS),
            ValueError,
            r"q must have four axes, of floats, but is \(3, 6, 4\)",
        ),
    ],
)
def test_wrong_input_is_named(call, error, says):
    with pytest.raises(error, match=says):
        call()
