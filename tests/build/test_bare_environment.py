"""Every notebook runs where a Colab user runs it: beside torch, numpy, matplotlib and sympy alone.

The environment holds these four and a kernel, the folder holds the one notebook, and the notebook's
own first cell installs the library, from a wheel built here in place of the repository.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import nbformat
import pytest
import torch
from contents import ROOT, is_notebook, pages
from nbclient import NotebookClient

pytestmark = pytest.mark.release

NEEDED = ("torch", "numpy", "matplotlib", "sympy", "ipykernel")
CHAPTERS = [page for page in pages() if is_notebook(page)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):  # a copy, since a build leaves traces
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "lib" / "posenc", folder / "lib" / "posenc")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", ".", "."]
    subprocess.run(command, check=True, cwd=folder)
    return next(folder.glob("posenc-*.whl"))


@pytest.fixture(scope="module")
def notebooks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("book")
    command = [
        sys.executable,
        str(ROOT / "tools" / "build_book.py"),
        "--notebooks",
        "--out",
        str(out),
    ]
    repository = {"POSENC_REPOSITORY": "example/where-am-i"}
    subprocess.run(command, check=True, env=os.environ | repository)
    return out


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pins = [f"{name}=={version(name).split('+')[0]}" for name in NEEDED]
    subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "-q", *pins], check=True)
    return folder / "bin" / "python"


@pytest.fixture
def python(environment: Path) -> Iterator[Path]:
    """The bare environment's Python; what a notebook installs is removed again."""
    yield environment
    subprocess.run([environment, "-m", "pip", "uninstall", "-q", "-y", "posenc"], check=True)


def installed(python: Path) -> dict[str, str]:
    listed = subprocess.check_output([python, "-m", "pip", "list", "--format=json"], text=True)
    return {package["name"]: package["version"] for package in json.loads(listed)}


# Without a GPU always, and with it where there is one.
@pytest.mark.parametrize("device", ["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
@pytest.mark.parametrize("folder", ["notebooks", "students"])
@pytest.mark.parametrize("page", CHAPTERS)
def test_a_notebook_runs_alone(
    page: str,
    folder: str,
    device: str,
    notebooks: Path,
    wheel: Path,
    python: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    path = Path(shutil.copy(notebooks / folder / "book" / f"{page}.ipynb", empty))
    kernel = tmp_path / "share" / "kernels" / "bare"
    kernel.mkdir(parents=True)
    launch = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": launch, "display_name": "bare", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share"))
    monkeypatch.setenv("POSENC_SOURCE", str(wheel))
    if device == "cpu":
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.delenv("POSENC_BOOK", raising=False)

    before = installed(python)
    assert "posenc" not in before
    notebook = nbformat.read(path, as_version=4)
    for _ in range(2):  # the second time the library is there, and nothing is installed
        NotebookClient(notebook, kernel_name="bare", timeout=300).execute(cwd=str(empty))
    after = installed(python)
    assert after.pop("posenc") and after == before
    printed = json.dumps(notebook["cells"][1]["outputs"])
    assert "posenc is ready" in printed and f"device of type {device}" in printed
