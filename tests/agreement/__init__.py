"""Agreement with published packages: functions that pytest and the book's ledger both call.

Each takes nothing and returns an `Agreement`. `COMPARISONS` lists them in the order of the book.
"""

from collections.abc import Callable

from . import classic, recursive, rotary, sinusoidal, trainable
from .result import Agreement

COMPARISONS: tuple[Callable[[], Agreement], ...] = (
    *trainable.COMPARISONS,
    *sinusoidal.COMPARISONS,
    *recursive.COMPARISONS,
    *classic.COMPARISONS,
    *rotary.COMPARISONS,
)

__all__ = ["COMPARISONS", "Agreement"]
