"""Chromium, found on this machine or brought here, driven by Playwright.

The site tests and the screenshots share it.
"""

from __future__ import annotations

import contextlib
import http.server
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

#: Quiet, without a sandbox (which containers do not allow) and without calls home.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"


def find() -> str | None:
    """The Chromium of this machine: on PATH, a Mac's Chrome, or Playwright's own."""
    for name in (*NAMES, MAC):
        if path := shutil.which(name):
            return path
    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


def ensure() -> str:
    """The Chromium of this machine, installed first if there is none.

    Playwright's download is tried before the system package, because it needs no rights.
    """
    if path := find():
        return path
    print("No Chromium on this machine; installing one.", flush=True)
    attempts = [[sys.executable, "-m", "playwright", "install", "chromium"]]
    if shutil.which("apt-get") and os.geteuid() == 0:
        attempts += [["apt-get", "update", "-q"], ["apt-get", "install", "-qy", "chromium"]]
    for command in attempts:
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
        if path := find():
            return path
    sys.exit("make test: the site tests need Chromium, and installing one failed; install it.")


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    path = ensure()  # before Playwright starts: it cannot be started twice at once
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on a free port of this machine; yields the address."""
    handler = partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
