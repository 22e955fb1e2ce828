"""What .github/workflows/publish.yml does with files; here, so that it can be tested offline.

    python tools/publish.py settings                     what the build of this ref has to be told
    python tools/publish.py pack OUT DIR                 two archives of what was built in OUT
    python tools/publish.py push NOTEBOOKS BRANCH        add the notebooks to a branch of origin
    python tools/publish.py assemble HTML RELEASES SITE  the whole site, to be deployed

The site has the newest build of main at its root, and each release under its tag, for ever as it
was: the site is put together anew each time, from the HTML archives that the releases carry as
RELEASES/TAG/where-am-i-html.tar.gz.  Only `settings` needs more than a bare Python.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath

HTML = "where-am-i-html.tar.gz"
NOTEBOOKS = "where-am-i-notebooks.zip"
#: It becomes a folder of the site, next to book/ and _static/, and a part of a branch's name.
TAG = re.compile(r"v[0-9][0-9A-Za-z._-]*")
README = """\
The book's chapters as notebooks, made from its sources with every publication; do not edit them.

`book/` has them with solutions, `students/book/` without.
"""
ROBOT = {
    "NAME": "github-actions[bot]",
    "EMAIL": "41898282+github-actions[bot]@users.noreply.github.com",
}


class Refused(Exception):
    """The one sentence that says what is wrong."""


def check_tag(tag: str) -> None:
    if not TAG.fullmatch(tag):
        raise Refused(f"{tag!r} is no release; expected v, a digit, and letters, digits, '.-_'")


def settings(site: str, tag: str) -> dict[str, str]:
    """The variables for tools/build_book.py; SITE is the address of the root."""
    if not re.fullmatch(r"https?://[^\s/]+(/\S*)?", site):
        raise Refused(f"the site's address is {site!r}; expected https://…")
    site = site.rstrip("/") + "/"
    if not tag:
        return {"POSENC_SITE_URL": site, "POSENC_NOTEBOOKS_BRANCH": "notebooks"}
    check_tag(tag)
    return {"POSENC_SITE_URL": f"{site}{tag}/", "POSENC_NOTEBOOKS_BRANCH": f"notebooks-{tag}"}


def settings_here() -> dict[str, str]:
    """For the repository and the ref that GitHub's own variables name."""
    from build_book import ROOT, repository, site_url  # late: it brings Sphinx

    name = repository(ROOT)
    if not name:
        raise Refused("the repository is not known; set GITHUB_REPOSITORY to owner/name")
    is_tag = os.environ.get("GITHUB_REF_TYPE") == "tag"
    tag = os.environ.get("GITHUB_REF_NAME", "") if is_tag else ""
    return settings(os.environ.get("SITE") or site_url(name), tag)


def pack(out: Path, folder: Path) -> None:
    """Write the two archives of what `make notebooks` built in OUT."""
    parts = {"book": out / "notebooks" / "book", "students/book": out / "students" / "book"}
    if not (out / "html" / "index.html").exists():
        raise Refused(f"{out / 'html'} holds no book; `make notebooks` builds it")
    for part in parts.values():
        if not any(part.rglob("*.ipynb")):
            raise Refused(f"{part} holds no notebooks; `make notebooks` builds them")
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / HTML, "w:gz") as html:
        html.add(out / "html", "html")
    with zipfile.ZipFile(folder / NOTEBOOKS, "w", zipfile.ZIP_DEFLATED) as notebooks:
        notebooks.writestr("README.md", README)
        for place, part in parts.items():
            for path in sorted(part.rglob("*.ipynb")):
                notebooks.write(path, f"{place}/{path.relative_to(part).as_posix()}")


def git(folder: Path, *arguments: str, **variables: str) -> str:
    environment = os.environ | variables
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        reason = " ".join(done.stderr.split()) or f"status {done.returncode}"
        raise Refused(f"git {arguments[0]} failed: {reason}")
    return done.stdout.strip()


def push(archive: Path, branch: str, checkout: Path) -> bool:
    """Make the branch hold exactly the notebooks; False if it does already.

    It needs no work tree, forces nothing, and makes the branch, with no history but its own,
    where there is none.
    """
    with tempfile.TemporaryDirectory() as temporary:
        tree = Path(temporary) / "tree"
        try:
            with zipfile.ZipFile(archive) as notebooks:
                notebooks.extractall(tree)
        except (zipfile.BadZipFile, zlib.error, OSError) as error:
            raise Refused(f"{archive} cannot be unpacked ({error})") from error
        if not any((tree / "book").rglob("*.ipynb")):
            raise Refused(f"{archive} has no notebooks in book/")
        index = str(Path(temporary) / "index")
        repository = git(checkout, "rev-parse", "--absolute-git-dir")
        place = {"GIT_DIR": repository, "GIT_WORK_TREE": str(tree), "GIT_INDEX_FILE": index}
        git(tree, "add", "--all", "--force", ".", **place)
        new = git(tree, "write-tree", **place)

    parents = []
    if git(checkout, "ls-remote", "origin", f"refs/heads/{branch}"):
        git(checkout, "fetch", "--quiet", "--depth=1", "origin", f"refs/heads/{branch}")
        parent = git(checkout, "rev-parse", "FETCH_HEAD")
        if git(checkout, "rev-parse", f"{parent}^{{tree}}") == new:
            return False
        parents = ["-p", parent]
    who = {f"GIT_{role}_{k}": v for role in ("AUTHOR", "COMMITTER") for k, v in ROBOT.items()}
    message = f"Notebooks of {git(checkout, 'rev-parse', 'HEAD')}"
    commit = git(checkout, "commit-tree", new, *parents, "-m", message, **who)
    git(checkout, "push", "--quiet", "origin", f"{commit}:refs/heads/{branch}")
    return True


def below_html(archive: tarfile.TarFile, source: Path) -> list[tarfile.TarInfo]:
    """The files and folders of an archive, with their names below html/; anything else is refused.

    Python's own filter would make an absolute path a relative one and go on.
    """
    members = []
    for member in archive:
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts:
            raise Refused(f"{source} would write outside its folder ({member.name})")
        if not (member.isfile() or member.isdir()):
            raise Refused(f"{source} holds something else than files and folders ({member.name})")
        if path.parts[:1] != ("html",):
            raise Refused(f"{source} has {member.name}, which is not below html/")
        if path.parts[1:]:
            members.append(member.replace(name="/".join(path.parts[1:])))
    return members


def unpack(source: Path, target: Path) -> None:
    """Put a build's HTML, a folder or an archive that `pack` made, into TARGET."""
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        try:
            with tarfile.open(source) as archive:
                archive.extractall(target, below_html(archive, source), filter="data")
        except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
            raise Refused(f"{source} cannot be unpacked ({error})") from error
    if not (target / "index.html").is_file():
        raise Refused(f"{source} has no index.html")


def assemble(html: Path, releases: Path, site: Path) -> list[str]:
    """Write the site; returns the tags of the releases on it."""
    if site.exists():
        raise Refused(f"{site} exists already")
    if not releases.is_dir():
        raise Refused(f"{releases} is not a folder; without releases it has to be an empty one")
    unpack(html, site)
    tags = sorted(path.name for path in releases.iterdir())
    for tag in tags:
        check_tag(tag)
        if (site / tag).exists():
            raise Refused(f"the newest build has a {tag} of its own, where that release would be")
        unpack(releases / tag / HTML, site / tag)
    return tags


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("settings")
    command = commands.add_parser("pack")
    command.add_argument("out", type=Path)
    command.add_argument("dir", type=Path)
    command = commands.add_parser("push")
    command.add_argument("notebooks", type=Path)
    command.add_argument("branch")
    command = commands.add_parser("assemble")
    for name in ("html", "releases", "site"):
        command.add_argument(name, type=Path)
    given = parser.parse_args(arguments)
    try:
        if given.command == "settings":
            for name, value in settings_here().items():
                print(f"{name}={value}")
        elif given.command == "pack":
            pack(given.out, given.dir)
            print(f"{HTML} and {NOTEBOOKS} are in {given.dir}")
        elif given.command == "push":
            changed = push(given.notebooks, given.branch, Path.cwd())
            print(f"{given.branch} {'is pushed' if changed else 'holds these notebooks already'}")
        else:
            tags = assemble(given.html, given.releases, given.site)
            print(f"{given.site}: the newest, and {', '.join(tags) or 'no release yet'}")
    except Refused as error:
        sys.exit(f"publish: {error}.")


if __name__ == "__main__":
    main()
