"""RoPE against published implementations of both layouts, and inside published attention layers."""

from __future__ import annotations

import torch
from rotary_embedding_torch import RotaryEmbedding
from torch import Tensor, nn
from transformers import GPTJConfig, LlamaConfig, RoFormerConfig
from transformers.models.gptj.modeling_gptj import (
    GPTJAttention,
    create_sinusoidal_positions,
)
from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as gptj_rotary
from transformers.models.llama.modeling_llama import (
    LlamaAttention,
    LlamaRotaryEmbedding,
)
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as llama_rotary
from transformers.models.roformer.modeling_roformer import (
    RoFormerSelfAttention,
    RoFormerSinusoidalPositionalEmbedding,
)

from posenc import At, Attention, Rotary
from posenc.unconventional.rotary import half_split_order

from .layers import copy_weights, randomise
from .result import ORACLE, Agreement, difference, draw, package

BATCH, HEADS, N, HEAD_DIM, WIDTH = 2, 3, 7, 8, 6
DIM = HEADS * HEAD_DIM
FIRST = 5  # positions start here, so that an ignored offset shows
POSITIONS = torch.arange(FIRST, FIRST + N)[None]
TURNED = f"queries and keys at positions {FIRST} to {FIRST + N - 1}"
OUTPUTS = f"outputs with their weights, causal, positions {FIRST} to {FIRST + N - 1}"


def queries_and_keys(head_dim: int = HEAD_DIM) -> tuple[Tensor, Tensor]:
    return draw(BATCH, HEADS, N, head_dim), draw(BATCH, HEADS, N, head_dim, seed=1)


def turned(rotary: Rotary) -> Tensor:
    """Our turned queries and keys, one behind the other."""
    q, k = queries_and_keys(rotary.head_dim)
    return torch.cat(rotary.transform(q, k, k, At.of(POSITIONS))[:2])


def llama_config() -> LlamaConfig:
    return LlamaConfig(
        hidden_size=DIM,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        head_dim=HEAD_DIM,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )


def roformer_table(n: int, width: int) -> Tensor:
    """(1, 1, n, width): their sines, then their cosines."""
    table = RoFormerSinusoidalPositionalEmbedding(FIRST + n, width)
    table.weight = nn.Parameter(table.create_weight(), requires_grad=False)
    return table(torch.Size((1, n)), cache_length=FIRST)[None, None]


def gptj_sin_cos(width: int) -> tuple[Tensor, Tensor]:
    """Their (1, n, width / 2) sines and cosines."""
    table = create_sinusoidal_positions(FIRST + N, width)[None, FIRST:]
    sin, cos = table.chunk(2, -1)
    return sin, cos


# the rotation alone


def gptj() -> Agreement:
    """Interleaved pairs."""
    sin, cos = gptj_sin_cos(HEAD_DIM)
    theirs = [gptj_rotary(x.transpose(1, 2), sin, cos) for x in queries_and_keys()]
    return Agreement(
        ours='Rotary(layout="interleaved")',
        theirs="gptj.apply_rotary_pos_emb",
        package=package("transformers"),
        compared=TURNED,
        difference=difference(turned(Rotary(HEAD_DIM)), torch.cat(theirs).transpose(1, 2)),
        tolerance=ORACLE,
    )


def roformer() -> Agreement:
    """Interleaved pairs."""
    theirs = RoFormerSelfAttention.apply_rotary_position_embeddings(
        roformer_table(N, HEAD_DIM), *queries_and_keys()
    )
    return Agreement(
        ours='Rotary(layout="interleaved")',
        theirs="RoFormerSelfAttention.apply_rotary_position_embeddings",
        package=package("transformers"),
        compared=TURNED,
        difference=difference(turned(Rotary(HEAD_DIM)), torch.cat(theirs)),
        tolerance=ORACLE,
    )


def rotary_embedding_torch() -> Agreement:
    """Interleaved pairs, and a part of the head only."""
    embedding = RotaryEmbedding(WIDTH)
    theirs = [embedding.rotate_queries_or_keys(x, offset=FIRST) for x in queries_and_keys()]
    return Agreement(
        ours=f'Rotary(layout="interleaved", width={WIDTH})',
        theirs="RotaryEmbedding.rotate_queries_or_keys",
        package=package("rotary-embedding-torch"),
        compared=f"{TURNED}, {WIDTH} of {HEAD_DIM} channels",
        difference=difference(turned(Rotary(HEAD_DIM, width=WIDTH)), torch.cat(theirs)),
        tolerance=ORACLE,
    )


def llama() -> Agreement:
    """Half-split pairs."""
    cos, sin = LlamaRotaryEmbedding(llama_config())(draw(1), POSITIONS)
    theirs = llama_rotary(*queries_and_keys(), cos, sin)
    return Agreement(
        ours='Rotary(layout="half-split")',
        theirs="llama.apply_rotary_pos_emb",
        package=package("transformers"),
        compared=TURNED,
        difference=difference(turned(Rotary(HEAD_DIM, layout="half-split")), torch.cat(theirs)),
        tolerance=ORACLE,
    )


# whole attention layers, with their weights


def later_hidden() -> Tensor:
    """Their additive mask: (1, 1, n, n), 0 where a query may look."""
    lowest = torch.finfo(torch.float32).min
    return torch.full((N, N), lowest).triu(1)[None, None]


def llama_layer_and_output(x: Tensor) -> tuple[LlamaAttention, Tensor]:
    layer = LlamaAttention(llama_config(), layer_idx=0).eval()
    randomise(layer)
    table = LlamaRotaryEmbedding(layer.config)(x, POSITIONS)
    return layer, layer(x, position_embeddings=table, attention_mask=later_hidden())[0]


def llama_attention() -> Agreement:
    """A whole layer of half-split pairs."""
    x = draw(BATCH, N, DIM, seed=9)
    theirs, output = llama_layer_and_output(x)
    ours = copy_weights(
        Attention(DIM, HEADS, Rotary(HEAD_DIM, layout="half-split")),
        *(p.weight for p in (theirs.q_proj, theirs.k_proj, theirs.v_proj, theirs.o_proj)),
    )
    return Agreement(
        ours='Attention with Rotary(layout="half-split")',
        theirs="LlamaAttention",
        package=package("transformers"),
        compared=OUTPUTS,
        difference=difference(ours(x, At.of(POSITIONS, causal=True)), output),
        tolerance=ORACLE,
    )


def llama_attention_interleaved() -> Agreement:
    """The same layer, its weights carried over to interleaved pairs."""
    x = draw(BATCH, N, DIM, seed=9)
    theirs, output = llama_layer_and_output(x)
    back = half_split_order(HEAD_DIM).argsort()
    W_Q, W_K = (
        p.weight.unflatten(0, (HEADS, -1))[:, back].flatten(0, 1)
        for p in (theirs.q_proj, theirs.k_proj)
    )
    ours = copy_weights(
        Attention(DIM, HEADS, Rotary(HEAD_DIM)),
        *(W_Q, W_K, theirs.v_proj.weight, theirs.o_proj.weight),
    )
    return Agreement(
        ours='Attention with Rotary(layout="interleaved") and reordered weights',
        theirs="LlamaAttention",
        package=package("transformers"),
        compared=OUTPUTS,
        difference=difference(ours(x, At.of(POSITIONS, causal=True)), output),
        tolerance=ORACLE,
    )


def gptj_attention() -> Agreement:
    """A whole layer of interleaved pairs, which turns a part of the head only."""
    x = draw(BATCH, N, DIM, seed=9)
    config = GPTJConfig(n_embd=DIM, n_head=HEADS, rotary_dim=WIDTH)
    theirs = GPTJAttention(config, layer_idx=0).eval()
    randomise(theirs)
    output, _ = theirs(x, position_embeddings=gptj_sin_cos(WIDTH), attention_mask=later_hidden())
    ours = copy_weights(
        Attention(DIM, HEADS, Rotary(HEAD_DIM, width=WIDTH)),
        *(p.weight for p in (theirs.q_proj, theirs.k_proj, theirs.v_proj, theirs.out_proj)),
    )
    return Agreement(
        ours=f'Attention with Rotary(layout="interleaved", width={WIDTH})',
        theirs="GPTJAttention",
        package=package("transformers"),
        compared=OUTPUTS,
        difference=difference(ours(x, At.of(POSITIONS, causal=True)), output),
        tolerance=ORACLE,
    )


def roformer_attention() -> Agreement:
    """A whole layer of interleaved pairs that turns the values, too, and never turns them back."""
    x = draw(BATCH, N, DIM, seed=9)
    config = RoFormerConfig(hidden_size=DIM, num_attention_heads=HEADS, rotary_value=True)
    theirs = RoFormerSelfAttention(config).eval()
    randomise(theirs)
    for linear in (theirs.query, theirs.key, theirs.value):
        nn.init.zeros_(linear.bias)  # ours has none
    output, _ = theirs(x, attention_mask=later_hidden(), sinusoidal_pos=roformer_table(N, HEAD_DIM))
    ours = copy_weights(
        Attention(DIM, HEADS, Rotary(HEAD_DIM, values="absolute")),
        *(p.weight for p in (theirs.query, theirs.key, theirs.value)),
        torch.eye(DIM),  # theirs keeps its W_O elsewhere
    )
    return Agreement(
        ours='Attention with Rotary(values="absolute")',
        theirs="RoFormerSelfAttention with rotary_value",
        package=package("transformers"),
        compared=OUTPUTS,
        difference=difference(ours(x, At.of(POSITIONS, causal=True)), output),
        tolerance=ORACLE,
    )


COMPARISONS = (
    gptj,
    roformer,
    rotary_embedding_torch,
    llama,
    gptj_attention,
    roformer_attention,
    llama_attention,
    llama_attention_interleaved,
)
