"""DeBERTa's disentangled attention, and the decoder that brings absolute positions back in."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal, cast

import torch
from torch import Tensor, nn

from ..absolute.base import Absolute
from ..checks import require, require_size, require_type
from ..encoding import At, Encoding, Project, onto
from ..model import Block, require_tokens
from .distances import dot_table, require_fit


class DeBERTa(Encoding):
    """q_i k_jᵀ + q_i (R_δ(i,j) W_K)ᵀ + k_j (R_δ(j,i) W_Q)ᵀ, all of it divided by √(3 head_dim).

    R has 2·span rows, and δ(i, j) = clip(i − j + span, 0, 2·span − 1). So the last row stands for
    span − 1 and more, and the first for −span and less: the two sides are not alike. Every call
    sends all rows through the projections, once for a whole batch.

    Args:
        dim: width of R, the model's.
        span: half the number of rows, the paper's k.
        convention: "paper" for δ(j, i) in the third term; "code" for δ(i, j) there too, as the
            published code and its descendants have it. The two are different models with the same
            parameters, and all published weights belong to "code".
        heads, head_dim: give both for projections of the encoding's own, as in the paper's formula
            and version 1; without them R goes through the layer's W_Q and W_K, as in versions 2
            and 3, which also normalise R (do so before you copy theirs).
        max_distance: give it for version 2's buckets: distances up to span / 2 are told apart,
            beyond that they share buckets, up to max_distance − 1, where they are clipped.
        std: R is drawn from a normal distribution with mean 0 and this deviation.

    Raises:
        TypeError: a size is no whole number.
        ValueError: a size or std is out of range, convention is unknown, or only one of heads and
            head_dim is given.

    Source: He et al. 2021, equations 3 and 4, and section 5.3 for shared projections; the code:
    `DeBERTa/deberta/disentangled_attention.py` and `da_utils.py` of microsoft/DeBERTa.
    """

    new_logits = True

    def __init__(
        self,
        dim: int,
        span: int = 512,
        *,
        convention: Literal["paper", "code"] = "paper",
        heads: int | None = None,
        head_dim: int | None = None,
        max_distance: int | None = None,
        std: float = 0.02,
    ) -> None:
        super().__init__()
        require_size("dim", dim)
        require_size("span", span)
        require(
            convention in ("paper", "code"),
            f'convention must be "paper" or "code", but is {convention!r}',
        )
        require(0 <= std < math.inf, f"std must be 0 or more and finite, but is {std}")
        require(
            (heads is None) == (head_dim is None),
            "give heads and head_dim for projections of its own, or neither, but got only one",
        )
        self.span, self.convention, self.max_distance = span, convention, max_distance
        self.heads = heads
        self.R = nn.Parameter(torch.empty(2 * span, dim).normal_(0, std))
        if heads is not None and head_dim is not None:
            require_size("heads", heads)
            require_size("head_dim", head_dim)
            self.W_KR = nn.Linear(dim, heads * head_dim, bias=False)
            self.W_QR = nn.Linear(dim, heads * head_dim)
        self.side = None if max_distance is None else _log_buckets(span, max_distance)

    def scale(self, head_dim: int) -> float:
        return (3 * head_dim) ** -0.5

    def index(self, distance: Tensor) -> Tensor:
        """The row of R for a distance, δ: int64 → int64 of the same shape."""
        if self.side is not None:
            side = torch.tensor(self.side, device=distance.device)
            distance = distance.sign() * side[distance.abs().clamp(max=len(self.side) - 1)]
        return (distance + self.span).clamp(0, 2 * self.span - 1)

    def position_logits(
        self, q: Tensor, k: Tensor, at: At, project: Project | None = None
    ) -> Tensor:
        """Both position terms, divided by √(3 head_dim): (batch, heads, n_q, n_k)."""
        asks, keys = self._projected(project)  # (heads, 2·span, head_dim)
        require_fit(q, k, at, keys.shape[0], keys.shape[2])
        scale = self.scale(q.shape[-1])
        content_position = dot_table(q * scale, keys.to(q.dtype), self.index, at)
        # from the keys' side, in rows by j and columns by i: its distance is j − i
        swapped = At(at.key, at.query, None, at.consecutive)
        sign = 1 if self.convention == "paper" else -1
        position_content = dot_table(
            k * scale, asks.to(q.dtype), lambda distance: self.index(sign * distance), swapped
        )
        return onto(content_position, position_content.mT)

    def _projected(self, project: Project | None) -> tuple[Tensor, Tensor]:
        """R W_Q and R W_K by head, with the encoding's own projections where it has them."""
        if self.heads is not None:
            by_head = (W(self.R).unflatten(-1, (self.heads, -1)) for W in (self.W_QR, self.W_KR))
            asks, keys = (rows.transpose(-2, -3) for rows in by_head)
            return asks, keys
        require(
            project is not None,
            "R goes through the layer's own W_Q and W_K, so score needs project, which Attention "
            "gives; or give heads and head_dim for projections of the encoding's own",
        )
        project = cast(Project, project)
        width = getattr(project, "dim", self.R.shape[1])
        require(
            width == self.R.shape[1],
            "R must be {} wide like the layer's input, but is {}",
            *(width, self.R.shape[1]),
        )
        return project.q(self.R), project.k(self.R)

    def extra_repr(self) -> str:
        own = "own" if self.heads is not None else "the layer's"
        return (
            f"{self.R.shape[1]}, span={self.span}, convention={self.convention!r}, "
            f"max_distance={self.max_distance}, {own} projections"
        )


class EnhancedMaskDecoder(nn.Module):
    """A masked language model: relative layers first, absolute positions before the head.

    All layers but the last make h from the tokens, and know distances only. The last one then asks
    with z, at first h + p, for keys and values from h; what comes out asks again, with the same
    weights. Fine-tuning has no use for p: `encode` runs every layer once.

    Args:
        vocabulary: number of different tokens.
        dim, heads: as for `Attention`.
        layers: how many have weights, 2 or more.
        encoding: one module, shared by all layers, or one for each layer.
        positions: makes p and puts it in.
        steps: how often the last layer is applied; 2 in the published code.
        expansion: feed-forward width as a multiple of dim.

    Raises:
        TypeError: a size is no whole number, or positions is no `Absolute`.
        ValueError: a size is out of range, or the number of encodings is not that of the layers.

    Source: He et al. 2021, section 3.2; `DeBERTa/apps/models/masked_language_model.py` of
    microsoft/DeBERTa, where the norms come after the layers' parts, and not before. In the paper's
    appendix the first queries come from p alone, in the code from h + p, as here.
    """

    def __init__(
        self,
        vocabulary: int,
        dim: int,
        heads: int,
        layers: int,
        encoding: Encoding | Sequence[Encoding],
        positions: Absolute,
        *,
        steps: int = 2,
        expansion: int = 2,
    ) -> None:
        super().__init__()
        require_size("vocabulary", vocabulary)
        require_size("dim", dim)
        require_size("layers", layers, least=2)
        require_size("steps", steps)
        require_size("expansion", expansion)
        require_type("positions", positions, Absolute, "an")
        encodings = list(encoding) if isinstance(encoding, Iterable) else [encoding] * layers
        require(
            len(encodings) == layers,
            f"encoding must be one module or one for each of the {layers} layers, "
            f"but there are {len(encodings)}",
        )
        for each in encodings:
            require_type("encoding", each, Encoding, "an")
        require(
            not any(each.embeds() for each in encodings),
            "an encoding that embeds would do nothing here: give its vectors as positions",
        )
        require(
            positions.input_dim(dim) == dim == positions.dim,
            f"positions must be {dim} wide, like the model, and keep its width",
        )
        self.vocabulary = vocabulary
        self.embedding = nn.Embedding(vocabulary, dim)
        self.blocks = nn.ModuleList(
            Block(dim, heads, each, expansion=expansion) for each in encodings
        )
        self.positions, self.steps = positions, steps
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocabulary)

    def forward(self, tokens: Tensor, at: At) -> Tensor:
        """Which token stands at each place: (batch, n) int64 → (batch, n, vocabulary)."""
        require_tokens(tokens, self.vocabulary)
        h = self.embedding(tokens)  # (batch, n, dim)
        for block in self.blocks[:-1]:
            h, _ = block(h, at)
        last = cast(Block, self.blocks[-1])
        z, context = self.positions.embed(h, at.query), last.attention_norm(h)
        for _ in range(self.steps):
            z = z + last.attention(last.attention_norm(z), at, context)
            z = z + last.feed_forward(last.feed_forward_norm(z))
        return self.head(self.norm(z))

    def encode(self, tokens: Tensor, at: At) -> Tensor:
        """What fine-tuning starts from, of distances only: (batch, n) int64 → (batch, n, dim)."""
        require_tokens(tokens, self.vocabulary)
        h = self.embedding(tokens)
        for block in self.blocks:
            h, _ = block(h, at)
        return self.norm(h)


def _log_buckets(span: int, max_distance: int) -> list[int]:
    """The bucket of m positions away for m = 0 … max_distance − 1, in exact integers.

    m itself up to mid = span / 2, and then, with D = max_distance,
    mid + ⌈(mid − 1) ln(m / mid) / ln((D − 1) / mid)⌉.
    """
    require_size("max_distance", max_distance)
    mid = span // 2
    require(
        span % 2 == 0 and mid >= 2 and max_distance > mid + 1,
        f"with max_distance, span must be even and 4 or more, and max_distance above span / 2 + 1, "
        f"but they are {span} and {max_distance}",
    )
    side, step = list(range(mid + 1)), 0
    for m in range(mid + 1, max_distance):
        # the least step with (m / mid)^(mid − 1) ≤ ((max_distance − 1) / mid)^step
        while m ** (mid - 1) * mid**step > (max_distance - 1) ** step * mid ** (mid - 1):
            step += 1
        side.append(mid + step)
    return side
