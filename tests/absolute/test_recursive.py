"""Vectors made one from the other: the cell, the recurrent layer, the solver, and FLOATER."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from tests.encodings import draw, positions_with_gaps, weights
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from posenc import (
    At,
    Attention,
    Cell,
    Dynamics,
    Floater,
    FloaterBiases,
    Hierarchical,
    Recurrent,
    Recursive,
    Sinusoidal,
    Trainable,
    Transformer,
)
from posenc.absolute.recursive import GRUCell, solve

BATCH, HEADS, HEAD_DIM, N, DIM = 2, 3, 4, 7, 5
POSITIONS = positions_with_gaps(BATCH, N)
FARTHEST = int(POSITIONS.max())


def close(ours: Tensor, numbers: list[float] | Tensor, atol: float = 1e-12) -> None:
    expected = torch.as_tensor(numbers, dtype=ours.dtype)
    torch.testing.assert_close(ours, expected, rtol=0, atol=atol)


def exact(module: nn.Module, seed: int = 0) -> nn.Module:
    """The module in float64, its parameters filled with seeded numbers of a moderate size."""
    return weights(module.double(), seed)


def sigmoid(a: float) -> float:
    return 1 / (1 + math.exp(-a))


class Counted(nn.Module):
    """p ↦ factor · p + constant; it counts its calls."""

    def __init__(self, factor: float, constant: float = 0.0) -> None:
        super().__init__()
        self.factor, self.constant, self.calls = factor, constant, 0

    def forward(self, *arguments: Tensor) -> Tensor:
        self.calls += 1
        return self.factor * arguments[-1] + self.constant


# the cell


def test_the_cell_is_the_formula():
    cell, p = exact(Cell(DIM)), draw(BATCH, N, DIM, seed=9)
    W, b = cell.candidate.weight.T.tolist(), cell.candidate.bias.tolist()
    W_z, b_z = cell.gate.weight.T.tolist(), cell.gate.bias.tolist()
    for s in range(BATCH):
        for k in range(N):
            row, expected = p[s, k].tolist(), []
            for c in range(DIM):
                z = sigmoid(sum(row[d] * W_z[d][c] for d in range(DIM)) + b_z[c])
                candidate = math.tanh(sum(row[d] * W[d][c] for d in range(DIM)) + b[c])
                expected.append(z * row[c] + (1 - z) * candidate)
            close(cell(p[s, k]), expected)
            close(cell(p)[s, k], expected)


def test_the_cell_is_a_step_along_a_flow():
    cell, p = exact(Cell(DIM)), draw(N, DIM, seed=9)
    z, candidate = cell.gate(p).sigmoid(), cell.candidate(p).tanh()
    close(cell(p), p + (1 - z) * (candidate - p))


def test_the_cell_is_a_gru_cell_without_input_and_without_reset():
    cell, theirs = exact(Cell(DIM)), nn.GRUCell(4, DIM).double()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.zero_()
        theirs.bias_hh[:DIM] = 1e3  # the reset gate: σ(1000) = 1
        theirs.weight_hh[DIM : 2 * DIM] = cell.gate.weight
        theirs.bias_hh[DIM : 2 * DIM] = cell.gate.bias
        theirs.weight_hh[2 * DIM :] = cell.candidate.weight
        theirs.bias_hh[2 * DIM :] = cell.candidate.bias
    p = draw(N, DIM, seed=9)
    close(cell(p), theirs(torch.zeros(N, 4, dtype=torch.float64), p))


def test_a_gate_of_1_keeps_the_vector_and_a_gate_of_0_replaces_it():
    cell, p = exact(Cell(DIM)), draw(N, DIM, seed=9)
    candidate = cell.candidate(p).tanh()
    with torch.no_grad():
        cell.gate.bias.fill_(1e3)
        assert torch.equal(cell(p), p)
        cell.gate.bias.fill_(-1e3)
        close(cell(p), candidate)


# the recursion


def by_steps(encoding: Recursive, n: int) -> Tensor:
    rows = [encoding.start]
    for _ in range(n - 1):
        rows.append(encoding.cell(rows[-1]))
    return torch.stack(rows)


def test_every_vector_is_the_cell_of_the_one_before():
    encoding = exact(Recursive(DIM))
    table = by_steps(encoding, FARTHEST + 1)
    assert (table[1:] - table[:-1]).abs().amax(-1).min() > 1e-3
    close(encoding.vectors(torch.arange(FARTHEST + 1)), table)
    p = encoding.vectors(POSITIONS)
    assert p.shape == (BATCH, N, DIM) and p.dtype == torch.float64
    for s in range(BATCH):
        for k in range(N):
            close(p[s, k], table[POSITIONS[s, k]])
    close(encoding.vectors(torch.tensor([3, 3, 0, 1])), table[[3, 3, 0, 1]])
    assert torch.equal(encoding.vectors(torch.tensor([0]))[0], encoding.start)


@pytest.mark.parametrize("batch", [6, 2])  # 6 = n on purpose: a swapped axis would fit
def test_position_runs_over_the_second_axis(batch):
    encoding = exact(Recursive(DIM))
    y = encoding.embed(torch.zeros(batch, 6, DIM).double(), torch.arange(6)[None])
    for s in range(batch):
        close(y[s], by_steps(encoding, 6))


def test_the_cell_is_called_as_often_as_the_largest_position_says():
    cell = Counted(0.9)
    encoding = Recursive(DIM, cell=cell)
    for positions, calls in (
        (torch.arange(9)[None], 8),
        (torch.tensor([[0, 40, 3], [2, 1, 0]]), 40),
        (torch.tensor([[0, 0]]), 0),
        (torch.tensor([[1]]), 1),
        (torch.empty(1, 0, dtype=torch.int64), 0),
        (torch.arange(9)[None], 8),  # again: nothing is remembered
    ):
        cell.calls = 0
        encoding.vectors(positions)
        assert cell.calls == calls


def test_nothing_is_remembered_when_the_parameters_change():
    encoding = exact(Recursive(DIM))
    before = encoding.vectors(POSITIONS)
    exact(encoding, seed=20)
    after = encoding.vectors(POSITIONS)
    assert (after - before).abs().max() > 0.1
    close(after[0, 0], by_steps(encoding, FARTHEST + 1)[POSITIONS[0, 0]])


def test_the_cell_may_be_any_map_and_its_fixed_point_is_approached_geometrically():
    encoding = Recursive(DIM, cell=Counted(0.5, 0.3)).double()
    p = encoding.vectors(torch.arange(21))
    for k in range(21):
        close(p[k], 0.5**k * (encoding.start - 0.6) + 0.6)
    distances = (p[1:] - p[:-1]).norm(dim=-1)
    close(distances[1:] / distances[:-1], torch.full((19,), 0.5), 1e-8)
    assert (p[20] - 0.6).norm() < 1e-5 < distances[0]


def test_the_gradient_goes_back_to_the_start_through_every_step():
    encoding = Recursive(DIM, cell=Counted(0.5, 0.3)).double()
    encoding.vectors(torch.tensor([3, 1])).sum().backward()
    close(encoding.start.grad, torch.full((DIM,), 0.5**3 + 0.5))


@pytest.mark.parametrize("make", [Recursive, Floater])
def test_the_start_is_drawn_with_the_deviation_asked_for(make):
    for std in (1.0, 0.02):
        encoding = make(3000, std=std, **{"cell" if make is Recursive else "dynamics": Counted(1)})
        assert encoding.start.shape == (3000,)
        assert encoding.start.std().item() == pytest.approx(std, rel=0.05)
    assert make(4).start.std() > 0.1 and not torch.equal(make(4).start, make(4).start)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "make", [Recursive, lambda dim: Floater(dim, dynamics=Dynamics(dim, torch.tanh))]
)
def test_low_precision_parameters_are_computed_with_in_float32(make, dtype):
    encoding = weights(make(DIM)).to(dtype)
    wide = make(DIM)
    wide.load_state_dict(encoding.state_dict())  # the same rounded numbers
    p = encoding.vectors(torch.arange(60))
    assert p.dtype == torch.float32
    close(p, wide.vectors(torch.arange(60)), 1e-6)
    assert encoding.embed(draw(1, N, DIM, dtype=dtype), POSITIONS[:1]).dtype == dtype


# the recurrent layer


def test_our_gru_cell_is_torchs():
    ours, theirs = exact(GRUCell(4, DIM)), nn.GRUCell(4, DIM).double()
    theirs.load_state_dict(ours.state_dict())
    x, h = draw(N, 4), draw(N, DIM, seed=1)
    close(ours(x, h), theirs(x, h))
    unbiased, theirs = exact(GRUCell(4, DIM, bias=False)), nn.GRUCell(4, DIM, bias=False).double()
    theirs.load_state_dict(unbiased.state_dict())
    close(unbiased(x, h), theirs(x, h))


def gru(encoding: Recurrent) -> nn.GRU:
    """torch's whole layer with the weights of ours."""
    theirs = nn.GRU(DIM, DIM, batch_first=True).double()
    theirs.load_state_dict({f"{n}_l0": p for n, p in encoding.cell.state_dict().items()})
    return theirs


def test_the_recurrent_layer_is_torchs():
    encoding, x = exact(Recurrent(DIM)), draw(BATCH, N, DIM, seed=9)
    close(encoding.embed(x, POSITIONS), gru(encoding)(x)[0])
    assert torch.equal(encoding.embed(x, POSITIONS), encoding.embed(x, torch.arange(N)[None]))


def test_its_cell_may_be_any_map_of_input_and_state():
    class Decay(nn.Module):
        def forward(self, x: Tensor, h: Tensor) -> Tensor:
            return x + 0.5 * h

    x = draw(BATCH, N, DIM)
    y = Recurrent(DIM, cell=Decay()).embed(x, POSITIONS)
    for k in range(N):
        close(y[:, k], sum(0.5 ** (k - j) * x[:, j] for j in range(k + 1)))


def test_pads_on_either_side_change_nothing():
    encoding, x = exact(Recurrent(DIM)), draw(3, N, DIM, seed=9)
    left = torch.arange(N) >= torch.tensor([[3], [0], [5]])
    y = encoding.embed(x, torch.zeros(3, N, dtype=torch.int64), left)
    for s, first in enumerate((3, 0, 5)):
        close(y[s, first:], gru(encoding)(x[s : s + 1, first:])[0][0])
        assert (y[s, :first] == 0).all()  # the state before any token
    right = torch.arange(N) < torch.tensor([[4], [N], [1]])
    y = encoding.embed(x, torch.zeros(3, N, dtype=torch.int64), right)
    for s, length in enumerate((4, N, 1)):
        close(y[s, :length], gru(encoding)(x[s : s + 1, :length])[0][0])
        assert (y[s, length:] == y[s, length - 1]).all()  # the state after the last token


def test_pads_in_the_middle_are_skipped_and_one_mask_may_serve_all_rows():
    encoding, x = exact(Recurrent(DIM)), draw(BATCH, N, DIM, seed=9)
    mask = torch.tensor([[True, True, False, True, False, False, True]])
    y = encoding.embed(x, POSITIONS, mask)
    close(y[:, mask[0]], gru(encoding)(x[:, mask[0]])[0])
    assert torch.equal(y, encoding.embed(x, POSITIONS, mask.expand(BATCH, N)))


def test_it_looks_back_and_never_ahead():
    encoding, x = exact(Recurrent(DIM)), draw(1, N, DIM, seed=9)
    jacobian = torch.autograd.functional.jacobian(lambda x: encoding.embed(x, POSITIONS[:1]), x)
    reached = (jacobian[0, :, :, 0] != 0).any(-1).any(1)  # (output k, input j)
    assert torch.equal(reached, torch.ones(N, N, dtype=torch.bool).tril())


# dynamics


def test_the_dynamics_are_the_formula():
    for activation, phi in ((torch.tanh, math.tanh), (torch.relu, lambda a: max(a, 0.0))):
        dynamics, p = exact(Dynamics(DIM, activation)), draw(BATCH, DIM, seed=9)
        W_1, b_1 = dynamics.first.weight.T.tolist(), dynamics.first.bias.tolist()
        W_2, b_2 = dynamics.second.weight.T.tolist(), dynamics.second.bias.tolist()
        for t in (0.0, 1.7):
            for s in range(BATCH):
                given = [*p[s].tolist(), t]
                hidden = [
                    phi(sum(given[d] * W_1[d][c] for d in range(DIM + 1)) + b_1[c])
                    for c in range(DIM)
                ]
                hidden.append(t)
                expected = [
                    sum(hidden[d] * W_2[d][c] for d in range(DIM + 1)) + b_2[c] for c in range(DIM)
                ]
                close(dynamics(torch.tensor(t, dtype=torch.float64), p)[s], expected)
                close(dynamics(torch.tensor(t, dtype=torch.float64), p[s]), expected)


def test_the_dynamics_start_as_in_the_official_code():
    dynamics = Dynamics(200)
    assert dynamics.activation is torch.relu
    for layer in (dynamics.first, dynamics.second):
        assert layer.weight.shape == (200, 201) and (layer.bias == 0).all()
        assert layer.weight.std().item() == pytest.approx(math.sqrt(2 / 401), rel=0.05)
        assert layer.weight.abs().max() > 3 * math.sqrt(2 / 401)  # normal and not uniform


# the solver


def growing(t: Tensor, p: Tensor) -> Tensor:
    """dp/dt = p² cos t: from p(0) = 1/c it is at 1 / (c − sin t)."""
    return p.square() * t.cos()


C = torch.tensor([[2.0, 3.0, 2.5], [4.0, 2.2, 7.0]], dtype=torch.float64)


def rotation(dim: int) -> Tensor:
    """A in dp/dt = p A, which the sinusoid solves: [[0, −θ], [θ, 0]] for each frequency."""
    theta = Sinusoidal(dim).frequencies()
    blocks = [torch.tensor([[0.0, -t], [t, 0.0]], dtype=torch.float64) for t in theta.tolist()]
    return torch.block_diag(*blocks)


def error_on_growing(steps: int) -> float:
    p = solve(growing, 1 / C, 4, spacing=0.7, steps=steps)
    t = 0.7 * torch.arange(4, dtype=torch.float64)
    return float((p - 1 / (C - t.sin()[:, None, None])).abs().max())


def error_on_rotation(steps: int) -> float:
    start, A = Sinusoidal(6).vectors(torch.tensor(0)), rotation(6)
    p = solve(lambda t, p: p @ A, start, 5, steps=steps)
    return float((p - Sinusoidal(6).vectors(torch.arange(5))).abs().max())


@pytest.mark.parametrize("error", [error_on_growing, error_on_rotation])
def test_half_the_step_makes_the_error_16_times_smaller(error):
    errors = [error(steps) for steps in (4, 8, 16, 32)]
    for coarse, fine in pairwise(errors):
        assert 12 < coarse / fine < 20
    assert 1e-12 < errors[-1] < errors[0] < 1e-2


def test_one_step_is_the_classical_scheme():
    h, dt = exact(Dynamics(DIM, torch.tanh)), 0.3
    p = start = draw(3, DIM, seed=9)
    for k in range(4):
        t = torch.tensor(k * dt, dtype=torch.float64)
        a = h(t, p)
        b = h(t + dt / 2, p + dt * a / 2)
        c = h(t + dt / 2, p + dt * b / 2)
        d = h(t + dt, p + dt * c)
        close(solve(h, start, 5, spacing=dt)[k], p)
        p = p + dt * (a / 6 + b / 3 + c / 3 + d / 6)
    close(solve(h, start, 5, spacing=dt)[4], p)


def test_polynomials_up_to_degree_three_in_time_are_integrated_exactly():
    start = draw(3, DIM)
    t = 0.7 * torch.arange(6, dtype=torch.float64)[:, None, None]
    for degree in range(5):
        p = solve(lambda t, p, m=degree: (t**m).expand_as(p), start, 6, spacing=0.7)
        error = (p - (start + t ** (degree + 1) / (degree + 1))).abs().max()
        assert bool(error < 1e-12) is (degree < 4)


def test_spacing_is_the_time_between_two_and_steps_are_within_it():
    start = 1 / C
    p = solve(growing, start, 13, spacing=0.1)
    assert p.shape == (13, 2, 3) and torch.equal(p[0], start)
    close(solve(growing, start, 5, spacing=0.3, steps=3), p[::3])
    close(solve(growing, start, 3, spacing=0.6, steps=6), p[::6])
    close(solve(growing, start, 2, spacing=1.2, steps=12), p[::12])
    close(solve(growing, start, 3), solve(growing, start, 3, spacing=1.0, steps=1), 0)
    assert torch.equal(solve(growing, start, 1, spacing=0.3, steps=4), start[None])


@pytest.mark.parametrize(("count", "steps"), [(1, 3), (2, 1), (5, 3), (4, 1)])
def test_every_step_asks_the_dynamics_four_times(count, steps):
    h = Counted(-0.1)
    assert len(solve(h, draw(DIM), count, steps=steps)) == count
    assert h.calls == 4 * steps * (count - 1)


# the flow in the input


class Rotation(nn.Module):
    """h(t, p) = p A."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.A = rotation(dim)

    def forward(self, t: Tensor, p: Tensor) -> Tensor:
        return p @ self.A


class Clock(nn.Module):
    """h(t, p) = (θ cos θt, −θ sin θt), which does not look at p."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.theta = Sinusoidal(dim).frequencies()

    def forward(self, t: Tensor, p: Tensor) -> Tensor:
        a = t * self.theta
        return torch.stack((self.theta * a.cos(), -self.theta * a.sin()), -1).flatten()


@pytest.mark.parametrize("flow", [Rotation, Clock])
def test_the_sinusoid_is_a_flow(flow):
    floater = Floater(8, dynamics=flow(8), spacing=1.0, steps=20).double()
    with torch.no_grad():
        floater.start.copy_(Sinusoidal(8).vectors(torch.tensor(0)))
    positions = positions_with_gaps(2, 6)
    close(floater.vectors(positions).detach(), Sinusoidal(8).vectors(positions), 1e-6)
    with torch.no_grad():
        assert torch.equal(floater.start, torch.tensor([0.0, 1.0] * 4, dtype=torch.float64))
    faster = Floater(8, dynamics=flow(8), spacing=2.0, steps=40).double()
    faster.load_state_dict(floater.state_dict())
    every_other = Sinusoidal(8).vectors(2 * torch.arange(6))
    close(faster.vectors(torch.arange(6)).detach(), every_other, 1e-6)


@pytest.mark.parametrize("k", [-9, -1, 0, 1, 3, 20])
def test_the_exponential_of_the_flow_is_the_matrix_that_moves_the_sinusoid(k):
    moved = torch.linalg.matrix_exp(k * rotation(8))
    close(moved, Sinusoidal(8).shift(k))
    close(
        Sinusoidal(8).vectors(torch.tensor(30)) @ moved, Sinusoidal(8).vectors(torch.tensor(30 + k))
    )
    close(moved @ moved.T, torch.eye(8))
    if k:
        assert (moved - Sinusoidal(8).shift(-k)).abs().max() > 0.1


@pytest.mark.parametrize("options", [{}, {"spacing": 0.3}, {"spacing": 0.7, "steps": 3}])
def test_the_vectors_of_a_flow_are_the_solution_at_the_positions(options):
    floater = exact(Floater(DIM, dynamics=Dynamics(DIM, torch.tanh), **options))
    grid = {"spacing": 0.1, "steps": 1} | options
    table = solve(floater.dynamics, floater.start, FARTHEST + 1, **grid)
    p = floater.vectors(POSITIONS)
    assert p.shape == (BATCH, N, DIM)
    for s in range(BATCH):
        for k in range(N):
            close(p[s, k], table[POSITIONS[s, k]])
    x = draw(BATCH, N, DIM, seed=9)
    close(floater.embed(x, POSITIONS), x + p)


def test_the_flow_is_solved_as_far_as_the_largest_position_and_anew_in_every_call():
    h = Counted(-0.1)
    floater = Floater(DIM, dynamics=h, steps=3)
    for positions in (POSITIONS, torch.tensor([[0]]), torch.tensor([[1, 0, 9, 2]]), POSITIONS):
        h.calls = 0
        floater.vectors(positions)
        assert h.calls == 4 * 3 * int(positions.max())


def test_under_relu_a_flow_may_overflow_and_under_tanh_it_is_bounded_by_time_squared():
    grown = {}
    for activation, far in ((torch.relu, 1500), (torch.tanh, 4000)):
        floater = weights(Floater(8, dynamics=Dynamics(8, activation), spacing=0.3), seed=12)
        with torch.no_grad():
            grown[activation] = floater.vectors(torch.tensor([far]))[0]
    assert not grown[torch.relu].isfinite().any()
    W, b = floater.dynamics.second.weight.double(), floater.dynamics.second.bias.double()
    t = 0.3 * 4000
    speed = W[:, :-1].abs().sum(-1) + b.abs()
    bound = floater.start.abs() + t * speed + t**2 / 2 * W[:, -1].abs()
    assert (grown[torch.tanh].abs() <= 1.001 * bound).all()
    assert grown[torch.tanh].abs().max() > 1e5  # and that is how it grows


# flows in the attention


def biases(dim: int = HEADS * HEAD_DIM, **options) -> FloaterBiases:
    options = {"dynamics": Dynamics(dim, torch.tanh), "spacing": 0.3, "steps": 2} | options
    return exact(FloaterBiases(HEADS, HEAD_DIM, **options))


@pytest.mark.parametrize("queries", [1, BATCH])
def test_queries_keys_and_values_get_their_own_flow_at_their_own_positions(queries):
    encoding = biases()
    n_q, n_k = 4, N
    at = At.of(positions_with_gaps(queries, n_q) + 8, POSITIONS)
    q, k = draw(BATCH, HEADS, n_q, HEAD_DIM), draw(BATCH, HEADS, n_k, HEAD_DIM, seed=1)
    v = draw(BATCH, HEADS, n_k, HEAD_DIM, seed=2)
    moved = encoding.transform(q, k, v, at)
    last = int(max(at.query.max(), at.key.max()))
    for which, (before, after, positions) in enumerate(
        zip((q, k, v), moved, (at.query, at.key, at.key), strict=True)
    ):
        assert after.shape == before.shape
        flow = solve(encoding.dynamics, encoding.start[which], last + 1, spacing=0.3, steps=2)
        for s in range(BATCH):
            for h in range(HEADS):
                for i in range(before.shape[2]):
                    m = int(positions[s if len(positions) > 1 else 0, i])
                    p = flow[m, h * HEAD_DIM : (h + 1) * HEAD_DIM]
                    close(after[s, h, i], before[s, h, i] + p)


def test_the_solution_reaches_the_farthest_of_queries_and_keys():
    encoding = biases()
    near, far = torch.tensor([[1, 0, 2]]), torch.tensor([[30, 4, 11]])
    x = draw(1, HEADS, 3, HEAD_DIM)
    q, k, v = encoding.transform(x, x, x, At.of(near, far))
    other_q, other_k, other_v = encoding.transform(x, x, x, At.of(far, near))
    tables = encoding.biases(31).unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2)
    close(torch.cat((q, k, v)), x + torch.stack((tables[0][:, near[0]], *tables[1:, :, far[0]])))
    moved = torch.cat((other_q, other_k, other_v))
    close(moved, x + torch.stack((tables[0][:, far[0]], *tables[1:, :, near[0]])))


def test_the_biases_start_as_in_the_official_code():
    h = Counted(-1.0)
    encoding = FloaterBiases(30, 20, dynamics=h)
    assert encoding.start.shape == (3, 600)
    bound = math.sqrt(6 / 603)
    assert 0.98 * bound < encoding.start.abs().max().item() <= bound
    assert encoding.start.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
    p = encoding.biases(4)
    assert p.shape == (3, 4, 600) and h.calls == 4 * 5 * 3
    t = 0.01 * torch.arange(4)
    close(p.detach(), encoding.start.detach()[:, None] * (-t).exp()[:, None], 1e-6)
    assert isinstance(FloaterBiases(2, 3).dynamics, Dynamics)
    assert FloaterBiases(2, 3).dynamics.second.weight.shape == (6, 7)


def test_layers_have_their_own_starts_and_share_one_dynamics():
    dim = HEADS * HEAD_DIM
    dynamics = Dynamics(dim, torch.tanh)
    first, second = (FloaterBiases(HEADS, HEAD_DIM, dynamics=dynamics) for _ in range(2))
    model = Transformer(11, dim, HEADS, 2, [first, second])
    plain = Transformer(11, dim, HEADS, 2)
    size = {m: sum(p.numel() for p in m.parameters()) for m in (model, plain)}
    assert size[model] - size[plain] == 2 * 3 * dim + 2 * (dim * (dim + 1) + dim)
    assert not torch.equal(first.start, second.start)
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 9, 7]])
    model(tokens, At.of(POSITIONS)).square().sum().backward()
    for parameter in (first.start, second.start, *dynamics.parameters()):
        assert parameter.grad.isfinite().all() and (parameter.grad != 0).any()
    before = second.biases(4)[:, 2:].detach()
    with torch.no_grad():
        first.dynamics.second.bias.add_(5.0)
    assert (second.biases(4)[:, 2:] - before).abs().min() > 1e-2


def test_a_whole_layer_attends_with_the_moved_queries_keys_and_values():
    encoding, dim = biases(), HEADS * HEAD_DIM
    attention = exact(Attention(dim, HEADS, encoding), seed=30)
    x, at = draw(BATCH, N, dim, seed=9), At.of(POSITIONS, causal=True)
    p = encoding.biases(FARTHEST + 1)
    rows = [
        layer(x) + p[which][POSITIONS]
        for which, layer in enumerate((attention.W_Q, attention.W_K, attention.W_V))
    ]
    y = torch.zeros(BATCH, N, dim, dtype=torch.float64)
    for h in range(HEADS):
        part = slice(h * HEAD_DIM, (h + 1) * HEAD_DIM)
        for s in range(BATCH):
            for i in range(N):
                b = torch.stack([rows[0][s, i, part] @ rows[1][s, j, part] for j in range(i + 1)])
                a = (b / math.sqrt(HEAD_DIM)).softmax(0)
                y[s, i, part] = sum(a[j] * rows[2][s, j, part] for j in range(i + 1))
    close(attention(x, at), attention.W_O(y))


# wrong input


X, Q = draw(BATCH, N, DIM), draw(BATCH, HEADS, N, HEAD_DIM)
AT = At.of(POSITIONS)
BELOW = At(POSITIONS - 4, POSITIONS), At(POSITIONS, POSITIONS - 4)


def moving(encoding: nn.Module, positions: Tensor = POSITIONS) -> Tensor:
    if isinstance(encoding, FloaterBiases):
        return encoding.transform(Q, Q, Q, At(positions, positions))[0]
    return encoding.vectors(positions)


every_walk = pytest.mark.parametrize(
    "make",
    [lambda: Recursive(DIM), lambda: Floater(DIM), lambda: FloaterBiases(HEADS, HEAD_DIM)],
    ids=["recursive", "floater", "floater biases"],
)


@every_walk
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_compiled_code_is_left_to_see_how_far_to_go(make):
    torch._dynamo.reset()
    encoding = make()
    compiled = torch.compile(moving, backend="eager")
    torch.testing.assert_close(compiled(encoding), moving(encoding))


@every_walk
def test_how_far_to_go_is_not_known_where_positions_have_no_values(make):
    encoding = make()
    before = moving(encoding)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        positions = mode.from_tensor(torch.tensor([[0, 1]]))
        with pytest.raises(ValueError, match="depends on the values of the positions, which expo"):
            if isinstance(encoding, FloaterBiases):
                encoding.transform(Q, Q, Q, At(positions, positions))
            else:
                encoding.vectors(positions)
    assert torch.equal(moving(encoding), before)


@pytest.mark.parametrize(
    "positions",
    [torch.tensor([0.0, 1.0]), torch.tensor([True, False]), torch.tensor([0, 1]).to(torch.uint8)],
)
def test_positions_of_another_dtype_are_refused_and_not_read_as_masks(positions):
    table = Trainable(4, 3)
    for encoding in (table, Hierarchical(table), Recursive(4), Floater(4), Sinusoidal(4)):
        with pytest.raises(ValueError, match="positions must be int64, but are torch"):
            encoding.vectors(positions)
        with pytest.raises(TypeError, match="positions must be a Tensor, but is of type list"):
            encoding.vectors(positions.tolist())


@every_walk
def test_positions_below_zero_are_refused(make):
    encoding = make()
    before = moving(encoding)
    for positions, says in (
        (torch.where(POSITIONS == 6, -1, POSITIONS), "count from 0, but -1 is among them"),
        (POSITIONS - 100, "count from 0, but -99 is among them"),
    ):
        with pytest.raises(ValueError, match=says):
            moving(encoding, positions)
    assert torch.equal(moving(encoding), before)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: Cell(0), ValueError, "dim must be 1 or more, but is 0"),
        (lambda: Recursive(0), ValueError, "dim must be 1 or more, but is 0"),
        (lambda: Recursive(2.0), TypeError, "dim must be a whole number, but is 2.0"),
        (lambda: Recurrent(-1), ValueError, "dim must be 1 or more, but is -1"),
        (lambda: Dynamics(0), ValueError, "dim must be 1 or more, but is 0"),
        (lambda: Floater(0), ValueError, "dim must be 1 or more, but is 0"),
        (
            lambda: Floater(4, spacing=0),
            ValueError,
            "spacing must be positive and finite, but is 0",
        ),
        (
            lambda: Floater(4, spacing=-0.1),
            ValueError,
            "spacing must be positive and finite, but is -0.1",
        ),
        (lambda: Floater(4, spacing=math.inf), ValueError, "positive and finite, but is inf"),
        (
            lambda: FloaterBiases(HEADS, HEAD_DIM).transform(Q, Q[..., :1], Q, AT),
            ValueError,
            r"have shapes \(2, 3, 7, 4\), \(2, 3, 7, 1\) and",
        ),
        (
            lambda: Recurrent(4).embed(Q[0], torch.zeros(5, 9, dtype=torch.int64)),
            ValueError,
            r"positions must be \(3 or 1, 7\).*\(5, 9\)",
        ),
        (
            lambda: Recurrent(4).embed(Q[0], AT.query[:1], torch.ones(3, 9, dtype=torch.bool)),
            ValueError,
            r"mask must be \(3 or 1, 7\) bool, but is \(3, 9\)",
        ),
        (
            lambda: Recurrent(4).embed(Q[0], AT.query[:1], torch.ones(3, 7)),
            ValueError,
            r"mask must be .* bool, but is \(3, 7\) torch.float32",
        ),
        (
            lambda: Floater(4, spacing=math.nan),
            ValueError,
            "spacing must be positive and finite, but is nan",
        ),
        (lambda: Floater(4, steps=0), ValueError, "steps must be 1 or more, but is 0"),
        (lambda: Floater(4, steps=1.5), TypeError, "steps must be a whole number, but is 1.5"),
        (lambda: FloaterBiases(0, 4), ValueError, "heads must be 1 or more, but is 0"),
        (lambda: FloaterBiases(3, -4), ValueError, "head_dim must be 1 or more, but is -4"),
        (lambda: FloaterBiases(3, 4, spacing=0.0), ValueError, "spacing must be .* 0.0"),
        (lambda: FloaterBiases(3, 4, steps=-1), ValueError, "steps must be .* -1"),
        (lambda: Recursive(4).embed(X, POSITIONS), ValueError, r"\(batch, n, 4\).*\(2, 7, 5\)"),
        (lambda: Recurrent(4).embed(X, POSITIONS), ValueError, r"\(batch, n, 4\).*\(2, 7, 5\)"),
        (lambda: Recurrent(DIM).embed(X[0], POSITIONS), ValueError, r"\(batch, n, 5\).*\(7, 5\)"),
        (lambda: Recurrent(DIM).embed(X.long(), POSITIONS), ValueError, "floats.*int64"),
        (
            lambda: FloaterBiases(HEADS, HEAD_DIM).transform(Q, Q, Q[..., :3], AT),
            ValueError,
            r"3 heads of width 4, but have shapes \(2, 3, 7, 4\), .* and \(2, 3, 7, 3\)",
        ),
        (
            lambda: FloaterBiases(HEADS, 5).transform(Q, Q, Q, AT),
            ValueError,
            r"3 heads of width 5, but have shapes \(2, 3, 7, 4\)",
        ),
        (
            lambda: FloaterBiases(4, HEAD_DIM).transform(Q, Q, Q, AT),
            ValueError,
            r"4 heads of width 4, but have shapes \(2, 3, 7, 4\)",
        ),
        (
            lambda: FloaterBiases(HEADS, HEAD_DIM).transform(Q, Q, Q, BELOW[0]),
            ValueError,
            "count from 0, but -3 is among them",
        ),
        (
            lambda: FloaterBiases(HEADS, HEAD_DIM).transform(Q, Q, Q, BELOW[1]),
            ValueError,
            "count from 0, but -3 is among them",
        ),
    ],
)
def test_wrong_input_is_named(call, error, says):
    with pytest.raises(error, match=says):
        call()
