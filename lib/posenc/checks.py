"""Wrong input gets one clear sentence, before any work."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor


def require(condition: bool, sentence: str, *values: object) -> None:
    """Raise `ValueError` unless the condition holds.

    Where a forward pass gets here, the sentence is a template, as of `str.format`, and not an
    f-string: filled in before it is needed, it would tie a compiled function to one length.
    """
    if not condition:
        values = tuple(tuple(v) if isinstance(v, torch.Size) else v for v in values)
        raise ValueError(sentence.format(*values) if values else sentence)


def require_type(name: str, value: object, kind: type, article: str = "a") -> None:
    """Raise `TypeError` unless the value is of the kind."""
    if not isinstance(value, kind):
        came = value.__name__ if isinstance(value, type) else type(value).__name__
        what = "the class" if isinstance(value, type) else "of type"
        raise TypeError(f"{name} must be {article} {kind.__name__}, but is {what} {came}")


def require_size(name: str, n: int, least: int = 1) -> None:
    """Raise unless n is a whole number (`TypeError`), and not less than least (`ValueError`)."""
    if not isinstance(n, int | torch.SymInt):
        raise TypeError(f"{name} must be a whole number, but is {n!r}")
    require(n >= least, "{} must be {} or more, but is {}", name, least, n)


def head_width(dim: int, heads: int, head_dim: int | None) -> int:
    """head_dim where it is given, and dim // heads where it is None."""
    if head_dim is None:
        require(dim % heads == 0, f"heads must divide dim, but {heads} does not divide {dim}")
        head_dim = dim // heads
    require_size("head_dim", head_dim)
    return head_dim


def require_positions(positions: Tensor) -> None:
    """Raise unless these are positions: a tensor (`TypeError`) of int64 (`ValueError`)."""
    require_type("positions", positions, Tensor)
    require(positions.dtype == torch.int64, "positions must be int64, but are {}", positions.dtype)


def captured() -> bool:
    """Whether a compiler, an exporter or a tracer is writing down what happens.

    What Python decides meanwhile, by a length say, holds for every later call.
    """
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def concrete(tensor: Tensor) -> bool:
    """Whether the tensor has values that Python may look at.

    False under compile, export, tracing and vmap and on the meta device, where a check of values is
    skipped.
    """
    return not (
        captured()
        or tensor.is_meta
        or isinstance(tensor, FakeTensor)
        or torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    )


def largest(positions: Tensor) -> int:
    """The largest of the positions, under vmap of all members' positions; 0 where there are none.

    Also 0 where positions have no values that Python may look at: under compile and export and on
    the meta device.
    """
    positions = _unwrapped(positions)
    return int(positions.max()) if concrete(positions) and positions.numel() else 0


def smallest(positions: Tensor) -> int:
    """The smallest of the positions, as `largest` is the largest."""
    positions = _unwrapped(positions)
    return int(positions.min()) if concrete(positions) and positions.numel() else 0


def _unwrapped(tensor: Tensor) -> Tensor:
    """Without the layers that vmap puts around it: a member's values are among these."""
    if not torch.compiler.is_compiling():
        while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor
