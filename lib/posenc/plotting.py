"""The one style of all figures.

Colours are Okabe and Ito's, which colour-blind readers can tell apart. Figures are opaque and
white, so that they can be read in the dark theme too, and are sized for a phone: they are 4.6
inches wide, so that type of 11 points is still legible at the 3.5 inches that a phone leaves them.
"""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from torch import Tensor

BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#B34700", "#00704F", "#9A3D7E"
ORANGE, SKY, GREY = "#E69F00", "#56B4E9", "#6B6B6B"

WIDTH = 4.6
"""The width of every figure, in inches."""

TERM_COLOURS = {"cc": BLUE, "cp": VERMILLION, "pc": GREEN, "pp": PURPLE}
"""The four terms of the expansion, in formula, code and figure alike."""


def use_style() -> None:
    """Set the style for all figures that follow. Call it once, at the top of a notebook."""
    plt.rcParams.update(
        {
            "figure.figsize": (WIDTH, 3.2),
            "figure.constrained_layout.use": True,
            "figure.facecolor": "white",
            "savefig.facecolor": "white",
            "font.size": 11,
            "axes.prop_cycle": plt.cycler(
                color=[BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, GREY],
                linestyle=["-", "--", "-.", ":", "-", "--", "-."],
            ),
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": 11,
            "legend.frameon": False,
            "lines.linewidth": 2,
            "svg.hashsalt": "posenc",  # else ids in the file are drawn at random
            "svg.fonttype": "path",
        }
    )
    try:
        from matplotlib_inline.backend_inline import set_matplotlib_formats
    except ImportError:  # not in a notebook
        return
    set_matplotlib_formats("svg", metadata={"Date": None})  # the same figure twice is the same file


def numbers(
    ax: Axes,
    matrix: Tensor,
    *,
    limit: float,
    title: str = "",
    colour: str = "black",
    ticks: Sequence[str] | None = None,
    digits: int = 2,
) -> None:
    """A small matrix as a table of coloured numbers: rows are queries, columns are keys.

    Args:
        matrix: (n_q, n_k).
        limit: colours run from −limit (purple) over white to limit (green).
        title: above the table, in `colour`.
        ticks: what the rows and columns are called; their indices by default.
        digits: decimals.
    """
    values = matrix.detach().numpy()
    ax.imshow(values, cmap="PRGn", vmin=-limit, vmax=limit)
    for (row, col), value in np.ndenumerate(values):
        dark = abs(value) > 0.65 * limit
        text = f"{value:.{digits}f}".replace("-", "−")
        ax.text(col, row, text, ha="center", va="center", color="white" if dark else "black")
    names = list(map(str, range(max(values.shape)))) if ticks is None else ticks
    ax.set_xticks(range(values.shape[1]), names[: values.shape[1]])
    ax.set_yticks(range(values.shape[0]), names[: values.shape[0]])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_title(title, color=colour)


def stages() -> None:
    """The map of the book: what attention does, and the four places where position can enter."""
    _, ax = plt.subplots(figsize=(WIDTH, 5.6))
    ax.set(xlim=(0.2, 9.6), ylim=(0, 11))
    ax.axis("off")
    flow = [  # what happens, the stage's colour or None, who enters there
        ("tokens", None, "vectors $x$"),
        ("embed", BLUE, "trainable, sinusoidal, recursive,\nmultiplicative, zero padding"),
        ("project", None, "$q = xW_Q$,  $k = xW_K$,  $v = xW_V$"),
        ("transform", VERMILLION, "RoPE, on values too"),
        ("score", GREEN, "Shaw, NEZHA, Transformer-XL,\nT5, TUPE, DeBERTa, ALiBi"),
        ("normalise", None, "softmax, exp, relu², ℓ2 …"),
        ("mix", PURPLE, "Shaw's and NEZHA's values,\nRoPE turned back"),
        ("outputs", None, "vectors $o$"),
    ]
    for step, (name, colour, who) in enumerate(flow):
        height = 10.3 - 1.4 * step
        ax.add_patch(
            FancyBboxPatch(
                (0.4, height - 0.38),
                2.6,
                0.76,
                boxstyle="round,pad=0.06",
                facecolor=colour or "white",
                edgecolor=colour or GREY,
                linewidth=1.3,
            )
        )
        ink, weight = ("white", "bold") if colour else ("black", "normal")
        ax.text(1.7, height, name, ha="center", va="center", color=ink, weight=weight)
        ax.text(3.4, height, who, va="center", color=colour or "black")
        if step:
            ends = (1.7, height + 0.96), (1.7, height + 0.44)
            ax.add_patch(FancyArrowPatch(*ends, arrowstyle="-|>", mutation_scale=14, color="black"))


def arrow(
    ax: Axes, tip: tuple[float, float], colour: str, label: str, *, faint: bool = False
) -> None:
    """A vector in the plane, from the origin to its tip."""
    ax.annotate(
        "",
        xy=tip,
        xytext=(0, 0),
        arrowprops={
            "arrowstyle": "-|>",
            "color": colour,
            "linewidth": 2,
            "alpha": 0.35 if faint else 1.0,
            "shrinkA": 0,
            "shrinkB": 0,
        },
    )
    x, y = tip
    length = (x * x + y * y) ** 0.5
    ax.text(
        x * (1 + 0.13 / length),
        y * (1 + 0.13 / length),
        label,
        color=colour,
        ha="center",
        va="center",
    )
