"""What the comparisons of whole layers share: weights for theirs, and the same weights for ours."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from posenc import Attention

from .result import draw


def copy_weights(layer: Attention, *weights: Tensor) -> Attention:
    """Our layer with their W_Q, W_K, W_V and W_O."""
    ours = layer.W_Q, layer.W_K, layer.W_V, layer.W_O
    with torch.no_grad():
        for linear, theirs in zip(ours, weights, strict=True):
            linear.weight.copy_(theirs)
    return layer


def randomise(module: nn.Module) -> None:
    """Fill all parameters with seeded numbers of a moderate size."""
    with torch.no_grad():
        for seed, parameter in enumerate(module.parameters()):
            parameter.copy_(draw(*parameter.shape, seed=seed) * parameter.shape[-1] ** -0.5)
