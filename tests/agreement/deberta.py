"""DeBERTa's disentangled attention against both published versions of the layer."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from transformers import DebertaConfig, DebertaV2Config
from transformers.models.deberta import modeling_deberta as v1
from transformers.models.deberta_v2 import modeling_deberta_v2 as v2

from posenc import At, Attention, DeBERTa

from .layers import copy_weights, randomise
from .result import ORACLE, Agreement, difference, draw, package

BATCH, HEADS, N = 2, 3, 17
SPAN = 4  # N is far beyond it, both ways
BUCKETS, MAX_DISTANCE = 10, 19  # theirs does not clip at MAX_DISTANCE, so N is not beyond it
EXACT = 0.0
INDEX: Literal["paper", "code"] = "code"
TERMS = ["c2p", "p2c"]
EVERYTHING = torch.ones(1, 1, N, N)  # their mask, 1 where a query may look

SIZES = ((256, 512), (BUCKETS, MAX_DISTANCE), (32, 100), (512, 2048))


def log_buckets() -> Agreement:
    """Version 2's buckets, moved by span to be rows of R; theirs does not clip."""
    ours, theirs = [], []
    for span, max_distance in SIZES:
        distance = torch.arange(1 - max_distance, max_distance)
        ours.append(DeBERTa(1, span, max_distance=max_distance).index(distance))
        theirs.append(v2.make_log_bucket_position(distance, span, max_distance) + span)
    return Agreement(
        ours="DeBERTa(max_distance=…).index",
        theirs="make_log_bucket_position",
        package=package("transformers"),
        compared=f"the rows for all distances below {', '.join(str(m) for _, m in SIZES)}",
        difference=difference(torch.cat(ours), torch.cat(theirs)),
        tolerance=EXACT,
    )


def version_1_outputs() -> tuple[Tensor, Tensor]:
    """Ours and theirs; R has projections of its own, and q, k and v lie side by side by head."""
    head_dim = 5
    dim = HEADS * head_dim
    config = DebertaConfig(
        hidden_size=dim,
        num_attention_heads=HEADS,
        relative_attention=True,
        max_relative_positions=SPAN,
        pos_att_type=TERMS,
    )
    theirs = v1.DisentangledSelfAttention(config).eval()
    randomise(theirs)
    for bias in (theirs.q_bias, theirs.v_bias):
        nn.init.zeros_(bias)  # ours has none
    encoding = DeBERTa(dim, SPAN, convention=INDEX, heads=HEADS, head_dim=head_dim)
    with torch.no_grad():
        encoding.R.copy_(draw(2 * SPAN, dim, seed=20))
        encoding.W_KR.weight.copy_(theirs.pos_proj.weight)
        encoding.W_QR.weight.copy_(theirs.pos_q_proj.weight)
        encoding.W_QR.bias.copy_(theirs.pos_q_proj.bias)
    by_letter = theirs.in_proj.weight.unflatten(0, (HEADS, 3, head_dim)).unbind(1)
    ours = copy_weights(
        Attention(dim, HEADS, encoding),
        *(W.flatten(0, 1) for W in by_letter),
        torch.eye(dim),  # theirs keeps its W_O elsewhere
    )
    x = draw(BATCH, N, dim, seed=21)
    output, _ = theirs(
        x,
        EVERYTHING,
        relative_pos=v1.build_relative_position(x, x),  # without it, no position at all
        rel_embeddings=encoding.R,
    )
    return ours(x, At.sequence(N)), output


def version_2_outputs(
    span: int, max_distance: int | None, biases: bool = False
) -> tuple[Tensor, Tensor]:
    """Ours and theirs, behind one W_O; R goes through the projections of the content.

    With biases, theirs take the place of our projections, and R comes out of their layer norm, as
    published weights need it.
    """
    dim, head_dim = 12, 5
    config = DebertaV2Config(
        hidden_size=dim,
        num_attention_heads=HEADS,
        attention_head_size=head_dim,
        relative_attention=True,
        share_att_key=True,
        max_relative_positions=max_distance or span,
        position_buckets=span if max_distance else -1,
        pos_att_type=TERMS,
    )
    theirs = v2.DisentangledSelfAttention(config).eval()
    randomise(theirs)
    content = theirs.query_proj, theirs.key_proj, theirs.value_proj
    for linear in content:
        if not biases:
            nn.init.zeros_(linear.bias)  # ours has none
    encoding = DeBERTa(dim, span, convention=INDEX, max_distance=max_distance)
    W_O = draw(dim, HEADS * head_dim, seed=22) / dim**0.5  # theirs keeps its own elsewhere
    with torch.no_grad():
        R = draw(2 * span, dim, seed=20)
        encoding.R.copy_(nn.functional.layer_norm(3 * R, (dim,)) if biases else R)
    ours = copy_weights(
        Attention(dim, HEADS, encoding, head_dim=head_dim), *(p.weight for p in content), W_O
    )
    if biases:
        ours.W_Q, ours.W_K, ours.W_V = content
    x = draw(BATCH, N, dim, seed=21)
    output, _ = theirs(x, EVERYTHING, rel_embeddings=encoding.R)
    return ours(x, At.sequence(N)), output @ W_O.T


def version_1() -> Agreement:
    """A whole layer whose position vectors have projections of their own."""
    return Agreement(
        ours=f'Attention with DeBERTa(convention="{INDEX}", heads=…, head_dim=…)',
        theirs="deberta.DisentangledSelfAttention",
        package=package("transformers"),
        compared=f"the outputs of a layer with its weights, {N} tokens, span {SPAN}",
        difference=difference(*version_1_outputs()),
        tolerance=ORACLE,
    )


def version_2() -> Agreement:
    """A whole layer that shares its projections with the position vectors."""
    return Agreement(
        ours=f'Attention with DeBERTa(convention="{INDEX}")',
        theirs="deberta_v2.DisentangledSelfAttention with share_att_key",
        package=package("transformers"),
        compared=f"the outputs of a layer with its weights, {N} tokens, span {SPAN}",
        difference=difference(*version_2_outputs(SPAN, None)),
        tolerance=ORACLE,
    )


def version_2_with_buckets() -> Agreement:
    """The same with logarithmic buckets."""
    return Agreement(
        ours=f'Attention with DeBERTa(convention="{INDEX}", max_distance={MAX_DISTANCE})',
        theirs="deberta_v2.DisentangledSelfAttention with share_att_key and position_buckets",
        package=package("transformers"),
        compared=f"the outputs of a layer with its weights, {N} tokens, span {BUCKETS}",
        difference=difference(*version_2_outputs(BUCKETS, MAX_DISTANCE)),
        tolerance=ORACLE,
    )


def version_2_with_biases() -> Agreement:
    """The same with all that published weights have: biases, and rows that are normalised."""
    return Agreement(
        ours=f'Attention with DeBERTa(convention="{INDEX}", max_distance={MAX_DISTANCE})',
        theirs="deberta_v2.DisentangledSelfAttention with share_att_key and position_buckets",
        package=package("transformers"),
        compared=f"the outputs of a layer with its weights and biases, {N} tokens, span {BUCKETS}",
        difference=difference(*version_2_outputs(BUCKETS, MAX_DISTANCE, biases=True)),
        tolerance=ORACLE,
    )


COMPARISONS = (log_buckets, version_1, version_2, version_2_with_buckets, version_2_with_biases)
