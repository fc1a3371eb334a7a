# One virtual environment, set up once and again when pyproject.toml changes. `make` alone lists the targets.
PYTHON ?= python3
VENV   ?= .venv
TORCH  ?= torch==2.13.0
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip install --quiet --no-compile
READY  := $(VENV)/.ready
DEV    := $(VENV)/.dev
DOCS   := $(VENV)/.docs
export OMP_NUM_THREADS ?= 1
# The tests start hundreds of processes: each would compile torch, SciPy and pandas again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup quickstart test nightly test-processors golden lint bench bench-peers gpu reproduce-tables leaderboard figures report numbers docs setup-docs audit archive wheel-check clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(DEV) ## create $(VENV) with the package, its extras and what its tests need

# torch first and pinned, so that nothing below chooses another build of it. What is never imported need not be compiled.
$(READY): pyproject.toml
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PIP) "$(TORCH)"
	$(PIP) --editable ".[compiled]"
	touch $@

$(DEV): $(READY)
	$(PIP) --editable ".[dev]"
	touch $@

setup-docs: $(DOCS) ## the same with what the documentation's site needs

$(DOCS): $(READY)
	$(PIP) --editable ".[docs]"
	touch $@

quickstart: $(READY) ## set up and run the main job on the embedded default (a generated graph, no download)
	env -u OMP_NUM_THREADS $(VENV)/bin/fgl-bench results_dir=results/quickstart

# One more than there are cores: a third of the time tests wait for a process or a browser.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
PYTEST  := $(PY) -m pytest -n $(WORKERS) --dist worksteal
test: $(DEV) ## set up and run the tests on all cores (on the real data sets too where FGL_BENCH_DATA has them)
	$(PYTEST) -m "not nightly and not audit" $(ARGS)

nightly: $(DEV) ## run all tests: also killed sweeps, launchers, measured memory, all pairings, audits and other processors
	$(PYTEST) --hypothesis-profile=nightly $(ARGS)
	$(MAKE) --no-print-directory test-processors

test-processors: $(DEV) ## run the tests as processors without AVX2 and without AVX-512 would (see docs/reproducibility.md)
	for capability in default avx2; do echo "ATEN_CPU_CAPABILITY=$$capability"; \
	  ATEN_CPU_CAPABILITY=$$capability $(MAKE) --no-print-directory test || failed=1; done; test -z "$$failed"

golden: $(DEV) ## compare histories, printed pages, tables and reports with the frozen ones of tests/golden (ARGS=--cells runs 60 cells too)
	$(PY) scripts/golden.py $(ARGS)

ARCHAIC := anew|so many|but for|go on|goes on|whoever|whatever|mended
lint: $(DEV) ## check style, types and words
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	! grep -rnwE "$(ARCHAIC)" src docs README.md CONTRIBUTING.md --include=*.py --include=*.md
	$(PY) scripts/prose.py

bench: $(DEV) ## time the engine against the plain per-client loop
	$(PY) scripts/bench_speed.py $(ARGS)
	$(if $(ARGS),,$(PY) scripts/bench_speed.py --slow)

gpu: $(DEV) ## test, measure and compute missing cells on a GPU in half an hour: results/bench/gpu.md (DEVICE=cpu: a rehearsal)
	$(PY) scripts/gpu.py $(if $(filter cpu,$(DEVICE)),--device cpu --small --out results/rehearsal/gpu) $(ARGS)

bench-peers: $(DEV) ## time other frameworks beside ours: PEERS="openfgl=../OpenFGL fedgb=../FedGB flower fed_graph"
	$(PY) scripts/bench_peers.py $(PEERS) $(ARGS)

# PAPER (all of them by default), and comma-separated TABLE, DATASETS, METHODS, CLIENTS narrow what is run; SEEDS is how many (5), or which ([0]);
# DEVICE, JOBS, HOURS say how; ARGS="--list" shows the plan run by run.
PAPER ?= all
reproduce-tables: $(READY) ## run what the papers' tables lack, then write results/tables (see docs/reproduction.md)
	$(PY) scripts/reproduce_tables.py --paper $(PAPER) $(if $(TABLE),--tables $(TABLE)) $(if $(COLUMNS),--columns $(COLUMNS)) \
	  $(if $(METHODS),--methods $(METHODS)) $(if $(CLIENTS),--clients $(CLIENTS)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(DEVICE),--device $(DEVICE)) \
	  $(if $(JOBS),--jobs $(JOBS)) $(if $(HOURS),--hours $(HOURS)) $(ARGS)

# Comma-separated DATASETS and METHODS narrow what is made; JOBS, HOURS and DEVICE say how; ARGS="--list" shows the plan cell by cell.
leaderboard: $(READY) ## make what the leaderboard lacks, the cheap cells first (see docs/leaderboard.md)
	$(PY) scripts/leaderboard.py $(if $(TASK),--task $(TASK)) $(if $(COLUMNS),--columns $(COLUMNS)) $(if $(METHODS),--methods $(METHODS)) \
	  $(if $(JOBS),--jobs $(JOBS)) $(if $(HOURS),--hours $(HOURS)) $(if $(DEVICE),--device $(DEVICE)) $(ARGS)

figures: $(DEV) ## draw the papers' figures from the runs and cells into results/figures
	for paper in $(if $(filter all,$(PAPER)),$(notdir $(basename $(wildcard src/fgl_bench/papers/plans/*.yaml))),$(PAPER)); do \
	  $(PY) scripts/make_figures.py --paper $$paper $(ARGS) || exit 1; done

report: $(READY) ## write results/report.html: the papers' tables and your runs on one page that needs no server
	$(VENV)/bin/fgl-bench report $(ARGS)

numbers: $(READY) ## write the numbers that README.md and docs/ quote, from results/tables and results/cells
	$(PY) scripts/quote_results.py $(ARGS)
	$(PY) scripts/quote_commands.py
	$(PY) scripts/quote_scale.py

# The notebook is executed and every warning is an error. The two variables silence advertisements of mkdocs and its theme.
# Then Chromium, if it is installed, opens every page without network.
docs: $(DOCS) ## build the documentation's site in build/site
	NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(PY) -m mkdocs build --strict
	$(PY) scripts/site/check.py build/site
	@echo "written: build/site/index.html"

audit: $(DEV) ## check committed results, raw files and the commands in docs/, and recompute what the papers say about their tables: docs/audit.md
	$(PYTEST) -m audit
	$(PY) scripts/audit_papers.py $(ARGS)

archive: ## write build/fgl-bench-results-VERSION.tar.gz: results/ with a manifest and sums, the same bytes for the same commit
	$(PYTHON) scripts/archive.py

wheel-check: $(DEV) ## build the wheel, install it elsewhere and run it from outside the checkout
	$(PY) -m pytest tests/test_packaging.py $(ARGS)

clean: ## remove caches and builds; the environment and results stay
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +
