"""The small Transformer: its cache, padding, sharing, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from posenc import (
    At,
    Block,
    Combined,
    Encoding,
    Recurrent,
    Rotary,
    Sinusoidal,
    Transformer,
    positions_from_mask,
)
from tests.encodings import (
    ALL_NORMALISERS,
    DIM,
    ENCODINGS,
    HEAD_DIM,
    HEADS,
    READS_NEIGHBOURS,
    WHOLE_SEQUENCE,
    draw,
    weights,
)

every_encoding = pytest.mark.parametrize("name", ENCODINGS)
VOCABULARY, LAYERS, OUTPUTS = 11, 2, 5
TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5], [3, 5, 8, 9, 7, 9, 3, 2, 3]])  # (2, 9)


def model(encoding=None, normaliser: str = "softmax") -> Transformer:
    make = ALL_NORMALISERS[normaliser]
    built = Transformer(VOCABULARY, DIM, HEADS, LAYERS, encoding, make(), outputs=OUTPUTS)
    return weights(built).double().eval()


def close(ours: Tensor, theirs: Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=atol)


def in_chunks(run: Transformer, tokens: Tensor, positions: Tensor, mask: Tensor, sizes) -> Tensor:
    cache: list[Tensor] = []
    parts, start = [], 0
    for size in sizes:
        now = slice(start, start + size)
        at = At.of(
            positions[:, now],
            positions[:, : start + size],
            mask=mask[:, : start + size],
            causal=True,
        )
        parts.append(run(tokens[:, now], at, mask[:, now], cache))
        start += size
    return torch.cat(parts, 1)


@pytest.mark.parametrize("name", sorted(set(ENCODINGS) - READS_NEIGHBOURS))
@pytest.mark.parametrize("normaliser", [n for n in ALL_NORMALISERS if n not in WHOLE_SEQUENCE])
def test_a_key_cache_changes_nothing_however_the_text_is_cut(name, normaliser):
    run = model(ENCODINGS[name](), normaliser)
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[0, :3] = False  # a left-padded row, so that rows stand at different positions
    positions = positions_from_mask(mask)
    whole = run(TOKENS, At.of(positions, mask=mask, causal=True), mask)
    for sizes in ((4, 1, 4), (1,) * 9):
        # only real tokens: what a pad sees, at a position that is not its own, means nothing
        close(in_chunks(run, TOKENS, positions, mask, sizes)[mask], whole[mask])


@pytest.mark.parametrize("name", sorted(READS_NEIGHBOURS))
def test_encodings_that_read_neighbours_refuse_a_cache_at_once(name):
    """The first chunk of a cached run looks like a whole sequence; the second would start anew."""
    for encoding in (ENCODINGS[name](), Combined(Rotary(HEAD_DIM), ENCODINGS[name]())):
        run, cache = model(encoding), []
        with pytest.raises(ValueError, match="neighbouring tokens needs the whole sequence"):
            run(TOKENS, At.sequence(9, causal=True), cache=cache)
        assert cache == []


@every_encoding
@pytest.mark.parametrize("normaliser", ALL_NORMALISERS)
def test_a_left_padded_prompt_gives_what_it_gives_alone(name, normaliser):
    run = model(ENCODINGS[name](), normaliser)
    mask = torch.arange(9) >= torch.tensor([[4], [0]])
    at = At.of(positions_from_mask(mask), mask=mask, causal=True)
    padded = run(TOKENS, at, mask)
    close(padded[:1, 4:], run(TOKENS[:1, 4:], At.sequence(5, causal=True)))
    close(padded[1:], run(TOKENS[1:], At.sequence(9, causal=True)))


@pytest.mark.parametrize("normaliser", sorted(WHOLE_SEQUENCE))
def test_normalisers_that_count_the_whole_sequence_refuse_a_cache_at_once(normaliser):
    """The first chunk of a cached run looks like a whole sequence, and would get the wrong n."""
    run, cache = model(Rotary(HEAD_DIM), normaliser), []
    with pytest.raises(ValueError, match='use count="visible"'):
        run(TOKENS[:, :4], At.sequence(4, causal=True), cache=cache)
    assert cache == []


@pytest.mark.parametrize("normaliser", sorted(WHOLE_SEQUENCE))
def test_normalisers_that_count_the_whole_sequence_refuse_another_number_of_keys(normaliser):
    attention = model(Rotary(HEAD_DIM), normaliser).blocks[0].attention
    x = torch.randn(2, 9, attention.dim, dtype=torch.float64)
    at = At.of(torch.arange(4, 9)[None], torch.arange(9)[None], causal=True)
    with pytest.raises(ValueError, match='use count="visible"'):
        attention(x[:, 4:], at, x)


class FailsInLayer(Encoding):
    """Works in the first `works` calls and then raises."""

    def __init__(self, works: int) -> None:
        super().__init__()
        self.left = works

    def transform(self, q, k, v, at):
        self.left -= 1
        if self.left < 0:
            raise ValueError("out of order")
        return q, k, v


def test_a_call_that_fails_in_the_second_layer_leaves_the_cache_as_it_was():
    run, cache = model(FailsInLayer(works=3)), []
    run(TOKENS[:, :4], At.sequence(4, causal=True), cache=cache)
    before, copies = list(cache), [context.clone() for context in cache]
    at = At.of(torch.tensor([[4]]), torch.arange(5)[None], causal=True)
    with pytest.raises(ValueError, match="out of order"):
        run(TOKENS[:, 4:5], at, cache=cache)
    assert all(now is then for now, then in zip(cache, before, strict=True))
    assert all(torch.equal(now, copy) for now, copy in zip(cache, copies, strict=True))


def test_the_cache_holds_one_context_for_each_layer_as_long_as_the_text():
    run, cache = model(), []
    run(TOKENS[:, :4], At.sequence(4, causal=True), cache=cache)
    assert [tuple(c.shape) for c in cache] == [(2, 4, DIM)] * LAYERS
    run(TOKENS[:, 4:5], At.of(torch.tensor([[4]]), torch.arange(5)[None]), cache=cache)
    assert [tuple(c.shape) for c in cache] == [(2, 5, DIM)] * LAYERS


def test_one_encoding_is_shared_and_a_list_gives_each_layer_its_own():
    shared = model(Rotary(HEAD_DIM, learned=True))
    assert shared.blocks[0].attention.encoding is shared.blocks[1].attention.encoding
    assert sum(name.endswith("theta") for name, _ in shared.named_parameters()) == 1
    first, second = Rotary(HEAD_DIM, learned=True), Rotary(HEAD_DIM, base=100.0, learned=True)
    own = model([first, second])
    assert own.blocks[0].attention.encoding is first
    assert own.blocks[1].attention.encoding is second
    own.load_state_dict(shared.state_dict(), strict=False)
    with torch.no_grad():
        second.theta.copy_(first.theta)
    at = At.sequence(9, causal=True)
    close(own(TOKENS, at), shared(TOKENS, at))


def test_the_input_is_embedded_once_and_by_the_first_encoding():
    at = At.sequence(9)
    first = model([Sinusoidal(DIM), Encoding()])
    close(first(TOKENS, at), model(Sinusoidal(DIM))(TOKENS, at))
    assert (first(TOKENS, at) - model()(TOKENS, at)).abs().max() > 1e-2


@pytest.mark.parametrize("later", [Sinusoidal(DIM), Combined(Rotary(HEAD_DIM), Sinusoidal(DIM))])
def test_an_encoding_that_would_embed_in_a_later_layer_is_refused(later):
    """It would do nothing there, silently."""
    for first in (Encoding(), Sinusoidal(DIM)):
        with pytest.raises(ValueError, match="only the first layer's encoding embeds the input"):
            model([first, later])
    model([later, later])


def test_an_encoding_that_reads_neighbours_has_to_know_the_pads():
    run, mask = model(Recurrent(DIM)), torch.arange(9) >= torch.tensor([[4], [0]])
    at = At.of(positions_from_mask(mask), mask=mask, causal=True)
    with pytest.raises(ValueError, match="give the mask to the model too"):
        run(TOKENS, at)
    run(TOKENS, at, mask)
    run(TOKENS, At.sequence(9, causal=True))


def test_a_block_is_pre_norm_with_two_residuals():
    block, x, at = weights(Block(DIM, HEADS, Rotary(HEAD_DIM))).double(), draw(2, 5, DIM), None
    at = At.sequence(5, causal=True)
    y, context = block(x, at)
    close(context, block.attention_norm(x))
    z = x + block.attention(context, at)
    close(y, z + block.feed_forward(block.feed_forward_norm(z)))


def test_the_model_is_embedding_blocks_norm_and_head():
    run, at = model([Rotary(HEAD_DIM), Rotary(HEAD_DIM, values="relative")]), At.sequence(9)
    x = run.embedding(TOKENS)
    for block in run.blocks:
        x, _ = block(x, at)
    with torch.no_grad():
        run.norm.bias.add_(0.3)  # a norm that only the head could undo
    close(run(TOKENS, at), run.head(run.norm(x)))
    assert run(TOKENS, at).shape == (2, 9, OUTPUTS)


def test_the_mask_reaches_the_encodings_that_look_at_neighbours():
    class Neighbours(Encoding):
        def embed(self, x, positions, mask=None):
            self.seen = positions, mask
            return x

    encoding, mask = Neighbours(), torch.ones(2, 9, dtype=torch.bool)
    at = At.sequence(9)
    model(encoding)(TOKENS, at, mask)
    assert encoding.seen[0] is at.query and encoding.seen[1] is mask


# wrong input


NINE, FIVE = At.sequence(9), At.of(torch.tensor([[4]]), torch.arange(5)[None])


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda m: m(TOKENS + 6, NINE), ValueError, "tokens must be from 0 to 10, .* 7 to 15"),
        (lambda m: m(TOKENS + 2, NINE), ValueError, "tokens must be from 0 to 10, .* 3 to 11"),
        (lambda m: m(TOKENS - 2, NINE), ValueError, "tokens must be from 0 to 10, .* -1 to 7"),
        (lambda m: m(TOKENS[0], NINE), ValueError, r"tokens must be .*\(9,\)"),
        (lambda m: m(TOKENS.int(), NINE), ValueError, "tokens must be .*int32"),
        (lambda m: m(TOKENS.double(), NINE), ValueError, "tokens must be .*float64"),
        (lambda m: m(TOKENS.tolist(), NINE), TypeError, "tokens must be a Tensor"),
        (lambda m: m(TOKENS, None), TypeError, "at must be an At"),
        (lambda m: m(TOKENS, At.sequence(8)), ValueError, r"at.query must be .*\(1, 8\)"),
        (lambda m: m(TOKENS, NINE, TOKENS), ValueError, r"mask must be \(2 or 1, 9\) bool.*int64"),
        (lambda m: m(TOKENS, NINE, TOKENS[:, :4] > 2), ValueError, r"mask must be .*\(2, 4\)"),
        (lambda m: m(TOKENS[:, :1], FIVE), ValueError, r"at.key must be \(2 or 1, 1\)"),
        (lambda m: m(TOKENS, NINE, cache=()), TypeError, "cache must be a list, .*tuple"),
        (lambda m: m(TOKENS, NINE, cache=draw(2, 2, 4, DIM)), TypeError, "cache must be a list"),
        (lambda m: m(TOKENS, NINE, cache=[None, None]), TypeError, "a context in cache must be"),
        (lambda m: m(TOKENS, NINE, cache=[draw(2, 4, DIM)]), ValueError, "2 layers, .* holds 1"),
        (
            lambda m: m(TOKENS[:, :1], FIVE, cache=[draw(1, 4, DIM)] * 2),
            ValueError,
            r"cache must hold contexts \(2, n_past, 12\), .*\(1, 4, 12\)",
        ),
        (
            lambda m: m(TOKENS[:, :1], FIVE, cache=[draw(2, 4, DIM - 1)] * 2),
            ValueError,
            r"cache must hold contexts .*\(2, 4, 11\)",
        ),
    ],
)
def test_wrong_input_is_named(call, error, says):
    with pytest.raises(error, match=says):
        call(model(Rotary(HEAD_DIM)))


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"vocabulary": 0}, ValueError, "vocabulary must be 1 or more, but is 0"),
        ({"dim": 0}, ValueError, "dim must be 1 or more, but is 0"),
        ({"heads": 5}, ValueError, "heads must divide dim, but 5 does not divide 12"),
        ({"layers": 0}, ValueError, "layers must be 1 or more, but is 0"),
        ({"outputs": -1}, ValueError, "outputs must be 1 or more, but is -1"),
        ({"expansion": 0}, ValueError, "expansion must be 1 or more, but is 0"),
        ({"layers": 2.0}, TypeError, "layers must be a whole number, but is 2.0"),
        ({"encoding": [Encoding()]}, ValueError, "each of the 2 layers, but there are 1"),
        ({"encoding": [Encoding()] * 3}, ValueError, "each of the 2 layers, but there are 3"),
        ({"encoding": Rotary}, TypeError, "encoding must be an Encoding, but is the class Rotary"),
        ({"encoding": ["a", "b"]}, TypeError, "encoding must be an Encoding, but is of type str"),
        ({"normaliser": "l2"}, TypeError, "normaliser must be a Module"),
    ],
)
def test_wrong_construction_is_named(arguments, error, says):
    with pytest.raises(error, match=says):
        Transformer(**{"vocabulary": 11, "dim": 12, "heads": 3, "layers": 2} | arguments)
