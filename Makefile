# Set-up, demo, tests and benchmarks. `make` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DATA ?= data
SCALE ?= full
MINUTES ?= 8
AT_ONCE = $(if $(JOBS),hydra.launcher.jobs=$(JOBS))
FIGURES := $(shell grep -o '^      figure[^:]*' conf/experiment/*/*.yaml | sed 's|conf/experiment/\([^/]*\)/.*: *|\1-|')
ROWS := find outputs -path '*/seed=*' \( -name summary.json -o -name metrics.jsonl -o -name checksums.txt -o -path '*/.hydra/*.yaml' \) \
  | grep -Ev '^outputs/(runs|sweeps|demo)/|/(smoke|tune[a-z_]*)/' | sort
TABLES := $(subst /,-,$(patsubst conf/experiment/%.yaml,%,$(wildcard conf/experiment/*/table*.yaml)))

# Commands that the tests start load compiled modules; without them each would compile all of fedrun.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow lint types bench gpu bench-data results option-tables site notebooks constraints clean $(TABLES) $(FIGURES)

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14
	@echo "PAPER-tableN  a paper's table, ours beside it; SCALE=smoke, small or full; JOBS=runs at once (default: one per core): $(TABLES)"
	@echo "PAPER-figureN a paper's figure from our runs, as outputs/pictures/PAPER_figureN.png: $(FIGURES)"

$(INSTALLED): pyproject.toml .ci/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --disable-pip-version-check -c .ci/constraints.txt -e '.[dev]'
	touch $@

install: $(INSTALLED) ## Make .venv and install fedrun with the pinned versions

demo: $(INSTALLED) ## FedAvg and TurboSVM-FL side by side on scikit-learn's digits
	$(BIN)/fedrun experiment=demo

test: $(INSTALLED) lint types ## Lint, types and the test suite
	$(BIN)/pytest -n auto --dist loadfile

test-slow: $(INSTALLED) ## Runs over torchrun's processes (two machines as root), notebooks, and further cases of long tests
	$(BIN)/pytest -m slow

lint: $(INSTALLED) ## ruff, and import-linter: imports go down only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(INSTALLED) ## mypy
	$(BIN)/mypy

bench: $(INSTALLED) ## Speed and memory against baselines, into bench.json; needs no data
	$(BIN)/python tests/benchmarks/everything.py --json bench.json

gpu: $(INSTALLED) ## Checks and benchmarks on a CUDA device, into gpu-results/; MINUTES=8
	$(BIN)/python tests/gpu/everything.py --minutes $(MINUTES)

bench-data: $(INSTALLED) ## The checks on real data: DATA=folder with MNIST/, FashionMNIST/ and shakespeare/
	$(BIN)/fedrun experiment=fedavg/mnist_2nn data_dir=$(DATA)
	$(BIN)/fedrun experiment=turbosvm/shakespeare data_dir=$(DATA)
	$(BIN)/python tests/benchmarks/cluster_agreement.py $(DATA)

$(TABLES): $(INSTALLED)
	$(BIN)/fedrun experiment=$(subst -table,/table,$@) scale=$(SCALE) data_dir=$(DATA) $(AT_ONCE)
	$(BIN)/fedrun-report outputs --table $(subst -table,/table,$@) --scale $(SCALE)

$(FIGURES): figure = $(subst -figure,/figure,$@)
$(FIGURES): file = $(shell grep -l '^      $(notdir $(figure)):' conf/experiment/$(dir $(figure))*.yaml)
$(FIGURES): $(INSTALLED)
	$(BIN)/fedrun experiment=$(patsubst conf/experiment/%.yaml,%,$(file)) scale=$(SCALE) data_dir=$(DATA) $(AT_ONCE)
	$(BIN)/fedrun-report outputs --figure $(figure) --scale $(SCALE)

results: $(INSTALLED) ## Bring docs/RESULTS.md and docs/runs/, the rows behind it, up to date with the runs in outputs/
	for archive in $(wildcard docs/runs/*.tar.xz); do tar -xJf $$archive --skip-old-files; done
	$(BIN)/fedrun-report outputs --results --to docs/RESULTS.md
	mkdir -p docs/runs
	$(ROWS) | sed -E 's,^outputs/([^/]+)/.*/seed=([0-9]+)/.*,\1 \2,' | sort -u | while read paper seed; do \
	  $(ROWS) | grep "^outputs/$$paper/.*/seed=$$seed/" \
	  | XZ_OPT=-9e tar --owner=0 --group=0 -cJf docs/runs/$$paper-seed$$seed.tar.xz -T -; done

option-tables: $(INSTALLED) ## The tables of options in docs/, from conf/ and the classes
	$(BIN)/python tests/docs/option_tables.py

site: $(INSTALLED) ## The pages of docs/ as a site in site/; a broken link is an error
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --config-file .ci/mkdocs.yml

notebooks: $(INSTALLED) ## Run the notebooks in docs/notebooks/ and store their outputs without times; needs the extra docs
	cd docs/notebooks && PATH="$(CURDIR)/$(BIN):$$PATH" jupyter execute --inplace *.ipynb && rm -r outputs
	$(BIN)/python -c 'import nbformat as n, sys; [(b := n.read(p, 4), [c.metadata.clear() for c in b.cells], n.write(b, p)) \
	  for p in sys.argv[1:]]' docs/notebooks/*.ipynb

constraints: $(INSTALLED) ## Write the installed versions to .ci/constraints.txt
	$(BIN)/pip freeze --exclude-editable > .ci/constraints.txt

clean: ## Remove .venv and caches; outputs/ stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
