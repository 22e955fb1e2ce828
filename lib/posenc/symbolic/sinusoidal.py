"""The sinusoid: moving it is a rotation, and its inner products know how far, not which way."""

from __future__ import annotations

from .derivation import Derivation, derivation
from .formula import Formula, cos, formula, matrix, named, sin, symbol

theta = symbol("theta", r"\theta")
m, n = symbol("m"), symbol("n")
a, b = symbol("a"), symbol("b")
k = symbol("k")


def pair(position: Formula) -> Formula:
    """The two channels of one frequency, as a row."""
    return matrix([[sin(position * theta), cos(position * theta)]])


def shift(by: Formula) -> Formula:
    """The 2×2 matrix that moves such a row by some positions, from the right."""
    angle = by * theta
    return matrix([[cos(angle), -sin(angle)], [sin(angle), cos(angle)]])


@derivation
def sinusoidal_shift() -> Derivation:
    """One matrix moves every position by k."""
    return (
        Derivation(
            "sinusoidal-shift", "Moving by k", named("p_m", pair(m)) * named("M_k", shift(k))
        )
        .equals(pair(m) * shift(k), because="definition")
        .equals(pair(m + k), because="addition theorems")
        .equals(named("p_{m+k}", pair(m + k)), because="definition")
    )


@derivation
def sinusoidal_group() -> Derivation:
    """Moving by a and then by b is moving by a + b."""
    M_a, M_b = shift(a), shift(b)
    return (
        Derivation("sinusoidal-group", "Moving twice", named("M_a", M_a) * named("M_b", M_b))
        .equals(M_a * M_b, because="definition")
        .equals(shift(a + b), because="addition theorems")
        .equals(named("M_{a+b}", shift(a + b)), because="definition")
    )


@derivation
def sinusoidal_orthogonal() -> Derivation:
    """The matrix that moves is orthogonal."""
    identity = matrix([[1, 0], [0, 1]])
    return (
        Derivation(
            "sinusoidal-orthogonal",
            "Moving keeps lengths",
            named("M_k", shift(k)) * named("M_k", shift(k)).T,
        )
        .equals(shift(k) * shift(k).T, because="definition")
        .equals(identity, because="sine and cosine squared")
    )


@derivation
def sinusoidal_product() -> Derivation:
    """The inner product of two positions, one frequency: the cosine of their distance."""
    return (
        Derivation(
            "sinusoidal-product",
            "Inner products",
            sin(m * theta) * sin(n * theta) + cos(m * theta) * cos(n * theta),
        )
        .equals(cos((m - n) * theta), because="addition theorem")
        .equals(cos((n - m) * theta), because="the cosine is even")
    )


@derivation
def sinusoidal_norm() -> Derivation:
    """One frequency adds 1 to the squared length, at every position."""
    return Derivation(
        "sinusoidal-norm", "The length", sin(m * theta) ** 2 + cos(m * theta) ** 2
    ).equals(formula(1), because="Pythagoras")
