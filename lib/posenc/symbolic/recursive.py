"""From a recurrent cell to a flow, and the sinusoid as a flow."""

from __future__ import annotations

import sympy

from .derivation import Derivation, derivation
from .formula import Formula, cos, derivative, matrix, named, sin, symbol
from .letters import d
from .sinusoidal import pair, shift, theta
from .words import Identity, Letter

t = symbol("t")
generator = matrix([[0, -theta], [theta, 0]])
"""A, with p' = p A for one frequency of the sinusoid as a row."""

p, c = Letter("p", 1, d), Letter("c", 1, d)
Z = Letter("Z", d, d, r"\operatorname{diag}(z)")
A = Letter("A", d, d)
step = sympy.Symbol("delta", real=True)


@derivation
def cell_step() -> Derivation:
    """A gated cell, z ⊗ p + (1 − z) ⊗ c, moves p towards c."""
    return Derivation("cell-step", "A cell is a step", p @ Z + c @ (Identity(d) - Z)).equals(
        p + (c - p) @ (Identity(d) - Z), because="sorted by the step"
    )


@derivation
def sinusoidal_flow() -> Derivation:
    """The sinusoid moves along a flow: its derivative is a function of itself, and of time too."""
    moved = matrix([[theta * cos(t * theta), -(theta * sin(t * theta))]])
    return (
        Derivation("sinusoidal-flow", "The sinusoid is a flow", derivative(pair(t), t))
        .equals(moved, because="sine and cosine differentiated")
        .equals(pair(t) * generator, because="row times matrix")
        .equals(named("p_t", pair(t)) * named("A", generator), because="definition")
    )


@derivation
def sinusoidal_exponential() -> Derivation:
    """M_t solves the equation of the matrix exponential e^{tA}, and starts where it starts."""

    def turned(angle: Formula) -> Formula:
        s, c = theta * sin(angle), theta * cos(angle)
        return matrix([[-s, -c], [c, -s]])

    return (
        Derivation("sinusoidal-exponential", "Moving by t", derivative(shift(t), t))
        .equals(turned(t * theta), because="differentiated")
        .equals(shift(t) * generator, because="multiplied out")
        .equals(named("M_t", shift(t)) * named("A", generator), because="definition")
    )


@derivation
def runge_kutta_linear() -> Derivation:
    """On p' = p A one step of order 4 is the exponential series up to its fourth power."""
    h1 = p @ A
    h2 = (p + step / 2 * (h1)) @ A
    h3 = (p + step / 2 * (h2)) @ A
    h4 = (p + step * (h3)) @ A
    names = [Letter(name, 1, d) for name in ("h_1", "h_2", "h_3", "h_4")]
    start = p + step / 6 * (names[0] + 2 * names[1] + 2 * names[2] + names[3])
    series = (
        p
        + step * (p @ A)
        + step**2 / 2 * (p @ A @ A)
        + step**3 / 6 * (p @ A @ A @ A)
        + step**4 / 24 * (p @ A @ A @ A @ A)
    )
    return Derivation("runge-kutta-linear", "One step on a linear flow", start).define(
        dict(zip(names, (h1, h2, h3, h4), strict=True)), series, because="the four slopes put in"
    )
