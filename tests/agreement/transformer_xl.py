"""Transformer-XL's encoding against XLNet's layer, which has it, in both directions and causal.

transformers has Transformer-XL itself no longer; XLNet's `attn_type="uni"` is its causal form.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import XLNetConfig, XLNetModel
from transformers.models.xlnet.modeling_xlnet import XLNetRelativeAttention

from posenc import At, Attention, TransformerXL

from .layers import copy_weights, randomise
from .result import ORACLE, Agreement, difference, draw, package

BATCH, HEADS, HEAD_DIM, N, MEMORY, CLIP = 2, 3, 4, 9, 5, 6
DIM = HEADS * HEAD_DIM


def with_weights_of(theirs: XLNetRelativeAttention, clip: int | None) -> Attention:
    """Our layer with their weights, which are (dim, heads, head_dim) each."""
    encoding = TransformerXL(DIM, HEADS, clip=clip)
    W_Q, W_K, W_V, W_KR, W_O = (
        W.flatten(1) for W in (theirs.q, theirs.k, theirs.v, theirs.r, theirs.o)
    )
    with torch.no_grad():
        encoding.W_KR.weight.copy_(W_KR.T)
        encoding.u.copy_(theirs.r_w_bias)
        encoding.v.copy_(theirs.r_r_bias)
    return copy_weights(Attention(DIM, HEADS, encoding), W_Q.T, W_K.T, W_V.T, W_O)


def outputs(attn_type: str, *, memory: int = 0, clip: int | None = None) -> tuple[Tensor, Tensor]:
    """What N tokens behind a memory get, ours and theirs: residual and norm are behind both."""
    config = XLNetConfig(
        vocab_size=11,
        d_model=DIM,
        n_layer=1,
        n_head=HEADS,
        d_inner=7,
        attn_type=attn_type,
        clamp_len=-1 if clip is None else clip,
    )
    model = XLNetModel(config).eval()
    theirs = model.layer[0].rel_attn
    randomise(theirs)
    x = draw(BATCH, memory + N, DIM, seed=20)
    everything = torch.arange(memory + N)[None]
    at = At.of(everything[:, memory:], everything, causal=attn_type == "uni")
    hidden = None if at.visible is None else (~at.visible[0, :, :, None, None]).float()
    new = x[:, memory:]
    output, _ = theirs(
        new.transpose(0, 1),
        None,
        hidden,
        None,
        model.relative_positional_encoding(N, memory + N, BATCH),
        None,
        mems=x[:, :memory].transpose(0, 1),
    )
    ours = with_weights_of(theirs, clip)
    return theirs.layer_norm(new + ours(new, at, x)), output.transpose(0, 1)


def xlnet() -> Agreement:
    """In both directions."""
    return Agreement(
        ours="Attention with TransformerXL",
        theirs='XLNetRelativeAttention with attn_type="bi"',
        package=package("transformers"),
        compared=f"the normed outputs of a layer with its weights, {N} tokens",
        difference=difference(*outputs("bi")),
        tolerance=ORACLE,
    )


def xlnet_with_memory() -> Agreement:
    """In both directions, with more keys than queries."""
    return Agreement(
        ours="Attention with TransformerXL",
        theirs='XLNetRelativeAttention with attn_type="bi" and mems',
        package=package("transformers"),
        compared=f"the normed outputs of a layer with its weights, {N} tokens behind {MEMORY}",
        difference=difference(*outputs("bi", memory=MEMORY)),
        tolerance=ORACLE,
    )


def xlnet_causal() -> Agreement:
    """As in Transformer-XL: causal, with a memory."""
    return Agreement(
        ours="Attention with TransformerXL",
        theirs='XLNetRelativeAttention with attn_type="uni" and mems',
        package=package("transformers"),
        compared=f"the normed outputs of a causal layer with its weights, {N} tokens "
        f"behind {MEMORY}",
        difference=difference(*outputs("uni", memory=MEMORY)),
        tolerance=ORACLE,
    )


def xlnet_clipped() -> Agreement:
    """Distances beyond a bound, either way, are as far as the bound."""
    return Agreement(
        ours=f"Attention with TransformerXL(clip={CLIP})",
        theirs=f"XLNetRelativeAttention with clamp_len={CLIP} and mems",
        package=package("transformers"),
        compared=f"the normed outputs of a layer with its weights, {N} tokens behind {MEMORY}",
        difference=difference(*outputs("bi", memory=MEMORY, clip=CLIP)),
        tolerance=ORACLE,
    )


COMPARISONS = (xlnet, xlnet_with_memory, xlnet_causal, xlnet_clipped)
