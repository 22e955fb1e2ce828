"""Small faults of the extensions that we use, put right here until they are put right there.

* sphinx-proof gives the content of every theorem the id `proof-content` and every proof the id
  `proof`; sphinx-exercise does the same with `exercise-content` and `solution-content`.  An id may
  stand on a page once, so they are taken away when
  the page is written (until then Sphinx counts with them).
* sphinx-proof forgets where in the source a proof stands, so that a fault inside a proof was
  reported at a wrong line.
* A Markdown table whose rows have headings has an empty corner, which docutils makes a heading that
  says nothing.
* docutils calls the bibliography a list and gives it children that are no list items, over which a
  screen reader trips.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx_proof.directive import ProofDirective
from sphinx_proof.domain import ProofDomain
from sphinx_proof.nodes import proof_node

EMPTY_HEADING = re.compile(r'<th class="head[^"]*">(?:<p></p>)?</th>')
REPEATED_IDS = {"proof", "proof-content", "exercise-content", "solution-content"}


class Proof(ProofDirective):
    def run(self) -> list[nodes.Node]:
        box = nodes.admonition(classes=["proof", *self.options.get("class", [])])
        self.state.nested_parse(self.content, self.content_offset, box)
        opening = nodes.inline("", "Proof. ", classes=["proof-opening"])
        if isinstance(box.children[0], nodes.paragraph):
            box.children[0].insert(0, opening)
        else:
            box.insert(0, nodes.paragraph("", "", opening))
        return [proof_node("", box)]


def drop_repeated_ids(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    for node in doctree.findall(nodes.Element):
        if node.get("ids"):
            node["ids"] = [name for name in node["ids"] if name not in REPEATED_IDS]


def mend_html(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    if "body" in context:
        body = context["body"].replace('role="doc-biblioentry"', 'role="listitem"')
        context["body"] = EMPTY_HEADING.sub("<td></td>", body)


def setup(app: Sphinx) -> dict[str, Any]:
    ProofDomain.directives["proof"] = Proof
    app.connect("doctree-resolved", drop_repeated_ids)
    app.connect("html-page-context", mend_html)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
