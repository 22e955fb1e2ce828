"""Colour for the terms of the four-term expansion inside code.

The same term has one colour everywhere.  In formulas the macro \\term gives it (book_math), in
figures the library does; here a comment of a code cell that names a term gets it, too.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

TERMS = {
    "content–content": "cc",
    "content–position": "cp",
    "position–content": "pc",
    "position–position": "pp",
}
_COMMENT = re.compile(rf'<span class="c1">(# ({"|".join(TERMS)}))</span>')


def colour_terms(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    if "body" in context:
        context["body"] = _COMMENT.sub(
            lambda match: f'<span class="c1 term-{TERMS[match[2]]}">{match[1]}</span>',
            context["body"],
        )


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", colour_terms)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
