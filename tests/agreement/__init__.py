"""Agreement with published packages: functions that pytest and the book's ledger both call.

Each takes nothing and returns an `Agreement`. `COMPARISONS` lists them in the order of the book.
"""

from collections.abc import Callable

from . import classic, deberta, recursive, rotary, sinusoidal, t5, trainable, transformer_xl
from .result import Agreement

COMPARISONS: tuple[Callable[[], Agreement], ...] = (
    *trainable.COMPARISONS,
    *sinusoidal.COMPARISONS,
    *recursive.COMPARISONS,
    *classic.COMPARISONS,
    *transformer_xl.COMPARISONS,
    *t5.COMPARISONS,
    *deberta.COMPARISONS,
    *rotary.COMPARISONS,
)

__all__ = ["COMPARISONS", "Agreement"]
