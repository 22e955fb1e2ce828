"""The trainable table, and the hierarchical decomposition that makes n² vectors of its n."""

from __future__ import annotations

import math

import pytest
import torch
from tests.encodings import draw, positions_with_gaps
from torch import Tensor, nn

from posenc import At, Hierarchical, Trainable, Transformer

DIM, ROWS = 5, 17  # no position of `positions_with_gaps` is 17 or beyond
POSITIONS = positions_with_gaps()  # (2, 7)
ALPHAS = [0.4, 0.1, 0.499, 0.501, 0.9]


def close(ours: Tensor, numbers: list[float] | Tensor, atol: float = 1e-12) -> None:
    expected = torch.as_tensor(numbers, dtype=ours.dtype)
    torch.testing.assert_close(ours, expected, rtol=0, atol=atol)


def trainable(rows: int = ROWS, dim: int = DIM, **options) -> Trainable:
    """A table of seeded float64 numbers."""
    encoding = Trainable(dim, rows, **options).double()
    with torch.no_grad():
        encoding.table.copy_(draw(rows, dim))
    return encoding


def hierarchical(rows: int = 5, dim: int = 7, alpha: float = 0.4, **options) -> Hierarchical:
    return Hierarchical(trainable(rows, dim, **options), alpha)


def distinct(rows: Tensor) -> int:
    """How many of the rows (m, dim) are more than rounding apart from all rows before them."""
    different = (rows[:, None] - rows).abs().amax(-1) > 1e-9  # (m, m)
    return sum(bool(different[m, :m].all()) for m in range(len(rows)))


# the table


def test_the_vectors_are_rows_of_the_table_in_any_batch_and_with_gaps():
    encoding, x = trainable(), draw(2, 7, DIM, seed=3)
    p, y = encoding.vectors(POSITIONS), encoding.embed(x, POSITIONS)
    assert p.shape == (2, 7, DIM)
    for s in range(2):
        for k in range(7):
            row = encoding.table[int(POSITIONS[s, k])]
            assert torch.equal(p[s, k], row)
            close(y[s, k], x[s, k] + row, 0)
    assert torch.equal(encoding.vectors(torch.tensor([4, 4, 0])), encoding.table[[4, 4, 0]])
    assert torch.equal(encoding.vectors(torch.tensor(6)), encoding.table[6])


def test_it_is_an_embedding_of_the_positions():
    encoding, theirs = trainable(), nn.Embedding(ROWS, DIM).double()
    theirs.weight = nn.Parameter(encoding.table.detach().clone())
    assert torch.equal(encoding.vectors(POSITIONS), theirs(POSITIONS))
    target = draw(2, 7, DIM, seed=4)
    for output in (encoding.vectors(POSITIONS), theirs(POSITIONS)):
        (output - target).square().sum().backward()
    close(encoding.table.grad, theirs.weight.grad)


@pytest.mark.parametrize("batch", [6, 2])  # 6 = n on purpose: a swapped axis would fit
def test_position_runs_over_the_second_axis(batch):
    encoding = trainable()
    y = encoding.embed(torch.zeros(batch, 6, DIM), torch.arange(6)[None])
    for s in range(batch):
        for k in range(6):
            assert torch.equal(y[s, k], encoding.table[k].float())


def test_the_gradient_reaches_only_the_rows_that_were_used():
    encoding = trainable()
    encoding.embed(draw(2, 7, DIM), POSITIONS).sum().backward()
    counts = POSITIONS.flatten().bincount(minlength=ROWS).tolist()
    assert 0 in counts and 1 in counts and 2 in counts
    for k in range(ROWS):
        close(encoding.table.grad[k], torch.full((DIM,), float(counts[k])))


def test_permuting_tokens_together_with_their_positions_permutes_the_outputs():
    model = Transformer(11, 6, 3, 2, trainable(dim=6), outputs=4).double()
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 9, 7]])
    order = torch.tensor([3, 0, 6, 2, 5, 1, 4])
    y = model(tokens, At.of(POSITIONS))
    close(model(tokens[:, order], At.of(POSITIONS[:, order])), y[:, order])
    assert (model(tokens[:, order], At.of(POSITIONS)) - y[:, order]).abs().max() > 1e-3


def test_the_table_is_drawn_anew_with_the_deviation_asked_for():
    for std in (0.02, 3.0):
        table = Trainable(90, 110, std=std).table
        assert table.std().item() == pytest.approx(std, rel=0.05)
        assert abs(table.mean().item()) < 0.05 * std
    assert Trainable(90, 110).table.std().item() == pytest.approx(0.02, rel=0.05)
    assert not torch.equal(Trainable(3, 4).table, Trainable(3, 4).table)
    assert (Trainable(3, 4, std=0.0).table == 0).all()


def test_the_state_is_the_table_and_nothing_else():
    encoding = Trainable(DIM, ROWS)
    assert {n: tuple(p.shape) for n, p in encoding.state_dict().items()} == {"table": (ROWS, DIM)}
    assert [name for name, _ in encoding.named_parameters()] == ["table"]
    both = Hierarchical(encoding)
    assert list(both.state_dict()) == ["table.table"]
    assert next(both.parameters()) is encoding.table


# the longest length


def hierarchical_of_9() -> Hierarchical:
    return hierarchical(rows=3, dim=DIM)


@pytest.mark.parametrize(
    ("make", "length"), [(lambda: trainable(9), 9), (hierarchical_of_9, 9)], ids=["table", "n²"]
)
def test_the_last_row_works_and_the_one_beyond_and_the_one_before_the_first_are_refused(
    make, length
):
    encoding = make()
    assert encoding.max_length == length
    before = encoding.vectors(torch.arange(length))
    assert torch.equal(encoding.vectors(torch.tensor([length - 1]))[0], before[-1])
    x = draw(2, 3, DIM)
    for bad, says in (
        (length, f"positions must be below max_length = {length}, but {length} is among them"),
        (length + 30, f"below max_length = {length}, but {length + 30} is among them"),
        (-1, "positions count from 0, but -1 is among them"),
        (-length, f"positions count from 0, but -{length} is among them"),
    ):
        positions = torch.tensor([[0, 1, 2], [0, bad, 2]])
        with pytest.raises(ValueError, match=says):
            encoding.vectors(positions)
        with pytest.raises(ValueError, match=says):
            encoding.embed(x, positions)
        assert torch.equal(encoding.vectors(torch.arange(length)), before)
    close(encoding.embed(x, torch.tensor([[0, 1, length - 1]])), x + before[[0, 1, -1]])


@pytest.mark.parametrize(
    "make", [lambda: trainable(9, 6), lambda: hierarchical(3, 6)], ids=["table", "n²"]
)
def test_a_model_reads_texts_as_long_as_the_table_and_no_longer(make):
    model = Transformer(11, 6, 3, 2, make(), outputs=4).double()
    tokens = torch.arange(20).reshape(2, 10) % 11
    y = model(tokens[:, :9], At.sequence(9))
    with pytest.raises(ValueError, match="below max_length = 9, but 9 is among them"):
        model(tokens, At.sequence(10))
    with pytest.raises(ValueError, match="below max_length = 9, but 12 is among them"):
        model(tokens[:, :3], At.of(torch.arange(10, 13)[None]))
    assert torch.equal(model(tokens[:, :9], At.sequence(9)), y)


# a longer table


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_longer_table_keeps_the_old_rows_and_draws_new_ones(dtype):
    old = trainable(ROWS, 300, combine="scale", std=3.0).to(dtype)
    before = old.table.detach().clone()
    new = old.longer(ROWS + 40)
    assert (new.dim, new.max_length, new.combine, new.std) == (300, ROWS + 40, "scale", 3.0)
    assert new.table.shape == (ROWS + 40, 300) and new.table.dtype == dtype
    assert new.table.requires_grad and new.table.is_leaf
    assert torch.equal(new.table[:ROWS], before)
    fresh = new.table[ROWS:].double()
    assert fresh.std().item() == pytest.approx(3.0, rel=0.05)
    assert distinct(torch.cat((before.double(), fresh))) == ROWS + 40
    assert not torch.equal(old.longer(ROWS + 40).table[ROWS:], new.table[ROWS:])


def test_a_longer_table_is_an_independent_copy():
    old = trainable()
    before = old.table.detach().clone()
    for rows in (ROWS, ROWS + 1):
        new = old.longer(rows)
        new.vectors(torch.arange(rows)).sum().backward()
        assert old.table.grad is None
        with torch.no_grad():
            new.table.fill_(1.0)
        assert torch.equal(old.table, before) and old.max_length == ROWS
    copy = old.longer(ROWS)
    with torch.no_grad():
        old.table.fill_(2.0)
    assert torch.equal(copy.table, before)


# the hierarchical decomposition


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_first_n_vectors_are_those_of_the_table(alpha):
    encoding = hierarchical(alpha=alpha)
    scale = 1 / (1 - alpha)  # u is that much larger, and so is its rounding
    close(encoding.vectors(torch.arange(5)), encoding.table.table, 1e-15 * scale)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize(("n", "dim"), [(5, 7), (3, 2), (1, 4)])
def test_every_vector_is_the_formula_counted_from_1(alpha, n, dim):
    """bert4keras counts positions from 1: q_{(i−1)n+j} = α u_i + (1 − α) u_j."""
    encoding = hierarchical(n, dim, alpha)
    p = [None, *encoding.table.table.detach()]  # p_1 … p_n
    u = [None, *((p[i] - alpha * p[1]) / (1 - alpha) for i in range(1, n + 1))]
    q = encoding.vectors(torch.arange(n * n))
    assert q.shape == (n * n, dim)
    for i in range(1, n + 1):
        for j in range(1, n + 1):
            close(q[(i - 1) * n + j - 1], alpha * u[i] + (1 - alpha) * u[j])


def test_its_positions_may_have_gaps_and_differ_in_the_batch():
    encoding, x = hierarchical(), draw(2, 7, 7, seed=3)
    table = encoding.vectors(torch.arange(25))
    p, y = encoding.vectors(POSITIONS), encoding.embed(x, POSITIONS)
    for s in range(2):
        for k in range(7):
            assert torch.equal(p[s, k], table[POSITIONS[s, k]])
            close(y[s, k], x[s, k] + table[POSITIONS[s, k]], 0)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize(("n", "dim"), [(5, 7), (5, 4), (3, 2)])
def test_the_n_squared_vectors_of_a_generic_table_are_all_different(alpha, n, dim):
    assert distinct(hierarchical(n, dim, alpha).vectors(torch.arange(n * n))) == n * n


def test_one_half_would_make_only_15_of_25():
    u = 2 * (draw(5, 7) - 0.5 * draw(5, 7)[:1])
    q = torch.stack([0.5 * u[i] + 0.5 * u[j] for i in range(5) for j in range(5)])
    assert distinct(q) == 5 * 6 // 2 == 15
    for i in range(5):
        for j in range(5):
            close(q[5 * i + j], q[5 * j + i])


def test_rows_that_are_affinely_dependent_may_collide():
    """n rows are affinely independent only where n ≤ d + 1; three numbers never are."""
    encoding = hierarchical(3, 1, 0.4)
    with torch.no_grad():
        encoding.table.table.copy_(torch.tensor([[0.0], [3.0], [2.0]]))
    q = encoding.vectors(torch.arange(9))
    close(q[2], [2.0])  # the table's own p_2
    close(q[3], [2.0])  # 0.4 · 3 / 0.6 + 0.6 · 0
    assert distinct(q) == 8
    with torch.no_grad():  # other numbers, dependent as well, do not
        encoding.table.table.copy_(torch.tensor([[0.0], [1.0], [10.0]]))
    assert distinct(encoding.vectors(torch.arange(9))) == 9


def test_alpha_may_come_near_the_ends_and_near_one_half():
    for alpha in (1e-6, 0.5 - 1e-6, 0.5 + 1e-6, 1 - 1e-6):
        q = hierarchical(alpha=alpha).vectors(torch.arange(25))
        assert q.isfinite().all()
        close(q[:5], draw(5, 7), 1e-9)
        different = (q[:, None] - q).abs().amax(-1) + torch.eye(25)
        assert different.min() > 1e-7


def test_to_train_the_decomposition_is_to_train_the_table():
    table = trainable(5, 7)
    encoding = Hierarchical(table, 0.4)
    assert [id(p) for p in encoding.parameters()] == [id(table.table)]
    optimiser = torch.optim.SGD(encoding.parameters(), lr=0.1)
    before = table.table.detach().clone()
    encoding.vectors(torch.tensor([13])).sum().backward()  # 13 = 2 · 5 + 3
    optimiser.step()
    # q = (0.4 p_2 + 0.6 p_3 − 0.4 p_0) / 0.6
    step = torch.tensor([-0.4 / 0.6, 0.0, 0.4 / 0.6, 1.0, 0.0], dtype=torch.float64)
    close(table.table, before - 0.1 * step[:, None])
    close(encoding.vectors(torch.arange(5)), table.vectors(torch.arange(5)), 1e-14)


def test_the_way_to_combine_is_that_of_the_table():
    encoding = hierarchical(dim=7, combine="scale")
    x = draw(2, 7, 7, seed=3)
    assert (encoding.dim, encoding.combine) == (7, "scale")
    close(encoding.embed(x, POSITIONS), x * (1 + encoding.vectors(POSITIONS)))
    assert hierarchical(combine="concatenate").input_dim(12) == 5


# wrong input


X = draw(2, 7, DIM)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: Trainable(0, 4), ValueError, "dim must be 1 or more, but is 0"),
        (lambda: Trainable(4, 0), ValueError, "max_length must be 1 or more, but is 0"),
        (lambda: Trainable(4, -2), ValueError, "max_length must be 1 or more, but is -2"),
        (lambda: Trainable(4, 2.5), TypeError, "max_length must be a whole number, but is 2.5"),
        (lambda: trainable().longer(16), ValueError, "max_length must be 17 or more, but is 16"),
        (lambda: trainable().longer(0), ValueError, "max_length must be 17 or more, but is 0"),
        (lambda: trainable().longer(20.0), TypeError, "max_length must be a whole number"),
        (lambda: trainable(dim=4).embed(X, POSITIONS), ValueError, r"\(batch, n, 4\).*\(2, 7, 5\)"),
        (lambda: trainable().embed(X.long(), POSITIONS), ValueError, "x must be .*floats.*int64"),
        (
            lambda: trainable().embed(X, POSITIONS[:, :4]),
            ValueError,
            r"positions must be \(2 or 1, 7\).*\(2, 4\)",
        ),
        (
            lambda: trainable().embed(X, POSITIONS.double()),
            ValueError,
            r"positions must be .*int64.*float64",
        ),
        (
            lambda: Hierarchical(draw(5, 7)),
            TypeError,
            "table must be a Trainable, but is of type Tensor",
        ),
        (
            lambda: Trainable(3, 4, std=-1.0),
            ValueError,
            "std must be 0 or more, but is -1.0",
        ),
        (
            lambda: Hierarchical(hierarchical()),
            TypeError,
            "table must be a Trainable, but is of type Hierarchical",
        ),
    ],
)
def test_wrong_input_is_named(call, error, says):
    with pytest.raises(error, match=says):
        call()


@pytest.mark.parametrize("alpha", [0, 0.0, 0.5, 1, 1.0, -1, 2, math.nan, math.inf, -math.inf])
def test_alphas_outside_and_in_the_middle_are_refused(alpha):
    says = f"alpha must be above 0, below 1 and not 0.5, but is {alpha}$"
    with pytest.raises(ValueError, match=says):
        hierarchical(alpha=alpha)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("alpha", [0.4, 0.9])
def test_the_first_n_stay_in_low_precision_too(dtype, alpha):
    table = Trainable(64, 16).to(dtype)
    q = Hierarchical(table, alpha).vectors(torch.arange(16)).to(dtype)
    assert torch.equal(q, table.table)


def test_a_frozen_table_in_eval_mode_is_longer_frozen_and_in_eval_mode():
    table = Trainable(3, 4).eval().requires_grad_(False)
    longer = table.longer(6)
    assert not longer.table.requires_grad and not longer.training
    assert Trainable(3, 4).longer(6).table.requires_grad
