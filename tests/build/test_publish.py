"""Publishing, as far as it needs no GitHub: archives, the notebooks' branch, the site's folders."""

from __future__ import annotations

import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

import publish
import pytest
from publish import HTML, NOTEBOOKS, Refused


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def built(out: Path, text: str) -> Path:
    """What `make notebooks` leaves, in small."""
    write(out / "html" / "index.html", text)
    write(out / "html" / "book" / "deep" / "page.html", text)
    write(out / "notebooks" / "book" / "deep" / "page.ipynb", f"{text} with solutions")
    write(out / "students" / "book" / "deep" / "page.ipynb", f"{text} without")
    return out


def packed(folder: Path, text: str) -> Path:
    publish.pack(built(folder / "out", text), folder)
    return folder


def tar(path: Path, *members: tarfile.TarInfo | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            archive.addfile(tarfile.TarInfo(member) if isinstance(member, str) else member)
    return path


# ── settings ──────────────────────────────────────────────────────────────────────────────────


def test_main_is_built_for_the_root() -> None:
    assert publish.settings("https://someone.github.io/book/", "") == {
        "POSENC_SITE_URL": "https://someone.github.io/book/",
        "POSENC_NOTEBOOKS_BRANCH": "notebooks",
    }


def test_a_tag_is_built_for_its_own_path_and_branch() -> None:
    assert publish.settings("https://where.example", "v1.2.0-rc.1") == {
        "POSENC_SITE_URL": "https://where.example/v1.2.0-rc.1/",
        "POSENC_NOTEBOOKS_BRANCH": "notebooks-v1.2.0-rc.1",
    }


@pytest.mark.parametrize(
    "tag", ["book", "v", "vacation", "v1/2", "../v1", "v1 2", "v1\nX=1", "v1\n"]
)
def test_what_is_no_release_is_refused(tag: str) -> None:
    with pytest.raises(Refused, match="is no release; expected v, a digit"):
        publish.settings("https://where.example/", tag)


@pytest.mark.parametrize("site", ["where.example", "https://a b/", "https://a/\nX=1", "https://"])
def test_what_is_no_address_is_refused(site: str) -> None:
    with pytest.raises(Refused, match="the site's address is"):
        publish.settings(site, "")


def test_settings_come_from_githubs_variables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("POSENC_REPOSITORY", "POSENC_SITE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GITHUB_REPOSITORY", "Some-One/Book")
    monkeypatch.setenv("GITHUB_REF_TYPE", "tag")
    monkeypatch.setenv("GITHUB_REF_NAME", "v1.0")
    monkeypatch.setenv("SITE", "")  # Pages are off
    publish.main(["settings"])
    assert capsys.readouterr().out.splitlines() == [
        "POSENC_SITE_URL=https://some-one.github.io/book/v1.0/",
        "POSENC_NOTEBOOKS_BRANCH=notebooks-v1.0",
    ]
    monkeypatch.setenv("GITHUB_REF_TYPE", "branch")
    monkeypatch.setenv("GITHUB_REF_NAME", "v2-draft")
    monkeypatch.setenv("SITE", "https://where.example")
    publish.main(["settings"])
    assert capsys.readouterr().out.splitlines() == [
        "POSENC_SITE_URL=https://where.example/",
        "POSENC_NOTEBOOKS_BRANCH=notebooks",
    ]


# ── pack ──────────────────────────────────────────────────────────────────────────────────────


def test_the_notebooks_lie_where_the_colab_button_looks(tmp_path: Path) -> None:
    packed(tmp_path, "one")
    with zipfile.ZipFile(tmp_path / NOTEBOOKS) as archive:
        names = {"README.md", "book/deep/page.ipynb", "students/book/deep/page.ipynb"}
        assert set(archive.namelist()) == names
        assert archive.read("book/deep/page.ipynb") == b"one with solutions"
        assert archive.read("students/book/deep/page.ipynb") == b"one without"


@pytest.mark.parametrize("missing", ["html/index.html", "students/book/deep/page.ipynb"])
def test_an_unfinished_build_is_not_packed(tmp_path: Path, missing: str) -> None:
    out = built(tmp_path / "out", "one")
    (out / missing).unlink()
    with pytest.raises(Refused, match="`make notebooks` builds"):
        publish.pack(out, tmp_path / "to")
    assert not (tmp_path / "to").exists()


# ── push ──────────────────────────────────────────────────────────────────────────────────────


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=Someone", "-c", "user.email=someone@example.org"]
    return subprocess.check_output(["git", *who, *arguments], cwd=folder, text=True).strip()


@pytest.fixture
def origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bare repository with one commit on main; tmp_path/checkout is a shallow clone of it."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    # Not even git's own idea of who commits is needed.
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    source, origin = tmp_path / "source", tmp_path / "origin.git"
    write(source / ".gitignore", "*.ipynb\n")
    git(source, "init", "--quiet", "--initial-branch=main")
    git(source, "add", ".gitignore")
    git(source, "commit", "--quiet", "--message=First")
    git(tmp_path, "clone", "--quiet", "--bare", str(source), str(origin))
    git(tmp_path, "clone", "--quiet", "--depth=1", origin.as_uri(), "checkout")
    return origin


def test_a_branch_is_made_then_follows(tmp_path: Path, origin: Path) -> None:
    checkout = tmp_path / "checkout"
    archive = packed(tmp_path / "one", "one") / NOTEBOOKS
    assert publish.push(archive, "notebooks", checkout)
    assert git(origin, "rev-list", "--count", "notebooks") == "1"  # nothing of main's history
    listed = git(origin, "ls-tree", "-r", "--name-only", "notebooks").splitlines()
    assert listed == ["README.md", "book/deep/page.ipynb", "students/book/deep/page.ipynb"]
    head = git(checkout, "rev-parse", "HEAD")
    assert git(origin, "log", "-1", "--format=%s", "notebooks") == f"Notebooks of {head}"

    assert not publish.push(archive, "notebooks", checkout)

    write(tmp_path / "one" / "out" / "notebooks" / "book" / "new.ipynb", "new")
    (tmp_path / "one" / "out" / "notebooks" / "book" / "deep" / "page.ipynb").unlink()
    publish.pack(tmp_path / "one" / "out", tmp_path / "two")
    git(tmp_path, "clone", "--quiet", "--depth=1", origin.as_uri(), "later")  # another run
    assert publish.push(tmp_path / "two" / NOTEBOOKS, "notebooks", tmp_path / "later")
    assert git(origin, "rev-list", "--count", "notebooks") == "2"
    listed = git(origin, "ls-tree", "-r", "--name-only", "notebooks").splitlines()
    assert listed == ["README.md", "book/new.ipynb", "students/book/deep/page.ipynb"]

    assert git(checkout, "status", "--porcelain") == ""
    assert git(checkout, "rev-parse", "HEAD") == git(origin, "rev-parse", "main") == head


def test_a_release_leaves_the_branch_of_main_alone(tmp_path: Path, origin: Path) -> None:
    checkout = tmp_path / "checkout"
    publish.push(packed(tmp_path / "one", "one") / NOTEBOOKS, "notebooks", checkout)
    before = git(origin, "rev-parse", "notebooks")
    publish.push(packed(tmp_path / "two", "two") / NOTEBOOKS, "notebooks-v1.0", checkout)
    assert git(origin, "rev-parse", "notebooks") == before
    assert git(origin, "show", "notebooks-v1.0:book/deep/page.ipynb") == "two with solutions"


def test_no_notebooks_are_never_pushed(tmp_path: Path, origin: Path) -> None:
    with zipfile.ZipFile(tmp_path / "empty.zip", "w") as archive:
        archive.writestr("README.md", "nothing here")
    write(tmp_path / "broken.zip", "no archive")
    for name, reason in (
        ("empty.zip", r"has no notebooks in book/"),
        ("broken.zip", r"cannot be unpacked"),
        ("absent.zip", r"cannot be unpacked"),
    ):
        with pytest.raises(Refused, match=reason):
            publish.push(tmp_path / name, "notebooks", tmp_path / "checkout")
    assert git(origin, "branch", "--list", "notebooks") == ""


def test_a_push_that_fails_says_why_in_one_line(tmp_path: Path, origin: Path) -> None:
    archive = packed(tmp_path / "one", "one") / NOTEBOOKS
    hook = origin / "hooks" / "pre-receive"
    write(hook, "#!/bin/sh\necho this branch is protected >&2\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(Refused, match=r"^git push failed: .*this branch is protected[^\n]*$"):
        publish.push(archive, "notebooks", tmp_path / "checkout")


# ── assemble ──────────────────────────────────────────────────────────────────────────────────


def test_the_newest_at_the_root_and_each_release_below(tmp_path: Path) -> None:
    newest = packed(tmp_path / "newest", "newest") / HTML
    releases = tmp_path / "releases"
    for tag in ("v1.0", "v1.1"):
        packed(releases / tag, tag)
    tags = publish.assemble(newest, releases, tmp_path / "site")
    assert tags == ["v1.0", "v1.1"]
    files = {
        path.relative_to(tmp_path / "site").as_posix(): path.read_text()
        for path in (tmp_path / "site").rglob("*")
        if path.is_file()
    }
    assert files == {
        f"{folder}{page}": text
        for folder, text in (("", "newest"), ("v1.0/", "v1.0"), ("v1.1/", "v1.1"))
        for page in ("index.html", "book/deep/page.html")
    }
    for path in (tmp_path / "site").rglob("*"):  # what GitHub Pages insists on
        assert not path.is_symlink()
        assert path.stat().st_mode & 0o004


def test_without_a_release_the_site_is_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    html = built(tmp_path / "out", "newest") / "html"
    (tmp_path / "releases").mkdir()
    arguments = [str(html), str(tmp_path / "releases"), str(tmp_path / "site")]
    publish.main(["assemble", *arguments])
    assert "no release yet" in capsys.readouterr().out
    assert (tmp_path / "site" / "index.html").read_text() == "newest"
    with pytest.raises(SystemExit, match=r"^publish: [^\n]*/site exists already\.$"):
        publish.main(["assemble", *arguments])


def link(name: str, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd"
    return member


@pytest.mark.parametrize(
    ("member", "reason"),
    [
        ("/html/index.html", "would write outside its folder"),
        ("html/../../escaped", "would write outside its folder"),
        ("../escaped", "would write outside its folder"),
        ("elsewhere/index.html", "is not below html/"),
        ("html", "has no index.html"),
        (link("html/index.html", tarfile.SYMTYPE), "something else than files and folders"),
        (link("html/index.html", tarfile.LNKTYPE), "something else than files and folders"),
        (link("html/index.html", tarfile.FIFOTYPE), "something else than files and folders"),
    ],
)
def test_a_strange_archive_is_refused(
    tmp_path: Path, member: tarfile.TarInfo | str, reason: str
) -> None:
    newest = built(tmp_path / "out", "newest") / "html"
    inside = tarfile.TarInfo("html")
    inside.type = tarfile.DIRTYPE
    members = [inside] if member == "html" else ["html/index.html", member]
    tar(tmp_path / "releases" / "v1.0" / HTML, *members)
    with pytest.raises(Refused, match=reason):
        publish.assemble(newest, tmp_path / "releases", tmp_path / "site")
    assert not (tmp_path / "escaped").exists()
    assert not any((tmp_path / "site").glob("v1.0/*"))


@pytest.mark.parametrize("size", [0, 10, 150])
def test_half_an_archive_is_refused(tmp_path: Path, size: int) -> None:
    newest = packed(tmp_path / "newest", "newest") / HTML
    (tmp_path / "releases").mkdir()
    newest.write_bytes(newest.read_bytes()[:size])
    with pytest.raises(Refused, match=r"cannot be unpacked"):
        publish.assemble(newest, tmp_path / "releases", tmp_path / "site")


def test_a_release_cannot_take_the_place_of_anything(tmp_path: Path) -> None:
    newest = built(tmp_path / "out", "newest") / "html"
    releases = tmp_path / "releases"
    packed(releases / "book", "intruder")
    with pytest.raises(Refused, match="'book' is no release"):
        publish.assemble(newest, releases, tmp_path / "one")
    (releases / "book").rename(releases / "v1.0")
    (newest / "v1.0").mkdir()
    with pytest.raises(Refused, match=r"has a v1\.0 of its own"):
        publish.assemble(newest, releases, tmp_path / "two")


def test_what_is_not_there(tmp_path: Path) -> None:
    newest = built(tmp_path / "out", "newest") / "html"
    with pytest.raises(Refused, match="is not a folder"):
        publish.assemble(newest, tmp_path / "releases", tmp_path / "one")
    (tmp_path / "releases" / "v1.0").mkdir(parents=True)
    with pytest.raises(Refused, match=f"v1.0/{HTML} cannot be unpacked"):
        publish.assemble(newest, tmp_path / "releases", tmp_path / "two")
