# Every target does its own set-up: a virtual environment in .venv, made with nothing but python3 (>= 3.11), pip and make.
# PYTHON chooses the interpreter; JOBS the number of test processes.

PYTHON ?= python3
JOBS   ?= 2
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
OLDEST := .venv-oldest

.DEFAULT_GOAL := help
.PHONY: help setup check test test-oldest dist bench peers demo docs loc clean

help:            ## this list
	@echo "make <target>:"
	@sed -n 's/^\([a-z-]*\): *[^#]*## *\(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

setup: $(STAMP)  ## virtual environment in .venv with polyc and what its tests need

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "polyc needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[dev]'
	$(BIN)/python -m compileall -q polyc
	@touch $@

check: $(STAMP)  ## formatting, lint, types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(STAMP)   ## the test suite
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

# The lower bounds of pyproject.toml as exact versions; pytest and what it needs are the newest.
# NumPy 1 promotes Python's numbers as NumPy 2 does where it is told to; polyc does in any case, and the tests compare with NumPy.
# Tests of the command line are left out, which need the test runner of click 8.2.
LOWER_BOUNDS = import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
  print(*(r.replace(">=", "==") for r in p["dependencies"] + p["optional-dependencies"]["onnx"]))
NUMERICS := tests/test_smoke.py tests/api tests/conformance tests/frontends tests/oracle tests/property tests/onnx --ignore tests/onnx/test_ahead.py

test-oldest: $(OLDEST)/.installed ## numerical tests with the oldest versions that pyproject.toml allows (PYTHON=python3.11)
	NPY_PROMOTION_STATE=weak $(OLDEST)/bin/python -m pytest -n $(JOBS) --dist worksteal $(NUMERICS) $(ARGS)

$(OLDEST)/.installed: pyproject.toml
	$(PYTHON) -m venv --clear $(OLDEST)
	$(OLDEST)/bin/python -m pip install -qq --disable-pip-version-check --only-binary :all: \
	  $$($(PYTHON) -c '$(LOWER_BOUNDS)') 'pytest>=8' 'pytest-xdist>=3.5' 'hypothesis>=6.100' 'einops>=0.7'
	$(OLDEST)/bin/python -m pip install -qq --disable-pip-version-check --no-deps -e .
	@touch $@

dist: $(STAMP)   ## sdist and wheel in dist/, and the wheel tried in an empty environment
	$(BIN)/python -m build
	$(PYTHON) -m venv --clear build/empty
	build/empty/bin/python -m pip install -qq --disable-pip-version-check dist/polyc-*.whl
	cd build && empty/bin/python -m polyc doctor

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
	rm -rf $(VENV) $(OLDEST) .venv-peers .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
