"""The library agrees with published packages, and the comparison can tell where it does not."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch

from posenc import T5, ALiBi, DeBERTa, Encoding, Rotary, TransformerXL
from tests.agreement import (
    COMPARISONS,
    Agreement,
    classic,
    deberta,
    recursive,
    rotary,
    sinusoidal,
    t5,
    trainable,
    transformer_xl,
)
from tests.agreement.result import ORACLE, difference


@pytest.mark.parametrize(
    "compare", COMPARISONS, ids=lambda f: f"{f.__module__.rpartition('.')[2]}.{f.__name__}"
)
def test_agrees(compare):
    result = compare()
    assert isinstance(result, Agreement)
    assert result.holds, f"{result.ours} and {result.theirs} differ by {result.difference:.3g}"
    assert result.package.rpartition(" ")[2][0].isdigit()


@pytest.mark.parametrize(
    "module", [classic, deberta, recursive, rotary, sinusoidal, t5, trainable, transformer_xl]
)
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


@pytest.mark.parametrize(
    ("kind", "method", "compare"),
    [
        *((TransformerXL, "rows", compare) for compare in transformer_xl.COMPARISONS),
        (T5, "bias", t5.encoder),
        (T5, "bias", t5.decoder),
        (T5, "bias", t5.x_transformers_bias),
        (ALiBi, "bias", t5.bloom),
        (ALiBi, "bias", t5.mpt),
        *((DeBERTa, "index", compare) for compare in deberta.COMPARISONS),
    ],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_a_distance_of_the_wrong_sign_would_not_agree(monkeypatch, kind, method, compare):
    of = getattr(kind, method)
    monkeypatch.setattr(kind, method, lambda self, distance: of(self, -distance))
    assert compare().difference > 1000 * ORACLE


def test_a_bucket_of_the_wrong_sign_would_not_agree(monkeypatch):
    bucket = t5.bucket
    monkeypatch.setattr(t5, "bucket", lambda r, *rest, **also: bucket(-r, *rest, **also))
    assert t5.buckets().difference >= 1


def test_a_scaled_t5_and_a_one_sided_alibi_would_not_agree(monkeypatch):
    monkeypatch.setattr(T5, "scale", Encoding.scale)
    assert t5.encoder().difference > 1000 * ORACLE
    assert t5.decoder().difference > 1000 * ORACLE
    monkeypatch.setattr(t5, "ALiBi", partial(ALiBi, symmetric=False))
    assert t5.x_transformers_alibi().difference > 1000 * ORACLE


@pytest.mark.parametrize(
    "compare", [deberta.version_1, deberta.version_2, deberta.version_2_with_buckets]
)
def test_the_papers_index_would_not_agree_with_published_debertas(monkeypatch, compare):
    monkeypatch.setattr(deberta, "INDEX", "paper")
    assert compare().difference > 1000 * ORACLE


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
