"""`At`, positions from masks, the stages' defaults, and combinations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from posenc import (
    At,
    Attention,
    Combined,
    Encoding,
    Rotary,
    Sinusoidal,
    Softmax,
    positions_from_mask,
)
from tests.encodings import draw, positions_with_gaps, weights


def row(*numbers: int) -> Tensor:
    return torch.tensor([numbers])


# At


def test_a_sequence_stands_at_0_to_n_minus_1_and_sees_everything():
    at = At.sequence(5)
    assert at.query.tolist() == at.key.tolist() == [[0, 1, 2, 3, 4]]
    assert at.query.dtype == torch.int64
    assert at.visible is None and at.consecutive


def test_causal_order_shows_each_query_itself_and_what_is_before():
    visible = At.sequence(4, causal=True).visible
    assert visible.tolist() == [[[j <= i for j in range(4)] for i in range(4)]]


def test_distance_is_query_minus_key():
    assert At.of(row(5, 7), row(1, 2, 6)).distance().tolist() == [[[4, 3, -1], [6, 5, 1]]]


def test_causal_order_compares_positions_and_not_indices():
    visible = At.of(row(5, 2), row(6, 2, 5), causal=True).visible
    assert visible.tolist() == [[[False, True, True], [False, True, False]]]


def test_mask_hides_keys_from_every_query():
    mask = torch.tensor([[True, False, True], [False, True, True]])
    visible = At.of(row(3, 4), row(2, 3, 4), mask=mask).visible
    assert visible.tolist() == [[[True, False, True]] * 2, [[False, True, True]] * 2]


def test_mask_and_causal_order_are_both_obeyed():
    at = At.of(row(0, 1, 2), mask=torch.tensor([[True, False, True]]), causal=True)
    expected = [[True, False, False], [True, False, False], [True, False, True]]
    assert at.visible.tolist() == [expected]


@pytest.mark.parametrize(
    ("query", "key", "batch"),
    [((1, 3), (1, 4), 1), ((2, 3), (1, 4), 2), ((1, 3), (2, 4), 2), ((2, 3), (2, 4), 2)],
)
@pytest.mark.parametrize("mask_batch", [1, 2])
def test_batches_of_positions_and_mask_broadcast(query, key, batch, mask_batch):
    at = At.of(
        torch.zeros(query, dtype=torch.int64),
        torch.zeros(key, dtype=torch.int64),
        mask=torch.ones(1 if batch == 1 else mask_batch, 4, dtype=torch.bool),
        causal=True,
    )
    assert at.visible.shape[0] in (1, batch) and at.visible.shape[1:] == (3, 4)


@pytest.mark.parametrize(
    ("query", "key", "consecutive"),
    [
        (row(0, 1, 2), row(0, 1, 2), True),
        (row(4, 5), row(0, 1, 2, 3, 4, 5), True),
        (torch.tensor([[0, 1], [7, 8]]), row(3, 4), True),
        (row(9), row(2), True),
        (row(0, 2), row(0, 1), False),
        (row(0, 1), row(0, 2), False),
        (row(1, 0), row(0, 1), False),
        (torch.tensor([[0, 1], [0, 0]]), row(0, 1), False),
    ],
)
def test_consecutive_means_that_both_are_runs(query, key, consecutive):
    assert At.of(query, key).consecutive is consecutive


@pytest.mark.parametrize("causal", [False, True])
def test_of_equals_sequence_on_a_plain_sequence(causal):
    ours, plain = At.of(torch.arange(6)[None], causal=causal), At.sequence(6, causal=causal)
    assert torch.equal(ours.query, plain.query) and torch.equal(ours.key, plain.key)
    assert ours.consecutive == plain.consecutive
    assert (ours.visible is None) == (plain.visible is None) == (not causal)
    assert not causal or torch.equal(ours.visible, plain.visible)


TWO, BATCHES = torch.zeros(2, 3, dtype=torch.int64), torch.zeros(3, 3, dtype=torch.int64)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: At.sequence(-1), ValueError, "n must be 0 or more, but is -1"),
        (lambda: At.sequence(2.5), TypeError, "n must be a whole number, but is 2.5"),
        (lambda: At.of([[0, 1]]), TypeError, "query must be a Tensor, but is of type list"),
        (lambda: At.of(torch.arange(3)), ValueError, r"query must be .*shape \(3,\)"),
        (lambda: At.of(row(0).float()), ValueError, "query must be int64 .*torch.float32"),
        (lambda: At.of(row(0).int()), ValueError, "query must be int64 .*torch.int32"),
        (lambda: At.of(row(0, -1)), ValueError, "query positions count from 0, but -1"),
        (lambda: At.of(row(0), row(-7)), ValueError, "key positions count from 0, but -7"),
        (lambda: At.of(TWO, BATCHES), ValueError, "query and key .* 2 and 3"),
        (lambda: At.of(row(0), mask=[[True]]), TypeError, "mask must be a Tensor"),
        (lambda: At.of(row(0), mask=torch.ones(1, 1)), ValueError, "mask must be bool.*float32"),
        (lambda: At.of(row(0), mask=row(1)), ValueError, "mask must be bool.*int64"),
        (lambda: At.of(TWO, mask=BATCHES > 0), ValueError, r"mask must be \(2 or 1, 3\).*\(3, 3\)"),
        (lambda: At.of(TWO, row(0, 0, 0), mask=BATCHES > 0), ValueError, r"mask must be \(2 or 1"),
        (lambda: At.of(TWO, mask=TWO[:, :2] > 0), ValueError, r"mask must be .*\(2, 2\)"),
        (lambda: At.of(TWO, mask=TWO[0] > 0), ValueError, r"mask must be .*\(3,\)"),
    ],
)
def test_wrong_positions_and_masks_are_named(call, error, says):
    with pytest.raises(error, match=says):
        call()


# positions from masks


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.uint8])
@pytest.mark.parametrize(
    ("mask", "real"),
    [
        ([0, 0, 1, 1, 1], [0, 1, 2]),
        ([1, 1, 1, 1, 1], [0, 1, 2, 3, 4]),
        ([1, 0, 1, 1], [0, 1, 2]),
        ([1, 1, 0, 0], [0, 1]),
        ([0, 0], []),
        ([], []),
    ],
)
def test_real_tokens_are_counted_from_0_and_no_pad_is_below(mask, real, dtype):
    mask = torch.tensor([mask]).to(dtype)
    positions = positions_from_mask(mask)
    assert positions.dtype == torch.int64 and positions.shape == mask.shape
    assert positions[mask.bool()].tolist() == real
    assert (positions >= 0).all()


def test_a_cached_step_stands_behind_the_real_tokens_of_its_row():
    mask = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]])
    assert positions_from_mask(mask)[:, -1:].tolist() == [[3], [5]]


@pytest.mark.parametrize(
    ("mask", "error", "says"),
    [
        ([[1, 0]], TypeError, "mask must be a Tensor, but is of type list"),
        (torch.ones(3, dtype=torch.bool), ValueError, r"mask must be \(batch, n\).*\(3,\)"),
        (torch.ones(1, 3), ValueError, "mask must be bool or 0/1 integers, but is torch.float32"),
        (row(0, 2, 7), ValueError, "mask must be bool or 0/1 integers, but reaches from 0 to 7"),
        (row(1, -1), ValueError, "mask must be bool or 0/1 integers, but reaches from -1 to 1"),
    ],
)
def test_wrong_masks_are_named(mask, error, says):
    with pytest.raises(error, match=says):
        positions_from_mask(mask)


# the stages


Q, K, V = draw(2, 3, 5, 4), draw(2, 3, 7, 4, seed=1), draw(2, 3, 7, 6, seed=2)
AT = At.of(positions_with_gaps(2, 5), positions_with_gaps(2, 7))


def test_no_encoding_changes_nothing():
    none, x = Encoding(), draw(2, 5, 9)
    assert none.embed(x, AT.query) is x
    assert all(new is old for new, old in zip(none.transform(Q, K, V, AT), (Q, K, V), strict=True))
    assert none.position_logits(Q, K, AT) is None
    assert not none.has_own_scale()


def test_score_is_the_scaled_product_of_queries_and_keys():
    logits = Encoding().score(Q, K, AT)
    expected = torch.einsum("bhid,bhjd->bhij", Q, K) / 4**0.5
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-12)


def test_mix_is_the_weighted_sum_of_values():
    a = draw(2, 3, 5, 7, seed=3)
    expected = torch.einsum("bhij,bhjd->bhid", a, V)
    torch.testing.assert_close(Encoding().mix(a, V, AT), expected, rtol=0, atol=1e-12)


class Bias(Encoding):
    """−slope |i − j| in the logits, the distance itself in the values, and a scale if given."""

    def __init__(self, slope: float, own_scale: float | None = None) -> None:
        super().__init__()
        self.slope, self.own_scale = slope, own_scale

    def scale(self, head_dim):
        return super().scale(head_dim) if self.own_scale is None else self.own_scale

    def has_own_scale(self):
        return self.own_scale is not None

    def position_logits(self, q, k, at, project=None):
        return (-self.slope * at.distance().abs())[:, None].to(q.dtype)

    def position_values(self, weights, at):
        total = (weights * at.distance()[:, None]).sum(-1, keepdim=True)
        return total.expand(*total.shape[:-1], V.shape[-1])


class Undone(Encoding):
    """Multiplies everything by a number, and divides the output by it, then adds another."""

    def __init__(self, factor: float, summand: float) -> None:
        super().__init__()
        self.factor, self.summand = factor, summand

    def embed(self, x, positions, mask=None):
        return x * self.factor + self.summand

    def transform(self, q, k, v, at):
        return q * self.factor + self.summand, k, v * self.factor + self.summand

    def undo(self, o, at):
        return (o - self.summand) / self.factor


class RootScale(Encoding):
    """A scale of its own that depends on the width."""

    def scale(self, head_dim):
        return (3 * head_dim) ** -0.5


class WholeScore(Encoding):
    """Overrides `score` as a whole."""

    def score(self, q, k, at, project=None):
        return super().score(q, k, at, project) + 1


def test_position_adds_to_logits_and_outputs_after_the_scale():
    a = draw(2, 3, 5, 7, seed=3)
    bias, none, distance = Bias(0.5), Encoding(), AT.distance()[:, None]
    expected = none.score(Q, K, AT) - 0.5 * distance.abs()
    torch.testing.assert_close(bias.score(Q, K, AT), expected, rtol=0, atol=1e-12)
    expected = none.mix(a, V, AT) + (a * distance).sum(-1, keepdim=True)
    torch.testing.assert_close(bias.mix(a, V, AT), expected, rtol=0, atol=1e-12)


# combinations


def test_position_logits_and_values_add_and_content_counts_once():
    a = draw(2, 3, 5, 7, seed=3)
    both, one = Combined(Bias(0.5), Sinusoidal(8), Bias(0.25)), Bias(0.75)
    torch.testing.assert_close(both.score(Q, K, AT), one.score(Q, K, AT), rtol=0, atol=1e-12)
    expected = Encoding().mix(a, V, AT) + 2 * one.position_values(a, AT)
    torch.testing.assert_close(both.mix(a, V, AT), expected, rtol=0, atol=1e-12)


def test_embed_and_transform_run_in_order_and_undo_in_reverse():
    both, x = Combined(Undone(2.0, 1.0), Undone(3.0, 5.0)), draw(2, 5, 9)
    torch.testing.assert_close(both.embed(x, AT.query), (x * 2 + 1) * 3 + 5)
    q, k, v = both.transform(Q, K, V, AT)
    torch.testing.assert_close(q, (Q * 2 + 1) * 3 + 5)
    assert k is K
    torch.testing.assert_close(both.undo(v, AT), V, rtol=0, atol=1e-12)


def test_members_change_attention_as_they_would_alone():
    x, at = draw(2, 5, 8), At.of(positions_with_gaps(2, 5), causal=True)
    both = Combined(Sinusoidal(8), Rotary(4, values="relative"))
    attention = weights(Attention(8, 2, both).double())
    alone = Attention(8, 2, Rotary(4, values="relative")).double()
    alone.load_state_dict(attention.state_dict())
    expected = alone(Sinusoidal(8).embed(x, at.query), at)
    ours = attention(both.embed(x, at.query), at)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("combined", "scale"),
    [
        (Combined(Sinusoidal(8), Rotary(4)), 0.5),
        (Combined(Bias(1.0, 0.3), Sinusoidal(8)), 0.3),
        (Combined(Sinusoidal(8), Bias(1.0, 0.3), Bias(2.0, 0.3)), 0.3),
        (Combined(Bias(1.0, 0.3), Bias(1.0, 0.4), scale=0.7), 0.7),
        (Combined(Sinusoidal(8), scale=0.7), 0.7),
        (Combined(Sinusoidal(8), Combined(Bias(1.0, 0.3), Rotary(4))), 0.3),
        (Combined(RootScale(), Rotary(4)), 12**-0.5),
    ],
)
def test_there_is_exactly_one_scale(combined, scale):
    assert combined.scale(4) == scale
    position = combined.position_logits(Q, K, AT)
    content = combined.score(Q, K, AT) - (0.0 if position is None else position)
    torch.testing.assert_close(content, scale * (Q @ K.mT), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("combined", "own"),
    [
        (Combined(Sinusoidal(8), Rotary(4)), False),
        (Combined(Sinusoidal(8), RootScale()), True),
        (Combined(Sinusoidal(8), scale=0.7), True),
    ],
)
def test_a_combination_has_its_own_scale_if_a_member_has(combined, own):
    assert combined.has_own_scale() is own


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: Combined(), ValueError, "at least one encoding"),
        (lambda: Combined(Bias(1.0, 0.3), Bias(1.0, 0.4)), ValueError, r"\[0.3, 0.4\].*scale="),
        (lambda: Combined(RootScale(), Bias(1.0, 3**-0.5)), ValueError, "different scales"),
        (lambda: Combined(Bias(1.0, 0.3), Combined(RootScale())), ValueError, "different scales"),
        (lambda: Combined(Rotary(4), None), TypeError, "must be an Encoding, .*NoneType"),
        (lambda: Combined([Rotary(4)]), TypeError, "must be an Encoding, .*list"),
        (lambda: Combined(Rotary), TypeError, "must be an Encoding, but is the class Rotary"),
        (lambda: Combined(Softmax()), TypeError, "must be an Encoding, .*Softmax"),
        (lambda: Combined(Rotary(4), scale=float("nan")), ValueError, "scale must be a finite"),
        (lambda: Combined(Rotary(4), WholeScore()), ValueError, "WholeScore overrides score"),
    ],
)
def test_wrong_combinations_are_named(call, error, says):
    with pytest.raises(error, match=says):
        call()
