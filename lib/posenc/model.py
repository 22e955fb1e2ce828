"""A small pre-norm Transformer: the model that the probe trains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from .attention import Attention
from .checks import concrete, require, require_size, require_type
from .encoding import At, Encoding


class Block(nn.Module):
    """x + attention(norm(x)), then x + feed_forward(norm(x)).

    Args: as for `Attention`, and `expansion`, the feed-forward width as a multiple of dim.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        encoding: Encoding | None = None,
        normaliser: nn.Module | None = None,
        expansion: int = 2,
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = Attention(dim, heads, encoding, normaliser)
        self.feed_forward_norm = nn.LayerNorm(dim)
        self.feed_forward = nn.Sequential(
            nn.Linear(dim, expansion * dim), nn.GELU(), nn.Linear(expansion * dim, dim)
        )

    def forward(self, x: Tensor, at: At, past: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One block.

        Args:
            x: (batch, n_q, dim).
            at: where the queries and the keys are; the keys are those of past, then those of x.
            past: (batch, n_past, dim), the context that an earlier call returned.

        Returns:
            (batch, n_q, dim), and the context of the next call, (batch, n_past + n_q, dim).
        """
        context = normed = self.attention_norm(x)
        if past is not None:
            context = torch.cat((past, normed), dim=1)
        x = x + self.attention(normed, at, context)
        return x + self.feed_forward(self.feed_forward_norm(x)), context


class Transformer(nn.Module):
    """Embed the tokens, run the blocks, norm, and read `outputs` numbers at every position.

    Args:
        vocabulary: number of different tokens.
        dim, heads: as for `Attention`.
        layers: number of blocks.
        encoding: one module, shared by all layers, or one for each layer. The input is embedded by
            the first, and the tokens' vectors are as wide as it asks.
        normaliser: from logits to weights, in every layer; softmax by default.
        outputs: numbers read at each position.
        expansion: feed-forward width as a multiple of dim.

    Raises:
        ValueError: a size is not positive, the number of encodings is not that of the layers, or a
            later one would embed too.
        TypeError: a size is not a whole number, or an encoding is not one.
    """

    def __init__(
        self,
        vocabulary: int,
        dim: int,
        heads: int,
        layers: int,
        encoding: Encoding | Sequence[Encoding] | None = None,
        normaliser: nn.Module | None = None,
        *,
        outputs: int = 1,
        expansion: int = 2,
    ) -> None:
        super().__init__()
        require_size("vocabulary", vocabulary)
        require_size("dim", dim)
        require_size("layers", layers)
        require_size("outputs", outputs)
        require_size("expansion", expansion)
        encodings = list(encoding) if isinstance(encoding, Iterable) else [encoding] * layers
        require(
            len(encodings) == layers,
            f"encoding must be one module or one for each of the {layers} layers, "
            f"but there are {len(encodings)}",
        )
        self.vocabulary = vocabulary
        first = encodings[0]
        require(
            not any(e.embeds() for e in encodings if isinstance(e, Encoding) and e is not first),
            "only the first layer's encoding embeds the input, so a later one with an embed of "
            "its own would do nothing there: put it first, or into Combined",
        )
        width = first.input_dim(dim) if isinstance(first, Encoding) else dim
        require(
            width >= 1,
            f"dim must leave room for the tokens beside the position vectors, but of {dim} "
            f"channels they would get {width}",
        )
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(
            Block(dim, heads, encoding, normaliser, expansion) for encoding in encodings
        )
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, outputs)

    def forward(
        self,
        tokens: Tensor,
        at: At,
        mask: Tensor | None = None,
        cache: list[Tensor] | None = None,
    ) -> Tensor:
        """Read every position.

        Args:
            tokens: (batch, n_q) int64, each from 0 to vocabulary − 1.
            at: where the queries (these tokens) and the keys (the cache, then these tokens) are.
            mask: (batch or 1, n_q) bool, True at real tokens, for encodings that look at
                neighbours in the input.
            cache: an empty list at first; it then keeps each layer's context, and the next call
                with it continues the sequence. It holds the layers' inputs and not their keys: so
                it is right for every encoding, at the price of projecting them again.

        Returns:
            (batch, n_q, outputs).

        Raises:
            ValueError: a shape does not fit, a token is outside the vocabulary (in eager mode),
                the cache belongs to another model, or the normaliser refuses a cache.
        """
        self._require_input(tokens, at, mask, cache)
        x = self.embedding(tokens)  # (batch, n_q, dim)
        x = cast(Block, self.blocks[0]).attention.encoding.embed(x, at.query, mask)
        contexts: list[Tensor] = []
        for layer, block in enumerate(self.blocks):
            x, context = block(x, at, cache[layer] if cache else None)
            contexts.append(context)
        if cache is not None:
            cache[:] = contexts  # at the very end: a call that fails leaves the cache as it was
        return self.head(self.norm(x))

    def _require_input(
        self, tokens: Tensor, at: At, mask: Tensor | None, cache: list[Tensor] | None
    ) -> None:
        require_tokens(tokens, self.vocabulary)
        require_type("at", at, At, "an")
        if cache is not None:
            require_type("cache", cache, list)
        require(
            not cache or len(cache) == len(self.blocks),
            f"cache must be empty or hold one context for each of the {len(self.blocks)} layers, "
            f"but it holds {len(cache or ())}",
        )
        counts = {getattr(module, "count", None) for module in self.modules()}
        require(
            cache is None or not cast(Block, self.blocks[0]).attention.encoding.reads_neighbours,
            "an encoding that looks at neighbouring tokens needs the whole sequence, which a call "
            "with a cache does not have",
        )
        require(
            cache is None or "all" not in counts,
            'a normaliser with count="all" divides by the length of the whole sequence, which a '
            'call with a cache does not know; use count="visible"',
        )
        batch, dim = tokens.shape[0], self.head.in_features
        for context in cache or ():
            require_type("a context in cache", context, Tensor)
            require(
                context.dim() == 3 and context.shape[0] == batch and context.shape[2] == dim,
                "cache must hold contexts ({}, n_past, {}), but one has shape {}",
                *(batch, dim, context.shape),
            )
        if mask is not None:
            require_type("mask", mask, Tensor)
            require(
                tuple(mask.shape) in [(b, tokens.shape[1]) for b in (1, batch)]
                and mask.dtype == torch.bool,
                "mask must be ({} or 1, {}) bool, but is {} {}",
                *(batch, tokens.shape[1], mask.shape, mask.dtype),
            )
        reads_neighbours = cast(Block, self.blocks[0]).attention.encoding.reads_neighbours
        if reads_neighbours and mask is None and at.visible is not None and concrete(at.visible):
            require(
                bool(at.visible.any(-2).all()),
                "an encoding that looks at neighbouring tokens has to know which are pads: give "
                "the mask to the model too, not only to At",
            )


def require_tokens(tokens: Tensor, vocabulary: int) -> None:
    """Raise unless tokens are (batch, n) int64 and (in eager mode) of the vocabulary."""
    require_type("tokens", tokens, Tensor)
    require(
        tokens.dim() == 2 and tokens.dtype == torch.int64,
        "tokens must be (batch, n) int64, but are {} {}",
        *(tokens.shape, tokens.dtype),
    )
    if concrete(tokens) and tokens.numel():
        low, high = int(tokens.min()), int(tokens.max())
        require(
            low >= 0 and high < vocabulary,
            f"tokens must be from 0 to {vocabulary - 1}, but reach from {low} to {high}",
        )
