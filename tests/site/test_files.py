"""What can be read from the built files without a browser: links, labels, buttons, pictures."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup
from contents import is_notebook, labels, pages
from PIL import Image
from sphinx.util.inventory import InventoryFile

pytestmark = pytest.mark.site


@cache
def soup(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


@cache
def anchors(path: Path) -> set[str]:
    return {str(node.get("id") or node.get("name")) for node in soup(path).select("[id], a[name]")}


def built_labels(site: Path) -> set[str]:
    with (site / "objects.inv").open("rb") as stream:
        inventory = InventoryFile.load(stream, "", lambda base, path: path)
    return set(inventory["std:label"])


def test_every_page_of_the_contents_is_there(site: Path) -> None:
    assert [page for page in pages() if not (site / "book" / f"{page}.html").exists()] == []


def test_links_and_anchors_resolve(site: Path) -> None:
    dead = []
    for path in sorted(site.rglob("*.html")):
        if "_static" in path.parts:
            continue
        for link in soup(path).select("a[href], area[href]"):
            url = urlsplit(str(link["href"]))
            if url.scheme or url.netloc:
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            if target.is_dir():
                target /= "index.html"
            name = f"{path.relative_to(site)} → {link['href']}"
            if not target.exists():
                dead.append(name)
            elif target.suffix == ".html" and url.fragment:
                dead += [name] if unquote(url.fragment) not in anchors(target) else []
    assert dead == []


def test_ids_stand_once_on_a_page(site: Path) -> None:
    for page in pages():
        ids = [str(node["id"]) for node in soup(site / "book" / f"{page}.html").select("[id]")]
        twice = {name for name in ids if ids.count(name) > 1}
        # The theme has its search field and its dialogs in two places.
        ours = {
            name
            for name in twice
            if soup(site / "book" / f"{page}.html").select(f"article [id='{name}']")
        }
        assert not ours, f"{page}: {sorted(ours)}"


def test_labels_are_permanent(site: Path) -> None:
    """book/labels.txt lists every public label; links from outside must go on working."""
    listed = labels()
    built = built_labels(site)
    vanished, new = sorted(listed - built), sorted(built - listed)
    assert not vanished, f"labels that the book had and has no more: {vanished}"
    assert not new, "new labels; add these lines to book/labels.txt:\n" + "\n".join(new)


def test_boxes_and_equations_have_permalinks(site: Path) -> None:
    for page in pages():
        html = soup(site / "book" / f"{page}.html")
        for box in html.select(
            "div.proof.admonition[id], div.exercise.admonition[id], div.equation[id]"
        ):
            assert box.select(f"a[href='#{box['id']}']"), f"{page}: {box['id']}"


def test_numbers_carry_the_chapter(site: Path) -> None:
    """A theorem of chapter 3 is number 3.1, not 7."""
    for page in pages():
        html = soup(site / "book" / f"{page}.html")
        if not html.select("article h1 .section-number"):
            continue  # a page without a number of its own
        for number in html.select("div.proof .caption-number, a.eqno"):
            assert re.search(r"\d+\.\d+", number.text), f"{page}: {number.text}"


def test_colab_buttons_open_the_generated_notebook(site: Path) -> None:
    known = bool(
        soup(site / "book" / f"{pages()[0]}.html").select("a[href^='https://github.com/']")
    )
    for page in pages():
        html = soup(site / "book" / f"{page}.html")
        found = [str(a["href"]) for a in html.select("a[href*='colab.research.google.com']")]
        wanted = 1 if known and is_notebook(page) else 0
        assert len(found) == wanted, f"{page}: {found}"
        for link in found:
            pattern = rf"https://colab\.research\.google\.com/github/[\w.-]+/[\w.-]+/blob/notebooks/book/{page}\.ipynb"
            assert re.fullmatch(pattern, link), link


def test_pictures_have_an_opaque_ground(site: Path) -> None:
    """So that they can be read on a dark page, too."""
    for path in sorted((site / "_images").glob("*")):
        if path.suffix == ".png":
            image = Image.open(path).convert("RGBA")
            right, bottom = image.width - 1, image.height - 1
            corners = [
                image.getpixel(xy) for xy in [(0, 0), (right, 0), (0, bottom), (right, bottom)]
            ]
            assert all(corner[3] == 255 for corner in corners), path.name
        elif path.suffix == ".svg":
            text = path.read_text(encoding="utf-8")
            ground = re.search(r'<(?:rect|path)\b[^>]*(?:fill: #ffffff|fill="(?:#fff|white))', text)
            assert ground, f"{path.name}: no white ground"


def test_there_is_one_search_field(site: Path) -> None:
    for page in pages():
        html = soup(site / "book" / f"{page}.html")
        assert len(html.select(".bd-sidebar-primary .search-button-field")) == 1
