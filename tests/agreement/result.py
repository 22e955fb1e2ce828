"""One comparison of the library with a published package."""

from __future__ import annotations

from importlib.metadata import version
from typing import NamedTuple

import torch
from torch import Tensor


class Agreement(NamedTuple):
    """What was compared with what, and how far apart they were.

    Attributes:
        ours: the part of this library, as it is called.
        theirs: the part of the other package, as it is called there.
        package: the package and its version, "transformers 5.24.0".
        compared: which numbers.
        difference: the largest absolute difference between them.
        tolerance: how large it may be.
    """

    ours: str
    theirs: str
    package: str
    compared: str
    difference: float
    tolerance: float

    @property
    def holds(self) -> bool:
        """Whether the difference is within the tolerance; never for NaN."""
        return self.difference <= self.tolerance


ORACLE = 1e-5
"""The tolerance in float32."""


def package(name: str) -> str:
    """The name of an installed package and its version."""
    return f"{name} {version(name)}"


def difference(ours: Tensor, theirs: Tensor) -> float:
    """The largest absolute difference of two tensors of one shape, which must hold numbers.

    Raises:
        ValueError: the shapes differ, nothing is compared, or one side is all zeros.
    """
    if ours.shape != theirs.shape or not ours.numel():
        raise ValueError(f"cannot compare {tuple(ours.shape)} with {tuple(theirs.shape)}")
    if not (ours.any() and theirs.any()):
        raise ValueError("one side is all zeros: the comparison would say nothing")
    return float((ours.double() - theirs.double()).abs().max().detach())


def draw(*shape: int, seed: int = 0) -> Tensor:
    """Seeded normal float32 numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
