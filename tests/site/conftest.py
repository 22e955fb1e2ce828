"""The built book, served on this machine, and a browser.

`make test` says in POSENC_SITE which build to test; by hand it is the one that `make book` made.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import browser as tool
import contents
import pytest
from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def site() -> Path:
    folder = Path(os.environ.get("POSENC_SITE", contents.ROOT / "_build" / "html"))
    if not (folder / "index.html").exists():
        pytest.fail(f"there is no built book in {folder}; `make book` builds one")
    return folder


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    with tool.served(site) as url:
        yield url


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with tool.chromium() as browser:
        yield browser
