"""The family table: what each relative encoding makes of the four terms, by algebra and by module.

The rows are read off the ends of the derivations. The modules are then asked the same question:
their position logits, with queries or keys set to zero, fall apart into the terms that they have.
Where the two answers differ, `table` refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..attention import Attention
from ..checks import require
from ..encoding import At, Encoding
from ..symbolic import CATALOGUE
from ..symbolic.words import Sum, Term
from .classic import Nezha, Shaw
from .deberta import DeBERTa
from .t5 import T5, TUPE, ALiBi
from .transformer_xl import TransformerXL

TERMS = ("cc", "cp", "pc", "pp")
"""Content–content, content–position, position–content, position–position."""


class Member(NamedTuple):
    """One encoding of the family.

    Attributes:
        name: as it is called.
        logits: the id of the derivation of its logit.
        values: the id of the derivation of its output; None where the values carry no position.
        make: the module, from dim, heads and the number of positions that it should tell apart.
    """

    name: str
    logits: str
    values: str | None
    make: Callable[[int, int, int], Encoding]


MEMBERS = (
    Member(
        "Shaw",
        "shaw-keys",
        "shaw-values",
        lambda d, h, n: Shaw(-n, n, head_dim=d // h, value_dim=d // h),
    ),
    Member("NEZHA", "shaw-keys", "shaw-values", lambda d, h, n: Nezha(d // h, n)),
    Member("Transformer-XL", "transformer-xl", None, lambda d, h, n: TransformerXL(d, h)),
    Member("T5", "t5", None, lambda d, h, n: T5(h)),
    Member("ALiBi", "alibi", None, lambda d, h, n: ALiBi(h)),
    Member("TUPE", "tupe", None, lambda d, h, n: TUPE(d, h, n)),
    Member("DeBERTa", "deberta", None, lambda d, h, n: DeBERTa(d, n)),
)


def derived(id: str) -> dict[str, Term]:
    """The terms that a derivation ends with, by name: its last line on which all have names."""
    for step in reversed(CATALOGUE[id]().steps):
        if isinstance(step.expression, Sum):
            terms = {t.name: t for t in step.expression.terms() if isinstance(t, Term)}
            if len(terms) == len(step.expression.terms()):
                return terms
    raise ValueError(f"the derivation {id!r} has no line on which all terms have names")


def measured(encoding: Encoding, dim: int, heads: int) -> set[str]:
    """The terms that a module has, and "values" where it puts position on the values.

    Position logits are a sum of what depends on the query alone (content–position), on the key
    alone (position–content), and on neither. Queries or keys set to zero tell them apart.

    Raises:
        ValueError: there is a part that depends on query and key, which is none of the four terms.
    """
    n, at = 5, At.sequence(5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = Attention(dim, heads, encoding).double()
        for parameter in layer.parameters():
            torch.nn.init.normal_(parameter)
        q, k = (torch.randn(1, heads, n, dim // heads, dtype=torch.float64) for _ in range(2))

    def position(q: Tensor, k: Tensor) -> Tensor:
        logits = encoding.position_logits(q, k, at, layer)
        return torch.zeros(()) if logits is None else logits.detach()

    nothing = torch.zeros_like(q)
    parts = {"pp": position(nothing, nothing)}
    parts["cp"] = position(q, nothing) - parts["pp"]
    parts["pc"] = position(nothing, k) - parts["pp"]
    both = position(q, k) - sum(parts.values())
    require(
        float(both.abs().max()) < 1e-9,
        f"{type(encoding).__name__} has position logits that depend on query and key together",
    )
    score = encoding.score(q, k, at, layer) - position(q, k)
    parts["cc"] = score.detach()
    values = encoding.position_values(torch.ones(1, heads, n, n, dtype=torch.float64), at)
    parts["values"] = torch.zeros(()) if values is None else values.detach()
    return {name for name, part in parts.items() if part.abs().max() > 1e-9}


class Row(NamedTuple):
    """A row of the table.

    Attributes:
        name: of the encoding.
        terms: LaTeX by the term's name; "" for kept as it is, and no entry for dropped.
        values: LaTeX of what is added to a value; None for nothing.
        divisor: LaTeX of what the logits are divided by.
        parameters: of the module, for the sizes that were asked for.
    """

    name: str
    terms: dict[str, str]
    values: str | None
    divisor: str
    parameters: int


def table(dim: int = 768, heads: int = 12, positions: int = 512) -> list[Row]:
    """The family, one row for each member, by algebra; refused where a module has other terms.

    Args:
        dim, heads, positions: for the number of parameters; BERT's by default.

    Raises:
        ValueError: a module and its derivation differ, and in what.
    """
    root = derived("expansion")
    rows = []
    for member in MEMBERS:
        terms = derived(member.logits)
        says = set(terms) | ({"values"} if member.values else set())
        does = measured(member.make(12, 3, 7), 12, 3)
        require(
            says == does,
            f"{member.name}: the derivation has {sorted(says)}, the module has {sorted(does)}",
        )
        latex = {
            name: "" if term.words() == root[name].words() else term.latex()
            for name, term in terms.items()
        }
        values = derived(member.values)["pp"].latex() if member.values else None
        with torch.device("meta"):
            encoding = member.make(dim, heads, positions)
        parameters = sum(parameter.numel() for parameter in encoding.parameters())
        rows.append(Row(member.name, latex, values, _divisor(encoding), parameters))
    return rows


def glance(rows: list[Row]) -> str:
    """The table as a LaTeX array that fits a phone: ⇝ replaced, – dropped.

    All keep content–content, which is left out.

    Raises:
        ValueError: one does not, or keeps another term as it is, which there is no sign for.
    """
    heads = ["", *(rf"\term{{{t}}}{{\text{{{t[0]}–{t[1]}}}}}" for t in TERMS[1:])]
    heads += ["v", r"\div"]
    lines = []
    for row in rows:
        kept = [name for name, term in row.terms.items() if not term]
        require(kept == ["cc"], f"{row.name} must keep cc and no other term, but keeps {kept}")
        cells = [row.terms.get(name) for name in TERMS[1:]] + [row.values]
        signs = [r"\text{–}" if cell is None else r"\rightsquigarrow" for cell in cells]
        coloured = [
            rf"\term{{{name}}}{{{sign}}}" for name, sign in zip(TERMS[1:], signs[:-1], strict=True)
        ]
        lines.append([rf"\text{{{row.name}}}", *coloured, signs[-1], row.divisor])
    return r"{\small" + _array("l|ccc|cc", heads, lines) + "}"


def in_full(rows: list[Row]) -> str:
    """The terms that stand in the place of the root's, as a LaTeX array."""
    heads = ["", *(rf"\term{{{name}}}{{\text{{{_label(name)}}}}}" for name in TERMS[1:])]
    heads.append(r"\text{on values}")
    lines = []
    for row in rows:
        terms = (row.terms.get(name, r"\text{–}") for name in TERMS[1:])
        lines.append([rf"\text{{{row.name}}}", *terms, row.values or r"\text{–}"])
    return _array("l|ccc|c", heads, lines)


def _array(columns: str, heads: list[str], lines: list[list[str]]) -> str:
    body = [" & ".join(line) + r" \\[0.6ex]" for line in lines]
    top = " & ".join(heads) + r" \\ \hline"
    return "\n".join([rf"\begin{{array}}{{{columns}}}", top, *body, r"\end{array}"])


def _label(name: str) -> str:
    return derived("expansion")[name].label


def _divisor(encoding: Encoding) -> str:
    if encoding.scale(4) == encoding.scale(9):
        return "1"
    factor = round(1 / (encoding.scale(4) ** 2 * 4))
    return rf"\sqrt{{{factor} d_h}}" if factor > 1 else r"\sqrt{d_h}"
