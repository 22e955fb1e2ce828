"""`{claims}`: what the source articles claim about this page's subject, and what came out.

book/claims.yml is a list of claims.  The directive shows those whose `page` is its own page.

    - id: rope-relative            # never changes
      source: S0                   # one of SOURCES
      section: Rotary              # the heading in the source under which the sentence stands
      claim: RoPE's score depends on the distance alone.   # in our words, inline Markdown
      verdict: holds               # one of VERDICTS
      because: The rotations compose; the angle left over is (i - j)θ.  # inline Markdown
      page: unconventional/rotary  # below book/
      label: thm-rope-relative     # the theorem, equation, figure or exercise that decides it
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

LOGGER = logging.getLogger(__name__)

CLAIMS = "book/claims.yml"
FIELDS = ("id", "source", "section", "claim", "verdict", "because", "page", "label")
VERDICTS = ("holds", "holds with a condition", "imprecise", "wrong", "not checked here")
#: The articles that the book mirrors, by short name.
SOURCES = {
    "S0": "Su, Transformer Positional Encodings that Rack Researchers’ Brains (2021)",
    "S1": "Su, Transformer Positional Encodings that Rack Researchers’ Brains (2021, in Chinese)",
    "S2": "Absolute, Relative and Rotary Positional Encoding (blog post)",
    "S3": "Su, A Theoretical Flaw in Relative Position Encoding Transformers (2022)",
}


def load(path: Path) -> list[dict[str, str]]:
    """The claims, checked against the schema.

    Raises:
        ValueError: naming the claim and the field that is wrong.
    """
    claims = yaml.safe_load(path.read_text(encoding="utf-8")) or []
    seen = set()
    for number, claim in enumerate(claims, 1):
        name = f"claim {claim.get('id', number)!r}"
        for field in FIELDS:
            if not isinstance(claim.get(field), str) or not claim[field].strip():
                raise ValueError(f"{name} has no {field!r} (a text)")
        if unknown := set(claim) - set(FIELDS):
            raise ValueError(f"{name} has fields that no claim has: {sorted(unknown)}")
        if claim["source"] not in SOURCES:
            raise ValueError(f"{name}: source {claim['source']!r} is none of {list(SOURCES)}")
        if claim["verdict"] not in VERDICTS:
            raise ValueError(f"{name}: verdict {claim['verdict']!r} is none of {list(VERDICTS)}")
        if claim["id"] in seen:
            raise ValueError(f"{name} stands there twice")
        seen.add(claim["id"])
    return claims


class Claims(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        path = Path(self.env.srcdir) / CLAIMS
        self.env.note_dependency(str(path))
        page = self.env.docname.removeprefix("book/")
        try:
            mine = [claim for claim in load(path) if claim["page"] == page]
        except (OSError, ValueError, yaml.YAMLError) as error:
            LOGGER.warning("%s: %s", CLAIMS, error, location=self.get_location())
            return []
        if not mine:
            LOGGER.warning(
                "%s has no claim whose page is %r", CLAIMS, page, location=self.get_location()
            )
        return [nodes.bullet_list("", *map(self.item, mine), classes=["claims"])]

    def item(self, claim: dict[str, str]) -> nodes.list_item:
        kind = re.sub(r"\W+", "-", claim["verdict"])
        verdict = nodes.inline("", claim["verdict"], classes=["verdict", f"verdict-{kind}"])
        source = nodes.inline(
            "", f"{SOURCES[claim['source']]}, “{claim['section']}”", classes=["source"]
        )
        return nodes.list_item(
            "",
            nodes.paragraph("", "", *self.inline(claim["claim"])),
            nodes.paragraph("", "", source, classes=["said-by"]),
            nodes.paragraph(
                "",
                "",
                verdict,
                nodes.Text(" "),
                *self.inline(claim["because"]),
                nodes.Text(" → "),
                self.link(claim["label"]),
            ),
            ids=[f"claim-{claim['id']}"],
        )

    def inline(self, text: str) -> list[nodes.Node]:
        found, messages = self.state.inline_text(text.strip(), self.lineno)
        return [*found, *messages]

    def link(self, label: str) -> addnodes.pending_xref:
        """A reference that Sphinx resolves; a label that is not there fails the build."""
        xref = addnodes.pending_xref(
            "",
            nodes.inline("", label, classes=["xref", "std", "std-ref"]),
            refdomain="std",
            # the text of a figure's `ref` would be its whole caption
            reftype="numref" if label.startswith("fig-") else "ref",
            reftarget=label,
            refdoc=self.env.docname,
            refexplicit=False,
            refwarn=True,
        )
        self.set_source_info(xref)
        return xref


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("claims", Claims)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
