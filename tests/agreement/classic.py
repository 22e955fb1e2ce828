"""Shaw's rows on the keys against a published model that has them."""

from __future__ import annotations

import torch
from transformers import Wav2Vec2BertConfig
from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertSelfAttention

from posenc import At, Attention, Shaw

from .result import ORACLE, Agreement, difference, draw, package

HEADS, HEAD_DIM, N, AHEAD, BEHIND = 3, 4, 9, 2, 5
DIM = HEADS * HEAD_DIM


def wav2vec2_bert() -> Agreement:
    """A whole layer with its weights; there, distances are key minus query."""
    config = Wav2Vec2BertConfig(
        hidden_size=DIM,
        num_attention_heads=HEADS,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=BEHIND,
        right_max_position_embeddings=AHEAD,
        attention_dropout=0.0,
    )
    config._attn_implementation = "eager"
    theirs = Wav2Vec2BertSelfAttention(config).eval()
    encoding = Shaw(-AHEAD, BEHIND, head_dim=HEAD_DIM)
    ours = Attention(DIM, HEADS, encoding)
    with torch.no_grad():
        for linear in (theirs.linear_q, theirs.linear_k, theirs.linear_v, theirs.linear_out):
            linear.bias.zero_()
        pairs = zip("QKVO", ("linear_q", "linear_k", "linear_v", "linear_out"), strict=True)
        for letter, name in pairs:
            getattr(ours, f"W_{letter}").weight.copy_(getattr(theirs, name).weight)
        encoding.keys.copy_(theirs.distance_embedding.weight.flip(0)[None])
    x = draw(2, N, DIM)
    return Agreement(
        ours="Attention with Shaw on the keys",
        theirs="Wav2Vec2BertSelfAttention",
        package=package("transformers"),
        compared=f"the outputs of a layer with its weights, {N} tokens",
        difference=difference(ours(x, At.sequence(N)), theirs(x)[0]),
        tolerance=ORACLE,
    )


COMPARISONS = (wav2vec2_bert,)
