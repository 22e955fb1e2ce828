"""Transformer-XL's sinusoid of the distance and its two rows, against loops over every number."""

from __future__ import annotations

import math

import pytest
import torch
from tests.encodings import BATCH, DIM, HEAD_DIM, HEADS, N, draw, positions_with_gaps, weights
from torch import Tensor

from posenc import At, Attention, Combined, Rotary, Transformer, TransformerXL

WIDTH = 10  # of R, and none of the other sizes
Q, K = draw(BATCH, HEADS, 6, HEAD_DIM), draw(BATCH, HEADS, N, HEAD_DIM, seed=6)
SIX, SEVEN = torch.arange(6)[None], torch.arange(N)[None]

WHERE = {
    "run": At.of(SIX, SEVEN),
    "memory": At.of(SIX + 5, SEVEN + 4),
    "far memory": At.of(SIX + 40, SEVEN),
    "keys ahead": At.of(SIX, SEVEN + 3),
    "rows that start elsewhere": At.of(SIX + torch.tensor([[5], [9]]), SEVEN),
    "gaps": At.of(positions_with_gaps(BATCH, 6), positions_with_gaps(BATCH, N) + 1),
    "gaps in the queries": At.of(positions_with_gaps(1, 6), SEVEN),
    "gaps in the keys": At.of(SIX + 3, positions_with_gaps(BATCH, N)),
    "in no order": At.of(torch.tensor([[3, 0, 5, 1, 4, 2]]), torch.tensor([[2, 2, 0, 6, 1, 9, 4]])),
}
everywhere = pytest.mark.parametrize("where", WHERE)


def close(ours: Tensor, theirs: Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=atol)


def numbers(values: list) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def xl(clip: int | None = None) -> TransformerXL:
    return weights(TransformerXL(WIDTH, HEADS, head_dim=HEAD_DIM, clip=clip).double())


def sinusoid(r: int) -> list[float]:
    """R_r, sines before cosines."""
    angles = [r / 10000 ** (2 * c / WIDTH) for c in range(WIDTH // 2)]
    return [math.sin(a) for a in angles] + [math.cos(a) for a in angles]


def looped(encoding: TransformerXL, at: At) -> Tensor:
    """Every number of the position's part of the logits, by itself."""
    u, v, W_KR = (p.tolist() for p in (encoding.u, encoding.v, encoding.W_KR.weight))
    logits = torch.zeros(BATCH, HEADS, at.query.shape[1], at.key.shape[1], dtype=torch.float64)
    for b in range(BATCH):
        for i, m in enumerate(at.query[b % len(at.query)].tolist()):
            for j, n in enumerate(at.key[b % len(at.key)].tolist()):
                r = m - n
                if encoding.clip is not None:
                    r = min(max(r, -encoding.clip), encoding.clip)
                R = sinusoid(r)
                for h in range(HEADS):
                    q, k, total = Q[b, h, i].tolist(), K[b, h, j].tolist(), 0.0
                    for c in range(HEAD_DIM):
                        w = W_KR[h * HEAD_DIM + c]  # one channel of one head
                        total += u[h][c] * k[c]
                        total += (q[c] + v[h][c]) * sum(R[d] * w[d] for d in range(WIDTH))
                    logits[b, h, i, j] = total / math.sqrt(HEAD_DIM)
    return logits


@everywhere
@pytest.mark.parametrize("clip", [None, 0, 2, 50])
def test_the_logits_are_the_loop(where, clip):
    encoding, at = xl(clip), WHERE[where]
    expected = looped(encoding, at)
    close(encoding.position_logits(Q, K, at), expected)
    content = torch.einsum("bhid,bhjd->bhij", Q, K) / math.sqrt(HEAD_DIM)
    close(encoding.score(Q, K, at), expected + content)


@pytest.mark.parametrize("start", [0, 9])
def test_many_queries_are_the_loop_too(start):
    """More than are multiplied at a time."""
    encoding, n = xl(), 70
    q, at = draw(1, HEADS, n, HEAD_DIM, seed=3), At.of(torch.arange(n)[None] + start, SEVEN)
    R = numbers([[sinusoid(m - j) for j in range(N)] for m in at.query[0].tolist()])
    rows = torch.einsum("ijc,dc->ijd", R, encoding.W_KR.weight).unflatten(-1, (HEADS, HEAD_DIM))
    expected = torch.einsum("bhid,ijhd->bhij", q + encoding.v[:, None], rows)
    expected = expected + torch.einsum("hd,bhjd->bhj", encoding.u, K[:1])[:, :, None]
    close(encoding.position_logits(q, K[:1], at), expected / math.sqrt(HEAD_DIM))


def test_the_row_of_a_distance_back_has_its_sines_negated():
    distances = torch.arange(-40, 41)
    R = TransformerXL(WIDTH, HEADS, head_dim=HEAD_DIM).sinusoid.vectors(distances)
    close(R, numbers([sinusoid(int(r)) for r in distances]))
    sines, cosines = R.chunk(2, -1)
    close(sines.flip(0), -sines)
    close(cosines.flip(0), cosines)


@pytest.mark.parametrize("clip", [None, 3])
def test_rows_are_by_head_and_clipped(clip):
    encoding, distances = xl(clip), torch.tensor([[7, 3, -2], [0, -3, -9]])
    rows = encoding.rows(distances)
    assert rows.shape == (2, HEADS, 3, HEAD_DIM)
    for b in range(2):
        for m in range(3):
            r = int(distances[b, m])
            R = numbers(sinusoid(r if clip is None else min(max(r, -3), 3)))
            for h in range(HEADS):
                W_KR = encoding.W_KR.weight[h * HEAD_DIM : (h + 1) * HEAD_DIM]
                close(rows[b, h, m], W_KR @ R)


def test_distances_beyond_the_clip_are_one():
    at = At.of(torch.tensor([[50]]), torch.tensor([[0, 10, 46, 47, 48, 52, 53, 54, 99]]))
    logits = xl(clip=3).position_logits(Q[:, :, :1], K[:, :, :1].expand(-1, -1, 9, -1), at)
    for same in ([0, 1, 2, 3], [6, 7, 8]):
        close(logits[..., same], logits[..., same[:1]].expand(-1, -1, -1, len(same)))
    steps = logits[..., [3, 4, 5, 6]].diff(dim=-1).abs()
    assert steps.min() > 1e-4


# as the published code has it


def published(encoding: TransformerXL, q: Tensor, k: Tensor) -> Tensor:
    """The logits of `mem_transformer.py`: right up to the query's own position, and not beyond."""
    n_q, n_k = q.shape[2], k.shape[2]
    R = numbers([sinusoid(r) for r in range(n_k - 1, -1, -1)])
    r_head_k = (R @ encoding.W_KR.weight.T).view(n_k, HEADS, HEAD_DIM)
    AC = torch.einsum("bhid,bhjd->ijbh", q + encoding.u[:, None], k)
    BD = torch.einsum("bhid,jhd->ijbh", q + encoding.v[:, None], r_head_k)
    padded = torch.cat((BD.new_zeros(n_q, 1, *BD.shape[2:]), BD), 1)
    BD = padded.view(n_k + 1, n_q, *BD.shape[2:])[1:].view_as(BD)
    return (AC + BD).permute(2, 3, 0, 1) / HEAD_DIM**0.5


@pytest.mark.parametrize(("n_q", "n_k"), [(6, 6), (1, 1), (1, 6), (4, 7), (65, 70)])
def test_the_published_shift_agrees_wherever_a_causal_mask_looks(n_q, n_k):
    encoding = xl()
    q, k = draw(BATCH, HEADS, n_q, HEAD_DIM), draw(BATCH, HEADS, n_k, HEAD_DIM, seed=1)
    at = At.of(torch.arange(n_k - n_q, n_k)[None], torch.arange(n_k)[None], causal=True)
    ours, theirs = encoding.score(q, k, at), published(encoding, q, k)
    close(ours[..., at.visible[0]], theirs[..., at.visible[0]])
    if n_q > 1:
        assert (ours - theirs).abs().max() > 0.1


def test_what_is_ahead_does_not_reach_a_causal_output():
    class Garbage(TransformerXL):
        def rows(self, distance):
            return super().rows(distance) + 1e6 * (distance < 0)[..., None, :, None]

    layers = [
        weights(Attention(DIM, HEADS, kind(WIDTH, HEADS, head_dim=HEAD_DIM)).double())
        for kind in (TransformerXL, Garbage)
    ]
    x = draw(BATCH, N, DIM)
    ours, theirs = (layer(x, At.sequence(N, causal=True)) for layer in layers)
    close(ours, theirs)
    ours, theirs = (layer(x, At.sequence(N)) for layer in layers)
    assert (ours - theirs).abs().max() > 0.1


# recurrence over segments


SEGMENTS = [(4, 5), (3, 3, 3), (1, 7, 1), (1,) * 9]
every_segmentation = pytest.mark.parametrize("sizes", SEGMENTS)


def segments(sizes: tuple[int, ...]) -> list[slice]:
    ends = torch.tensor(sizes).cumsum(0).tolist()
    return [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]


@every_segmentation
@pytest.mark.parametrize("clip", [None, 2])
@pytest.mark.parametrize("start", [0, 30])
def test_segments_with_everything_before_as_memory_are_one_long_pass(sizes, clip, start):
    layer, x = weights(Attention(DIM, HEADS, xl(clip)).double()), draw(BATCH, 9, DIM)
    parts = []
    for now in segments(sizes):
        positions = torch.arange(start, start + now.stop)[None]
        at = At.of(positions[:, now], positions, causal=True)
        parts.append(layer(x[:, now], at, x[:, : now.stop]))
    close(torch.cat(parts, 1), layer(x, At.sequence(9, causal=True)))


@every_segmentation
@pytest.mark.parametrize("clip", [None, 2])
def test_two_layers_with_a_cache_are_one_long_pass(sizes, clip):
    model = weights(Transformer(11, DIM, HEADS, 2, xl(clip), outputs=5)).double()
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5], [3, 5, 8, 9, 7, 9, 3, 2, 3]])
    cache, parts = [], []
    for now in segments(sizes):
        positions = torch.arange(now.stop)[None]
        at = At.of(positions[:, now], positions, causal=True)
        parts.append(model(tokens[:, now], at, cache=cache))
    close(torch.cat(parts, 1), model(tokens, At.sequence(9, causal=True)))


@pytest.mark.parametrize("memory", [0, 2, 4])
def test_a_short_memory_is_a_mask_on_the_long_pass(memory):
    layer, x = weights(Attention(DIM, HEADS, xl()).double()), draw(BATCH, 9, DIM)
    positions, whole, parts = torch.arange(9)[None], At.sequence(9, causal=True), []
    visible = whole.visible.clone()
    for now in segments((3, 3, 3)):
        first = max(now.start - memory, 0)
        at = At.of(positions[:, now], positions[:, first : now.stop], causal=True)
        parts.append(layer(x[:, now], at, x[:, first : now.stop]))
        visible[:, now, :first] = False
    close(torch.cat(parts, 1), layer(x, whole._replace(visible=visible)))


# its parameters


def test_there_are_three_parameters_and_no_bias():
    encoding = TransformerXL(WIDTH, HEADS, head_dim=HEAD_DIM)
    shapes = {name: tuple(p.shape) for name, p in encoding.named_parameters()}
    assert shapes == {"u": (3, 4), "v": (3, 4), "W_KR.weight": (12, WIDTH)}
    assert not list(encoding.buffers())
    assert TransformerXL(DIM, HEADS).u.shape == (HEADS, DIM // HEADS)
    shared = Transformer(11, DIM, HEADS, 3, TransformerXL(DIM, HEADS))
    assert sum("encoding" in name for name, _ in shared.named_parameters()) == 3


@everywhere
def test_each_row_adds_what_it_says(where):
    encoding, at = xl(), WHERE[where]
    both = encoding.position_logits(Q, K, at)
    with torch.no_grad():
        encoding.u.zero_()
    without_u = encoding.position_logits(Q, K, at)
    expected = torch.einsum("hd,bhjd->bhj", xl().u, K)[:, :, None] / math.sqrt(HEAD_DIM)
    close(both - without_u, expected.expand_as(both))
    with torch.no_grad():
        encoding.v.zero_()
    # v is asked by every query alike, and so what it adds depends on the distance only
    v = without_u - encoding.position_logits(Q, K, at)
    zero = torch.zeros_like(Q)
    close(v, xl().position_logits(zero, torch.zeros_like(K), at))
    assert v.abs().max() > 0.1 and (both - without_u).abs().max() > 0.1


def test_v_adds_a_number_for_each_distance():
    added = xl().position_logits(torch.zeros_like(Q), torch.zeros_like(K), WHERE["run"])
    for r in range(-N + 1, 6):
        values = added.diagonal(-r, 2, 3)
        close(values, values[..., :1].expand_as(values))


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("clip", [None, 2])
def test_the_gradients_of_its_parameters_are_right(gaps, clip):
    layer = weights(Attention(4, 2, TransformerXL(6, 2, head_dim=2, clip=clip)).double())
    x = draw(1, 4, 4)
    at = At.of(positions_with_gaps(1, 4)) if gaps else At.sequence(4)
    named = {n: p for n, p in layer.named_parameters() if n.startswith("encoding")}

    def outputs(*values: Tensor) -> Tensor:
        return torch.func.functional_call(layer, dict(zip(named, values, strict=True)), (x, at))

    assert len(named) == 3 and torch.autograd.gradcheck(outputs, tuple(named.values()))


def test_rows_start_near_zero():
    torch.manual_seed(0)
    encoding = TransformerXL(4, 500, head_dim=60)
    for row in (encoding.u, encoding.v):
        assert abs(row.mean()) < 1e-3 and abs(row.std() - 0.02) < 1e-3
    assert not torch.equal(encoding.u, encoding.v)
    wide = TransformerXL(4, 500, head_dim=60, std=0.5)
    assert abs(wide.u.std() - 0.5) < 0.01 and abs(wide.v.std() - 0.5) < 0.01
    still = TransformerXL(4, 1, std=0)
    assert (still.u == 0).all() and (still.v == 0).all()


def test_it_says_what_it_is():
    assert repr(TransformerXL(DIM, HEADS, clip=5)).startswith("TransformerXL(\n  3 heads, clip=5\n")


# where it may stand


def test_far_positions_lose_nothing_in_single_precision():
    """Float32 has no odd numbers there, and an angle made in it would be wrong by whole turns."""
    encoding = xl().float()
    for where in ("run", "gaps"):
        at = WHERE[where]
        near = encoding.position_logits(Q.float(), K.float(), at)
        far = At.of(at.query + 10**8 + 1, at.key + 10**8 + 1)
        close(encoding.position_logits(Q.float(), K.float(), far), near, 2e-6)
        close(near.double(), looped(xl(), at), 2e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("where", ["run", "gaps"])
def test_half_precision_rounds_the_sinusoid_and_not_the_angle(dtype, where):
    encoding, at = xl().to(dtype), WHERE[where]
    ours = encoding.position_logits(Q.to(dtype), K.to(dtype), At.of(at.query + 4096, at.key + 4096))
    assert ours.dtype == dtype
    close(ours.double(), looped(xl(), at), 0.05 if dtype == torch.bfloat16 else 0.01)


def test_rope_turns_the_keys_that_u_meets():
    """An effect that is meant, as for Shaw's rows: u k_j then depends on where the key is."""
    x, positions = draw(1, N, DIM), positions_with_gaps(1)
    layer = weights(Attention(DIM, HEADS, Combined(Rotary(HEAD_DIM), xl()))).double()
    change = (layer(x, At.of(positions + 37)) - layer(x, At.of(positions))).abs().max()
    assert change > 1e-3


# wrong input


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: TransformerXL(9, 3), ValueError, "dim must be even, .* but is 9"),
        (lambda: TransformerXL(0, 3), ValueError, "dim must be 1 or more, but is 0"),
        (lambda: TransformerXL(12.0, 3), TypeError, "dim must be a whole number, but is 12.0"),
        (lambda: TransformerXL(12, 0), ValueError, "heads must be 1 or more, but is 0"),
        (lambda: TransformerXL(12, "3"), TypeError, "heads must be a whole number, but is '3'"),
        (lambda: TransformerXL(12, 5), ValueError, "heads must divide dim, but 5 does not .* 12"),
        (lambda: TransformerXL(12, 3, head_dim=0), ValueError, "head_dim must be 1 or more"),
        (lambda: TransformerXL(12, 3, clip=-1), ValueError, "clip must be 0 or more, but is -1"),
        (lambda: TransformerXL(12, 3, clip=2.5), TypeError, "clip must be a whole number"),
        (lambda: TransformerXL(12, 3, std=-1), ValueError, "std must be 0 or more .* but is -1"),
        (lambda: TransformerXL(12, 3, std=math.inf), ValueError, "finite, but is inf"),
        (lambda: TransformerXL(12, 3, std=math.nan), ValueError, "finite, but is nan"),
        (
            lambda: xl().position_logits(Q[0], K, WHERE["run"]),
            ValueError,
            r"q must have four axes, of floats, but is \(3, 6, 4\)",
        ),
        (
            lambda: xl().position_logits(Q, K[:, :2], WHERE["gaps"]),
            ValueError,
            "k must have 3 heads of width 4, as the encoding has, but has 2 of width 4",
        ),
        (
            lambda: xl().position_logits(Q[..., :3], K, WHERE["run"]),
            ValueError,
            "q must have 3 heads of width 4, as the encoding has, but has 3 of width 3",
        ),
        (
            lambda: xl().position_logits(Q, Q, WHERE["run"]),
            ValueError,
            "k must have one row for each of the 7 positions, but has 6",
        ),
        (
            lambda: Attention(12, 2, xl()).double()(draw(1, 5, 12), At.sequence(5)),
            ValueError,
            "q must have 3 heads of width 4, as the encoding has, but has 2 of width 6",
        ),
    ],
)
def test_wrong_input_is_named(call, error, says):
    with pytest.raises(error, match=says):
        call()
