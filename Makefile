# Each target first installs what it lacks, with .ci/setup: system packages, and Python's into .venv.
# Another interpreter: make clean, then make PYTHON=python3.12.
export PYTHON
# Tests start commands hundreds of times. Compiling our modules at each start would take a third of that time.
export PYTHONDONTWRITEBYTECODE :=
.NOTPARALLEL:
.PHONY: venv demo test check lint coverage pythons bench bench-scale soak clean install-demo install-test install-bench

# Tests wait for processes, time-outs and kills for a third of the time: so half as many again run as there are processors.
parallel := -n $(shell nproc | awk '{ print ($$1 < 11 ? int(1.5 * $$1 + 0.5) : 16) }')

venv: install-demo

demo: install-demo
	@tests/demo.sh

# The rooms of the lowest floors, up to the catalogs. Their tests are the fast ones: they run under coverage, and once in `make check test`.
lowest := $(addprefix tests/,core format posix segments manifest source media store form catalog)

# Tests of mounts share mounts within a file, so a file is not divided.
test: coverage
	.venv/bin/python -m pytest $(parallel) -m 'not alone' --ignore tests/mount $(addprefix --ignore ,$(lowest))
	.venv/bin/python -m pytest $(parallel) --dist loadfile -m 'not alone' tests/mount
	.venv/bin/python -m pytest -m alone tests/cli
	.venv/bin/python -m pytest -m alone tests/mount

coverage: install-test
	.venv/bin/python -m pytest $(parallel) --cov touchfs --cov-report= $(lowest)
	.venv/bin/python tests/coverage_by_room.py

# The library on other Pythons that are installed here, or on those of PYTHONS: make pythons PYTHONS=/opt/bin/python3.14
export PYTHONS
pythons:
	.ci/pythons

check: lint coverage

lint: install-test
	.venv/bin/lint-imports
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/python tests/lint.py
	.venv/bin/mypy

bench: install-bench
	.venv/bin/python tests/bench/run.py

# A hundred million samples: 17 GB of disk, and an hour on 2 cores. To keep them for the next time: make bench-scale AT=/big/disk
bench-scale: install-bench
	.venv/bin/python tests/bench/scale.py 10000 $(AT)

soak: install-test
	TOUCHFS_KILLS=1000 .venv/bin/python -m pytest tests/mount/test_spike.py tests/mount/test_mount_strikes.py tests/cache/test_cache_crashes.py
	TOUCHFS_FAULTS=10000 .venv/bin/python -m pytest tests/source/test_remote_ranges.py
	TOUCHFS_MOUNTS=1000 .venv/bin/python -m pytest tests/mount/test_mount_leaks.py
	.venv/bin/python -m pytest tests/systemd/under_systemd.py
	TOUCHFS_GRAPHS=6400 .venv/bin/python -m pytest tests/node/test_random_graphs.py

clean:
	rm -rf .venv .venv-* .coverage build *.egg-info .*_cache .hypothesis
	find touchfs mount tests -name __pycache__ -prune -exec rm -rf {} +

install-demo install-test install-bench: install-%:
	@.ci/setup $*
