"""The pages of the book, as _toc.yml lists them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "book"


def pages() -> list[str]:
    """The pages in their order, as paths below book/ without a suffix: `relative/expansion`."""

    def walk(entry: dict) -> Iterator[str]:
        if name := entry.get("root") or entry.get("file"):
            yield name.removeprefix("book/")
        for key in ("parts", "chapters", "sections", "subtrees", "entries"):
            for child in entry.get(key, []):
                yield from walk(child)

    return list(walk(yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))))


def source(page: str) -> str:
    return (BOOK / f"{page}.md").read_text(encoding="utf-8")


def is_notebook(page: str) -> bool:
    """Whether a page has code cells, and so a notebook to open in Colab."""
    return "\nkernelspec:" in source(page).split("\n---", 1)[0]


def labels() -> set[str]:
    """The public labels that book/labels.txt lists."""
    lines = (BOOK / "labels.txt").read_text(encoding="utf-8").splitlines()
    return {line.strip() for line in lines if line.strip() and not line.startswith("#")}
