"""Serve the built book on this machine only."""

from __future__ import annotations

import http.server
import os
import sys
from functools import partial
from pathlib import Path

HTML = Path(__file__).resolve().parent.parent / "_build" / "html"


def main() -> None:
    if not (HTML / "index.html").exists():
        sys.exit("make serve: there is no book yet; `make book` builds it.")
    port = int(os.environ.get("PORT", "8000"))
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(HTML))
    try:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError:
        sys.exit(f"make serve: port {port} is taken; choose another: PORT=8001 make serve")
    print(f"The book is at http://127.0.0.1:{port}/ (Ctrl-C stops it)", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print()


if __name__ == "__main__":
    main()
