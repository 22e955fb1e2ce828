"""The README's promise: one command from a fresh clone in an empty folder to a finished book."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from contents import ROOT

pytestmark = pytest.mark.release


def test_make_book_from_nothing(tmp_path: Path) -> None:
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.check_output(listed, cwd=ROOT, text=True).split("\0"):
        if name and (ROOT / name).exists():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tmp_path / name)
    # Without the environment that this test itself runs in.
    venv = str(ROOT / ".venv")
    path = os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if venv not in p)
    inherited = {"VIRTUAL_ENV", "PYTHONPATH", "MAKEFLAGS", "MAKELEVEL"}
    clean = {name: value for name, value in os.environ.items() if name not in inherited}

    def make_book(seconds: int) -> str:
        done = subprocess.run(
            ["make", "book"],
            cwd=tmp_path,
            env=clean | {"PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert make_book(3600).rstrip().endswith(str(tmp_path / "_build" / "html" / "index.html"))
    # A second one has nothing to do.
    assert "executed in" not in make_book(60)
