"""Permanent links: every hand-given label is public.

Sphinx lists section and figure labels in objects.inv.  Theorem, exercise and equation labels are
added here, so that another course's Sphinx book can write

    {external+posenc:ref}`thm-row-sum`

and the boxes get the permalink mark that headings have.

When a label or a number changed since the last build, every page is written again: Sphinx by itself
rewrites only the pages whose own source changed, and would leave a dead link or an old number in
the others without a word.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx
from sphinx.builders import Builder
from sphinx.environment import BuildEnvironment

_BOX_TITLE = re.compile(
    r'(<div class="(?:proof|exercise|solution)[^"]*admonition" id="([^"]+)">\s*'
    r'<p class="admonition-title">.*?)(</p>)',
    re.DOTALL,
)
#: What sphinx-proof and sphinx-exercise call a box that was given no label.
_MADE_UP = re.compile(r"(.*-)?[a-z]+(-start)?-\d+")


def labels(env: BuildEnvironment) -> dict[str, tuple[str, str, str]]:
    """Label of each theorem-like box, exercise and equation → page, anchor, shown name."""

    def number(docname: str, kind: str, node_id: str) -> str:
        numbers = env.toc_fignumbers.get(docname, {}).get(kind, {}).get(node_id, ())
        return ".".join(map(str, numbers))

    found = {}
    for label, box in getattr(env, "proof_list", {}).items():
        if not _MADE_UP.fullmatch(label):
            shown = f"{box['realtype'].title()} {number(box['docname'], box['countertype'], label)}"
            found[label] = (box["docname"], label, shown.strip())
    for label, box in getattr(env, "sphinx_exercise_registry", {}).items():
        kind = box["type"].removesuffix("-start")
        if not _MADE_UP.fullmatch(label):
            shown = f"{kind.title()} {number(box['docname'], kind, label)}"
            found[label] = (box["docname"], label, shown.strip())
    for label, (docname, sequence) in env.domains["math"].data["objects"].items():
        node_id = f"equation-{label}"
        shown = f"Equation ({number(docname, 'displaymath', node_id) or sequence})"
        found[label] = (docname, node_id, shown)
    return found


def rewrite_all_if_labels_changed(app: Sphinx, env: BuildEnvironment) -> list[str]:
    state = repr(
        (
            sorted(labels(env).items()),
            sorted(env.domains["std"].data["labels"].items()),
            sorted(env.toc_secnumbers.items()),
            sorted(env.toc_fignumbers.items()),
        )
    )
    before = getattr(env, "book_labels", None)
    env.book_labels = state  # type: ignore[attr-defined]
    return [] if before in (None, state) else sorted(env.all_docs)


def publish(app: Sphinx, builder: Builder) -> None:
    std = app.env.domains["std"].data
    public = labels(app.env)
    # sphinx-exercise registers the names that it made up, too; they change with every edit.
    made_up = getattr(app.env, "sphinx_exercise_registry", {}).keys() - public.keys()
    # And Sphinx has labels for index pages that this book does not have.
    unbuilt = {label for label, place in std["labels"].items() if place[0] not in app.env.all_docs}
    for label in made_up | unbuilt:
        std["labels"].pop(label, None)
        std["anonlabels"].pop(label, None)
    std["labels"].update(public)
    std["anonlabels"].update({label: place[:2] for label, place in public.items()})


def add_permalinks(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    if "body" in context:
        link = r'\1<a class="headerlink" href="#\2" title="Permalink">#</a>\3'
        context["body"] = _BOX_TITLE.sub(link, context["body"])


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("env-updated", rewrite_all_if_labels_changed)
    app.connect("write-started", publish)
    app.connect("html-page-context", add_permalinks)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
