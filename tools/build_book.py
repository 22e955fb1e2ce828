"""Execute every chapter and build the HTML, with every warning an error.

    python tools/build_book.py [--notebooks] [--cold] [--out DIR] [--root DIR]

The book goes to DIR/html, and the notebooks to DIR/notebooks and, without the solutions, to
DIR/students.  Jupyter Book's configuration (_config.yml, _toc.yml) is read by Jupyter
Book itself; Sphinx is then started here and not by `jb build`, for the sake of what the reader of
the terminal sees (which chapter is running, how long each took, what exactly failed) and of three
promises:

* The results on the pages are those of the present code.  The execution cache is keyed on a hash of
  lib/, requirements.txt and pyproject.toml.
* A fault fails every build until it is mended.  Sphinx reports a fault only when it reads or writes
  the page again, so a second build over the same folder would pass; after a build that failed or
  was interrupted, the next one therefore starts from the sources (executed cells stay cached).
* Nothing is guessed about where the book is published.  The repository's name comes from
  POSENC_REPOSITORY or GITHUB_REPOSITORY (owner/name), or from a git remote at github.com; without
  one there are no buttons that would need it, and no links from the notebooks.  The site's address
  is that of the repository's GitHub Pages, or POSENC_SITE_URL, and the notebooks' branch is
  `notebooks`, or POSENC_NOTEBOOKS_BRANCH.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from docutils import nodes
from jupyter_book.config import get_final_config
from sphinx.application import Sphinx
from sphinx.errors import SphinxError
from sphinx.util.docutils import docutils_namespace, patch_docutils

ROOT = Path(__file__).resolve().parent.parent
ANSI = re.compile(r"\x1b\[[0-9;]*m")
COLAB = "https://colab.research.google.com"
#: Jupyter Book loads them in any case.  We use neither, and the first is the one extension whose
#: script makes the browser's console complain on every page.
UNUSED = {"sphinx_thebe", "sphinx_comments"}


def hash_of(*paths: Path) -> str:
    """A hash of the Python files under folders, and of single files."""
    digest = hashlib.sha256(sys.version.encode())
    for path in paths:
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        for file in files:
            if file.exists():
                digest.update(file.relative_to(path.parent).as_posix().encode())
                digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def repository(root: Path) -> str | None:
    """The owner/name of the repository on GitHub, where it is known."""
    for variable in ("POSENC_REPOSITORY", "GITHUB_REPOSITORY"):
        if name := os.environ.get(variable):
            if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
                sys.exit(f"make book: {variable} is {name!r}; expected owner/name.")
            return name
    command = ["git", "-C", str(root), "remote", "get-url", "origin"]
    remote = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    found = re.fullmatch(r".*github\.com[:/]([\w.-]+/[\w.-]+?)(\.git)?/?", remote)
    return found[1] if found else None


def site_url(repository: str) -> str:
    """Where GitHub Pages publishes a repository, unless POSENC_SITE_URL says otherwise."""
    owner, name = repository.lower().split("/")
    folder = "" if name == f"{owner}.github.io" else f"{name}/"
    return os.environ.get("POSENC_SITE_URL", f"https://{owner}.github.io/{folder}")


def commit(root: Path) -> str:
    """The commit that is checked out, or "" outside a checkout."""
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def configuration(root: Path, out: Path) -> dict[str, Any]:
    """Sphinx's configuration: what _config.yml says, and what depends on this machine."""
    config, _ = get_final_config(
        user_yaml=root / "_config.yml",
        sourcedir=root,
        cli_config={
            "external_toc_path": "_toc.yml",
            "nitpicky": True,
            "latex_individualpages": False,
        },
    )
    config["extensions"] = [name for name in config["extensions"] if name not in UNUSED]
    config.pop("comments_config")  # a setting of the latter
    code = hash_of(root / "lib", root / "requirements.txt", root / "pyproject.toml")
    config["nb_execution_cache_path"] = str(out / "executed" / code)
    config["book_code_hash"] = f"{code} {hash_of(root / 'book' / '_ext', root / '_config.yml')}"
    if name := repository(root):
        config["html_theme_options"] |= {
            "repository_url": f"https://github.com/{name}",
            "repository_branch": "main",
            "use_repository_button": True,
            "use_issues_button": True,
            "launch_buttons": {"colab_url": COLAB},
        }
        config["html_baseurl"] = site_url(name)
        config["book_notebooks_branch"] = os.environ.get("POSENC_NOTEBOOKS_BRANCH", "notebooks")
        config["book_install_source"] = f"git+https://github.com/{name}@{commit(root)}"
    return config


class Warnings:
    """Where Sphinx writes its warnings: each is shown at once, and kept for the end."""

    def __init__(self, root: Path) -> None:
        self.root = f"{root}{os.sep}"
        self.found: list[str] = []

    def write(self, text: str) -> None:
        text = ANSI.sub("", text).replace(self.root, "")
        if text.strip() and text.strip() not in self.found:
            self.found.append(text.strip())
            print(f"  ! {text.strip()}", file=sys.stderr, flush=True)

    def flush(self) -> None:
        pass


class Progress:
    """Says which chapter is running, and how long it took."""

    def __init__(self, app: Sphinx) -> None:
        self.app = app
        self.current = ""
        self.started = 0.0
        app.connect("source-read", self.start)
        app.connect("doctree-read", self.stop, priority=900)

    def start(self, app: Sphinx, docname: str, source: list[str]) -> None:
        self.current, self.started = docname, time.time()
        print(f"  {docname.removeprefix('book/'):<32}", end="", flush=True)

    def stop(self, app: Sphinx, doctree: nodes.document) -> None:
        data = getattr(app.env, "nb_metadata", {}).get(self.current, {}).get("exec_data")
        if not data:
            note = ""
        elif data["mtime"] < self.started:
            note = "from cache"
        else:
            note = f"executed in {data['runtime']:.1f} s"
        print(note, flush=True)
        self.current = ""


def build(root: Path, out: Path, builder: str = "html") -> list[str]:
    """Build the book into out/html, or its notebooks into out; returns the faults found."""
    unfinished = out / "unfinished"
    warnings = Warnings(root)
    fresh = unfinished.exists()
    unfinished.touch()
    progress = None
    try:
        with patch_docutils(None), docutils_namespace():
            config = configuration(root, out)
            app = Sphinx(
                srcdir=root,
                confdir=None,
                outdir=out / "html" if builder == "html" else out,
                doctreedir=out / "doctrees",
                buildername=builder,
                confoverrides=config,
                status=None,
                warning=warnings,  # type: ignore[arg-type]
                freshenv=fresh,
                warningiserror=True,
                keep_going=True,
            )
            progress = Progress(app)
            app.build()
    except Exception as error:
        chapter = f"{progress.current}.md: " if progress and progress.current else ""
        print("failed" if chapter else "", flush=True)
        if not isinstance(error, SphinxError):
            import traceback

            traceback.print_exc()
        cause = ANSI.sub("", str(error)) or type(error).__name__
        return [*warnings.found, f"{chapter}{cause}"]
    if not warnings.found and not app.statuscode:
        unfinished.unlink()
        keep = Path(config["nb_execution_cache_path"])
        for old in keep.parent.iterdir():
            if old != keep:
                shutil.rmtree(old)
    return warnings.found or (["Sphinx failed without a message"] if app.statuscode else [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=Path, default=ROOT, help="the book's sources")
    parser.add_argument("--out", type=Path, help="where to build (default: ROOT/_build)")
    parser.add_argument("--cold", action="store_true", help="forget earlier builds and results")
    parser.add_argument("--notebooks", action="store_true", help="make the notebooks, too")
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    out = (arguments.out or root / "_build").resolve()
    if arguments.cold and out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)

    os.environ["POSENC_BOOK"] = "1"  # posenc.notebook.show glues instead of displaying
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"  # the kernel of this environment, not the user's
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the same sums in the same order, and faster
    started = time.time()
    print("Building the book: executing chapters …", flush=True)
    try:
        faults = build(root, out)
        if arguments.notebooks and not faults:
            faults = build(root, out, "notebooks")
    except KeyboardInterrupt:
        sys.exit("\nmake book: interrupted; the next build starts from the sources.")
    if faults:
        count = "one fault" if len(faults) == 1 else f"{len(faults)} faults"
        print(f"\nThe book was NOT built: {count}.", file=sys.stderr)
        for fault in faults:
            print(f"\n* {fault}", file=sys.stderr)
        sys.exit(1)
    print(f"Done in {time.time() - started:.0f} s. The book is at {out / 'html' / 'index.html'}")
    if arguments.notebooks:
        print(f"The notebooks are in {out / 'notebooks'} (without solutions: {out / 'students'})")


if __name__ == "__main__":
    main()
