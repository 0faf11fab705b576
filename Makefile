# Every target works on a bare machine: it makes the environment first.
# PYTHON=/path/to/python chooses the interpreter of a new environment.

BIN := .venv/bin
# More than cores: the tests mostly wait for what they started.
JOBS ?= 3

# Without byte code every start of evalfleet compiles its own sources and those of its libraries.
unexport PYTHONDONTWRITEBYTECODE
export UV_PYTHON_DOWNLOADS := never

.PHONY: help setup page wheel demo test check check-types check-rest programs unit long bench chaos desk fmt docs lock clean real-azure

help: ## show the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name text; do printf '  make %-8s %s\n' "$$name" "$$text"; done

setup: ## make .venv, or bring it up to date
	@scripts/setup

page: setup ## build the dashboard into the package
	@scripts/page

wheel: setup ## build a wheel and a source distribution into dist/, with the page inside
	@scripts/wheel

demo: setup ## run a real benchmark with two agents on 4 local workers and show the result
	@scripts/demo

# What the tests need is installed beside the checks: that waits for the network, and they use the cores.
test: setup ## everything that must hold before a change goes in
	@$(MAKE) --no-print-directory -j3 --output-sync=target check-types check-rest programs
	@$(MAKE) --no-print-directory unit

check: setup ## format, lint, types, layers, links of the docs
	@$(MAKE) --no-print-directory -j2 --output-sync=target check-types check-rest

# The longest check beside all others: each uses one core.
check-types:
	$(BIN)/basedpyright

check-rest:
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	@scripts/page types
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir .site
	@# Also compiles the tests once, where each worker of the tests would do it for itself.
	@told=$$($(BIN)/python -m pytest --collect-only -qq 2>&1) || { echo "$$told"; exit 1; }

# What the tests need beside Python. One after the other: most of them use apt-get.
programs:
	@scripts/page
	@scripts/browser
	@scripts/desktop
	@scripts/sshd
	@scripts/azurite
	@scripts/postgres
	@scripts/slurm
	@scripts/guest-image small >/dev/null

unit: setup programs ## the tests alone
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

bench: setup ## measure speed and memory, one table
	$(BIN)/python bench/run.py

long: setup programs ## the tests that take a minute or more each; CI runs them after `make test`
	@scripts/guest-image desk >/dev/null
	@scripts/waa-client
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m long

real-azure: setup ## with an account: check what the emulator assumes of Azure, for about $2
	$(BIN)/python scripts/real_azure.py

chaos: setup ## kill everything at random moments, and count
	$(BIN)/python tests/faults/chaos.py

desk: setup ## play all tasks of desk 15 times, with 1, 4 and 8 workers
	@scripts/desktop
	$(BIN)/python tests/faults/desk_rounds.py

fmt: setup ## format, and repair what can be repaired
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: setup ## the documentation as a site on a port of this machine
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

lock: ## pin every dependency anew in constraints.txt
	@scripts/lock

clean: ## remove what the targets made
	rm -rf .venv .site .bench .guest .setup.lock .page.lock frontend/node_modules src/evalfleet/web/static .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
