"""The probe's question, and what a model that cannot answer it still gets.

The probe gives a model n copies of one token and wants to read 1, 2, …, n. A model whose rows of
attention sum to 1, and whose values carry no position, gives the same output everywhere. These are
the certificate of that theorem, which holds for any weights, and the best scores left to such a
model.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor

from ..checks import require, require_size, require_type


def spread(y: Tensor) -> Tensor:
    """max_i y_i − min_i y_i, the largest over the outputs: how far a model tells positions apart.

    A model that the row-sum theorem binds has spread 0: at most 1e-12 in float64, where n and the
    outputs are not large.

    Args:
        y: (…, n, outputs), n at least 1.

    Returns:
        (…), of y's dtype.

    Raises:
        ValueError: y has no positions or no outputs.
    """
    require_type("y", y, Tensor)
    require(
        y.dim() >= 2 and y.shape[-1] > 0 and y.shape[-2] > 0,
        "y must be (…, n, outputs) with n and outputs at least 1, but has shape {}",
        y.shape,
    )
    return (y.amax(-2) - y.amin(-2)).amax(-1)


class Floors(NamedTuple):
    """The best scores of a model that gives one and the same output at all n positions.

    Attributes:
        squared_error: on the targets 1 … n, reached by the constant (n + 1)/2.
        scaled_squared_error: on the targets 1/n, 2/n, …, 1.
        cross_entropy: in nats, over n classes, reached by the uniform distribution.
        accuracy: at most this.
    """

    squared_error: float
    scaled_squared_error: float
    cross_entropy: float
    accuracy: float


def floors(n: int) -> Floors:
    """(n² − 1)/12, (n² − 1)/12n², ln n and 1/n.

    Raises:
        ValueError: n is not positive.
    """
    require_size("n", n)
    variance = (n * n - 1) / 12
    return Floors(variance, variance / n**2, math.log(n), 1 / n)
