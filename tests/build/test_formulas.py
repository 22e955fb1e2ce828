"""No formula is typed by hand without a reason.

What a derivation can render comes from `{checked}`. The rest, in sentences, captions, claims and
definitions, stands in book/formulas.yml, as soon as it contains a sign or a relation: either with a
`check`, a Python expression that must come out true, or as a `definition`, which cannot be wrong.
Flip a sign in a chapter, and the formula is no longer one of those that were checked.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import sympy
import torch
import yaml
from contents import BOOK

import posenc
from posenc.probe.flaw import floors
from posenc.symbolic import CATALOGUE

_MATH = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+?)\$", re.S)
_CELL = re.compile(r"```\{code-cell\}[^\n]*\n(---\n.*?\n---\n)?.*?\n```", re.S)
_TELLING = re.compile(r"[-+=<>]|\\l?[gl]e\b|\\ne\b|\^\*|\\rightsquigarrow")


def normal(tex: str) -> str:
    """Without differences that nobody sees: space, and punctuation at the end."""
    return re.sub(r"\s+", " ", tex).strip().rstrip(".,;: ")


def typed_formulas(source: str) -> set[str]:
    """The hand-typed formulas of a page that contain a sign or a relation."""
    text = _CELL.sub(lambda cell: cell[1] or "", source)
    text = re.sub(r"`[^`\n]*`", "", text)
    found = (normal(display or inline) for display, inline in _MATH.findall(text))
    return {tex for tex in found if _TELLING.search(tex)}


def in_the_book() -> set[str]:
    pages = [*BOOK.rglob("*.md"), BOOK / "claims.yml"]
    return set().union(*(typed_formulas(page.read_text(encoding="utf-8")) for page in pages))


def ledger(path: Path = BOOK / "formulas.yml") -> dict[str, dict[str, str]]:
    entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    listed = {normal(entry["tex"]): entry for entry in entries}
    assert len(listed) == len(entries), "a formula is listed twice"
    return listed


LEDGER = ledger()
CHECKED = {tex: entry["check"] for tex, entry in LEDGER.items() if "check" in entry}


def test_every_formula_is_in_the_ledger() -> None:
    missing = sorted(in_the_book() - set(LEDGER))
    assert not missing, "checked nowhere; add to book/formulas.yml:\n" + "\n".join(missing)


def test_the_ledger_holds_nothing_else() -> None:
    unused = sorted(set(LEDGER) - in_the_book())
    assert not unused, "in no chapter any more; remove from book/formulas.yml:\n" + "\n".join(
        unused
    )


def test_every_entry_has_one_reason() -> None:
    for tex, entry in LEDGER.items():
        assert len({"check", "definition"} & set(entry)) == 1, f"{tex}: give check or definition"
        assert set(entry) <= {"tex", "check", "definition"}, f"{tex}: unknown fields"


@pytest.mark.parametrize("tex", CHECKED)
def test_what_the_ledger_checks_is_true(tex: str) -> None:
    assert evaluates_to_true(CHECKED[tex]), f"{tex} fails its check: {CHECKED[tex]}"


def evaluates_to_true(expression: str) -> bool:
    """Evaluate a check: sympy with real letters a to z and theta, torch, and the library."""
    names = {name: sympy.Symbol(name, real=True) for name in "abcdhkmnpqrstxyz"}
    names |= {"theta": sympy.Symbol("theta", real=True), "I": sympy.I, "Eq": equal}
    names |= {
        f: getattr(sympy, f) for f in ("cos", "sin", "exp", "sqrt", "conjugate", "re", "pi", "Ci")
    }
    names |= {"torch": torch, "posenc": posenc, "floors": floors, "math": math}
    names |= {"near": lambda left, right: torch.allclose(left, right, rtol=1e-12), "R": turn}
    # three different random rows q, k and p, r of width 2, for identities of matrices
    names |= {name: torch.tensor(row).double() for name, row in ROWS.items()}
    names |= {"derived": lambda id: bool(CATALOGUE[id]().steps)}
    return eval(expression, names) is True


ROWS = {"row_q": [0.3, -1.1], "row_k": [0.7, 0.2], "row_p": [-0.4, 0.9], "row_r": [1.3, 0.5]}


def turn(angle: float) -> torch.Tensor:
    """R_n for nθ = angle, on row vectors, written out."""
    c, s = math.cos(angle), math.sin(angle)
    return torch.tensor([[c, s], [-s, c]], dtype=torch.float64)


def equal(left: sympy.Expr, right: sympy.Expr) -> bool:
    gap = sympy.expand(sympy.sympify(left - right), complex=True)
    return sympy.simplify(gap) == 0


def test_a_flipped_sign_is_noticed() -> None:
    """The whole point: any one sign, flipped in any typed formula, leaves the ledger."""
    for tex in LEDGER:
        for sign, other in (("-", "+"), ("+", "-")):
            for place in (found.start() for found in re.finditer(re.escape(sign), tex)):
                flipped = tex[:place] + other + tex[place + 1 :]
                assert normal(flipped) not in LEDGER or flipped in in_the_book(), flipped


def test_a_false_check_is_noticed() -> None:
    assert not evaluates_to_true("Eq(cos(a - b), cos(a)*cos(b) - sin(a)*sin(b))")
    assert not evaluates_to_true("1")
