"""Frequencies and angles: the formula, and enough digits for it."""

from __future__ import annotations

import math

import pytest
import torch

from posenc.angles import angles, frequencies


@pytest.mark.parametrize("width", [1, 2, 5, 8, 64])
@pytest.mark.parametrize("base", [10000.0, 100.0, 0.5, 3])
def test_frequencies_are_powers_of_the_base(width, base):
    theta = frequencies(width, base)
    expected = [base ** (-2 * i / width) for i in range(math.ceil(width / 2))]
    assert theta.dtype == torch.float64
    torch.testing.assert_close(
        theta, torch.tensor(expected, dtype=torch.float64), rtol=1e-14, atol=0
    )


def test_the_default_base_is_that_of_the_paper():
    assert frequencies(4).tolist() == [1.0, 0.01]


def test_angles_are_positions_times_frequencies():
    positions, theta = torch.tensor([[0, 3, 7], [1, 2, 1000]]), frequencies(8)
    a = angles(positions, theta)
    assert a.shape == (2, 3, 4)
    for s in range(2):
        for j in range(3):
            for i in range(4):
                assert float(a[s, j, i]) == float(positions[s, j]) * float(theta[i])


@pytest.mark.parametrize(
    ("theta", "angle"),
    [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
    ],
)
def test_angles_are_never_narrower_than_float32(theta, angle):
    assert angles(torch.arange(3), frequencies(4).to(theta)).dtype == angle
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert angles(torch.arange(3), frequencies(4).to(theta)).dtype == angle


def test_angles_of_far_positions_are_good_to_1e_9():
    far = torch.tensor([10**6, 10**6 + 1])
    exact = [[k * 10000 ** (-2 * i / 8) for i in range(4)] for k in far.tolist()]
    a = angles(far, frequencies(8))
    torch.testing.assert_close(a, torch.tensor(exact, dtype=torch.float64), rtol=0, atol=1e-9)


def test_frequencies_are_made_where_they_are_asked_for():
    assert frequencies(6, device="meta").device.type == "meta"


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ((0,), ValueError, "width must be 1 or more, but is 0"),
        ((-4,), ValueError, "width must be 1 or more, but is -4"),
        ((4.0,), TypeError, "width must be a whole number, but is 4.0"),
        (("4",), TypeError, "width must be a whole number, but is '4'"),
        *(
            ((4, base), ValueError, f"base must be positive and finite, but is {base}")
            for base in (0, -1.0, math.nan, math.inf)
        ),
    ],
)
def test_wrong_frequencies_are_named(arguments, error, says):
    with pytest.raises(error, match=says):
        frequencies(*arguments)
