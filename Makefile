# Short names for everyday work. `make demo` and `make test` each work in a fresh clone.
# PYTHON picks the interpreter (3.11 or newer) for .venv.

SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null && $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
NATIVE := $(shell find klog csrc -name '*.pyx' -o -name '*.pxd' -o -name '*.c' -o -name '*.h' | grep -v '/_os\.c$$') setup.py klog/disk/_os_build.py
# Spark needs compat mode to find data sources; setuptools prints a long warning about it each time.
PIP := PYTHONWARNINGS=ignore $(BIN)/python -m pip --disable-pip-version-check --quiet install
# The Python fuzz targets: 62 MB on disk. make test-deep fuzzes each of the sixteen for 20 s: five minutes of one core.
ATHERIS := @$(PIP) --only-binary :all: atheris || echo 'atheris is not available for this Python: its targets are skipped'
# Tests wait a quarter of their time: for JVMs, brokers, disks and timers. So there is one process more than cores, and two
# for the deep tests. Memory limits their number, because some of them start a JVM.
PYTEST := $(BIN)/python -m pytest --maxprocesses 4
ONE_MORE := -n $(shell expr $$(nproc) + 1)
TWO_MORE := -n $(shell expr $$(nproc) + 2)
# Only `compiled` writes bytecode: a process that a test starts has the same system calls in each run.
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: help compiled demo test test-hogs test-deep test-c check package wheel docs fuzz bench profile micro debug asan tsan build clean format

help:
	@echo 'make demo       a tour on real flight data in about two minutes: import, crash, recovery, compaction, Spark'
	@echo 'make test       unit, property and golden tests'
	@echo 'make check      ruff, cython-lint, mypy, stubtest, layering'
	@echo 'make docs       the documents and the API reference as HTML, in docs/_build/html'
	@echo 'make package    sdist, the wheel built from it, and klog tried in a fresh venv'
	@echo 'make wheel      a manylinux_2_28 wheel for this processor, without a container'
	@echo 'make test-deep  slower: comparison with Kafka itself, long properties, sanitizers'
	@echo 'make test-hogs  make test ten times (RUNS=), next to a CPU hog and a disk hog'
	@echo 'make test-c     the self test of the C core under address and undefined sanitizers'
	@echo 'make debug      rebuild with bounds checks on; then make test again'
	@echo 'make asan       the C core and the unit tests under address and undefined sanitizers'
	@echo 'make tsan       the tests with threads under the thread sanitizer'
	@echo 'make fuzz       libFuzzer over the C core, atheris over the Python API; FUZZ_SECONDS=300 for each target'
	@echo 'make bench      klog and its peers, as ratios of one run: a table, a plot, docs/performance.md'
	@echo 'make profile CONTEST="append 100B"   a flame graph of one contest of bench/, with Linux perf'
	@echo 'make micro      pyperf on the innermost loops'
	@echo 'make format     format the tree with ruff'

$(VENV)/made:
	@if [ -z '$(PYTHON)' ]; then echo 'klog needs Python 3.11 or newer with its venv module.'; \
		echo 'On Debian or Ubuntu: sudo apt-get install python3 python3-venv python3-dev; or choose one: make PYTHON=/path/to/python3.12 demo'; exit 1; fi
	@command -v $${CC:-cc} >/dev/null || { echo 'klog needs a C compiler. On Debian or Ubuntu: sudo apt-get install gcc libc6-dev'; exit 1; }
	@$(PYTHON) -c 'import os, sys, sysconfig as s; p = os.path.join(s.get_paths()["include"], "Python.h"); os.path.exists(p) or sys.exit(f"klog needs Python.h, which is not at {p}. On Debian or Ubuntu: sudo apt-get install python3-dev")'
	@echo 'creating .venv with $(PYTHON) ...'
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --upgrade pip 'setuptools>=77' wheel 'cython>=3.1' 'cffi>=1.17'
	@touch $@

# Two sets of libraries: those of the demo and those of development. Each is installed again when pyproject.toml
# changes; the native build is repeated when its sources change.
$(VENV)/demo: $(VENV)/made pyproject.toml
	@echo 'installing klog and the libraries of the demo (a minute or two the first time) ...'
	@$(PIP) --no-build-isolation --config-settings editable_mode=compat -e '.[demo]'
	@touch $@ $(VENV)/built

$(VENV)/dev: $(VENV)/made pyproject.toml
	@echo 'installing klog and the libraries of its tests (a minute or two the first time) ...'
	@$(PIP) --no-build-isolation --config-settings editable_mode=compat -e '.[dev]'
	@touch $@ $(VENV)/built

$(VENV)/built: $(NATIVE) | $(VENV)/made
	@echo 'building the native modules ...'
	@$(BIN)/python -W ignore setup.py -q build_ext --inplace
	@touch $@

compiled: $(VENV)/made
	@$(BIN)/python -m compileall -q klog pyspark_klog tests tools bench

build: $(VENV)/built

demo: $(VENV)/demo $(VENV)/built
	@$(BIN)/klog demo

test: $(VENV)/dev $(VENV)/built compiled
	$(PYTEST) $(ONE_MORE) -m 'not deep' $(OPTIONS)

# Ten times, next to a busy process and a busy disk.
test-hogs: $(VENV)/dev $(VENV)/built
	tools/hogs.sh $(RUNS)

test-deep: $(VENV)/dev $(VENV)/built compiled test-c
	tools/install_tools.sh
	$(ATHERIS)
	HYPOTHESIS_PROFILE=deep $(PYTEST) $(TWO_MORE) -m 'deep or hypothesis' --only-needs-skips $(OPTIONS)

check: $(VENV)/dev $(VENV)/built
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint klog
	$(BIN)/mypy
	$(BIN)/python tools/check_stubs.py
	$(BIN)/python tools/check_layers.py

$(VENV)/docs: $(VENV)/made pyproject.toml
	@echo 'installing the libraries of the documents ...'
	@$(PIP) --no-build-isolation --config-settings editable_mode=compat -e '.[docs]'
	@touch $@ $(VENV)/built

# A warning fails it: a reference that leads nowhere, a docstring that is not plain text.
docs: $(VENV)/docs $(VENV)/built
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html

# The files that users install; both are in build/package afterwards.
package: $(VENV)/dev
	$(BIN)/python tools/check_package.py

wheel: $(VENV)/made
	tools/portable_wheel.sh

format: $(VENV)/dev
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

# The C core alone, with sanitizers.
test-c:
	@mkdir -p build/selftest
	$${CC:-cc} -std=c11 -D_GNU_SOURCE -O1 -g -Wall -Wextra -Wno-unused-parameter -fsanitize=address,undefined -fno-sanitize-recover=undefined \
		-Icsrc csrc/*.c csrc/selftest/*.c -o build/selftest/selftest
	build/selftest/selftest

debug: $(VENV)/dev
	KLOG_BUILD=debug $(BIN)/python setup.py -q build_ext --inplace --force
	@touch $(VENV)/built

# The unit tests on a build with address and undefined sanitizers, in its own tree.
asan: $(VENV)/dev
	tools/asan.sh

# The tests with threads on a build with the thread sanitizer, in its own tree.
tsan: $(VENV)/dev
	tools/tsan.sh

# Needs clang with libFuzzer (tools/install_tools.sh) and atheris (extra [fuzz]); missing ones are named and skipped.
fuzz: $(VENV)/dev $(VENV)/built
	tools/install_tools.sh
	$(ATHERIS)
	$(BIN)/python -m tests.fuzz.build --seconds $${FUZZ_SECONDS:-300}

# The table, then the plot of its figures and both in docs/performance.md: commit the files or revert them.
bench: $(VENV)/dev $(VENV)/built
	$(BIN)/python -m bench.compare --save bench/results/ratios.json
	$(BIN)/python -m bench.compare --docs

# Needs perf; builds its own tree. CONTESTANT picks another contestant than klog's first one. docs/profiling.md explains
# the picture.
profile: $(VENV)/dev
	tools/profile.sh '$(CONTEST)' $(if $(CONTESTANT),--contestant '$(CONTESTANT)')

micro: $(VENV)/dev $(VENV)/built
	@for script in bench/micro/*.py; do $(BIN)/python $$script --fast; done

clean:
	rm -rf build .venv *.egg-info
	find klog -name '*.so' -delete
