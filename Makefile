# make demo    ten simulated minutes with trouble in them through a real Airflow, and the report
# make up      Airflow with a live feed of simulated flows; then: make report, make latency, make down;
#              eval "$(make env)" for airflow and llmprism commands of your own
# make test    linter, type checker and every test
# make scores  how right the results are on the captures of real training in tests/data/real
# make accuracy  how right both methods are on simulated platforms and captures, as docs/accuracy.md; goes on where it was
# make bench     what an analysis costs, by size and part, as docs/performance.md; Airflow's share: python -m bench airflow
# make diagnosis  who is named when something goes wrong, and when nothing does, as docs/diagnosis.md; likewise
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
INSTALLED := .venv/installed
COMPILED := .venv/compiled

.PHONY: setup demo up down report latency env test checks scores accuracy diagnosis bench clean

setup: $(INSTALLED) $(COMPILED)

$(INSTALLED): pyproject.toml tools/pyproject.toml constraints.txt
	@echo "Installing into .venv, about a minute the first time"
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install -qq --disable-pip-version-check -c constraints.txt -e '.[test]' -e tools
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

test: $(INSTALLED)
	@$(MAKE) --no-print-directory --jobs 2 checks setup
	$(BIN)/pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

checks: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

scores: setup
	@$(BIN)/python tests/golden

accuracy: setup
	-@$(BIN)/python -m accuracy run $(if $(FOLDERS),--folders $(FOLDERS))
	@$(BIN)/python -m accuracy page $(if $(FOLDERS),--folders $(FOLDERS))

diagnosis: setup
	-@$(BIN)/python -m accuracy run --families troubles captures $(if $(FOLDERS),--folders $(FOLDERS))
	-@$(BIN)/python -m accuracy prices
	@$(BIN)/python -m accuracy diagnosis $(if $(FOLDERS),--folders $(FOLDERS))

bench: setup
	@$(BIN)/python -m bench run $(if $(GPUS),--gpus $(GPUS))
	@$(BIN)/python -m bench page

clean:
	rm -rf .venv .demo .accuracy .bench
