"""What `make test` does after its set-up: lint, tests, a cold build, the site in a browser.

The steps go on after a failure, so that one run tells everything; only the site tests need the
build to have succeeded.  The book is built into a folder of its own, under a made-up repository
name, so that the buttons that need one are tested, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import browser

ROOT = Path(__file__).resolve().parent.parent
COLD = ROOT / "_build" / "cold"


def run(name: str, *arguments: str) -> bool:
    print(f"\n── {name} " + "─" * (76 - len(name)), flush=True)
    started = time.time()
    passed = subprocess.run([sys.executable, *arguments], cwd=ROOT).returncode == 0
    results.append(f"{name} {'passed' if passed else 'FAILED'} ({time.time() - started:.0f} s)")
    return passed


results: list[str] = []


def main() -> None:
    started = time.time()
    browser.ensure()  # before anything long runs: without a browser there is no verdict
    os.environ.setdefault("POSENC_REPOSITORY", "example/where-am-i")
    os.environ["POSENC_SITE"] = str(COLD / "html")
    passed = run("lint", "tools/lint.py")
    passed &= run("tests", "-m", "pytest", "-q", "-n", "2")
    if run("cold build", "tools/build_book.py", "--cold", "--notebooks", "--out", str(COLD)):
        passed &= run("site", "-m", "pytest", "-q", "-n", "2", "-m", "site")
    else:
        passed = False
    print(f"\nmake test: {'; '.join(results)}.")
    print(f"make test: {'passed' if passed else 'FAILED'} in {time.time() - started:.0f} s.")
    sys.exit(not passed)


if __name__ == "__main__":
    main()
