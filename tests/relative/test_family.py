"""The family table: what algebra and modules say, and that each lie would be found out."""

from __future__ import annotations

import pytest
import torch
from tests.encodings import HEAD_DIM, HEADS

from posenc import T5, ALiBi, At, Combined, DeBERTa, Encoding, Rotary, Shaw, TransformerXL
from posenc.relative import family
from posenc.relative.distances import dot_table
from posenc.symbolic import CATALOGUE

DIM = HEADS * HEAD_DIM

# encoding: terms that are kept or replaced, on values, what the logits are divided by
EXPECTED = {
    "Shaw": ("cc cp", True, r"\sqrt{d_h}"),
    "NEZHA": ("cc cp", True, r"\sqrt{d_h}"),
    "Transformer-XL": ("cc cp pc pp", False, r"\sqrt{d_h}"),
    "T5": ("cc pp", False, "1"),
    "ALiBi": ("cc pp", False, r"\sqrt{d_h}"),
    "TUPE": ("cc pp", False, r"\sqrt{2 d_h}"),
    "DeBERTa": ("cc cp pc", False, r"\sqrt{3 d_h}"),
}


def test_the_table_is_the_one_of_the_papers():
    rows = family.table()
    assert [row.name for row in rows] == list(EXPECTED)
    for row in rows:
        terms, values, divisor = EXPECTED[row.name]
        assert " ".join(sorted(row.terms)) == terms
        assert row.terms["cc"] == "" and all(row.terms[t] for t in row.terms if t != "cc")
        assert (row.values is not None) == values
        assert row.divisor == divisor


def test_parameters_are_those_of_the_module():
    rows = {row.name: row.parameters for row in family.table(dim=20, heads=4, positions=7)}
    assert rows["Shaw"] == 2 * 15 * 5
    assert rows["NEZHA"] == rows["ALiBi"] == 0
    assert rows["Transformer-XL"] == 20 * 20 + 2 * 20
    assert rows["T5"] == 32 * 4
    assert rows["TUPE"] == 7 * 20 + 2 * 20 * 20 + 2 * 4
    assert rows["DeBERTa"] == 14 * 20


@pytest.mark.parametrize(
    ("encoding", "terms"),
    [
        (Encoding(), "cc"),
        (Shaw(-1, 1, head_dim=HEAD_DIM), "cc cp"),
        (Shaw(-1, 1, value_dim=HEAD_DIM), "cc values"),
        (Combined(T5(HEADS), Shaw(-1, 1, head_dim=HEAD_DIM)), "cc cp pp"),
        (DeBERTa(DIM, 3, convention="code"), "cc cp pc"),
        (DeBERTa(DIM, 3, heads=HEADS, head_dim=HEAD_DIM), "cc cp pc"),
    ],
)
def test_measured_tells_the_terms_of_a_module(encoding, terms):
    assert " ".join(sorted(family.measured(encoding, DIM, HEADS))) == terms


def test_a_term_that_the_code_drops_shows(monkeypatch):
    def position_logits(self, q, k, at, project=None):
        keys = self._projected(project)[1]
        return dot_table(q * self.scale(q.shape[-1]), keys, self.index, at)

    monkeypatch.setattr(DeBERTa, "position_logits", position_logits)
    with pytest.raises(ValueError, match=r"DeBERTa: .*\['cc', 'cp', 'pc'\].*\['cc', 'cp'\]"):
        family.table()


def test_a_term_that_the_code_adds_shows(monkeypatch):
    given = ALiBi.position_logits
    monkeypatch.setattr(
        ALiBi,
        "position_logits",
        lambda self, q, k, at, project=None: given(self, q, k, at) + q.sum(-1, keepdim=True),
    )
    with pytest.raises(ValueError, match="ALiBi: the derivation has"):
        family.table()


def test_position_on_the_values_that_the_algebra_lacks_shows(monkeypatch):
    monkeypatch.setattr(TransformerXL, "position_values", lambda self, weights, at: weights * 0 + 1)
    with pytest.raises(ValueError, match=r"Transformer-XL: .*'values'"):
        family.table()


def test_a_term_that_the_derivation_drops_shows(monkeypatch):
    monkeypatch.setitem(CATALOGUE, "t5", CATALOGUE["deberta"])
    with pytest.raises(ValueError, match="T5: the derivation has"):
        family.table()


def test_a_part_that_is_none_of_the_four_terms_is_refused():
    class Both(Encoding):
        def position_logits(self, q, k, at: At, project=None):
            return q @ k.mT

    with pytest.raises(ValueError, match="Both has position logits that depend on query and key"):
        family.measured(Both(), DIM, HEADS)


def test_a_term_that_is_kept_has_no_sign_at_a_glance():
    rows = family.table()
    kept = rows[3]._replace(terms={**rows[3].terms, "cp": ""})
    with pytest.raises(ValueError, match=r"T5 must keep cc and no other term, .*'cp'"):
        family.glance([kept])


def test_asking_a_module_leaves_the_random_numbers_as_they_were():
    encoding = T5(HEADS)
    torch.manual_seed(3)
    expected = torch.randn(2)
    torch.manual_seed(3)
    family.measured(encoding, DIM, HEADS)
    assert torch.equal(torch.randn(2), expected)


def test_an_encoding_that_turns_queries_has_no_position_logits():
    assert family.measured(Rotary(HEAD_DIM), DIM, HEADS) == {"cc"}


def test_the_arrays_have_a_cell_for_each_term():
    rows = family.table()
    for tex, columns in ((family.glance(rows), 6), (family.in_full(rows), 5)):
        lines = tex.split("\n")[1:-1]
        assert len(lines) == 1 + len(rows)
        assert all(line.count(" & ") == columns - 1 for line in lines)
    replaced, dropped = r"\rightsquigarrow", r"\text{–}"
    t5 = next(line for line in family.glance(rows).split("\n") if "T5" in line)
    assert (t5.count(replaced), t5.count(dropped)) == (1, 3)
    assert r"\beta_{ij}" in family.in_full(rows)
