"""Make `.venv` and install the pinned requirements and the package into it.

Runs on any Python >= 3.11 with nothing installed; `make` calls it before everything else.  It does
nothing, in a few milliseconds, as long as requirements.txt, pyproject.toml and the interpreter are
those of the last installation: their hash is kept in the environment.

torch is the one package that is not simply taken from PyPI.  PyPI's Linux wheels carry CUDA, some
gigabytes that a machine without an NVIDIA driver has no use for, so there the same version is first
looked for in PyTorch's own index of CPU builds.  Where that index does not answer, or where pip
already knows a local wheel, pip decides as usual.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "installed"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def wanted() -> str:
    """A hash of everything that decides what has to be installed."""
    digest = hashlib.sha256()
    for part in (sys.version, sys.base_prefix, str(VENV)):
        digest.update(part.encode())
    for name in ("requirements.txt", "pyproject.toml"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def same_python() -> bool:
    """Whether there is an environment already, and it runs on this very Python."""
    if not PYTHON.exists():
        return False
    question = [str(PYTHON), "-c", "import sys; print(sys.version, sys.base_prefix)"]
    answer = subprocess.run(question, capture_output=True, text=True).stdout.strip()
    return answer == f"{sys.version} {sys.base_prefix}"


def pip(*arguments: str) -> None:
    """Run pip in the environment; its progress is shown to a person and left out of a log."""
    quiet = [] if sys.stdout.isatty() else ["--quiet", "--quiet"]
    command = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", *arguments[:1], *quiet]
    if subprocess.run([*command, *arguments[1:]]).returncode:
        sys.exit(f"make: installing failed (pip {' '.join(arguments)}); its message is above.")


def cpu_index_answers() -> bool:
    try:
        with urllib.request.urlopen(f"{CPU_INDEX}/torch/", timeout=3):
            return True
    except OSError:
        return False


def torch_is_local(requirement: str) -> bool:
    """Whether pip finds the wanted torch without any index, in a folder it was configured with."""
    probe = [str(PYTHON), "-m", "pip", "install", "--dry-run", "--no-deps", "--no-index"]
    return subprocess.run([*probe, requirement], capture_output=True).returncode == 0


def install_torch() -> None:
    """On Linux without an NVIDIA driver, take torch's CPU build where it can be had."""
    if sys.platform != "linux" or shutil.which("nvidia-smi"):
        return
    pinned = re.search(r"^torch==[\w.]+", (ROOT / "requirements.txt").read_text(), re.M)
    if pinned and not torch_is_local(pinned[0]) and cpu_index_answers():
        pip("install", "--no-deps", "--index-url", CPU_INDEX, pinned[0])


def main() -> None:
    hash_ = wanted()
    if STAMP.exists() and STAMP.read_text() == hash_:
        return
    print("Installing into .venv, once; this takes a few minutes.", flush=True)
    STAMP.unlink(missing_ok=True)
    if (
        not same_python()
        and subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)]).returncode
    ):
        sys.exit(
            "make: Python could not make a virtual environment; "
            "on Debian and Ubuntu the package python3-venv brings what is missing."
        )
    install_torch()
    pip("install", "-r", str(ROOT / "requirements.txt"))
    pip("install", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    STAMP.write_text(hash_)


if __name__ == "__main__":
    main()
