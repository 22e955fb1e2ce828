"""The Colab button opens the generated notebook, not the chapter's source.

A chapter is a MyST Markdown file, which Colab cannot open, so the theme's button would be a dead
link.  The notebooks made from the chapters live on a branch of their own, under the same path.
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx


def to_notebook(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    branch = app.config.html_theme_options.get("repository_branch")
    for group in context.get("header_buttons", []):
        for button in group.get("buttons", []) if group.get("label") == "launch-buttons" else []:
            head, found, _ = button["url"].partition(f"/blob/{branch}/{pagename}.md")
            if found:
                button["url"] = f"{head}/blob/{app.config.book_notebooks_branch}/{pagename}.ipynb"


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_config_value("book_notebooks_branch", "notebooks", "html", str)
    # The theme adds its buttons at priority 501.
    app.connect("html-page-context", to_notebook, priority=502)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
