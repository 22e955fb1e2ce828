"""The sinusoid against published ones."""

from __future__ import annotations

import torch
from positional_encodings.torch_encodings import PositionalEncoding1D
from torch import nn
from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
from transformers.models.roformer.modeling_roformer import RoFormerSinusoidalPositionalEmbedding

from posenc import Sinusoidal

from .result import ORACLE, Agreement, difference, draw, package

DIM, N = 12, 50


def positional_encodings() -> Agreement:
    """Interleaved channels."""
    x = draw(2, N, DIM)
    return Agreement(
        ours='Sinusoidal(layout="interleaved")',
        theirs="PositionalEncoding1D",
        package=package("positional-encodings"),
        compared=f"the vectors of positions 0 to {N - 1}",
        difference=difference(
            Sinusoidal(DIM).embed(torch.zeros_like(x), torch.arange(N)[None]),
            PositionalEncoding1D(DIM)(x),
        ),
        tolerance=ORACLE,
    )


def roformer() -> Agreement:
    """All sines before all cosines."""
    theirs = RoFormerSinusoidalPositionalEmbedding(N + 7, DIM)
    theirs.weight = nn.Parameter(theirs.create_weight(), requires_grad=False)
    return Agreement(
        ours='Sinusoidal(layout="halves")',
        theirs="RoFormerSinusoidalPositionalEmbedding",
        package=package("transformers"),
        compared=f"the vectors of positions 7 to {N + 6}",
        difference=difference(
            Sinusoidal(DIM, layout="halves").vectors(torch.arange(7, N + 7)),
            theirs(torch.Size((2, N)), cache_length=7),
        ),
        tolerance=ORACLE,
    )


def m2m_100() -> Agreement:
    """tensor2tensor's frequencies, with the channel of zeros that an odd width gets."""
    return Agreement(
        ours='Sinusoidal(layout="halves", variant="tensor2tensor")',
        theirs="M2M100SinusoidalPositionalEmbedding.get_embedding",
        package=package("transformers"),
        compared=f"the vectors of positions 0 to {N - 1}, of odd width",
        difference=difference(
            Sinusoidal(DIM + 1, layout="halves", variant="tensor2tensor").vectors(torch.arange(N)),
            M2M100SinusoidalPositionalEmbedding.get_embedding(N, DIM + 1),
        ),
        tolerance=ORACLE,
    )


COMPARISONS = (positional_encodings, roformer, m2m_100)
