"""Derivations that the machine has checked before anyone reads them.

`CATALOGUE` holds them all by id; each chapter's derivations stand in the module of its name.
"""

from . import (  # noqa: F401  (fills the catalogue)
    classic,
    convolution,
    deberta,
    expansion,
    flaw,
    multiplicative,
    permutation,
    recursive,
    rotary,
    sinusoidal,
    t5,
    trainable,
    transformer_xl,
)
from .derivation import CATALOGUE, Derivation, DerivationError, Step, derivation
from .words import (
    Identity,
    Letter,
    Matrix,
    ShapeError,
    SumOver,
    Term,
    difference,
    replace,
)

__all__ = [
    "CATALOGUE",
    "Derivation",
    "DerivationError",
    "Identity",
    "Letter",
    "Matrix",
    "ShapeError",
    "Step",
    "SumOver",
    "Term",
    "derivation",
    "difference",
    "replace",
]
