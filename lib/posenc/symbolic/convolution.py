"""What zeros beyond a border do to a constant text: one kernel's share is missing there."""

from __future__ import annotations

from .derivation import Derivation, derivation
from .letters import d
from .words import Letter

x = Letter("x", 1, d)
b = Letter("b", 1, d)
W_behind = Letter("W_behind", d, d, "W_{-1}")
W_here = Letter("W_here", d, d, "W_0")
W_ahead = Letter("W_ahead", d, d, "W_1")

_inside = x @ W_behind + x @ W_here + x @ W_ahead + b
_first = x @ W_here + x @ W_ahead + b
_last = x @ W_behind + x @ W_here + b


@derivation
def convolution_border() -> Derivation:
    """The first column of a constant text less an inner one: what the kernel misses there."""
    return Derivation("convolution-border", "At the border", _first - _inside).equals(
        -(x @ W_behind), because="the rest is the same"
    )


@derivation
def convolution_mirrored() -> Derivation:
    """Kernels that are their own mirror image see the two borders alike."""
    return (
        Derivation("convolution-mirrored", "Both borders", _first - _last)
        .equals(x @ W_ahead - x @ W_behind, because="the rest is the same")
        .given(
            {W_behind: W_ahead}, x @ W_ahead - x @ W_ahead, because="the kernel is its mirror image"
        )
        .equals(0 * x, because="nothing is left")
    )
