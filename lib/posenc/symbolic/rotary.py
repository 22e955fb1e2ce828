"""RoPE as complex numbers: turn q by mθ and k by nθ, and the product knows m − n only."""

from __future__ import annotations

from .derivation import Derivation, derivation
from .formula import (
    Formula,
    block_diagonal,
    cis,
    conjugate,
    cos,
    group,
    i,
    matrix,
    named,
    real_part,
    sin,
    symbol,
)
from .letters import d_h
from .words import Letter

theta = symbol("theta", r"\theta")
m, n = symbol("m"), symbol("n")
x, y = symbol("x"), symbol("y")
q_x, q_y, k_x, k_y = symbol("q_x"), symbol("q_y"), symbol("k_x"), symbol("k_y")

q = named("q", q_x + i * q_y)
k = named("k", k_x + i * k_y)


def block(angle: Formula) -> Formula:
    """The 2×2 rotation that acts on a row vector from the right."""
    return matrix([[cos(angle), sin(angle)], [-sin(angle), cos(angle)]])


@derivation
def rotary_inner_product() -> Derivation:
    """The inner product of two planar vectors is Re[q k*]."""
    return (
        Derivation("rotary-inner-product", "The inner product, complex", q_x * k_x + q_y * k_y)
        .equals(real_part((q_x + i * q_y) * conjugate(k_x + i * k_y)), because="multiplied out")
        .equals(real_part(q * conjugate(k)), because="$q$ and $k$ as complex numbers")
    )


@derivation
def rotary_identity() -> Derivation:
    """Turning (x, y) by nθ, in real and imaginary parts."""
    return (
        Derivation("rotary-identity", "The rotation, written out", (x + i * y) * cis(n * theta))
        .equals((x + i * y) * (cos(n * theta) + i * sin(n * theta)), because="Euler's formula")
        .equals(
            (x * cos(n * theta) - y * sin(n * theta))
            + i * (x * sin(n * theta) + y * cos(n * theta)),
            because="multiplied out",
        )
    )


@derivation
def rotary_relative() -> Derivation:
    """The score of a turned query and a turned key depends on m − n only."""
    return (
        Derivation(
            "rotary-relative",
            "The score depends on the distance only",
            real_part(group(q * cis(m * theta)) * conjugate(k * cis(n * theta))),
        )
        .equals(
            real_part(q * conjugate(k) * cis(m * theta) * cis(-(n * theta))),
            because="conjugate of a product",
        )
        .equals(real_part(q * conjugate(k) * cis((m - n) * theta)), because="powers of e add")
    )


@derivation
def rotary_block() -> Derivation:
    """The same turn as a 2×2 matrix on row vectors."""
    row = matrix([[x, y]])
    return Derivation(
        "rotary-block", "The block form, for row vectors", row * block(n * theta)
    ).equals(
        matrix(
            [
                [
                    x * cos(n * theta) - y * sin(n * theta),
                    x * sin(n * theta) + y * cos(n * theta),
                ]
            ]
        ),
        because="row times matrix",
    )


@derivation
def rotary_product() -> Derivation:
    """R_m R_nᵀ = R_{m−n} in the plane."""
    R_m, R_n = block(m * theta), block(n * theta)
    difference = block((m - n) * theta)
    return (
        Derivation(
            "rotary-product",
            "Two turns leave their difference",
            named("R_m", R_m) * named("R_n", R_n).T,
        )
        .equals(R_m * R_n.T, because="definition")
        .equals(difference, because="addition theorems")
        .equals(named("R_{m-n}", difference), because="definition")
    )


@derivation
def rotary_product_4() -> Derivation:
    """R_m R_nᵀ = R_{m−n} in four dimensions, two pairs with a frequency each."""
    frequencies = symbol("theta_0", r"\theta_0"), symbol("theta_1", r"\theta_1")

    def R(position: Formula) -> Formula:
        return block_diagonal([block(position * theta) for theta in frequencies])

    return (
        Derivation(
            "rotary-product-4",
            "The same, block by block",
            named("R_m", R(m)) * named("R_n", R(n)).T,
        )
        .equals(R(m - n), because="addition theorems")
        .equals(named("R_{m-n}", R(m - n)), because="definition")
    )


@derivation
def rotary_score() -> Derivation:
    """The score of turned rows of any width, from the product of two turns."""
    R_m, R_n, R_mn = (
        Letter(name, d_h, d_h, latex)
        for name, latex in [("R_m", None), ("R_n", None), ("R_mn", "R_{m-n}")]
    )
    q, k = Letter("q", 1, d_h), Letter("k", 1, d_h)
    return (
        Derivation("rotary-score", "The score, any width", (q @ R_m) @ (k @ R_n).T)
        .equals(q @ R_m @ R_n.T @ k.T, because="transpose of a product")
        .given({R_m @ R_n.T: R_mn}, q @ R_mn @ k.T, because="turned by $m$, and back by $n$")
    )
