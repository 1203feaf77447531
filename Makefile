# Each target first installs what it lacks, with .ci/setup: system packages, and Python's into .venv.
# Another interpreter: make clean, then make PYTHON=python3.12.
export PYTHON
# Tests start processes hundreds of times. Compiling our modules at each start would take a third of that time.
export PYTHONDONTWRITEBYTECODE :=
.NOTPARALLEL:
.PHONY: venv demo test test-all near check lint coverage pythons docs pictures bench bench-scale soak clean install-demo install-test install-bench

# Tests wait for processes, time-outs and kills for a third of the time, and not in turn: half as many again as there are
# processors leave a quarter of the processors idle. So twice as many run.
# Those of a file share what they make, as mounts and servers: so a file is not divided.
pytest := .venv/bin/python -m pytest
site := NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --quiet
parallel := --dist loadfile --no-loadscope-reorder -n $(shell nproc | awk '{ print ($$1 < 8 ? 2 * $$1 : 16) }')

venv: install-demo

demo: install-demo
	@tests/demo.sh

# Every behaviour once, properties of 12 examples. Floors run bottom up (tests/floors.py), and the first red is the last.
test: install-test
	$(pytest) $(parallel) --hypothesis-profile fewer -m 'not variant and not soak'

# That, each behaviour in all its variants, properties of 50 examples, and other Pythons.
test-all: install-test
	$(pytest) $(parallel) --hypothesis-profile half -m 'not soak'
	.ci/pythons
	$(site)

# The tests that touch what has changed since a commit, by the last `make coverage`: make near BASE=main~3
near: BASE := HEAD
near: install-test
	.venv/bin/python tests/near.py $(BASE) $(parallel) --hypothesis-profile fewer -m 'not variant and not soak'

# Which lines the tests touch, by room, with variants and without.
coverage: install-test
	.venv/bin/python tests/coverage_by_room.py $(parallel) --hypothesis-profile half -m 'not soak'

# The library on other Pythons that are installed here, or on those of PYTHONS: make pythons PYTHONS=/opt/bin/python3.14
export PYTHONS
pythons:
	.ci/pythons

# The site, in build/site: no dead link, no page that is in no menu.
docs: install-test
	$(site)

# The pictures of README.md and docs/looking.md. Look at them afterwards.
pictures: install-test
	.venv/bin/python tests/pictures.py

check: lint

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

# Sizes that convince, what measures memory or time, and properties of 100 examples. Then two that need something else: a PID
# namespace for systemd, and Lhotse's repository, which is cloned from GitHub or is in the directory that TOUCHFS_LHOTSE names.
soak: install-test
	$(pytest) -m 'soak or hypothesis'
	$(pytest) tests/systemd/under_systemd.py
	$(pytest) tests/interop/lhotse_suite.py

clean:
	rm -rf .venv .venv-* .coverage-data build *.egg-info .*_cache .hypothesis
	find touchfs mount tests -name __pycache__ -prune -exec rm -rf {} +

install-demo install-test install-bench: install-%:
	@.ci/setup $*
