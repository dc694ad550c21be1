# make demo   set up .venv and run the sample under observation
# make test   set up .venv and run the tests
# make contract  fetch the torch_npu wheel (43 MB, never imported) and hold our expectations against it
# make check  what CI runs: lint, types, generated pages, tests

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Pinned: an open range can pull several gigabytes. Users bring their own torch.
TORCH := torch==2.13.0
DEMO := demo-report
READY := $(VENV)/.ready

.PHONY: demo test contract check lint types docs docs-check bench clean

$(READY): pyproject.toml setup.py profiler/_core.c
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check $(TORCH) -e '.[dev]'
	touch $@

demo: $(READY)
	rm -rf $(DEMO) && mkdir $(DEMO)
	$(BIN)/stallscope run -o $(DEMO)/demo.stallscope --html $(DEMO)/report.html \
	    sample_traces/scripts/decode.py --fault python

test: $(READY)
	$(BIN)/python -m pytest

contract: $(READY)
	$(BIN)/python tests/support/wheels.py
	$(BIN)/python -m pytest tests/contract

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

docs: $(READY)
	$(BIN)/python docs/build.py

docs-check: $(READY)
	$(BIN)/python docs/build.py --check

check: lint types docs-check contract test

clean:
	rm -rf $(VENV) $(DEMO) build dist *.egg-info src/*.egg-info
