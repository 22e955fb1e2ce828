"""Attention without position does not see order: it is permutation equivariant."""

from __future__ import annotations

from .derivation import Derivation, derivation
from .letters import W_K, W_Q, W_V, d, n
from .words import Identity, Letter

X = Letter("X", n, d)
P = Letter("P", n, n)
A = Letter("A", n, n)
B = Letter("B", n, n)


@derivation
def permuted_logits() -> Derivation:
    """Permuting the tokens permutes rows and columns of the logits B = X W_Q W_Kᵀ Xᵀ."""
    logits = X @ W_Q @ W_K.T @ X.T
    permuted = (P @ X) @ W_Q @ ((P @ X) @ W_K).T
    return (
        Derivation("permuted-logits", "Logits of permuted tokens", permuted)
        .equals(P @ logits @ P.T, because="transpose of a product")
        .define({logits: B}, P @ B @ P.T, because="$B$, the logits before")
    )


@derivation
def permuted_outputs() -> Derivation:
    """Permuting the tokens permutes the outputs: (P A Pᵀ)(P X) W_V = P (A X W_V)."""
    return Derivation(
        "permuted-outputs", "Outputs of permuted tokens", (P @ A @ P.T) @ (P @ X) @ W_V
    ).given({P.T @ P: Identity(n)}, P @ (A @ X @ W_V), because=r"a permutation has $P^\top P = I$")
