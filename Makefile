# Everything a new machine needs is done here: Python >= 3.11 and make are enough.
PYTHON ?= python3
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
BIN := .venv/bin

.PHONY: env demo test test-more test-slow test-flower check bench fuzz faults coverage mutants

# what tests and checks need, too
env: .venv/ready

.venv/ready: .venv/runs
	$(BIN)/pip install --quiet -e '.[test,dev]'
	touch $@

# what running needs and no more
.venv/runs: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet "$$(grep '^torch==' constraints.txt)"
	$(BIN)/pip install --quiet -e .
	touch $@

demo: .venv/runs
	$(BIN)/gradveil audit --out runs/demo

test: env
	$(BIN)/python -m pytest -n 2 --dist loadfile

# kills, torn files, back ends and chunks in all combinations, numbers written down, the page in a browser
test-more: env
	$(BIN)/python -m pytest -n 2 -m 'more and not slow'

# minutes each; not in CI
test-slow: env
	$(BIN)/python -m pytest -m slow

# a simulation on Ray and a deployment on the loopback, for real; about four minutes on two cores
test-flower: env
	$(BIN)/python -m pytest -m flower

check: env
	./check

bench: env
	$(BIN)/gradveil bench engine

fuzz: env
	$(BIN)/python fuzz/fuzz_capture.py --count 100000 --seconds 120
	$(BIN)/python fuzz/fuzz_config.py --count 100000
	$(BIN)/python fuzz/fuzz_journal.py --count 100000
	$(BIN)/python fuzz/fuzz_names.py --count 1000000 --seconds 120

# thousands of faults put into runs that leak, none of which may read as protection; about 20 minutes on two cores
faults: env
	PYTHONPATH=tests/faults $(BIN)/python -m factory

# lines and branches of what decides about a verdict that the tests reach, with a gate
COVERED := tests/audit tests/capture tests/experiment tests/core/test_interval.py tests/faults/test_torn.py \
	tests/hostile/test_absurd_numbers.py tests/hostile/test_bad_config.py tests/hostile/test_bad_options.py \
	tests/test_config.py tests/test_checkpoint.py tests/cli/test_audit_capture.py

coverage: env
	$(BIN)/coverage run -m pytest $(COVERED)
	$(BIN)/coverage json -q
	$(BIN)/python gates/coverage_gate.py coverage.json

# small faults in the verdict, the bounds and the journal that the tests must see; hours for all of them
mutants: env
	$(BIN)/python gates/mutants.py --write docs/mutants.md
