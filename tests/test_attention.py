"""`Attention` against three nested loops, with sizes that differ on every axis."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from posenc import At, Attention, Encoding, Rotary, Softmax, positions_from_mask
from tests.encodings import (
    ALL_NORMALISERS,
    BATCH,
    BLIND,
    DIM,
    ENCODINGS,
    HEAD_DIM,
    HEADS,
    LOOKS_AHEAD,
    READS_NEIGHBOURS,
    RELATIVE,
    SEES_HOLES,
    VALUE_DIM,
    Layer,
    N,
    draw,
    positions_with_gaps,
    weights,
)

every_encoding = pytest.mark.parametrize("name", ENCODINGS)


def close(ours: Tensor, theirs: Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=atol)


def attention(encoding: Encoding | None = None) -> Attention:
    # five numbers, no two of them equal: 11, 3, 4, 5 and the lengths
    return weights(Attention(11, HEADS, encoding, head_dim=HEAD_DIM, value_dim=VALUE_DIM)).double()


def naive(layer: Attention, x: Tensor, at: At, context: Tensor, turn=lambda row, k: row) -> Tensor:
    """softmax(q k/√d) v, one number at a time; `turn(row, position)` changes queries and keys."""
    W_Q, W_K, W_V, W_O = (w.weight.T.detach() for w in (layer.W_Q, layer.W_K, layer.W_V, layer.W_O))
    query, key = (p.expand(len(x), -1) for p in (at.query, at.key))
    y = torch.zeros_like(x)
    for s in range(len(x)):
        for i in range(x.shape[1]):
            heads = []
            for h in range(HEADS):
                narrow = slice(h * HEAD_DIM, (h + 1) * HEAD_DIM)
                wide = slice(h * VALUE_DIM, (h + 1) * VALUE_DIM)
                q = turn(x[s, i] @ W_Q[:, narrow], int(query[s, i]))
                total, o = 0.0, torch.zeros(VALUE_DIM, dtype=x.dtype)
                for j in range(context.shape[1]):
                    if at.visible is not None and not at.visible[s % len(at.visible), i, j]:
                        continue
                    k = turn(context[s, j] @ W_K[:, narrow], int(key[s, j]))
                    e = math.exp(float(q @ k) / math.sqrt(HEAD_DIM))
                    total += e
                    o += e * (context[s, j] @ W_V[:, wide])
                heads.append(o / total if total else o)
            y[s, i] = torch.cat(heads) @ W_O
    return y


def turn_interleaved(row: Tensor, k: int) -> Tensor:
    turned = row.clone()
    for i in range(0, len(row), 2):
        z = complex(row[i], row[i + 1]) * complex(
            math.cos(k * 10000 ** (-i / len(row))), math.sin(k * 10000 ** (-i / len(row)))
        )
        turned[i], turned[i + 1] = z.real, z.imag
    return turned


GAPS = positions_with_gaps(2, 6)
LEFT = torch.tensor([[False, False, True, True, True, True], [True, True, True, True, True, False]])
SELF = {
    "all": At.sequence(6),
    "causal": At.sequence(6, causal=True),
    "gaps": At.of(GAPS),
    "gaps, causal": At.of(GAPS, causal=True),
    "padded": At.of(positions_from_mask(LEFT), mask=LEFT),
    "padded, causal": At.of(positions_from_mask(LEFT), mask=LEFT, causal=True),
    "shuffled, causal": At.of(torch.tensor([[3, 0, 5, 1, 4, 2]]), causal=True),
    "nothing visible": At.of(GAPS, mask=torch.zeros(1, 6, dtype=torch.bool)),
}


@pytest.mark.parametrize(
    ("encoding", "turn"), [(None, lambda row, k: row), (Rotary(HEAD_DIM), turn_interleaved)]
)
@pytest.mark.parametrize("where", SELF)
def test_self_attention_is_the_loop(encoding, turn, where):
    layer, x = attention(encoding), draw(2, 6, 11)
    close(layer(x, SELF[where]), naive(layer, x, SELF[where], x, turn))


@pytest.mark.parametrize("causal", [False, True])
def test_attention_to_a_context_is_the_loop(causal):
    layer, x, context = attention(Rotary(HEAD_DIM)), draw(2, 2, 11), draw(2, 6, 11, seed=1)
    at = At.of(GAPS[:, [5, 2]], GAPS, mask=LEFT, causal=causal)
    close(layer(x, at, context), naive(layer, x, at, context, turn_interleaved))


def test_context_gives_keys_and_values_and_x_the_queries_only():
    layer, x = attention(), draw(2, 6, 11)
    close(layer(x, SELF["causal"], x.clone()), layer(x, SELF["causal"]))
    at = At.of(torch.zeros(1, 2, dtype=torch.int64), GAPS)
    same = torch.zeros(2, 2, 11, dtype=torch.float64)
    y = layer(same, at, draw(2, 6, 11))
    close(y[:, 0], y[:, 1])
    assert (y - layer(same, at, draw(2, 6, 11, seed=1))).abs().max() > 1e-2


def test_weights_act_as_the_book_says():
    layer, x = attention(), draw(2, 6, 11)
    expected = (x @ layer.W_Q.weight.T).reshape(2, 6, HEADS, HEAD_DIM).permute(0, 2, 1, 3)
    close(layer.q(x), expected)
    expected = (x @ layer.W_K.weight.T).reshape(2, 6, HEADS, HEAD_DIM).permute(0, 2, 1, 3)
    close(layer.k(x), expected)
    assert layer.q(draw(5, 11)).shape == (HEADS, 5, HEAD_DIM)  # position vectors have no batch


def test_widths_are_those_asked_for_and_there_are_no_biases():
    shapes = {n: tuple(p.shape) for n, p in attention().named_parameters()}
    assert shapes == {
        "W_Q.weight": (12, 11),
        "W_K.weight": (12, 11),
        "W_V.weight": (15, 11),
        "W_O.weight": (11, 15),
    }
    assert Attention(12, 3).W_V.weight.shape == (12, 12)
    assert Attention(12, 3, head_dim=5).W_V.weight.shape == (15, 12)


def test_an_encoding_sees_the_projections_of_its_own_layer():
    class Asks(Encoding):
        def position_logits(self, q, k, at, project=None):
            r = draw(k.shape[-2], 11, seed=5)
            return project.q(r) @ project.k(r).mT

    layer, x, r = attention(Asks()), draw(2, 6, 11), draw(6, 11, seed=5)
    expected = attention()
    shift = expected.q(r) @ expected.k(r).mT
    q, k = expected.q(x), expected.k(x)
    a = torch.softmax(q @ k.mT / HEAD_DIM**0.5 + shift, -1)
    o = (a @ expected.split(expected.W_V(x))).transpose(1, 2).flatten(2)
    close(layer(x, At.sequence(6)), expected.W_O(o))


# what holds for every encoding


@pytest.mark.parametrize("name", sorted(set(ENCODINGS) - READS_NEIGHBOURS))
@pytest.mark.parametrize("causal", [False, True])
def test_tokens_and_their_positions_may_be_reordered_together(name, causal):
    layer = weights(Layer(ENCODINGS[name](), causal=causal)).double()
    x, positions, order = draw(BATCH, N, DIM), positions_with_gaps(), [4, 0, 6, 2, 5, 1, 3]
    close(layer(x[:, order], positions[:, order]), layer(x, positions)[:, order])


@every_encoding
def test_without_their_positions_they_may_only_if_the_encoding_is_blind(name):
    layer = weights(Layer(ENCODINGS[name](), causal=False)).double()
    x, positions, order = draw(BATCH, N, DIM), positions_with_gaps(), [4, 0, 6, 2, 5, 1, 3]
    change = (layer(x[:, order], positions) - layer(x, positions)[:, order]).abs().max()
    assert change <= 1e-12 if name in BLIND else change > 1e-4


@every_encoding
def test_a_later_start_changes_nothing_only_for_relative_encodings(name):
    layer = weights(Layer(ENCODINGS[name]())).double()
    x, positions = draw(BATCH, N, DIM), positions_with_gaps()
    change = (layer(x, positions + 1000) - layer(x, positions)).abs().max()
    # a learned frequency is a float32 parameter until .double(), and exact ever after
    assert change <= 1e-11 if name in RELATIVE else change > 1e-3


@every_encoding
def test_strided_shortcuts_for_consecutive_positions_change_nothing(name):
    layer, x = weights(Layer(ENCODINGS[name]()).attention).double(), draw(BATCH, N, DIM)
    at = At.sequence(N, causal=True)
    close(layer(x, at), layer(x, at._replace(consecutive=False)))


@every_encoding
@pytest.mark.parametrize("causal", [False, True])
def test_one_row_of_positions_serves_the_whole_batch(name, causal):
    layer = weights(Layer(ENCODINGS[name](), causal=causal)).double()
    x, positions = draw(BATCH, N, DIM), positions_with_gaps(1)
    together = layer(x, positions)
    close(together, layer(x, positions.expand(BATCH, -1)))
    for s in range(BATCH):
        close(together[s], layer(x[s : s + 1], positions)[0])


@every_encoding
@pytest.mark.parametrize("normaliser", ALL_NORMALISERS)
@pytest.mark.parametrize("causal", [False, True])
def test_pads_change_nothing_for_real_tokens(name, normaliser, causal):
    layer = weights(Layer(ENCODINGS[name](), ALL_NORMALISERS[normaliser](), causal)).double()
    mask = torch.tensor([[False] * 3 + [True] * 4, [False, True, True, False, True, True, False]])
    mask[1, 3] = name in SEES_HOLES
    x = draw(BATCH, N, DIM)
    y = layer(x, positions_from_mask(mask), mask)
    for s in range(BATCH):
        alone = layer(x[s : s + 1, mask[s]], torch.arange(int(mask[s].sum()))[None])
        close(y[s, mask[s]], alone[0])


@pytest.mark.parametrize("name", sorted(set(ENCODINGS) - LOOKS_AHEAD))
def test_causal_outputs_do_not_change_with_what_comes_later(name):
    layer, x, positions = weights(Layer(ENCODINGS[name]())).double(), draw(2, N, DIM), None
    positions = positions_with_gaps()
    later = x.clone()
    later[:, 4:] += 1
    before, after = layer(x, positions), layer(later, positions)
    close(before[:, :4], after[:, :4])
    assert ((before - after)[:, 4:].abs().amax((0, 2)) > 1e-3).all()


# wrong input


X = draw(2, 6, 11)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda a: a(X[0], At.sequence(6)), ValueError, r"x must be \(batch, n, 11\).*\(6, 11\)"),
        (lambda a: a(X[..., :9], At.sequence(6)), ValueError, r"x must be .*\(2, 6, 9\)"),
        (lambda a: a(None, At.sequence(6)), TypeError, "x must be a Tensor"),
        (lambda a: a(X.float(), At.sequence(6)), ValueError, "x must be torch.float64 .*float32"),
        (lambda a: a(X.long(), At.sequence(6)), ValueError, "x must be torch.float64 .*int64"),
        (lambda a: a(X, None), TypeError, "at must be an At"),
        (lambda a: a(X, At.sequence(5)), ValueError, r"at.query must be \(2 or 1, 6\).*\(1, 5\)"),
        (lambda a: a(X, At.sequence(1)), ValueError, "at.query"),
        (lambda a: a(X, At.of(positions_with_gaps(3, 6))), ValueError, r"at.query .*\(3, 6\)"),
        (lambda a: a(X, At.sequence(6), X[:1]), ValueError, "one batch size, but have 2 and 1"),
        (lambda a: a(X, At.sequence(6), X[0]), ValueError, r"context must be .*\(6, 11\)"),
        (lambda a: a(X, At.sequence(6), X.float()), ValueError, "context must be torch.float64"),
        (lambda a: a(X[:, :4], At.sequence(4), X), ValueError, r"at.key must be \(2 or 1, 6\)"),
        (
            lambda a: a(X, At.sequence(6)._replace(visible=torch.ones(6, 6) > 0)),
            ValueError,
            "at.visible must be",
        ),
    ],
)
def test_wrong_input_is_named(call, error, says):
    with pytest.raises(error, match=says):
        call(attention())


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"dim": 0}, ValueError, "dim must be 1 or more, but is 0"),
        ({"heads": -2}, ValueError, "heads must be 1 or more, but is -2"),
        ({"heads": 5}, ValueError, "heads must divide dim, but 5 does not divide 12"),
        ({"head_dim": 0}, ValueError, "head_dim must be 1 or more"),
        ({"value_dim": -1}, ValueError, "value_dim must be 1 or more, but is -1"),
        ({"dim": 12.0}, TypeError, "dim must be a whole number, but is 12.0"),
        ({"heads": "3"}, TypeError, "heads must be a whole number, but is '3'"),
        ({"encoding": "rotary"}, TypeError, "encoding must be an Encoding, but is of type str"),
        ({"encoding": Rotary}, TypeError, "encoding must be an Encoding, but is the class Rotary"),
        (
            {"encoding": Softmax()},
            TypeError,
            "encoding must be an Encoding, but is of type Softmax",
        ),
        ({"normaliser": "l2"}, TypeError, "normaliser must be a Module, but is of type str"),
        ({"normaliser": Softmax}, TypeError, "normaliser must be a Module, but is the class"),
    ],
)
def test_wrong_construction_is_named(arguments, error, says):
    with pytest.raises(error, match=says):
        Attention(**{"dim": 12, "heads": 3} | arguments)
