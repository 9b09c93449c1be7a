# `make demo` shows what Punctual does, `make test` runs the tests; both set up .venv first, and again only when
# pyproject.toml or constraints.txt has changed. PYTHON=python3.12 chooses another interpreter, which gets a folder of its
# own: .venv-3.12.4.
PYTHON ?= python3
VENV := .venv$(if $(filter-out python3,$(PYTHON)),-$(shell $(PYTHON) -c 'import platform; print(platform.python_version())'))
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# The default build of PyTorch brings gigabytes of CUDA; the CPU build has an index of its own. Where pip is configured
# with other sources than PyPI, those are trusted to have the right one.
TORCH_INDEX := https://download.pytorch.org/whl/cpu
TORCH_SOURCE = $$($(BIN)/python -m pip config list | grep -e find-links -e index-url >/dev/null || echo --extra-index-url $(TORCH_INDEX))
SOURCES := src tests examples $(wildcard bench)

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-light lint format bench results results-check docs gallery clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.for-demo ## train a small network to a deadline of about a minute, and watch it land
	$(BIN)/punctual demo

test: $(VENV)/.for-dev ## the product's tests; those that fail beside others are run once more alone
	$(BIN)/python -m tests.run

test-all: $(VENV)/.for-dev ## these and those of papers, benchmarks, Ray, the page in browsers, and adapters
	$(BIN)/python -m tests.run --all

test-light: $(VENV)/.for-light ## those of the parts that need few packages, and one landing: for another interpreter
	$(BIN)/python -m tests.run --light

lint: $(VENV)/.for-dev ## style, types and layers
	$(BIN)/ruff check $(SOURCES) docs
	$(BIN)/ruff format --check $(SOURCES) docs
	$(BIN)/mypy $(SOURCES)
	$(BIN)/lint-imports --no-logo
	test ! -d bench || $(BIN)/python bench/_results.py check

format: $(VENV)/.for-dev ## what `make lint` complains about and a program can repair
	$(BIN)/ruff check --fix $(SOURCES) docs
	$(BIN)/ruff format $(SOURCES) docs

bench: $(VENV)/.for-dev ## each benchmark, quickly; fails if one falls short of its target
	@short=; for script in $(filter-out bench/_%,$(wildcard bench/*.py)); do \
		echo "== $$script"; $(BIN)/python $$script --quick || short="$$short $$script"; \
	done; test -z "$$short" || { echo "short of their targets:$$short"; exit 1; }

results: $(VENV)/.for-dev ## each benchmark in full, one after the other, many hours; what has a result of this revision is skipped
	$(BIN)/python bench/_results.py make

results-check: $(VENV)/.for-dev ## what the documentation prints of results against the files of results
	$(BIN)/python bench/_results.py check

docs: $(VENV)/.for-docs ## the documentation, into docs/_build/html
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

gallery: $(VENV)/.for-dev ## every state of the page, small to large, light and dark: build/gallery/index.html
	$(BIN)/python -m tests.page.pictures build/gallery

clean: ## everything that was made
	rm -rf .venv .venv-* build dist docs/_build demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/.made:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Punctual needs Python 3.11 or newer (make PYTHON=...)")'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.with-torch: constraints.txt | $(VENV)/.made
	$(INSTALL) $(TORCH_SOURCE) torch
	touch $@

$(VENV)/.for-demo: pyproject.toml $(VENV)/.with-torch
	$(INSTALL) -e '.[torch,report]'
	touch $@

$(VENV)/.for-dev: pyproject.toml $(VENV)/.with-torch
	$(INSTALL) -e '.[torch,report,sim,dev,adapters]'
	touch $@

$(VENV)/.for-light: pyproject.toml constraints.txt | $(VENV)/.made
	$(INSTALL) -e . hypothesis pytest pytest-randomly pytest-timeout pytest-xdist scipy
	touch $@

$(VENV)/.for-docs: pyproject.toml constraints.txt | $(VENV)/.made
	$(INSTALL) -e '.[docs]'
	touch $@
