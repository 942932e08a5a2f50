# The targets people and CI use are the same. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

SERVICES := gateway streams remotes agent agentctl
CONTAINER ?= docker
TAG ?= dev
REGISTRY ?=

# Tests are checked, also where they are not annotated, and not asked to be strict.
LENIENT := --check-untyped-defs --allow-untyped-defs --allow-untyped-calls --allow-incomplete-defs --allow-any-generics \
	--allow-untyped-decorators --no-strict-optional --no-warn-return-any --no-warn-unreachable --no-warn-unused-ignores \
	--disable-error-code=var-annotated --disable-error-code=union-attr --disable-error-code=misc

CHAOS_SECONDS ?= 600
CHAOS_SESSIONS ?= 50

# Each service and each test worker is a process: compiling everything anew in all of them takes longer than the tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup up demo check test test-fast test-long chaos bench lock clean images manifests check-deploy
.DEFAULT_GOAL := help

demo: setup ## the main job, end to end, in a scratch repository
	@$(BIN)/tieline demo

test: setup ## all tests but the long ones
	@# Side by side on few cores a time limit may be met by chance: what failed is run again, alone, and that counts.
	@# Most tests wait more than they work: five at once fill two cores. In order of names the short ones come last.
	$(BIN)/pytest -n 5 --dist loadfile --no-loadscope-reorder -m "not long" -q || { test $$? = 1 && echo "again, alone:" && \
		$(BIN)/pytest --last-failed --last-failed-no-failures none -m "not long" -q; }

up: setup ## start the whole system on this machine; Ctrl-C stops it
	@$(BIN)/tieline up

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(VENV)/.done: requirements.txt constraints.txt $(wildcard libs/*/pyproject.toml services/*/pyproject.toml ops/pyproject.toml)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Tieline needs Python 3.11 or newer: make setup PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "no venv module: on Debian, apt-get install python3-venv"; exit 1; }
	@echo "setting up $(VENV), once"
	@{ $(PIP) uv && $(UV) pip install --quiet --system-certs --python $(BIN)/python -r requirements.txt -c constraints.txt; } || \
		{ echo "not with uv, trying pip"; $(PIP) -r requirements.txt; }
	@touch $@

setup: $(VENV)/.done ## make .venv with everything, tools included

check: setup ## formatting, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy libs services ops
	$(BIN)/mypy $(LENIENT) tests bench

test-fast: setup ## pure modules and their properties
	$(BIN)/pytest -q -m "not long" tests/unit

test-long: setup ## real limits, many schedules; the figures at the end
	HYPOTHESIS_PROFILE=long $(BIN)/pytest -q --timeout 600 -m "not long" tests/unit
	$(BIN)/pytest -q -rP --timeout 600 -m long

chaos: setup ## kill services at random for CHAOS_SECONDS (600), and see everything come right again
	@$(BIN)/python -m tests.chaos --seconds $(CHAOS_SECONDS) --sessions $(CHAOS_SESSIONS)

bench: setup ## ratios, measured side by side, into bench/results.json
	$(BIN)/python -m bench

lock: setup ## write constraints.txt anew: names and versions only
	$(UV) pip compile --quiet --python-version 3.11 --universal --no-header --no-annotate --no-emit-index-url --no-emit-find-links --no-emit-package tieline-protocol --upgrade requirements.txt | grep -vE '^(-e|#|--)' > constraints.new
	@echo "uv==$$($(UV) --version | cut -d' ' -f2)" >> constraints.new
	@sort -f constraints.new > constraints.txt && rm constraints.new

images: ## a container image for each service (CONTAINER=podman TAG=… REGISTRY=…/)
	@for service in $(SERVICES); do \
		$(CONTAINER) build --file deploy/Dockerfile --build-arg SERVICE=$$service --build-arg VERSION=$(TAG) \
			--build-arg REVISION=$$(git rev-parse HEAD) --tag $(REGISTRY)tieline/$$service:$(TAG) . || exit 1; \
	done

manifests: setup ## write what deploy/ takes from the code and from the alert rules
	$(BIN)/python deploy/manifests.py

.checkov/.done: deploy/checkov-requirements.txt
	@test -x .checkov/bin/python || $(PYTHON) -m venv .checkov
	@$(UV) pip install --quiet --system-certs --python .checkov/bin/python -r deploy/checkov-requirements.txt
	@touch $@

check-deploy: setup .checkov/.done ## checkov over the manifests and the Dockerfile, in a venv of its own
	@rm -rf .checkov/rendered && mkdir -p .checkov/rendered
	@cp deploy/Dockerfile .checkov/rendered/
	@for overlay in deploy/overlays/*; do \
		$(BIN)/kubectl kustomize $$overlay > .checkov/rendered/$$(basename $$overlay).yaml || exit 1; \
	done
	.checkov/bin/checkov --config-file deploy/checkov.yaml --directory .checkov/rendered

clean: ## remove what the other targets made
	rm -rf $(VENV) .checkov .data .pytest_cache .mypy_cache .ruff_cache .hypothesis
