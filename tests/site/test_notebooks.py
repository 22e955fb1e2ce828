"""The generated notebooks: plain Markdown that says what the page says, with none of MyST's own."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import book_math
import nbformat
import pytest
from book_notebooks import plain
from bs4 import BeautifulSoup
from contents import is_notebook, pages, source

pytestmark = pytest.mark.site

CHAPTERS = [page for page in pages() if is_notebook(page)]
OPENINGS = {page for page in CHAPTERS if page.endswith("/index")}
"""The pages that open a part: they ask its questions, and have no theorems and no exercises."""
FORMULA = re.compile(r"\$\$\n?(.+?)\n?\$\$|\$([^$]+?)\$", re.S)
COMMAND = re.compile(r"\\([A-Za-z]+)")
#: Seen typeset in JupyterLab. (Missing there: \footnotesize.)
KNOWN_TO_MATHJAX = re.compile(
    "Delta|alpha|approx|begin|beta|cdot|color|cos|delta|dfrac|displaystyle|div|dots|ell|end|frac|"
    "gamma|ge|hat|hline|infty|int|le|left|lfloor|ln|lVert|mapsto|mathrm|max|min|ne|operatorname|"
    "otimes|pi|qquad|quad|rfloor|right|rightsquigarrow|rVert|sigma|sin|small|sqrt|sum|tanh|text|"
    "tfrac|theta|times|top"
)
FENCE = re.compile(r"^```.*?^```$", re.S | re.M)


@pytest.fixture(params=CHAPTERS)
def page(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def notebook(site: Path, page: str) -> nbformat.NotebookNode:
    return read(site, "notebooks", page)


@pytest.fixture
def html(site: Path, page: str) -> BeautifulSoup:
    text = (site / "book" / f"{page}.html").read_text(encoding="utf-8")
    return BeautifulSoup(text, "html.parser").select_one("article")


def read(site: Path, folder: str, page: str) -> nbformat.NotebookNode:
    return nbformat.read(site.parent / folder / "book" / f"{page}.ipynb", as_version=4)


def markdown(notebook: nbformat.NotebookNode) -> str:
    return "\n\n".join(c["source"] for c in notebook["cells"] if c["cell_type"] == "markdown")


def code(notebook: nbformat.NotebookNode) -> list[str]:
    return [c["source"] for c in notebook["cells"] if c["cell_type"] == "code"]


def formulas(text: str) -> set[str]:
    """The formulas in Markdown, without the tags that number them."""
    prose = re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))
    found = (display or inline for display, inline in FORMULA.findall(prose))
    return {normal(tex) for tex in found}


def normal(tex: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"\\tag\{[^}]*\}", "", tex)).strip()


def test_each_chapter_has_its_two_notebooks_and_no_other_page_has_any(site: Path) -> None:
    for folder in ("notebooks", "students"):
        root = site.parent / folder / "book"
        found = {p.relative_to(root).with_suffix("").as_posix() for p in root.rglob("*.ipynb")}
        assert found == set(CHAPTERS)


def test_a_notebook_is_valid_and_clean(notebook: nbformat.NotebookNode) -> None:
    nbformat.validate(notebook)
    for cell in notebook["cells"]:
        assert cell["source"].strip()
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None


def test_nothing_of_myst_is_left(notebook: nbformat.NotebookNode) -> None:
    text = markdown(notebook)
    assert not re.findall(r"```+\s*\{|:::|\{[a-z]+(?::[a-z]+)*\}`|^%|^\(.*\)=$", text, re.M)
    assert "\\label" not in text and "\\eqref" not in text and "\\ref" not in text


def test_no_formula_is_torn_apart(notebook: nbformat.NotebookNode) -> None:
    """A blank line ends a paragraph, and with it a formula."""
    paragraphs = re.split(r"\n\s*\n", FENCE.sub("", markdown(notebook)))
    assert all(paragraph.count("$$") in (0, 2) for paragraph in paragraphs)


def test_every_macro_is_a_common_one(
    notebook: nbformat.NotebookNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KaTeX refuses a command that it does not know, once it has none of the book's own."""
    monkeypatch.setattr(book_math, "MACROS", {})
    for tex in formulas(markdown(notebook)):
        assert "htmlClass" not in tex
        assert book_math.typeset.__wrapped__(tex, True)


def test_every_command_is_known_to_mathjax(notebook: nbformat.NotebookNode) -> None:
    """Colab and Jupyter typeset with MathJax, which lacks some of KaTeX's commands."""
    used = {name for tex in formulas(markdown(notebook)) for name in COMMAND.findall(tex)}
    new = sorted(name for name in used if not KNOWN_TO_MATHJAX.fullmatch(name))
    assert not new, "look at it in Jupyter, then add it to KNOWN_TO_MATHJAX"


def test_formulas_are_those_of_the_page(
    notebook: nbformat.NotebookNode, html: BeautifulSoup
) -> None:
    on_page = {normal(plain(node.text)) for node in html.select("annotation")}
    assert len(on_page) > 5
    assert formulas(markdown(notebook)) == on_page


def test_numbers_are_those_of_the_page(
    page: str, notebook: nbformat.NotebookNode, html: BeautifulSoup
) -> None:
    text = markdown(notebook)
    for number in html.select(".eqno"):
        assert rf"\tag{{{number.text.strip('()# ')}}}" in text
    names = [number.text.strip() for number in html.select(".caption-number")]
    expected = {"Definition"} if page in OPENINGS else {"Exercise", "Theorem"}
    assert {name.split()[0] for name in names} >= {"Figure", *expected}
    for name in names:
        assert f"**{name}.**" in text or f"**{name}**" in text


def test_code_is_that_of_the_page(site: Path, page: str) -> None:
    cells = re.findall(
        r"^```\{code-cell\}[^\n]*\n(?:---\n.*?\n---\n)?(.*?)\n```$", source(page), re.S | re.M
    )
    setup, *rest = code(read(site, "notebooks", page))
    assert "posenc" in setup and re.search(
        r"git\+https://github\.com/[\w.-]+/[\w.-]+@[0-9a-f]{40}", setup
    )
    assert [re.sub(r"^#@title .*\n", "", cell) for cell in rest] == [c.strip() for c in cells]


def test_no_device_is_taken_for_granted(notebook: nbformat.NotebookNode) -> None:
    for cell in code(notebook):
        assert ".cuda(" not in cell
        assert '"cuda"' not in cell or "torch.cuda.is_available()" in cell


def test_students_get_the_exercises_and_not_the_solutions(site: Path, page: str) -> None:
    whole, student = read(site, "notebooks", page), read(site, "students", page)
    if page in OPENINGS:
        assert code(whole) == code(student)
        return
    assert "Solution" in str(whole["cells"]) and "Solution" not in str(student["cells"])
    exercises = re.findall(r"\*\*Exercise [\d.]+\*\*", markdown(whole))
    assert (
        len(exercises) >= 3
        and re.findall(r"\*\*Exercise [\d.]+\*\*", markdown(student)) == exercises
    )
    kept = [cell for cell in code(whole) if not cell.startswith("#@title Solution")]
    assert code(student) == kept and len(kept) < len(code(whole))


def test_solutions_are_folded(page: str, notebook: nbformat.NotebookNode) -> None:
    text = markdown(notebook)
    assert text.count("<details>") == text.count("</details>") >= (0 if page in OPENINGS else 3)
    for cell in notebook["cells"]:
        if cell["source"].startswith("#@title"):
            assert cell["metadata"]["jupyter"]["source_hidden"]
            assert cell["metadata"]["cellView"] == "form"


def test_links_lead_to_the_published_page(site: Path, notebook: nbformat.NotebookNode) -> None:
    links = re.findall(
        r"\]\(([^()\s]+(?:\([^()]*\)[^()\s]*)?)\)", FENCE.sub("", markdown(notebook))
    )
    own = [link for link in links if ".github.io/" in link]
    assert own and all(link.startswith("https://") for link in links)
    for link in own:
        url = urlsplit(link)
        path = site / "book" / url.path.split("/book/", 1)[1]
        assert path.exists(), link
        if url.fragment:
            assert f'id="{url.fragment}"' in path.read_text(encoding="utf-8"), link
