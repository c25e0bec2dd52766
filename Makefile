# Everything happens in .venv/ and results/; `make clean` removes both.
PYTHON ?= python3
BIN := .venv/bin
SHELL := /bin/bash

.PHONY: demo test test-unit test-fleet lab-test build-test lint bench lock clean host-packages test-packages test-agent-3.9

# What pip installed is stamped, so that a second `make` starts at once.
.venv/installed: pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 14) else "Python 3.11 to 3.13 is needed, this is " + sys.version.split()[0] + "; name another: make PYTHON=python3.12")'
	@# Debian keeps the half of venv that matters in a package of its own.
	$(PYTHON) -c 'import ensurepip' 2>/dev/null || apt-get install -qq -y python3-venv
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

host-packages:
	scripts/install-host-packages

test-packages:
	scripts/install-host-packages --for-tests --for-vm-labs

demo: .venv/installed host-packages
	$(BIN)/fleetmark run experiments/demo.yaml

test: .venv/installed test-packages
	$(BIN)/python -m pytest

test-unit: .venv/installed
	$(BIN)/python -m pytest -m 'not fleet'

test-fleet: .venv/installed test-packages
	$(BIN)/python -m pytest -m fleet

# Virtual machines for many minutes.
lab-test: .venv/installed test-packages
	FLEETMARK_LAB_TEST=1 $(BIN)/python -m pytest tests/lab

# Compiles MariaDB and, as far as an hour allows, MySQL.
build-test: .venv/installed test-packages
	scripts/install-host-packages --for-builds
	FLEETMARK_BUILD_TEST=1 $(BIN)/python -m pytest -s tests/build

# The agent's code on a real Python 3.9; skips with a word where no such root can be made.
test-agent-3.9: .venv/installed
	tests/agent/run_on_3_9.sh

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vermin --quiet --no-tips --violations --target=3.9- --backport typing agent/fleetmark_agent
	$(BIN)/yamllint --strict .
	$(BIN)/ansible-lint --profile production --offline

bench: .venv/installed test-packages
	@for script in benchmarks/[a-z]*.py; do \
	  echo "== $$script"; $(BIN)/python "$$script" || failed=1; \
	done; exit $${failed:-0}

# Newer versions of everything, with hashes.
lock: .venv/installed
	$(BIN)/python -m pip install --quiet pip-tools
	$(BIN)/pip-compile --quiet --extra dev --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --output-file requirements.lock pyproject.toml

clean:
	rm -rf .venv results dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
