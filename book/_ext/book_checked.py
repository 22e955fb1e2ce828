"""`{checked}`: a formula that a cell of the same page has just checked.

A cell proves something and hands the result over:

    posenc.notebook.show("rope-identity", derivation)

and the text shows it, numbered and referable like any other equation:

    ```{checked} rope-identity
    :label: eq-rope-identity
    ```

Nothing is typed twice: the LaTeX comes from the checked object.  `show` glues it under the name,
and under the name with `-check` a sentence saying how far it was checked, which stands below the
formula.  That sentence is inline Markdown; formulas in dollars are fine.
"""

from __future__ import annotations

from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from myst_nb.core.variables import RetrievalError
from myst_nb.ext.glue.directives import PasteMathDirective
from myst_nb.ext.glue.utils import retrieve_glue_data
from sphinx.application import Sphinx
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)


class Checked(PasteMathDirective):
    option_spec: ClassVar = {"label": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        place = (self.document.settings.env.docname, self.line)
        if "label" not in self.options:
            LOGGER.warning("checked formula %r needs a :label:", name, location=place)
            return []
        try:
            retrieve_glue_data(self.document, name)
            check = retrieve_glue_data(self.document, f"{name}-check").data["text/plain"]
        except RetrievalError:
            LOGGER.warning(
                "no cell of this page shows a checked formula named %r "
                "(posenc.notebook.show glues one, and the sentence %r with it)",
                name,
                f"{name}-check",
                location=place,
            )
            return []
        text, messages = self.state.inline_text(check, self.lineno)
        mark = nodes.paragraph("", "", *text, classes=["checked"])
        return [*super().run(), mark, *messages]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("checked", Checked)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
