"""A number for each distance, handed out to the pairs of two runs, against loops over the pairs."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import pytest
import torch
from tests.encodings import (
    BATCH,
    ENCODINGS,
    HEAD_DIM,
    HEADS,
    Layer,
    N,
    draw,
    positions_with_gaps,
    weights,
)
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

from posenc import T5, TUPE, ALiBi, At, Attention, DeBERTa, TransformerXL
from posenc.relative import distances
from posenc.relative.distances import (
    BLOCK,
    are_runs,
    by_distance,
    dot,
    dot_table,
    expand,
    occurring,
    require_fit,
    shift,
)

# up to, at and above the 64 queries that are multiplied at a time
SIZES = [(1, 1), (1, 7), (5, 1), (3, 4), (4, 3), (6, 6), (64, 2), (65, 3), (3, 65), (130, 6)]
every_size = pytest.mark.parametrize(("n_q", "n_k"), SIZES)

# where the rows of queries and of keys start: a cache is longer in one row than in another
STARTS = {
    "one row": ([4], [1]),
    "keys ahead": ([1], [9]),
    "two rows": ([4, 90], [1, 17]),
    "two rows of queries": ([4, 90], [5]),
    "two rows of keys": ([4], [1, 17]),
}
every_start = pytest.mark.parametrize("start", STARTS)

WITH_DISTANCES = [
    name for name in ENCODINGS if name.startswith(("transformer", "t5", "alibi", "tupe", "deberta"))
]


def close(ours: Tensor, theirs: Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=atol)


def runs(n_q: int, n_k: int, start: str = "two rows") -> At:
    query, key = (torch.tensor(places)[:, None] for places in STARTS[start])
    at = At.of(query + torch.arange(n_q), key + torch.arange(n_k))
    assert at.consecutive
    return at


def each(at: At) -> Iterator[tuple[int, int, int, int]]:
    """Row of the batch, number of the query, number of the key, and the distance of the two."""
    for b in range(max(len(at.query), len(at.key))):
        for i, m in enumerate(at.query[b % len(at.query)].tolist()):
            for j, n in enumerate(at.key[b % len(at.key)].tolist()):
                yield b, i, j, m - n


# the distances


@every_size
@every_start
def test_the_distances_that_occur_are_those_of_the_pairs_the_largest_first(n_q, n_k, start):
    at = runs(n_q, n_k, start)
    ours = occurring(at)
    assert are_runs(at) and ours.dtype == torch.int64
    assert ours.shape == (len(at.distance()), n_q + n_k - 1)
    for b in range(len(ours)):
        assert ours[b].tolist() == sorted(set(at.distance()[b].flatten().tolist()), reverse=True)


def test_without_keys_there_is_nothing_to_hand_out():
    at = runs(5, 0)
    assert are_runs(at) and occurring(at).shape == (2, 4)
    assert by_distance(lambda distance: distance, at).shape == (2, 5, 0)
    x, table = draw(2, HEADS, 5, 4), draw(HEADS, 9, 4)
    assert dot(x, draw(2, HEADS, 4, 4)).shape == (2, HEADS, 5, 0)
    for each_at in (at, at._replace(consecutive=False)):
        assert dot_table(x, table, lambda r: r % 9, each_at).shape == (2, HEADS, 5, 0)


def test_without_queries_there_are_no_runs():
    at = At.of(torch.zeros(2, 0, dtype=torch.int64), torch.arange(7)[None])
    assert at.consecutive and not are_runs(at)
    assert by_distance(lambda distance: distance, at).shape == (2, 0, 7)
    assert dot_table(draw(2, 3, 0, 4), draw(1, 9, 4), lambda r: r, at).shape == (2, 3, 0, 7)


def test_gaps_are_no_runs():
    assert not are_runs(At.of(positions_with_gaps(), positions_with_gaps()))
    assert not are_runs(At.of(torch.tensor([[3, 4, 5]]), torch.tensor([[3, 5]])))
    assert are_runs(At.sequence(3)) and not are_runs(At.sequence(0))


# handed out


@every_size
def test_a_vector_becomes_a_matrix_that_is_constant_along_its_diagonals(n_q, n_k):
    values = draw(BATCH, HEADS, n_q + n_k - 1)
    matrix = expand(values, n_q, n_k)
    assert matrix.shape == (BATCH, HEADS, n_q, n_k)
    for i in range(n_q):
        for j in range(n_k):
            assert torch.equal(matrix[..., i, j], values[..., n_q - 1 - i + j])


@every_size
@every_start
def test_a_function_of_the_distance_meets_every_pair(n_q, n_k, start):
    def function(distance: Tensor) -> Tensor:
        return torch.stack((distance.double() ** 3, distance.sin().double(), -distance.double()))

    at = runs(n_q, n_k, start)
    ours = by_distance(function, at)
    assert ours.shape == (3, len(at.distance()), n_q, n_k)
    assert torch.equal(ours, by_distance(function, at._replace(consecutive=False)))
    assert torch.equal(ours[2], -at.distance().double())
    for b, i, j, r in each(at):
        assert ours[0, b, i, j] == r**3


def test_it_is_asked_once_for_each_distance_and_with_gaps_once_for_each_pair():
    seen = []
    for at in (runs(70, 3), At.of(positions_with_gaps(2, 5), positions_with_gaps(2, 4))):
        by_distance(lambda distance: seen.append(tuple(distance.shape)) or distance, at)
        dot_table(
            draw(2, HEADS, at.query.shape[1], 4),
            draw(HEADS, 9, 4),
            lambda distance: seen.append(tuple(distance.shape)) or distance % 9,
            at,
        )
    assert seen == [(2, 72)] * 2 + [(2, 5, 4)] * 2


# Transformer-XL's shift


@every_size
def test_the_shift_moves_each_row_and_copies_nothing(n_q, n_k):
    products = draw(BATCH, HEADS, n_q, n_q + n_k)
    shifted, memory = shift(products), products.untyped_storage().data_ptr()
    assert shifted.shape == (BATCH, HEADS, n_q, n_k)
    assert shifted.untyped_storage().data_ptr() == memory
    for i in range(n_q):
        for j in range(n_k):
            assert torch.equal(shifted[..., i, j], products[..., i, n_q - i + j])


def test_the_shift_of_a_square():
    """The published example: columns stand for distances 2, 1, 0, and what is ahead is left out."""
    ahead = float("nan")  # for distances −1 and −2, which the published code does not compute
    products = torch.tensor([[0, row, row + 1, row + 2, ahead, ahead] for row in (1.0, 4.0, 7.0)])
    shifted = shift(products)
    assert [shifted[i, : i + 1].tolist() for i in range(3)] == [[3], [5, 6], [7, 8, 9]]
    assert all(shifted[i, i + 1 :].isnan().all() for i in range(3))


# products


@every_size
@pytest.mark.parametrize("shape", [(BATCH, HEADS), (1, HEADS), (BATCH, 1), (1, 1), ()])
def test_each_query_meets_the_rows_of_its_distances(n_q, n_k, shape):
    x, rows = draw(BATCH, HEADS, n_q, 5), draw(*shape, n_q + n_k - 1, 5, seed=1)
    expected = torch.zeros(BATCH, HEADS, n_q, n_k, dtype=torch.float64)
    for i in range(n_q):
        for j in range(n_k):
            expected[..., i, j] = (x[..., i, :] * rows[..., n_q - 1 - i + j, :]).sum(-1)
    close(dot(x, rows), expected)


def test_products_are_made_64_queries_at_a_time_and_not_copied(monkeypatch):
    assert BLOCK == 64
    shifted = []
    monkeypatch.setattr(
        distances, "shift", lambda products: shifted.append(products) or shift(products)
    )
    dot(draw(BATCH, HEADS, 130, 5), draw(BATCH, HEADS, 130 + 6 - 1, 5))
    assert [tuple(p.shape) for p in shifted] == [(BATCH, HEADS, n, n + 6) for n in (64, 64, 2)]
    assert all(p.is_contiguous() for p in shifted)


@every_size
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("shape", [(BATCH, HEADS), (BATCH, 1), ()])
def test_without_gradients_the_products_are_the_same_bits(n_q, n_k, mode, shape):
    x, rows = draw(1, HEADS, n_q, 5), draw(*shape, n_q + n_k - 1, 5, seed=1)
    for dtype in (torch.float64, torch.bfloat16):
        expected = dot(x.to(dtype), rows.to(dtype))
        with mode():
            ours = dot(x.to(dtype), rows.to(dtype))
            assert ours.dtype == dtype and torch.equal(ours, expected)
        assert not x._version and not rows._version


def test_without_gradients_a_block_is_let_go_before_the_next_but_one(monkeypatch):
    made, most = [], 0

    def watched(products: Tensor) -> Tensor:
        nonlocal most
        shifted = shift(products)
        most = max(most, 1 + sum(block() is not None for block in made))
        made.append(weakref.ref(shifted))
        return shifted

    monkeypatch.setattr(distances, "shift", watched)
    with torch.no_grad():
        dot(draw(1, 1, 20 * BLOCK, 5), draw(1, 1, 20 * BLOCK + 6 - 1, 5))
    assert len(made) == 20 and most <= 3


def test_without_gradients_vmap_is_the_loop_too():
    x, rows = draw(3, BATCH, HEADS, 130, 5), draw(3, BATCH, HEADS, 130 + 6 - 1, 5, seed=1)
    with torch.no_grad():
        expected = torch.stack([dot(x[i], rows[i]) for i in range(3)])
        close(torch.vmap(dot)(x, rows), expected)
        assert dot(x.to("meta"), rows.to("meta")).shape == expected.shape


@pytest.mark.parametrize("block", [1, 2, 5])
def test_the_size_of_a_block_does_not_matter(monkeypatch, block):
    x, rows = draw(BATCH, HEADS, 7, 5), draw(BATCH, HEADS, 7 + 4 - 1, 5)
    whole = dot(x, rows)
    monkeypatch.setattr(distances, "BLOCK", block)
    close(dot(x, rows), whole)
    with torch.no_grad():
        close(dot(x, rows), whole)


@pytest.mark.parametrize("shape", [(BATCH, HEADS), (1, HEADS), (1, 1)])
def test_gradients_of_products_are_right_over_several_blocks(monkeypatch, shape):
    monkeypatch.setattr(distances, "BLOCK", 2)
    x, rows = draw(BATCH, HEADS, 5, 2), draw(*shape, 5 + 3 - 1, 2, seed=1)
    assert torch.autograd.gradcheck(dot, (x.requires_grad_(), rows.requires_grad_()))


@pytest.mark.parametrize("gaps", [False, True])
def test_gradients_of_the_table_are_right(gaps):
    x, table = draw(BATCH, HEADS, 4, 2), draw(HEADS, 5, 2, seed=1)
    at = At.of(positions_with_gaps(2, 4), positions_with_gaps(2, 3)) if gaps else runs(4, 3)

    def products(x: Tensor, table: Tensor) -> Tensor:
        return dot_table(x, table, lambda r: r % 5, at)

    assert torch.autograd.gradcheck(products, (x.requires_grad_(), table.requires_grad_()))


@every_size
@every_start
@pytest.mark.parametrize("heads", [1, HEADS])
def test_each_query_meets_the_row_of_the_table_that_the_index_names(n_q, n_k, start, heads):
    at, x, table = runs(n_q, n_k, start), draw(BATCH, HEADS, n_q, 4), draw(heads, 5, 4, seed=1)
    ours = dot_table(x, table, lambda r: (r * r - r) % 5, at)
    expected = torch.zeros(BATCH, HEADS, n_q, n_k, dtype=torch.float64)
    products = x @ table.mT
    for b, i, j, r in each(at):
        rows = slice(None) if len(at.distance()) == 1 else b
        expected[rows, :, i, j] = products[rows, :, i, (r * r - r) % 5]
    close(ours, expected)
    close(dot_table(x, table, lambda r: (r * r - r) % 5, at._replace(consecutive=False)), expected)


def test_gaps_are_looked_up_pair_by_pair():
    query, key = positions_with_gaps(BATCH, 5), positions_with_gaps(BATCH, 4) + 3
    at, x, table = At.of(query, key), draw(BATCH, HEADS, 5, 4), draw(HEADS, 7, 4, seed=1)
    ours = dot_table(x, table, lambda r: r % 7, at)
    bias = by_distance(lambda distance: distance * 2, at)
    for b, i, j, r in each(at):
        close(ours[b, :, i, j], (x[b, :, i] * table[:, r % 7]).sum(-1))
        assert bias[b, i, j] == 2 * r


# what the encodings make of it


@pytest.mark.parametrize("name", WITH_DISTANCES)
@every_start
def test_runs_and_pairs_give_the_same_scores(name, start):
    layer = weights(Layer(ENCODINGS[name]()).attention).double()
    for n_q, n_k in ((5, N), (N, 4), (1, 6), (66, 3)):
        q, k = draw(BATCH, HEADS, n_q, HEAD_DIM), draw(BATCH, HEADS, n_k, HEAD_DIM, seed=1)
        at = runs(n_q, n_k, start)
        ours = layer.encoding.score(q, k, at, layer)
        assert ours.shape == (BATCH, HEADS, n_q, n_k) and ours.dtype == torch.float64
        close(ours, layer.encoding.score(q, k, at._replace(consecutive=False), layer))


@pytest.mark.parametrize("name", WITH_DISTANCES)
@pytest.mark.parametrize(("n_q", "n_k"), [(0, 0), (0, 4), (3, 0), (1, 1), (1, 4)])
def test_empty_and_single_rows_have_scores(name, n_q, n_k):
    layer = weights(Layer(ENCODINGS[name]()).attention).double()
    q, k = draw(BATCH, HEADS, n_q, HEAD_DIM), draw(BATCH, HEADS, n_k, HEAD_DIM, seed=1)
    for at in (runs(n_q, n_k), runs(n_q, n_k)._replace(consecutive=False)):
        ours = layer.encoding.score(q, k, at, layer)
        assert ours.shape == (BATCH, HEADS, n_q, n_k) and ours.isfinite().all()
        none = layer.encoding.score(q[:0], k[:0], At(at.query[:1], at.key[:1], None, True), layer)
        assert none.shape == (0, HEADS, n_q, n_k)


WIDE, LONG = 32, 128


@pytest.mark.parametrize(
    "encoding",
    [
        TransformerXL(WIDE, 2, head_dim=WIDE),
        TransformerXL(WIDE, 2, head_dim=WIDE, clip=5),
        T5(2),
        ALiBi(2),
        TUPE(WIDE, 2, 400, head_dim=WIDE, relative=T5(2)),
        DeBERTa(WIDE, 5),
        DeBERTa(WIDE, 5, heads=2, head_dim=WIDE),
    ],
    ids=["transformer-xl", "clipped", "t5", "alibi", "tupe", "deberta", "own projections"],
)
@pytest.mark.parametrize("gaps", [False, True])
def test_no_tensor_has_an_entry_for_each_pair_and_channel(encoding, gaps):
    """Peak size of what is made on the way, against n · n · head_dim."""
    layer, largest = Attention(WIDE, 2, encoding, head_dim=WIDE), 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, tuple) else (out,):
                if isinstance(tensor, Tensor):
                    largest = max(largest, tensor.numel())
            return out

    at = At.of(positions_with_gaps(1, LONG)) if gaps else At.sequence(LONG)
    q, k = torch.randn(2, 1, 2, LONG, WIDE)
    with Watch():
        encoding.score(q, k, at, layer)
    assert 2 * LONG * LONG <= largest < 3 * LONG * LONG


# one for each way to hand a distance out: every one of them takes seconds to compile
@pytest.mark.parametrize("name", ["transformer-xl", "t5", "alibi", "tupe relative", "deberta"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_sequence_made_inside_compiles_whole_and_once_for_all_lengths(name):
    layer = weights(Layer(ENCODINGS[name]()).attention)

    def score(q: Tensor, k: Tensor) -> Tensor:
        return layer.encoding.score(q, k, At.sequence(q.shape[2]), layer)

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(score, fullgraph=True, dynamic=True, backend=counter)
    for n in (*range(2, 20), 70, 130):
        q, k = draw(2, BATCH, HEADS, n, HEAD_DIM, dtype=torch.float32)
        close(compiled(q, k), score(q, k), 1e-5)
    assert 1 <= counter.frame_count <= 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_memory_compiles_whole_and_once_for_all_lengths():
    xl, t5 = weights(ENCODINGS["transformer-xl"]()), weights(ENCODINGS["t5"]())

    def score(q: Tensor, k: Tensor) -> Tensor:
        key = torch.arange(k.shape[2])[None]
        at = At(key[:, -q.shape[2] :], key, None, True)
        return xl.score(q, k, at) + t5.score(q, k, at)

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(score, fullgraph=True, dynamic=True, backend=counter)
    for n_q, n_k in ((2, 5), (3, 4), (7, 90), (70, 71), (80, 200)):
        q, k = (draw(BATCH, HEADS, n, HEAD_DIM, dtype=torch.float32) for n in (n_q, n_k))
        close(compiled(q, k), score(q, k), 1e-5)
    assert 1 <= counter.frame_count <= 2


# wrong input


Q, K, AT = draw(2, 3, 5, 4), draw(2, 3, N, 4), runs(5, N)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: require_fit(Q[0], K, AT, 3, 4), r"q must have four axes, of floats.*\(3, 5, 4\)"),
        (lambda: require_fit(Q, K[0], AT, 3, 4), r"k must have four axes, of floats.*\(3, 7, 4\)"),
        (lambda: require_fit(Q.long(), K, AT, 3, 4), "q must have four axes, of floats.*int64"),
        (lambda: require_fit(Q, K.bool(), AT, 3, 4), "k must have four axes, of floats.*bool"),
        (lambda: require_fit(Q, K, AT, 2, 4), "q must have 2 heads of width 4.* 3 of width 4"),
        (lambda: require_fit(Q, K[:, :2], AT, 3, 4), "k must have 3 heads of .* has 2 of width 4"),
        (lambda: require_fit(Q, K, AT, 3, 5), "q must have 3 heads of width 5.* 3 of width 4"),
        (lambda: require_fit(Q, K[..., :3], AT, 3, 4), "k must have .*width 4.* has 3 of width 3"),
        (lambda: require_fit(Q[:, :, 1:], K, AT, 3, 4), "q must have one .* 5 positions.* has 4"),
        (lambda: require_fit(Q, K[:, :, 1:], AT, 3, 4), "k must have one .* 7 positions.* has 6"),
    ],
)
def test_wrong_input_is_named(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_what_fits_passes():
    require_fit(Q, K, AT, HEADS, HEAD_DIM)
    require_fit(Q.half(), K.half(), AT, HEADS, HEAD_DIM)


# captured by a tracer, and batches of one


@pytest.mark.filterwarnings("ignore")  # of the tracer itself
def test_a_traced_function_is_not_tied_to_its_first_length_nor_to_its_runs():
    for encoding in (DeBERTa(10, 3, heads=3, head_dim=4), TransformerXL(12, 3), T5(3)):
        encoding.requires_grad_(False)

        def logits(q: Tensor, positions: Tensor, encoding: nn.Module = encoding) -> Tensor:
            return encoding.position_logits(q, q, At.of(positions))

        q, places = torch.randn(2, 3, 130, 4), torch.arange(130)[None]
        with torch.no_grad():
            traced = torch.jit.trace(logits, (q[:, :, :70], places[:, :70]), check_trace=False)
            for positions in (places, 3 * places):
                close(traced(q, positions), logits(q, positions), 1e-4)


def test_one_text_may_stand_at_two_places():
    q, two = torch.randn(1, 3, 4, 4).double(), torch.tensor([[0, 2, 3, 7], [1, 3, 4, 9]])
    for encoding in (
        DeBERTa(10, 3, heads=3, head_dim=4),
        TransformerXL(12, 3),
        TransformerXL(12, 3, clip=3),
        T5(3),
    ):
        both = encoding.double().position_logits(q, q, At.of(two))
        for b in range(2):
            close(both[b : b + 1], encoding.position_logits(q, q, At.of(two[b : b + 1])))
