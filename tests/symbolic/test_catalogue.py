"""The book's own derivations: complete, printable, and refused with any slip of the pen in them."""

from __future__ import annotations

import ast
import importlib
import inspect
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator

import pytest

from posenc.symbolic import CATALOGUE, DerivationError, ShapeError

MODULES = sorted({build.__module__ for build in CATALOGUE.values()})

# of the first five pages; what comes later has tests of its own
EXTENTS = {
    "expansion": "for every size $d$ and $d_{h}$",
    "value-path": "for every size $d$ and $d_{v}$",
    "row-sum-theorem": r"for every size $d_{v}$, given $v_j = v$ and $\sum_{j} a_{ij} = 1$",
    "constant-floor": "for every positive integer $n$ and all real $c$",
    "permuted-logits": "for every size $d$, $d_{h}$ and $n$",
    "permuted-outputs": r"for every size $d$, $d_{v}$ and $n$, given $P^\top P = I$",
    "hierarchical-choice": "for every size $d$, given "
    r"$p_k = \alpha \, u_0 + (1 - \alpha) \, u_k$ and $p_0 = u_0$",
    "hierarchical-consistent": "for every size $d$",
    "hierarchical-swap": "for every size $d$",
    "cell-step": "for every size $d$",
    "sinusoidal-flow": r"for all real $t$ and $\theta$, entry by entry at 1×2",
    "sinusoidal-exponential": r"for all real $t$ and $\theta$, entry by entry at 2×2",
    "runge-kutta-linear": "for every size $d$",
    "multiply-expansion": "for every size $d$ and $d_{h}$, given "
    r"$\operatorname{diag}(p_j)^\top = \operatorname{diag}(p_j)$",
    "scale-expansion": "for every size $d$ and $d_{h}$, given "
    r"$\operatorname{diag}(p_j)^\top = \operatorname{diag}(p_j)$",
    "concatenate-expansion": "for every size $d$, $d_{h}$ and $d_{p}$",
    "nezha-values": r"for every size $d_{v}$, given $M^\top M = I$",
    "shaw-counts": "for every size $d_{v}$",
    "nezha-rotation": r"for every size $d_{h}$, given $M^\top M = I$",
    "transformer-xl-shift": "for every positive integer $n_{k}$ and $n_{q}$ "
    "and every integer $i$ and $j$",
    "sinusoid-of-a-difference": r"for all real $a$, $b$, $i$, $j$ and $\theta$",
    "deberta-from-the-key": "for every size $d$ and $d_{h}$",
    "convolution-border": "for every size $d$",
    "convolution-mirrored": "for every size $d$, given $W_{-1} = W_1$",
    "rotary-inner-product": "for all real $k_{x}$, $k_{y}$, $q_{x}$ and $q_{y}$",
    "rotary-identity": r"for all real $n$, $\theta$, $x$ and $y$",
    "rotary-relative": "for all real "
    r"$k_{x}$, $k_{y}$, $m$, $n$, $q_{x}$, $q_{y}$ and $\theta$",
    "rotary-block": r"for all real $n$, $\theta$, $x$ and $y$, entry by entry at 1×2",
    "rotary-product": r"for all real $m$, $n$ and $\theta$, entry by entry at 2×2",
    "rotary-product-4": r"for all real $m$, $n$, $\theta_{0}$ and $\theta_{1}$, "
    "entry by entry at 4×4",
    "rotary-score": r"for every size $d_{h}$, given $R_m R_n^\top = R_{m-n}$",
}


def braces_close(tex: str) -> bool:
    depth = 0
    for character in re.sub(r"\\[{}]", "", tex):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth < 0:
            return False
    return depth == 0


@pytest.mark.parametrize("id", sorted(CATALOGUE))
def test_each_derivation_is_complete(id):
    build = CATALOGUE[id]
    derivation = build()
    assert derivation.id == id and re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", id)
    assert derivation.title[0].isupper() and not derivation.title.endswith(".")
    assert inspect.getdoc(build).endswith(".")
    assert len(derivation.steps) > 1
    assert all(step.because for step in derivation.steps[1:])
    assert repr(derivation).startswith(f"<{id}: {derivation.title}. ✓ checked by machine: ")


@pytest.mark.parametrize("id", sorted(EXTENTS))
def test_each_mark_says_what_was_checked(id):
    derivation = CATALOGUE[id]()
    equalities = derivation.latex().count("\n&= ")
    steps = "1 step" if equalities == 1 else f"{equalities} steps"
    assert derivation.mark() == f"✓ checked by machine: {steps}, {EXTENTS[id]}"


@pytest.mark.parametrize("id", sorted(CATALOGUE))
def test_each_derivation_prints(id):
    derivation = CATALOGUE[id]()
    for tex in (derivation.latex(), derivation.statement()):
        assert braces_close(tex), tex
        assert tex.count(r"\left") == tex.count(r"\right") - tex.count(r"\rightsquigarrow")
        assert tex.count(r"\begin{") == tex.count(r"\end{")
        outside = re.sub(r"\\text\{[^{}]*\}", "", tex)
        assert outside.isascii(), outside
        for text in re.findall(r"\\text\{([^{}]*)\}", tex):
            assert text.count("$") % 2 == 0
            assert not set("&%#_^~\\") & set(re.sub(r"\$[^$]*\$", "", text)), text
    assert CATALOGUE[id]().latex() == derivation.latex()
    assert CATALOGUE[id]().statement() == derivation.statement()


@pytest.mark.parametrize("module", MODULES)
def test_the_catalogue_builds_formulas_only_from_checked_pieces(module):
    """`Formula(value, tex)` could say one thing and print another; chapters have no need of it."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call)
              and isinstance(node.func, ast.Name)}  # fmt: skip
    assert "Formula" not in called and "Step" not in called
    private = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    assert not [name for name in private if name.startswith("_")]


# mutants: one slip of the pen at a time


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """(what was changed where, the changed source), for each slip at each place in the code."""
    offsets = [0]
    for line in source.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    names = {token.string for token in tokens}
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        start = offsets[token.start[0] - 1] + token.start[1]
        end = offsets[token.end[0] - 1] + token.end[1]
        importing = re.match(r"\s*(from|import)\b|\s+\w+,$", token.line)
        for old, new in slips(before.string, token, after.string, bool(importing)):
            if token.type == tokenize.NAME and new and new not in names:
                continue  # Python itself would refuse it
            stop = end + len(old) - len(token.string)
            assert source[start:stop] == old, (source[start:stop], old)
            where = f"line {token.start[0]}, column {token.start[1]}: {old} → {new or 'nothing'}"
            yield where, source[:start] + new + source[stop:]


def slips(
    before: str, token: tokenize.TokenInfo, after: str, importing: bool
) -> Iterator[tuple[str, str]]:
    text = token.string
    if token.type == tokenize.OP:
        binary = before in (")", "]") or before.isidentifier() or before.isdigit()
        if text in "+-" and binary and before != "return":
            yield text, "-" if text == "+" else "+"
        elif text == "-":
            yield text, ""
        elif text == "." and after == "T":
            yield ".T", ""
    elif token.type == tokenize.NAME and not importing:
        if text in ("cos", "sin"):
            yield text, "sin" if text == "cos" else "cos"
        if text == "conjugate" and after == "(":
            yield text, ""
        for one, other in (("_i", "_j"), ("_x", "_y"), ("_m", "_n"), ("_Q", "_K")):
            if text.endswith(one) or text.endswith(other):
                yield text, text[:-2] + (other if text.endswith(one) else one)
        for one, other in (("m", "n"), ("x", "y"), ("q", "k")):
            if text in (one, other) and after != "=":
                yield text, other if text == one else one
    elif token.type == tokenize.STRING and text in ('"i"', '"j"'):
        yield text, '"j"' if text == '"i"' else '"i"'
    elif token.type == tokenize.NUMBER and text.isdigit():
        yield text, str(int(text) + 1)


def build_all(source: str, module: str, monkeypatch) -> dict[str, str]:
    """The statements of all derivations of a module whose source this is."""
    catalogue: dict = {}
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["posenc.symbolic.derivation"], "CATALOGUE", catalogue)
        names = {"__name__": module, "__package__": module.rpartition(".")[0]}
        exec(compile(source, module, "exec"), names)
    derivations = [build() for build in catalogue.values()]
    return {derivation.id: derivation.latex() for derivation in derivations}


TRUE_ALL_THE_SAME = {
    # q and k as two rows each: the derivation holds for any number of rows, and prints no shapes
    "posenc.symbolic.rotary": [
        'Letter("q", 2, d_h), Letter("k", 1',
        'Letter("q", 1, d_h), Letter("k", 2',
    ],
}
"""Slips that make no false statement, each with the reason why it is true."""


@pytest.mark.parametrize("module", MODULES)
def test_every_slip_of_the_pen_is_caught(module, monkeypatch):
    source = inspect.getsource(importlib.import_module(module))
    assert build_all(source, module, monkeypatch), "nothing was built"
    survivors, caught = [], Counter()
    for change, mutant in mutants(source):
        try:
            build_all(mutant, module, monkeypatch)
        except Exception as error:
            caught[type(error)] += 1
        else:
            line = mutant.splitlines()[int(re.search(r"\d+", change).group()) - 1]
            if not any(known in line for known in TRUE_ALL_THE_SAME.get(module, [])):
                survivors.append(f"{change}, in {line.strip()}")
    assert not survivors, "\n".join(survivors)
    # it is the algebra that catches them, and Python only where a slip is nonsense
    assert caught[DerivationError] + caught[ShapeError] > 0.7 * caught.total() > 7
