"""Pictures of every page, to look at: both widths, both themes.

    python tools/screenshots.py FOLDER [--html DIR] [--only TEXT]

A long page becomes several pictures of 1600 pixels' height at most.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import browser

ROOT = Path(__file__).resolve().parent.parent
TILE = 1600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--html", type=Path, default=ROOT / "_build" / "html")
    parser.add_argument("--only", default="", help="only pages whose name contains this")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    pages = sorted((arguments.html / "book").rglob("*.html"))
    with browser.served(arguments.html) as address, browser.chromium() as chromium:
        for width in (390, 1280):
            for theme in ("light", "dark"):
                context = chromium.new_context(
                    viewport={"width": width, "height": 800}, color_scheme=theme
                )
                tab = context.new_page()
                for path in pages:
                    name = path.relative_to(arguments.html / "book").with_suffix("").as_posix()
                    if arguments.only not in name:
                        continue
                    tab.goto(f"{address}/book/{name}.html", wait_until="networkidle")
                    height = tab.evaluate("document.documentElement.scrollHeight")
                    tab.set_viewport_size({"width": width, "height": min(height, 16000)})
                    for number, top in enumerate(range(0, min(height, 16000), TILE)):
                        size = min(TILE, height - top)
                        file = f"{name.replace('/', '-')}-{width}-{theme}-{number}.png"
                        tab.screenshot(
                            path=arguments.folder / file,
                            clip={"x": 0, "y": top, "width": width, "height": size},
                        )
                    tab.set_viewport_size({"width": width, "height": 800})
                context.close()
    print(f"The pictures are in {arguments.folder}")


if __name__ == "__main__":
    main()
