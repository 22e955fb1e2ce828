"""Position from the border: a convolution sees zeros where the text ends, and passes that on."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..absolute.base import require_input
from ..checks import require, require_size, require_type
from ..encoding import Encoding

Padding = Literal["zeros", "circular", "reflect", "replicate", "none"]


class Convolution(Encoding):
    """x_k + b + Σ_r w_r ⊗ x_{k+r}, channel by channel, with zeros where there is no token.

    Only the zeros say where a token is. It reads the tokens in the order of the rows and does not
    look at positions; pads, told by the mask, are zeros like those beyond the ends, so a text gives
    the same whether it is padded at its ends or not. As it reads neighbours, a model with it
    refuses a key cache.

    Args:
        dim: number of channels.
        kernel: how many tokens are seen at a time, k + r for r = −⌊(kernel − 1)/2⌋ … ⌊kernel/2⌋;
            an even kernel sees one more ahead.
        causal: see the token itself and kernel − 1 before it instead.
        std: w is drawn from a normal distribution with mean 0 and this deviation; 1/√kernel by
            default. b starts as zero.

    Raises:
        TypeError: a size is no whole number.
        ValueError: a size is not positive, or std is negative.

    Source: Chu et al. 2021, for images.
    """

    reads_neighbours = True

    def __init__(
        self, dim: int, kernel: int = 3, *, causal: bool = False, std: float | None = None
    ) -> None:
        super().__init__()
        require_size("dim", dim)
        require_size("kernel", kernel)
        std = kernel**-0.5 if std is None else std
        require(0 <= std < float("inf"), f"std must be 0 or more and finite, but is {std}")
        self.causal = causal
        self.weight = nn.Parameter(torch.empty(kernel, dim).normal_(0, std))
        self.bias = nn.Parameter(torch.zeros(dim))

    def embed(self, x: Tensor, positions: Tensor, mask: Tensor | None = None) -> Tensor:
        """x_k + b + Σ_r w_r ⊗ x_{k+r}: (batch, n, dim) → (batch, n, dim)."""
        kernel, dim = self.weight.shape
        require_input(x, positions, dim)
        seen = x if mask is None else x * _checked(mask, x)[..., None]
        before = kernel - 1 if self.causal else (kernel - 1) // 2
        seen = F.pad(seen, (0, 0, before, kernel - 1 - before))  # (batch, n + kernel − 1, dim)
        out = x + self.bias.to(x.dtype)
        for r, w_r in enumerate(self.weight.to(x.dtype)):
            out = out + w_r * seen[:, r : r + x.shape[1]]
        return out

    def extra_repr(self) -> str:
        kernel, dim = self.weight.shape
        return f"{dim}, kernel={kernel}, causal={self.causal}"


def layers(
    channels: int,
    depth: int,
    kernel: int = 3,
    *,
    padding: Padding = "zeros",
    dims: int = 1,
    mirrored: bool = False,
    bias: bool = True,
) -> nn.Sequential:
    """A random convolutional network with tanh, to ask what it knows of where things are.

    Args:
        channels: in and out of every layer.
        depth: number of layers.
        kernel: odd, the width of all of them.
        padding: what stands beyond the border; "none" for nothing, so that each layer is narrower
            by kernel − 1.
        dims: 1 for texts (batch, channels, n), 2 for images (batch, channels, height, width).
        mirrored: make every kernel its own mirror image, so that it cannot tell left from right.
        bias: whether the layers have one, drawn like the weights.

    Raises:
        TypeError: a size is no whole number.
        ValueError: a size is out of range, kernel is even, or padding or dims is unknown.
    """
    for name, size in (("channels", channels), ("depth", depth), ("kernel", kernel)):
        require_size(name, size)
    require(kernel % 2 == 1, f"kernel must be odd, but is {kernel}")
    known = ("zeros", "circular", "reflect", "replicate", "none")
    require(padding in known, f"padding must be one of {', '.join(known)}, but is {padding!r}")
    require(dims in (1, 2), f"dims must be 1 or 2, but is {dims}")
    kind: type[nn.Conv1d | nn.Conv2d] = nn.Conv1d if dims == 1 else nn.Conv2d
    stack = nn.Sequential()
    for _ in range(depth):
        if padding == "none":
            layer = kind(channels, channels, kernel, bias=bias)
        else:
            beyond = kernel // 2
            layer = kind(
                channels, channels, kernel, padding=beyond, padding_mode=padding, bias=bias
            )
        nn.init.normal_(layer.weight, 0, (channels * kernel**dims) ** -0.5)
        if layer.bias is not None:
            nn.init.normal_(layer.bias, 0, 0.5)
        if mirrored:
            with torch.no_grad():
                layer.weight.copy_((layer.weight + layer.weight.flip(-1)) / 2)
        stack.extend((layer, nn.Tanh()))
    return stack.requires_grad_(False)


def distinct(columns: Tensor, tolerance: float = 1e-9) -> int:
    """How many columns of (channels, n) differ from each other by more than the tolerance."""
    require(columns.dim() == 2, "columns must be (channels, n), but have shape {}", columns.shape)
    found: list[Tensor] = []
    for column in columns.unbind(-1):
        if all((column - known).abs().max() > tolerance for known in found):
            found.append(column)
    return len(found)


def read_out(features: Tensor, target: Tensor, ridge: float = 1e-3) -> Tensor:
    """The best linear reading of a map from features, by least squares.

    Args:
        features: (batch, channels, height, width).
        target: (height, width), the same for the whole batch.
        ridge: times the mean square of the features, what keeps the weights small.

    Returns:
        (channels + 1,) weights, the last for a constant; see `read`.
    """
    X = _flat(features)  # (batch · height · width, channels + 1)
    y = target.expand(features.shape[0], -1, -1).flatten().to(X.dtype)
    gram = X.T @ X
    small = ridge * gram.diagonal().mean() * torch.eye(len(gram), dtype=X.dtype)
    return torch.linalg.solve(gram + small, X.T @ y)


def read(features: Tensor, weights: Tensor) -> Tensor:
    """The map that the weights read: (batch, channels, height, width) → (batch, height, width)."""
    return (_flat(features) @ weights).view(features.shape[0], *features.shape[2:])


def rank_correlation(a: Tensor, b: Tensor) -> float:
    """Spearman's ρ of two tensors of one shape: the correlation of their ranks, ties averaged."""
    require_type("a", a, Tensor)
    require(a.shape == b.shape, "a and b must have one shape, but have {} and {}", a.shape, b.shape)
    ranks = torch.stack((_ranks(a.flatten()), _ranks(b.flatten())))
    return float(torch.corrcoef(ranks)[0, 1])


def _ranks(values: Tensor) -> Tensor:
    _, group, count = values.double().unique(return_inverse=True, return_counts=True)
    last = count.cumsum(0).double()
    return (last - (count - 1) / 2)[group]


def _flat(features: Tensor) -> Tensor:
    X = features.movedim(1, -1).flatten(0, -2).double()
    return torch.cat((X, torch.ones_like(X[:, :1])), -1)


def _checked(mask: Tensor, x: Tensor) -> Tensor:
    require_type("mask", mask, Tensor)
    require(
        tuple(mask.shape) in [(1, x.shape[1]), tuple(x.shape[:2])] and mask.dtype == torch.bool,
        "mask must be ({} or 1, {}) bool, but is {} {}",
        *(*x.shape[:2], mask.shape, mask.dtype),
    )
    return mask
