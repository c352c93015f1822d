# Everything runs in .venv, which each target creates where it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS := constraints.txt
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS)
# Tests run one process per core; a BLAS that adds threads of its own only slows them down.
ONE_THREAD := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
PYTEST := $(ONE_THREAD) $(BIN)/python -m pytest -n 2 --dist worksteal

.PHONY: demo test test-slow test-all test-botorch test-lowest coverage lint docs wheel check-wheel bench clean
.PHONY: install-test install-botorch

demo: $(VENV)/.core
	$(BIN)/misspec demo

# TESTS="tests/unit tests/laws" runs a part of them.
test: $(VENV)/.test
	$(PYTEST) -m "not slow" $(TESTS)

test-slow: $(VENV)/.test
	$(PYTEST) -m slow

test-all: test test-slow

# The tests that need BoTorch. It brings PyTorch, of which pip takes the build with CUDA, several gigabytes, on most machines.
test-botorch: $(VENV)/.botorch
	MISSPEC_REQUIRE_BOTORCH=1 $(PYTEST) -m botorch

# With the lowest versions that pyproject.toml admits, in an environment of its own, what touches other packages most. The
# pages of docs/ are left out, whose pictures are those of constraints.txt, and the tests of samplers that Optuna 5 ships.
# NumPy 2.0 has wheels up to Python 3.12.
LOWEST := $(patsubst %,tests/unit/test_%.py,cli domains experiments kernels optimize_command reports search simulate \
	spaces storage suggest truth) tests/oracle/test_posterior.py \
	$(filter-out %/test_optuna_sampler.py,$(wildcard tests/integrations/test_*.py))
test-lowest:
	$(MAKE) test VENV=$(VENV)-lowest CONSTRAINTS=constraints-lowest.txt TESTS="$(LOWEST)"

# Only install: CI tells an environment that cannot be had from a test that fails.
install-test: $(VENV)/.test
install-botorch: $(VENV)/.botorch

# The same tests as `make test`, with the lines of src/ that they run; pyproject.toml says how many must be.
# Measuring nearly doubles the time, so that tests of what others run too are not measured. Nor is a test that takes the
# trace away to interrupt at any line: it would end the measuring in its process.
UNMEASURED := tests/contract tests/fuzz tests/laws tests/rates
TRACED := tests/unit/test_journal.py::test_an_interrupt_at_any_line_leaves_policy_and_file_as_one
coverage: $(VENV)/.test
	$(PYTEST) -m "not slow" $(UNMEASURED) $(TRACED)
	$(PYTEST) -m "not slow" $(UNMEASURED:%=--ignore=%) --deselect $(TRACED) --cov --cov-report=term --cov-report=html

lint: $(VENV)/.test $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Into site/; open site/index.html. Warnings are errors.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Into dist/, from a clean start: what an earlier build left must not get in.
wheel: $(VENV)/.package
	rm -rf build dist
	$(BIN)/python -m build --outdir dist

# The wheel in an environment that has nothing else, from a folder that is not this one.
# DEMO=1 runs the demo there too.
check-wheel: wheel
	PYTHON="$(PYTHON)" DEMO="$(DEMO)" tools/check_wheel

# Everything measured on this machine, into benchmarks/results/, and from there into README.md and docs. A run that was
# stopped goes on: what was measured with the same code is kept. QUICK=1 shows in minutes that all of it runs.
# MISSPEC_DATA is the folder with the recorded tables; without it, what needs them is left out.
BENCHMARKS := practical "corrupted --bench" "stopping --bench" optuna_samplers verdicts suggest contexts service journal \
	posterior policies truth box experiments dask_phased
bench: $(VENV)/.test
	@failed=; for name in $(BENCHMARKS); do set -- $$name; script=$$1; shift; echo "== $$name"; \
		$(BIN)/python benchmarks/$$script.py $$* $(if $(QUICK),--quick) || failed="$$failed $$script"; done; \
	test -z "$$failed" || { echo "failed:$$failed"; exit 1; }
	$(if $(QUICK),,$(BIN)/python tools/figures.py)

$(VENV)/.python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "misspec needs Python 3.11 or newer; set PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.core: $(VENV)/.python pyproject.toml $(CONSTRAINTS)
	@echo "installing misspec into $(VENV) ..."
	$(PIP) --editable '.[experiments,optuna]'
	touch $@

$(VENV)/.test: $(VENV)/.core pyproject.toml $(CONSTRAINTS)
	@echo "installing the test dependencies into $(VENV) ..."
	$(PIP) --editable '.[test]'
	touch $@

$(VENV)/.botorch: $(VENV)/.test
	@echo "installing BoTorch and PyTorch into $(VENV) (gigabytes where there is no small build) ..."
	$(PIP) --editable '.[test,botorch]'
	touch $@

$(VENV)/.lint: $(VENV)/.core pyproject.toml $(CONSTRAINTS)
	$(PIP) --editable '.[lint]'
	touch $@

$(VENV)/.docs: $(VENV)/.core pyproject.toml $(CONSTRAINTS)
	$(PIP) --editable '.[docs]'
	touch $@

$(VENV)/.package: $(VENV)/.python pyproject.toml $(CONSTRAINTS)
	$(PIP) 'build>=1.2'
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-lowest build dist site htmlcov .coverage* src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
