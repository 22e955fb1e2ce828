"""Recurrent layers and flows against torch's own layer and a published solver."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torchdiffeq import odeint

from posenc import Dynamics, Floater, Recurrent, Sinusoidal
from posenc.absolute.recursive import solve

from .layers import randomise
from .result import Agreement, difference, draw, package

DIM, N = 12, 50
FIELD_DIM, FIELD_N = 6, 9  # an adaptive solver takes its time
SPACING, STEPS = 0.3, 25
EXACT, SOLVED = 1e-12, 1e-9  # in float64


def odeint_at(
    h: Callable[[Tensor, Tensor], Tensor], start: Tensor, t: Tensor, **options: object
) -> Tensor:
    """Their solution at the times t: (len(t), …), of the start's dtype."""
    with torch.no_grad():
        return torch.as_tensor(odeint(h, start, t, **options), dtype=start.dtype)


def adaptive(h: Callable[[Tensor, Tensor], Tensor], start: Tensor, t: Tensor) -> Tensor:
    """Their most exact solver, made to step on the times: between steps it interpolates, worse."""
    return odeint_at(h, start, t, method="dopri8", rtol=1e-12, atol=1e-12, options={"step_t": t})


def tanh_field() -> Dynamics:
    """A nonlinear field that changes with time."""
    field = Dynamics(FIELD_DIM, torch.tanh).double()
    randomise(field)
    return field


def gru() -> Agreement:
    """A whole recurrent layer with its weights."""
    ours, theirs = Recurrent(DIM).double(), nn.GRU(DIM, DIM, batch_first=True).double()
    randomise(theirs)
    ours.cell.load_state_dict({n.removesuffix("_l0"): p for n, p in theirs.state_dict().items()})
    x = draw(2, N, DIM, seed=9).double()
    return Agreement(
        ours="Recurrent",
        theirs="torch.nn.GRU",
        package=package("torch"),
        compared=f"the states of {N} tokens, with their weights, in float64",
        difference=difference(ours.embed(x, torch.arange(N)[None]), theirs(x)[0]),
        tolerance=EXACT,
    )


def runge_kutta() -> Agreement:
    """Every scheme of order 4 with four stages is the same on a linear field, theirs too."""
    theta = Sinusoidal(DIM).frequencies()
    zero = torch.zeros_like(theta)
    A = torch.block_diag(
        *torch.stack((torch.stack((zero, -theta), -1), torch.stack((theta, zero), -1)), -2)
    )
    start = draw(3, DIM, seed=9).double()

    def field(t: Tensor, p: Tensor) -> Tensor:
        return p @ A

    t = SPACING * torch.arange(N, dtype=torch.float64)
    return Agreement(
        ours="solve",
        theirs='odeint(method="rk4")',
        package=package("torchdiffeq"),
        compared=f"the flow of the sinusoid on one grid of {N} times, in float64",
        difference=difference(
            solve(field, start, N, spacing=SPACING), odeint_at(field, start, t, method="rk4")
        ),
        tolerance=EXACT,
    )


def solution() -> Agreement:
    """A field that is not linear, where our small steps and their adaptive ones meet."""
    field, start = tanh_field(), draw(3, FIELD_DIM, seed=9).double()
    t = SPACING * torch.arange(FIELD_N, dtype=torch.float64)
    return Agreement(
        ours=f"solve(steps={STEPS})",
        theirs='odeint(method="dopri8")',
        package=package("torchdiffeq"),
        compared=f"the flow of Dynamics(activation=tanh) at {FIELD_N} times, in float64",
        difference=difference(
            solve(field, start, FIELD_N, spacing=SPACING, steps=STEPS), adaptive(field, start, t)
        ),
        tolerance=SOLVED,
    )


def floater() -> Agreement:
    """The vectors of an encoding, whose positions are times of the flow."""
    ours = Floater(FIELD_DIM, dynamics=tanh_field(), spacing=SPACING, steps=STEPS).double()
    positions = torch.arange(FIELD_N)
    start = draw(FIELD_DIM, seed=9).double()
    with torch.no_grad():
        ours.start.copy_(start)
    theirs = adaptive(ours.dynamics, start, SPACING * positions.double())
    return Agreement(
        ours=f"Floater(spacing={SPACING}, steps={STEPS})",
        theirs='odeint(method="dopri8")',
        package=package("torchdiffeq"),
        compared=f"the vectors of positions 0 to {FIELD_N - 1}, in float64",
        difference=difference(ours.vectors(positions), theirs),
        tolerance=SOLVED,
    )


COMPARISONS = (gru, runge_kutta, solution, floater)
