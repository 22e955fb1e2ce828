"""Two builds from nothing give the same book: every output, every figure, every notebook."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from contents import ROOT

pytestmark = pytest.mark.release


def build(out: Path) -> dict[str, bytes]:
    """A cold build's files by their names below `out`."""
    command = [sys.executable, str(ROOT / "tools" / "build_book.py"), "--cold", "--notebooks"]
    settings = {"OMP_NUM_THREADS": "1", "POSENC_REPOSITORY": "example/where-am-i"}
    subprocess.run([*command, "--out", str(out)], check=True, env=os.environ | settings)
    folders = ("html", "notebooks", "students")
    files = [p for folder in folders for p in (out / folder).rglob("*") if p.is_file()]
    return {file.relative_to(out).as_posix(): file.read_bytes() for file in files}


def test_two_cold_builds_are_equal(tmp_path: Path) -> None:
    first, second = build(tmp_path / "first"), build(tmp_path / "second")
    assert len(first) > 50 and first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []
