# Two commands do everything from a fresh clone: `make report` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
CORES ?= 2
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: setup report test test-quick test-real test-environments chaos check benchmark docs release clean

# The stamp is newer than the pins once they are installed; then set-up is skipped, unless a package went missing since.
setup: .venv/installed
ifneq ($(wildcard .venv/installed),)
ifneq ($(shell $(BIN)/python -c "import importlib.util as u; print(all(map(u.find_spec, ('torch', 'keras', 'snakemake', 'pip'))))"),True)
$(info .venv is incomplete; it is set up again.)
$(shell rm -f .venv/installed)
endif
endif
.venv/installed: requirements.txt constraints.txt pyproject.toml
	@$(BIN)/python -c 'import pip' 2>/dev/null || { $(CHECK) && $(PYTHON) -m venv --clear .venv; }
	@echo "Installing into .venv: 4 GB with a CPU build of torch, 7.7 GB with the CUDA build; two to ten minutes."
	@$(call install,-r requirements.txt)
	@$(call install,--quiet --no-deps -e .)
	@touch $@

CHECK = $(PYTHON) -c 'import sys; (3, 11) <= sys.version_info[:2] <= (3, 13) or sys.exit("Shapeline needs Python 3.11, 3.12 or 3.13, for which all pinned packages have wheels, and this is %d.%d; set PYTHON=/path/to/python3.13" % sys.version_info[:2])'
# By uv where it is installed, which is several times as fast, else and where it fails by pip.
install = { command -v uv >/dev/null && uv pip install --python $(BIN)/python $(1); } || \
	$(BIN)/python -m pip install --disable-pip-version-check $(1)

report: setup
	snakemake --cores $(CORES)
	@echo "Open $(CURDIR)/results/reports/index.html"

# Rewritten assertions are kept, also where Python is told to write no byte code: half of the time before the first test.
test: setup
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder -m "not real"

# Under 90 s on two cores: no framework's models, no run of Snakemake.
QUICK := architecture config designs_connected designs_estimators designs_exact designs_local designs_properties designs_sampled \
	designs_surrogate features graphs hierarchy influence lasso plan prune repository scores statistics theory
test-quick: setup
	OMP_NUM_THREADS=1 python -m pytest -n 2 $(QUICK:%=tests/unit/test_%.py)

test-real: setup
	python -m pytest -m real

# Other interpreters, versions and folders, each in a fresh environment: hours. ONLY="lowest python-3.13" tries some.
test-environments: setup
	python -m tests.environments $(ONLY)

# Faults at random for ten minutes, more on a busy machine; at the end every score is an undisturbed run's.
chaos: setup
	OMP_NUM_THREADS=1 python -m pytest -s -m real tests/workflow/test_chaos.py

check: setup
	ruff check .
	ruff format --check .
	snakefmt --check Snakefile workflow/rules
	snakemake --lint

# OPTIONS=--quick takes a minute; OPTIONS="--only mnist_cnn growth" measures some of it.
benchmark: setup
	python -m benchmarks.run $(OPTIONS)

docs: setup
	python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	mkdocs build --strict
	@echo "Open $(CURDIR)/site/index.html"

# Builds and tries what would be uploaded, and uploads nothing.
release: setup
	@test -z "$$(git status --porcelain)" || { git status --short; echo "Commit these, or remove them, first."; exit 1; }
	$(MAKE) docs
	rm -rf dist
	SHAPELINE_DIST=$(CURDIR)/dist python -m pytest tests/unit/test_release.py tests/real/test_distributions.py
	@ls -l dist; echo "Nothing was uploaded."

clean:
	rm -rf results data/raw data/prepared .snakemake
