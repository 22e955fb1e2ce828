"""Multi-head attention that runs three of the four stages of any encoding.

The first, `embed`, happens before attention, once for a whole model: `Transformer` runs it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .checks import head_width, require, require_size, require_type
from .encoding import At, Encoding
from .normalise import Softmax


class Attention(nn.Module):
    """o_i = Σ_j a_ij v_j with a = normalise(score(q, k)), per head, then W_O.

    The book writes row vectors, q_i = x_i W_Q; a `Linear` keeps the transpose, so the book's W_Q is
    `attention.W_Q.weight.T`.

    Args:
        dim: width of the input and of the output.
        heads: number of heads.
        encoding: where position enters; none by default. Its `embed` is the caller's to run. Give
            one module to several layers to share its parameters.
        normaliser: from logits to weights; softmax by default.
        head_dim: width of a query and of a key, dim // heads by default.
        value_dim: width of a value, head_dim by default.

    Raises:
        ValueError: a width or the number of heads is not positive, or heads does not divide dim and
            head_dim is not given.

    Source: Vaswani et al. 2017, section 3.2, without biases.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        encoding: Encoding | None = None,
        normaliser: nn.Module | None = None,
        *,
        head_dim: int | None = None,
        value_dim: int | None = None,
    ) -> None:
        super().__init__()
        require_size("dim", dim)
        require_size("heads", heads)
        head_dim = head_width(dim, heads, head_dim)
        value_dim = head_dim if value_dim is None else value_dim
        require_size("value_dim", value_dim)
        encoding = Encoding() if encoding is None else encoding
        normaliser = Softmax() if normaliser is None else normaliser
        require_type("encoding", encoding, Encoding, "an")
        require_type("normaliser", normaliser, nn.Module)
        self.dim, self.heads = dim, heads
        self.W_Q = nn.Linear(dim, heads * head_dim, bias=False)
        self.W_K = nn.Linear(dim, heads * head_dim, bias=False)
        self.W_V = nn.Linear(dim, heads * value_dim, bias=False)
        self.W_O = nn.Linear(heads * value_dim, dim, bias=False)
        self.encoding, self.normaliser = encoding, normaliser

    def forward(self, x: Tensor, at: At, context: Tensor | None = None) -> Tensor:
        """Attend from x to context, or to x itself.

        Args:
            x: (batch, n_q, dim).
            at: where the n_q queries and the n_k keys are.
            context: (batch, n_k, dim), what keys and values come from where that is not x: a key
                cache, memory, another sequence.

        Returns:
            (batch, n_q, dim).

        Raises:
            ValueError: a shape or dtype does not fit the others.
        """
        context = x if context is None else context
        _require_input(self.W_Q.weight, x, context, at)
        q, k = self.q(x), self.k(context)  # (batch, heads, n, head_dim)
        v = self.split(self.W_V(context))  # (batch, heads, n_k, value_dim)

        q, k, v = self.encoding.transform(q, k, v, at)
        logits = self.encoding.score(q, k, at, self)  # (batch, heads, n_q, n_k)
        weights = self.normaliser(logits, at)
        o = self.encoding.mix(weights, v, at)  # (batch, heads, n_q, value_dim)

        return self.W_O(o.transpose(-2, -3).flatten(-2))  # heads side by side, (batch, n_q, dim)

    def q(self, r: Tensor) -> Tensor:
        """r W_Q by head: (…, m, dim) → (…, heads, m, head_dim)."""
        return self.split(self.W_Q(r))

    def k(self, r: Tensor) -> Tensor:
        """r W_K by head: (…, m, dim) → (…, heads, m, head_dim)."""
        return self.split(self.W_K(r))

    def split(self, x: Tensor) -> Tensor:
        """(…, m, heads · width) → (…, heads, m, width)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(-2, -3)


def _require_input(W_Q: Tensor, x: Tensor, context: Tensor, at: At) -> None:
    dim = W_Q.shape[1]
    require_type("at", at, At, "an")
    for name, tensor in (("x", x), ("context", context)):
        require_type(name, tensor, Tensor)
        require(
            tensor.dim() == 3 and tensor.shape[-1] == dim,
            "{} must be (batch, n, {}), but has shape {}",
            *(name, dim, tensor.shape),
        )
        require(
            tensor.dtype == W_Q.dtype or torch.is_autocast_enabled(tensor.device.type),
            "{} must be {} like the weights, but is {}",
            *(name, W_Q.dtype, tensor.dtype),
        )
    require(
        x.shape[0] == context.shape[0],
        "x and context must have one batch size, but have {} and {}",
        *(x.shape[0], context.shape[0]),
    )
    for name, positions, tensor in (("query", at.query, x), ("key", at.key, context)):
        require(
            positions.shape[-1] == tensor.shape[1] and positions.shape[0] in (1, tensor.shape[0]),
            "at.{} must be ({} or 1, {}), but has shape {}",
            *(name, tensor.shape[0], tensor.shape[1], positions.shape),
        )
