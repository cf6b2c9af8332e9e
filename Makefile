# Every target works in a fresh clone on a machine with python3 (3.11 or later) and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed

.PHONY: install figure verify frameworks docs gallery notebooks test test-slow check bench clean

install: $(READY)

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $(READY)

$(VENV)/.docs: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	touch $(VENV)/.docs

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -b html -W --keep-going -q docs docs/_build/html
	@echo "docs/_build/html/index.html"

figure: install
	$(BIN)/sgdlimit figure --output figure.png --force

verify: install
	$(BIN)/sgdlimit verify --output verify.png --force

frameworks: install
	$(BIN)/sgdlimit frameworks --output frameworks.png --force

gallery: install
	$(BIN)/python docs/make_gallery.py

notebooks: install
	$(BIN)/python docs/make_notebooks.py

test: install
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" -n 2 --dist worksteal --durations=15

test-slow: install
	$(BIN)/python -m pytest -m slow -s

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

bench: install
	$(BIN)/python benchmarks/simulators.py
	$(BIN)/python benchmarks/march.py
	$(BIN)/python benchmarks/moments_against_dense.py

clean:
	rm -rf $(VENV) figure.* verify.* frameworks.*
