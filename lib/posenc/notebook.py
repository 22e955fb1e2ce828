"""Showing checked results in a notebook and in the book alike."""

from __future__ import annotations

import os

from .plotting import TERM_COLOURS
from .symbolic import Derivation

# MyST-NB's mark for an output that is kept for the text and not shown below the cell. It is
# repeated here so that the chapters run where MyST-NB is not installed, Colab for one.
_GLUE = "application/papermill.record/"


def show(*derivations: Derivation) -> None:
    """Show derivations: below the cell in a notebook, in the text in the book.

    The page's `{checked}` directive calls all steps by the derivation's id, and first = last by the
    id with `-statement`.
    """
    for derivation in derivations:
        if os.environ.get("POSENC_BOOK") == "1":
            _glue(derivation.id, derivation.latex(), derivation.mark())
            _glue(f"{derivation.id}-statement", derivation.statement(), derivation.mark())
        else:
            show_formula(derivation.id, derivation.latex(), derivation.mark())


def show_formula(id: str, latex: str, mark: str) -> None:
    """Show a formula that the cell has checked by itself, as `show` shows a derivation.

    Args:
        id: what the page's `{checked}` directive calls it.
        mark: how far it was checked, in Markdown.
    """
    from IPython.display import Markdown, Math, display

    if os.environ.get("POSENC_BOOK") == "1":
        _glue(id, latex, mark)
    else:
        display(Math(with_colours(latex)), Markdown(mark))


def with_colours(latex: str) -> str:
    r"""Plain LaTeX colours for the book's own macro \term{name}{…}, which only its pages know."""
    for name, colour in TERM_COLOURS.items():
        opening = rf"\term{{{name}}}{{"
        while opening in latex:
            before, rest = latex.split(opening, 1)
            end = _closing_brace(rest)
            latex = f"{before}{{\\color{{{colour}}}{{{rest[:end]}}}}}{rest[end + 1 :]}"
    return latex


def _closing_brace(text: str) -> int:
    depth = 1
    for position, character in enumerate(text):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            return position
    raise ValueError(f"a brace is not closed in {text!r}")


def _glue(name: str, latex: str, mark: str) -> None:
    from IPython.display import display

    for key, mime, text in (
        (name, "text/latex", rf"$\displaystyle {latex}$"),
        (f"{name}-check", "text/plain", mark),
    ):
        display(
            {_GLUE + mime: text},
            raw=True,
            metadata={"scrapbook": {"name": key, "mime_prefix": _GLUE}},
        )
