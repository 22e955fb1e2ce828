# Two commands matter: `make book` builds the book, `make test` proves it right.
# Both set themselves up. Works with GNU make 3.81, which macOS ships.

.DEFAULT_GOAL := help
.PHONY: help book notebooks serve test lint release-check setup clean

# A Python of at least 3.11 to make the environment with; `make PYTHON=/path/to/python` overrides.
CANDIDATES := python3 python3.13 python3.12 python3.11
PYTHON := $(shell for p in $(CANDIDATES); do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

PY := .venv/bin/python

help:
	@echo 'make book           build the book into _build/html'
	@echo 'make notebooks      the chapters as plain notebooks, with and without solutions'
	@echo 'make serve          show it on http://127.0.0.1:8000'
	@echo 'make test           lint, tests, a build from nothing, and the site in a browser'
	@echo 'make release-check  the slower checks that make test leaves out'
	@echo 'make lint           only the linters and the type checker'
	@echo 'make clean          remove what was built (make clean all=1: the environment, too)'

setup:
	@test -n '$(PYTHON)' || { echo 'make: the book needs Python 3.11 or newer; none of $(CANDIDATES) is. Say where one is: make PYTHON=/path/to/python' >&2; exit 1; }
	@$(PYTHON) tools/setup_env.py

book: setup
	@$(PY) tools/build_book.py

notebooks: setup
	@$(PY) tools/build_book.py --notebooks

serve: setup
	@$(PY) tools/serve.py

lint: setup
	@$(PY) tools/lint.py

test: setup
	@$(PY) tools/check.py

release-check: setup
	$(PY) -m pytest -n 2 -m release

clean:
	rm -rf _build jupyter_execute .pytest_cache .mypy_cache .ruff_cache .hypothesis
	$(if $(all),rm -rf .venv,)
