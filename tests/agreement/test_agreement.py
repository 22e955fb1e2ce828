"""The library agrees with published packages, and the comparison can tell where it does not."""

from __future__ import annotations

import math

import pytest
import torch

from posenc import Rotary
from tests.agreement import (
    COMPARISONS,
    Agreement,
    classic,
    recursive,
    rotary,
    sinusoidal,
    trainable,
)
from tests.agreement.result import difference


@pytest.mark.parametrize(
    "compare", COMPARISONS, ids=lambda f: f"{f.__module__.rpartition('.')[2]}.{f.__name__}"
)
def test_agrees(compare):
    result = compare()
    assert isinstance(result, Agreement)
    assert result.holds, f"{result.ours} and {result.theirs} differ by {result.difference:.3g}"
    assert result.package.rpartition(" ")[2][0].isdigit()


@pytest.mark.parametrize("module", [classic, recursive, rotary, sinusoidal, trainable])
def test_every_comparison_is_listed_once(module):
    returns = {
        f: getattr(f, "__annotations__", {}).get("return")
        for f in vars(module).values()
        if callable(f)
    }
    made = {f for f, result in returns.items() if result == "Agreement"}
    assert made == set(module.COMPARISONS) <= set(COMPARISONS)
    assert len(set(COMPARISONS)) == len(COMPARISONS)


def test_the_wrong_layout_and_a_wrong_start_would_not_agree(monkeypatch):
    half, interleaved = (
        rotary.turned(Rotary(rotary.HEAD_DIM, layout=layout))
        for layout in ("half-split", "interleaved")
    )
    assert difference(half, interleaved) > 0.1
    agreed = rotary.llama_attention()
    monkeypatch.setattr(rotary, "half_split_order", torch.arange)
    assert rotary.llama_attention_interleaved().difference > 100 * agreed.tolerance
    monkeypatch.setattr(rotary, "POSITIONS", rotary.POSITIONS + 1)
    assert rotary.gptj().difference > 0.1
    assert rotary.roformer_attention().difference > 100 * agreed.tolerance


def test_nan_never_agrees():
    result = rotary.gptj()
    assert result.holds
    assert not result._replace(difference=math.nan).holds
    assert not result._replace(difference=2 * result.tolerance).holds


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (torch.ones(2, 3), torch.ones(3)),
        (torch.ones(0), torch.ones(0)),
        (torch.ones(2), torch.zeros(2)),
    ],
)
def test_a_comparison_that_would_say_nothing_is_refused(ours, theirs):
    with pytest.raises(ValueError):
        difference(ours, theirs)
