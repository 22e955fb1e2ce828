"""Every encoding and every normaliser, by name: one line here puts a new one under all contracts.

Sizes differ on every axis, so that a swapped axis shows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from posenc import (
    NORMALISERS,
    T5,
    TUPE,
    ALiBi,
    At,
    Attention,
    Combined,
    Convolution,
    DeBERTa,
    Dynamics,
    Encoding,
    ExpOverN,
    Floater,
    FloaterBiases,
    Hierarchical,
    Nezha,
    Recurrent,
    Recursive,
    ReluSquaredOverN,
    Rotary,
    Shaw,
    Sinusoidal,
    Softmax,
    Trainable,
    TransformerXL,
)

BATCH, HEADS, HEAD_DIM, VALUE_DIM, N = 2, 3, 4, 5, 7
DIM = HEADS * HEAD_DIM  # what `Transformer` needs
LONGEST = 5300  # rows of a table: the contracts look at positions up to there

ENCODINGS: dict[str, Callable[[], Encoding]] = {
    "none": Encoding,
    "trainable": lambda: Trainable(DIM, LONGEST),
    "hierarchical": lambda: Hierarchical(Trainable(DIM, 73)),
    "sinusoidal": lambda: Sinusoidal(DIM),
    "sinusoidal halves": lambda: Sinusoidal(DIM, layout="halves"),
    "sinusoidal tensor2tensor": lambda: Sinusoidal(DIM, variant="tensor2tensor"),
    "sinusoidal multiply": lambda: Sinusoidal(DIM, combine="multiply"),
    "sinusoidal scale": lambda: Sinusoidal(DIM, combine="scale"),
    "sinusoidal concatenate": lambda: Sinusoidal(6, combine="concatenate"),
    "recursive": lambda: Recursive(DIM),
    "recurrent": lambda: Recurrent(DIM),
    "floater": lambda: Floater(DIM, dynamics=Dynamics(DIM, torch.tanh)),
    "floater biases": lambda: FloaterBiases(
        HEADS, HEAD_DIM, dynamics=Dynamics(DIM, torch.tanh), spacing=0.3, steps=2
    ),
    "shaw": lambda: Shaw(-2, 3, head_dim=HEAD_DIM, value_dim=HEAD_DIM),
    "shaw keys by head": lambda: Shaw(-4, 3, head_dim=HEAD_DIM, heads=HEADS),
    "shaw values": lambda: Shaw(-3, 2, value_dim=HEAD_DIM),
    "nezha": lambda: Nezha(HEAD_DIM, 3),
    "nezha code": lambda: Nezha(HEAD_DIM, 3, variant="code"),
    "transformer-xl": lambda: TransformerXL(DIM, HEADS),
    "transformer-xl clipped": lambda: TransformerXL(6, HEADS, head_dim=HEAD_DIM, clip=2),
    "t5": lambda: T5(HEADS),
    "t5 one direction": lambda: T5(HEADS, 6, 9, bidirectional=False),
    "alibi": lambda: ALiBi(HEADS),
    "alibi signed": lambda: ALiBi(HEADS, symmetric=False),
    "tupe": lambda: TUPE(DIM, HEADS, LONGEST, cls=9),
    "tupe relative": lambda: TUPE(
        10, HEADS, LONGEST, head_dim=HEAD_DIM, cls=12, relative=T5(HEADS, 8, 20)
    ),
    "tupe tied": lambda: TUPE(DIM, HEADS, LONGEST, cls=None),
    "deberta": lambda: DeBERTa(DIM, 3),
    "deberta code": lambda: DeBERTa(DIM, 3, convention="code"),
    "deberta own projections": lambda: DeBERTa(10, 2, heads=HEADS, head_dim=HEAD_DIM),
    "deberta buckets": lambda: DeBERTa(DIM, 6, max_distance=14),
    "convolution": lambda: Convolution(DIM),
    "convolution causal": lambda: Convolution(DIM, 4, causal=True),
    "rotary": lambda: Rotary(HEAD_DIM),
    "rotary half-split": lambda: Rotary(HEAD_DIM, layout="half-split"),
    "rotary partial": lambda: Rotary(HEAD_DIM, width=2),
    "rotary values absolute": lambda: Rotary(HEAD_DIM, values="absolute"),
    "rotary values relative": lambda: Rotary(HEAD_DIM, values="relative"),
    "rotary learned": lambda: Rotary(HEAD_DIM, learned=True),
    "sinusoidal + rotary": lambda: Combined(Sinusoidal(DIM), Rotary(HEAD_DIM, values="relative")),
    "sinusoidal + t5": lambda: Combined(Sinusoidal(DIM), T5(HEADS)),
}

LEARNED = {
    "trainable",
    "hierarchical",
    "recursive",
    "recurrent",
    "floater",
    "floater biases",
    "shaw",
    "shaw keys by head",
    "shaw values",
    "transformer-xl",
    "transformer-xl clipped",
    "t5",
    "t5 one direction",
    "tupe",
    "tupe relative",
    "tupe tied",
    "deberta",
    "deberta code",
    "deberta own projections",
    "deberta buckets",
    "convolution",
    "convolution causal",
    "rotary learned",
    "sinusoidal + t5",
}
"""Encodings with parameters."""

UNCOMPILED = {"recursive", "recurrent", "floater", "floater biases"}
"""Encodings that go from position to position, and so are excused from compile and export."""

BLIND = {"none"}
"""Encodings that do not look at positions, nor at the order of the rows."""

READS_NEIGHBOURS = {"recurrent", "convolution", "convolution causal"}
"""Encodings whose `embed` looks at other tokens."""

LOOKS_AHEAD = {"convolution"}
"""Encodings whose `embed` looks at later tokens, whatever the mask of attention."""

SEES_HOLES = {"convolution", "convolution causal"}
"""Encodings for which a pad inside a text is not as if it were not there."""

RELATIVE = {
    "none",
    "recurrent",
    "convolution",
    "convolution causal",
    "shaw",
    "shaw keys by head",
    "shaw values",
    "nezha",
    "nezha code",
    "transformer-xl",
    "transformer-xl clipped",
    "t5",
    "t5 one direction",
    "alibi",
    "alibi signed",
    "deberta",
    "deberta code",
    "deberta own projections",
    "deberta buckets",
    "rotary",
    "rotary half-split",
    "rotary partial",
    "rotary values relative",
    "rotary learned",
}
"""Encodings whose outputs depend on distances only."""

WHOLE_SEQUENCE = {"exp/n", "relu2/n"}
"""Normalisers that refuse a key cache."""

ALL_NORMALISERS: dict[str, Callable[[], nn.Module]] = {
    **NORMALISERS,
    "exp/n visible": lambda: ExpOverN("visible"),
    "relu2/n visible": lambda: ReluSquaredOverN("visible"),
}


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Seeded normal numbers, not symmetric in any way."""
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (numbers + 0.1).to(dtype)


def positions_with_gaps(batch: int = BATCH, n: int = N) -> Tensor:
    """(batch, n) int64: increasing with gaps, another row for each batch."""
    steps = 1 + torch.arange(batch * n).reshape(batch, n) % 3
    return steps.cumsum(-1) + torch.arange(batch)[:, None]


def weights(module: nn.Module, seed: int = 0) -> nn.Module:
    """The module, its matrices and vectors filled with seeded numbers of a moderate size."""
    with torch.no_grad():
        for name, parameter in sorted(module.named_parameters()):
            if not name.endswith("theta"):
                seed += 1
                parameter.copy_(draw(*parameter.shape, seed=seed) * parameter.shape[-1] ** -0.5)
    return module


def value_dim(encoding: Encoding) -> int:
    """A width of values that differs from the keys', where the encoding allows it."""
    return HEAD_DIM if isinstance(encoding, FloaterBiases | Nezha | Shaw) else VALUE_DIM


class Layer(nn.Module):
    """All four stages of one encoding: embed, and an attention whose values have another width."""

    def __init__(
        self, encoding: Encoding, normaliser: nn.Module | None = None, causal: bool = True
    ) -> None:
        super().__init__()
        self.causal = causal
        self.attention = Attention(
            DIM,
            HEADS,
            encoding,
            normaliser,
            head_dim=HEAD_DIM,
            value_dim=value_dim(encoding),
        )

    def forward(self, x: Tensor, positions: Tensor, mask: Tensor | None = None) -> Tensor:
        at, encoding = At.of(positions, mask=mask, causal=self.causal), self.attention.encoding
        x = x[..., : encoding.input_dim(DIM)]  # room for channels that are put beside
        return self.attention(encoding.embed(x, positions, mask), at)


def layer(encoding: Callable[[], Encoding], normaliser: Callable[[], nn.Module] = Softmax) -> Layer:
    """A new layer, of what the two make."""
    return Layer(encoding(), normaliser())


CONTRACTS: dict[str, Callable[[], Layer]] = {
    **{name: partial(layer, make) for name, make in ENCODINGS.items()},
    **{
        f"none, {name}": partial(layer, Encoding, make)
        for name, make in ALL_NORMALISERS.items()
        if name != "softmax"
    },
}
"""A layer for every encoding, under softmax, and for every normaliser, without an encoding."""
