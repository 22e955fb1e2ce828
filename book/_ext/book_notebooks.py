"""Chapters as notebooks that read well in plain Jupyter and Colab: the builder `notebooks`.

It writes what Sphinx has already understood, and so theorems, equations and figures have their
numbers, references are links to the published page, and nothing of MyST's own syntax is left.  Two
notebooks are made of each chapter that has code: one with the solutions, folded, and one for
students without.  Outputs are left out: whoever opens a notebook runs it.

The first cell installs the library, at exactly the commit that the notebook was made from, unless
it is there already.  Where the repository is not known, there is nothing to install from, and the
cell says what to do instead.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
from book_math import MACROS
from contents import is_notebook
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.builders import Builder
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)

SETUP = """\
# The book's library, at the commit of this notebook. No other package is touched.
import importlib.util
import os
import subprocess
import sys

if importlib.util.find_spec("posenc") is None:
    source = os.environ.get("POSENC_SOURCE", {source!r})
    if not source:
        raise SystemExit("Install posenc from the book's repository: pip install --no-deps PATH")
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", source], check=True)

import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
print(f"posenc is ready; torch {{torch.__version__}} finds a device of type {{device}}.")
"""


class NotebookBuilder(Builder):
    """Writes notebooks/PAGE.ipynb and students/PAGE.ipynb."""

    name = "notebooks"
    format = "notebook"
    epilog = "The notebooks are in %(outdir)s."
    allow_parallel = False
    supported_image_types = ["image/svg+xml", "image/png"]  # noqa: RUF012 (Sphinx has it so)

    def get_outdated_docs(self) -> list[str]:
        return sorted(self.env.found_docs)  # fast, so all of them, always

    def get_target_uri(self, docname: str, typ: str | None = None) -> str:
        base = self.config.html_baseurl.rstrip("/")
        return f"{base}/{docname}.html" if base else ""

    def get_relative_uri(self, from_: str, to: str, typ: str | None = None) -> str:
        return self.get_target_uri(to, typ)

    def prepare_writing(self, docnames: set[str]) -> None:
        for folder in ("notebooks", "students"):  # or a chapter that is gone would stay
            shutil.rmtree(Path(self.outdir) / folder, ignore_errors=True)

    def write_doc(self, docname: str, doctree: nodes.document) -> None:
        page = docname.removeprefix("book/")
        if not is_notebook(page):
            return
        for folder, solutions in (("notebooks", True), ("students", False)):
            notebook = Chapter(self, docname, solutions).notebook(doctree)
            path = Path(self.outdir) / folder / "book" / f"{page}.ipynb"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(notebook, ensure_ascii=False, indent=1) + "\n", "utf-8")

    def finish(self) -> None:
        pass


class Chapter:
    """One page, turned into cells.

    There is a method for each kind of node that a page may hold; an unknown kind is a warning, and
    so fails the build.
    """

    def __init__(self, builder: NotebookBuilder, docname: str, solutions: bool) -> None:
        self.builder, self.docname, self.solutions = builder, docname, solutions
        self.page = builder.get_target_uri(docname)
        self.cells: list[dict[str, Any]] = []
        self.text: list[str] = []
        self.level = 0

    def notebook(self, doctree: nodes.document) -> dict[str, Any]:
        self.blocks(doctree)
        self.flush()
        source = self.builder.config.book_install_source
        self.cells.insert(1, self.code(SETUP.format(source=source), hidden="Set up"))
        for number, cell in enumerate(self.cells):
            cell["id"] = f"cell-{number}"
        notebook = {
            "cells": self.cells,
            "metadata": {
                "kernelspec": {
                    "display_name": "Python 3",
                    "language": "python",
                    "name": "python3",
                },
                "language_info": {"name": "python"},
            },
            "nbformat": 4,
            "nbformat_minor": 5,
        }
        nbformat.validate(notebook)
        return notebook

    # ── cells ─────────────────────────────────────────────────────────────────────────────────

    def flush(self) -> None:
        """End the Markdown cell that is being written."""
        text = re.sub(r"\n{3,}", "\n\n", "\n\n".join(self.text)).strip()
        if text:
            self.cells.append({"cell_type": "markdown", "metadata": {}, "source": text})
        self.text = []

    def code(self, source: str, hidden: str = "") -> dict[str, Any]:
        metadata: dict[str, Any] = {}
        if hidden:  # Jupyter folds the source; Colab shows a cell with a title as a form
            metadata = {"jupyter": {"source_hidden": True}, "cellView": "form"}
            source = f"#@title {hidden}\n{source}"
        return {
            "cell_type": "code",
            "execution_count": None,
            "metadata": metadata,
            "outputs": [],
            "source": source.strip("\n"),
        }

    # ── blocks ────────────────────────────────────────────────────────────────────────────────

    def blocks(self, parent: nodes.Element) -> None:
        for node in parent.children:
            self.block(node)

    def block(self, node: nodes.Node) -> None:
        kind = type(node).__name__
        handler = getattr(self, f"block_{kind}", None)
        if handler is None:
            LOGGER.warning("notebooks cannot show a %s", kind, location=node)
            return
        handler(node)

    def ignore(self, node: nodes.Element) -> None:
        pass

    block_comment = block_target = block_compound = ignore  # a compound is the table of contents

    def block_section(self, node: nodes.Element) -> None:
        self.flush()
        self.level += 1
        self.blocks(node)
        self.level -= 1

    def block_title(self, node: nodes.Element) -> None:
        title = self.inline(node)
        if self.level == 1 and self.page:
            title += f"\n\n[Read this chapter as a page]({self.page})"
        self.text.append(f"{'#' * max(self.level, 1)} {title}")
        if self.level == 1:
            self.flush()  # the set-up cell comes right after the title

    def block_paragraph(self, node: nodes.Element) -> None:
        text = self.inline(node)
        self.text.append(f"*{text}*" if "checked" in node["classes"] else text)

    def block_math_block(self, node: nodes.Element) -> None:
        tag = ""
        if node.get("number"):
            number = self.number("displaymath", node["ids"][0]) or node["number"]
            tag = rf" \tag{{{number}}}"
        # a blank line would end the formula in the middle
        latex = re.sub(r"\n\s*\n", "\n", plain(node.astext()).strip())
        self.text.append(f"$$\n{latex}{tag}\n$$")

    def block_literal_block(self, node: nodes.Element) -> None:
        language = str(node.get("language", "")).replace("ipython3", "python")
        self.text.append(f"```{language}\n{node.astext()}\n```")

    def block_container(self, node: nodes.Element) -> None:
        if node.get("nb_element") == "cell_code":
            self.cell(node)
        else:
            self.blocks(node)

    def cell(self, node: nodes.Element) -> None:
        self.flush()
        figures = list(node.findall(nodes.figure))
        hidden = ""
        if "tag_hide-input" in node["classes"]:
            hidden = "Draw the figure" if figures else "Show the code"
        self.cells.append(self.code(node[0].astext(), hidden))
        for figure in figures:
            for caption in figure.findall(nodes.caption):
                number = self.number("figure", figure["ids"][0])
                self.text.append(f"**Figure {number}.** {self.inline(caption)}")

    def block_figure(self, node: nodes.Element) -> None:
        LOGGER.warning("notebooks show only figures that a cell draws", location=node)

    def block_bullet_list(self, node: nodes.Element) -> None:
        self.text.append("\n".join(self.items(node, lambda number: "-")))

    def block_enumerated_list(self, node: nodes.Element) -> None:
        self.text.append("\n".join(self.items(node, lambda number: f"{number}.")))

    def items(self, node: nodes.Element, mark: Callable[[int], str]) -> list[str]:
        lines = []
        for number, item in enumerate(elements(node), 1):
            outside, self.text = self.text, []
            self.blocks(item)
            first, *rest = "\n\n".join(self.text).split("\n")
            self.text = outside
            lines.append(f"{mark(number)} {first}")
            lines += [f"  {line}" if line else "" for line in rest]
        return lines

    def block_table(self, node: nodes.Element) -> None:
        rows = [
            [self.cell_text(entry) for entry in elements(row)] for row in node.findall(nodes.row)
        ]
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        lines.insert(1, "|" + "---|" * len(rows[0]))
        self.text.append("\n".join(lines))

    def cell_text(self, entry: nodes.Element) -> str:
        return " ".join(self.inline(child) for child in entry.children).replace("|", r"\|")

    def block_theorem_node(self, node: nodes.Element) -> None:
        self.text.append(self.heading(node, node["realtype"].title(), node["countertype"]))
        self.content(node)

    def block_proof_node(self, node: nodes.Element) -> None:
        self.blocks(node)

    def block_admonition(self, node: nodes.Element) -> None:
        self.blocks(node)

    def block_exercise_enumerable_node(self, node: nodes.Element) -> None:
        self.flush()
        self.text.append(self.heading(node, "Exercise", "exercise"))
        self.content(node)

    def block_solution_node(self, node: nodes.Element) -> None:
        if not self.solutions:
            return
        # a fold of HTML cannot hold a code cell: it ends before each, and the cell folds itself
        self.flush()
        before = len(self.cells)
        self.content(node)
        self.flush()
        for cell in self.cells[before:]:
            if cell["cell_type"] == "markdown":
                summary = "<summary>Solution</summary>"
                cell["source"] = f"<details>{summary}\n\n{cell['source']}\n\n</details>"
            elif not cell["metadata"]:
                cell.update(self.code(cell["source"], hidden="Solution"))

    def content(self, node: nodes.Element) -> None:
        """What is in a theorem, an exercise or a solution, without its title."""
        for child in node.children:
            if isinstance(child, nodes.title):
                continue
            if isinstance(child, nodes.section):
                self.blocks(child)
            else:
                self.block(child)

    def heading(self, node: nodes.Element, kind: str, counter: str) -> str:
        titles = [child for child in node.children if isinstance(child, nodes.title)]
        title = re.sub(r"^\s*\((.*)\)\s*$", r"\1", self.inline(titles[0])) if titles else ""
        number = self.number(counter, node["ids"][0])
        return f"**{kind} {number}**" + (f" ({title})" if title else "")

    def number(self, kind: str, node_id: str) -> str:
        numbers = self.builder.env.toc_fignumbers.get(self.docname, {}).get(kind, {})
        return ".".join(map(str, numbers.get(node_id, ())))

    # ── inline ────────────────────────────────────────────────────────────────────────────────

    def inline(self, node: nodes.Node) -> str:
        if isinstance(node, nodes.Text):
            return re.sub(r"\s*\n\s*", " ", node.astext()).replace("*", r"\*")
        if isinstance(node, nodes.math):
            return f"${plain(node.astext())}$"
        if isinstance(node, nodes.literal) and not node.children[1:]:
            return f"`{node.astext()}`"
        assert isinstance(node, nodes.Element)
        inside = "".join(self.inline(child) for child in node.children)
        if isinstance(node, nodes.emphasis) or "proof-opening" in node["classes"]:
            return f"*{inside.strip()}*" + " " * inside.endswith(" ")
        if isinstance(node, nodes.strong) or "verdict" in node["classes"]:
            return f"**{inside}**"
        if isinstance(node, nodes.reference):
            return self.link(node, inside)
        if isinstance(node, nodes.image):
            LOGGER.warning("notebooks show no images in a line", location=node)
        return inside

    def link(self, node: nodes.Element, inside: str) -> str:
        inside = inside.replace("`", "")
        target = node.get("refuri", "")
        if not target and self.page:
            target = f"{self.page}#{node.get('refid', '')}"
        elif target.startswith("#"):
            target = f"{self.page}{target}" if self.page else ""
        return f"[{inside}]({target})" if target else inside


def plain(latex: str) -> str:
    """LaTeX without the book's own macros."""
    from posenc.notebook import with_colours  # late: it brings torch, which the HTML has no need of

    latex = with_colours(latex)
    for macro, meaning in MACROS.items():
        if macro != r"\term":
            parts = re.split(re.escape(macro) + r"(?![a-zA-Z])", latex)
            latex = meaning.join(parts)
    return latex


def elements(node: nodes.Element) -> list[nodes.Element]:
    return [child for child in node.children if isinstance(child, nodes.Element)]


def choose_outputs(app: Sphinx, config: Any) -> None:
    """Tell MyST-NB which outputs this builder can show, although it leaves them all out."""
    config.nb_mime_priority_overrides = [
        *config.nb_mime_priority_overrides,
        *(("notebooks", mime, 10) for mime in ("image/svg+xml", "image/png", "text/plain")),
    ]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_builder(NotebookBuilder)
    app.add_config_value("book_install_source", "", "")
    app.connect("config-inited", choose_outputs)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
