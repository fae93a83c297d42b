# make setup     install into .venv and compile the numerical kernels
# make demo      ten simulated minutes with faults through a real Airflow, then the report
# make up        Airflow with a live feed of simulated flows; then: make report, make latency, make down;
#                eval "$(make env)" sets the variables for airflow and llmprism commands of your own
# make test      linter, type checker and every test, but for:
# make test-distributed   two Celery workers, PostgreSQL and Redis (both must be installed): WINDOWS=30 KILLS=50 for more
# make test-hta  whether Meta's HTA reads our timelines, and divides steps as we do; in .hta, an environment of its own
# make test-browser   the pages in Debian's Chromium, as a reader opens them; after make demo, whose data they open
# make pictures  the pictures of the README and docs, taken from the pages; after make demo, whose data they show
# make tables    compare all result tables with the reference (tests/data/tables.json)
# make scores    accuracy on the captures of real training in tests/data/real
# make accuracy  accuracy of both methods on simulated platforms and captures: writes docs/accuracy.md; resumes
# make diagnosis which device is named for each fault, and false alarms: writes docs/diagnosis.md; resumes
# make reference docs/tables.md and the Grafana dashboard, from the contract and sql/
# make bench     time and memory by platform size: writes docs/performance.md; Airflow's share: python -m bench airflow
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
INSTALLED := .venv/installed
COMPILED := .venv/compiled
DISTRIBUTED := .venv/distributed

# What Python compiles is kept, whatever the shell says: else each worker of pytest rewrites the assertions of all tests
# anew, which takes it seven seconds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo up down report latency env test test-distributed test-hta test-browser pictures checks tables scores accuracy
.PHONY: diagnosis reference bench clean

setup: $(INSTALLED) $(COMPILED)

# Pip would compile what it installs one file after the other, which takes as long as half of the rest.
$(INSTALLED): pyproject.toml tools/pyproject.toml constraints.txt
	@echo "Installing into .venv, one to four minutes the first time"
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install -qq --no-compile --disable-pip-version-check -c constraints.txt -e '.[test]' -e tools
	-@$(BIN)/python -m compileall -qq -j 0 .venv/lib
	@$(BIN)/python -m llmprism_tasks.warehouse.lake.extensions
	@touch $@

# All again when one file changes: Numba does not see when a subroutine in another file than the kernel's changes.
$(COMPILED): $(INSTALLED) llmprism_tasks/numerics/jit.py $(shell grep -rl 'numerics.jit import' llmprism_tasks --include='*.py')
	@echo "Compiling kernels, about a minute"
	@$(BIN)/python -m llmprism_tasks.cli.compile_kernels
	@touch $@

demo: setup
	@$(BIN)/python -m demo replay

up: setup
	@$(BIN)/python -m demo up

down: setup
	@$(BIN)/python -m demo down

report: setup
	@$(BIN)/python -m demo report

latency: setup
	@$(BIN)/python -m demo latency

env: setup
	@$(BIN)/python -m demo env

# It ends whatever happens. A worker that dies fails the run and is not replaced: pytest-xdist 3.8 hands on what the dead
# one had already done, and waits for it for ever (its issues 1323 and 1378). A test of ten minutes, where the longest
# takes one or two, hangs: it tells where, and its worker dies.
test: $(INSTALLED)
	@$(MAKE) --no-print-directory --jobs 2 checks setup
	$(BIN)/pytest --numprocesses auto --dist loadfile --no-loadscope-reorder --max-worker-restart 0 \
		-o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true

$(DISTRIBUTED): $(INSTALLED)
	@$(BIN)/pip install -qq --disable-pip-version-check -c constraints.txt -e '.[distributed]'
	@$(BIN)/python -m llmprism_tasks.warehouse.lake.extensions
	@touch $@

test-distributed: setup $(DISTRIBUTED)
	$(BIN)/pytest -m distributed tests/distributed $(if $(WINDOWS),--windows $(WINDOWS)) $(if $(KILLS),--kills $(KILLS))

test-hta: setup .hta/installed
	@HTA_PYTHON=$(CURDIR)/.hta/bin/python $(BIN)/pytest tests/llmprism_tasks/reports/timeline/hta_agreement.py

# HTA asks for libraries that our constraints leave out.
.hta/installed:
	@$(PYTHON) -m venv .hta
	@.hta/bin/pip install -qq --disable-pip-version-check HolisticTraceAnalysis==0.5.0
	@touch $@

checks: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test-browser: setup .venv/browser
	$(BIN)/pytest tests/browser

pictures: setup .venv/browser
	@$(BIN)/python -m pictures

.venv/browser: pyproject.toml constraints.txt $(INSTALLED)
	@$(BIN)/pip install -qq --disable-pip-version-check -c constraints.txt -e '.[browser]'
	@touch $@

tables: setup
	@$(BIN)/python -m accuracy tables --check

scores: setup
	@$(BIN)/python -m accuracy scores $(FOLDERS)

accuracy: setup
	-@$(BIN)/python -m accuracy run
	-@$(BIN)/python -m accuracy judge --published $(if $(FOLDERS),--folders $(FOLDERS))
	@$(BIN)/python -m accuracy page
	@$(BIN)/python -m accuracy second

diagnosis: setup
	-@$(BIN)/python -m accuracy run --families troubles
	-@$(BIN)/python -m accuracy judge --published $(if $(FOLDERS),--folders $(FOLDERS))
	-@$(BIN)/python -m accuracy prices
	@$(BIN)/python -m accuracy diagnosis

reference: setup
	@$(BIN)/python -m reference

bench: setup
	@$(BIN)/python -m bench run $(if $(GPUS),--gpus $(GPUS))
	@$(BIN)/python -m bench page

clean:
	rm -rf .venv .hta .demo .accuracy .bench .reliability
