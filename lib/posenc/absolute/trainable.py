"""Trainable position vectors: a table with a row for each position, and a way to make it longer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..checks import (
    largest,
    require,
    require_positions,
    require_size,
    require_type,
    smallest,
)
from .base import Absolute


class Trainable(Absolute):
    """p_k is row k of a table of parameters.

    Args:
        dim, combine: as for `Absolute`.
        max_length: number of rows. There is no vector for position max_length or beyond.
        std: the rows are drawn from a normal distribution with mean 0 and this deviation.

    Raises:
        ValueError: a size is not positive, std is negative, or combine is unknown.

    Source: Gehring et al. 2017; BERT (512 rows of 768, std 0.02) and GPT.
    """

    def __init__(
        self, dim: int, max_length: int, *, combine: str = "add", std: float = 0.02
    ) -> None:
        super().__init__(dim, combine=combine)
        require_size("max_length", max_length)
        require(std >= 0, f"std must be 0 or more, but is {std}")
        self.max_length, self.std = max_length, std
        self.table = nn.Parameter(torch.empty(max_length, dim).normal_(0, std))

    def vectors(self, positions: Tensor) -> Tensor:
        """p_k, the rows themselves: (…, n) int64 → (…, n, dim).

        Raises:
            ValueError: (in eager mode) a position is below 0, or is max_length or more.
        """
        _require_rows(positions, self.max_length)
        return self.table[positions]

    def longer(self, max_length: int) -> Trainable:
        """A copy with more rows, the new ones drawn anew: they mean nothing before training.

        Raises:
            ValueError: max_length is below the present one.
        """
        require_size("max_length", max_length, least=self.max_length)
        new = Trainable(self.dim, max_length, combine=self.combine, std=self.std).to(self.table)
        with torch.no_grad():
            new.table[: self.max_length] = self.table
        new.table.requires_grad_(self.table.requires_grad)
        return new.train(self.training)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, max_length={self.max_length}"


class Hierarchical(Absolute):
    """n² vectors from a table of n: p_{in+j} = α u_i + (1 − α) u_j, u_i = (p_i − α p_0)/(1 − α).

    The first n are the table's own. The table is kept, not copied: to train one is to train both.

    Args:
        table: the trained vectors p_0 … p_{n−1}; dim and combine are theirs.
        alpha: α, above 0 and below 1, but not ½, where position in + j would equal jn + i.

    Raises:
        ValueError: alpha is none of those.

    Source: Su, "Hierarchical Decomposition of Positional Encodings", 2020 (there counted from 1).
    """

    def __init__(self, table: Trainable, alpha: float = 0.4) -> None:
        require_type("table", table, Trainable)
        super().__init__(table.dim, combine=table.combine)
        require(
            0 < alpha < 1 and alpha != 0.5,
            f"alpha must be above 0, below 1 and not 0.5, but is {alpha}",
        )
        self.table, self.alpha = table, alpha
        self.max_length = table.max_length**2

    def vectors(self, positions: Tensor) -> Tensor:
        """p_k: (…, n) int64 → (…, n, dim), in float32 or wider: bfloat16 would move the first n.

        Raises:
            ValueError: (in eager mode) a position is below 0, or is n² or more.
        """
        _require_rows(positions, self.max_length)
        table = self.table.table
        p = table if table.dtype == torch.float64 else table.float()
        alpha, n = self.alpha, self.table.max_length
        u = (p - alpha * p[:1]) / (1 - alpha)
        return alpha * u[positions // n] + (1 - alpha) * u[positions % n]

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, alpha={self.alpha}, max_length={self.max_length}"


def _require_rows(positions: Tensor, max_length: int) -> None:
    require_positions(positions)
    low, high = smallest(positions), largest(positions)
    require(low >= 0, "positions count from 0, but {} is among them", low)
    require(
        high < max_length,
        "positions must be below max_length = {}, but {} is among them",
        *(max_length, high),
    )
