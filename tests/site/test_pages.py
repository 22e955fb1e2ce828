"""Every page in a real browser: on a phone and on a desk, in the light and in the dark."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import axe_playwright_python
import pytest
from contents import pages, source
from PIL import Image
from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = pytest.mark.site

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")

#: Serious faults of the theme that a few lines of ours cannot put right: rule → why.
#: Inside the article, which is ours, nothing is allowed.
THEME_FAULTS: dict[str, str] = {}

#: Text that the reader sees, without code and formulas: leftovers of markup show in it.
PROSE = """() => {
  const article = document.querySelector("article").cloneNode(true);
  article.querySelectorAll("pre, code, .katex, script").forEach((node) => node.remove());
  return article.textContent;
}"""
LEFTOVERS = ("$$", "\\(", "\\[", "\\begin", "```", ":::", "{ref}", "{eq}", "{numref}", "{cite")

UNDESCRIBED = """() => [...document.images]
  .filter((image) => !image.alt.trim())
  .map((image) => `image without a description: ${image.src}`)"""

#: What makes the page scroll sideways: boxes that stick out and have no scrolling box around them.
TOO_WIDE = """() => {
  const root = document.documentElement;
  const scrolls = (box) => getComputedStyle(box).overflowX !== "visible";
  const inside = (box) =>
    box.parentElement && (scrolls(box.parentElement) || inside(box.parentElement));
  const faults = [...document.querySelectorAll("article *")]
    .filter((box) => box.getBoundingClientRect().right > root.clientWidth + 1 && !inside(box))
    .map((box) => `wider than the window: ${box.outerHTML.slice(0, 120)}`);
  if (root.scrollWidth > root.clientWidth) faults.push("the page scrolls sideways");
  return faults;
}"""

VIOLATIONS = """async (options) => {
  // Thousands of boxes that only draw formulas, and that are hidden from assistive technology.
  const context = {exclude: [".katex"]};
  const {violations} = await axe.run(context, {preload: false, ...options});
  return violations.flatMap((violation) => violation.nodes.map((node) => ({
    rule: violation.id,
    impact: node.impact,
    html: node.html.slice(0, 200),
    ours: !!document.querySelector(node.target.at(-1))?.closest("article"),
  })));
}"""

#: Each coloured term with its colour and the colour behind it: axe does not look into formulas.
TERM_COLOURS = """() => {
  const behind = (box) => {
    const colour = getComputedStyle(box).backgroundColor;
    return colour.startsWith("rgb(") || !box.parentElement ? colour : behind(box.parentElement);
  };
  const terms = [...document.querySelectorAll("article [class*='term-']")]
    .filter((box) => box.checkVisibility())
    .map((box) => `${box.className} ${getComputedStyle(box).color} ${behind(box)}`);
  return [...new Set(terms)];
}"""


@pytest.fixture(params=[390, 1280])
def width(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(params=["light", "dark"])
def theme(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def windows(chromium: Browser) -> dict[tuple[int, str], BrowserContext]:
    """One window for each width and theme; its pages share the browser's cache."""
    return {
        (width, theme): chromium.new_context(
            viewport={"width": width, "height": 800}, color_scheme=theme, reduced_motion="reduce"
        )
        for width in (390, 1280)
        for theme in ("light", "dark")
    }


@contextmanager
def opened(window: BrowserContext, address: str, page: str, faults: list[str]) -> Iterator[Page]:
    """A page of the book; what its loading complains about is added to the faults."""
    tab = window.new_page()
    tab.on("console", lambda m: m.type == "error" and faults.append(f"console: {m.text}"))
    tab.on("pageerror", lambda error: faults.append(f"script error: {error}"))
    tab.on("requestfailed", lambda r: faults.append(f"request failed: {r.url}"))
    tab.on("response", lambda r: r.status >= 400 and faults.append(f"{r.status}: {r.url}"))
    tab.on(
        "request",
        lambda r: r.url.startswith((address, "data:")) or faults.append(f"foreign: {r.url}"),
    )
    tab.goto(f"{address}/book/{page}.html", wait_until="load")
    tab.evaluate("document.fonts.ready")
    yield tab
    tab.close()


def keyboard(tab: Page) -> list[str]:
    """The first Tab offers to skip the navigation; after that, the next is inside the text."""
    tab.keyboard.press("Tab")
    focused = tab.evaluate("document.activeElement.textContent.trim()")
    if focused != "Skip to main content":
        return [f"the first Tab reaches {focused!r}, not the link that skips the navigation"]
    # It slides in from above the window.
    tab.wait_for_function("document.activeElement.getBoundingClientRect().top >= 0")
    tab.keyboard.press("Enter")
    tab.keyboard.press("Tab")
    inside = tab.evaluate("!!document.activeElement.closest('main')")
    return [] if inside else ["after skipping the navigation, Tab is not in the text"]


def accessibility(tab: Page, theme: str) -> list[str]:
    # Everything but colours is the same in the dark.
    options = {} if theme == "light" else {"runOnly": ["color-contrast"]}
    tab.evaluate(AXE)
    return [
        f"axe {fault['rule']} ({fault['impact']}): {fault['html']}"
        for fault in tab.evaluate(VIOLATIONS, options)
        if fault["ours"]
        or (fault["impact"] in ("serious", "critical") and fault["rule"] not in THEME_FAULTS)
    ]


def luminance(colour: tuple[int, ...]) -> float:
    """Relative luminance of an sRGB colour, as WCAG defines it."""

    def linear(value: float) -> float:
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(value / 255) for value in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def pale_terms(tab: Page) -> list[str]:
    """Coloured terms that do not stand out from their ground."""
    faults = []
    for term in tab.evaluate(TERM_COLOURS):
        ink, ground = (
            tuple(map(int, colour)) for colour in re.findall(r"rgb\((\d+), (\d+), (\d+)\)", term)
        )
        if contrast(ink, ground) < 4.5:
            faults.append(f"contrast {contrast(ink, ground):.1f}: {term}")
    return faults


def pale_figures(tab: Page) -> list[str]:
    """Figures whose darkest ink does not stand out from their ground as shown."""
    faults = []
    for figure in tab.locator("article img").all():
        if figure.is_visible():
            shown = Image.open(io.BytesIO(figure.screenshot())).convert("RGB")
            inner = shown.crop((12, 12, shown.width - 12, shown.height - 12))
            counts = inner.getcolors(inner.width * inner.height)
            _, ground = max(counts)
            ink = min((colour for _, colour in counts), key=luminance)
            if contrast(ink, ground) < 4.5:
                name = figure.get_attribute("src")
                faults.append(f"{name}: contrast {contrast(ink, ground):.1f}")
    return faults


@pytest.mark.parametrize("page", pages())
def test_page(
    windows: dict[tuple[int, str], BrowserContext],
    address: str,
    page: str,
    width: int,
    theme: str,
) -> None:
    faults: list[str] = []
    with opened(windows[width, theme], address, page, faults) as tab:
        if tab.locator("html").get_attribute("data-theme") != theme:
            faults.append(f"the page does not follow the system's {theme} theme")
        prose = tab.evaluate(PROSE)
        faults += [f"markup left in the text: {mark}" for mark in LEFTOVERS if mark in prose]
        if "$" in source(page) and not tab.locator("article .katex").count():
            faults.append("no formula was typeset")
        faults += tab.evaluate(UNDESCRIBED)
        faults += tab.evaluate(TOO_WIDE)
        faults += accessibility(tab, theme)
        faults += pale_terms(tab)
        if theme == "dark" and width == 1280:
            faults += pale_figures(tab)
        if theme == "light":
            faults += keyboard(tab)
    assert not faults, "\n".join([page, *dict.fromkeys(faults)])
