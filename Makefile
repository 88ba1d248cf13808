# Everything runs from .venv, made from requirements.lock; `make help` lists the targets.
PYTHON ?= python3
UV ?= uv
BIN := .venv/bin
MAKEFLAGS += --no-print-directory
.DELETE_ON_ERROR:
.PHONY: help venv opencl demo test lint bench gpu-test lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 12

venv: .venv/.made ## make .venv from requirements.lock

.venv/.made: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "error: $(PYTHON) is missing or older than 3.11"; echo "hint: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; } >&2
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "error: $(PYTHON) cannot make virtual environments"; echo "hint: sudo apt-get install python3-venv"; exit 1; } >&2
	@test -x $(BIN)/pip || { echo "venv: making .venv"; $(PYTHON) -m venv --clear .venv; }
	@echo "venv: installing requirements.lock"
	@$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

opencl: venv ## find an OpenCL runtime that works, or fetch PoCL (no root needed)
	@$(BIN)/python -m tunesmith.backends.opencl_runtime --fetch

demo: venv ## tune a kernel on this machine
	@nvidia-smi -L >/dev/null 2>&1 || $(MAKE) opencl
	@$(BIN)/python -m tunesmith.demo

test: opencl lint ## lint, then every test that needs no GPU
	@$(BIN)/pytest -n 2

lint: venv ## format, lint and types
	@$(BIN)/ruff format --check -q --output-format=concise . || { echo "hint: $(BIN)/ruff format" >&2; exit 1; }
	@$(BIN)/ruff check -q --output-format=concise .
	@$(BIN)/mypy --no-error-summary

bench: venv ## run the benchmarks
	@$(BIN)/python -m benchmarks

gpu-test: venv ## the tests that need a CUDA device
	@$(BIN)/pytest -m gpu

lock: ## resolve pyproject.toml into requirements.lock (needs uv)
	@command -v $(UV) >/dev/null || { echo "error: $(UV) is missing"; echo "hint: pip install uv, or make lock UV=/path/to/uv"; exit 1; } >&2
	@$(UV) pip compile -q --universal --generate-hashes --no-emit-index-url --all-extras --python-version 3.11 pyproject.toml -o requirements.lock

clean: ## remove .venv and the tools' caches (not runs/, not ~/.cache/tunesmith)
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
	@find src tests benchmarks suite -name __pycache__ -prune -exec rm -rf {} +
