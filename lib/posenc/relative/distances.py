"""What depends on the distance i − j only, handed out to the pairs of a query and a key.

Between two runs of positions there are n_q + n_k − 1 distances, and n_q · n_k pairs. So the work is
done once for each distance, where `At` knows that its positions are runs, and once for each pair
where it does not. No (n_q, n_k, width) tensor is ever formed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

import torch
import torch.nn.functional as F
from torch import Tensor

from ..checks import captured, concrete, require
from ..encoding import At

BLOCK = 64
"""So many queries at a time: few enough for their products to stay in the cache."""


def are_runs(at: At) -> bool:
    """Whether `occurring` may be asked: both rows are runs, and there is a query."""
    return at.consecutive and at.query.shape[-1] > 0


def occurring(at: At) -> Tensor:
    """The distances i − j between two runs, the largest first: (batch or 1, n_q + n_k − 1)."""
    n_q, n_k = at.query.shape[-1], at.key.shape[-1]
    largest = at.query[:, -1:] - at.key[:, :1] if n_k else at.query[:, -1:]
    return largest - torch.arange(n_q + n_k - 1, device=at.query.device)


def expand(values: Tensor, n_q: int, n_k: int) -> Tensor:
    """A vector over distances as a matrix that is constant along its diagonals.

    Row i is a window of the vector that moves by one from row to row. As a view, torch can only
    hold the rows in reverse, so turning them round is the one copy.

    Args:
        values: (…, n_q + n_k − 1), the largest distance first.

    Returns:
        (…, n_q, n_k), with entry (i, j) = values[n_q − 1 − i + j].
    """
    if captured():  # `unfold` would tie it to one length
        i = torch.arange(n_q, device=values.device)[:, None]
        return values[..., n_q - 1 - i + torch.arange(n_k, device=values.device)]
    return values.contiguous().unfold(-1, n_k, 1).flip(-2)


def by_distance(function: Callable[[Tensor], Tensor], at: At) -> Tensor:
    """function(i − j) for every pair, computed once for each distance where these are runs.

    Args:
        function: from distances (batch or 1, …) to numbers (…, batch or 1, …).

    Returns:
        (…, batch or 1, n_q, n_k).
    """
    if are_runs(at):
        return expand(function(occurring(at)), at.query.shape[-1], at.key.shape[-1])
    return function(at.distance())


def shift(products: Tensor) -> Tensor:
    """Transformer-XL's shift: move row i to the left by n_q − i, without touching a number.

    Row by row, memory holds the numbers as one long line. Leave out its first n_q, cut it into
    rows that are shorter by one, and each row has moved by one place less than the one above.

    Args:
        products: (…, n_q, n_q + n_k), contiguous; the first column is never used.

    Returns:
        (…, n_q, n_k), a view, with entry (i, j) = products[i, n_q − i + j].
    """
    n_q, width = products.shape[-2:]
    line = products.flatten(-2)[..., n_q:]  # (…, n_q · (width − 1))
    return line.unflatten(-1, (n_q, width - 1))[..., : width - n_q]


def dot(x: Tensor, rows: Tensor) -> Tensor:
    """x_i · R_{i−j} for every pair of two runs: each query times the distances that it meets.

    Args:
        x: (…, n_q, width).
        rows: (…, n_q + n_k − 1, width), one for each of the distances that are `occurring`.

    Returns:
        (…, n_q, n_k).
    """
    n_q, n_k = x.shape[-2], rows.shape[-2] - x.shape[-2] + 1
    rows = F.pad(rows, (0, 0, 1, 0))  # the column that `shift` never uses
    if captured():  # a loop over blocks would tie it to one length
        return shift(x @ rows.mT)

    def blocks() -> Iterator[Tensor]:
        for start in range(0, n_q, BLOCK):
            block = x[..., start : start + BLOCK, :]
            first = n_q - start - block.shape[-2]
            met = rows[..., first : n_q - start + n_k, :]
            yield shift(block @ met.mT)

    return _below_each_other(blocks(), n_q)


def _below_each_other(blocks: Iterator[Tensor], n: int) -> Tensor:
    """Blocks of n rows in all, as one tensor; where no gradient is asked for, written in place."""
    first = next(blocks)
    if torch.is_grad_enabled() or not concrete(first):
        return torch.cat((first, *blocks), -2)
    out = first.new_empty(*first.shape[:-2], n, first.shape[-1])
    start = 0
    for block in chain((first,), blocks):
        out[..., start : start + block.shape[-2], :] = block
        start += block.shape[-2]
    return out


def dot_table(x: Tensor, table: Tensor, index: Callable[[Tensor], Tensor], at: At) -> Tensor:
    """x_i · table[index(i − j)] for every pair.

    Args:
        x: (batch, heads, n_q, width).
        table: (heads or 1, rows, width).
        index: from distances to rows of the table, entry by entry.

    Returns:
        (batch, heads, n_q, n_k).
    """
    if are_runs(at):
        rows = table[:, index(occurring(at))]  # (heads or 1, batch or 1, n_q + n_k − 1, width)
        return dot(x, rows.transpose(0, 1))
    products, index_ij = x @ table.mT, index(at.distance())[:, None]
    if index_ij.shape[0] != 1 and products.shape[0] == 1:
        products = products.expand(index_ij.shape[0], -1, -1, -1)
    return products.gather(-1, index_ij.expand(*products.shape[:3], -1))


def require_fit(
    q: Tensor, k: Tensor, at: At, heads: int | None = None, head_dim: int | None = None
) -> None:
    """Raise unless q and k are (batch, heads, n, head_dim), with a row for each position.

    Any number will do for heads or head_dim where it is None.
    """
    for name, tensor, n in (("q", q, at.query.shape[-1]), ("k", k, at.key.shape[-1])):
        require(
            tensor.dim() == 4 and tensor.is_floating_point(),
            "{} must have four axes, of floats, but is {} {}",
            *(name, tensor.shape, tensor.dtype),
        )
        require(
            (heads is None or tensor.shape[1] == heads)
            and (head_dim is None or tensor.shape[3] == head_dim),
            "{} must have {} heads of width {}, as the encoding has, but has {} of width {}",
            *(name, heads, head_dim or "any", tensor.shape[1], tensor.shape[3]),
        )
        require(
            tensor.shape[2] == n,
            "{} must have one row for each of the {} positions, but has {}",
            *(name, n, tensor.shape[2]),
        )
