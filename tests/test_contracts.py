"""What every encoding and every normaliser promises, whatever it computes.

A new one comes under all of these by its line in `encodings.py`.
"""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

from posenc import At, Transformer, positions_from_mask
from tests.encodings import (
    ALL_NORMALISERS,
    BATCH,
    CONTRACTS,
    DIM,
    ENCODINGS,
    HEAD_DIM,
    HEADS,
    LEARNED,
    UNCOMPILED,
    WHOLE_SEQUENCE,
    Layer,
    N,
    draw,
    positions_with_gaps,
    value_dim,
    weights,
)

every_contract = pytest.mark.parametrize("name", CONTRACTS)
every_compiled_contract = pytest.mark.parametrize(
    "name", [name for name in CONTRACTS if name not in UNCOMPILED]
)
every_encoding = pytest.mark.parametrize("name", ENCODINGS)
every_fixed_encoding = pytest.mark.parametrize("name", sorted(set(ENCODINGS) - LEARNED))

MASK = torch.arange(N) >= torch.tensor([[3], [0]])


def layer(name: str) -> Layer:
    return weights(CONTRACTS[name]())


def inputs(n: int = N, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    return draw(BATCH, n, DIM, dtype=dtype), positions_with_gaps(n=n)


def close(ours: Tensor, theirs: Tensor, atol: float = 1e-5) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=atol)


# compile, export, vmap, meta


@every_compiled_contract
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_compiles_whole_and_once_for_all_lengths(name):
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("eager")
    module = layer(name)
    compiled = torch.compile(module, fullgraph=True, dynamic=True, backend=counter)
    for n in range(2, 20):
        close(compiled(*inputs(n)), module(*inputs(n)))
    assert 1 <= counter.frame_count <= 2


@pytest.mark.parametrize("name", ["rotary learned", "none, l2"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_compiled_gradients_are_those_of_eager(name):
    torch._dynamo.reset()
    module = layer(name)
    compiled = torch.compile(module, fullgraph=True, dynamic=True, backend="aot_eager")
    for n in (5, 9):
        gradients = []
        for run in (module, compiled):
            x, positions = inputs(n)
            x.requires_grad_()
            module.zero_grad()
            run(x, positions).square().sum().backward()
            gradients.append([x.grad, *(p.grad.clone() for p in module.parameters())])
        for ours, theirs in zip(*gradients, strict=True):
            close(ours, theirs)


@every_compiled_contract
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_exports_for_any_length(name):
    module, n = layer(name), torch.export.Dim("n", min=2, max=4096)
    program = torch.export.export(module, inputs(4), dynamic_shapes=({1: n}, {1: n}))
    for length in (37, 2):
        close(program.module()(*inputs(length)), module(*inputs(length)))


@every_contract
def test_vmap_is_the_loop(name):
    module, x = layer(name), draw(3, BATCH, N, DIM, dtype=torch.float32)
    positions = torch.stack([positions_with_gaps() + 5 * i for i in range(3)])
    expected = torch.stack([module(x[i], positions[i]) for i in range(3)])
    close(torch.vmap(module)(x, positions), expected)
    expected = torch.stack([module(x[i], positions[0]) for i in range(3)])
    close(torch.vmap(module, (0, None))(x, positions[0]), expected)
    expected = torch.stack([module(x[0], positions[i]) for i in range(3)])
    close(torch.vmap(module, (None, 0))(x[0], positions), expected)


@every_contract
@pytest.mark.parametrize("padded", [False, True])
def test_runs_on_meta_with_everything_there(name, padded):
    module, (x, positions) = layer(name).to("meta"), inputs()
    mask = MASK.to("meta") if padded else None
    y = module(x.to("meta"), positions.to("meta"), mask)
    assert y.is_meta and y.shape == (BATCH, N, DIM) and y.dtype == torch.float32


@every_encoding
@pytest.mark.parametrize("normaliser", ALL_NORMALISERS)
def test_the_whole_model_runs_on_meta(name, normaliser):
    with torch.device("meta"):
        model = Transformer(5, DIM, HEADS, 2, ENCODINGS[name](), ALL_NORMALISERS[normaliser]())
        tokens = torch.zeros(BATCH, N, dtype=torch.int64)
        mask = torch.ones(BATCH, N, dtype=torch.bool)
        positions = positions_from_mask(mask)
        whole = At.sequence(N, causal=True)
        of = At.of(positions, mask=mask, causal=True)
    for at in (whole, At.sequence(N, causal=True, device="meta"), of):
        y = model(tokens, at, mask)
        assert y.is_meta and y.shape == (BATCH, N, 1)
    y.sum().backward()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_at_is_built_inside_a_compiled_function_for_any_length():
    def distances(x: Tensor) -> Tensor:
        at = At.sequence(x.shape[0], causal=True)
        return at.distance() * at.visible

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(distances, fullgraph=True, dynamic=True, backend=counter)
    for n in range(2, 20):
        assert torch.equal(compiled(torch.zeros(n)), distances(torch.zeros(n)))
    assert counter.frame_count <= 2


# dtypes


@every_contract
@pytest.mark.parametrize(
    ("dtype", "atol"), [(torch.float16, 0.02), (torch.bfloat16, 0.15), (torch.float64, 1e-5)]
)
def test_the_dtype_of_the_input_is_that_of_the_output(name, dtype, atol):
    x, positions = inputs()
    module = layer(name)
    expected = module(x, positions).detach()
    for mask in (None, MASK):
        y = module.to(dtype)(x.to(dtype), positions, mask)
        assert y.dtype == dtype
        if mask is None:
            scale = float(expected.std())
            torch.testing.assert_close(y.float(), expected, rtol=0, atol=atol * scale)


@every_encoding
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_does_not_touch_the_positions(name, dtype):
    # one unit of bfloat16 is 2 at position 257, and 32 at 4099
    positions = torch.tensor([[0, 1, 255, 257, 4095, 4097, 4099]])
    encoding, x = ENCODINGS[name](), draw(BATCH, N, DIM, dtype=dtype)
    q = draw(BATCH, HEADS, N, HEAD_DIM, dtype=dtype)
    v = draw(BATCH, HEADS, N, value_dim(encoding), dtype=dtype)

    def stages() -> list[Tensor]:
        at = At.of(positions)
        return [
            encoding.embed(x, positions),
            *encoding.transform(q, q, v, at),
            encoding.undo(v, at),
        ]

    exact = stages()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = stages()
    for ours, theirs in zip(cast, exact, strict=True):
        assert torch.equal(ours, theirs) and ours.dtype == dtype


@every_contract
def test_runs_under_autocast_and_stays_close(name):
    module, (x, positions) = layer(name), inputs()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = module(x, positions, MASK)
    exact = module(x, positions, MASK)
    torch.testing.assert_close(y.float(), exact, rtol=0, atol=0.1 * float(exact.std().detach()))


# state


@every_fixed_encoding
def test_a_fixed_encoding_has_no_state(name):
    encoding = Layer(ENCODINGS[name]()).attention.encoding
    weights(Layer(encoding))(*inputs())
    assert not list(encoding.parameters()) and not list(encoding.buffers())
    assert not encoding.state_dict()


@every_fixed_encoding
def test_initialising_and_training_the_model_leave_a_fixed_encoding_alone(name):
    module, (x, positions) = layer(name), inputs()
    encoding, at = module.attention.encoding, At.of(positions)
    q = draw(BATCH, HEADS, N, HEAD_DIM)
    v = draw(BATCH, HEADS, N, value_dim(encoding))
    before = [encoding.embed(x, positions), *encoding.transform(q, q, v, at)]
    module.apply(lambda m: [nn.init.normal_(p) for p in m.parameters(recurse=False)])
    optimiser = torch.optim.SGD(module.parameters(), lr=1.0)
    module(x, positions).sum().backward()
    optimiser.step()
    after = [encoding.embed(x, positions), *encoding.transform(q, q, v, at)]
    assert all(torch.equal(new, old) for new, old in zip(after, before, strict=True))


@every_contract
@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))]
)
def test_copies_and_pickles_after_a_forward(name, copied):
    module, (x, positions) = layer(name), inputs()
    y = module(x, positions)
    y.sum().backward()
    assert torch.equal(copied(module)(x, positions), y)


@every_contract
def test_state_dict_reproduces_the_module(name):
    module, (x, positions) = layer(name), inputs()
    fresh = CONTRACTS[name]()
    fresh.load_state_dict(module.state_dict())
    assert torch.equal(fresh(x, positions), module(x, positions))


@every_contract
def test_nothing_is_remembered_from_call_to_call(name):
    module, (x, positions) = layer(name), inputs()
    first = module(x, positions)
    held = set(vars(module.attention.encoding))
    for n in (300, 1, 40):
        module(*inputs(n))
    module(x, positions + 3000)
    assert torch.equal(module(x, positions), first)
    assert set(vars(module.attention.encoding)) == held
    tensors = [v for m in module.modules() for v in vars(m).values() if isinstance(v, Tensor)]
    assert not tensors


# inputs


@every_contract
def test_inputs_are_never_modified(name):
    module, (x, positions) = layer(name), inputs()
    given = x, positions, MASK.clone()
    copies = [tensor.clone() for tensor in given]
    module(*given)
    assert all(torch.equal(now, then) for now, then in zip(given, copies, strict=True))
    assert all(now._version == 0 for now in given)


@every_encoding
def test_stages_never_modify_their_arguments(name):
    encoding, at = ENCODINGS[name](), At.of(positions_with_gaps(), mask=MASK, causal=True)
    x, q = draw(BATCH, N, DIM), draw(BATCH, HEADS, N, HEAD_DIM)
    v, a = draw(BATCH, HEADS, N, value_dim(encoding)), draw(BATCH, HEADS, N, N)
    given = [x, q, v, a, at.query, at.key, at.visible]
    versions = [tensor._version for tensor in given]
    encoding.embed(x, at.query, MASK)
    encoding.transform(q, q, v, at)
    encoding.score(q, q, at, Layer(encoding).attention)
    encoding.mix(a, v, at)
    assert [tensor._version for tensor in given] == versions


@pytest.mark.parametrize("name", ALL_NORMALISERS)
def test_normalisers_never_modify_their_logits(name):
    logits = draw(BATCH, HEADS, N, N)
    for at in (At.sequence(N), At.sequence(N, causal=True)):
        ALL_NORMALISERS[name]()(logits, at)
    assert logits._version == 0


@every_contract
@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize("padded", [False, True])
def test_empty_and_short_inputs_work(name, n, batch, padded):
    module = layer(name)
    x, positions = draw(batch, n, DIM, dtype=torch.float32), positions_with_gaps(batch, n)
    mask = torch.ones(batch, n, dtype=torch.bool) if padded else None
    x.requires_grad_()
    y = module(x, positions, mask)
    assert y.shape == (batch, n, DIM) and y.isfinite().all()
    y.sum().backward()
    assert x.grad.shape == x.shape and x.grad.isfinite().all()


@every_encoding
@pytest.mark.parametrize("normaliser", sorted(set(ALL_NORMALISERS) - WHOLE_SEQUENCE))
@pytest.mark.parametrize(("n_q", "n_k"), [(0, 4), (3, 0), (1, 4)])
def test_queries_without_keys_and_keys_without_queries_work(name, normaliser, n_q, n_k):
    attention = weights(Layer(ENCODINGS[name](), ALL_NORMALISERS[normaliser]())).attention
    x, context = draw(2, n_q, DIM, dtype=torch.float32), draw(2, n_k, DIM, dtype=torch.float32)
    at = At.of(positions_with_gaps(2, n_q) + 9, positions_with_gaps(2, n_k), causal=True)
    y = attention(x, at, context)
    assert y.shape == (2, n_q, DIM) and y.isfinite().all()
    assert n_k > 0 or (y == 0).all()


@every_contract
def test_the_layout_in_memory_does_not_matter(name):
    module, (x, positions) = layer(name), inputs()
    strided = x.transpose(0, 2).contiguous().transpose(0, 2)
    every_other = torch.stack((positions, -positions), -1).flatten(1)[:, ::2]
    assert not strided.is_contiguous() and not every_other.is_contiguous()
    close(module(strided, every_other, MASK), module(x, positions, MASK), 1e-6)


@every_contract
def test_gradients_reach_the_input_and_every_parameter(name):
    module, (x, positions) = layer(name), inputs()
    x.requires_grad_()
    module(x, positions, MASK).square().sum().backward()
    assert x.grad.isfinite().all()
    assert all((x.grad[s, MASK[s]] != 0).any() for s in range(BATCH))
    for place, parameter in module.named_parameters():
        assert parameter.grad.isfinite().all()
        # a number on a whole row of logits is nothing to softmax: see test_t5
        assert place.endswith("from_cls") or (parameter.grad != 0).any()


@every_encoding
def test_gradients_of_the_stages_are_right(name):
    module = weights(Layer(ENCODINGS[name]())).double()
    x, positions = draw(1, 3, DIM).requires_grad_(), positions_with_gaps(1, 3)
    assert torch.autograd.gradcheck(lambda x: module(x, positions), (x,))


# logits


@every_encoding
def test_the_score_is_content_and_position_wherever_it_is_written(name):
    layer_ = weights(Layer(ENCODINGS[name]())).double()
    encoding = layer_.attention.encoding
    for at in (At.of(positions_with_gaps()), At.sequence(N)):
        q, k = draw(BATCH, HEADS, N, HEAD_DIM), draw(BATCH, HEADS, N, HEAD_DIM, seed=3)
        content = q @ k.mT * encoding.scale(HEAD_DIM)
        for batch in (slice(0, BATCH), slice(0, 1)):
            here = at._replace(query=at.query[batch], key=at.key[batch])
            position = encoding.position_logits(q[batch], k[batch], here, layer_.attention)
            expected = content[batch] + (0 if position is None else position)
            for _ in range(2):  # a second time: the first has written into nothing that is kept
                score = encoding.score(q[batch], k[batch], here, layer_.attention)
                close(score, expected, 1e-12)
            with torch.no_grad():
                score = encoding.score(q[batch], k[batch], here, layer_.attention)
                close(score, expected, 1e-12)


@every_encoding
def test_new_logits_are_nobody_elses(name):
    layer_ = weights(Layer(ENCODINGS[name]()))
    encoding, q = layer_.attention.encoding, draw(1, HEADS, N, HEAD_DIM, dtype=torch.float32)
    if not encoding.new_logits:
        return
    for at in (At.of(positions_with_gaps(1)), At.sequence(N)):
        with torch.no_grad():
            first, second = (encoding.position_logits(q, q, at, layer_.attention) for _ in range(2))
        held = [*layer_.parameters(), *layer_.buffers(), q, second]
        memory = first.untyped_storage().data_ptr()
        assert all(memory != other.untyped_storage().data_ptr() for other in held)
        # every entry has a place of its own, as a view with a stride of 0 would not have
        assert first.untyped_storage().nbytes() >= first.numel() * first.element_size()
