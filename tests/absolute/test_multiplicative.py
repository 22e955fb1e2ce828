"""The ways to combine position vectors with the input, and what they do to a matrix behind them."""

from __future__ import annotations

import itertools

import pytest
import torch
from tests.encodings import draw, positions_with_gaps
from torch import Tensor

from posenc import (
    Absolute,
    At,
    Combined,
    Dynamics,
    Floater,
    Hierarchical,
    Recursive,
    Rotary,
    Sinusoidal,
    Trainable,
    Transformer,
)
from posenc.absolute.multiplicative import COMBINATIONS, add, concatenate, multiply, scale

BATCH, N, DIM, WIDTH = 2, 7, 5, 3  # WIDTH is that of p where it need not be that of x
POSITIONS = positions_with_gaps(BATCH, N)


def close(ours: Tensor, theirs: Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=atol)


def by_hand(name: str, x: list[float], p: list[float]) -> list[float]:
    """One row of each, as lists of numbers."""
    pairs = list(itertools.zip_longest(x, p))
    return {
        "add": lambda: [a + b for a, b in pairs],
        "multiply": lambda: [a * b for a, b in pairs],
        "scale": lambda: [a + a * b for a, b in pairs],
        "concatenate": lambda: [*x, *p],
    }[name]()


def combined_by_hand(name: str, x: Tensor, p: Tensor) -> Tensor:
    rows = [
        [
            by_hand(name, x[s, k].tolist(), p[s if p.shape[0] > 1 else 0, k].tolist())
            for k in range(x.shape[1])
        ]
        for s in range(x.shape[0])
    ]
    return torch.tensor(rows, dtype=torch.float64)


def test_there_are_four():
    assert list(COMBINATIONS) == ["add", "multiply", "scale", "concatenate"]
    assert list(COMBINATIONS.values()) == [add, multiply, scale, concatenate]


@pytest.mark.parametrize("name", COMBINATIONS)
@pytest.mark.parametrize("batch", [1, BATCH])
def test_each_row_is_combined_with_the_vector_of_its_position(name, batch):
    width = WIDTH if name == "concatenate" else DIM
    x, p = draw(BATCH, N, DIM), draw(batch, N, width, seed=1)
    y = COMBINATIONS[name](x, p)
    assert y.shape == (BATCH, N, DIM + WIDTH if name == "concatenate" else DIM)
    close(y, combined_by_hand(name, x, p))


def test_the_vectors_of_a_batch_of_many_meet_an_input_of_one():
    x, p = draw(1, N, DIM), draw(3, N, DIM, seed=1)
    for name, combine in COMBINATIONS.items():
        close(combine(x, p), combined_by_hand(name, x.expand(3, N, DIM), p))


@pytest.mark.parametrize("name", COMBINATIONS)
def test_rows_of_zeros_stay_zeros_where_position_multiplies(name):
    width = WIDTH if name == "concatenate" else DIM
    x = draw(BATCH, N, DIM)
    x[:, 2:4] = 0
    y = COMBINATIONS[name](x, draw(1, N, width, seed=1))
    stays = name in ("multiply", "scale")
    assert (y[:, 2:4] == 0).all().item() is stays
    assert (y[:, 2:4] != 0).any().item() is not stays
    assert (y[:, [0, 1, 4, 5, 6]] != 0).all()


def test_the_position_that_changes_nothing_is_0_or_1():
    x = draw(BATCH, N, DIM)
    none, one = torch.zeros(1, N, DIM), torch.ones(1, N, DIM)
    for combine, neutral in ((add, none), (scale, none), (multiply, one)):
        assert torch.equal(combine(x, neutral), x)
    assert (multiply(x, none) == 0).all()
    assert torch.equal(scale(x, one), 2 * x)
    assert torch.equal(concatenate(x, none)[..., :DIM], x)


# a matrix behind it


def test_multiplying_is_a_diagonal_matrix_in_front():
    x, p, W = draw(BATCH, N, DIM), draw(1, N, DIM, seed=1), draw(DIM, WIDTH, seed=2)
    y, z = multiply(x, p) @ W, scale(x, p) @ W
    for s in range(BATCH):
        for k in range(N):
            close(y[s, k], x[s, k] @ torch.diag(p[0, k]) @ W)
            close(z[s, k], x[s, k] @ W + x[s, k] @ torch.diag(p[0, k]) @ W)


def test_a_logit_of_multiplied_inputs_has_one_term_with_two_diagonal_matrices():
    x, p = draw(N, DIM), draw(N, DIM, seed=1)
    W_Q, W_K = draw(DIM, WIDTH, seed=2), draw(DIM, WIDTH, seed=3)
    y = multiply(x, p)
    b = (y @ W_Q) @ (y @ W_K).T
    for i in range(N):
        for j in range(N):
            close(b[i, j], x[i] @ torch.diag(p[i]) @ W_Q @ W_K.T @ torch.diag(p[j]) @ x[j])


def test_concatenation_is_a_block_of_the_matrix_for_each():
    x, p = draw(BATCH, N, DIM), draw(1, N, WIDTH, seed=1)
    W = draw(DIM + WIDTH, 4, seed=2)
    close(concatenate(x, p) @ W, x @ W[:DIM] + p @ W[DIM:])


def test_addition_is_concatenation_with_equal_blocks():
    x, p, W = draw(BATCH, N, DIM), draw(1, N, DIM, seed=1), draw(DIM, 4, seed=2)
    close(add(x, p) @ W, concatenate(x, p) @ torch.cat((W, W)))
    other = torch.cat((W, draw(DIM, 4, seed=3)))
    assert (add(x, p) @ W - concatenate(x, p) @ other).abs().max() > 0.1


# in an encoding


ABSOLUTE = {
    "sinusoidal": lambda dim, combine: Sinusoidal(dim, combine=combine),
    "trainable": lambda dim, combine: Trainable(dim, 17, combine=combine, std=1.0),
    "hierarchical": lambda dim, combine: Hierarchical(
        Trainable(dim, 5, combine=combine, std=1.0), 0.3
    ),
    "recursive": lambda dim, combine: Recursive(dim, combine=combine),
    "floater": lambda dim, combine: Floater(
        dim, dynamics=Dynamics(dim, torch.tanh), combine=combine
    ),
}


def test_every_absolute_encoding_is_among_them():
    def below(kind: type) -> set[type]:
        return {kind}.union(*(below(sub) for sub in kind.__subclasses__()))

    known = {kind for kind in below(Absolute) - {Absolute} if kind.__module__.startswith("posenc")}
    assert known == {type(make(DIM, "add")) for make in ABSOLUTE.values()}


@pytest.mark.parametrize("name", ABSOLUTE)
@pytest.mark.parametrize("combine", COMBINATIONS)
def test_embedding_is_the_combination_with_the_vectors(name, combine):
    width = WIDTH if combine == "concatenate" else DIM
    encoding = ABSOLUTE[name](width, combine).double()
    x = draw(BATCH, N, DIM)
    for positions in (POSITIONS, POSITIONS[1:]):
        p = encoding.vectors(positions).detach()
        assert p.shape == (*positions.shape, width)
        assert (p[:, 1:] - p[:, :1]).abs().amax(-1).min() > 1e-3
        close(encoding.embed(x, positions).detach(), combined_by_hand(combine, x, p))


@pytest.mark.parametrize("name", ABSOLUTE)
def test_the_input_is_as_wide_as_the_model_except_beside_the_vectors(name):
    for combine in ("add", "multiply", "scale"):
        assert ABSOLUTE[name](DIM, combine).input_dim(DIM) == DIM
    beside = ABSOLUTE[name](DIM, "concatenate")
    assert [beside.input_dim(dim) for dim in (12, 6, 5)] == [7, 1, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", ABSOLUTE)
def test_concatenation_keeps_the_dtype_of_the_input(name, dtype):
    x = draw(BATCH, N, 4, dtype=dtype)
    y = ABSOLUTE[name](WIDTH, "concatenate").embed(x, POSITIONS)
    assert y.dtype == dtype and y.shape == (BATCH, N, 7)
    assert torch.equal(y[..., :4], x)


def test_concatenating_takes_an_input_of_any_width_and_the_others_do_not():
    for width in (1, 5, 9):
        y = Sinusoidal(5, combine="concatenate").embed(draw(BATCH, N, width), POSITIONS)
        assert y.shape == (BATCH, N, width + 5)
    for combine in ("add", "multiply", "scale"):
        for width in (1, 4, 9):  # 1 would broadcast
            with pytest.raises(ValueError, match=rf"\(batch, n, 5\).*\(2, 7, {width}\)"):
                Sinusoidal(5, combine=combine).embed(draw(BATCH, N, width), POSITIONS)


@pytest.mark.parametrize("combine", ["concat", "", "mul", None, "Add"])
@pytest.mark.parametrize("name", ABSOLUTE)
def test_an_unknown_way_to_combine_is_answered_with_the_known_ones(name, combine):
    says = f"combine must be one of add, multiply, scale, concatenate, but is {combine!r}"
    with pytest.raises(ValueError, match=says):
        ABSOLUTE[name](DIM, combine)


def test_the_wrong_input_of_a_concatenation_is_named():
    beside = Sinusoidal(3, combine="concatenate")
    with pytest.raises(ValueError, match=r"x must be \(batch, n, any\) of floats.*\(7, 5\)"):
        beside.embed(draw(N, 5), POSITIONS)
    with pytest.raises(ValueError, match=r"x must be \(batch, n, any\) of floats.*int64"):
        beside.embed(draw(BATCH, N, 5).long(), POSITIONS)
    with pytest.raises(ValueError, match=r"positions must be \(2 or 1, 7\).*\(2, 6\)"):
        beside.embed(draw(BATCH, N, 5), POSITIONS[:, 1:])


# in a model


TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 9, 7]])


@pytest.mark.parametrize("name", ABSOLUTE)
def test_a_model_makes_room_beside_the_vectors(name):
    model = Transformer(11, 12, 3, 2, ABSOLUTE[name](5, "concatenate"), outputs=4).double()
    assert model.embedding.weight.shape == (11, 7)
    y = model(TOKENS, At.of(POSITIONS))
    assert y.shape == (2, 7, 4)
    y.square().sum().backward()
    for parameter in model.parameters():
        assert parameter.grad.isfinite().all() and (parameter.grad != 0).any()
    first = model.blocks[0]
    x = torch.cat((model.embedding(TOKENS), first.attention.encoding.vectors(POSITIONS)), -1)
    for block in model.blocks:
        x, _ = block(x, At.of(POSITIONS))
    close(y, model.head(model.norm(x)))


@pytest.mark.parametrize(("dim", "width"), [(11, 1), (12, 0), (15, -3)])
def test_vectors_that_leave_no_room_are_refused(dim, width):
    beside = Sinusoidal(dim, combine="concatenate")
    if width == 1:
        assert Transformer(11, 12, 3, 2, beside).embedding.weight.shape == (11, 1)
        return
    says = f"room for the tokens beside .* of 12 channels they would get {width}"
    for encoding in (beside, Combined(beside, Rotary(4)), [beside, Rotary(4)]):
        with pytest.raises(ValueError, match=says):
            Transformer(11, 12, 3, 2, encoding)


def test_combined_encodings_make_room_for_all_that_stand_beside():
    beside, at = Sinusoidal(5, combine="concatenate"), At.of(POSITIONS)
    for both in (Combined(beside, Rotary(4)), Combined(Rotary(4), beside)):
        assert both.input_dim(12) == 7
        model = Transformer(11, 12, 3, 2, both).double()
        assert model.embedding.weight.shape == (11, 7)
        assert model(TOKENS, at).isfinite().all()
    x = draw(BATCH, N, 4)
    twice = Combined(beside, Trainable(3, 17, combine="concatenate"))
    assert twice.input_dim(12) == 4
    y = twice.embed(x, POSITIONS)
    assert torch.equal(y[..., :4], x)
    close(y[..., 4:9], beside.vectors(POSITIONS))
    close(y[..., 9:], twice.members()[1].vectors(POSITIONS).detach().double())
    # the sum needs the width of the model, and so comes after
    added = Combined(beside, Sinusoidal(9, combine="multiply"))
    assert added.input_dim(9) == 4
    close(added.embed(x, POSITIONS), beside.embed(x, POSITIONS) * Sinusoidal(9).vectors(POSITIONS))
    with pytest.raises(ValueError, match=r"x must be \(batch, n, 9\).*\(2, 7, 4\)"):
        Combined(Sinusoidal(9), beside).embed(x, POSITIONS)
