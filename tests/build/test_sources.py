"""Rules that the book's sources keep; no build needed."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import book_claims
import pytest
from contents import BOOK, ROOT, labels


def test_jupyter_book_is_1() -> None:
    """2.x reads neither _config.yml nor _toc.yml."""
    assert version("jupyter-book").split(".")[0] == "1"


def test_requirements_are_pinned() -> None:
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    for line in lines:
        if line and not line.startswith("#"):
            assert re.match(r"[a-z0-9._-]+==[\w.]+(;.*)?(\s+#.*)?$", line), line


def test_katex_is_one_version() -> None:
    """What typesets, the style sheet and the fonts belong together."""
    script = (BOOK / "_ext" / "katex" / "katex.min.js").read_text(encoding="utf-8")
    style = (BOOK / "_assets" / "katex" / "katex.min.css").read_text(encoding="utf-8")
    found = re.search(r'\.katex-version:after\{content:"([\d.]+)"', style)
    assert found and f'"{found[1]}"' in script


def test_claims_decide_something_that_exists() -> None:
    for claim in book_claims.load(BOOK / "claims.yml"):
        assert (BOOK / f"{claim['page']}.md").exists(), f"{claim['id']}: no page {claim['page']}"
        assert claim["label"] in labels(), f"{claim['id']}: no label {claim['label']}"
        text = (BOOK / f"{claim['page']}.md").read_text(encoding="utf-8")
        assert "{claims}" in text, f"{claim['id']}: {claim['page']} does not show its claims"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": "S9"}, "'a': source 'S9' is none of"),
        ({"verdict": "true"}, "'a': verdict 'true' is none of"),
        ({"because": ""}, "'a' has no 'because'"),
        ({"extra": "x"}, "'a' has fields that no claim has: .'extra'"),
    ],
)
def test_wrong_claims_are_refused(tmp_path: Path, change: dict, message: str) -> None:
    claim = dict.fromkeys(book_claims.FIELDS, "a") | {"source": "S0", "verdict": "holds"} | change
    path = tmp_path / "claims.yml"
    path.write_text("- " + "\n  ".join(f"{key}: '{value}'" for key, value in claim.items()))
    with pytest.raises(ValueError, match=message):
        book_claims.load(path)
