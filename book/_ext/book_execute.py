"""Executing the chapters, with messages that say which chapter and which cell.

MyST-NB executes a notebook through jupyter-cache, which knows neither the number of a failing cell
nor its place in the chapter's source.  Its executor is replaced by the one below, which knows both.

`book_code_hash` stands for everything outside the chapters that their results depend on: the
library, the requirements, these extensions.  When it changes, Sphinx reads every chapter anew.
tools/build_book.py computes it and keeps one execution cache per value of it.
"""

from __future__ import annotations

import re
import time
from typing import Any

import myst_nb.core.execute.cache
from jupyter_cache.executors.utils import ExecutionResult
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

ANSI = re.compile(r"\x1b\[[0-9;]*m")


class CellFailed(ExtensionError):
    """A cell raised, ran into the time limit, or killed its kernel."""

    category = "Failed cell"


def _reason(error: Exception, cell: NotebookNode, timeout: int | None) -> str:
    source = "".join(f"    | {line}\n" for line in cell.source.splitlines())
    if isinstance(error, CellTimeoutError):
        return f"ran for more than {timeout} s and was stopped\n{source}"
    if isinstance(error, DeadKernelError):
        return f"killed the Python that ran it (out of memory?)\n{source}"
    assert isinstance(error, CellExecutionError)
    # nbclient repeats the source of the cell first; the traceback itself shows the line.
    _, heading, traceback = ANSI.sub("", error.traceback).partition("Traceback (most recent")
    return f"raised {error.ename}: {ANSI.sub('', error.evalue)}\n{heading}{traceback}"


def execute(
    notebook: NotebookNode,
    cwd: str | None,
    timeout: int | None,
    allow_errors: bool,
    **_: Any,
) -> ExecutionResult:
    """Execute a notebook in place, as jupyter-cache's `single_nb_execution` does."""
    started = time.perf_counter()
    current = 0

    def note(cell: NotebookNode, cell_index: int) -> None:
        nonlocal current
        current = cell_index

    client = NotebookClient(
        notebook,
        timeout=timeout,
        allow_errors=allow_errors,
        record_timing=False,
        extra_arguments=["--log-level=ERROR"],  # else each kernel warns that it listens on TCP
        resources={"metadata": {"path": cwd}},
        on_cell_start=note,
    )
    try:
        client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        cells = notebook.cells
        number = sum(cell.cell_type == "code" for cell in cells[: current + 1])
        lines = notebook.metadata.get("source_map")
        place = f" (line {lines[current] + 1})" if lines else ""
        raise CellFailed(
            f"code cell {number}{place} {_reason(error, cells[current], timeout)}"
        ) from None
    return ExecutionResult(notebook, cwd, time.perf_counter() - started)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_config_value("book_code_hash", "", "env", str)
    myst_nb.core.execute.cache.single_nb_execution = execute
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
