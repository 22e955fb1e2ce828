"""The four places where position can enter attention, and where everything is.

    x ─embed→ x ─W→ q, k, v ─transform→ q, k, v ─score→ b_ij ─normalise→ a_ij ─mix→ o_i

An `Encoding` does nothing at any of them; a positional encoding is a subclass that changes one or
two. `At` says where the queries and the keys are, once, for all four.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn

from .checks import concrete, require, require_size, require_type


class At(NamedTuple):
    """Where the queries and the keys are, and which key each query may see.

    Positions are always explicit: nothing infers them from a shape or remembers them in a cache.
    A key cache, left padding, gaps and memory are therefore the same code path as the plain case.
    Build it with `At.sequence` or `At.of`, which check their arguments; the tuple itself does not.

    Attributes:
        query: (batch or 1, n_q) int64, the position of each query, counted from 0.
        key: (batch or 1, n_k) int64, the position of each key.
        visible: (batch or 1, n_q, n_k) bool, padding and causal order together; None means all.
        consecutive: both rows are runs k, k + 1, k + 2, …, so that strided tables are allowed. For
            other positions build another `At`; `_replace` would keep the flag.
    """

    query: Tensor
    key: Tensor
    visible: Tensor | None = None
    consecutive: bool = False

    @staticmethod
    def sequence(n: int, *, causal: bool = False, device: torch.device | str | None = None) -> At:
        """A whole sequence attending to itself, at positions 0 … n − 1.

        Raises:
            ValueError: n is negative.
        """
        require_size("n", n, least=0)
        positions = torch.arange(n, device=device)[None]  # (1, n)
        at = At(positions, positions, None, True)
        return at._replace(visible=at.distance() >= 0) if causal else at

    @staticmethod
    def of(
        query: Tensor,
        key: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
    ) -> At:
        """Any positions: a key cache, left padding, gaps, memory.

        Causal order compares positions, not indices. Pads are told by `mask`, never inferred.

        Args:
            query: (batch or 1, n_q) int64 positions, 0 or more.
            key: (batch or 1, n_k) int64 positions; the queries' own when None.
            mask: (batch or 1, n_k) bool, True at real keys and False at pads.
            causal: a query sees no key at a later position.

        Raises:
            ValueError: a shape or dtype does not fit, or (in eager mode) a position is negative.
        """
        key = query if key is None else key
        for name, positions in (("query", query), ("key", key)):
            _require_positions(name, positions)
        require(
            query.shape[0] == key.shape[0] or 1 in (query.shape[0], key.shape[0]),
            "query and key must have one batch size (or 1), but have {} and {}",
            *(query.shape[0], key.shape[0]),
        )
        at = At(query, key, None, _is_run(query) and _is_run(key))
        if mask is None:
            return at._replace(visible=at.distance() >= 0) if causal else at
        batch = key.shape[0] if query.shape[0] == 1 else query.shape[0]
        require_type("mask", mask, Tensor)
        require(mask.dtype == torch.bool, "mask must be bool (True = real), but is {}", mask.dtype)
        require(
            mask.dim() == 2
            and mask.shape[1] == key.shape[1]
            and (mask.shape[0] == batch or 1 in (mask.shape[0], batch)),
            "mask must be ({} or 1, {}), one entry for each key, but has shape {}",
            *(batch, key.shape[1], mask.shape),
        )
        visible = mask[:, None, :].expand(-1, query.shape[1], -1)  # (batch, n_q, n_k)
        return at._replace(visible=visible & (at.distance() >= 0) if causal else visible)

    def distance(self) -> Tensor:
        """i − j, query position minus key position: (batch or 1, n_q, n_k) int64."""
        return self.query[:, :, None] - self.key[:, None, :]


def positions_from_mask(mask: Tensor) -> Tensor:
    """Positions of the real tokens of padded rows: 0, 1, 2, … over the True entries.

    Pads get the position of the nearest real token before them, or 0: never a negative index. They
    still have to be masked, which is what `At.of(..., mask=mask)` is for.

    Args:
        mask: (batch, n) bool or 0/1 integers, True at real tokens.

    Returns:
        (batch, n) int64 positions.

    Raises:
        ValueError: mask is not two-dimensional, or not of bool or (in eager mode) of 0 and 1.
    """
    require_type("mask", mask, Tensor)
    require(mask.dim() == 2, "mask must be (batch, n), but has shape {}", mask.shape)
    require(
        not mask.is_floating_point() and not mask.is_complex(),
        "mask must be bool or 0/1 integers, but is {}",
        mask.dtype,
    )
    if concrete(mask) and mask.numel():
        low, high = int(mask.min()), int(mask.max())
        require(
            low >= 0 and high <= 1,
            f"mask must be bool or 0/1 integers, but reaches from {low} to {high}",
        )
    return (mask.long().cumsum(-1) - 1).clamp(min=0)


class Project(Protocol):
    """This layer's own W_Q and W_K, for encodings that send position vectors through them.

    Both map (…, m, dim) to (…, heads, m, head_dim).
    """

    def q(self, r: Tensor) -> Tensor: ...

    def k(self, r: Tensor) -> Tensor: ...


class Encoding(nn.Module):
    """No position at all, and the base of every encoding: override what you change.

    The last two stages are sums of a content part and a position part, and so have two halves each:
    `score` is content · `scale` + `position_logits`, and `mix` is `undo`(weights · v) +
    `position_values`. Override a half, and encodings combine: their position parts add. Whether the
    sum is still relative has to be thought about: `position_logits` sees what `transform` made.

    Shapes: q and k are (batch, heads, n, head_dim), v is (batch, heads, n_k, value_dim), and
    weights are (batch, heads, n_q, n_k).
    """

    reads_neighbours = False
    """Whether `embed` looks at other tokens: then it needs the whole sequence, and a model refuses
    a key cache."""

    new_logits = False
    """Whether `position_logits` returns a tensor that nobody else holds: then `score` writes the
    sum into it, and saves an n × n tensor."""

    def embeds(self) -> bool:
        """Whether `embed` does anything: then only a model can run it, at its entry."""
        return type(self).embed is not Encoding.embed

    def input_dim(self, dim: int) -> int:
        """The width of x that makes `embed` give the width dim: less where it adds channels."""
        return dim

    def embed(self, x: Tensor, positions: Tensor, mask: Tensor | None = None) -> Tensor:
        """Put position into the input.

        Args:
            x: (batch, n, dim).
            positions: (batch or 1, n) int64.
            mask: (batch or 1, n) bool, True at real tokens; only encodings that look at
                neighbours need it.

        Returns:
            (batch, n, dim) of x's dtype; wider where `input_dim` is narrower.
        """
        return x

    def transform(self, q: Tensor, k: Tensor, v: Tensor, at: At) -> tuple[Tensor, Tensor, Tensor]:
        """Change queries, keys and values where they stand. Shapes stay as they are."""
        return q, k, v

    def score(self, q: Tensor, k: Tensor, at: At, project: Project | None = None) -> Tensor:
        """The logits b_ij = scale · q_i k_jᵀ + position: (batch, heads, n_q, n_k)."""
        position = self.position_logits(q, k, at, project)
        q = q * self.scale(q.shape[-1])
        if position is None:
            return q @ k.mT
        if self.new_logits and _holds(position, q, k):
            return _accumulate(position, q, k)
        return onto(q @ k.mT, position)

    def scale(self, head_dim: int) -> float:
        """What q_i k_jᵀ is multiplied by: 1/√head_dim, unless the encoding says otherwise."""
        return head_dim**-0.5

    def has_own_scale(self) -> bool:
        """Whether `scale` is this encoding's business: then it wins in a combination."""
        return type(self).scale is not Encoding.scale

    def position_logits(
        self, q: Tensor, k: Tensor, at: At, project: Project | None = None
    ) -> Tensor | None:
        """What position adds to the logits, scaled already; None for nothing."""
        return None

    def mix(self, weights: Tensor, v: Tensor, at: At) -> Tensor:
        """The outputs o_i = Σ_j a_ij v_j, and position: (batch, heads, n_q, value_dim)."""
        content = self.undo(weights @ v, at)
        position = self.position_values(weights, at)
        require(
            position is None or position.shape == content.shape,
            "position values must be {} like the values, but are {}",
            *(content.shape, () if position is None else position.shape),
        )
        return content if position is None else content + position

    def undo(self, o: Tensor, at: At) -> Tensor:
        """Take back, at the query's position, what `transform` did to the values."""
        return o

    def position_values(self, weights: Tensor, at: At) -> Tensor | None:
        """What position adds to the outputs, Σ_j a_ij r_ij; None for nothing."""
        return None


class Combined(Encoding):
    """Several encodings at once: a sinusoid below a T5 bias, say.

    `embed` and `transform` run in the order given, and `undo` in the reverse order. Position logits
    add, position values add, and there is exactly one scale: that of the one member that has a
    scale of its own, or `scale` where members disagree.

    Raises:
        ValueError: no encodings, members with different scales of their own and no `scale`, or a
            member that overrides a whole `score` or `mix`, of which only the halves add.
    """

    def __init__(self, *encodings: Encoding, scale: float | None = None) -> None:
        super().__init__()
        require(len(encodings) > 0, "Combined needs at least one encoding, but got none")
        for encoding in encodings:
            require_type("an encoding in Combined", encoding, Encoding, "an")
            kind = type(encoding)
            require(
                kind.score is Encoding.score and kind.mix is Encoding.mix,
                f"{kind.__name__} overrides score or mix as a whole: to be combined it must "
                "override scale, position_logits, undo or position_values",
            )
        require(
            scale is None or math.isfinite(scale), f"scale must be a finite number, but is {scale}"
        )
        self.encodings = nn.ModuleList(encodings)
        self.fixed_scale = scale
        for head_dim in (1, 7):  # two widths tell d^-1/2 from a constant
            self.scale(head_dim)

    def members(self) -> list[Encoding]:
        """The encodings, in the order given."""
        return cast("list[Encoding]", list(self.encodings))

    def embeds(self) -> bool:
        return any(encoding.embeds() for encoding in self.members())

    @property
    def reads_neighbours(self) -> bool:  # type: ignore[override]
        return any(encoding.reads_neighbours for encoding in self.members())

    def input_dim(self, dim: int) -> int:
        for encoding in reversed(self.members()):
            dim = encoding.input_dim(dim)
        return dim

    def embed(self, x: Tensor, positions: Tensor, mask: Tensor | None = None) -> Tensor:
        for encoding in self.members():
            x = encoding.embed(x, positions, mask)
        return x

    def transform(self, q: Tensor, k: Tensor, v: Tensor, at: At) -> tuple[Tensor, Tensor, Tensor]:
        for encoding in self.members():
            q, k, v = encoding.transform(q, k, v, at)
        return q, k, v

    def scale(self, head_dim: int) -> float:
        if self.fixed_scale is not None:
            return self.fixed_scale
        own = {e.scale(head_dim) for e in self.members() if e.has_own_scale()}
        require(
            len(own) <= 1,
            f"the encodings want different scales at head_dim {head_dim}, {sorted(own)}: say which "
            "one counts with Combined(..., scale=...)",
        )
        return own.pop() if own else super().scale(head_dim)

    def has_own_scale(self) -> bool:
        return self.fixed_scale is not None or any(e.has_own_scale() for e in self.members())

    def position_logits(
        self, q: Tensor, k: Tensor, at: At, project: Project | None = None
    ) -> Tensor | None:
        return _add(encoding.position_logits(q, k, at, project) for encoding in self.members())

    def undo(self, o: Tensor, at: At) -> Tensor:
        for encoding in reversed(self.members()):
            o = encoding.undo(o, at)
        return o

    def position_values(self, weights: Tensor, at: At) -> Tensor | None:
        return _add(encoding.position_values(weights, at) for encoding in self.members())


def _holds(position: Tensor, q: Tensor, k: Tensor) -> bool:
    """Whether q kᵀ can be added up in position as it is."""
    return (
        all(concrete(tensor) for tensor in (position, q, k))
        and position.shape == (*q.shape[:3], k.shape[2])
        and q.shape[:2] == k.shape[:2]
        and position.dtype == q.dtype == k.dtype
    )


def _accumulate(position: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """position + q kᵀ, in position's own memory: (batch, heads, n_q, n_k)."""
    logits = position.flatten(0, 1)  # (batch · heads, n_q, n_k)
    logits.baddbmm_(q.flatten(0, 1), k.flatten(0, 1).mT)
    return logits.unflatten(0, position.shape[:2])


def onto(content: Tensor, position: Tensor) -> Tensor:
    """content + position, in content's own memory where it can hold the sum.

    A fresh n × n tensor costs more time than the arithmetic on it. So content has to be the
    caller's own, and nobody else's.
    """
    fits = (
        concrete(content)
        and concrete(position)
        and content.dtype == torch.result_type(content, position)
        and content.shape == torch.broadcast_shapes(content.shape, position.shape)
    )
    return content.add_(position) if fits else content + position


def _add(parts: Iterable[Tensor | None]) -> Tensor | None:
    total: Tensor | None = None
    for part in parts:
        if part is not None:
            total = part if total is None else total + part
    return total


def _require_positions(name: str, positions: Tensor) -> None:
    require_type(name, positions, Tensor)
    require(
        positions.dim() == 2,
        "{} must be positions (batch or 1, n), but has shape {}",
        *(name, positions.shape),
    )
    require(
        positions.dtype == torch.int64,
        "{} must be int64 positions, but is {}",
        *(name, positions.dtype),
    )
    if concrete(positions) and positions.numel():
        low = int(positions.min())
        require(low >= 0, f"{name} positions count from 0, but {low} is among them")


def _is_run(positions: Tensor) -> bool:
    """True where it can be seen that every row is k, k + 1, k + 2, …."""
    return concrete(positions) and bool((positions.diff() == 1).all())
