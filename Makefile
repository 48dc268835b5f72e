# The whole developer manual. Every target installs what it needs into .venvs/ first.
PYTHON ?= python3
# Processes that tests run in.
JOBS ?= 2
BIN := .venvs/dev/bin
INSTALLED := .venvs/dev/.installed
export OMP_NUM_THREADS ?= 1

.PHONY: help demo test check format docs web bench long clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 10

$(INSTALLED): pyproject.toml tests/plugin_example/pyproject.toml .ci/install
	@echo "installing into .venvs/dev (once; minutes on a slow network)"
	@bash .ci/install $(PYTHON) .venvs/dev

demo: $(INSTALLED) ## record two trainings, one with a bug, and find it
	$(BIN)/msprobe demo --out runs/demo

test: check ## everything that must hold: check, generated docs, the wheel in a clean environment, all fast tests
	$(BIN)/cog --check -I . docs/cli.md docs/configuration.md docs/plugins.md
	bash .ci/smoke $(BIN)/python .cache/smoke
	$(BIN)/python .ci/frameworks
	$(BIN)/pytest -n $(JOBS)

check: $(INSTALLED) ## lint, format, import contracts, types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/mypy

format: $(INSTALLED) ## format the code and mend what ruff can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(INSTALLED) ## write the generated parts of docs/
	$(BIN)/cog -r -I . docs/cli.md docs/configuration.md docs/plugins.md

web: $(INSTALLED) ## build the pages of msprobe view, and check their types and units (needs Node.js 20)
	$(BIN)/python hatch_build.py pages
	cd visualizers/web/client && npm test

bench: $(INSTALLED) ## what recording costs (docs/benchmarks.md), PrecisionBench in small, speed of comparing and of trends
	$(BIN)/python -m benchmarks.recording --page docs/benchmarks.md
	$(BIN)/python -m benchmarks.kernels
	$(BIN)/python -m benchmarks.precision --quick
	$(BIN)/python -m benchmarks.compare_speed
	$(BIN)/python -m benchmarks.trend --ranks 64

long: $(INSTALLED) ## the full counts of tests and benchmarks (hours)
	$(BIN)/pytest -m long
	$(BIN)/python -m benchmarks.precision.run --page docs/precision-bench.md
	$(BIN)/python -m benchmarks.compare_speed
	$(BIN)/python -m benchmarks.trend

clean: ## remove what was built
	rm -rf .venvs .cache build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
