"""The build refuses what is wrong, says where, and goes on refusing until it is mended.

Each test builds a book of two pages with the real configuration and the real extensions.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

HEADER = """---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

"""
FIRST = """# First

Nothing to see, but see {eq}`eq-one`.
"""
SECOND = """# Second

A number: $x^2$.

```{code-cell} ipython3
one = 1
```

```{code-cell} ipython3
from IPython.display import display

def glue(name, mime, text):
    prefix = "application/papermill.record/"
    metadata = {"scrapbook": {"name": name, "mime_prefix": prefix}}
    display({prefix + mime: text}, raw=True, metadata=metadata)

glue("one", "text/latex", "$1 = 1$")
glue("one-check", "text/plain", "checked for all of it")
```

```{checked} one
:label: eq-one
```
"""


class MiniBook:
    """A book of two pages in a folder of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        book = root / "book"
        for name in ("_ext", "_assets"):
            shutil.copytree(ROOT / "book" / name, book / name)
        config = (ROOT / "_config.yml").read_text(encoding="utf-8")
        (root / "_config.yml").write_text(config.replace("timeout: 120", "timeout: 3"))
        (root / "_toc.yml").write_text(
            "format: jb-book\nroot: book/first\nchapters:\n- file: book/second\n"
        )
        (root / "requirements.txt").write_text("")
        (root / "lib").mkdir()
        (root / "lib" / "library.py").write_text("value = 1\n")
        (book / "references.bib").write_text("")
        (book / "first.md").write_text(FIRST)
        self.second = book / "second.md"
        self.second.write_text(HEADER + SECOND)

    def build(self, **environment: str) -> tuple[int, str]:
        command = [sys.executable, str(ROOT / "tools" / "build_book.py"), "--root", str(self.root)]
        clean = {k: v for k, v in os.environ.items() if not k.endswith("_REPOSITORY")}
        done = subprocess.run(
            command, capture_output=True, text=True, env=clean | environment, timeout=120
        )
        return done.returncode, done.stdout + done.stderr

    def edit(self, old: str, new: str) -> None:
        text = self.second.read_text()
        assert old in text
        self.second.write_text(text.replace(old, new))

    def page(self, name: str) -> str:
        return (self.root / "_build" / "html" / "book" / f"{name}.html").read_text()

    def refuses(self, *messages: str) -> None:
        """The build fails with all the messages, and so does the next one."""
        for _ in range(2):
            status, output = self.build()
            assert status != 0
            summary = output.partition("The book was NOT built")[2]
            for message in messages:
                assert message in summary, output


@pytest.fixture
def mini(tmp_path: Path) -> MiniBook:
    return MiniBook(tmp_path)


def test_a_good_book_is_built_and_stays_fast(mini: MiniBook) -> None:
    status, output = mini.build()
    assert status == 0, output
    assert "executed in" in output
    assert "index.html" in output.splitlines()[-1]
    assert "checked for all of it" in mini.page("second")
    assert "github.com" not in mini.page("second")
    assert "colab" not in mini.page("second")

    mini.edit("A number", "Another number")
    status, output = mini.build()
    assert status == 0, output
    assert "from cache" in output
    assert "Another number" in mini.page("second")

    (mini.root / "lib" / "library.py").write_text("value = 2\n")
    status, output = mini.build(POSENC_REPOSITORY="someone/something")
    assert status == 0, output
    assert "executed in" in output
    assert "github/someone/something/blob/notebooks/book/second.ipynb" in mini.page("second")
    assert "colab" not in mini.page("first")


def test_a_raising_cell(mini: MiniBook) -> None:
    mini.edit("one = 1\n", 'raise RuntimeError("the reason")\n')
    mini.refuses("book/second.md", "code cell 1 (line 17)", "RuntimeError: the reason")


def test_a_library_that_began_to_raise(mini: MiniBook) -> None:
    """The cells did not change, and the book was built: the cache alone would not notice."""
    mini.edit("one = 1\n", f'import sys; sys.path.insert(0, "{mini.root}/lib"); import library\n')
    status, output = mini.build()
    assert status == 0, output
    (mini.root / "lib" / "library.py").write_text('raise RuntimeError("broken library")\n')
    mini.refuses("book/second.md", "code cell 1", "broken library")


def test_a_cell_past_the_time_limit(mini: MiniBook) -> None:
    mini.edit("one = 1\n", "import time; time.sleep(60)\n")
    mini.refuses("book/second.md", "code cell 1", "ran for more than 3 s")


def test_faults_of_the_text_are_all_named(mini: MiniBook) -> None:
    mini.edit("A number", "See {ref}`nowhere`, {prf:ref}`thm-nowhere`, {eq}`eq-nowhere`")
    mini.edit("$x^2$", "$x^2$ and $\\frac{1}$")
    mini.edit("{checked} one", "{checked} two")
    mini.refuses(
        "book/second.md:14: WARNING: undefined label: 'nowhere'",
        "label 'thm-nowhere' not found",
        "equation not found: eq-nowhere",
        "book/second.md:14: WARNING: bad formula:",
        "no cell of this page shows a checked formula named 'two'",
    )


def test_a_label_that_another_page_needs(mini: MiniBook) -> None:
    """The page with the dead reference did not change; Sphinx alone would not look at it."""
    status, output = mini.build()
    assert status == 0, output
    mini.edit(":label: eq-one", ":label: eq-uno")
    mini.refuses("book/first.md:3: WARNING: equation not found: eq-one")
