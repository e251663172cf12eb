# A fresh machine needs make, Python >= 3.11 and PyPI: `make demo` and `make test` set up what they
# need themselves. `make PYTHON=/path/to/python …` chooses the interpreter of a new .venv.

VENV   ?= .venv
PYTHON ?= $(shell .ci/find-python)
BIN    := $(VENV)/bin
OTHERS := 3.12 3.13

# Tests wait for brokers and processes more than they compute, those of faults most of all, so there are more workers
# than cores; but not without end: each has a nats-server of its own.
CORES   := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
workers  = -n $(shell n=$$(( $(CORES) * $(1) )); echo $$(( n < 12 ? n : 12 ))) --dist loadgroup
XDIST    = $(call workers,2)
QUICK  := not faults and not soak
SLOW   := faults and not soak
# The files with such tests: every worker reads all it is given, and thousands of others would cost it seconds.
FAULTS  = tests/faults $(shell grep -rl --include='test_*.py' 'mark\.faults' tests)
ARGS   ?=
NEEDS  ?= $(WEB_READY)
MINUTES ?= 60

TEST_READY := $(VENV)/.ready-test
# Flask, Django and the like: for the tests of the examples, and for nothing else.
WEB_READY  := $(VENV)/.ready-examples
DEV_READY  := $(VENV)/.ready-dev
INSTALL     = install -qq --disable-pip-version-check --no-input

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup fmt lint types arch test test-unit test-other-pythons test-all-pythons \
        test-faults test-packaging coverage again soak soak-tests soak-field bench demo reference docs check lock clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-20s %s\n", $$1, $$2 }' Makefile

# ------------------------------------------------------------------ setup

setup: $(DEV_READY)  ## .venv with everything a developer needs, from hashed pins

$(TEST_READY): requirements/test.txt pyproject.toml src/jetjobs/_version.py
	@if [ ! -x $(BIN)/python ]; then \
	    python="$(PYTHON)"; \
	    if [ -z "$$python" ]; then \
	        echo "jetjobs needs Python 3.11 or newer, with venv; none was found on this machine." >&2; \
	        echo "Install one, or name it: make PYTHON=/path/to/python3.12 …" >&2; \
	        exit 1; \
	    fi; \
	    "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	        echo "$$python is not a Python 3.11 or newer; name another: make PYTHON=…" >&2; exit 1; }; \
	    echo "setting up $(VENV) with $$python"; \
	    "$$python" -m venv $(VENV); \
	fi
	@$(BIN)/python -m pip $(INSTALL) --require-hashes -r requirements/test.txt
	@$(BIN)/python -m pip $(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(WEB_READY): requirements/examples.txt $(TEST_READY)
	@$(BIN)/python -m pip $(INSTALL) --require-hashes -r requirements/examples.txt
	@touch $@

$(DEV_READY): requirements/dev.txt $(TEST_READY)
	@$(BIN)/python -m pip $(INSTALL) --require-hashes -r requirements/dev.txt
	@touch $@

lock:  ## write requirements/*.txt anew from pyproject.toml (ARGS=--upgrade for newer versions)
	@$(MAKE) $(DEV_READY)
	.ci/lock $(BIN)/python $(ARGS)

clean:  ## remove environments, caches and builds (not .jetjobs, which holds data)
	rm -rf .venv .venv-3.* build dist htmlcov .coverage .coverage.* .hypothesis \
	    .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# ------------------------------------------------------------------ style

fmt: $(DEV_READY)  ## format, and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(DEV_READY)  ## style, with nothing changed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(DEV_READY)  ## strict types of src and tests
	$(BIN)/basedpyright --pythonpath $(BIN)/python

arch: $(DEV_READY)  ## imports go down only
	$(BIN)/lint-imports --no-cache

# ------------------------------------------------------------------ tests

test: $(NEEDS)  ## the tests (ARGS="-k name" for some)
	$(BIN)/python -m pytest $(XDIST) $(ARGS)

test-unit: $(TEST_READY)  ## the tests that need no server
	$(BIN)/python -m pytest tests/unit $(ARGS)

# Processes start slower under measurement, and tests with limits of seconds may fail by that: `make test` judges them,
# this judges what they reach. Branches are measured by tracing; sys.monitoring knows them from Python 3.14 on only.
coverage: $(WEB_READY)  ## branch coverage by the tests that kill nothing: 90 % or it fails
	$(BIN)/python -m coverage erase
	-$(BIN)/python -m pytest $(XDIST) --cov --cov-report= --timeout 240 $(ARGS)
	$(BIN)/python -m coverage report --fail-under 90

test-faults: $(TEST_READY)  ## kill -9, SIGSTOP, restarts, cluster leaders, full disks
	$(BIN)/python -m pytest $(FAULTS) -m "$(SLOW)" $(call workers,3) $(ARGS)

# Tests of outages have limits of seconds, and a machine with other work can miss one: what failed gets one more
# run, alone. What fails twice is broken.
again: $(TEST_READY)
	@echo "== what failed, once more and alone"
	$(BIN)/python -m pytest -m "$(MARK)" -n 0 --last-failed --last-failed-no-failures none

soak: $(TEST_READY)  ## mixed jobs on two hosts for MINUTES (60): one outcome each, and nothing grows
	$(BIN)/python -m tests.soak --minutes $(MINUTES) $(ARGS)

soak-tests: $(TEST_READY)  ## the tests that run for minutes
	$(BIN)/python -m pytest -m soak -n 0 $(ARGS)

soak-field: $(TEST_READY)  ## the field cases that run for minutes
	$(BIN)/python -m pytest tests/field -m soak -n 0 $(ARGS)

reference: $(TEST_READY)  ## write docs/reference/api anew from signatures and docstrings
	$(BIN)/python -m tests.docs.api

docs: reference  ## reference, links, every code block; then build/docs as HTML. No network
	$(BIN)/python -m pytest tests/docs $(ARGS)
	$(BIN)/python -m tests.docs.site build/docs

test-packaging: $(DEV_READY)  ## sdist and wheel, installed with the oldest and the newest dependencies
	$(BIN)/python .ci/test-packaging

# Unit and conformance tests on the other Pythons; one that isn't here is named and passed over.
test-other-pythons:
	@for version in $(OTHERS); do \
	    if python=$$(.ci/find-python $$version); then \
	        echo "== Python $$version: unit and conformance tests"; \
	        $(MAKE) test VENV=.venv-$$version PYTHON="$$python" NEEDS=.venv-$$version/.ready-test \
	            ARGS="$(wildcard tests/unit tests/conformance)" \
	            || $(MAKE) again VENV=.venv-$$version MARK="$(QUICK)"; \
	    else \
	        echo "== Python $$version: SKIPPED, no such interpreter on this machine"; \
	    fi; \
	done

test-all-pythons:  ## the tests on every supported Python found
	@for version in 3.11 $(OTHERS); do \
	    if python=$$(.ci/find-python $$version); then \
	        echo "== Python $$version"; \
	        $(MAKE) test VENV=.venv-$$version PYTHON="$$python"; \
	    else \
	        echo "== Python $$version: SKIPPED, no such interpreter on this machine"; \
	    fi; \
	done

# The tests come last, so that a run ends with their closing line.
check: lint types arch test-packaging test-other-pythons  ## what CI runs
	@$(MAKE) test-faults || $(MAKE) again MARK="$(SLOW)"
	@$(MAKE) test || $(MAKE) again MARK="$(QUICK)"

# ------------------------------------------------------------------ to look at

demo: $(TEST_READY)  ## jobs, schedules and a broker, running in one terminal
	@$(BIN)/jetjobs demo $(ARGS)

bench: $(TEST_READY)  ## measure against bare nats-py on this machine
	$(BIN)/python -m tests.benchmarks.compare $(ARGS)
