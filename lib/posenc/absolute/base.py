"""What absolute encodings share: vectors p_k for the positions, and a way to combine them with x_k.

The two are independent choices, and are kept apart: a subclass makes the vectors, and `combine`
names one of the ways of `multiplicative.COMBINATIONS`.
"""

from __future__ import annotations

from torch import Tensor

from ..checks import require, require_positions, require_size, require_type
from ..encoding import Encoding
from .multiplicative import COMBINATIONS


class Absolute(Encoding):
    """combine(x_k, p_k) in the input: override `vectors`.

    Args:
        dim: width of the vectors p_k, 1 or more. It is the model's width, except for
            combine="concatenate", where a model of width D has room for x of width D − dim.
        combine: "add" for x + p, "multiply" for x ⊗ p, "scale" for x ⊗ (1 + p), "concatenate" for
            [x, p].

    Raises:
        ValueError: dim is not positive, or combine is unknown.
    """

    def __init__(self, dim: int, *, combine: str = "add") -> None:
        super().__init__()
        require_size("dim", dim)
        require(
            combine in COMBINATIONS,
            f"combine must be one of {', '.join(COMBINATIONS)}, but is {combine!r}",
        )
        self.dim, self.combine = dim, combine

    def vectors(self, positions: Tensor) -> Tensor:
        """The vectors p_k: (…, n) int64 → (…, n, dim)."""
        raise NotImplementedError

    def input_dim(self, dim: int) -> int:
        """The width of x that makes `embed` give the width dim."""
        return dim - self.dim if self.combine == "concatenate" else dim

    def embed(self, x: Tensor, positions: Tensor, mask: Tensor | None = None) -> Tensor:
        """x_k and p_k combined.

        Args:
            x: (batch, n, dim); of any width for "concatenate".
            positions: (batch or 1, n) int64.

        Returns:
            (batch, n, dim), or (batch, n, width of x + dim) for "concatenate", of x's dtype.

        Raises:
            ValueError: a shape or dtype does not fit, or there is no vector for a position.
        """
        require_input(x, positions, None if self.combine == "concatenate" else self.dim)
        return COMBINATIONS[self.combine](x, self.vectors(positions).to(x.dtype))

    def extra_repr(self) -> str:
        return f"{self.dim}, combine={self.combine!r}"


def require_input(x: Tensor, positions: Tensor, dim: int | None) -> None:
    """Raise unless these can be embedded; any width of x will do where dim is None."""
    require_type("x", x, Tensor)
    require_positions(positions)
    require(
        x.dim() == 3 and x.is_floating_point() and (dim is None or x.shape[-1] == dim),
        "x must be (batch, n, {}) of floats, but is {} {}",
        *("any" if dim is None else dim, x.shape, x.dtype),
    )
    require(
        positions.dim() == 2
        and positions.shape[0] in (1, x.shape[0])
        and positions.shape[1] == x.shape[1],
        "positions must be ({} or 1, {}), one for each row of x, but have shape {}",
        *(x.shape[0], x.shape[1], positions.shape),
    )
