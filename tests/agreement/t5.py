"""T5's bias and ALiBi against published ones, alone and inside published attention layers."""

from __future__ import annotations

import warnings
from itertools import product

import torch
from torch import Tensor, nn
from transformers import BloomConfig, DynamicCache, T5Config
from transformers.models.bloom.modeling_bloom import BloomAttention, build_alibi_tensor
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

from posenc import T5, ALiBi, At, Attention, positions_from_mask
from posenc.relative.t5 import bucket

from .layers import copy_weights, randomise
from .result import ORACLE, Agreement, difference, draw, package

with warnings.catch_warnings():  # importing it calls torch.jit.script, which torch deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    from x_transformers.x_transformers import AlibiPositionalBias, RelativePositionBias

BATCH, HEADS, HEAD_DIM, N, PAST, PADS = 2, 3, 4, 31, 9, 5
DIM = 10  # T5's need not be heads times head_dim
BUCKETS, MAX_DISTANCE = 12, 20  # short enough for distances beyond the last threshold
EXACT = 0.0

REACH = 5000
SIZES = ((32, 128), (BUCKETS, MAX_DISTANCE), (10, 300), (64, 1000))
HEAD_COUNTS = range(1, 25)  # most are no powers of two


def at_the_end(n_q: int, n_k: int, *, causal: bool = False) -> At:
    """The last n_q of n_k tokens ask for all of them."""
    everything = torch.arange(n_k)[None]
    return At.of(everything[:, n_k - n_q :], everything, causal=causal)


def added(at: At) -> Tensor:
    """Their additive mask: (batch or 1, 1, n_q, n_k), 0 where a query may look."""
    lowest = torch.finfo(torch.float32).min
    return torch.zeros(at.visible.shape).masked_fill(~at.visible, lowest)[:, None]


# T5


def buckets() -> Agreement:
    """In both directions and in one; there, distances are key minus query."""
    distance = torch.arange(-REACH, REACH + 1)
    ours, theirs = [], []
    for (count, max_distance), both in product(SIZES, (True, False)):
        ours.append(bucket(distance, count, max_distance, bidirectional=both))
        theirs.append(T5Attention._relative_position_bucket(-distance, both, count, max_distance))
    return Agreement(
        ours="bucket",
        theirs="T5Attention._relative_position_bucket",
        package=package("transformers"),
        compared=f"the buckets of distances −{REACH} to {REACH} for {len(SIZES)} tables, "
        "bidirectional and not",
        difference=difference(torch.stack(ours), torch.stack(theirs)),
        tolerance=EXACT,
    )


def t5_layer(*, decoder: bool) -> T5Attention:
    config = T5Config(
        d_model=DIM,
        d_kv=HEAD_DIM,
        num_heads=HEADS,
        relative_attention_num_buckets=BUCKETS,
        relative_attention_max_distance=MAX_DISTANCE,
        is_decoder=decoder,
    )
    config._attn_implementation = "eager"
    layer = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).eval()
    randomise(layer)
    return layer


def with_weights_of(theirs: T5Attention) -> Attention:
    """Our layer with their weights and their table."""
    encoding = T5(HEADS, BUCKETS, MAX_DISTANCE, bidirectional=not theirs.is_decoder)
    with torch.no_grad():
        encoding.table.copy_(theirs.relative_attention_bias.weight)
    return copy_weights(
        Attention(DIM, HEADS, encoding, head_dim=HEAD_DIM),
        *(p.weight for p in (theirs.q, theirs.k, theirs.v, theirs.o)),
    )


def encoder() -> Agreement:
    """A whole layer that sees both ways."""
    theirs = t5_layer(decoder=False)
    x = draw(BATCH, N, DIM, seed=20)
    return Agreement(
        ours="Attention with T5",
        theirs="T5Attention of an encoder",
        package=package("transformers"),
        compared=f"the outputs of a layer with its weights, {N} tokens",
        difference=difference(with_weights_of(theirs)(x, At.sequence(N)), theirs(x)[0]),
        tolerance=ORACLE,
    )


def decoder() -> Agreement:
    """A whole causal layer, whose keys are longer than its queries: a cache came before."""
    theirs = t5_layer(decoder=True)
    x = draw(BATCH, PAST + N, DIM, seed=20)
    at = at_the_end(N, PAST + N, causal=True)
    cache = DynamicCache()
    theirs(x[:, :PAST], cache=cache)  # its output is of no interest
    output = theirs(x[:, PAST:], mask=added(at), cache=cache)[0]
    return Agreement(
        ours="Attention with T5(bidirectional=False)",
        theirs="T5Attention of a decoder, with a cache",
        package=package("transformers"),
        compared=f"the outputs of a causal layer with its weights, {N} tokens behind {PAST}",
        difference=difference(with_weights_of(theirs)(x[:, PAST:], at, x), output),
        tolerance=ORACLE,
    )


def x_transformers_bias() -> Agreement:
    """The bias alone; theirs is its table times a number, √head_dim where they use it."""
    at = at_the_end(N, PAST + N)
    ours, theirs = [], []
    for both in (True, False):
        bias = RelativePositionBias(HEAD_DIM**0.5, not both, BUCKETS, MAX_DISTANCE, HEADS)
        randomise(bias)
        encoding = T5(HEADS, BUCKETS, MAX_DISTANCE, bidirectional=both)
        with torch.no_grad():
            encoding.table.copy_(bias.relative_attention_bias.weight * bias.scale)
        ours.append(encoding.bias(at.distance()[0]))
        theirs.append(bias(N, PAST + N))
    return Agreement(
        ours="T5.bias",
        theirs="RelativePositionBias",
        package=package("x-transformers"),
        compared=f"the bias of {N} queries behind {PAST} keys, bidirectional and not",
        difference=difference(torch.stack(ours), torch.stack(theirs)),
        tolerance=ORACLE,
    )


# ALiBi


def bloom() -> Agreement:
    """A whole causal layer with pads on the left; each row of its bias is off by a constant."""
    width = HEADS * HEAD_DIM
    theirs = BloomAttention(BloomConfig(hidden_size=width, n_head=HEADS), layer_idx=0).eval()
    randomise(theirs)
    for linear in (theirs.query_key_value, theirs.dense):
        nn.init.zeros_(linear.bias)  # ours has none
    by_letter = theirs.query_key_value.weight.unflatten(0, (HEADS, 3, HEAD_DIM)).unbind(1)
    ours = copy_weights(
        Attention(width, HEADS, ALiBi(HEADS, symmetric=False)),
        *(W.flatten(0, 1) for W in by_letter),
        theirs.dense.weight,
    )
    x = draw(BATCH, N, width, seed=20)
    real = torch.arange(N) >= torch.tensor([[0], [PADS]])
    at = At.of(positions_from_mask(real), mask=real, causal=True)
    alibi = build_alibi_tensor(real.long(), HEADS, torch.float32)
    output, _ = theirs(x, torch.zeros_like(x), alibi, added(at))
    return Agreement(
        ours="Attention with ALiBi(symmetric=False)",
        theirs="BloomAttention with build_alibi_tensor",
        package=package("transformers"),
        compared=f"the outputs of a causal layer with its weights, {N} and {N - PADS} tokens",
        difference=difference(ours(x, at)[real], output[real]),
        tolerance=ORACLE,
    )


def mpt() -> Agreement:
    """The bias alone, less what each row has on the diagonal, a constant that theirs adds."""
    distance = At.sequence(N).distance()[0]
    ours, theirs = [], []
    for heads in HEAD_COUNTS:
        ours.append(ALiBi(heads, symmetric=False).bias(distance))
        keys = build_mpt_alibi_tensor(heads, N)  # (heads, 1, N)
        theirs.append(keys - keys.mT)
    return Agreement(
        ours="ALiBi(symmetric=False).bias",
        theirs="build_mpt_alibi_tensor",
        package=package("transformers"),
        compared=f"the bias of {N} tokens, 0 on the diagonal, for {HEAD_COUNTS[0]} to "
        f"{HEAD_COUNTS[-1]} heads",
        difference=difference(torch.cat(ours), torch.cat(theirs)),
        tolerance=ORACLE,
    )


def x_transformers_alibi() -> Agreement:
    """The bias alone, the same in both directions."""
    distance = at_the_end(N, PAST + N).distance()[0]
    return Agreement(
        ours="ALiBi.bias",
        theirs="AlibiPositionalBias",
        package=package("x-transformers"),
        compared=f"the bias of {N} queries behind {PAST} keys for {HEAD_COUNTS[0]} to "
        f"{HEAD_COUNTS[-1]} heads",
        difference=difference(
            torch.cat([ALiBi(heads).bias(distance) for heads in HEAD_COUNTS]),
            torch.cat([AlibiPositionalBias(heads)(N, PAST + N) for heads in HEAD_COUNTS]),
        ),
        tolerance=ORACLE,
    )


COMPARISONS = (
    buckets,
    encoder,
    decoder,
    x_transformers_bias,
    bloom,
    mpt,
    x_transformers_alibi,
)
