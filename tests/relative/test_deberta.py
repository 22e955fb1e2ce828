"""DeBERTa's two position terms against loops, its buckets in exact numbers, and its decoder."""

from __future__ import annotations

import copy
import math
from fractions import Fraction

import pytest
import torch
import torch.nn.functional as F
from tests.encodings import BATCH, DIM, HEAD_DIM, HEADS, N, draw, positions_with_gaps, weights
from torch import Tensor

from posenc import (
    T5,
    At,
    Attention,
    DeBERTa,
    Encoding,
    EnhancedMaskDecoder,
    Sinusoidal,
    Trainable,
    Transformer,
    positions_from_mask,
)

Q, K = draw(BATCH, HEADS, 6, HEAD_DIM), draw(BATCH, HEADS, N, HEAD_DIM, seed=6)
SIX, SEVEN = torch.arange(6)[None], torch.arange(N)[None]
WIDTH = 10  # of R, where it is not the layer's

WHERE = {
    "run": At.of(SIX, SEVEN),
    "memory": At.of(SIX + 5, SEVEN + 4),
    "keys ahead": At.of(SIX, SEVEN + 3),
    "rows that start elsewhere": At.of(SIX + torch.tensor([[5], [9]]), SEVEN),
    "rows of keys that start elsewhere": At.of(SIX + 4, SEVEN + torch.tensor([[5], [1]])),
    "gaps": At.of(positions_with_gaps(BATCH, 6), positions_with_gaps(BATCH, N) + 1),
    "gaps in the queries": At.of(positions_with_gaps(1, 6), SEVEN),
    "in no order": At.of(torch.tensor([[3, 0, 5, 1, 4, 2]]), torch.tensor([[2, 2, 0, 6, 1, 9, 4]])),
}
everywhere = pytest.mark.parametrize("where", WHERE)
both_conventions = pytest.mark.parametrize("index", ["paper", "code"])


def close(ours: Tensor, theirs: Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=atol)


def own(span: int = 3, **options) -> DeBERTa:
    """With projections of the encoding's own."""
    options = {"heads": HEADS, "head_dim": HEAD_DIM} | options
    return weights(DeBERTa(WIDTH, span, **options).double())


def shared(span: int = 3, **options) -> Attention:
    """A layer that lends its projections, wider than they are."""
    encoding = DeBERTa(11, span, **options)
    return weights(Attention(11, HEADS, encoding, head_dim=HEAD_DIM)).double()


def delta(r: int, span: int) -> int:
    """The paper's three cases."""
    if r <= -span:
        return 0
    return 2 * span - 1 if r >= span else r + span


def looped(asks: Tensor, keys: Tensor, at: At, span: int, index: str) -> Tensor:
    """q_i · keys[δ(i, j)] + k_j · asks[δ(j, i)] by a loop, with (heads, 2·span, width)."""
    logits = torch.zeros(BATCH, HEADS, at.query.shape[1], at.key.shape[1], dtype=torch.float64)
    asks, keys = asks.detach(), keys.detach()
    for b in range(BATCH):
        for i, m in enumerate(at.query[b % len(at.query)].tolist()):
            for j, n in enumerate(at.key[b % len(at.key)].tolist()):
                there = delta(m - n, span)
                back = delta(n - m if index == "paper" else m - n, span)
                for h in range(HEADS):
                    total = Q[b, h, i] @ keys[h, there] + K[b, h, j] @ asks[h, back]
                    logits[b, h, i, j] = total / math.sqrt(3 * HEAD_DIM)
    return logits


def by_head(rows: Tensor) -> Tensor:
    """(m, heads · head_dim) → (heads, m, head_dim), cut out one by one."""
    return torch.stack([rows[:, h * HEAD_DIM : (h + 1) * HEAD_DIM] for h in range(HEADS)])


def by_head_of(encoding: DeBERTa) -> tuple[Tensor, Tensor]:
    """What R asks, and what its keys are, with projections of its own."""
    asks = by_head(encoding.R @ encoding.W_QR.weight.T + encoding.W_QR.bias)
    return asks.detach(), by_head(encoding.R @ encoding.W_KR.weight.T).detach()


# the terms


@everywhere
@both_conventions
@pytest.mark.parametrize("span", [1, 3, 30])
def test_with_projections_of_its_own_it_is_the_loop(where, index, span):
    encoding, at = own(span, convention=index), WHERE[where]
    expected = looped(*by_head_of(encoding), at, span, index)
    close(encoding.position_logits(Q, K, at), expected)
    content = torch.einsum("bhid,bhjd->bhij", Q, K) / math.sqrt(3 * HEAD_DIM)
    close(encoding.score(Q, K, at), content + expected)


@everywhere
@both_conventions
@pytest.mark.parametrize("span", [1, 3])
def test_with_the_layers_projections_it_is_the_loop(where, index, span):
    layer, at = shared(span, convention=index), WHERE[where]
    R = layer.encoding.R
    asks, keys = by_head(R @ layer.W_Q.weight.T), by_head(R @ layer.W_K.weight.T)
    expected = looped(asks, keys, at, span, index)
    close(layer.encoding.position_logits(Q, K, at, layer), expected)


def test_a_layer_gives_its_projections_and_each_layer_its_own():
    layer, x, at = shared(), draw(BATCH, N, 11), At.sequence(N, causal=True)
    q, k = layer.q(x), layer.k(x)
    logits = layer.encoding.score(q, k, at, layer)
    a = logits.masked_fill(~at.visible[:, None], -math.inf).softmax(-1)
    o = (a @ layer.split(layer.W_V(x))).transpose(1, 2).flatten(2)
    close(layer(x, at), layer.W_O(o))
    model = Transformer(11, DIM, HEADS, 3, DeBERTa(DIM, 4))
    names = [name for name, _ in model.named_parameters() if "encoding" in name]
    assert names == ["blocks.0.attention.encoding.R"]
    one, other = (block.attention for block in weights(model).double().blocks[:2])
    logits = [one.encoding.position_logits(Q, K, WHERE["run"], layer) for layer in (one, other)]
    assert (logits[0] - logits[1]).abs().max() > 0.1


@both_conventions
def test_the_published_gathers_are_the_code_and_not_the_paper(index):
    """`disentangled_attention.py`, where one table of indices serves both terms, on a square."""
    encoding, q, k = own(3, convention=index), Q, K[:, :, :6]
    asks, keys = by_head_of(encoding)
    pos = (SIX.mT - SIX + 3).clamp(0, 5).expand(BATCH, HEADS, -1, -1)
    c2p = (q @ keys.mT).gather(-1, pos)
    p2c = (k @ asks.mT).mT.gather(-2, pos)
    # and transformers gathers first, with the distances negated, and transposes then
    negated = (-(SIX.mT - SIX) + 3).clamp(0, 5).expand(BATCH, HEADS, -1, -1)
    assert torch.equal(p2c, (k @ asks.mT).gather(-1, negated).mT)
    difference = encoding.position_logits(q, k, At.sequence(6)) - (c2p + p2c) / 12**0.5
    assert difference.diagonal(0, 2, 3).abs().max() <= 1e-12
    assert bool(difference.abs().max() <= 1e-12) is (index == "code")


def test_the_conventions_are_two_models_that_agree_on_the_diagonal_only():
    for make in (own, lambda **options: shared(**options)):
        logits = []
        for index in ("paper", "code"):
            layer = make(convention=index)
            encoding = getattr(layer, "encoding", layer)
            logits.append(encoding.position_logits(Q, K, WHERE["run"], layer))
        difference = (logits[0] - logits[1]).abs().amax((0, 1))
        assert difference.diagonal().max() <= 1e-12
        assert difference[~torch.eye(6, N, dtype=torch.bool)].min() > 1e-3


# the index


def test_the_table_of_five_tokens_with_a_span_of_two():
    table = [[2, 1, 0, 0, 0], [3, 2, 1, 0, 0], [3, 3, 2, 1, 0], [3, 3, 3, 2, 1], [3, 3, 3, 3, 2]]
    assert DeBERTa(4, 2).index(At.sequence(5).distance()).tolist() == [table]


def test_the_two_sides_are_clipped_at_different_places():
    r = torch.arange(-6, 7)
    ours = DeBERTa(4, 4).index(r)
    assert ours.tolist() == [0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 7, 7, 7] and ours.dtype == torch.int64
    for span in (1, 4, 9):
        assert DeBERTa(4, span).index(r).tolist() == [delta(int(x), span) for x in r]


def test_nothing_is_clipped_up_to_512_tokens_by_default():
    encoding = DeBERTa(4)
    assert encoding.R.shape == (1024, 4)
    distinct = encoding.index(At.sequence(512).distance()).unique()
    assert distinct.tolist() == list(range(1, 1024))


def exact(m: int, span: int, max_distance: int) -> int:
    """Version 2's rule in fractions: the least step that is not below the logarithm."""
    mid, m = span // 2, min(m, max_distance - 1)
    if m <= mid:
        return m
    ratio, step = Fraction(max_distance - 1, mid), 0
    while Fraction(m, mid) ** (mid - 1) > ratio**step:
        step += 1
    return mid + step


def test_the_buckets_of_the_published_model():
    encoding = DeBERTa(4, 256, max_distance=512)
    table = {
        **{0: 0, 1: 1, 127: 127, 128: 128, 129: 129, 140: 137, 200: 169, 256: 192, 400: 233},
        **{510: 255, 511: 255, 512: 255, 600: 255, 10**6: 255},
    }
    r = torch.tensor(list(table))
    assert (encoding.index(r) - 256).tolist() == list(table.values())
    # an odd function: so row 0, which stands for −256, is never used
    assert (encoding.index(-r) - 256).tolist() == [-bucket for bucket in table.values()]
    assert encoding.index(r).dtype == torch.int64


@pytest.mark.parametrize(
    ("span", "max_distance"), [(256, 512), (4, 4), (6, 14), (4, 50), (32, 100), (100, 52), (8, 6)]
)
def test_every_bucket_is_that_of_exact_fractions(span, max_distance):
    r = range(-max_distance - 20, max_distance + 21)
    signed = [exact(abs(x), span, max_distance) * (-1 if x < 0 else 1) for x in r]
    expected = [min(max(x + span, 0), 2 * span - 1) for x in signed]
    ours = DeBERTa(4, span, max_distance=max_distance).index(torch.tensor(r))
    assert ours.tolist() == expected and (ours.diff() >= 0).all()


def test_away_from_whole_numbers_it_is_the_published_formula():
    encoding, compared = DeBERTa(4, 256, max_distance=512), 0
    for m in range(129, 512):
        place = math.log(m / 128) / math.log(511 / 128) * 127
        if abs(place - round(place)) > 1e-9:
            compared += 1
            for sign in (1, -1):
                bucket = encoding.index(torch.tensor(sign * m)) - 256
                assert bucket == sign * (math.ceil(place) + 128)
    assert compared > 375


@both_conventions
@pytest.mark.parametrize("where", ["run", "gaps"])
def test_the_logits_use_the_buckets(index, where):
    encoding, at = own(6, convention=index, max_distance=9), WHERE[where]
    at = At.of(at.query, at.key * 2)
    asks, keys = by_head_of(encoding)
    ours = encoding.position_logits(Q, K, at).detach()
    for b in range(BATCH):
        for i, m in enumerate(at.query[b % len(at.query)].tolist()):
            for j, n in enumerate(at.key[b % len(at.key)].tolist()):
                there = exact(abs(m - n), 6, 9) * (1 if m > n else -1)
                back = -there if index == "paper" else there
                expected = (Q[b, :, i] * keys[:, there + 6]).sum(-1)
                expected = expected + (K[b, :, j] * asks[:, back + 6]).sum(-1)
                close(ours[b, :, i, j], expected / math.sqrt(3 * HEAD_DIM))


def test_each_distance_is_looked_up_once_and_with_gaps_each_pair():
    seen = []

    class Watched(DeBERTa):
        def index(self, distance):
            seen.append(tuple(distance.shape))
            return super().index(distance)

    encoding = Watched(WIDTH, 3, heads=HEADS, head_dim=HEAD_DIM).double()
    for where in ("memory", "gaps"):
        encoding.position_logits(Q, K, WHERE[where])
    assert seen == [(1, 6 + N - 1)] * 2 + [(2, 6, N), (2, N, 6)]


# its parameters


def test_what_there_is_to_train():
    shapes = {name: tuple(p.shape) for name, p in own(3).named_parameters()}
    assert shapes == {
        "R": (6, WIDTH),
        "W_KR.weight": (12, WIDTH),
        "W_QR.weight": (12, WIDTH),
        "W_QR.bias": (12,),
    }
    encoding = DeBERTa(7, 6, max_distance=14)
    assert set(encoding.state_dict()) == {"R"} and encoding.R.shape == (12, 7)
    assert repr(encoding) == (
        "DeBERTa(7, span=6, convention='paper', max_distance=14, the layer's projections)"
    )
    assert "3, span=512, convention='code', max_distance=None, own" in repr(
        DeBERTa(3, convention="code", heads=2, head_dim=2)
    )


def test_rows_start_near_zero():
    torch.manual_seed(0)
    R = DeBERTa(100, 500).R
    assert abs(R.mean()) < 1e-3 and abs(R.std() - 0.02) < 1e-3
    assert abs(DeBERTa(100, 500, std=0.5).R.std() - 0.5) < 0.01
    assert (DeBERTa(4, 2, std=0).R == 0).all()


def test_the_scale_is_for_three_products():
    encoding = DeBERTa(4, 2)
    assert encoding.scale(4) == 12**-0.5 and encoding.scale(64) == 192**-0.5
    assert encoding.has_own_scale()


@both_conventions
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("projections", ["own", "the layer's"])
def test_the_gradients_of_its_parameters_are_right(index, gaps, projections):
    sizes = {"heads": 2, "head_dim": 2} if projections == "own" else {}
    layer = weights(Attention(4, 2, DeBERTa(4, 2, convention=index, **sizes))).double()
    x, at = draw(1, 4, 4), At.of(positions_with_gaps(1, 4)) if gaps else At.sequence(4)
    named = {n: p for n, p in layer.named_parameters() if n.startswith(("encoding", "W_Q", "W_K"))}

    def outputs(*values: Tensor) -> Tensor:
        return torch.func.functional_call(layer, dict(zip(named, values, strict=True)), (x, at))

    assert len(named) == (6 if sizes else 3)
    assert torch.autograd.gradcheck(outputs, tuple(named.values()))


def test_all_rows_get_a_gradient_and_the_first_only_from_far_ahead():
    for n, unused in ((5, set()), (3, {0})):  # span 3: row 0 is for −3 and less
        encoding = own(3)
        encoding.position_logits(*draw(2, 1, HEADS, n, HEAD_DIM), At.sequence(n)).sum().backward()
        without = {r for r in range(6) if bool((encoding.R.grad[r] == 0).all())}
        assert without == unused


# the decoder


VOCABULARY, LONGEST = 11, 80
TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5], [3, 5, 8, 9, 7, 9, 3, 2, 3]])  # (2, 9)


def decoder(
    encoding: Encoding | list[Encoding] | None = None, layers: int = 3, **options
) -> EnhancedMaskDecoder:
    encoding = DeBERTa(DIM, 4) if encoding is None else encoding
    positions = Trainable(DIM, LONGEST)
    model = EnhancedMaskDecoder(VOCABULARY, DIM, HEADS, layers, encoding, positions, **options)
    return weights(model).double()


def norm(layer: torch.nn.LayerNorm, x: Tensor) -> Tensor:
    return F.layer_norm(x, (DIM,), layer.weight, layer.bias)


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("layers", [2, 4])
def test_the_decoder_is_what_is_written_on_the_page(steps, layers):
    model, at = decoder(layers=layers, steps=steps), At.of(positions_with_gaps(2, 9))
    h = model.embedding.weight[TOKENS]
    for block in model.blocks[: layers - 1]:
        normed = norm(block.attention_norm, h)
        h = h + block.attention(normed, at, normed)
        h = h + block.feed_forward(norm(block.feed_forward_norm, h))
    last = model.blocks[layers - 1]
    z = h + model.positions.table[at.query]
    for _ in range(steps):
        asks, context = norm(last.attention_norm, z), norm(last.attention_norm, h)
        q, k, v = last.attention.q(asks), last.attention.k(context), last.attention.W_V(context)
        a = last.attention.encoding.score(q, k, at, last.attention).softmax(-1)
        o = a @ v.unflatten(-1, (HEADS, -1)).transpose(1, 2)
        z = z + last.attention.W_O(o.transpose(1, 2).flatten(2))
        z = z + last.feed_forward(norm(last.feed_forward_norm, z))
    expected = norm(model.norm, z) @ model.head.weight.T + model.head.bias
    assert expected.shape == (2, 9, VOCABULARY)
    close(model(TOKENS, at), expected)


def test_encode_runs_every_layer_once_and_ends_with_the_norm():
    model, at = decoder(), At.of(positions_with_gaps(2, 9))
    h = model.embedding(TOKENS)
    for block in model.blocks:
        h, _ = block(h, at)
    close(model.encode(TOKENS, at), norm(model.norm, h))


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_the_last_layer_is_applied_as_often_as_asked_and_the_others_once(steps):
    model, calls = decoder(steps=steps), []
    for number, block in enumerate(model.blocks):
        for part in (block.attention, block.feed_forward):
            part.register_forward_hook(lambda *_, number=number: calls.append(number))
    model(TOKENS, At.sequence(9))
    assert calls == [0, 0, 1, 1] + [2, 2] * steps
    calls.clear()
    model.encode(TOKENS, At.sequence(9))
    assert calls == [0, 0, 1, 1, 2, 2]


def test_it_has_its_parameters_once_however_often_they_are_used():
    counts = {sum(p.numel() for p in decoder(steps=steps).parameters()) for steps in (1, 2, 3)}
    assert len(counts) == 1
    names = {name for name, _ in decoder().named_parameters()}
    assert {name.split(".")[0] for name in names} == {
        *("embedding", "blocks", "positions", "norm", "head")
    }
    assert {name for name in names if "encoding" in name} == {"blocks.0.attention.encoding.R"}
    assert len(decoder(layers=2).blocks) == 2 and decoder().steps == 2
    assert decoder(expansion=5).blocks[0].feed_forward[0].weight.shape == (5 * DIM, DIM)


def test_each_layer_may_have_an_encoding_of_its_own():
    encodings = [DeBERTa(DIM, 4), T5(HEADS), DeBERTa(DIM, 2, convention="code")]
    model = decoder(encodings)
    assert [block.attention.encoding for block in model.blocks] == encodings
    assert model(TOKENS, At.sequence(9)).isfinite().all()


def test_the_decoder_knows_where_it_is_and_the_encoder_knows_distances_only():
    model = decoder()
    for positions in (torch.arange(9)[None], positions_with_gaps(2, 9)):
        here, there = At.of(positions, causal=True), At.of(positions + 20, causal=True)
        close(model.encode(TOKENS, there), model.encode(TOKENS, here))
        change = (model(TOKENS, there) - model(TOKENS, here)).abs().amax(-1)
        assert (change > 1e-3).all()


def test_positions_reach_the_queries_and_not_the_keys():
    """One query's vector is moved: only its own output changes."""
    model, at = decoder(), At.sequence(9)
    before = model(TOKENS, at)
    with torch.no_grad():
        model.positions.table[4] *= -2
    change = (model(TOKENS, at) - before).abs().amax((0, 2))
    assert change[4] > 1e-2 and (change[[0, 1, 2, 3, 5, 6, 7, 8]] == 0).all()


def test_other_absolute_positions_and_other_ways_to_put_them_in():
    for positions in (Sinusoidal(DIM), Sinusoidal(DIM, combine="multiply")):
        model = EnhancedMaskDecoder(VOCABULARY, DIM, HEADS, 2, T5(HEADS), positions)
        model, at = weights(model).double(), At.of(positions_with_gaps(2, 9))
        h, _ = model.blocks[0](model.embedding(TOKENS), at)
        z, last = positions.embed(h, at.query), model.blocks[1]
        for _ in range(2):
            context = last.attention_norm(h)
            z = z + last.attention(last.attention_norm(z), at, context)
            z = z + last.feed_forward(last.feed_forward_norm(z))
        close(model(TOKENS, at), model.head(model.norm(z)))


def test_gradients_reach_everything():
    model = decoder()
    model(TOKENS, At.sequence(9)).square().sum().backward()
    assert all((p.grad != 0).any() for p in model.parameters())
    assert (model.positions.table.grad[:9] != 0).all()
    assert (model.positions.table.grad[9:] == 0).all()
    model.zero_grad()
    model.encode(TOKENS, At.sequence(9)).square().sum().backward()
    unused = {name for name, p in model.named_parameters() if p.grad is None}
    assert unused == {"positions.table", "head.weight", "head.bias"}


def test_a_left_padded_text_gives_what_it_gives_alone():
    model, mask = decoder(), torch.arange(9) >= torch.tensor([[4], [0]])
    at, alone = At.of(positions_from_mask(mask), mask=mask), At.sequence(5)
    for run in (model, model.encode):
        close(run(TOKENS, at)[:1, 4:], run(TOKENS[:1, 4:], alone))
        close(run(TOKENS, at)[1:], run(TOKENS[1:], At.sequence(9)))


@pytest.mark.parametrize(("batch", "n"), [(0, 9), (2, 0), (2, 1), (0, 0)])
def test_empty_and_short_texts_work(batch, n):
    model, tokens = decoder(), TOKENS[:batch, :n]
    assert model(tokens, At.sequence(n)).shape == (batch, n, VOCABULARY)
    assert model.encode(tokens, At.sequence(n)).shape == (batch, n, DIM)


def test_the_decoder_may_be_copied_and_moved():
    model, at = decoder(), At.of(positions_with_gaps(2, 9))
    expected = model(TOKENS, at)
    assert torch.equal(copy.deepcopy(model)(TOKENS, at), expected)
    fresh = EnhancedMaskDecoder(
        VOCABULARY, DIM, HEADS, 3, DeBERTa(DIM, 4), Trainable(DIM, LONGEST)
    ).double()
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(TOKENS, at), expected)
    small = copy.deepcopy(model).bfloat16()(TOKENS, at)
    assert small.dtype == torch.bfloat16
    close(small.double(), expected, 0.15 * float(expected.std().detach()))
    meta = model.to("meta")(TOKENS.to("meta"), At.sequence(9, device="meta"))
    assert meta.is_meta and meta.shape == (2, 9, VOCABULARY)


# wrong input


def build(**arguments) -> EnhancedMaskDecoder:
    options = {
        **{"vocabulary": 11, "dim": 12, "heads": 3, "layers": 2, "encoding": Encoding()},
        **{"positions": Sinusoidal(12)},
    }
    return EnhancedMaskDecoder(**options | arguments)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: DeBERTa(0), ValueError, "dim must be 1 or more, but is 0"),
        (lambda: DeBERTa(4.0), TypeError, "dim must be a whole number, but is 4.0"),
        (lambda: DeBERTa(4, 0), ValueError, "span must be 1 or more, but is 0"),
        (lambda: DeBERTa(4, "8"), TypeError, "span must be a whole number, but is '8'"),
        (
            lambda: DeBERTa(4, convention="hf"),
            ValueError,
            'convention must be "paper" or .* but is .hf.',
        ),
        (lambda: DeBERTa(4, std=-1), ValueError, "std must be 0 or more and finite, but is -1"),
        (lambda: DeBERTa(4, std=math.inf), ValueError, "finite, but is inf"),
        (lambda: DeBERTa(4, heads=2), ValueError, "give heads and head_dim .* got only one"),
        (lambda: DeBERTa(4, head_dim=2), ValueError, "give heads and head_dim .* got only one"),
        (lambda: DeBERTa(4, heads=0, head_dim=2), ValueError, "heads must be 1 or more"),
        (lambda: DeBERTa(4, heads=2, head_dim=0), ValueError, "head_dim must be 1 or more"),
        (lambda: DeBERTa(4, 7, max_distance=20), ValueError, "span must be even.* are 7 and 20"),
        (lambda: DeBERTa(4, 2, max_distance=20), ValueError, "4 or more.* they are 2 and 20"),
        (lambda: DeBERTa(4, 8, max_distance=5), ValueError, "span / 2 .* they are 8 and 5"),
        (lambda: DeBERTa(4, 8, max_distance=0), ValueError, "max_distance must be 1 or more"),
        (lambda: DeBERTa(4, 8, max_distance=9.5), TypeError, "max_distance must be a whole"),
        (
            lambda: DeBERTa(12, 3).position_logits(Q, K, WHERE["run"]),
            ValueError,
            "R goes through the layer's own W_Q and W_K, so score needs project, which Attention",
        ),
        (
            lambda: DeBERTa(12, 3).score(Q, K, WHERE["gaps"]),
            ValueError,
            "or give heads and head_dim for projections of the encoding's own",
        ),
        (
            lambda: own().position_logits(Q[:, :2], K, WHERE["run"]),
            ValueError,
            "q must have 3 heads of width 4, as the encoding has, but has 2 of width 4",
        ),
        (
            lambda: own().position_logits(Q[..., :3], K[..., :3], WHERE["run"]),
            ValueError,
            "q must have 3 heads of width 4, as the encoding has, but has 3 of width 3",
        ),
        (
            lambda: own().position_logits(Q, K[..., :3], WHERE["gaps"]),
            ValueError,
            "k must have 3 heads of width 4, as the encoding has, but has 3 of width 3",
        ),
        (
            lambda: own().position_logits(Q, Q, WHERE["run"]),
            ValueError,
            "k must have one row for each of the 7 positions, but has 6",
        ),
        (lambda: build(vocabulary=0), ValueError, "vocabulary must be 1 or more, but is 0"),
        (lambda: build(dim=0), ValueError, "dim must be 1 or more, but is 0"),
        (lambda: build(heads=5), ValueError, "heads must divide dim, but 5 does not divide 12"),
        (lambda: build(layers=1), ValueError, "layers must be 2 or more, but is 1"),
        (lambda: build(layers=2.0), TypeError, "layers must be a whole number, but is 2.0"),
        (lambda: build(steps=0), ValueError, "steps must be 1 or more, but is 0"),
        (lambda: build(expansion=0), ValueError, "expansion must be 1 or more, but is 0"),
        (lambda: build(positions=T5(3)), TypeError, "positions must be an Absolute, .* type T5"),
        (lambda: build(positions=None), TypeError, "positions must be an Absolute"),
        (lambda: build(encoding=[Encoding()]), ValueError, "each of the 2 layers, .* are 1"),
        (lambda: build(encoding=[Encoding()] * 3), ValueError, "the 2 layers, .* are 3"),
        (lambda: build(encoding=DeBERTa), TypeError, "encoding must be an Encoding, .* DeBERTa"),
        (
            lambda: build(positions=Trainable(12, 8))(TOKENS, At.sequence(9)),
            ValueError,
            "positions must be below max_length = 8, but 8 is among them",
        ),
        (
            lambda: build(positions=Sinusoidal(10))(TOKENS, At.sequence(9)),
            ValueError,
            "positions must be 12 wide, like the model, and keep its width",
        ),
        (
            lambda: build()(TOKENS, At.sequence(8)),
            ValueError,
            r"at.query must be \(2 or 1, 9\), but has shape \(1, 8\)",
        ),
    ],
)
def test_wrong_input_is_named(call, error, says):
    with pytest.raises(error, match=says):
        call()
