// A formula wider than its box scrolls, and what scrolls must be reachable with the keyboard.
// Only those that scroll become stops of the Tab key; which ones they are depends on the window.
function markScrollable() {
  for (const box of document.querySelectorAll(".equation > .formula")) {
    if (box.scrollWidth > box.clientWidth) {
      box.tabIndex = 0;
      box.setAttribute("role", "group");
      box.setAttribute("aria-label", "Wide formula");
    } else {
      box.removeAttribute("tabindex");
      box.removeAttribute("role");
      box.removeAttribute("aria-label");
    }
  }
}

document.addEventListener("DOMContentLoaded", () => {
  markScrollable();
  document.fonts.ready.then(markScrollable);
  window.addEventListener("resize", markScrollable);
});
