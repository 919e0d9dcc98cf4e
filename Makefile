# Every target does its own set-up: a virtual environment in .venv, made with nothing but python3 (>= 3.11), pip and make.
# PYTHON chooses the interpreter; JOBS the number of test processes.

PYTHON ?= python3
JOBS   ?= 2
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup check test bench peers demo docs loc clean

help:            ## this list
	@echo "make <target>:"
	@sed -n 's/^\([a-z]*\): *[^#]*## *\(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

setup: $(STAMP)  ## virtual environment in .venv with polyc and what its tests need

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "polyc needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[dev]'
	@touch $@

check: $(STAMP)  ## formatting, lint, types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(STAMP)   ## the test suite
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

bench: $(STAMP)  ## speed against NumPy and PyTorch, as ratios in one run (ARGS="softmax dot --threads 1")
	$(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/python -m pip install --disable-pip-version-check torch==2.13.0 \
	  || echo "PyTorch could not be installed: it is left out"
	$(BIN)/python -m benchmarks $(ARGS)

peers: $(STAMP)  ## environments in .venv-peers for what make bench compares with (ARGS="jax onnxruntime" for some of it)
	$(BIN)/python -m benchmarks.environments $(ARGS)

demo: $(STAMP)   ## compile and run the operators under examples/ on inputs of real size
	$(BIN)/python -m examples.run_all $(ARGS)

docs: $(STAMP)   ## assemble docs/errors.md and run every example of README and docs
	$(BIN)/python docs/assemble.py
	$(BIN)/python -m pytest -n 0 tests/test_docs.py

loc:             ## lines of code per folder
	@for d in polyc/* benchmarks examples tests; do \
	  [ -d $$d ] || continue; \
	  printf '%7d  %s\n' "$$(find $$d -name '*.py' -o -path "$$d/*" -name '*.lark' | xargs cat 2>/dev/null | wc -l)" $$d; done
	@printf '%7d  %s\n' "$$(cat polyc/*.py | wc -l)" 'polyc/*.py'

clean:           ## remove .venv, .venv-peers and caches
	rm -rf $(VENV) .venv-peers .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
